"""Rows of several kinds, such as views, purchases and refunds, as a Dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.core.progress import note
from truelike.data.cancellation import Cancelled, cancelled
from truelike.data.columns import Columns
from truelike.data.dataset import Dataset
from truelike.data.feedback import Feedback
from truelike.data.ids import Codes, Ids, encode
from truelike.data.impressions import read_shown
from truelike.data.interactions import EncodedRows
from truelike.data.schema import Declared, Role, Schema
from truelike.errors import DataError, DataWarning, ParameterError, some, warn

UNWEIGHTED: tuple[Role, ...] = ("shown", "ignored")  # roles of rows that have no weight
Mask = NDArray[np.bool_]
Kinds = Mapping[str, Declared] | Schema | str | os.PathLike[str]


def schema_of(kind: Any, kinds: Any, target: Any) -> Schema | None:
    """The schema that `tl.read` was given; None: by the usual words, if there are kinds at all."""
    if kinds is None:
        if target is not None:
            raise ParameterError('target needs kinds=, e.g. kinds={"view": 0.2, "buy": 1}')
        return None
    if isinstance(kind, bool):
        raise ParameterError(
            f"kind is {kind!r} beside kinds=, which needs the name of a column; leave one of them out"
        )
    if isinstance(kinds, (str, os.PathLike)):
        schema = Schema.load(kinds)
    elif isinstance(kinds, Schema):
        schema = kinds
    else:
        return _with_column(Schema(kinds, target=target), kind)
    if target is not None:
        raise ParameterError("target is given beside a schema, which says what the targets are: leave it out")
    return _with_column(schema, kind)


def _with_column(schema: Schema, kind: Any) -> Schema:
    if kind is None and schema.column is None:
        raise ParameterError('kinds needs kind=, the column of the kinds, e.g. kind="event"')
    return schema if kind is None else Schema(schema.kinds, str(kind))


def dataset_of_kinds(rows: EncodedRows, schema: Schema | None, on_bad_rows: str = "raise") -> Dataset:
    """The dataset of rows of several kinds: see `tl.read`. Without a schema, by the usual words."""
    assert rows.kinds is not None
    names, codes = encode(rows.kinds)
    counts = dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True))
    if schema is None:
        schema = _usual(names, counts, rows.columns)
        note(f"kinds of the column {rows.columns.kind!r} by their usual meaning: {schema}")
    schema.check_known(counts)
    if rows.times is None and (
        timed := [name for name, kind in schema.kinds.items() if isinstance(kind.seen, str)]
    ):
        raise DataError(
            f"the schema says for how long {some(map(repr, timed))} makes an item seen, and the log has no times: name "
            "their column with time=..., or declare seen as true or false"
        )
    numbered = np.array([list(schema.kinds).index(name) for name in names])[codes]
    return _Events(rows, schema, numbered, _weights(rows, schema, numbered, on_bad_rows)).dataset(set(names))


def _usual(names: pl.Series, counts: Mapping[str, int], columns: Columns) -> Schema:
    try:
        return Schema.usual(names, columns.kind)
    except DataError as error:
        listed = some([f"{name!r} ({n:,} rows)" for name, n in counts.items()], 10)
        other = ", or pass kind=False to read every row as an interaction" if columns.kind_guessed else ""
        raise DataError(f"the column {columns.kind!r} has the kinds {listed}. {error}{other}.") from error


def _weights(rows: EncodedRows, schema: Schema, kinds: NDArray[np.intp], on_bad_rows: str) -> NDArray[np.float64]:
    """The weight of each row, without the sign of its kind."""
    found = np.array([abs(kind.factor) for kind in schema.kinds.values()])[kinds]
    if rows.weights is not None:
        found *= rows.weights
    for number, kind in enumerate(schema.kinds.values()):
        if kind.column is not None:
            mine = kinds == number
            found[mine] *= rows.quantities[kind.column][mine]
    bad = ~np.isfinite(found) & ~np.isin(
        kinds, [n for n, kind in enumerate(schema.kinds.values()) if kind.role in UNWEIGHTED]
    )
    if bad.any():
        columns = some(map(repr, schema.columns))
        message = f"{bad.sum():,} rows have no usable weight (column {columns})"
        if on_bad_rows != "drop":
            raise DataError(f'{message}. Fix them, or pass on_bad_rows="drop" to read the others.')
        warn(f"dropped {message}", DataWarning)
        found[bad] = 0.0
    return found


class _Events:
    """Rows with the kind of each, by its number in the schema, and its weight."""

    def __init__(
        self, rows: EncodedRows, schema: Schema, kinds: NDArray[np.intp], weights: NDArray[np.float64]
    ) -> None:
        self.schema, self.kinds, self.weights = schema, kinds, weights
        self.rows = rows
        self.gone = np.zeros(len(kinds), dtype=bool)  # rows of which nothing is left

    def of(self, names: Sequence[str]) -> Mask:
        """The rows of some kinds."""
        return np.isin(self.kinds, [list(self.schema.kinds).index(name) for name in names])

    def dataset(self, there: set[str]) -> Dataset:
        """The pairs of the targets, and the other kinds beside them."""
        rows, schema = self.rows, self.schema
        others = [name for name in schema.names("evidence", "negative", "cancels") if name in there]
        self._drop_zeros()
        self._cancel()
        used = self.of([*schema.targets, *others]) & ~self.gone
        users, user_codes = _subset(rows.users, rows.user_codes, used)
        items, item_codes = _subset(rows.items, rows.item_codes, used)

        def feedback(names: Sequence[str], sign: float = 1.0) -> Feedback:
            mine = self.of(names) & ~self.gone
            times = None if rows.times is None else rows.times[mine]
            shape = (len(users), len(items))
            return Feedback.from_pairs(user_codes[mine], item_codes[mine], shape, sign * self.weights[mine], times)

        found, shown = feedback(schema.targets), None
        if (mine := self.of(schema.names("shown"))).any():
            shown = read_shown(rows.taken(mine), users, items)
        return Dataset.unchecked(
            users,
            items,
            found.csr,
            found.times,
            library=rows.library,
            name=rows.name,
            kinds={name: feedback([name], np.sign(schema.kinds[name].factor)) for name in others},
            shown=shown,
            schema=schema,
        )

    def _drop_zeros(self) -> None:
        """Leave out rows whose weight is 0, such as a purchase of 0 pieces."""
        zero = (self.weights == 0) & ~self.of(self.schema.names(*UNWEIGHTED))
        if zero.any():
            names = [name for name in self.schema.kinds if (zero & self.of([name])).any()]
            warn(
                f"{zero.sum():,} rows of {some(map(repr, names))} have the weight 0; they are left out",
                DataWarning,
            )
            self.gone |= zero

    def _cancel(self) -> None:
        """Take back what was cancelled."""
        taking_back = self.of(self.schema.names("cancels"))
        self.weights[taking_back] = np.abs(self.weights[taking_back])  # a refund of -2 pieces is one of 2
        negative = (self.weights < 0) & ~self.of(self.schema.names(*UNWEIGHTED))
        for name in self.schema.kinds:  # a negative quantity
            if (taking := negative & self.of([name])).any():
                self.weights[taking] *= -1
                self._take_back(self.of([name]), taking, f"{name!r} rows of negative weight", by_quantity=True)
                self.gone |= taking
        for name in self.schema.names("cancels"):
            kind = self.schema.kinds[name]
            taking = self.of([name]) & ~self.gone
            if taking.any():
                by_quantity = kind.column is not None or self.rows.weights is not None
                self._take_back(self.of([*kind.cancels, name]), taking, f"{name!r} rows", by_quantity=by_quantity)

    def _take_back(self, mine: Mask, taking: Mask, what: str, *, by_quantity: bool) -> None:
        mine = mine & ~self.gone
        found = _cancelled_rows(self.rows, mine, taking, self.weights, by_quantity=by_quantity)
        self.weights[mine] = found.weights
        self.gone[mine] |= found.gone
        _report(found, what)


def _cancelled_rows(
    rows: EncodedRows,
    mine: Mask,
    taking: Mask,
    weights: NDArray[np.float64],
    *,
    by_quantity: bool,
) -> Cancelled:
    """What is left of marked rows, some of which take others back."""
    return cancelled(
        rows.user_codes[mine],
        rows.item_codes[mine],
        None if rows.times is None else rows.times[mine],
        weights[mine],
        taking[mine],
        by_quantity=by_quantity,
    )


def _report(found: Cancelled, what: str) -> None:
    """Say what was cancelled; a warning if some rows had nothing to cancel."""
    if taken := found.n_taking - found.unmatched:
        note(f"{taken:,} {what} take back events of {found.n_pairs:,} pairs (user, item)")
    if found.unmatched:
        warn(
            f"{found.unmatched:,} of {found.n_taking:,} {what} have no earlier event of the user and the item to take "
            "back; they change nothing",
            DataWarning,
        )


def without_negative(rows: EncodedRows) -> EncodedRows:
    """The rows of a log without kinds, where a row of negative weight takes earlier ones of its pair back."""
    weights = rows.weights
    if weights is None or not (weights < 0).any():
        return rows
    taking = weights < 0
    found = _cancelled_rows(rows, np.ones(len(taking), dtype=bool), taking, np.abs(weights), by_quantity=True)
    warn(f"{taking.sum():,} rows have a negative weight: they take back earlier rows", DataWarning)
    _report(found, "rows of negative weight")
    kept = ~(found.gone | taking)
    times = None if rows.times is None else rows.times[kept]
    return replace(
        rows,
        user_codes=rows.user_codes[kept],
        item_codes=rows.item_codes[kept],
        weights=found.weights[kept],
        times=times,
    )


def _subset(ids: Ids, codes: Codes, used: Mask) -> tuple[Ids, Codes]:
    """The ids of some rows, and the row number of each row in them; -1 for one that has another id."""
    kept = np.bincount(codes[used], minlength=len(ids)) > 0
    return ids.subset(kept), np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)[codes]
