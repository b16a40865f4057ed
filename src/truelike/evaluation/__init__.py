"""Ranking, metrics and significance. Knows only the contract of a recommender."""
