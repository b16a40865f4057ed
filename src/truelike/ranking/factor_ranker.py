"""The best items of users by dot products of factors.

The terms of a score are always added in the same order. So the list of a user does not depend on the block size, the
number of threads or the other users, and a score is the same number in a list and beside all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from truelike.core.arrays import Codes, Floats, Mask
from truelike.core.parallel import for_each
from truelike.errors import ParameterError
from truelike.ranking.top_k import (
    USERS_AT_ONCE,
    TopK,
    check_users,
    no_items,
    sort_rows,
    use_sorting,
    users_at_once,
)

__all__ = ["FactorRanker", "factor_pair_scores", "factor_score_block"]

STEP = 4  # factors that the kernels add at a time
PAIRS_AT_ONCE = 1 << 18  # pairs whose factors are in memory at a time


class FactorRanker:
    """Items' factors, laid out for the kernels once, and used for many users.

    The score of an item is r_ui = U_u . V_i (+ b_i). Several threads may use one ranker.

    Parameters
    ----------
    item_factors
        V, float32 (n_items, factors). May be None if `by_factor` is given.
    item_bias
        b; None: no bias.
    by_factor
        V transposed and padded with rows of zeros to a multiple of four, if it is at hand, e.g. memory-mapped. It is
        used as it is. The kernels are compiled once more for a read-only array; `np.memmap(..., mode="c")` is none.
    ties
        The place of each item among items with its score, as `tie_places` gives it; None: in item order.

    Attributes
    ----------
    by_factor
        float32 (padded factors, n_items).
    bias
        float32 (n_items,).

    Examples
    --------
    >>> ranker = FactorRanker(np.array([[1, 0], [0, 2], [3, 1]], dtype=np.float32))
    >>> ranker.top_k(np.eye(2, dtype=np.float32), 2).items
    array([[2, 0],
           [1, 2]], dtype=int32)
    """

    def __init__(
        self,
        item_factors: Floats | None,
        item_bias: Floats | None = None,
        *,
        by_factor: Floats | None = None,
        ties: Codes | None = None,
    ) -> None:
        if by_factor is None:
            if item_factors is None:
                raise ParameterError("item_factors and by_factor are None; pass one of them")
            by_factor = _transposed(item_factors)
        elif by_factor.ndim != 2 or by_factor.dtype != np.float32 or len(by_factor) % STEP:
            raise ParameterError(
                f"by_factor is a {by_factor.dtype} array of the shape {by_factor.shape}; it must be float32, with a "
                f"row for each factor and rows of zeros up to a multiple of {STEP}"
            )
        self.by_factor = by_factor
        self.bias = np.zeros(self.n_items, dtype=np.float32) if item_bias is None else self._bias(item_bias)
        self.ties = np.arange(self.n_items, dtype=np.int32) if ties is None else self._ties(ties)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return int(self.by_factor.shape[1])

    def scores(self, vectors: Floats) -> Floats:
        """The scores of all items for some user vectors, with the same bits as `top_k`."""
        return self._scores(self._padded(vectors), self.bias)

    def top_k(
        self,
        vectors: Floats,
        k: int,
        *,
        rows: Codes | None = None,
        seen: Any = None,
        allowed: Mask | None = None,
        bias: Floats | None = None,
        n_jobs: int | None = 1,
    ) -> TopK:
        """The k best items of each user vector.

        Scoring and selection are fused, so that scores stay in the cache of the processor.

        Parameters
        ----------
        vectors
            float32 (n, factors).
        k
            The list length; lists are shorter if fewer items are left.
        rows
            The row of `seen` of each vector; None: vector n has row n.
        seen
            CSR (users x items, sorted indices) of the pairs to leave out, or what has its `indptr`, `indices` and
            `shape`; None: no pair.
        allowed
            A mask of the items that may be listed; None: all.
        bias
            A bias in place of the ranker's own, for this call.
        n_jobs
            Number of threads; -1: all cores. It does not change the result. One block of users starts no thread.
        """
        users = self._padded(vectors)
        used = self.bias if bias is None else self._bias(bias)
        if allowed is not None:
            used = np.where(allowed, used, np.float32(-np.inf))
        if seen is None:
            return self._lists(users, k, np.zeros(len(users), dtype=np.int32), _NO_ROW, _NO_ITEMS, used, n_jobs)
        rows = np.arange(len(users), dtype=np.int32) if rows is None else rows
        self._check_seen(rows, len(users), seen)
        return self._lists(users, k, rows, seen.indptr, seen.indices, used, n_jobs)

    def _lists(
        self, users: Floats, k: int, rows: Codes, indptr: Codes, indices: Codes, bias: Floats, n_jobs: int | None
    ) -> TopK:
        """The lists of padded vectors, without the pairs of a CSR that is checked."""
        from truelike.ranking.kernels import factor_top_k, mask_seen

        result = no_items(len(users), min(k, self.n_items))
        sorting = use_sorting(result.items.shape[1])
        step = users_at_once(self.n_items, n_jobs) if sorting else USERS_AT_ONCE

        def work(start: int) -> None:
            block = slice(start, start + step)
            items, scores = result.items[block], result.scores[block]
            if sorting:
                every = self._scores(users[block], bias)
                mask_seen(every, rows[block], indptr, indices)
                sort_rows(every, self.ties, items, scores)
            else:
                factor_top_k(
                    users[block], self.by_factor, bias, self.ties, rows[block], indptr, indices, items, scores
                )

        for_each(work, range(0, len(users), step), n_jobs)
        return result

    def best(self, vector: Floats, k: int, out: Codes) -> tuple[Codes, Floats]:
        """The k best items of one user without some, and their scores: `top_k` for lists that are asked one by one.

        `out` are the items to leave out, sorted. The list is shorter if fewer items are left.
        """
        ends = np.array([0, len(out)], dtype=np.int32)
        items, scores = self._lists(self._padded(vector), k, _FIRST, ends, out, self.bias, n_jobs=1)
        found = items[0] >= 0
        return (items[0], scores[0]) if found.all() else (items[0][found], scores[0][found])

    def _scores(self, padded: Floats, bias: Floats) -> Floats:
        from truelike.ranking.kernels import factor_scores

        scores = np.empty((len(padded), self.n_items), dtype=np.float32)
        factor_scores(padded, self.by_factor, bias, scores)
        return scores

    def _padded(self, vectors: Floats) -> Floats:
        """The vectors in the layout of the kernels, which check nothing."""
        width = len(self.by_factor)
        if vectors.ndim != 2 or vectors.shape[1] > width:
            raise ParameterError(
                f"the vectors have the shape {vectors.shape}; expected one row for each user with {width} numbers"
            )
        if vectors.shape[1] == width and vectors.dtype == np.float32 and vectors.flags.carray:
            return vectors
        wide = np.zeros((len(vectors), width), dtype=np.float32)
        wide[:, : vectors.shape[1]] = vectors
        return wide

    def _bias(self, bias: Floats) -> Floats:
        if bias.shape != (self.n_items,):
            raise ParameterError(f"the bias has the shape {bias.shape}; expected ({self.n_items},)")
        return np.ascontiguousarray(bias, dtype=np.float32)

    def _ties(self, ties: Codes) -> Codes:
        if ties.shape != (self.n_items,):
            raise ParameterError(f"ties has the shape {ties.shape}; expected ({self.n_items},)")
        return np.ascontiguousarray(ties, dtype=np.int32)

    def _check_seen(self, rows: Codes, n: int, seen: Any) -> None:
        check_users(rows, seen.shape[0])
        if len(rows) != n or seen.shape[1] != self.n_items:
            raise ParameterError(
                f"rows has {len(rows)} row numbers and seen has {seen.shape[1]} items; expected {n} and {self.n_items}"
            )


_FIRST = np.zeros(1, dtype=np.int32)  # the row of the only user
_NO_ROW = np.zeros(2, dtype=np.int32)  # the indptr of one row without entries
_NO_ITEMS = np.zeros(0, dtype=np.int32)


def factor_score_block(vectors: Floats, item_factors: Floats, item_bias: Floats | None = None) -> Floats:
    """Return the scores of all items for some user vectors, with the same bits as `FactorRanker.top_k`."""
    return FactorRanker(item_factors, item_bias).scores(vectors)


def factor_pair_scores(
    user_factors: Floats, item_factors: Floats, item_bias: Floats | None, users: Codes, items: Codes
) -> Floats:
    """Return the score of each pair (users[n], items[n]), with the same bits as `factor_score_block`.

    >>> U, V = np.eye(2, dtype=np.float32), np.array([[1, 0], [0, 2], [3, 1]], dtype=np.float32)
    >>> factor_pair_scores(U, V, None, np.array([0, 1]), np.array([2, 1])).tolist()
    [3.0, 2.0]
    """
    from truelike.ranking.kernels import factor_pairs

    found = np.zeros(len(users), dtype=np.float32)
    if item_bias is not None:
        found[:] = item_bias[items]
    for start in range(0, len(users), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        rows, columns = user_factors[users[part]], item_factors[items[part]]
        factor_pairs(np.ascontiguousarray(rows), np.ascontiguousarray(columns), found[part])
    return found


def _transposed(item_factors: Floats) -> Floats:
    """The transposed item factors, padded with zeros to a multiple of four factors for the kernels."""
    width = -(-item_factors.shape[1] // STEP) * STEP
    by_factor = np.zeros((width, len(item_factors)), dtype=np.float32)
    by_factor[: item_factors.shape[1]] = item_factors.T
    return by_factor
