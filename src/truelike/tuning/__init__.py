"""Choosing parameters on validation: the paper's grids, successive halving, Optuna."""
