"""The columns of a table: named by the caller, or recognised by common names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from truelike.errors import DataError, some

COMMON = {
    "user": """user_id user userid uid customer_id customerid customer reviewerid reviewer_id visitorid
        visitor_id member_id account_id client_id session_id sessionid person_id profile_id""",
    "item": """item_id item itemid iid product_id productid product asin parent_asin movie_id movieid movie
        article_id track_id trackid song_id artist_id artistid book_id isbn sku business_id content_id
        video_id game_id recipe_id""",
    "rating": "rating overall score stars rate rating_score",
    "rank": "rank",  # in lists, as is the next one
    "score": "score prediction rating",
    "time": """timestamp time datetime date ts unixreviewtime event_time created_at rated_at purchased_at
        day""",
    "kind": """event event_type eventtype action behavior behaviour interaction interaction_type feedback_type""",
    "weight": "weight",
    "count": "count weight",  # of impressions, as are the next two
    "propensity": "propensity",
    "position": "position",
    "id": "id",
    "title": """title item_title product_title movie_title track_title book_title name item_name product_name movie_name
        track_name artist_name""",
}


Name = str | int | None  # the name or the position of a column; None: recognised


@dataclass(frozen=True)
class Columns:
    """The names of the columns to read; None for those that are not."""

    user: str
    item: str
    rating: str | None = None
    time: str | None = None
    weight: str | None = None
    time_guessed: bool = False
    position: str | None = None
    kind: str | None = None
    kind_guessed: bool = False
    quantities: tuple[str, ...] = ()  # weights of some kinds

    def needed(self) -> list[str]:
        """Every column to read, once."""
        one = (self.user, self.item, self.rating, self.time, self.weight, self.position, self.kind)
        names = (*one, *self.quantities)
        return list(dict.fromkeys(name for name in names if name is not None))

    def required(self) -> list[str]:
        """The columns without which a row is bad."""
        return [name for name in (self.user, self.item, self.rating) if name is not None]


def choose(
    available: Sequence[str],
    *,
    user: Name = None,
    item: Name = None,
    rating: Name = None,
    time: Name = None,
    weight: Name = None,
    kind: Name | Literal[False] = False,
    quantities: Sequence[str] = (),
    needs_rating: bool = False,
) -> Columns:
    """Choose the columns of a table: those that were asked for, the others by common names.

    `kind` is the column of the kinds of rows; False: rows have none.

    >>> choose(["ReviewerID", "asin"])
    Columns(user='ReviewerID', item='asin', rating=None, time=None, weight=None, time_guessed=True, position=None,
            kind=None, kind_guessed=False, quantities=())
    """

    def pick(role: str, asked: Name, required: bool) -> str | None:
        if isinstance(asked, int) and not isinstance(asked, bool) and 0 <= asked < len(available):
            return available[asked]
        if asked is not None:
            if str(asked) in available:
                return str(asked)
            raise DataError(f"there is no column {some([repr(asked)])}; the table has {_listed(available)}.")
        found = recognised(available, role)
        if found is None and required:
            raise DataError(
                f"no column looks like the {role}: the table has {_listed(available)}. "
                f"Name it with {role}=... (a name or a position); for a file without a header line, "
                "pass header=False."
            )
        return found

    kinds = None if kind is False else pick("kind", kind, required=False)
    chosen = Columns(
        user=str(pick("user", user, required=True)),
        item=str(pick("item", item, required=True)),
        rating=None if rating is None and not needs_rating else pick("rating", rating, required=True),
        time=pick("time", time, required=False),
        # of rows of several kinds it may be of one kind alone, so it is named there
        weight=None if weight is None and kind not in (None, False) else pick("weight", weight, required=False),
        time_guessed=time is None,
        kind=kinds,
        kind_guessed=kind is None,
        quantities=tuple(str(pick("weight", name, required=True)) for name in quantities),
        position=None if kinds is None else recognised(available, "position"),  # of rows that are impressions
    )
    if chosen.user == chosen.item:
        raise DataError(f"user and item are the same column, {chosen.user!r}. Name two different ones.")
    return chosen


def chooser(
    *,
    header: bool = True,
    min_rating: float | None = None,
    user: Name = None,
    item: Name = None,
    kind: Name | Literal[False] = False,
    quantities: Sequence[str] = (),
    **asked: Name,
) -> Callable[[Sequence[str]], Columns]:
    """What chooses the columns of rows by the arguments of `tl.read`. Without a header, users and items come first.

    >>> chooser(header=False, time=2)(["0", "1", "2"]).needed()
    ['0', '1', '2']
    """
    first, second = (None, None) if header else (0, 1)
    ids: dict[str, Name] = {"user": first if user is None else user, "item": second if item is None else item}
    rated = min_rating is not None
    return lambda names: choose(names, **ids, **asked, kind=kind, quantities=quantities, needs_rating=rated)


def recognised(available: Sequence[str], role: str) -> str | None:
    """The column that has a common name of a role; None if there is none.

    >>> recognised(["Customer ID", "Position"], "user"), recognised(["asin"], "position")
    ('Customer ID', None)
    """
    by_name = {re.sub("[ -]", "_", name.strip().lower()): name for name in reversed(available)}
    return next((by_name[name] for name in COMMON.get(role, "").split() if name in by_name), None)


def id_column(available: Sequence[str], role: str) -> str | None:
    """The column of ids in a table about users or items; None if no name tells.

    >>> id_column(["ID", "price"], "item"), id_column(["id", "sku"], "item")
    ('ID', 'sku')
    """
    return recognised(available, role) or recognised(available, "id")


def _listed(names: Sequence[str]) -> str:
    return some(map(repr, names), 20) or "no columns"
