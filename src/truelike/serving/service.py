"""What the service answers: models, the share of users that each has, and events. It knows nothing of HTTP."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from truelike.core.progress import logger
from truelike.data.replay import INTERACTIONS, REMOVE, Event
from truelike.errors import ParameterError, StorageError, UnknownIdError, some
from truelike.models.explain import Contributions
from truelike.rules.arrange import BoundRules, Place
from truelike.rules.budget import check_time
from truelike.rules.rules import Rules
from truelike.serving.events import DAYS, MOST_OF_A_USER, EventStore
from truelike.serving.schemas import (
    MOST_PARTS,
    MOST_RANK,
    Answer,
    BatchRequest,
    ExplainQuery,
    ExplainRequest,
    HiddenRequest,
    HistoryQuery,
    ListOptions,
    OnUnknown,
    RankOptions,
    RecommendRequest,
    SearchQuery,
    SimilarRequest,
)
from truelike.serving.served_model import ServedModel, Who

LIGHT_MS = 2.0  # milliseconds of a list up to which it is computed between two requests, without a thread
LIGHT_K = 200
AGAIN = 5.0  # seconds after which events that could not be read are read again


class Service:
    """Lists, explanations and more from one or several models, each of which has a share of the users.

    Events count for some `days`. Another `salt` gives other users to each model. `rules` are those of every list.
    """

    def __init__(
        self,
        models: Sequence[ServedModel],
        shares: Sequence[float],
        events: EventStore | None = None,
        *,
        days: float = DAYS,
        salt: str = "",
        rules: Rules | None = None,
    ) -> None:
        self.models = {model.name: model for model in models}
        total = float(sum(shares))
        self.shares = [share / total for share in shares]
        self._ends = np.cumsum(self.shares).tolist()
        self.events, self._salt = events, salt
        self._days, self._read_at = days, 0.0
        self.problems: dict[str, str] = {}
        self._rules = rules
        self._filter = (
            None if rules is None else Rules(filter=rules.filter)
        )  # of lists that are not ranked for users

    def replace(self, models: Sequence[ServedModel]) -> None:
        """Serve other models of the same names, from the next request on."""
        self.models = {model.name: model for model in models}

    def recent(self, user: str) -> list[Event[str]]:
        """The events of a user that may count, with a number of items at most, in their order.

        If they cannot be read, lists are made without them, and `problems` says why.
        """
        if self.events is None or (self.problems and time.monotonic() < self._read_at):
            return []
        ignored = frozenset.intersection(*(model.ignored for model in self.models.values()))
        try:
            found = self.events.of(user, leave_out=ignored)
        except StorageError as error:
            logger.error("new events do not count: %s", error)
            self.problems, self._read_at = {"events": str(error)}, time.monotonic() + AGAIN
            return []
        if self.problems:
            self.problems = {}
        items = list(dict.fromkeys(event.item for event in reversed(found)))
        if len(items) > MOST_OF_A_USER:
            latest = set(items[:MOST_OF_A_USER])
            found = [event for event in found if event.item in latest]
        return found

    def _latest(self, user: str) -> dict[str, str]:
        """The items of a user's events, the latest last, and the kind of the last event with each."""
        found: dict[str, str] = {}
        oldest = 1e6 * (time.time() - 86_400 * self._days)
        for event in self.recent(user):
            found.pop(event.item, None)
            if event.kind != REMOVE and (event.time is None or event.time >= oldest):
                found[event.item] = event.kind
        return found

    # --- who is asked, and for whom -------------------------------------------------------------

    def arm(self, key: str, named: str | None = None) -> ServedModel:
        """The model for a user: always the same one, unless the shares change."""
        models = self.models
        if named is not None:
            if named not in models:
                raise UnknownIdError(f"there is no model {named!r}; there are {some(models)}")
            return models[named]
        if len(models) == 1:
            return next(iter(models.values()))
        text = f"{self._salt}{key}".encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, digest_size=8, person=b"truelike").digest()
        place = int.from_bytes(digest, "big") / 2**64
        number = next((n for n, end in enumerate(self._ends) if place < end), len(models) - 1)
        return list(models.values())[number]

    def who(
        self, served: ServedModel, user: str, on_unknown: OnUnknown, events: Sequence[Event[str]] | None = None
    ) -> Who:
        """A user by id, with new events; an error that names an unknown one, unless popular items will do."""
        found = self.recent(user) if events is None else events
        who = served.who(
            served.users.row(user), found, 1e6 * (time.time() - 86_400 * self._days) if found else 0.0
        )
        if who.is_known:
            return who
        known = f"{len(served.users):,} users of the model {served.name!r}"
        reason = f"the user {user[:80]!r} is not among the {known}, and has no events with items that it knows"
        return _fallback(who, on_unknown, reason)

    def is_light(self, asked: RankOptions, user: str | None) -> bool:
        """Whether a list takes so little time that a thread would take longer."""
        if (
            asked.because
            or self._rules is not None
            or asked.k + asked.offset > LIGHT_K
            or asked.rules() is not None
        ):
            return False
        if asked.candidates is not None or asked.exclude or user is None:
            return False
        return self.arm(user, asked.model).ranking.get("milliseconds", 1e9) < LIGHT_MS and not self.recent(user)

    # --- answers --------------------------------------------------------------------------------

    def recommend_each(self, asked: Sequence[RecommendRequest]) -> list[Answer | Exception]:
        """Light lists that were asked for at once, of users without new events; or why there is none."""
        found: list[Answer | Exception] = []
        places = self._places_together(asked) if len(asked) > 1 else {}
        for number, each in enumerate(asked):
            try:
                found.append(self.recommend(each, places.get(number), ()))
            except Exception as error:  # of this one only
                found.append(error)
        return found

    def _places_together(self, asked: Sequence[RecommendRequest]) -> dict[int, list[Place]]:
        """The lists of users as they were trained, by the number of the request."""
        groups: dict[str, list[tuple[int, int]]] = {}
        models = self.models
        for number, each in enumerate(asked):
            served = self.arm(each.user or "", each.model)
            row = served.users.row(each.user or "")
            if row is not None and each.exclude_seen is True and served.ranks_together:
                groups.setdefault(served.name, []).append((number, row))
        found: dict[int, list[Place]] = {}
        for name, members in groups.items():
            most = max(asked[number].offset + asked[number].k for number, _ in members)
            lists = models[name].recommend_together([row for _, row in members], most)
            found.update(zip((number for number, _ in members), lists, strict=True))
        return found

    def recommend(
        self,
        asked: RecommendRequest,
        places: list[Place] | None = None,
        events: Sequence[Event[str]] | None = None,
    ) -> Answer:
        """A list for a known user, or for a new one from items.

        `places` is the list of the user as trained and `events` are the new ones, if at hand.
        """
        _check_range(asked)
        served, who = self._whom(asked, asked.on_unknown, events)
        rules = served.bound(asked, self._rules)
        answer = self._user_list(served, asked.user, who, asked, rules, places if who.source == "model" else None)
        return {**answer, **_warnings(_said(served, asked, rules))}

    def batch(self, asked: BatchRequest) -> Answer:
        """Lists for many users."""
        _check_range(asked)
        parts = len(asked.users) * asked.k * (1 + asked.because)
        if parts > MOST_PARTS:
            raise ParameterError(
                f"users x k x (1 + because) is {parts:,}; it is at most {MOST_PARTS:,}. Ask in several requests."
            )
        lists = []
        bound: dict[str, BoundRules | None] = {}
        said: dict[str, None] = {}
        if isinstance(asked.exclude, dict) and (others := asked.exclude.keys() - set(asked.users)):
            said[f"{len(others):,} of {len(asked.exclude):,} users of `exclude` are not among `users`"] = None
        for user in asked.users:
            check_time()
            served = self.arm(user, asked.model)
            if served.name not in bound:
                bound[served.name] = served.bound(asked, self._rules)
            who = self.who(served, user, "popular" if asked.on_unknown == "skip" else asked.on_unknown)
            if who.is_known or asked.on_unknown != "skip":
                own, rules = asked.of(user), bound[served.name]
                lists.append(self._user_list(served, user, who, own, rules))
                said |= dict.fromkeys(_said(served, own, rules))
        return {"lists": lists, **_warnings(said)}

    def similar(self, asked: SimilarRequest) -> Answer:
        """Items similar to one."""
        _check_range(asked)
        served = self.arm(asked.item, asked.model)
        row = self._item(served, asked.item)
        rules = served.bound(asked, self._filter)
        places = served.similar(row, asked, rules)
        said = _warnings(_said(served, asked, rules))
        return {**_of(served), "item": asked.item, "items": self._ranked(served, places, asked), **said}

    def hidden_likes(self, asked: HiddenRequest) -> Answer:
        """Items that a user may like, though there was no interaction."""
        _check_range(asked)
        user = asked.user
        served = self.arm(user, asked.model)
        if "hidden_likes" not in served.can:
            raise ParameterError(
                f"the model {served.name!r} ({served.about['class']}) has no flip probabilities. Serve an NBPO or an "
                "ExactNBPO for hidden likes."
            )
        row = served.users.row(user)
        if row is None:
            raise UnknownIdError(f"the user {user[:80]!r} is not among the users of the model {served.name!r}")
        rules = served.bound(asked, self._filter)
        found = served.hidden_likes(row, asked, self.who(served, user, "popular").seen, rules)
        rows = zip(found["row"], found["posterior"], found["flip_probability"], found["rank"], strict=True)
        return {
            **_of(served),
            "user": user,
            **(served.evidence or {}),
            "items": [
                _titled(served, item, rank=rank, posterior=posterior, flip_probability=flip)
                for item, posterior, flip, rank in rows
            ],
            **_warnings(_said(served, asked, rules)),
        }

    def explain(self, asked: ExplainRequest) -> Answer:
        """Why items have their scores."""
        served, who = self._whom(asked, "raise")
        if "explain" not in served.can:
            seconds = served.about["explain_milliseconds"] / 1_000
            raise ParameterError(
                f"an explanation by the model {served.name!r} ({served.about['class']}) takes about {seconds:.0f} s, "
                "too long for a request. Use model.explain in Python."
            )
        rows = np.array([self._item(served, item) for item in asked.explain], dtype=np.int32)
        found = served.explain(who, rows)
        reasons = self._reasons(served, who, found, asked.because, only_positive=False)
        explained = [
            {
                **_titled(served, row),
                "score": found.scores[n],
                "base": found.scores[n] - found.values[n].sum(),
                "rest": found.values[n].sum() - sum(reason["contribution"] for reason in reasons[n]),
                "because": reasons[n],
            }
            for n, row in enumerate(rows.tolist())
        ]
        return {
            **_of(served),
            "user": asked.user,
            "source": who.source,
            "method": found.method,
            "items": explained,
        }

    def explain_one(self, asked: ExplainQuery) -> Answer:
        """Why an item has its score."""
        more = {"user": asked.user, "explain": [asked.item], "because": asked.because, "model": asked.model}
        return self.explain(ExplainRequest(**more))

    def history(self, asked: HistoryQuery) -> Answer:
        """What is known of a user: new events first, then the training data."""
        user, limit = asked.user, asked.limit
        served = self.arm(user, asked.model)
        row, recent = served.users.row(user), self._latest(user)
        if row is None and not recent:
            raise UnknownIdError(f"the user {user[:80]!r} is not known, and has no events")
        items: list[Answer] = []
        for item, kind in reversed(recent.items()):
            code = served.items.row(item)
            items.append({"item": item, **_title(served, code), "event": kind})
        old = [] if row is None else served.history(row).tolist()
        who = self.who(served, user, "popular")
        if who.known is not None:  # something may have been taken back
            left = who.known.pairs(INTERACTIONS)
            old = [code for code in old if code in left]
        new = {item["item"] for item in items}
        total = len(items) + sum(served.items[code] not in new for code in old) if new else len(old)
        items += [_titled(served, code) for code in old[: limit + len(new)] if served.items[code] not in new]
        return {**_of(served), "user": user, "known": row is not None, "total": total, "items": items[:limit]}

    def find_users(self, asked: SearchQuery) -> Answer:
        """Users whose id starts with a text; without a text, some examples."""
        served = self._named(asked.model)
        if asked.query:
            rows = served.users.starting_with(asked.query, asked.limit)
        else:
            rows = served.examples[: asked.limit].tolist()
        return {**_of(served), "users": served.users.take(rows)}

    def find_items(self, asked: SearchQuery) -> Answer:
        """Items whose id starts with a text, or whose title contains it; without a text, the most popular ones."""
        served = self._named(asked.model)
        rows = served.find_items(asked.query, asked.limit)
        return {**_of(served), "items": [served.described(row) for row in rows]}

    def unknown_items(self, items: Sequence[str]) -> list[str]:
        """The items that no model knows, each once."""
        models = list(self.models.values())
        return [item for item in dict.fromkeys(items) if all(model.items.row(item) is None for model in models)]

    def cards(self) -> list[Answer]:
        """What is known of each model."""
        return [
            {
                "name": served.name,
                "version": served.version,
                "share": share,
                "class_name": served.about["class"],
                **{
                    name: served.about[name]
                    for name in (
                        "parameters", "metrics", "data", "saved", "loaded", "library_version", "choice", "history",
                    )
                },
                "can": served.can,
                "probabilities": served.evidence,
                "filters": {name: str(column.dtype) for name, column in served.filters.columns.items()},
                "ranking": served.ranking,
            }
            for served, share in zip(self.models.values(), self.shares, strict=True)
        ]  # fmt: skip

    # --- parts of answers -----------------------------------------------------------------------

    def _named(self, model: str | None) -> ServedModel:
        return self.arm("", model) if model is not None else next(iter(self.models.values()))

    def _item(self, served: ServedModel, item: str) -> int:
        row = served.items.row(item)
        if row is None:
            raise UnknownIdError(
                f"the item {item[:80]!r} is not among the {served.n_items:,} items of the model {served.name!r}"
            )
        return row

    def _whom(
        self,
        asked: RecommendRequest | ExplainRequest,
        on_unknown: OnUnknown,
        events: Sequence[Event[str]] | None = None,
    ) -> tuple[ServedModel, Who]:
        """The model that answers, and for whom: a new user with items, or a known one."""
        if asked.items is not None:
            served = self.arm(asked.user or "\n".join(sorted(asked.items)), asked.model)
            return served, self._new_user(served, asked.items, on_unknown)
        if asked.user is None:
            raise ParameterError("neither `user` nor `items` was given; expected one of them")
        served = self.arm(asked.user, asked.model)
        return served, self.who(served, asked.user, on_unknown, events)

    def _new_user(self, served: ServedModel, items: Sequence[str], on_unknown: OnUnknown) -> Who:
        known = served.item_rows(items)
        who = served.new_user(known)
        if who.is_known:
            return who
        named = f"none of the items {some(map(repr, items))} is" if items else "`items` is empty: nothing is"
        return _fallback(
            who, on_unknown, f"{named} among the {served.n_items:,} items of the model {served.name!r}"
        )

    def _user_list(
        self,
        served: ServedModel,
        user: str | None,
        who: Who,
        asked: RankOptions,
        rules: BoundRules | None,
        places: list[Place] | None = None,
    ) -> Answer:
        places = (
            served.recommend(who, asked, rules)
            if places is None
            else places[asked.offset : asked.offset + asked.k]
        )
        items = self._ranked(served, places, asked)
        if asked.because and places and who.is_known and "explain" in served.can:
            found = served.explain(who, np.array([place.item for place in places], dtype=np.int32))
            for item, reasons in zip(items, self._reasons(served, who, found, asked.because), strict=True):
                item["because"], item["method"] = reasons, found.method
        answer = {**_of(served), "user": user, "source": who.source, "events": who.events, "items": items}
        if served.likes is not None and served.likes.is_identified and who.is_known:
            for item, probability in zip(items, served.probabilities(who, places, rules), strict=True):
                item["probability"] = probability
            answer["evidence"] = served.likes.evidence
        return answer

    def _ranked(self, served: ServedModel, places: list[Place], asked: ListOptions) -> list[Answer]:
        rows = [place.item for place in places]
        found: list[Answer] = [
            {"item": item, "score": place.score, "rank": rank}
            for rank, (item, place) in enumerate(
                zip(served.items.take(rows), places, strict=True), asked.offset + 1
            )
        ]
        if served.titles is not None:
            for item, row in zip(found, rows, strict=True):
                item["title"] = served.titles[row]
        for item, place in zip(found, places, strict=True):
            if place.pinned:
                item["pinned"] = True
        return found

    def _reasons(
        self, served: ServedModel, who: Who, found: Contributions, most: int, *, only_positive: bool = True
    ) -> list[list[Answer]]:
        """The interactions that contribute most to each item."""
        shares, largest = found.shares(), found.largest(most)
        items = served.reasons(who).tolist()
        return [
            [
                {**_titled(served, items[at]), "share": shares[n, at], "contribution": found.values[n, at]}
                for at in row.tolist()
                if found.values[n, at] > 0 or not only_positive
            ]
            for n, row in enumerate(largest)
        ]


