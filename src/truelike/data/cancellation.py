"""Events that take others back: a refund cancels the purchase before it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike.data.ids import Codes

Doubles = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Cancelled(NamedTuple):
    """What is left of some rows.

    Attributes
    ----------
    weights
        The weight of each row that is left.
    gone
        The rows of which nothing is left.
    n_taking
        How many rows take others back.
    unmatched
        How many of them found nothing to take back.
    n_pairs
        Of how many pairs (user, item) something was taken back.
    """

    weights: Doubles
    gone: Mask
    n_taking: int
    unmatched: int
    n_pairs: int


def cancelled(
    users: Codes,
    items: Codes,
    times: NDArray[np.int64] | None,
    weights: Doubles,
    taking: Mask,
    *,
    by_quantity: bool,
) -> Cancelled:
    """Take back the rows that others cancel: of the same pair, the latest before it first.

    Rows are in the order of their times. At the same time one that takes back comes after the others. Without times
    rows are in their own order.

    Parameters
    ----------
    users, items, times, weights
        Of each row. Weights are positive.
    taking
        Whether a row takes others back.
    by_quantity
        Whether the weight of such a row is how much it takes back; else it takes back one row.

    Examples
    --------
    >>> codes, taking = np.zeros(3, dtype=np.int32), np.array([False, False, True])
    >>> cancelled(codes, codes, None, np.array([1.0, 3.0, 2.0]), taking, by_quantity=True).weights.tolist()
    [1.0, 1.0, 2.0]
    >>> cancelled(codes, codes, None, np.ones(3), taking, by_quantity=False).gone.tolist()
    [False, True, False]
    """
    left, gone = weights.astype(np.float64), np.zeros(len(weights), dtype=bool)
    pairs = users.astype(np.int64) * (int(items.max(initial=0)) + 1) + items
    concerned = np.flatnonzero(np.isin(pairs, pairs[taking]))
    when = np.zeros(len(concerned), dtype=np.int64) if times is None else times[concerned]
    after = taking[concerned] if times is not None else np.zeros(len(concerned), dtype=bool)
    ordered = concerned[np.lexsort((after, when, pairs[concerned]))]
    unmatched, changed = 0, set()
    before: list[int] = []  # rows of the pair that may be taken back, the latest last
    pair = -1
    for row, mine, takes in zip(ordered.tolist(), pairs[ordered].tolist(), taking[ordered].tolist(), strict=True):
        if mine != pair:
            pair, before = mine, []
        if not takes:
            before.append(row)
            continue
        if not before:
            unmatched += 1
            continue
        changed.add(pair)
        amount = float(weights[row]) if by_quantity else float(left[before[-1]])
        while before and amount > 0:
            last = before[-1]
            taken = min(amount, float(left[last]))
            left[last] -= taken
            amount -= taken
            if left[last] <= 1e-9 * weights[last]:  # nothing but rounding
                gone[last] = True
                before.pop()
    return Cancelled(left, gone, int(taking.sum()), unmatched, len(changed))
