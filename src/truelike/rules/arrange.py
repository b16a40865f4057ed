"""How a list is made by rules: places are filled from the top, in row numbers of items.

1. The candidates are the items that may be listed: a filter, `exclude` and the history have left out the others.
2. Boosts are added to the scores.
3. Each place gets the best candidate, by score or by maximal marginal relevance, that no cap refuses. Where a page
   could otherwise not have its share of new items, it gets the best new one.
4. Pins have their places, whatever their score, and count towards caps and shares.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from truelike.core.arrays import Codes, Floats, Mask
from truelike.errors import ParameterError
from truelike.rules.budget import check_time
from truelike.rules.filters import Values

MOST_DIVERSE = 500  # items that a list with diversity is chosen from, and its greatest length
FIRST_LOOK = 128  # candidates that caps and shares look at first: their order is found without sorting all items
FURTHER = 8  # times as many, where these are not enough


class Place(NamedTuple):
    """A place of a list."""

    item: int
    score: float | None  # None: the model has none
    pinned: bool = False


class Ranking(Protocol):
    """The items, ranked for one user."""

    def scores(self) -> Floats:
        """The scores of all items: an array that must not be changed."""

    def best(self, n: int, allowed: Mask | None, boost: Floats | None) -> tuple[Codes, Floats]:
        """The n best of the allowed items that are not left out, and their scores; fewer if fewer are left."""

    def similarities(self, items: Codes) -> NDArray[np.float64]:
        """The similarity of some items with each other, from 0 to 1; that of an item with itself is 0."""


class Cap(NamedTuple):
    """At most this many items of a list have the same value."""

    most: int
    values: Values


@dataclass(frozen=True, eq=False)
class BoundRules:
    """Rules in row numbers of items.

    Attributes
    ----------
    n_items
        How many items there are.
    fitting
        Whether each item fits the filter; None: all.
    units
        What is added to the score of each item, in standard deviations of the user's scores; None: nothing.
    pins
        The rows of pinned items by their position, in its order.
    diversity
        The weight of dissimilarity.
    caps
        How many items of a list may share a value.
    min_new, new
        The least share of new items of each page, and which items are new; None: no share.
    warnings
        What the rules name in vain.
    """

    n_items: int
    fitting: Mask | None
    units: Floats | None
    pins: Mapping[int, int]
    diversity: float
    caps: tuple[Cap, ...]
    min_new: float
    new: Mask | None
    warnings: tuple[str, ...]

    @property
    def arranges(self) -> bool:
        """Whether lists are more than the best of the allowed items."""
        return self.units is not None or bool(self.pins) or self._chooses

    @property
    def _chooses(self) -> bool:
        return bool(self.diversity or self.caps) or self.new is not None

    @property
    def changes_scores(self) -> bool:
        """Whether the scores of a list are not those of the model."""
        return self.units is not None

    def allow(self, allowed: Mask | None) -> Mask | None:
        """The items that may be ranked, of those that may be listed: a new array; None: all."""
        if allowed is None and self.fitting is None and not self.pins:
            return None
        masks = [mask for mask in (allowed, self.fitting) if mask is not None]
        found = np.logical_and.reduce(masks) if masks else np.ones(self.n_items, dtype=bool)
        found[list(self.pins.values())] = False
        return found

    def check_length(self, wanted: int) -> None:
        """Raise an error for a list that is too long for diversity."""
        if self.diversity and wanted > MOST_DIVERSE:
            raise ParameterError(
                f"k, with an offset, is {wanted}; with diversity it is at most {MOST_DIVERSE}: such a list is chosen "
                f"among the best {MOST_DIVERSE} items"
            )

    def digest(self) -> str:
        """A hash of all that lists depend on, but for the filter, which is in the mask of `allow`."""
        found = hashlib.sha256(repr((dict(self.pins), self.diversity, self.min_new)).encode())
        arrays: list[tuple[str, NDArray[Any] | None]] = [("units", self.units), ("new", self.new)]
        arrays += [(f"at most {cap.most}", part) for cap in self.caps for part in cap.values]
        for name, array in arrays:
            found.update(f"{name} {None if array is None else len(array)}".encode())
            found.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def arrange(self, ranking: Ranking, allowed: Mask | None, wanted: int, page: int) -> list[Place]:
        """The list of a user.

        Parameters
        ----------
        ranking
            The items, ranked for the user.
        allowed
            The items that may be ranked, as `allow` gives them.
        wanted
            The length of the list; it is shorter if fewer items are left.
        page
            The length of the pages that have shares of new items, from the top.
        """
        self.check_length(wanted)
        boost = self._boost(ranking)
        walk = _Walk(self, ranking, allowed, boost, wanted)
        places: list[Place] = []
        for position in range(1, wanted + 1):
            place = self._pinned(position, ranking, boost)
            if place is None:
                place = walk.next(new=self._must_be_new(position, page, places))
            if place is None:
                break
            places.append(place)
        after = (self._pinned(position, ranking, boost) for position in self.pins if position > len(places))
        left = [place for place in after if place is not None]  # beyond the end: they are the last ones
        return [*places, *left][:wanted]

    def _boost(self, ranking: Ranking) -> Floats | None:
        """What is added to the score of each item."""
        if self.units is None:
            return None
        scores = ranking.scores()
        finite = scores[np.isfinite(scores)]
        return self.units * np.float32(finite.std(dtype=np.float64) if len(finite) else 1.0)

    def _pinned(self, position: int, ranking: Ranking, boost: Floats | None) -> Place | None:
        row = self.pins.get(position)
        if row is None:
            return None
        score = ranking.scores()[row]
        score = score if boost is None else score + boost[row]
        return Place(row, score if np.isfinite(score) else None, pinned=True)

    def _must_be_new(self, position: int, page: int, places: list[Place]) -> bool:
        """Whether the page could not have its share of new items if an old one were next."""
        if self.new is None:
            return False
        first = (position - 1) // page * page  # of the page, from 0
        last = first + page
        later = [row for place, row in self.pins.items() if position < place <= last]
        there = [place.item for place in places[first:]] + later
        lacking = math.ceil(self.min_new * page - 1e-9) - int(self.new[there].sum())
        return lacking >= last - position + 1 - len(later) and lacking > 0


class _Queue:
    """Items in the order of their scores, looked up as far as they are asked for."""

    def __init__(self, best: Callable[[int], tuple[Codes, Floats]], first: int) -> None:
        self._best, self._look = best, first
        self._items, self._scores = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
        self._at, self._ended = 0, False

    def pop(self) -> Place | None:
        """The next item."""
        if self._at == len(self._items) and not self._ended:
            check_time()
            self._items, self._scores = self._best(self._look)
            self._ended = len(self._items) < self._look
            self._look *= FURTHER
        if self._at >= len(self._items):
            return None
        self._at += 1
        return Place(int(self._items[self._at - 1]), self._scores[self._at - 1])


class _Pool:
    """Maximal marginal relevance: the next item is good and unlike the ones before it.

    It maximises (1 - weight) x relevance - weight x its largest similarity to the chosen ones. Relevance and similarity
    are scaled to 0 ... 1.
    """

    def __init__(self, weight: float, items: Codes, scores: Floats, ranking: Ranking) -> None:
        self.items, self.scores, self._weight = items, scores, weight
        n = len(items)
        spread = float(scores.max() - scores.min()) if n else 0.0
        self._relevance = (scores - scores.min()) / spread if spread > 0 else np.ones(n)
        self._similarity = ranking.similarities(items) if n else np.zeros((0, 0))
        self._nearest, self.left = np.zeros(n), np.ones(n, dtype=bool)

    def best(self, among: Mask) -> int | None:
        """The number of the best item that is left, of some."""
        possible = self.left & among
        if not possible.any():
            return None
        value = (1 - self._weight) * self._relevance - self._weight * self._nearest
        return int(np.argmax(np.where(possible, value, -np.inf)))

    def choose(self, number: int) -> Place:
        """Choose an item."""
        self._nearest = np.maximum(self._nearest, self._similarity[number])
        return Place(int(self.items[number]), self.scores[number])


class _Walk:
    """The items of a list that are not pinned, one after another."""

    def __init__(
        self, rules: BoundRules, ranking: Ranking, allowed: Mask | None, boost: Floats | None, wanted: int
    ) -> None:
        self._caps, self._new = rules.caps, rules.new
        self._counts: list[Counter[int]] = [Counter() for _ in rules.caps]
        self._taken: set[int] = set()
        for row in rules.pins.values():
            self._take(row)
        first = max(FIRST_LOOK, 2 * wanted) if rules.caps or rules.new is not None else wanted
        self._all = _Queue(lambda n: ranking.best(n, allowed, boost), first)
        if rules.new is not None:
            fresh = rules.new if allowed is None else rules.new & allowed
            self._fresh = _Queue(lambda n: ranking.best(n, fresh.copy(), boost), wanted)
        self._pool = None
        if rules.diversity:
            self._pool = _Pool(rules.diversity, *ranking.best(MOST_DIVERSE, allowed, boost), ranking)

    def next(self, *, new: bool) -> Place | None:
        """The next item, a new one if there is any; None if none is left."""
        return (self._next(new=True) if new else None) or self._next(new=False)

    def _next(self, *, new: bool) -> Place | None:
        place = None if self._pool is None else self._of_pool(self._pool, new)
        queue = self._fresh if new else self._all
        while place is None:
            place = queue.pop()
            if place is None:
                return None
            if place.item in self._taken or not self._fits(place.item):
                place = None
        self._take(place.item)
        return place

    def _of_pool(self, pool: _Pool, new: bool) -> Place | None:
        """The next of the best items by maximal marginal relevance; beyond them, items follow by score."""
        among = self._new[pool.items] if new and self._new is not None else np.ones(len(pool.items), dtype=bool)
        while (number := pool.best(among)) is not None:
            pool.left[number] = False
            item = int(pool.items[number])
            if item not in self._taken and self._fits(item):
                return pool.choose(number)
        return None

    def _fits(self, item: int) -> bool:
        """Whether no cap refuses an item."""
        return all(
            counts[value] < cap.most
            for cap, counts in zip(self._caps, self._counts, strict=True)
            for value in cap.values.of(item)
        )

    def _take(self, item: int) -> None:
        self._taken.add(item)
        for cap, counts in zip(self._caps, self._counts, strict=True):
            counts.update(cap.values.of(item))
