"""Fold-in of a history without one of its interactions, for many of them at once.

The rows of all these histories move together, so that a step is a few matrix products. They come to where the fold-in
of each alone leads:

- `SampledRows` take the steps of `SampledFoldIn`, from a row of zeros and with the same bound of the Hessian.
- `AllItemsRows` start at the row of the whole history, which is close, and take Newton-like steps with the Hessian
  there for all rows, until they come to rest. A row that does not is folded in by itself.

Scores and gradients are in float32. Only the difference to the row of the whole history, computed likewise, is used, so
that rounding cancels out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, Generic, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from truelike.core.parallel import one_blas_thread
from truelike.models.fold_in import (
    STEPS,
    AllItemsFoldIn,
    Codes,
    Floats,
    SampledFoldIn,
    curvature_bound,
    scaled,
    total_of,
    weighted_products,
    without,
)
from truelike.objectives import Pairwise, Pointwise

TOLERANCE = 1e-3  # of the last step, relative to the distance from the row of the whole history
PAIRS_AT_ONCE = 1 << 20  # pairs of row and item
SPACING = 0.2  # of the nodes between which a pairwise objective is interpolated, in units of r
USUAL_NODES, MOST_NODES = 128, 512


F = TypeVar("F", SampledFoldIn, AllItemsFoldIn)


class _Rows(ABC, Generic[F]):
    """The rows of a history without one interaction, which move together."""

    def __init__(self, fold: F, history: Codes, counts: Floats | None) -> None:
        n = len(history)
        self.fold: F = fold
        self.history, self.counts, self.objective = history, counts, fold.objective
        self.item_factors, self.row = fold.item_factors, fold.row(history, counts)
        self.g = fold.g
        self.l2, self.l2_without = fold.l2_of(n), fold.l2_of(n - 1)

    @final
    def rows(self, places: Codes) -> Floats:
        """Return the row of the history, then its rows without the interaction at each of some places."""
        found = np.empty((1 + len(places), len(self.row)), dtype=np.float32)
        found[0] = self.row
        with one_blas_thread():
            at_once = max(16, self._rows_at_once())
            for start in range(0, len(places), at_once):
                mine = places[start : start + at_once]
                moved, done = self._moves(mine)
                found[1 + start : 1 + start + len(mine)] = self.row + moved
                for at in np.flatnonzero(~done):
                    found[1 + start + at] = self.fold.row(*without(self.history, self.counts, mine[at]))
        return found

    @abstractmethod
    def _moves(self, places: Codes) -> tuple[Floats, NDArray[np.bool_]]:
        """Return how far the row moves without the item at each place, and which of these moves were found."""

    @final
    def _rows_at_once(self) -> int:
        """Return how many rows move together."""
        found = PAIRS_AT_ONCE // len(self.item_factors)
        if issubclass(self.objective, Pairwise):  # pairs of positive and node, too
            return min(found, 4 * PAIRS_AT_ONCE // (USUAL_NODES * len(self.history)))
        return found

    @final
    def _scores(self, rows: Floats) -> Floats:
        r = rows @ self.item_factors.T
        return r if self.fold.item_bias is None else r + self.fold.item_bias


class AllItemsRows(_Rows[AllItemsFoldIn]):
    """Those of a model that is trained on all items."""

    def __init__(self, fold: AllItemsFoldIn, history: Codes, counts: Floats | None) -> None:
        super().__init__(fold, history, counts)
        self.l2, self.l2_without = max(self.l2, 1e-6), max(self.l2_without, 1e-6)

    def _moves(self, places: Codes) -> tuple[Floats, NDArray[np.bool_]]:
        left, row, factor = self.history[places], self.row, self._factor
        r = self._scores(row[None])
        residual = self._gradients(r, None) - np.float32(self.l2) * row
        moved, done = np.zeros((len(left), len(row)), dtype=np.float32), np.zeros(len(left), dtype=np.bool_)
        for _ in range(0 if factor is None else STEPS):
            gradients = self._gradients(r + moved @ self.item_factors.T, left) - residual
            gradients -= np.float32(self.l2_without) * (row + moved)
            step = linalg.cho_solve(factor, gradients.T, check_finite=False).T.astype(np.float32)
            step[done] = 0.0  # a row rests where it would alone
            moved += step
            done |= np.linalg.norm(step, axis=1) <= TOLERANCE * np.linalg.norm(moved, axis=1)
            if done.all():
                break
        return moved, done

    def _gradients(self, r: Floats, left: Codes | None) -> Floats:
        """Return the gradient with respect to each row, without the L2."""
        return np.asarray(
            self.fold.steps(r, self.g, self.history, self.counts, left) @ self.item_factors, dtype=np.float32
        )

    @cached_property
    def _factor(self) -> Any:
        """The Cholesky factor of the Hessian at the row of the whole history; None if there is none."""
        r = self._scores(self.row[None])[0].astype(np.float64)
        hessian = self.fold.hessian(r, self.history, self.counts, self.l2_without, exact=True)
        try:
            return linalg.cho_factor(hessian + self.l2_without * np.eye(len(self.row)), check_finite=False)
        except linalg.LinAlgError:
            return None


class SampledRows(_Rows[SampledFoldIn]):
    """Those of a model that is trained on sampled negatives."""

    def __init__(self, fold: SampledFoldIn, history: Codes, counts: Floats | None) -> None:
        super().__init__(fold, history, counts)
        self.n_negatives, self.weight = fold.n_negatives, fold.weight
        self.probabilities = fold.probabilities(history)
        self.prior = fold.probabilities(history[:0])

    def _moves(self, places: Codes) -> tuple[Floats, NDArray[np.bool_]]:
        moved = self._rows(places) - self._rows(None)
        return moved, np.isfinite(moved).all(axis=1)

    def _rows(self, places: Codes | None) -> Floats:
        """Return where the steps of `fold_in` lead, without the item at each place or with the whole history."""
        V, own = self.item_factors, self.item_factors[self.history].astype(np.float64)
        l2, left = (self.l2, None) if places is None else (self.l2_without, self.history[places])
        n = self._n_draws(left)
        others, again = self._draws(left)
        usual = float(self._draws(None if left is None else self.history)[0].mean())  # one matrix for all rows
        expected = self.probabilities * (n * usual)
        positive = float(self.n_negatives) if issubclass(self.objective, Pairwise) else self.weight
        bound = max(curvature_bound(self.objective), 1e-12)
        matrix = bound * (positive * scaled(own.T, self.counts) @ own + weighted_products(V, expected, l2 / bound))
        matrix[np.diag_indices_from(matrix)] += max(l2, 1e-6)
        factor = linalg.cho_factor(matrix, check_finite=False)
        rows = np.zeros((1 if left is None else len(left), V.shape[1]))
        if left is not None:  # of an item that is left out the matrix has another term, of rank one
            vectors = V[left].astype(np.float64)
            solved = linalg.cho_solve(factor, vectors.T, check_finite=False).T
            term = bound * (again * n - positive * (1.0 if self.counts is None else self.counts[places]))
            share = (term / (1 + term * np.einsum("mk,mk->m", vectors, solved)))[:, None]
        draws = (others[:, None] * self.probabilities).astype(np.float32)
        if left is not None:
            draws[np.arange(len(left)), left] = again
        for _ in range(STEPS):
            gradients = self._gradients(self._scores(rows.astype(np.float32)), left, draws) - l2 * rows
            step = linalg.cho_solve(factor, gradients.T, check_finite=False).T
            if left is not None:
                step -= solved * share * np.einsum("mk,mk->m", vectors, step)[:, None]
            rows += step
        return rows.astype(np.float32)

    def _n_draws(self, left: Codes | None) -> float:
        """Return for how many positives negatives are drawn. In a pairwise objective, a positive is what it counts."""
        n = float(len(self.history))
        if issubclass(self.objective, Pairwise):
            n = total_of(self.history, self.counts)
        return n if left is None else n - n / len(self.history)

    def _draws(self, left: Codes | None) -> tuple[Any, Any]:
        """Return how often items are drawn for one positive: a factor of `probabilities`, and the item left out."""
        if left is None:
            return np.array([float(self.n_negatives)]), np.zeros(1)
        unobserved = float(self.prior[self.probabilities > 0].sum())
        share = self.prior[left] / np.maximum(unobserved + self.prior[left], 1e-300)
        return self.n_negatives * (1 - share), self.n_negatives * share

    def _gradients(self, r: Floats, left: Codes | None, draws: Floats) -> Floats:
        """Return the gradient with respect to each row, without the L2.

        `r` has the scores of all items for each row, and `left` the item that is left out of the history of each
        row; None: no item. `draws` says how often each item is drawn for one positive.
        """
        rows, mine = np.arange(len(r)), self.history
        if issubclass(self.objective, Pairwise):
            return self._pairwise(r, left, draws)
        assert issubclass(self.objective, Pointwise)
        n = np.float32(len(mine) - (left is not None))
        steps = n * draws * self.objective.negative(r, self.g)[0]
        kept = None if left is None else steps[rows, left]
        positive = self.objective.positive(r[:, mine], self.g[mine])[0]
        steps[:, mine] = np.float32(self.weight) * scaled(positive, self.counts)
        if left is not None:
            steps[rows, left] = kept
        return np.asarray(steps @ self.item_factors, dtype=np.float32)

    def _pairwise(self, r: Floats, left: Codes | None, draws: Floats) -> Floats:
        """Return the gradients of a pairwise objective, which is interpolated between nodes on the scores.

        The pairs of positive and node are far fewer than those of positive and item.
        """
        assert issubclass(self.objective, Pairwise)
        low, high = float(r.min()), float(r.max())
        if not np.isfinite(high - low):
            return np.full((len(r), self.item_factors.shape[1]), np.nan, dtype=np.float32)
        n = int(np.clip((high - low) / SPACING, 8, MOST_NODES))
        nodes = np.linspace(low, high, n, dtype=np.float32)
        at, parts = _cubic(r, low, (high - low) / (n - 1), n)
        flat = (np.arange(len(r))[:, None] * n + at).reshape(-1)
        weights = sum(
            np.bincount(flat + place, (draws * part).reshape(-1), minlength=len(r) * n)
            for place, part in enumerate(parts)
        )
        own = r[:, self.history]
        up, down = self.objective.pair(own[:, :, None], nodes[None, None, :])
        counted = np.ones(own.shape, dtype=np.float32)
        counted *= 1 if self.counts is None else self.counts
        if left is not None:
            counted[self.history[None, :] == left[:, None]] = 0.0
        of_positives = (
            counted * np.matmul(up, np.asarray(weights, dtype=np.float32).reshape(len(r), n, 1))[:, :, 0]
        )
        at_nodes = np.matmul(counted[:, None, :], down).reshape(-1)
        of_items = draws * sum(at_nodes[flat + place].reshape(r.shape) * part for place, part in enumerate(parts))
        return np.asarray(
            of_positives @ self.item_factors[self.history] + of_items @ self.item_factors, dtype=np.float32
        )


def _cubic(r: Floats, low: float, spacing: float, n: int) -> tuple[Any, list[Floats]]:
    """Return for each score the first of the four nodes around it, and the weights of cubic interpolation.

    >>> at, parts = _cubic(np.array([1.5], dtype=np.float32), 0.0, 1.0, 4)
    >>> at.tolist(), [part.tolist() for part in parts]
    ([0], [[-0.0625], [0.5625], [0.5625], [-0.0625]])
    """
    place = (r - np.float32(low)) / np.float32(max(spacing, 1e-12))
    first = np.clip(place.astype(np.int64) - 1, 0, n - 4)
    x = place - first.astype(np.float32)
    a, b, c, d = x, x - 1, x - 2, x - 3
    return first, [-b * c * d / 6, a * c * d / 2, -a * b * d / 2, a * b * c / 6]
