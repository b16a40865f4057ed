"""Alternating least squares."""
