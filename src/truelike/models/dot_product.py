"""Scores that are dot products of vectors: a scorer, and the vectors of new users."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.parallel import one_blas_thread
from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.engines.weights import HistoryCounts
from truelike.errors import ParameterError
from truelike.models.fold_in import FoldIn, counts_of, histories_of, rows_of
from truelike.models.scorer import DotProduct, Floats, Scorer
from truelike.ranking.factor_ranker import factor_score_block

L2 = 1e-4  # of the regression, as a share of the mean square of its columns


@final
class DotProductScorer(Scorer):
    """The score of an item for a user is the dot product of their vectors, plus the bias of the item.

    The similarity of two items is the cosine of their vectors.

    Parameters
    ----------
    train : Dataset
        The training data.
    user_vectors, item_vectors : arrays
        A row for each user and each item.
    item_bias : array, optional
        A number for each item.
    fold_in : function, optional
        Returns the `FoldIn` that finds the vectors of new users; it is called for the first of them. None: a vector is
        predicted from the item vectors of the history, by the linear regression that fits the users of the training
        data best. It does not ask how the vectors were learned, so it suits any model.
    counting : optional
        As of `Scorer`, for a `fold_in` that uses how much interactions count.

    Examples
    --------
    >>> import numpy as np, truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("eve", "milk")])
    >>> scorer = tl.DotProductScorer(data, np.eye(3, 2), np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> scorer.score_users(np.array([0, 1])).tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """

    def __init__(
        self,
        train: Dataset | Blocks,
        user_vectors: NDArray[np.floating],
        item_vectors: NDArray[np.floating],
        item_bias: NDArray[np.floating] | None = None,
        fold_in: Callable[[], FoldIn] | None = None,
        counting: HistoryCounts | None = None,
    ) -> None:
        super().__init__(train, counting)
        width = np.shape(user_vectors)[-1:]
        users = _table("user_vectors", user_vectors, (train.n_users, *width))
        items = _table("item_vectors", item_vectors, (train.n_items, *width))
        bias = None if item_bias is None else _table("item_bias", item_bias, (train.n_items,))
        self._vectors, self._new_fold_in = DotProduct(users, items, bias), fold_in

    @cached_property
    def fold_in(self) -> FoldIn:
        """How the vectors of new users are found."""
        return self._new_fold_in() if self._new_fold_in else RegressionFoldIn(self.train, self._vectors)

    @property
    def vectors(self) -> DotProduct:
        """The vectors."""
        return self._vectors

    def score_users(self, users: Codes) -> Floats:
        """By dot products."""
        return self._vectors.scores(users)

    def history_vectors(self, histories: sparse.csr_array) -> Floats:
        """By fold-in."""
        rows = rows_of(histories)
        counts = [None] * len(rows) if self.counting is None else counts_of(histories)
        return np.stack([self.fold_in.row(*each) for each in zip(rows, counts, strict=True)])

    def score_histories(self, histories: sparse.csr_array) -> Floats:
        """By fold-in."""
        return self._vectors.of_vectors(self.history_vectors(histories))

    @property
    def similarity_vectors(self) -> Floats:
        """The items' vectors, scaled to length 1."""
        return unit_rows(self._vectors.items)

    def similarities(self, items: Codes) -> Floats:
        """The cosine of the items' vectors."""
        unit = self.similarity_vectors
        return factor_score_block(unit[items], unit)

    def contributions(self, history: sparse.csr_array, items: Codes, user: int | None) -> Floats | None:
        """Those of the fold-in, where the vector is a sum over the interactions."""
        return self.fold_in.contributions(history.indices, items, self._counts(history))

    def left_out_scores(self, history: sparse.csr_array, places: Codes, items: Codes) -> Floats:
        """By vectors that are folded in together."""
        rows = self.fold_in.rows_without(history.indices, places, self._counts(history))
        return self._vectors.of_vectors(rows, items)

    def _counts(self, history: sparse.csr_array) -> Floats | None:
        """How much the interactions of a history count; None: each counts 1."""
        return None if self.counting is None else history.data


class RegressionFoldIn(FoldIn):
    """New users of any model of vectors, by what it learned for the others.

    The vector of a user is predicted from the sum of the item vectors of the history, divided by the square root of
    their number. The prediction is linear; its matrix is the ridge regression on the users of the training data.
    """

    def __init__(self, train: Dataset | Blocks, vectors: DotProduct) -> None:
        self._train, self._vectors = train, vectors

    @cached_property
    def _matrix(self) -> NDArray[np.float64]:
        with one_blas_thread():
            known = _known(self._train.to_dataset().csr, self._vectors.items)
            squares = known.T @ known
            ridge = L2 * np.trace(squares) / len(squares) + 1e-12
            return np.linalg.solve(squares + ridge * np.eye(len(squares)), known.T @ self._vectors.users)

    def row(self, history: Codes, counts: Floats | None = None) -> Floats:
        """By the regression, which counts all interactions the same."""
        return np.asarray(self.rows(histories_of([history], self._train.n_items))[0])

    def rows(self, histories: sparse.csr_array) -> Floats:
        """The rows of many users, each of whom is a row of a CSR of interactions; zeros without any."""
        with one_blas_thread():
            return np.asarray(_known(histories, self._vectors.items) @ self._matrix, dtype=np.float32)


def _known(histories: sparse.csr_array, items: Floats) -> NDArray[np.float64]:
    """The sum of the item vectors of each history, divided by the square root of their number."""
    counts = np.maximum(np.diff(histories.indptr), 1)[:, None]
    parts = (np.ones(histories.nnz), histories.indices, histories.indptr)
    found: NDArray[np.float64] = sparse.csr_array(parts, shape=histories.shape) @ items.astype(np.float64)
    found /= np.sqrt(counts)
    return found


def unit_rows(table: Floats) -> Floats:
    """The rows, scaled to length 1."""
    length = np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table / np.maximum(length, 1e-12), dtype=np.float32)


def _table(name: str, table: NDArray[np.floating], shape: tuple[int, ...]) -> Floats:
    if np.shape(table) != shape:
        raise ParameterError(f"{name} has the shape {np.shape(table)}; expected {shape}")
    return np.asarray(table, dtype=np.float32)
