"""Fold-in: the row of a user never seen before, from a history, with the item tables fixed.

The sum over *all* unvoted items takes the place of the drawn ones, so nothing is random. The row is found by a
few Newton-like steps: the curvature of every objective in r has a bound, and the matrix with that bound in it
is a step that never overshoots (Boehning and Lindsay, 1988).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.objectives import Objective, Pairwise, Pointwise

STEPS = 30


def fold_in(
    item_factors: NDArray[np.float32],
    history: NDArray[np.int32],
    objective: type[Objective],
    law: NDArray[np.float64],
    flips: NDArray[np.floating] | None = None,
    *,
    n_negatives: int,
    weight: float,
    regularization: float,
) -> NDArray[np.float32]:
    """The user's row at which the expected step of training is zero.

    Parameters
    ----------
    item_factors
        The paper's V.
    history
        The items voted for.
    objective
        What is maximised.
    law
        The probability of each item as a negative of this user (0 for the history).
    flips
        The flip logit g of each item for this user; None: there are none.
    n_negatives, weight
        The paper's rho, and how often a positive's step counts.
    regularization
        The lambda of the user's row in a whole epoch.
    """
    V = item_factors.astype(np.float64)
    own = V[history]
    expected = law * (n_negatives * len(history))  # how often each item is drawn in an epoch
    positive_weight = float(n_negatives) if issubclass(objective, Pairwise) else weight
    bound = objective.curvature * (positive_weight * own.T @ own + (V * expected[:, None]).T @ V)
    matrix = bound + max(regularization, 1e-6) * np.eye(V.shape[1])
    g = np.zeros(len(V)) if flips is None else flips.astype(np.float64)
    row = np.zeros(V.shape[1])
    for _ in range(STEPS):
        gradient = _gradient(objective, V @ row, history, expected, g, weight, V) - regularization * row
        row = row + np.linalg.solve(matrix, gradient)
    return row.astype(np.float32)


def _gradient(
    objective: type[Objective], r: Any, history: Any, expected: Any, g: Any, weight: float, V: Any
) -> Any:
    """The expected step of the row in a whole epoch."""
    if issubclass(objective, Pairwise):
        up, down = objective.pair(r[history][:, None], r[None, :])
        law = expected / len(history)  # of one positive
        return V[history].T @ (up @ law) + V.T @ (law * np.asarray(down).sum(axis=0))
    assert issubclass(objective, Pointwise)
    up, _ = objective.positive(r[history], g[history])
    down, _ = objective.unvoted(r, g)
    return weight * (V[history].T @ up) + V.T @ (expected * down)
