"""What a caller leaves out of lists: items for all users, or items for each user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.blocks.blocks import Blocks
from truelike.data.columns import recognised
from truelike.data.dataset import Dataset
from truelike.data.frames import is_frame, missing, names_of, to_polars, to_series
from truelike.data.ids import Codes, Ids, encode, find_sorted, normalise, one_or_many
from truelike.data.protocol import Rows
from truelike.errors import DataError, DataWarning, ParameterError, some, warn

PLAIN_LISTS = (list, tuple, set, frozenset)
EXPECTED = (
    "expected item ids, or the items of each user: a mapping {user: items}, or a frame or a Dataset of pairs"
)


@dataclass(frozen=True, eq=False)
class Exclusions:
    """Items for each of some users, who need not be in the training data.

    Attributes
    ----------
    users
        The ids of the users as text, sorted.
    items
        CSR (users x items of the training data).
    """

    users: pl.Series
    items: sparse.csr_array

    def of(self, ids: Any) -> sparse.csr_array:
        """A row of items for each of some users."""
        codes = find_sorted(self.users, as_text(ids, "user"))
        nothing = sparse.csr_array((1, self.items.shape[1]), dtype=np.float32)
        return sparse.csr_array(sparse.vstack([self.items, nothing], format="csr")[codes])  # -1: the last row


class LeftOut(Rows):
    """What lists of some users of the training data leave out: what they have seen, if at all, and what is excluded.

    `excluded` is a CSR with a row for each of `users`, the row numbers that are asked for.
    """

    def __init__(self, seen: Rows | None, users: Codes, excluded: sparse.csr_array) -> None:
        self._excluded = excluded
        if seen is not None:
            matrix, rows = seen.rows(users)
            self._excluded = union(matrix[rows], excluded)
        self._row = np.zeros(users.max(initial=-1) + 1, dtype=np.int32)
        self._row[users] = np.arange(
            len(users), dtype=np.int32
        )  # a user who is asked for twice has two equal rows

    @property
    def n_items(self) -> int:
        """The number of items."""
        return int(self._excluded.shape[1])

    def rows(self, users: Codes) -> tuple[sparse.csr_array, Codes]:
        """A CSR that has the items of some users, by row numbers, and the row of each of them."""
        return self._excluded, self._row[users]


def union(one: sparse.csr_array, other: sparse.csr_array) -> sparse.csr_array:
    """The pairs of both.

    >>> union(sparse.csr_array([[1, 0, 0]]), sparse.csr_array([[1, 0, 1]])).indices.tolist()
    [0, 2]
    """
    ones = [
        sparse.csr_array((np.ones(len(each.indices), np.float32), each.indices, each.indptr), shape=each.shape)
        for each in (one, other)
    ]
    both = sparse.csr_array(ones[0] + ones[1])
    both.sort_indices()
    return both


def split_exclude(
    train: Dataset | Blocks, exclude: Any, asked: Any = None
) -> tuple[Iterable[Any] | None, Exclusions | None]:
    """What is excluded for all, and what for each user. `asked` are users who may be unknown; None: there are none.

    Ids that are not known are counted in a warning.
    """
    if exclude is None:
        return None, None
    if isinstance(exclude, Mapping):
        users, items = _of_mapping(exclude)
    elif isinstance(exclude, (Dataset, Blocks)):
        pairs = exclude.to_dataset().csr.tocoo()
        users, items = (
            as_text(exclude.users.stored(pairs.row), "user"),
            as_text(exclude.items.stored(pairs.col), "item"),
        )
    elif is_frame(exclude):
        users, items = _pairs(exclude)
    else:
        return exclude, None
    if users.null_count():
        raise ParameterError(f"exclude has items of a user who is None or missing; {EXPECTED}")
    codes = train.items.codes(items)
    _warn_of_unknown(codes, "excluded items")
    values, rows = encode(users)
    known = train.users.codes(values) >= 0
    if asked is not None and not known.all():
        known |= find_sorted(as_text(asked, "user").unique().sort(), values) >= 0
    _warn_of_unknown(np.where(known, 0, -1).astype(np.int32), "users of exclude")
    there = codes >= 0
    ones = np.ones(int(there.sum()), dtype=np.float32)
    found = sparse.csr_array((ones, (rows[there], codes[there])), shape=(len(values), train.n_items))
    found.sum_duplicates()
    return None, Exclusions(values, found)


def item_codes(train: Dataset | Blocks, ids: Any, name: str) -> Codes:
    """The row numbers of items for all users: `candidates` or `exclude`. Those that are not known are counted."""
    if isinstance(ids, (Mapping, Dataset, Blocks)):
        raise ParameterError(f"{name} is a {type(ids).__name__}; expected one list of item ids, for all")
    codes = train.items.codes(_ids(ids, name))
    _warn_of_unknown(codes, "candidates" if name == "candidates" else "excluded items")
    return codes[codes >= 0]


def as_text(ids: Any, what: str) -> pl.Series:
    """Ids as text, so that 7 and "7" are the same."""
    return normalise(to_series(ids.to_series() if isinstance(ids, Ids) else ids), what)[0].cast(pl.String)


def _ids(value: Any, name: str) -> pl.Series:
    """Ids of items as text; a text is one id."""
    expected = f"expected item ids; {some([repr(value)])} was given as {name}"
    if (
        value is None
        or isinstance(value, (bool, bytes, Mapping))
        or (isinstance(value, np.ndarray) and value.ndim > 1)
    ):
        raise ParameterError(expected)
    try:
        found = to_series(one_or_many(value))
        if found.dtype == pl.Boolean:
            raise ParameterError(expected)
        return as_text(found, "item")
    except DataError as error:
        raise ParameterError(f"{name}: {error}. {EXPECTED.capitalize()}.") from error


def _of_mapping(exclude: Mapping[Any, Any]) -> tuple[pl.Series, pl.Series]:
    """The users and the items of a mapping from user to items."""
    lists = list(exclude.values())
    flat = list(chain.from_iterable(lists)) if all(type(each) in PLAIN_LISTS for each in lists) else []
    if flat and set(map(type, flat)) <= {int, str}:  # in one pass, for mappings of many users
        items = as_text(flat, "item")
    else:
        lists = [_ids(each, f"the items of {some([repr(user)])} in exclude") for user, each in exclude.items()]
        items = pl.concat([pl.Series(dtype=pl.String), *lists])
    return as_text(list(exclude), "user").gather(
        np.repeat(np.arange(len(lists)), [len(each) for each in lists])
    ), items


def _pairs(frame: Any) -> tuple[pl.Series, pl.Series]:
    """The users and the items of a frame of pairs."""
    names = names_of(frame)
    user, item = recognised(names, "user"), recognised(names, "item")
    if user is None or item is None:
        lacking = "user" if user is None else "item"
        raise ParameterError(
            f"exclude is a frame with the columns {some(names)}, of which none looks like the {lacking}; {EXPECTED}. "
            "Name its columns user_id and item_id, or pass one column for all users."
        )
    found = to_polars(frame, [user, item])
    pairs = pl.DataFrame({"user": as_text(found[user], "user"), "item": as_text(found[item], "item")})
    bad: NDArray[np.bool_] = (missing(pairs["user"]) | missing(pairs["item"])).to_numpy()
    if bad.any():
        raise ParameterError(
            f"row {int(np.flatnonzero(bad)[0]) + 1} of exclude has no user or no item; {EXPECTED}. Remove it."
        )
    return pairs["user"], pairs["item"]


def _warn_of_unknown(codes: Codes, what: str) -> None:
    unknown = int((codes < 0).sum())
    if unknown:
        warn(f"{unknown:,} of {len(codes):,} {what} are not in the training data; they are skipped", DataWarning)
