"""Exposure that is not logged: estimates of p(shown to a user), one estimator per file.

`names.parse` reads the name of an estimator, and `names.estimate` applies it to interactions. An estimate is an
`ExposureRates`: one rate per user and one per item. So it costs users + items, never users x items.
"""
