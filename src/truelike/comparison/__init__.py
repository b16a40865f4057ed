"""Which model suits a dataset: all tuned alike on one split, evaluated on its test part, reported on one page."""
