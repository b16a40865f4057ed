"""Refunds take back purchases: the latest before them first."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from truelike.data.cancellation import cancelled

ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 3), st.integers(1, 3), st.booleans()),
    max_size=12,
)


def by_hand(rows: list[tuple[int, int, int, int, bool]], by_quantity: bool) -> tuple[list[float], int]:
    """What is left of each row that takes nothing back, and how many of the others found nothing."""
    left = [float(weight) for _, _, _, weight, _ in rows]
    order = sorted(range(len(rows)), key=lambda n: (rows[n][2], rows[n][4], n))
    unmatched = 0
    for position, n in enumerate(order):
        if not rows[n][4]:
            continue
        before = [m for m in order[:position] if rows[m][:2] == rows[n][:2] and not rows[m][4] and left[m] > 0]
        if not before:
            unmatched += 1
        elif not by_quantity:
            left[before[-1]] = 0
        else:
            amount = float(rows[n][3])
            for m in reversed(before):
                taken = min(amount, left[m])
                left[m] -= taken
                amount -= taken
    return left, unmatched


@given(rows=ROWS, by_quantity=st.booleans())
def test_rows_are_taken_back_as_by_hand(rows: list[tuple[int, int, int, int, bool]], by_quantity: bool) -> None:
    users, items, times, weights, taking = (
        np.array([row[n] for row in rows], dtype=kind)
        for n, kind in enumerate((np.int32, np.int32, np.int64, float, bool))
    )
    found = cancelled(users, items, times, weights, taking, by_quantity=by_quantity)
    left, unmatched = by_hand(rows, by_quantity)
    assert found.weights[~taking].tolist() == [each for each, row in zip(left, rows, strict=True) if not row[4]]
    assert found.gone.tolist() == [each == 0 and not row[4] for each, row in zip(left, rows, strict=True)]
    assert (found.n_taking, found.unmatched) == (sum(taking), unmatched)


def test_without_times_rows_are_in_their_order() -> None:
    codes = np.zeros(4, dtype=np.int32)
    taking = np.array([True, False, False, True])
    found = cancelled(codes, codes, None, np.ones(4), taking, by_quantity=False)
    assert (found.gone.tolist(), found.unmatched, found.n_pairs) == ([False, False, True, False], 1, 1)
