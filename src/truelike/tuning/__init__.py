"""Hyperparameter search on validation: successive halving, Optuna and the paper's grids."""
