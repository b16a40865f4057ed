"""What a user has seen: the items that lists leave out, by kinds of events and periods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data import entries
from truelike.data.feedback import Feedback
from truelike.data.ids import Codes
from truelike.data.moments import units_per_second
from truelike.data.protocol import Interactions, Rows
from truelike.data.replay import INTERACTIONS
from truelike.data.schema import Period, Schema, checked_period, seconds_of
from truelike.errors import DataError, DataWarning, ParameterError, some, warn

SeenBy = bool | str | timedelta | Iterable[str] | Mapping[str, Period]
NAME = "interactions"  # of the targets


@dataclass(frozen=True)
class SeenRules:
    """For how many seconds an event of each kind makes an item seen; infinite: for ever.

    Examples
    --------
    >>> schema = Schema({"view": {"seen": "7d"}, "buy": {"role": "target"}, "dislike": "negative"})
    >>> SeenRules.of(True, schema).seconds
    {'': inf, 'view': 604800.0, 'dislike': inf}
    >>> SeenRules.of({"buy": "30d"}, schema).seconds, SeenRules.of(["dislike"], schema).seconds
    ({'': 2592000.0}, {'dislike': inf})
    """

    seconds: Mapping[str, float]

    @classmethod
    def of(cls, rule: SeenBy, schema: Schema | None) -> SeenRules:
        """The rules of an argument `exclude_seen`, which see `Recommender.recommend`."""
        declared = _declared(schema)
        if isinstance(rule, (bool, np.bool_)):
            return cls(declared if rule else {})
        names = {NAME: INTERACTIONS} | (
            {}
            if schema is None
            else {name: _place(schema, name) for name, kind in schema.kinds.items() if kind.makes_seen}
        )
        if isinstance(rule, timedelta) or (isinstance(rule, str) and rule not in names):
            return cls(dict.fromkeys(declared, _seconds(rule)))
        found: dict[str, float] = {}
        for name, period in _by_name(rule).items():
            if name not in names:
                raise ParameterError(
                    f"exclude_seen names the kind {some([repr(name)])}; there are {some(map(repr, names))}"
                )
            found[names[name]] = max(found.get(names[name], 0.0), _seconds(period))
        return cls({name: seconds for name, seconds in found.items() if seconds})

    @property
    def only_interactions(self) -> bool:
        """Whether all interactions make their items seen for ever, and nothing else does."""
        return dict(self.seconds) == {INTERACTIONS: math.inf}


def seen_of(train: Interactions, rule: SeenBy, now: int | None = None) -> Rows | None:
    """What lists leave out: the items of each user that were seen; None: nothing.

    Periods end at `now`, in the units of the times; by default at the latest time of the data.

    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea", 1, 10**9), ("ann", "rum", 1, 10**9 + 86_400 * 9)])
    >>> seen_of(data, "2d").rows(np.array([0]))[0].toarray().tolist()
    [[1.0, 0.0]]
    """
    rules = SeenRules.of(rule, train.schema)
    if sentence := missing(rules, train.schema, train.kinds):
        warn(sentence, DataWarning)
    if not rules.seconds:
        return None
    parts = rules.seconds.keys() - {INTERACTIONS}
    there = train.kinds.keys() & parts
    if rules.seconds.get(INTERACTIONS) == math.inf and not there:
        return train
    data = train.to_dataset()
    known = {INTERACTIONS: Feedback(data.csr, data.times), **data.kinds}
    latest = _latest(known.values()) if now is None else now
    matrices = [
        entries.select(known[name].csr, within(known[name], seconds, latest))
        for name, seconds in rules.seconds.items()
        if name in known
    ]
    return SeenPairs(_union(matrices, (data.n_users, data.n_items))) if matrices else None


def missing(rules: SeenRules, schema: Schema | None, there: Iterable[str]) -> str | None:
    """A sentence that names the kinds of which nothing is known, so that lists cannot leave them out; None without any.

    >>> missing(SeenRules({"view": 60.0}), Schema({"buy": 1, "view": "evidence"}), ["cart"])
    "exclude_seen names 'view', of which nothing is known, so nothing is left out for it. A saved model keeps ..."
    """
    kinds, known = {} if schema is None else schema.kinds, set(there)
    found = [name for name in rules.seconds if name in kinds and name not in known and not kinds[name].seen]
    if not found:
        return None
    return (
        f"exclude_seen names {some(map(repr, found))}, of which nothing is known, so nothing is left out for it. "
        "A saved model keeps the kinds that make an item seen by its schema."
    )


class SeenPairs:
    """Pairs of users and items, as lists leave them out."""

    def __init__(self, csr: sparse.csr_array) -> None:
        self.csr, self.n_items = csr, int(csr.shape[1])

    @staticmethod
    def nothing(users: Codes, n_items: int) -> tuple[sparse.csr_array, Codes]:
        """Rows without an item, for some users."""
        return sparse.csr_array((1, n_items), dtype=np.float32), np.zeros(len(users), dtype=np.int32)

    def rows(self, users: Codes) -> tuple[sparse.csr_array, Codes]:
        """A CSR that has the items of some users, by row numbers, and the row of each of them."""
        return self.csr, users


def within(part: Feedback, seconds: float, now: int) -> NDArray[np.bool_]:
    """The entries that are not older than a number of seconds."""
    if seconds == math.inf:
        return np.ones(part.csr.nnz, dtype=bool)
    if part.times is None:
        raise DataError("a period of exclude_seen needs times: name their column with tl.read(..., time=...)")
    if not len(part.times):
        return np.zeros(0, dtype=bool)
    units = units_per_second(np.array([now]))
    if units is None:
        raise DataError("a period of exclude_seen needs times since 1970, and those of the data are not")
    return np.asarray(part.times > now - seconds * units)


def _latest(parts: Iterable[Feedback]) -> int:
    return max((int(part.times.max()) for part in parts if part.times is not None and len(part.times)), default=0)


def _union(matrices: list[sparse.csr_array], shape: tuple[int, int]) -> sparse.csr_array:
    users = np.concatenate([entries.users_of(each) for each in matrices])
    items = np.concatenate([each.indices for each in matrices])
    return Feedback.from_pairs(users, items.astype(np.int32), shape).csr


def _declared(schema: Schema | None) -> dict[str, float]:
    """The seconds of each kind by the schema; without one, interactions are seen for ever."""
    if schema is None:
        return {INTERACTIONS: math.inf}
    found: dict[str, float] = {}
    for name, kind in sorted(schema.kinds.items(), key=lambda each: each[1].role != "target"):
        seconds, place = _seconds(bool(kind.seen) if kind.seen is None else kind.seen), _place(schema, name)
        if seconds and kind.makes_seen:
            found[place] = max(found.get(place, 0.0), seconds)
    return found


def _place(schema: Schema, name: str) -> str:
    return INTERACTIONS if schema.kinds[name].role == "target" else name


def _seconds(period: Any) -> float:
    period = checked_period("exclude_seen", period)
    if isinstance(period, bool):
        return math.inf if period else 0.0
    return seconds_of(period)


def _by_name(rule: Any) -> dict[str, Any]:
    if isinstance(rule, Mapping):
        return dict(rule)
    try:
        names = [rule] if isinstance(rule, str) else list(rule)
    except TypeError:
        names = None
    if names is None or not all(isinstance(name, str) for name in names):
        raise ParameterError(
            f'exclude_seen is {some([repr(rule)])}; it must be True, False, a period such as "30d", kinds of events, '
            'or a period for each, e.g. {"buy": "30d", "dislike": True}'
        )
    return dict.fromkeys(names, True)
