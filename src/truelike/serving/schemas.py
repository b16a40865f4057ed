"""What requests and answers look like. The OpenAPI document is made of these classes.

Ids are texts in answers. In requests, whole numbers are taken as texts, too.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from truelike.errors import ParameterError
from truelike.rules.filters import LONGEST as LONGEST_FILTER
from truelike.rules.rules import LARGEST_BOOST, Rules

Answer = dict[str, Any]  # an answer, or another object of JSON, before it is written

LONGEST_ID = 1_000  # letters
MOST_IDS = 10_000  # in a list of candidates, excluded or pinned items
MOST_HISTORY = 1_000  # items of a new user
MOST_USERS = 1_000  # in one request
MOST_PARTS = 100_000  # items and reasons of a batch
MOST_BOOSTS = 20
MOST_EVENTS = 1_000
MOST_K = 1_000
MOST_RANK = 10_000  # k + offset
MOST_CAPS = 20  # columns of `at_most`
LATEST = 4e9  # seconds since 1970


def _text(value: object) -> object:
    """A whole number as text."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _yes_or_no(value: object) -> object:
    """The words true and false of a query, as what they are."""
    return {"true": True, "false": False}.get(value.strip().lower(), value) if isinstance(value, str) else value


def _moment(value: object) -> object:
    """A time of an event: seconds, or a time in text with a zone."""
    if value is None or isinstance(value, datetime):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LATEST:
        return float(value)
    with contextlib.suppress(ValueError):
        if (
            isinstance(value, str)
            and (found := datetime.fromisoformat(value)).tzinfo is not None
            and found.year >= 1970
        ):
            return found
    raise ValueError(
        "it must be seconds since 1970, or a date and a time with a time zone such as 2026-05-01T12:00:00Z"
    )


_Text = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
Id = Annotated[_Text, BeforeValidator(_text, json_schema_input_type=_Text | int), Field(examples=["42"])]
Filter = Annotated[
    str,
    Field(
        min_length=1,
        max_length=LONGEST_FILTER,
        description="Only items whose attributes fit, e.g. `category = books and price < 20`. The attributes are "
        "those of the table that the server was started with (--items).",
        examples=["price < 20"],
    ),
]
Name = Annotated[str, Field(max_length=200)]  # of a model
Excluded = list[Id] | dict[_Text, Annotated[list[Id], Field(max_length=MOST_IDS)]]  # for all, or for each user
OnUnknown = Literal["raise", "popular", "trending"]
Source = Literal["model", "fold_in", "popular", "trending"]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @property
    def heavy(self) -> bool:
        """Whether the answer may take long. May be implemented."""
        return False


class Boost(_Request):
    """Raise or lower the scores of some items."""

    filter: Filter | None = None
    items: list[Id] | None = Field(None, max_length=MOST_IDS)
    add: float = Field(
        ge=-LARGEST_BOOST, le=LARGEST_BOOST,
        description="Added to the scores, in standard deviations of this user's scores over all items.",
    )  # fmt: skip


class Pin(_Request):
    """Put an item at a position, whatever its score, and whatever else leaves it out. Unknown items are skipped."""

    item: Id
    position: int = Field(ge=1, le=MOST_K, description="From 1, the top.")


class ListOptions(_Request):
    """What all lists have in common."""

    k: int = Field(10, ge=1, le=MOST_K, description="Number of items.")
    offset: int = Field(0, ge=0, lt=MOST_RANK, description="Number of items to skip, for further pages.")
    candidates: list[Id] | None = Field(
        None, max_length=MOST_IDS, description="Only these items. Those that the model does not know are skipped."
    )
    exclude: list[Id] = Field(default_factory=list, max_length=MOST_IDS, description="Never these items.")
    filter: Filter | None = None

    @property
    def heavy(self) -> bool:
        """Whether attributes of all items are looked at."""
        return self.filter is not None

    def rules(self) -> Rules | None:
        """The rules that are asked for; None: there are none."""
        return None if self.filter is None else Rules(filter=self.filter)


