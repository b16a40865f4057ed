"""`Schema`: what the kinds of events of a log mean. It is declared once, and honoured wherever events are read."""

from __future__ import annotations

import functools
import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from numbers import Real
from pathlib import Path
from typing import Any, Literal, cast, get_args

import polars as pl

from truelike.errors import DataError, ParameterError, some

Role = Literal["target", "evidence", "negative", "cancels", "shown", "ignored"]
Period = bool | str  # for how long an item is seen: for ever, never, or e.g. "30d"
ROLES: tuple[str, ...] = get_args(Role)
LEARNED = "learned"  # a weight that AutoRecommender finds
SEEN_BY_ROLE = (
    "target",
    "negative",
    "cancels",
)  # what makes an item seen for ever, unless it is declared otherwise
NOT_CANCELLED = ("cancels", "shown", "ignored")
KEYS = ("role", "weight", "seen", "cancels")

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PERIOD = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*")

# The usual words, the strongest sign of a like first. The first group that a log has are its targets.
_TARGETS = (
    """buy bought purchase purchased order ordered transaction sale""",
    """like liked favorite favorited favourite star upvote bookmark save follow subscribe""",
    """play played listen watch complete completed click clicked read open""",
    """view viewed visit pageview page_view detail pv""",
)
_EVIDENCE = "cart add_to_cart addtocart basket add_to_basket wishlist add_to_wishlist fav"
_NEGATIVE = "dislike disliked downvote thumbs_down skip hide not_interested report"
_SHOWN = "impression impressions shown exposure"
_CANCELS = {
    "refund refunded return returned cancel cancelled canceled": _TARGETS[0],
    "unlike unfavorite unfavourite unstar unsave unfollow unsubscribe": _TARGETS[1],
    "remove_from_cart removefromcart remove_from_basket remove_from_wishlist": _EVIDENCE,
}


def seconds_of(period: str) -> float:
    """The seconds of a period in text.

    >>> seconds_of("30d"), seconds_of("1.5h")
    (2592000.0, 5400.0)
    """
    found = _PERIOD.fullmatch(period)
    if found is None:
        raise ParameterError(f'a period is {period!r}; expected a number and one of s, m, h, d, w, e.g. "30d"')
    return float(found[1]) * _SECONDS[found[2]]


