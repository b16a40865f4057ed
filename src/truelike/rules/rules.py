"""`Rules`: what a shop wants of lists beside the order of a model."""

from __future__ import annotations

import tomllib
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from truelike.core.arrays import Codes, Floats, Mask
from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.files import as_path, check_file
from truelike.data.ids import one_or_many
from truelike.errors import DataError, ParameterError, quoted, some
from truelike.rules.arrange import BoundRules, Cap
from truelike.rules.budget import check_time
from truelike.rules.filters import Filters
from truelike.rules.items_table import aligned, carried_table, read_items_table

LARGEST_BOOST = 10.0  # standard deviations
Find = Callable[[Any], Codes]  # the row numbers of ids; -1 for one that is not known


@dataclass(frozen=True, kw_only=True)
class Boost:
    """Raise or lower the scores of some items: those that fit a filter, those that are named, or those that do both.

    Parameters
    ----------
    add : float
        Added to the scores, in standard deviations of the user's scores over all items, from -10 to 10. So one number
        works for all users and models.
    filter : str, optional
        An expression over the columns of the items.
    items : ids, optional
        The items.

    Examples
    --------
    >>> import truelike as tl
    >>> tl.Boost(add=0.5, filter="margin > 0.4")
    Boost(add=0.5, filter='margin > 0.4', items=None)
    """

    add: float
    filter: str | None = None
    items: Any = None

    def __post_init__(self) -> None:
        _check_number("add of a boost", self.add, -LARGEST_BOOST, LARGEST_BOOST)
        _check_filter("filter of a boost", self.filter)
        if self.items is not None:
            object.__setattr__(self, "items", _plain_ids(self.items))


