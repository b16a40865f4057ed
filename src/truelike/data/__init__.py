"""Rows in, `Split` out. Knows nothing of models."""
