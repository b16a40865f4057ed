"""Fold-in: the factors of a new user from a history of items, with the item tables fixed.

All unobserved items are used instead of a sample, so the result is not random. The row is found by Newton-like
steps:

- `SampledFoldIn`, for models trained on sampled negatives, replaces the Hessian by an upper bound, the objective's
  `curvature`. Such a step never overshoots (Boehning and Lindsay, 1988).
- `AllItemsFoldIn`, for models trained on all items, measures the Hessian. There the bound would be far too large:
  most of the many unobserved items have almost no curvature. A step that is too long is halved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from truelike.objectives import Listwise, Objective, Pairwise, Pointwise, Softmax, softmax

Codes = NDArray[np.int32]
Floats = NDArray[np.float32]
Scores = NDArray[np.floating]
STEPS = 30
HALVINGS = 8
SINGLE_PRECISION = 1e-4  # least share of the L2 in the diagonal of a Hessian that is computed in float32
WIDTH = 1e-3  # of the finite differences, in units of r
ROWS_PER_CALL = 64  # rows of scores per call of `steps` of a listwise objective


def rows_of(histories: sparse.csr_array) -> list[Codes]:
    """Return the items of each row of a CSR."""
    return [histories.indices[a:b] for a, b in pairwise(histories.indptr)]


def counts_of(histories: sparse.csr_array) -> list[Floats]:
    """Return how much each interaction counts, for each row of a CSR."""
    return [histories.data[a:b] for a, b in pairwise(histories.indptr)]


def histories_of(rows: Sequence[Codes], n_items: int) -> sparse.csr_array:
    """Return the CSR of some rows of items, each sorted, whose interactions all count 1: the inverse of `rows_of`."""
    indptr = np.cumsum([0, *(len(row) for row in rows)]).astype(np.int32)
    indices = np.concatenate([np.zeros(0, np.int32), *rows]).astype(np.int32)
    return sparse.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(rows), n_items))


class AverageFlips(Protocol):
    """Flip probabilities, as far as new users need them."""

    def average_logits(self) -> NDArray[np.floating]:
        """The flip logits of the average user, which stand for those of a new user."""


class FoldIn(ABC):
    """How a model with fixed item tables finds the row of a new user.

    `counts` is how much each interaction counts, in the order of the history; None: each counts 1.
    """

    @abstractmethod
    def row(self, history: Codes, counts: Floats | None = None) -> Floats:
        """The row of a user with this history, which is not empty."""

    def rows_without(self, history: Codes, places: Codes, counts: Floats | None = None) -> Floats:
        """The row of a history, then its rows without the interaction at each of some places. May implement."""
        return np.stack([self.row(history, counts), *(self.row(*without(history, counts, at)) for at in places)])

    def contributions(self, history: Codes, items: Codes, counts: Floats | None = None) -> Floats | None:
        """See `Scorer.contributions`. May implement."""
        return None


def without(history: Codes, counts: Floats | None, place: int) -> tuple[Codes, Floats | None]:
    """Return a history and how much it counts without the interaction at a place."""
    return np.delete(history, place), None if counts is None else np.delete(counts, place)


def scaled(values: Scores, counts: Floats | None) -> Scores:
    """Return values of interactions, along the last axis, times how much each counts."""
    return values if counts is None else values * counts


def total_of(history: Codes, counts: Floats | None) -> float:
    """Return how much the interactions of a history count together."""
    return len(history) if counts is None else float(counts.sum(dtype=np.float64))


@dataclass(frozen=True)
class ObjectiveFoldIn(FoldIn):
    """New users of a model that is trained by an objective; without flips, g = 0."""

    item_factors: Floats
    item_bias: Floats | None
    objective: type[Objective]
    flips: AverageFlips | None

    @cached_property
    def g(self) -> Floats:
        """The flip logits of a new user."""
        flips = self.flips
        found = np.zeros(len(self.item_factors)) if flips is None else flips.average_logits()
        return np.asarray(found, dtype=np.float32)

    @abstractmethod
    def l2_of(self, n: int) -> float:
        """The L2 of the row of a user with n interactions."""

    def exactly(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """V, the biases and g in float64."""
        V = self.item_factors.astype(np.float64)
        b = np.zeros(len(V)) if self.item_bias is None else self.item_bias.astype(np.float64)
        return V, b, self.g.astype(np.float64)


@dataclass(frozen=True)
class SampledFoldIn(ObjectiveFoldIn):
    """New users of a model that is trained on sampled negatives."""

    probabilities: Callable[[Codes], NDArray[np.float64]]  # of each item as a negative of a user with a history
    n_negatives: int  # the paper's rho
    weight: float  # of a positive's step
    l2: float

    def l2_of(self, n: int) -> float:
        """The same for all."""
        return self.l2

    def row(self, history: Codes, counts: Floats | None = None) -> Floats:
        """The row at which the expected update of sampled training is zero."""
        V, b, g = self.exactly()
        objective, n_negatives = self.objective, self.n_negatives
        regularization = self.l2_of(len(history))
        own = V[history]
        # how often each item is drawn in an epoch; the step of a pair is multiplied by what its positive counts
        draws = total_of(history, counts) if issubclass(objective, Pairwise) else len(history)
        expected = self.probabilities(history) * (n_negatives * draws)
        positive_weight = float(n_negatives) if issubclass(objective, Pairwise) else self.weight
        of_positives = (positive_weight * scaled(own.T, counts)) @ own
        bound = curvature_bound(objective) * (of_positives + (V * expected[:, None]).T @ V)
        matrix = bound + max(regularization, 1e-6) * np.eye(V.shape[1])
        row, factor = np.zeros(V.shape[1]), linalg.lu_factor(matrix, check_finite=False)
        for _ in range(STEPS):
            gradient = self._gradient(V @ row + b, history, counts, expected, g, V) - regularization * row
            row = row + linalg.lu_solve(factor, gradient, check_finite=False)
        return row.astype(np.float32)

    def _gradient(
        self, r: Scores, history: Codes, counts: Floats | None, expected: Scores, g: Scores, V: Scores
    ) -> Scores:
        """The expected gradient of the row in a whole epoch, without the L2."""
        objective = self.objective
        if issubclass(objective, Pairwise):
            up, down = objective.pair(r[history][:, None], r[None, :])
            draws = expected / total_of(history, counts)  # for one positive
            of_items = np.asarray(down).sum(axis=0) if counts is None else counts @ down
            return np.asarray(V[history].T @ scaled(up @ draws, counts) + V.T @ (draws * of_items))
        assert issubclass(objective, Pointwise)
        up, _ = objective.positive(r[history], g[history])
        down, _ = objective.negative(r, g)
        return np.asarray(self.weight * (V[history].T @ scaled(up, counts)) + V.T @ (expected * down))

    def rows_without(self, history: Codes, places: Codes, counts: Floats | None = None) -> Floats:
        """By steps that the rows take together."""
        from truelike.models.left_out import SampledRows

        return SampledRows(self, history, counts).rows(places)


@dataclass(frozen=True)
class AllItemsFoldIn(ObjectiveFoldIn):
    """New users of a model that is trained on all items."""

    unobserved_weight: float
    l2: float  # of the row of a user with `mean_interactions`; it grows with their number to the power
    frequency_power: float = 0.0
    mean_interactions: float = 1.0

    def l2_of(self, n: int) -> float:
        """By the power of the number of interactions."""
        return self.l2 * float((n / self.mean_interactions) ** self.frequency_power)

    def row(self, history: Codes, counts: Floats | None = None) -> Floats:
        """The row at which the gradient of training on all items is zero."""
        (V, b, g), l2 = self.exactly(), max(self.l2_of(len(history)), 1e-6)
        row = np.zeros(V.shape[1])
        gradient = V.T @ self.steps(b[None], g, history, counts)[0]
        for _ in range(STEPS):
            matrix = self.hessian(V @ row + b, history, counts, l2, exact=False) + l2 * np.eye(len(row))
            move = np.linalg.solve(matrix, gradient)
            for _ in range(HALVINGS):  # a step that does not reduce the gradient is too long
                r = (V @ (row + move) + b)[None]
                ahead = V.T @ self.steps(r, g, history, counts)[0] - l2 * (row + move)
                if np.linalg.norm(ahead) < np.linalg.norm(gradient):
                    break
                move = move / 2
            row, gradient = row + move, ahead
            if np.linalg.norm(move) <= 1e-5 * np.linalg.norm(row):
                break
        return row.astype(np.float32)

    def steps(
        self, r: Scores, g: Scores, history: Codes, counts: Floats | None, left: Codes | None = None
    ) -> Scores:
        """The steps of all scores r of some rows; row n is that of the history without the item left[n]."""
        rows, objective = np.arange(len(r)), self.objective
        if issubclass(objective, Listwise):
            observed = np.zeros_like(r)
            observed[:, history] = 1.0 if counts is None else counts
            if left is not None:
                observed[rows, left] = 0.0
            return np.asarray(objective.steps(r, observed))
        assert issubclass(objective, Pointwise)
        found = self.unobserved_weight * objective.negative(r, g)[0]
        kept = None if left is None else found[rows, left]
        found[:, history] = scaled(objective.positive(r[:, history], g[history])[0], counts)
        if left is not None:
            found[rows, left] = kept
        return np.asarray(found, dtype=r.dtype)

    def hessian(
        self, r: Scores, history: Codes, counts: Floats | None, l2: float, *, exact: bool
    ) -> NDArray[np.float64]:
        """Minus the Hessian with respect to a row with scores r, made positive semidefinite, without the L2.

        That of the softmax is an upper bound unless it is to be `exact`: then a step never overshoots.
        """
        V, objective = self.item_factors, self.objective
        if issubclass(objective, Listwise):
            if objective.steps is not Softmax.steps:
                return listwise_hessian(objective, r, np.isin(np.arange(len(V)), history) * 1.0, self.exactly()[0])
            p, n = softmax(r), total_of(history, counts)
            bound, mean = weighted_products(V, n * p, l2), p @ V
            return bound - n * np.outer(mean, mean) if exact else bound
        g = self.g.astype(np.float64)
        below, above = (self.steps((r + shift)[None], g, history, counts)[0] for shift in (-WIDTH, WIDTH))
        return weighted_products(V, np.maximum((below - above) / (2 * WIDTH), 0.0), l2)

    def rows_without(self, history: Codes, places: Codes, counts: Floats | None = None) -> Floats:
        """By steps that the rows take together."""
        from truelike.models.left_out import AllItemsRows

        return AllItemsRows(self, history, counts).rows(places)


def curvature_bound(objective: type[Objective]) -> float:
    """Return the objective's bound of ``|d step / dr|``; if it declares none, the largest value over -20 ... 20."""
    if objective.curvature is not None:
        return objective.curvature
    r = np.linspace(-20, 20, 8_001)
    if issubclass(objective, Pairwise):  # r_i and r_j both depend on the user's row
        zero = np.zeros_like(r)
        steps = [2 * np.asarray(objective.pair(r, zero)[0])]
    else:
        assert issubclass(objective, Pointwise)
        flips = [np.full_like(r, g) for g in (-3.0, 0.0, 3.0)]
        steps = [np.asarray(step(r, g)[0]) for step in (objective.positive, objective.negative) for g in flips]
    return float(max(np.abs(np.diff(step)).max() for step in steps) / (r[1] - r[0]))