class RankOptions(ListOptions):
    """What lists for users have in common."""

    exclude_seen: Annotated[bool | str | list[str] | dict[str, bool | str], BeforeValidator(_yes_or_no)] = Field(
        True,
        description="Leave out the items that the user has seen: by the kinds of events that the schema of the model "
        "says. Or a period such as 30d; or kinds of events; or a period for each kind.",
        examples=[True, {"buy": "30d", "dislike": True}],
    )
    diversity: float = Field(
        0.0, ge=0, le=1,
        description="The weight of dissimilarity in maximal marginal relevance; 0: by score alone.",
    )  # fmt: skip
    boosts: list[Boost] = Field(default_factory=list, max_length=MOST_BOOSTS)
    pins: list[Pin] = Field(default_factory=list, max_length=100)
    at_most: dict[Name, int] = Field(
        default_factory=dict,
        max_length=MOST_CAPS,
        description="For columns of the table of items, how many items of a list may have the same value.",
        examples=[{"brand": 2}],
    )
    min_new: float = Field(
        0.0,
        ge=0,
        le=1,
        description="The least share of new items in each page of k items. `new` says which are new.",
    )
    new: Filter | None = None
    because: int = Field(
        0,
        ge=0,
        le=10,
        description="For each item, how many of the user's interactions to name as its reasons. A model whose "
        "explanations take too long names none; `can` in /v1/models says so.",
    )
    on_unknown: OnUnknown = Field(
        "raise",
        description="A user, or items, that the model does not know: an error, popular items, or trending ones.",
    )
    model: str | None = Field(
        None, max_length=200, description="The name of a model. Default: by the share of each model."
    )

    @property
    def heavy(self) -> bool:
        """Whether attributes of all items are looked at, or reasons are given."""
        return self.filter is not None or bool(self.boosts or self.because or self.at_most or self.new)

    def rules(self) -> Rules | None:
        """The rules that are asked for; None: there are none."""
        asked = (self.filter, self.boosts, self.pins, self.diversity, self.at_most, self.min_new, self.new)
        if not any(asked):
            return None
        pins = {pin.item: pin.position for pin in self.pins}
        if len(pins) < len(self.pins):
            raise ParameterError("two pins have the same position or the same item; give each item one position")
        return Rules(
            filter=self.filter, boosts=[boost.model_dump() for boost in self.boosts], pins=pins,
            diversity=self.diversity, at_most=self.at_most, min_new=self.min_new, new=self.new,
        )  # fmt: skip


class RecommendRequest(RankOptions):
    """A list for a known user, or for a new one from items."""

    user: Id | None = None
    items: list[Id] | None = Field(
        None, max_length=MOST_HISTORY, description="The items of a new user. With `user`: in place of the history."
    )


class BatchRequest(RankOptions):
    """Lists for many users."""

    users: list[Id] = Field(min_length=1, max_length=MOST_USERS)
    on_unknown: Literal["raise", "popular", "trending", "skip"] = Field(  # type: ignore[assignment]
        "raise",
        description="A user that the model does not know: an error, popular or trending items, or no list.",
    )
    exclude: Excluded = Field(  # type: ignore[assignment]
        default_factory=list,
        max_length=MOST_IDS,
        description="Never these items: a list for all users, or an object with a list for each user.",
    )

    def of(self, user: str) -> RankOptions:
        """The options of the list of a user."""
        if isinstance(self.exclude, list):
            return self
        return self.model_copy(update={"exclude": self.exclude.get(user, [])})

    @property
    def heavy(self) -> bool:
        """It may take long."""
        return True


class SimilarRequest(ListOptions):
    """Items similar to one."""

    item: Id
    model: Name | None = None


class HiddenRequest(ListOptions):
    """Likes that were never recorded."""

    user: Id
    model: Name | None = None


class ExplainQuery(_Request):
    """Why an item has its score."""

    user: Id
    item: Id
    because: int = Field(5, ge=1, le=100)
    model: Name | None = None

    @property
    def heavy(self) -> bool:
        """It may take long."""
        return True


