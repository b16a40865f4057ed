"""The exact engine: every unobserved item counts, by dense matrix products."""