def weighted_products(V: Floats, weights: Scores, l2: float) -> NDArray[np.float64]:
    """Return V^T diag(weights) V, in float32 if l2 is so large that its rounding does not matter.

    A Hessian decides how fast the steps converge, not where to. The gradient does, and is in float64.
    """
    scaled = V * np.sqrt(weights).astype(np.float32)[:, None]
    product = scaled.T @ scaled
    if l2 > SINGLE_PRECISION * product.diagonal().max():
        return product.astype(np.float64)
    exact = V.astype(np.float64)
    return (exact * weights[:, None]).T @ exact


def listwise_hessian(
    objective: type[Listwise], r: Scores, observed: Scores, V: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return minus V^T J V, where J is the Jacobian of the steps, by finite differences along the factors.

    Scores of different items may interact, so J is not diagonal. Negative eigenvalues are set to 0, so that the
    step is an ascent direction also where the objective is not concave.
    """
    factors = V.shape[1]
    widths = WIDTH / np.maximum(np.abs(V).max(axis=0), 1e-12)  # no score changes by more than WIDTH
    product = np.empty((factors, factors))
    for start in range(0, factors, ROWS_PER_CALL):
        chosen = slice(start, start + ROWS_PER_CALL)
        shift = (V[:, chosen] * widths[chosen]).T
        rows = np.broadcast_to(observed, shift.shape)
        change = objective.steps(r - shift, rows) - objective.steps(r + shift, rows)
        product[chosen] = (change / (2 * widths[chosen, None])) @ V
    values, vectors = np.linalg.eigh((product + product.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