class HistoryQuery(_Request):
    """What is known of a user."""

    user: Id
    limit: int = Field(50, ge=1, le=1_000)
    model: Name | None = None


class SearchQuery(_Request):
    """A search for users or items."""

    query: str = Field("", max_length=200)
    limit: int = Field(20, ge=1, le=100)
    model: Name | None = None


class NoQuery(_Request):
    """No parameters."""


class ExplainRequest(_Request):
    """Why items have their scores."""

    user: Id | None = None
    items: list[Id] | None = Field(None, max_length=MOST_HISTORY, description="The items of a new user.")
    explain: list[Id] = Field(min_length=1, max_length=100, description="The items to explain.")
    because: int = Field(5, ge=1, le=100, description="How many interactions to name for each.")
    model: Name | None = None

    @property
    def heavy(self) -> bool:
        """It may take long."""
        return True


class Event(_Request):
    """Something that a user did."""

    user: Id
    item: Id
    type: str = Field(
        "click", pattern=r"^[^\s\x00-\x1f]{1,64}$", examples=["click"],
        description="A kind of events that the schema of the model declares. Without a schema: view, click, cart, "
        "purchase, like, dislike, refund and other usual words, of which signs of a like are interactions. `remove` "
        "takes back all that is known of the user and the item. Another word is refused, with those that are known.",
    )  # fmt: skip
    time: Annotated[Annotated[float, Field(ge=0, le=LATEST)] | AwareDatetime | None, BeforeValidator(_moment)] = (
        Field(
            None,
            description="Seconds since 1970, or a time by ISO 8601 with a time zone, at most a day ahead. Default: "
            "when the server got it.",
            examples=[1_700_000_000, "2026-05-01T12:00:00Z"],
        )
    )
    quantity: float | None = Field(
        None, gt=0, le=1e9, description="Of a kind whose weight is a column: its value. Default: 1."
    )
    id: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="An event with an id is kept once, however often it is sent: retries do no harm.",
    )
    request_id: str | None = Field(None, max_length=64, description="The request_id of the list that led to it.")
    model: str | None = Field(
        None,
        max_length=200,
        description="The model of that list. Default: the one that the user has by its share.",
    )
    version: str | None = Field(None, max_length=64, description="The version of that model.")


class EventsRequest(_Request):
    """Events that are kept together: all or none."""

    events: list[Event] = Field(min_length=1, max_length=MOST_EVENTS)


# --- answers --------------------------------------------------------------------------------------


class Reason(BaseModel):
    """An interaction of the user that contributes to a score."""

    item: str
    title: str | None = None
    share: float = Field(description="Of the sum of all contributions, without their signs.")
    contribution: float


class Ranked(BaseModel):
    """An item of a list."""

    item: str
    score: float | None = Field(description="The model's score, with boosts.")
    rank: int
    title: str | None = None
    probability: float | None = Field(
        None,
        description="The probability that the user likes the item, whether or not it was shown or taken. Only lists "
        "for users have it, of models that were trained with impressions, propensities or an assumption.",
    )
    pinned: bool | None = None
    because: list[Reason] | None = None
    method: Literal["exact", "leave_one_out"] | None = Field(None, description="How `because` was computed.")


class _Answer(BaseModel):
    request_id: str


class _Warned(_Answer):
    warnings: list[str] | None = Field(
        None,
        description="What the request, or the rules of the server, name in vain, such as items that are unknown.",
    )


class _Of(BaseModel):
    model: str = Field(description="The name of the model that answered: the arm of an A/B test.")
    version: str = Field(description="A hash of the model's content.")


Evidence = Annotated[
    str,
    Field(
        description="impressions, propensities, an assumption (assumed: ...), or interactions, from which like and "
        "exposure cannot be told apart.",
        examples=["impressions"],
    ),
]


class Basis(BaseModel):
    """What the probabilities of likes of a model rest on."""

    evidence: Evidence
    note: str = Field(description="What the numbers rest on, in a sentence.")
    identified: bool = Field(
        description="Whether they are probabilities, given what they rest on. Otherwise they are a ranking."
    )


