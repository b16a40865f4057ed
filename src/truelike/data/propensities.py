"""`Propensities`: the probability that a pair (user, item) was shown, to weight held-out interactions by.

The probabilities are given by pair, by item or as one number, or assumed to be a power of the popularity of the item:
(popularity / largest popularity)^power, as in Saito et al., "Unbiased Recommender Learning from Missing-Not-At-Random
Implicit Feedback", WSDM 2020.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.columns import choose, recognised
from truelike.data.dataset import Dataset
from truelike.data.files import Picked, refuse_address
from truelike.data.frames import library_of, missing
from truelike.data.ids import Codes, Ids
from truelike.data.interactions import cast, encode_column, read_table, report_bad_rows
from truelike.data.protocol import Interactions
from truelike.errors import DataError, DataWarning, ParameterError, quoted, some, warn

__all__ = ["Propensities"]

Floats = NDArray[np.float64]
COLUMN = "propensity"
BY_POPULARITY = re.compile(r"popularity(?:\s*(?:\^|\*\*)\s*(?P<power>[0-9.]+))?")


@dataclass(frozen=True, eq=False)
class Propensities:
    """The probability that a pair was shown, in the row numbers of a dataset.

    Attributes
    ----------
    evidence
        What the probabilities rest on: "given by pair", "given by item", "given: 0.2", "assumed: popularity^0.5".
    pairs
        The listed pairs as user * n_items + item, sorted; None if the probabilities are by item.
    values
        The probability of each listed pair, or of each item; NaN if it is not known.
    n_items
        The number of items of the dataset.

    Examples
    --------
    >>> import truelike as tl
    >>> train = tl.read([("ann", "tea"), ("bob", "tea"), ("eve", "tea"), ("eve", "tea"), ("bob", "rum")])
    >>> found = Propensities.of("popularity^0.5", train)
    >>> found.evidence, found.lookup(np.array([0, 0]), np.array([0, 1])).round(4).tolist()
    ('assumed: popularity^0.5', [0.5774, 1.0])
    """

    evidence: str
    pairs: NDArray[np.int64] | None
    values: Floats
    n_items: int

    @classmethod
    def of(cls, source: Any, train: Interactions) -> Propensities:
        """The propensities of the users and items of the training data.

        The source is a frame or a file with the columns user, item and propensity, or item and propensity; a Dataset
        whose weights are propensities; one number; or "popularity^0.5": a power of the popularity in `train`.
        """
        if isinstance(source, str) and (match := BY_POPULARITY.fullmatch(source.strip())):
            return cls._by_popularity(match["power"], source, train)
        if isinstance(source, Real) and not isinstance(source, bool):
            values = np.full(train.n_items, float(source))
            _check_range(values[:1], lambda at: "the given number")
            return cls(f"given: {float(source):g}", None, values, train.n_items)
        if isinstance(source, Dataset):
            codes, values = (source.entry_users, source.csr.indices), source.csr.data.astype(np.float64)
            return cls._of_rows(source.users, codes[0], source.items, codes[1], values, train)
        return cls._of_rows(*_read(source), train)

    @classmethod
    def _by_popularity(cls, power: str | None, source: str, train: Interactions) -> Propensities:
        try:
            exponent = 1.0 if power is None else float(power)
        except ValueError:
            raise ParameterError(f"propensity is {source!r}; expected a power such as 'popularity^0.5'") from None
        popularity = train.popularity().astype(np.float64)
        values = (popularity / max(popularity.max(), 1)) ** exponent
        values[popularity == 0] = np.nan  # nothing is known of an item that nobody took
        return cls(f"assumed: popularity^{exponent:g}", None, values, train.n_items)

    @classmethod
    def _of_rows(
        cls,
        users: Ids | None,
        user_codes: Codes | None,
        items: Ids,
        item_codes: Codes,
        values: Floats,
        train: Interactions,
    ) -> Propensities:
        def where(at: int) -> str:
            item = f"item {items[int(item_codes[at])]!r}"
            return item if users is None or user_codes is None else f"user {users[int(user_codes[at])]!r}, {item}"

        _check_range(values, where)
        own_items = train.items.codes(items.values)[item_codes].astype(np.int64)
        if users is None or user_codes is None:
            known, key = own_items >= 0, own_items
        else:
            own_users = train.users.codes(users.values)[user_codes].astype(np.int64)
            known, key = (own_users >= 0) & (own_items >= 0), own_users * train.n_items + own_items
        what = "item" if users is None else "user or an item"
        if not known.any():
            raise DataError(
                f"none of the {len(values):,} propensities is of a{'n' * (users is None)} {what} that the model knows; "
                "check that the ids are the same"
            )
        if not known.all():
            warn(
                f"{np.count_nonzero(~known):,} of {len(values):,} propensities are of a{'n' * (users is None)} {what} "
                "that the model does not know; they are left out",
                DataWarning,
            )
        rows = np.flatnonzero(known)
        rows = rows[np.argsort(key[rows], kind="stable")]
        key, values = key[rows], values[rows]
        again = key[1:] == key[:-1]
        other = np.flatnonzero(again & (values[1:] != values[:-1]))
        if len(other):
            n = int(other[0])
            raise DataError(
                f"{len(other):,} rows give a pair another propensity than a row before, such as {where(int(rows[n]))}: "
                f"{values[n]:g} and {values[n + 1]:g}. List each pair once."
            )
        first = np.concatenate(([True], ~again))
        key, values = key[first], values[first]
        if users is not None:
            return cls("given by pair", key, values, train.n_items)
        of_items = np.full(train.n_items, np.nan)
        of_items[key] = values
        return cls("given by item", None, of_items, train.n_items)

    def lookup(self, users: NDArray[np.integer], items: NDArray[np.integer]) -> Floats:
        """Return the propensity of each pair, given by row numbers; NaN where there is none."""
        if self.pairs is None:
            return np.asarray(self.values[items])
        asked = users.astype(np.int64) * self.n_items + items
        at = np.minimum(np.searchsorted(self.pairs, asked), len(self.pairs) - 1)
        return np.where(self.pairs[at] == asked, self.values[at], np.nan)


def _check_range(values: Floats, where: Callable[[int], str]) -> None:
    """Raise an error for propensities outside (0, 1]."""
    wrong = np.flatnonzero(~((values > 0) & (values <= 1)))
    if len(wrong):
        at = int(wrong[0])
        raise DataError(
            f"{len(wrong):,} of {len(values):,} propensities are outside (0, 1], such as {values[at]:g} of {where(at)}"
            ". A propensity is the probability that the pair was shown; leave out pairs that could not be shown."
        )


def _read(source: Any) -> tuple[Ids | None, Codes | None, Ids, Codes, Floats]:
    """The users (None: by item), items and propensities of the rows of a frame, a file or a list."""
    refuse_address(source)

    def settle(names: list[str]) -> Picked:
        plain = not isinstance(source, (str, os.PathLike)) and library_of(source) is None
        column = "rating" if plain and COLUMN not in names and "rating" in names else COLUMN  # third of a tuple
        if column not in names:
            raise DataError(f"there is no column 'propensity'; the table has {some(map(repr, names), 20)}")
        item = recognised(names, "item")
        if item is not None and recognised(names, "user") is None:
            return Picked([item, column])
        chosen = choose(names)
        return Picked([chosen.user, chosen.item, column])

    rows = read_table(source, settle)
    *ids, given = rows.columns.names
    for role, column in zip(("item", "user"), reversed(ids), strict=False):
        rows.mark(missing(rows.frame[column]), f"has no {role} (column {quoted(column)})")
    numbers = cast(rows.frame[given], pl.Float64()).fill_nan(None)
    rows.mark(numbers.is_null(), f"has no usable propensity (column {quoted(given)})")
    if rows.bad:
        report_bad_rows(rows, "refuse")
    if not len(rows.frame):
        raise DataError("the table of propensities is empty")
    items, item_codes = encode_column(rows.frame[ids[-1]], "item", rows.text)
    values = numbers.to_numpy().astype(np.float64)
    if len(ids) == 1:
        return None, None, items, item_codes, values
    users, user_codes = encode_column(rows.frame[ids[0]], "user", rows.text)
    return users, user_codes, items, item_codes, values
