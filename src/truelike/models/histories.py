"""Histories of new users, from lists, frames or a Dataset of ids, in the row numbers of a model's items."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.columns import recognised
from truelike.data.dataset import Dataset
from truelike.data.frames import is_frame, names_of, to_polars, to_series
from truelike.data.ids import Codes, Ids, one_or_many
from truelike.data.read import read

Histories = (
    Hashable | Iterable[Hashable] | Iterable[Iterable[Hashable]] | Mapping[Hashable, Iterable[Hashable]] | Dataset
)
OnUnknown = Literal["raise", "popular", "trending", "skip"]
USER = "user_id"


class KnownHistories(NamedTuple):
    """Histories as a CSR of weights with a row for each user, the times of its entries, and the users' ids.

    `keys` are the columns that name the users; none if there is one user without an id.
    """

    keys: dict[str, pl.Series]
    weights: sparse.csr_array
    times: NDArray[np.int64] | None = None


def known_histories(known: Ids, histories: Any, on_unknown: OnUnknown) -> KnownHistories:
    """The histories as far as their items are known; an error that names the others, if there shall be none."""
    if is_frame(histories):
        return _of_frame(known, histories, on_unknown)
    if isinstance(histories, Dataset):
        users = histories.users.take(np.arange(histories.n_users, dtype=np.int32))
        return KnownHistories({USER: users}, *_of_dataset(known, histories, on_unknown))
    keys, lists = _lists(histories)
    rows = []
    for row in lists:
        codes = codes_of(known, row, on_unknown)
        rows.append(np.unique(codes[codes >= 0], return_counts=True))
    indptr = np.cumsum([0, *(len(items) for items, _ in rows)]).astype(np.int32)
    items = np.concatenate([np.zeros(0, np.int32), *(items for items, _ in rows)]).astype(np.int32)
    weights = np.concatenate([np.zeros(0, np.float32), *(times for _, times in rows)]).astype(np.float32)
    return KnownHistories(keys, sparse.csr_array((weights, items, indptr), shape=(len(rows), len(known))))


def codes_of(known: Ids, asked: Any, on_unknown: str) -> Codes:
    """The row numbers of ids, where -1 is an id that is not known; an error if there shall be none."""
    return known.known(asked) if on_unknown == "raise" else known.codes(asked)


def _of_frame(known: Ids, frame: Any, on_unknown: OnUnknown) -> KnownHistories:
    """The histories of a frame with a row for each interaction; without a column of users, those of one user."""
    names = names_of(frame)
    if recognised(names, "user") is not None:
        return known_histories(known, read(frame, kind=False), on_unknown)
    of_one = to_polars(frame, names).with_columns(pl.lit(0).alias(USER))
    return KnownHistories({}, *_of_dataset(known, read(of_one, user=USER, kind=False), on_unknown))


def _of_dataset(known: Ids, data: Dataset, on_unknown: str) -> tuple[sparse.csr_array, NDArray[np.int64] | None]:
    """The weights and times of a dataset's interactions with items that are known."""
    used = np.unique(data.csr.indices)
    codes = np.full(data.n_items, -1, dtype=np.int32)
    codes[used] = codes_of(known, data.items.take(used), on_unknown)
    items = codes[data.csr.indices]
    place = np.lexsort((items, data.entry_users))
    place = place[items[place] >= 0]
    indptr = np.searchsorted(data.entry_users[place], np.arange(data.n_users + 1)).astype(np.int32)
    weights = sparse.csr_array((data.csr.data[place], items[place], indptr), shape=(data.n_users, len(known)))
    return weights, None if data.times is None else data.times[place]


def _lists(histories: Any) -> tuple[dict[str, pl.Series], list[Any]]:
    """The columns that name the users, and the items of each."""
    if isinstance(histories, Mapping):
        return {USER: to_series(list(histories))}, [one_or_many(row) for row in histories.values()]
    many = isinstance(histories, (list, tuple)) and all(isinstance(row, (list, tuple)) for row in histories)
    if many and histories:
        return {USER: pl.Series(range(len(histories)))}, list(histories)
    return {}, [one_or_many(histories)]
