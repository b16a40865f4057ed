"""The recommenders, one idea a file, under one contract (`base.py`). `registry.py` finds them by name."""
