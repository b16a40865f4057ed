"""Where the values of the parameters come from that are not given: the authors' recipe, and ours."""

from __future__ import annotations

from typing import Any

import numpy as np

from truelike.data.dataset import Dataset

# The authors' recipe (their release), and what works best on validation over the data sets at hand.
PAPER: dict[str, Any] = {
    "factors": 50,
    "flip_factors": 50,
    "learning_rate": 0.05,
    "decay": 0.99,
    "regularization": 1.0,
    "flip_regularization": 5.0,
    "prior": "batch",
    "shrink": "all",
    "n_negatives": 4,
    "batch_size": 5_000,
    "order": "file",
    "positives": "each",
    "init": "paper",
    "init_scale": 0.1,
    "epochs": 200,
}
DEFAULT: dict[str, Any] = {
    "objective": "NBPO",
    "negatives": "uniform",
    "factors": 64,
    "flip_factors": 32,
    "learning_rate": 0.02,
    "decay": 0.98,
    "regularization": 15.0,
    "flip_regularization": 2.0,
    "prior": "epoch",
    "shrink": "all",
    "n_negatives": 8,
    "batch_size": 1_000,
    "order": "shuffled",
    "positives": "each",
    "init": "normal",
    "init_scale": 0.1,
    "epochs": 100,
}
# With all unvoted items instead of a sample.
EXACT: dict[str, Any] = {
    "objective": "softmax",
    "factors": 256,
    "flip_factors": 32,
    "learning_rate": 0.02,
    "decay": 0.95,
    "optimizer": "adam",
    "item_bias": True,
    "frequency_power": 0.75,
    "batch_size": 128,
    "init": "spectral",
    "init_scale": 0.025,
    "overlooked": 0.0,
    "epochs": 60,
}


def votes_of_a_row(log: Dataset) -> float:
    """How much a log says of a user or an item: the geometric mean of the votes of the mean user and mean item.

    Those without any are left out: that there are more of them changes nothing for the others.
    """
    rows, columns = log.rows_per_user(), log.popularity()
    return float(np.sqrt(rows[rows > 0].mean() * columns[columns > 0].mean()))


# Parameters that mean something to one of the two engines only.
OF_SAMPLED = ("n_negatives", "order", "positives", "prior", "shrink")
OF_EXACT = ("optimizer", "item_bias", "frequency_power", "unvoted_weight", "overlooked")
