"""The best items of users by dot products of factors.

The terms of a score are always added in the same order. So the list of a user does not depend on the block size, the
number of threads or the other users, and a score is the same number in a list and beside all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.parallel import for_each
from truelike.data.ids import Codes
from truelike.errors import ParameterError
from truelike.ranking.top_k import USERS_AT_ONCE, Floats, TopK, check_users, no_items, top_k_by_scores, use_sorting

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
        self, item_factors: Floats | None, item_bias: Floats | None = None, *, by_factor: Floats | None = None
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
        allowed: NDArray[np.bool_] | None = None,
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
        from truelike.ranking.kernels import factor_top_k

        users = self._padded(vectors)
        kept = min(k, self.n_items)
        used = self.bias if bias is None else self._bias(bias)
        if seen is None:
            rows, indptr, indices = np.zeros(len(users), dtype=np.int32), _NO_ROW, _NO_ITEMS
        else:
            rows = np.arange(len(users), dtype=np.int32) if rows is None else rows
            self._check_seen(rows, len(users), seen)
            indptr, indices = seen.indptr, seen.indices
        if use_sorting(kept):
            return top_k_by_scores(
                lambda block: self._scores(users[block], used),
                np.arange(len(users), dtype=np.int32),
                k,
                n_items=self.n_items,
                seen=None if seen is None else _csr(seen)[rows],
                allowed=allowed,
                n_jobs=n_jobs,
            )
        if allowed is not None:
            used = np.where(allowed, used, np.float32(-np.inf))
        result = no_items(len(users), kept)

        def work(start: int) -> None:
            block = slice(start, start + USERS_AT_ONCE)
            factor_top_k(
                users[block], self.by_factor, used, rows[block], indptr, indices,
                result.items[block], result.scores[block],
            )  # fmt: skip

        for_each(work, range(0, len(users), USERS_AT_ONCE), n_jobs)
        return result

    def best(self, vector: Floats, k: int, out: Codes) -> tuple[Codes, Floats]:
        """The k best items of one user without some, and their scores: `top_k` for lists that are asked one by one.

        Parameters
        ----------
        vector
            float32 (1, factors).
        k
            The list length; the list is shorter if fewer items are left.
        out
            The items to leave out, sorted.
        """
        from truelike.ranking.kernels import factor_top_k

        kept = min(k, self.n_items)
        if use_sorting(kept):
            ends = np.array([0, len(out)], dtype=np.int32)
            seen = sparse.csr_array((np.ones(len(out), np.float32), out, ends), shape=(1, self.n_items))
            items, scores = self.top_k(vector, k, seen=seen)
        else:
            items, scores = no_items(1, kept)
            factor_top_k(
                self._padded(vector), self.by_factor, self.bias, _FIRST, np.array([0, len(out)], dtype=np.int32), out,
                items, scores,
            )  # fmt: skip
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

    def _check_seen(self, rows: Codes, n: int, seen: Any) -> None:
        check_users(rows, seen.shape[0])
        if len(rows) != n or seen.shape[1] != self.n_items:
            raise ParameterError(
                f"rows has {len(rows)} row numbers and seen has {seen.shape[1]} items; expected {n} and {self.n_items}"
            )


def _csr(seen: Any) -> Any:
    """A CSR of SciPy of what has the same arrays."""
    if sparse.issparse(seen):
        return seen
    ones = np.ones(len(seen.indices), dtype=np.float32)
    return sparse.csr_array((ones, seen.indices, seen.indptr), shape=seen.shape)


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