@dataclass(frozen=True, kw_only=True, eq=False)
class Rules:
    """What a shop wants of lists: which items may be listed, which are raised or pinned, and how much a list is mixed.

    `recommend`, `recommend_to` and `recommend_from_items` take them. `truelike recommend` and `truelike serve` read
    them from a TOML file. The order in which they apply, and what they promise, is in the guide "Apply business rules".

    Parameters
    ----------
    filter : str or list of str, optional
        Only items that fit, e.g. ``"price < 20 and stock > 0"``; of several filters, items that fit all.
    boosts : list of Boost or of mappings, default ()
        Raise or lower the scores of some items.
    pins : mapping from item to position, default {}
        Items with a place of their own, from 1, whatever their score.
    diversity : float, default 0.0
        The weight of dissimilarity in maximal marginal relevance, from 0 to 1; 0: by score alone.
    at_most : mapping from column to number, default {}
        At most so many items of a list have the same value in a column. Missing values are not counted; in a column of
        lists an item counts for each of its values.
    min_new : float, default 0.0
        The least share of new items in each page of k items, from 0 to 1.
    new : str, optional
        Which items are new, e.g. ``"days_online < 30"``.
    items : frame or path, optional
        The table of items, a CSV, TSV, JSONL or Parquet file, or a frame, with a column of ids. None: the features and
        titles of the training data, as ``tl.read(items=...)`` read them. Saved models keep only titles.

    Examples
    --------
    >>> import polars as pl, truelike as tl
    >>> log = [("ann", "tea"), ("ann", "gin"), ("bob", "tea"), ("bob", "rum"), ("cat", "tea"), ("cat", "ale")]
    >>> model = tl.ItemPop().fit(tl.read(log))
    >>> products = pl.DataFrame({"item": ["ale", "gin", "rum", "tea"], "stock": [3, 0, 9, 5]})
    >>> rules = tl.Rules(filter="stock > 0", pins={"rum": 1}, items=products)
    >>> model.recommend("ann", k=2, rules=rules)["item_id"].to_list()
    ['rum', 'ale']
    """

    filter: str | Sequence[str] | None = None
    boosts: Sequence[Boost | Mapping[str, Any]] = ()
    pins: Mapping[Any, int] = field(default_factory=dict)
    diversity: float = 0.0
    at_most: Mapping[str, int] = field(default_factory=dict)
    min_new: float = 0.0
    new: str | None = None
    items: Any = None

    def __post_init__(self) -> None:
        for text in self.all_filters:
            _check_filter("filter", text, optional=False)
        _check_filter("new", self.new)
        _check_number("diversity", self.diversity, 0, 1)
        _check_number("min_new", self.min_new, 0, 1)
        if bool(self.min_new) != (self.new is not None):
            raise ParameterError(
                f"min_new is {self.min_new} and new is {self.new!r}; expected both: the least share of new items, and "
                "a filter that says which items are new"
            )
        _check_counts("pins", "item", "position", self.pins)
        _check_counts("at_most", "column", "number", self.at_most)
        if len(set(self.pins.values())) < len(self.pins):
            raise ParameterError("two pins have the same position; give each item one of its own")
        object.__setattr__(self, "boosts", _boosts(self.boosts))

    @classmethod
    def read(cls, path: str | Path, *, items: Any = None) -> Self:
        r"""Read rules from a TOML file, whose keys are the names of the parameters but for `items`.

        Parameters
        ----------
        path
            A TOML file.
        items
            The table of items.

        Examples
        --------
        >>> import pathlib, tempfile, truelike as tl
        >>> with tempfile.TemporaryDirectory() as place:
        ...     path = pathlib.Path(place, "rules.toml")
        ...     _ = path.write_text('filter = "stock > 0"\n[at_most]\nbrand = 2\n')
        ...     tl.Rules.read(path).at_most
        {'brand': 2}
        """
        place = as_path(path)
        check_file(place)
        try:
            found = tomllib.loads(place.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise DataError(
                f"the rules cannot be read from {quoted(path)}: {some([error], longest=300)}"
            ) from error
        return cls.of(found, items=items, where=quoted(path))

    @classmethod
    def of(cls, given: Mapping[str, Any], *, items: Any = None, where: str = "the rules") -> Self:
        """Rules of a mapping; an error for a name that they do not have."""
        _check_names(given, [each for each in KEYS if each != "items"], where)
        return cls(**given, items=items)

    @property
    def plain(self) -> dict[str, Any]:
        """All but the table, as JSON can hold it; `of` takes it."""
        found = {name: getattr(self, name) for name in KEYS if name not in ("items", "boosts", "pins", "at_most")}
        return {
            **found,
            "boosts": [vars(boost) for boost in self.boosts],
            "pins": dict(self.pins),
            "at_most": dict(self.at_most),
        }

    def over(self, defaults: Rules) -> Rules:
        """These rules beside others, which hold for every list.

        Both filters must fit, and boosts add up. A pin replaces one of the same position or item, a cap one of the same
        column, and diversity and the share of new items those of the others.
        """
        mine = set(self.pins.values())
        kept = {item: at for item, at in defaults.pins.items() if at not in mine and item not in self.pins}
        fresh = self if self.new is not None else defaults
        return Rules(
            filter=list(dict.fromkeys([*defaults.all_filters, *self.all_filters])),
            boosts=[*defaults.boosts, *self.boosts],
            pins={**kept, **self.pins},
            diversity=self.diversity or defaults.diversity,
            at_most={**defaults.at_most, **self.at_most},
            min_new=fresh.min_new,
            new=fresh.new,
            items=self.items if self.items is not None else defaults.items,
        )

    # --- in row numbers -------------------------------------------------------------------------

    def bound_to(self, train: Dataset | Blocks) -> BoundRules:
        """The rules in row numbers of the items of training data."""
        return self.bound(train.n_items, train.items.codes, self._filters(train))

    def bound(self, n_items: int, find: Find, filters: Filters) -> BoundRules:
        """The rules in row numbers of `n_items` items; `find` finds those of ids."""
        said: list[str] = []
        rows = find(list(self.pins)) if self.pins else np.zeros(0, dtype=np.int32)
        say_unknown(said, "pinned items", list(self.pins), rows)
        pins = sorted((at, int(row)) for at, row in zip(self.pins.values(), rows, strict=True) if row >= 0)
        if len({row for _, row in pins}) < len(pins):
            raise ParameterError("two pins have the same position or the same item; give each item one position")
        texts = self.all_filters
        fitting = np.logical_and.reduce([filters.mask(text) for text in texts]) if texts else None
        new = None if self.new is None else filters.mask(self.new)
        for text, mask in ((" and ".join(texts), fitting), (self.new, new)):
            if mask is not None and not mask.any():
                said.append(f"none of the {n_items:,} items fits {text!r}")
        return BoundRules(
            n_items=n_items,
            fitting=fitting,
            units=self._units(n_items, find, filters, said),
            pins=dict(pins),
            diversity=float(self.diversity),
            caps=tuple(Cap(int(most), filters.values(column)) for column, most in self.at_most.items()),
            min_new=float(self.min_new),
            new=new,
            warnings=tuple(said),
        )

    def _units(self, n_items: int, find: Find, filters: Filters, said: list[str]) -> Floats | None:
        """What is added to the score of each item, in standard deviations."""
        if not self.boosts:
            return None
        units = np.zeros(n_items, dtype=np.float32)
        for boost in self.all_boosts:
            check_time()
            chosen: Mask = np.full(n_items, boost.items is None)
            if boost.items is not None:
                rows = find(boost.items) if boost.items else np.zeros(0, dtype=np.int32)
                say_unknown(said, "items of a boost", boost.items, rows)
                chosen[rows[rows >= 0]] = True
            if boost.filter is not None:
                chosen &= filters.mask(boost.filter)
            units[chosen] += np.float32(boost.add)
        return units

    @property
    def all_filters(self) -> list[str]:
        """The filters, all of which must fit."""
        if self.filter is None or isinstance(self.filter, str):
            return [] if self.filter is None else [self.filter]
        if not isinstance(self.filter, Sequence):
            raise ParameterError(f"filter is {some([repr(self.filter)])}; expected a text such as 'price < 20'")
        return list(self.filter)

    @property
    def all_boosts(self) -> list[Boost]:
        """The boosts."""
        return [boost for boost in self.boosts if isinstance(boost, Boost)]

    @cached_property
    def _table(self) -> pl.DataFrame:
        """The table of items, read once."""
        return read_items_table(self.items)

    @cached_property
    def _last(self) -> dict[str, Any]:
        """The training data that the rules were bound to last, and its attributes: they are often the same again."""
        return {}

    def _filters(self, train: Dataset | Blocks) -> Filters:
        last = self._last
        if "train" not in last or last["train"]() is not train:
            table = carried_table(train) if self.items is None else aligned(self._table, train.items)[0]
            last["filters"], last["train"] = Filters(table), weakref.ref(train)
        found: Filters = last["filters"]
        return found


KEYS = tuple(each.name for each in fields(Rules))


def _boosts(given: Any) -> tuple[Boost, ...]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise ParameterError(f"boosts are {some([repr(given)])}; expected a list of tl.Boost or of mappings")
    found = []
    for boost in given:
        if isinstance(boost, Mapping):
            _check_names(boost, ["add", "filter", "items"], "a boost")
            if "add" not in boost:
                raise ParameterError("a boost has no `add`; it says how much is added to the scores")
            boost = Boost(**boost)
        if not isinstance(boost, Boost):
            raise ParameterError(f"a boost is {some([repr(boost)])}; expected a tl.Boost or a mapping")
        found.append(boost)
    return tuple(found)


def _plain_ids(items: Any) -> list[Any]:
    """Ids as a list."""
    if isinstance(items, Mapping):
        raise ParameterError("items of a boost are a mapping; expected ids")
    found = one_or_many(items)
    return np.atleast_1d(found).tolist() if isinstance(found, np.ndarray) else list(found)


def _check_names(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ParameterError(f"{where}: unknown names {some(map(repr, unknown))}; known are {', '.join(known)}")


def _check_filter(name: str, value: object, *, optional: bool = True) -> None:
    if not (optional and value is None) and not isinstance(value, str):
        raise ParameterError(f"{name} is {some([repr(value)])}; expected a text such as 'price < 20'")


def _check_number(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real) or not low <= float(value) <= high:
        raise ParameterError(f"{name} is {some([repr(value)])}; it must be a number from {low:g} to {high:g}")


def _check_counts(name: str, key: str, count: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise ParameterError(f"{name} is {some([repr(given)])}; expected a mapping from {key} to {count}")
    for each, value in given.items():
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral) or value < 1:
            raise ParameterError(
                f"{name} has the {count} {some([repr(value)])} for {some([repr(each)])}; it must be a whole number, at "
                "least 1"
            )


def say_unknown(said: list[str], what: str, ids: Sequence[Any], rows: Codes) -> None:
    """Say how many ids are not known."""
    unknown = [each for each, row in zip(ids, rows, strict=True) if row < 0]
    if unknown:
        said.append(
            f"{len(unknown):,} of {len(ids):,} {what} are not in the training data, and skipped: "
            f"{some(map(repr, unknown))}"
        )
