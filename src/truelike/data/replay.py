"""Events that come after a log: what they change in what is known of a user.

`tl.read` follows a schema for a whole log at once. Here one event follows the other, for the users of a service and for
the next training, by the same rules.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from truelike.data.schema import Kind, Schema

Item = TypeVar("Item", bound=Hashable)
INTERACTIONS = ""  # stands for the targets among the kinds
REMOVE = "remove"  # takes back all that is known of a user and an item, unless a schema declares it


class Event(NamedTuple, Generic[Item]):
    """An event of one user. Without a quantity it is 1."""

    item: Item
    kind: str
    time: int | None = None
    quantity: float | None = None


@dataclass(slots=True)
class _Part:
    """What one event, or the rows of a log, add to a pair."""

    weight: float
    time: int | None
    kind: str | None  # None: rows of a log, of any target
    number: int


@dataclass
class Known(Generic[Item]):
    """What is known of one user: for each kind, the items with their weights and times. Those of targets are one.

    Examples
    --------
    >>> known = Known(Schema({"buy": 1, "refund": "cancels", "dislike": -1}))
    >>> known.add(INTERACTIONS, "tea", 2.0, 5)
    >>> known.follow([Event("rum", "buy", 7), Event("tea", "refund", 8), Event("gin", "dislike", 9)])
    >>> known.pairs(INTERACTIONS), known.pairs("dislike")
    ({'tea': (1.0, 5), 'rum': (1.0, 7)}, {'gin': (-1.0, 9)})
    """

    schema: Schema
    _parts: dict[str, dict[Item, list[_Part]]] = field(default_factory=dict)
    _added: int = 0
    unmatched: int = 0  # events that had nothing to take back

    def add(self, name: str, item: Item, weight: float, time: int | None) -> None:
        """Add what a log has of an item."""
        self._add(name, item, weight, time, None if name == INTERACTIONS else name)

    def follow(self, events: Iterable[Event[Item]]) -> None:
        """Let events happen, one after the other, all of which are of declared kinds."""
        for event in events:
            if event.kind == REMOVE and REMOVE not in self.schema.kinds:
                found = [each.pop(event.item, None) for each in self._parts.values()]
                self.unmatched += not any(found)
                continue
            kind = self.schema.kinds[event.kind]
            if kind.role == "cancels":
                self._take_back(event, kind)
            if kind.role in ("shown", "ignored"):
                continue
            weight = kind.weight_of(event.quantity)
            signed = weight if kind.factor > 0 else -weight
            self._add(self._place(event.kind), event.item, signed, event.time, event.kind)

    def pairs(self, name: str) -> dict[Item, tuple[float, int | None]]:
        """The items of a kind, with the sum of their weights and the latest time."""
        found = {}
        for item, parts in self._parts.get(name, {}).items():
            times = [part.time for part in parts if part.time is not None]
            found[item] = (sum(part.weight for part in parts), max(times, default=None))
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The kinds of which something is known."""
        return tuple(name for name, items in self._parts.items() if items)

    def _add(self, name: str, item: Item, weight: float, time: int | None, kind: str | None) -> None:
        self._added += 1
        self._parts.setdefault(name, {}).setdefault(item, []).append(_Part(weight, time, kind, self._added))

    def _take_back(self, event: Event[Item], kind: Kind) -> None:
        """Take back the latest of what the kind cancels: one event, or as much as the quantity says."""
        left = None if kind.column is None else kind.weight_of(event.quantity)
        matched = False
        while left is None or left > 0:
            place, part = self._latest(event.item, kind)
            if part is None or place is None:
                break
            matched = True
            one = self._one(part, kind)
            taken = min(abs(part.weight), one if left is None else left)
            part.weight -= taken if part.weight > 0 else -taken
            if abs(part.weight) <= 1e-6 * one:  # nothing but rounding
                self._parts[place][event.item].remove(part)
                if not self._parts[place][event.item]:
                    del self._parts[place][event.item]
            if left is None:
                break
            left -= taken
        self.unmatched += not matched

    def _latest(self, item: Item, kind: Kind) -> tuple[str | None, _Part | None]:
        """The latest part of an item that a kind may cancel, and where it is."""
        best: tuple[str | None, _Part | None] = (None, None)
        for name in dict.fromkeys(self._place(each) for each in kind.cancels):
            for part in self._parts.get(name, {}).get(item, ()):
                allowed = part.kind is None or part.kind in kind.cancels
                if allowed and (best[1] is None or part.number > best[1].number):
                    best = (name, part)
        return best

    def _one(self, part: _Part, kind: Kind) -> float:
        """The weight of one event of a part: of rows of a log that of the first kind that may be in it."""
        if part.kind is not None and part.kind in self.schema.targets:
            return abs(part.weight)
        targets = self.schema.targets
        of_log = next((name for name in kind.cancels if name in targets), targets[0])
        first = self.schema.kinds[of_log if part.kind is None else part.kind]
        return abs(part.weight) if first.column is not None else abs(first.factor)

    def _place(self, name: str) -> str:
        return INTERACTIONS if self.schema.kinds[name].role == "target" else name