def _fallback(who: Who, on_unknown: OnUnknown, reason: str) -> Who:
    """One of whom nothing is known, and what is listed instead; an error if this is not asked for."""
    if on_unknown == "raise":
        raise UnknownIdError(
            f'{reason}. With "on_unknown": "popular" the answer is the most popular items, and with "trending" those '
            "of late."
        )
    return who._replace(fallback=on_unknown)


def _of(served: ServedModel) -> Answer:
    return {"model": served.name, "version": served.version}


def _said(served: ServedModel, asked: ListOptions, rules: BoundRules | None) -> list[str]:
    """What a request, or the rules, name in vain."""
    return [*served.unknown(asked), *(() if rules is None else rules.warnings)]


def _warnings(said: Iterable[str]) -> Answer:
    found = list(said)
    return {"warnings": found} if found else {}


def _title(served: ServedModel, row: int | None) -> Answer:
    return {} if served.titles is None or row is None else {"title": served.titles[row]}


def _titled(served: ServedModel, row: int, **more: Any) -> Answer:
    return {"item": served.items[row], **_title(served, row), **more}


def _check_range(asked: ListOptions) -> None:
    if asked.offset + asked.k > MOST_RANK:
        raise ParameterError(f"offset + k is {asked.offset + asked.k:,}; it is at most {MOST_RANK:,}")