class UserList(_Of):
    """A list for a user."""

    user: str | None
    source: Source = Field(
        description="model: as the user was trained. fold_in: from the given items, or from history and new events. "
        "popular, trending: the most popular items, or those of late, because nothing is known of the user."
    )
    events: int = Field(description="Number of new events that were counted.")
    evidence: Evidence | None = Field(None, description="What `probability` is known from, where items have it.")
    items: list[Ranked]


class RecommendAnswer(_Warned, UserList):
    """A list for a user."""


class BatchAnswer(_Warned):
    """Lists for many users, in their order."""

    lists: list[UserList]


class SimilarAnswer(_Warned, _Of):
    """Items similar to one."""

    item: str
    items: list[Ranked]


class Hidden(BaseModel):
    """An item that the user may like, though there was no interaction."""

    item: str
    rank: int
    title: str | None = None
    posterior: float = Field(
        description="p(liked | no interaction). A probability where `identified` is true; otherwise it only ranks."
    )
    flip_probability: float = Field(description="The model's p(not observed | truly liked).")


class HiddenAnswer(_Warned, Basis, _Of):
    """Items that the user may like, though there was no interaction."""

    user: str
    items: list[Hidden]


class Explained(BaseModel):
    """An item, and the interactions that contribute most to its score."""

    item: str
    title: str | None = None
    score: float
    base: float = Field(description="What does not depend on a single interaction.")
    rest: float = Field(
        description="What the interactions that are not named contribute: base, rest and the contributions add up to "
        "the score."
    )
    because: list[Reason]


class ExplainAnswer(_Answer, _Of):
    """Why items have their scores."""

    user: str | None
    source: Source
    method: Literal["exact", "leave_one_out"]
    items: list[Explained]


class Interaction(BaseModel):
    """An item of a user's history."""

    item: str
    title: str | None = None
    event: str | None = Field(None, description="The type, for an event that came after the training.")


class HistoryAnswer(_Answer, _Of):
    """What is known of a user."""

    user: str
    known: bool = Field(description="Whether the user is in the training data.")
    total: int
    items: list[Interaction]


class FoundUsers(_Answer, _Of):
    """Users whose id starts with a text."""

    users: list[str]


class FoundItem(BaseModel):
    """An item, its title and its attributes."""

    item: str
    title: str | None = None
    attributes: Answer = Field(default_factory=dict)


class FoundItems(_Answer, _Of):
    """Items whose id starts with a text or whose title contains it."""

    items: list[FoundItem]


class EventsAnswer(_Answer):
    """The events are on disk."""

    accepted: int
    duplicates: int = Field(description="Events whose id was there already. They count once.")
    unknown_items: list[str] = Field(description="Items that no model knows. They count after the next training.")


class Card(BaseModel):
    """What is known of a model."""

    name: str
    version: str
    share: float = Field(description="Of the users.")
    class_name: str
    parameters: Answer
    metrics: dict[str, float]
    data: Answer
    saved: str | None
    loaded: str
    library_version: str
    choice: Answer | None = None
    history: dict[str, list[Any]] | None = Field(None, description="The learning curve, by epoch.")
    can: list[str] = Field(description="What it can do beside lists: hidden_likes, explain, similar.")
    probabilities: Basis | None = Field(None, description="Of models with flip probabilities.")
    filters: dict[str, str] = Field(description="The attributes of the items, and their types.")
    ranking: Answer = Field(description="exact or ivf, and what was measured at the start.")


class ModelsAnswer(_Answer):
    """The models that are served."""

    models: list[Card]
    keeps_events: bool = Field(description="Whether the server takes events: it was started with --events.")


class ReloadAnswer(_Answer):
    """What became of the models."""

    models: dict[str, str] = Field(description="The version of each model.")
    problems: dict[str, str] = Field(description="Models that were refused, and why. The old ones stay.")


class Problem(BaseModel):
    """What was wrong."""

    code: str
    message: str


class ErrorAnswer(_Answer):
    """An error: what was found, what is expected and what to do."""

    error: Problem
