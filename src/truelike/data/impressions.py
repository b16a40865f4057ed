"""Tables of impressions, in any form in which they are given, as `Shown`."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.columns import Columns, Name, choose, recognised
from truelike.data.files import FORMATS, Form
from truelike.data.ids import Ids
from truelike.data.interactions import EncodedRows, read_rows
from truelike.data.shown import Shown
from truelike.data.written_dates import DateOrder
from truelike.errors import DataError, DataWarning, warn


def read_shown(
    source: Any,
    users: Ids,
    items: Ids,
    *,
    user: Name = None,
    item: Name = None,
    on_bad_rows: str = "refuse",
    dates: DateOrder | None = None,
    **form: Unpack[Form],
) -> Shown:
    """Read what was shown to the given users of the given items; the rows of others are counted in a warning.

    The source is as in `tl.read(impressions=)`, or blocks, whose weights are counts. Rows of the same pair are further
    showings. `user` and `item` name columns, if the table has them, and `form` says how a file is to be read.

    >>> seen = [{"user": 0, "item": 1, "position": 3}, {"user": 0, "item": 1, "position": 1}]
    >>> read_shown(seen, Ids.range(2, "user"), Ids.range(2, "item")).positions.tolist()
    [3, 1]
    """
    if sparse.issparse(source):
        matrix = sparse.coo_array(source)
        found = _of_counts(Ids.range(matrix.shape[0], "user"), Ids.range(matrix.shape[1], "item"), matrix)
    elif hasattr(source, "csr"):
        found = _of_counts(source.users, source.items, sparse.coo_array(source.csr))
    elif hasattr(source, "to_dataset") and not isinstance(source, EncodedRows):  # blocks
        return read_shown(source.to_dataset(), users, items)
    else:
        is_read = isinstance(source, EncodedRows)
        found = source if is_read else _of_rows(source, user, item, on_bad_rows, dates, **form)
    if (places := found.positions) is not None:
        message = (
            "{n:,} positions are not whole numbers from 1, e.g. {example:g}; position 1 is the first place of a list. "
            "Add 1 if yours begin at 0."
        )
        _check(places, (places >= 1) & (places == np.floor(places)), message)
    user_codes = users.codes(found.users.values)[found.user_codes]
    item_codes = items.codes(found.items.values)[found.item_codes]
    kept = (user_codes >= 0) & (item_codes >= 0)
    _check_known(int(kept.sum()), len(kept))
    is_propensity = _is_propensity(found.columns)
    weights = None if found.weights is None else found.weights[kept]
    shown = Shown.from_pairs(
        user_codes[kept],
        item_codes[kept],
        (len(users), len(items)),
        None if weights is None or is_propensity else weights.astype(np.int64),
        positions=None if found.positions is None else found.positions[kept].astype(np.int32),
        times=None if found.times is None else found.times[kept],
        propensities=weights.astype(np.float32) if is_propensity and weights is not None else None,
    )
    if is_propensity and (repeated := shown.n_entries - shown.counts.nnz):
        raise DataError(
            f"{repeated:,} rows have a pair of user and item that is listed before; a pair must have one propensity"
        )
    return shown


def _of_counts(users: Ids, items: Ids, matrix: Any) -> EncodedRows:
    """The rows of a matrix of counts."""
    counts = matrix.data.astype(np.float64)
    _check_counts(counts, "a weight")
    codes = (matrix.row.astype(np.int32), matrix.col.astype(np.int32))
    return EncodedRows(users, items, *codes, Columns("user_id", "item_id", weight="count"), counts)


def _of_rows(
    source: Any, user: Name, item: Name, on_bad_rows: str, dates: DateOrder | None, **form: Unpack[Form]
) -> EncodedRows:
    """The rows of a frame, a file, an array or a list; the weights are counts or propensities."""
    if isinstance(source, (str, os.PathLike)):
        named = FORMATS.keys() & {suffix.lower() for suffix in Path(source).suffixes}
        if named:
            form.pop("format", None)
        if not form.get("header", True):
            user, item = 0 if user is None else user, 1 if item is None else item
    rows = read_rows(source, partial(_columns, user=user, item=item), on_bad_rows=on_bad_rows, dates=dates, **form)
    if not len(rows.user_codes):
        raise DataError("the table of impressions is empty. Pass a row for each pair that was shown.")
    if rows.weights is not None and _is_propensity(rows.columns):
        message = (
            "{n:,} propensities are outside (0, 1], e.g. {example:g}; a propensity is the probability that the pair "
            "was shown. Leave out pairs that cannot have been shown."
        )
        _check(rows.weights, (rows.weights > 0) & (rows.weights <= 1), message)
    elif rows.weights is not None:
        _check_counts(rows.weights, f"a {rows.columns.weight}")
    return rows


def _columns(names: list[str], user: Name, item: Name) -> Columns:
    """The columns of a table of impressions."""
    user, item = (None if isinstance(each, str) and each not in names else each for each in (user, item))
    found = choose(names, user=user, item=item)
    count, propensity, position = (recognised(names, role) for role in ("count", "propensity", "position"))
    if propensity is not None and (count is not None or position is not None):
        other = " and ".join(repr(name) for name in (count, position) if name is not None)
        raise DataError(
            f"the impressions have the columns {propensity!r} and {other}. A propensity says all that is known of a "
            "pair, so give one or the other."
        )
    return replace(found, weight=count if propensity is None else propensity, position=position)


def _is_propensity(columns: Columns) -> bool:
    """Whether the weights are propensities; otherwise they are counts."""
    return columns.weight is not None and recognised([columns.weight], "propensity") is not None


def _check_known(known: int, total: int) -> None:
    """Raise an error if no impression, and warn if not every one, is of a user and an item of the dataset."""
    if not known:
        raise DataError(
            f"none of the {total:,} impressions has both a user and an item of the dataset; check that the ids are the "
            "same"
        )
    if known < total:
        warn(
            f"{total - known:,} of {total:,} impressions are left out, because their user or their item is not in the "
            "dataset",
            DataWarning,
        )


def _check(values: NDArray[np.floating], right: NDArray[np.bool_], message: str) -> None:
    """Raise an error that counts the values that are not right, and has one of them."""
    if not right.all():
        raise DataError(message.format(n=int((~right).sum()), example=values[~right][0]))


def _check_counts(counts: NDArray[np.floating], what: str) -> None:
    message = (
        f"{{n:,}} impressions have {what} that is no whole number above 0, e.g. {{example:g}}; it is how often the "
        "pair was shown. Leave out pairs that were not shown."
    )
    _check(counts, (counts > 0) & (counts == np.floor(counts)), message)
