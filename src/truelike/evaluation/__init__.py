"""Metrics, evaluation of ranked lists, significance tests and scoring against true labels.

This package knows models only through the protocol `Ranker` in `protocol.py`.
"""