def checked_period(name: str, value: Any) -> Period:
    """True, False or a period in text; a timedelta becomes one.

    >>> checked_period("seen", timedelta(days=2)), checked_period("seen", True)
    ('172800s', True)
    """
    if isinstance(value, timedelta):
        value = f"{value.total_seconds():.0f}s"
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise ParameterError(f'{name} is {value!r}; expected true, false or a period such as "30d"')
    seconds_of(value)
    return value


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What the events of one kind mean.

    Parameters
    ----------
    role
        "target": what is recommended and measured; such rows are the interactions. "evidence": a weaker sign of a like.
        "negative": a sign of a dislike. "cancels": takes back the event before it with the same user and item. "shown":
        an impression. "ignored": left out.
    weight
        How much a row counts: a number; the name of a column, such as a quantity; or "learned":
        `AutoRecommender` finds it on held-out interactions, and it is 1 for other models.
    seen
        Whether such an event makes the item seen, so that lists leave it out: True, False, or for a period such as
        "30d". None: True for targets, negative kinds and those that cancel, else False. What is shown or ignored makes
        no item seen.
    cancels
        The kinds that this one takes back. Empty: the targets.

    Examples
    --------
    >>> import truelike as tl
    >>> tl.Kind(weight=0.2, seen="7d")
    Kind(role='evidence', weight=0.2, seen='7d', cancels=())
    """

    role: Role = "evidence"
    weight: float | str = 1.0
    seen: Period | None = None
    cancels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ParameterError(f"the role of a kind is {self.role!r}; expected one of {some(map(repr, ROLES))}")
        if isinstance(self.weight, str):
            wrong = not self.weight
        else:
            is_number = isinstance(self.weight, Real) and not isinstance(self.weight, bool)
            wrong = not is_number or not math.isfinite(self.weight) or self.weight <= 0
        if wrong:
            raise ParameterError(
                f"the weight of a kind is {self.weight!r}; expected a positive number, the name of a column, or "
                f'"{LEARNED}". A kind that counts against an item has the role "negative", one that takes an event '
                'back "cancels", and one that is left out "ignored".'
            )
        if self.role == "target" and self.weight == LEARNED:
            raise ParameterError("the weight of a target is learned; those of other kinds are, beside it")
        seen = self.role in SEEN_BY_ROLE if self.seen is None else checked_period("seen of a kind", self.seen)
        if seen and not self.makes_seen:
            raise ParameterError(
                f"seen is {seen!r} of a kind with the role {self.role!r}, which is not kept for lists"
            )
        if not isinstance(self.cancels, Iterable):
            raise ParameterError(f"cancels is {self.cancels!r}; expected kinds of the schema")
        names = (self.cancels,) if isinstance(self.cancels, str) else tuple(map(str, self.cancels))
        if names and self.role != "cancels":
            raise ParameterError(
                f'cancels is {names!r} of a kind with the role {self.role!r}; it is for "cancels"'
            )
        object.__setattr__(self, "seen", seen)  # the class is frozen
        object.__setattr__(self, "cancels", names)

    @property
    def makes_seen(self) -> bool:
        """Whether such events may make an item seen: not those that are shown or ignored."""
        return self.role not in ("shown", "ignored")

    @property
    def column(self) -> str | None:
        """The column of its weights; None: all rows count the same."""
        return self.weight if isinstance(self.weight, str) and self.weight != LEARNED else None

    def weight_of(self, quantity: float | None) -> float:
        """The weight of an event with a value of the column, without a sign; without one, that of the value 1."""
        return abs(self.factor) * (1.0 if self.column is None or quantity is None else quantity)

    @property
    def factor(self) -> float:
        """The weight of a row, apart from its column; negative for what counts against an item."""
        size = 1.0 if isinstance(self.weight, str) else float(self.weight)
        return -size if self.role in ("negative", "cancels") else size


Declared = Kind | float | str | Mapping[str, Any]


@dataclass(frozen=True)
class Schema:
    """What each kind of events in a log means.

    It is declared once: in Python, in a TOML file, or by options of the command line. Datasets, splits, block
    directories and models keep it, and `tl.read`, `truelike train --events` and `truelike serve` follow it.

    Parameters
    ----------
    kinds
        For each kind a `tl.Kind`; or a table with its parameters; or a short form: a role, such as "shown"; a number,
        the weight; "learned"; or the name of a column of weights. A kind with a number or a column is a target if no
        kind is declared as one, else evidence. A negative number is a kind with the role "negative", 0 one that is
        ignored.
    column
        The name of the column of the kinds; None: it is given to `tl.read`.
    target
        The kind that is the target, where `kinds` has short forms.

    Examples
    --------
    >>> import truelike as tl
    >>> schema = tl.Schema({"view": 0.2, "buy": {"role": "target", "seen": "30d"}, "refund": "cancels"})
    >>> schema.table().rows()
    [('view', 'evidence', '0.2', 'no', ''), ('buy', 'target', '1', '30d', ''), ('refund', 'cancels', '1', 'yes', 'buy')]
    >>> tl.Schema.usual(["view", "cart", "purchase", "dislike"]).targets
    ('purchase',)
    """

    kinds: Mapping[str, Kind]
    column: str | None = None

    def __init__(
        self, kinds: Mapping[str, Declared], column: str | None = None, *, target: str | None = None
    ) -> None:
        if not isinstance(kinds, Mapping) or not kinds:
            raise ParameterError(
                f"kinds is {some([repr(kinds)])}; expected what each kind of events means, e.g. "
                'kinds={"view": 0.2, "buy": 1, "refund": "cancels", "shown": "shown"}'
            )
        explicit = target is not None or any(_is_target(value) for value in kinds.values())
        found = {str(name): _kind(name, value, explicit, target) for name, value in kinds.items()}
        targets = tuple(name for name, kind in found.items() if kind.role == "target")
        if target is not None and target not in targets:
            raise ParameterError(
                f"target is {target!r}; expected a kind with a positive weight: {some(map(repr, found))}"
            )
        if not targets:
            raise ParameterError('no kind is a target (has a positive weight, or the role "target"), so there would '
                                 "be no interactions")  # fmt: skip
        for name, kind in found.items():
            unknown = [each for each in kind.cancels if each not in found or found[each].role in NOT_CANCELLED]
            if unknown:
                raise ParameterError(
                    f"the kind {name!r} cancels {some(map(repr, unknown))}; expected other kinds of the schema, "
                    "targets, evidence or negative ones"
                )
            if kind.role == "cancels" and not kind.cancels:
                found[name] = Kind(role="cancels", weight=kind.weight, seen=kind.seen, cancels=targets)
        object.__setattr__(self, "kinds", found)  # the class is frozen
        object.__setattr__(self, "column", column)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a TOML file: a table [kinds], and maybe `column`, the column of the kinds.

        >>> import tempfile
        >>> from pathlib import Path
        >>> file = Path(tempfile.mkdtemp()) / "shop.toml"
        >>> _ = file.write_text('kinds = {view = 0.2, buy = {role = "target", weight = "quantity"}}')
        >>> Schema.load(file).targets
        ('buy',)
        """
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DataError(f"{str(path)!r} is not TOML that can be read: {error}") from error
        try:
            return cls.from_dict(content)
        except ParameterError as error:
            raise ParameterError(f"{str(path)!r}: {error}") from error

    @classmethod
    def usual(cls, names: Iterable[str], column: str | None = None) -> Schema:
        """The meaning of usual words; an error if one has none.

        Purchases are the target where there are some; else likes, plays and clicks, or views. What is weaker is
        evidence with a learned weight. Refunds and returns cancel purchases, and dislikes and skips are negative.
        """
        names = list(names)
        words = {name: re.sub("[ -]+", "_", name.strip().lower()) for name in names}
        unknown = [name for name in names if words[name] not in USUAL]
        if unknown:
            raise DataError(
                f"{some(map(repr, unknown), 10)}: no kind{'s' * (len(unknown) > 1)} that truelike knows. Declare "
                'what each means with kinds=, e.g. kinds={"view": 0.2, "buy": 1, "refund": "cancels"}'
            )
        best = min((USUAL[word] for word in words.values() if isinstance(USUAL[word], int)), default=None)
        if best is None:
            raise DataError(
                f"of {some(map(repr, names), 10)} none is a sign of a like: declare the target with kinds="
            )
        found: dict[str, Declared] = {}
        for name, word in words.items():
            role = USUAL[word]
            if isinstance(role, int):
                found[name] = Kind(role="target") if role == best else Kind(weight=LEARNED)
            elif isinstance(role, tuple):
                taken_back = tuple(each for each in names if words[each] in role)
                found[name] = Kind(role="cancels", cancels=taken_back) if taken_back else Kind(role="negative")
            else:
                found[name] = Kind(role=role, weight=LEARNED if role in ("evidence", "negative") else 1.0)
        return cls(found, column)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """The schema of a table with the keys `kinds` and maybe `column`, e.g. of `to_dict`."""
        wrong = sorted(set(content) - {"kinds", "column"})
        if wrong or not isinstance(content.get("column", ""), str | None):
            raise ParameterError(
                f"a schema has a table kinds and a text column; it has {some(map(repr, content))}"
            )
        return cls(content.get("kinds", {}), content.get("column"))

    def to_dict(self) -> dict[str, Any]:
        """The schema as plain values, for JSON and TOML."""
        kinds = {
            name: {"role": kind.role, "weight": kind.weight, "seen": kind.seen}
            | ({"cancels": list(kind.cancels)} if kind.cancels else {})
            for name, kind in self.kinds.items()
        }
        return {"kinds": kinds} | ({} if self.column is None else {"column": self.column})

    def names(self, *roles: Role) -> tuple[str, ...]:
        """The kinds with some roles."""
        return tuple(name for name, kind in self.kinds.items() if kind.role in roles)

    @property
    def targets(self) -> tuple[str, ...]:
        """The kinds whose rows are the interactions."""
        return self.names("target")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of weights."""
        found = (kind.column for kind in self.kinds.values())
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def check_known(self, counts: Mapping[str, int]) -> None:
        """Raise an error that lists the kinds that are not declared, with the number of their rows."""
        unknown = [f"{name!r} ({n:,} rows)" for name, n in counts.items() if name not in self.kinds]
        if unknown:
            raise DataError(
                f"{some(unknown, 10)} {'are' if len(unknown) > 1 else 'is'} not declared in kinds, which has "
                f'{some(map(repr, self.kinds))}. Say what each means; "ignored" leaves its rows out.'
            )

    def table(self) -> pl.DataFrame:
        """A frame with a row for each kind: kind, role, weight, seen, cancels."""
        shown = {True: "yes", False: "no"}
        rows = [
            (
                name,
                kind.role,
                kind.weight if isinstance(kind.weight, str) else f"{kind.weight:g}",
                shown[kind.seen] if isinstance(kind.seen, bool) else kind.seen,
                ", ".join(kind.cancels),
            )
            for name, kind in self.kinds.items()
        ]
        return pl.DataFrame(rows, schema=dict.fromkeys(("kind", *KEYS), pl.String), orient="row")

    def __str__(self) -> str:
        found: dict[str, list[str]] = {}
        for name, kind in self.kinds.items():
            weight = "" if kind.weight == 1.0 else f" (weight {kind.weight})"
            found.setdefault(kind.role, []).append(f"{name}{weight}")
        return "; ".join(f"{role}: {', '.join(found[role])}" for role in ROLES if role in found)


@functools.cache
def undeclared() -> Schema:
    """What events mean where nothing was declared: every sign of a like is an interaction.

    >>> undeclared().kinds["click"].role, undeclared().kinds["view"].role
    ('target', 'ignored')
    """
    kinds: dict[str, Declared] = {}
    for word, role in USUAL.items():
        if isinstance(role, int):
            kinds[word] = "target" if role < len(_TARGETS) - 1 else "ignored"
        elif isinstance(role, tuple):
            kinds[word] = Kind(role="cancels", cancels=role)
        else:
            kinds[word] = "target" if role == "evidence" else role
    return Schema(kinds)


def _usual() -> dict[str, int | Role | tuple[str, ...]]:
    """What the usual words mean: the group of targets, a role, or the words that one takes back."""
    groups = {word: number for number, words in enumerate(_TARGETS) for word in words.split()}
    roles: Sequence[tuple[str, Role]] = ((_EVIDENCE, "evidence"), (_NEGATIVE, "negative"), (_SHOWN, "shown"))
    return {
        **groups,
        **{word: role for words, role in roles for word in words.split()},
        **{word: tuple(taken.split()) for words, taken in _CANCELS.items() for word in words.split()},
    }


USUAL = _usual()


def _is_target(value: Declared) -> bool:
    role = value.get("role") if isinstance(value, Mapping) else getattr(value, "role", value)
    return isinstance(role, str) and role == "target"


def _kind(name: Any, value: Any, explicit: bool, target: str | None) -> Kind:
    """The kind that was declared, in any form."""
    if not isinstance(name, str) or not name:
        raise ParameterError(f"the kind {name!r} is no text")
    of_short: Role = "target" if name == target or not explicit else "evidence"
    try:
        if isinstance(value, Kind):
            return value
        if isinstance(value, Mapping):
            return _of_table({"role": "target" if name == target else "evidence", **value})
        if isinstance(value, str):
            return _of_word(value, of_short)
        return _of_number(value, of_short)
    except ParameterError as error:
        raise ParameterError(f"the kind {name!r}: {error}") from error


def _of_table(table: Mapping[str, Any]) -> Kind:
    if unknown := sorted(map(str, set(table) - set(KEYS))):
        raise ParameterError(f"it has no {some(unknown)}; known are {', '.join(KEYS)}")
    return Kind(**table)


def _of_word(word: str, role: Role) -> Kind:
    if word in ROLES:
        return Kind(role=cast(Role, word))
    return Kind(weight=word) if word == LEARNED else Kind(role=role, weight=word)


def _of_number(value: Any, role: Role) -> Kind:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise ParameterError(f"it is {value!r}; expected a role, a number, the name of a column or tl.Kind(...)")
    number = float(value)
    if number == 0:
        return Kind(role="ignored")
    return Kind(role="negative", weight=-number) if number < 0 else Kind(role=role, weight=number)
