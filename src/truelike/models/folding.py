"""Fold-in: the row of a user never seen before, from a history, with the item tables fixed.

The sum over *all* unvoted items takes the place of the drawn ones, so nothing is random. The row is found by a
few Newton-like steps: the curvature of every objective in r has a bound, and the matrix with that bound in it
is a step that never overshoots (Boehning and Lindsay, 1988). Where training itself counts all unvoted items, there
are so many of them, each with so little curvature, that the bound would be far too careful: there it is measured.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.objectives import Listwise, Objective, Pairwise, Pointwise, softmax

STEPS = 30
HALVINGS = 8
WIDTH = 1e-3  # over which the curvature is measured


def rows_of(histories: Any) -> list[NDArray[np.int32]]:
    """The items of each row of a CSR."""
    return [histories.indices[a:b] for a, b in pairwise(histories.indptr)]


def fold_in(
    item_factors: NDArray[np.float32],
    history: NDArray[np.int32],
    objective: type[Objective],
    law: NDArray[np.float64],
    flips: NDArray[np.floating] | None = None,
    *,
    item_bias: NDArray[np.float32] | None = None,
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
    item_bias
        What an item's score has beside the product; None: nothing.
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
    b = np.zeros(len(V)) if item_bias is None else item_bias.astype(np.float64)
    row = np.zeros(V.shape[1])
    for _ in range(STEPS):
        gradient = _gradient(objective, V @ row + b, history, expected, g, weight, V) - regularization * row
        row = row + np.linalg.solve(matrix, gradient)
    return row.astype(np.float32)


def fold_in_all(
    item_factors: NDArray[np.float32],
    item_bias: NDArray[np.float32],
    history: NDArray[np.int32],
    objective: type[Objective],
    flips: NDArray[np.floating] | None = None,
    *,
    unvoted_weight: float,
    regularization: float,
) -> NDArray[np.float32]:
    """The user's row at which the step of training on all items is zero.

    Parameters
    ----------
    item_factors, item_bias
        The paper's V, and the biases.
    history
        The items voted for.
    objective
        What is maximised: a pointwise or a listwise one.
    flips
        The flip logit g of each item for this user; None: there are none.
    unvoted_weight
        How much an unvoted item counts.
    regularization
        The L2 of the user's row.
    """
    V, b = item_factors.astype(np.float64), item_bias.astype(np.float64)
    voted = np.zeros(len(V))
    voted[history] = 1.0
    g = np.zeros(len(V)) if flips is None else flips.astype(np.float64)

    def steps(r: Any) -> Any:
        if issubclass(objective, Listwise):
            return objective.steps(r, voted)
        assert issubclass(objective, Pointwise)
        return np.where(voted, objective.positive(r, g)[0], unvoted_weight * objective.unvoted(r, g)[0])

    def curvature(r: Any) -> Any:
        if issubclass(objective, Listwise):
            return len(history) * softmax(r)  # less a term of rank one: never overshoots
        return np.maximum((steps(r - WIDTH) - steps(r + WIDTH)) / (2 * WIDTH), 0.0)

    prior = max(regularization, 1e-6)
    row = np.zeros(V.shape[1])
    slope = V.T @ steps(b)
    for _ in range(STEPS):
        matrix = (V * curvature(V @ row + b)[:, None]).T @ V + prior * np.eye(len(row))
        move = np.linalg.solve(matrix, slope)
        for _ in range(HALVINGS):  # a step that makes it worse is too long
            ahead = V.T @ steps(V @ (row + move) + b) - prior * (row + move)
            if np.linalg.norm(ahead) < np.linalg.norm(slope):
                break
            move = move / 2
        row, slope = row + move, ahead
        if np.linalg.norm(move) <= 1e-5 * np.linalg.norm(row):
            break
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
