"""The best k items of each user among all items, without an array of all users x items.

Items with equal scores have a fixed order (`tie_places`), so the list of a user does not depend on the block size, the
number of threads or the other users. `factor_ranker.py` does it for scores that are dot products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.core.arrays import Codes, Floats, Mask
from truelike.core.parallel import for_each, threads
from truelike.errors import ParameterError

__all__ = ["TopK", "check_users", "no_items", "tie_places", "top_k_by_scores"]

MAX_SCORE_BYTES = 64 * 2**20  # bytes of scores in memory at once
USERS_AT_ONCE = 256


class TopK(NamedTuple):
    """Row numbers and scores of items, best first. Unfilled places have the item -1 and the score -inf."""

    items: Codes
    scores: Floats


def top_k_by_scores(
    score_block: Callable[[Codes], Floats],
    users: Codes,
    k: int,
    *,
    n_items: int,
    seen: Any = None,
    rows: Codes | None = None,
    allowed: Mask | None = None,
    ties: Codes | None = None,
    n_jobs: int | None = -1,
    memory: int = MAX_SCORE_BYTES,
) -> TopK:
    """Return the k best items by a function that scores all items for a block of users.

    Parameters
    ----------
    score_block
        Returns a new float32 array (len(block), n_items).
    users
        The row numbers of the users.
    k
        The list length; lists are shorter if fewer items are left.
    n_items
        The number of items.
    seen
        CSR of the pairs to leave out; None: no pair.
    rows
        The row of `seen` of each user; None: their row numbers.
    allowed
        A mask of the items that may be listed; None: all.
    ties
        The place of each item among items with its score, as `tie_places` gives it; None: in item order.
    n_jobs
        Number of threads; -1: all cores. It does not change the result.
    memory
        Bytes of scores in memory at once, over all threads.

    Examples
    --------
    >>> scores = np.array([[1, 3, 3, 2]], dtype=np.float32)
    >>> top_k_by_scores(lambda block: scores[block].copy(), np.array([0]), 3, n_items=4).items
    array([[1, 2, 3]], dtype=int32)
    """
    from truelike.ranking.kernels import mask_seen, select_rows

    seen_rows = users if rows is None else rows
    if seen is not None:
        check_users(seen_rows, seen.shape[0])
    result = no_items(len(users), min(k, n_items))
    places = np.arange(n_items, dtype=np.int32) if ties is None else ties
    at_once = users_at_once(n_items, n_jobs, memory)
    banned = None if allowed is None else np.flatnonzero(~allowed)

    def work(start: int) -> None:
        block = slice(start, start + at_once)
        scores = score_block(users[block])
        check_scores(scores, (len(users[block]), n_items))
        if seen is not None:
            mask_seen(scores, seen_rows[block], seen.indptr, seen.indices)
        if banned is not None:
            scores[:, banned] = -np.inf
        if use_sorting(result.items.shape[1]):
            sort_rows(scores, places, result.items[block], result.scores[block])
        else:
            select_rows(scores, places, result.items[block], result.scores[block])

    for_each(work, range(0, len(users), at_once), n_jobs)
    return result


def tie_places(popularity: NDArray[Any]) -> Codes:
    """Return the place of each item among items with its score.

    The more popular item is first. Equally popular ones have a fixed random order, so that no item is first because
    its id is low.

    >>> tie_places(np.array([1, 9, 1, 1])).tolist()
    [1, 0, 3, 2]
    """
    drawn = randomness.bits(randomness.key(0, "ties"), np.arange(len(popularity)))
    places = np.empty(len(popularity), dtype=np.int32)
    places[np.lexsort((drawn, -popularity.astype(np.float64)))] = np.arange(len(popularity), dtype=np.int32)
    return places


def users_at_once(n_items: int, n_jobs: int | None, memory: int = MAX_SCORE_BYTES) -> int:
    """Return how many users' scores of all items may be in memory on each thread."""
    return max(1, min(USERS_AT_ONCE, memory // (4 * n_items * threads(n_jobs))))


def check_scores(scores: Any, shape: tuple[int, int]) -> None:
    """Raise if a model's scores have another type or shape: the compiled loops do not check."""
    expected = f"expected an array of floating-point numbers of shape {shape}"
    if not isinstance(scores, np.ndarray):
        raise ParameterError(f"the scores are of type {type(scores).__name__}; {expected}")
    if scores.dtype.kind != "f":
        raise ParameterError(f"the scores have dtype {scores.dtype}; {expected}")
    if scores.shape != shape:
        raise ParameterError(f"the scores have shape {scores.shape}; {expected}")


def no_items(n_users: int, k: int) -> TopK:
    """Return lists without items."""
    if k < 1:
        raise ParameterError(f"k is {k}; it must be a whole number from 1 up")
    items = np.full((n_users, k), -1, dtype=np.int32)
    return TopK(items, np.full((n_users, k), -np.inf, dtype=np.float32))


def check_users(users: Codes, n_users: int) -> None:
    """Raise an error if a row number is out of range: the compiled loops do not check, and -1 is the last row."""
    if len(users) and not 0 <= users.min() <= users.max() < n_users:
        found = f"{users.min()} to {users.max()}"
        raise ParameterError(
            f"users has row numbers from {found}; they must be row numbers from 0 to {n_users - 1}"
        )


def use_sorting(k: int) -> bool:
    """Return whether to sort: insertion into a list of k is faster for small k, and quadratic in k."""
    return k > 128


def sort_rows(scores: Floats, ties: Codes, items_out: Codes, scores_out: Floats) -> None:
    """Sort the items of each row of scores, for lists that are too long for `select_rows`."""
    k = items_out.shape[1]
    np.nan_to_num(scores, copy=False, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    by_tie = np.argsort(ties)
    order = by_tie[np.argsort(-scores[:, by_tie], axis=1, kind="stable")[:, :k]]
    best = np.take_along_axis(scores, order, axis=1)
    scores_out[:] = best
    items_out[:] = np.where(np.isneginf(best), -1, order)
