"""Defaults of the regularization that depend on the data."""

from __future__ import annotations

import numpy as np

from truelike.data.dataset import Dataset


def interactions_per_row(train: Dataset) -> float:
    """The geometric mean of the mean number of interactions of a user and that of an item.

    Users and items without an interaction are left out: they do not change how much is known of the others.
    """
    rows, columns = train.interactions_per_user(), train.popularity()
    return float(np.sqrt(rows[rows > 0].mean() * columns[columns > 0].mean()))
