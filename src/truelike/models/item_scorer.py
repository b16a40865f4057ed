"""Scores that are sums over the items of a history: those of ItemKNN, EASE and EDLAE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.data.matrix import checked_csr
from truelike.engines.weights import HistoryCounts
from truelike.models.scorer import Floats, Scorer


@final
class ItemScorer(Scorer):
    """Score an item by weights between it and the items of the user.

    Row j of `weights`, an array or a CSR, is what an interaction with item j adds to the scores of all items, times
    how much it counts by `counting`. `by_target` is the transpose of a CSR, if it is there already.
    """

    def __init__(
        self,
        train: Dataset,
        weights: Floats | sparse.csr_array,
        by_target: sparse.csr_array | None = None,
        counting: HistoryCounts | None = None,
    ) -> None:
        super().__init__(train, counting)
        self._weights: Any = weights
        self._csr, self._by_target = train.csr, by_target
        if by_target is None and sparse.issparse(weights):
            self._by_target = sparse.csr_array(weights.T)

    def score_users(self, users: Codes) -> Floats:
        """By the histories of the users."""
        histories = self._csr[users]
        return self.score_histories(histories if self.counting is None else self.counting.of(histories))

    def score_histories(self, histories: sparse.csr_array) -> Floats:
        """The sums of the rows of weights."""
        from truelike.models.kernels import add_dense_rows, add_rows, add_weighted_dense_rows, add_weighted_rows

        scores, rows = np.zeros(histories.shape, dtype=np.float32), self._weights
        given: list[Any] = [histories.indptr, histories.indices]
        given += [] if self.counting is None else [histories.data]
        if self._by_target is None:
            (add_dense_rows if self.counting is None else add_weighted_dense_rows)(*given, rows, scores)
        else:
            add = add_rows if self.counting is None else add_weighted_rows
            add(*given, rows.indptr, rows.indices, rows.data, scores)
        return scores

    def similarities(self, items: Codes) -> Floats:
        """The weights of all items for an item; those without one are never listed."""
        if self._by_target is None:
            return np.ascontiguousarray(self._weights[:, items].T)
        found = np.asarray(self._by_target[items].toarray(), dtype=np.float32)
        found[found == 0] = -np.inf
        return found

    def contributions(self, history: sparse.csr_array, items: Codes, user: int | None) -> Floats:
        """The weights, each times how much the interaction counts, that the score is the sum of."""
        mine = history.indices
        if self._by_target is None:
            weights = np.ascontiguousarray(self._weights[np.ix_(mine, items)].T)
        else:
            weights = np.asarray(self._by_target[items][:, mine].toarray(), dtype=np.float32)
        return weights if self.counting is None else weights * history.data

    def left_out_scores(self, history: sparse.csr_array, places: Codes, items: Codes) -> Floats:
        """The score less a weight."""
        full = self.score_items(history, items)
        return np.concatenate([full[None], full - self.contributions(history, items, None).T[places]])


def sums_of_squares(train: Dataset, counts: Floats | None) -> NDArray[Any]:
    """The diagonal of X'X, where X is how much each interaction counts; None: each counts 1."""
    if counts is None:
        return train.popularity()
    return np.bincount(train.csr.indices, np.square(counts, dtype=np.float64), train.n_items)


def csr_arrays(name: str, table: sparse.csr_array) -> dict[str, NDArray[Any]]:
    """The arrays of a CSR of items x items, for saving."""
    return {
        f"{name}.indptr": table.indptr.astype(np.int64),
        f"{name}.indices": table.indices.astype(np.int32),
        f"{name}.data": table.data,
    }


def saved_csr(name: str, arrays: Mapping[str, NDArray[Any]], n_items: int) -> sparse.csr_array:
    """The CSR from its arrays, checked."""
    parts = (arrays[f"{name}.data"], arrays[f"{name}.indices"], arrays[f"{name}.indptr"])
    if parts[0].dtype != np.float32:
        raise ValueError(f"{name} is {parts[0].dtype}; expected float32")
    return checked_csr(parts, (n_items, n_items))
