"""Rows of several kinds, such as views and purchases, as a Dataset."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.feedback import Feedback
from truelike.data.ids import Codes, Ids, encode
from truelike.data.impressions import read_shown
from truelike.data.interactions import EncodedRows
from truelike.errors import DataError, ParameterError, some

SHOWN: Literal["shown"] = "shown"
Weights = Mapping[str, float | Literal["shown"]]


def check_kinds(kind: Any, kinds: Any, target: Any) -> None:
    """Raise an error unless kinds are declared as `tl.read` needs them."""
    if kind is None:
        if kinds is not None or target is not None:
            raise ParameterError('kinds and target need kind=, the column of the kinds, e.g. kind="event"')
        return
    if not isinstance(kinds, Mapping) or not kinds:
        raise ParameterError(
            f"kinds is {some([repr(kinds)])}; expected the weight of each kind in the column {kind!r}, e.g. "
            'kinds={"view": 0.2, "buy": 1, "shown": "shown"}'
        )
    for name, weight in kinds.items():
        number = isinstance(weight, Real) and not isinstance(weight, bool) and np.isfinite(float(weight))
        if not isinstance(name, str) or not (number or weight == SHOWN):
            raise ParameterError(f'the kind {name!r} is {weight!r} in kinds; expected a number, or "shown"')
    positive = [name for name, weight in kinds.items() if weight != SHOWN and weight > 0]
    if target is not None and target not in positive:
        raise ParameterError(f"target is {target!r}; expected a kind with a positive weight: {some(positive)}")
    if not positive:
        raise ParameterError("no kind has a positive weight, so there would be no interactions")


def dataset_of_kinds(rows: EncodedRows, kinds: Weights, target: str | None) -> Dataset:
    """The dataset of rows of several kinds: see `tl.read`."""
    assert rows.kinds is not None
    names, codes = encode(rows.kinds)
    _check_declared(names, codes, kinds)
    of_shown = [name for name, weight in kinds.items() if weight == SHOWN]
    signed = {name: float(weight) for name, weight in kinds.items() if weight != SHOWN}
    chosen = [target] if target is not None else [name for name, weight in signed.items() if weight > 0]
    others = [name for name, weight in signed.items() if name not in chosen and weight != 0]

    def of(wanted: list[str]) -> NDArray[np.bool_]:
        return np.isin(names.to_numpy(), wanted)[codes] if wanted else np.zeros(len(codes), dtype=bool)

    factors = np.array([signed.get(name, 0.0) for name in names])
    weights = factors[codes] * (1.0 if rows.weights is None else rows.weights)
    used = of([*chosen, *others])
    users, user_codes = _subset(rows.users, rows.user_codes, used)
    items, item_codes = _subset(rows.items, rows.item_codes, used)

    def feedback(wanted: list[str]) -> Feedback:
        mine = of(wanted)
        times = None if rows.times is None else rows.times[mine]
        return Feedback.from_pairs(
            user_codes[mine], item_codes[mine], (len(users), len(items)), weights[mine], times
        )

    found = feedback(chosen)
    shown = None
    if (mine := of(of_shown)).any():
        shown = read_shown(rows.taken(mine), users, items)
    there = set(names)
    return Dataset.unchecked(
        users,
        items,
        found.csr,
        found.times,
        library=rows.library,
        name=rows.name,
        kinds={name: feedback([name]) for name in others if name in there},
        shown=shown,
    )


def _check_declared(names: pl.Series, codes: Codes, kinds: Weights) -> None:
    counts = np.bincount(codes, minlength=len(names))
    unknown = [f"{name!r} ({n:,} rows)" for name, n in zip(names, counts, strict=True) if name not in kinds]
    if unknown:
        raise DataError(
            f"{some(unknown, 10)} {'are' if len(unknown) > 1 else 'is'} not declared in kinds, which has "
            f"{some(map(repr, kinds))}. Give each a weight; 0 leaves its rows out."
        )


def _subset(ids: Ids, codes: Codes, used: NDArray[np.bool_]) -> tuple[Ids, Codes]:
    """The ids of some rows, and the row number of each row in them; -1 for one that has another id."""
    kept = np.bincount(codes[used], minlength=len(ids)) > 0
    return ids.subset(kept), np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)[codes]
