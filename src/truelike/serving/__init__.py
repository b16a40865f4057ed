"""The HTTP service and its page: `truelike serve`.

A supervisor process binds the address and starts workers. A short-lived loader process reads a model directory, checks
it and writes a snapshot: the same model, laid out for serving, which all workers map into memory. Nobody else writes to
a snapshot. A new model is a new snapshot, to which each worker switches between two requests.
"""
