"""Which model for this log: all tuned alike on one split, judged on its test part, told on one page."""
