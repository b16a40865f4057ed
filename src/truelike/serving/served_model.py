"""A model that is served: lists, similar items, hidden likes and explanations, from the arrays of a snapshot.

Users and items are row numbers here. The answers are those of the model's own methods.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.array_files import read_arrays
from truelike.data.feedback import Feedback
from truelike.data.ids import Codes
from truelike.data.moments import in_units_of, units_per_second
from truelike.data.replay import INTERACTIONS, REMOVE, Event, Known
from truelike.data.schema import undeclared
from truelike.data.seen import SeenBy, SeenRules, missing
from truelike.errors import ParameterError, some
from truelike.models.explain import Contributions, explain
from truelike.models.label_noise import Likes
from truelike.models.registry import load_described
from truelike.models.ruled import Similarities
from truelike.models.scorer import Scorer
from truelike.ranking.factor_ranker import FactorRanker
from truelike.ranking.top_k import top_k_by_scores
from truelike.rules.arrange import BoundRules, Place
from truelike.rules.filters import Filters
from truelike.rules.rules import Rules, say_unknown
from truelike.serving.index import ApproximateIndex
from truelike.serving.schemas import Answer, ListOptions, RankOptions
from truelike.serving.settings import read_json
from truelike.serving.texts import IdTexts, listed

ABOUT, ARRAYS, ITEMS, INDEX = "snapshot.json", "serving.safetensors", "items.parquet", "index.faiss"
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

INDEX_FINDS = 100  # items that the index must find for a list; otherwise the list is exact
SUBSET = 50_000  # candidates up to which a large catalogue is scored exactly rather than by the index
EXPLAIN_MS = 5_000.0  # milliseconds of an explanation above which a model has none
KEPT, KEPT_BYTES = 10_000, 32 * 2**20  # vectors or scores of folded-in users
NO_ITEMS = np.zeros(0, dtype=np.int32)
Times = NDArray[np.int64]
Frozen = tuple[bytes, bytes, str]  # items, how much they count, and the type of these


Pairs = Mapping[int, tuple[float, int | None]]  # items with weights and times


class Who(NamedTuple):
    """For whom a list is."""

    user: int | None  # the row of a user of the training data; None: a new user
    # what is folded in, as the model counts it; None: the user as trained, or, without a user, the fallback
    history: sparse.csr_array | None
    seen: Codes  # the items that lists leave out
    events: int = 0  # of how many items there are new events
    fallback: Literal["popular", "trending"] = "popular"  # for one of whom nothing is known
    known: Known[int] | None = None  # what the events made of what was known; None: there are none

    @property
    def is_known(self) -> bool:
        """Whether anything is known of the user."""
        return self.user is not None or self.history is not None

    @property
    def source(self) -> Literal["model", "fold_in", "popular", "trending"]:
        """Where the scores come from."""
        if self.history is not None:
            return "fold_in"
        return self.fallback if self.user is None else "model"


class _Part(NamedTuple):
    """What the training data has of one kind."""

    csr: sparse.csr_array
    times: Times | None

    def of(self, user: int) -> Iterator[tuple[int, float, int | None]]:
        """The items of a user, with weights and times."""
        mine = slice(*self.csr.indptr[user : user + 2])
        items, weights = self.csr.indices[mine].tolist(), self.csr.data[mine].tolist()
        return zip(
            items, weights, [None] * len(items) if self.times is None else self.times[mine].tolist(), strict=True
        )

    def items_since(self, user: int, since: float) -> Codes:
        """The items of a user with a time after a moment, or without one."""
        mine = slice(*self.csr.indptr[user : user + 2])
        items: Codes = self.csr.indices[mine]
        return items if self.times is None or since == -math.inf else items[self.times[mine] > since]


class ServedModel:
    """A model from a snapshot, whose arrays are mapped into memory, so that one copy serves all workers.

    Several threads may use it; nothing that answers depend on ever changes.
    """

    def __init__(self, directory: Path) -> None:
        self.about: Answer = read_json(directory / ABOUT)
        self.name: str = self.about["name"]
        self.version: str = self.about["version"]
        self.model = load_described(directory / "model", mapped=True)[0]
        self.scorer: Scorer = self.model.scorer
        self.likes: Likes | None = getattr(self.model, "likes", None)
        self.train = self.model.train_
        with (directory / ARRAYS).open("rb") as file:
            arrays = read_arrays(file.fileno(), mapped=True)[1]
        self.users, self.items = IdTexts(self.train.users), IdTexts(self.train.items)
        self.titles = None if self.train.titles is None else listed(self.train.titles)
        self.popularity, self.ties, self._trending = arrays["popularity"], arrays["ties"], arrays.get("trending")
        self.examples = arrays["examples"]
        table = directory / ITEMS
        self.filters = Filters(pl.read_parquet(table) if table.exists() else pl.DataFrame())
        self.n_items = len(self.items)
        self._csr = self.train.csr
        self.schema = undeclared() if self.train.schema is None else self.train.schema
        self.ignored = frozenset(self.schema.names("shown", "ignored"))
        self._cancelling = frozenset(self.schema.names("cancels"))
        self._parts = {
            name: _Part(each.csr, each.times)
            for name, each in {
                INTERACTIONS: Feedback(self._csr, self.train.times),
                **self.train.kinds,
                **self.scorer.kinds,
            }.items()
        }
        self._rules = SeenRules.of(True, self.schema)
        forever = self._rules.seconds.get(INTERACTIONS) == math.inf
        self._is_plain = forever and not self._rules.seconds.keys() & self.train.kinds.keys()
        self.vectors = self.scorer.vectors
        self.ranker = self._similar = None
        if self.vectors is not None:
            self.ranker = FactorRanker(None, self.vectors.bias, by_factor=arrays["by_factor"], ties=self.ties)
        if "unit_by_factor" in arrays:
            self._similar = FactorRanker(None, by_factor=arrays["unit_by_factor"], ties=self.ties)
        self.similarities = Similarities(self.scorer, arrays.get("unit_by_factor"))
        self.index: ApproximateIndex | None = None
        self.ranking: Answer = self.about.get("ranking", {"kind": "exact"})
        if self.ranking["kind"] == "ivf":
            biased = self.vectors is not None and self.vectors.bias is not None
            self.index = ApproximateIndex.read(directory / INDEX, self.ranking["probes"], biased=biased)
        width = 1 if self.vectors is None else self.vectors.items.shape[1]
        # functions that do not refer to this object, which so ends when another one takes its place
        self._new_vectors = lru_cache(_most_kept(width))(partial(_vectors_of, self.scorer, self.n_items))
        self._new_scores = lru_cache(_most_kept(self.n_items))(partial(_scores_of, self.scorer, self.n_items))

    @property
    def trending(self) -> Floats:
        """What is trending, by item; an error if the training data has no times."""
        if self._trending is None:
            raise ParameterError(
                f"the model {self.name!r} was trained on data without times, so nothing is known of what is trending. "
                'Use "on_unknown": "popular".'
            )
        return self._trending

    # --- ids ------------------------------------------------------------------------------------

    def item_rows(self, ids: Iterable[str]) -> Codes:
        """The rows of the items that the model knows, sorted."""
        rows = [row for row in map(self.items.row, ids) if row is not None]
        return np.unique(np.array(rows, dtype=np.int32))

    def check_kind(self, kind: str) -> None:
        """Raise an error if events of a kind mean nothing to the model."""
        if kind != REMOVE and kind not in self.schema.kinds:
            known = [*self.schema.kinds, REMOVE]
            raise ParameterError(
                f"{kind!r} is no kind of events that the model {self.name!r} knows: they are {some(known, limit=100)}"
            )

    def interactions(self, user: int) -> Codes:
        """The items of a user in the training data."""
        indptr = self._csr.indptr
        mine: Codes = self._csr.indices[indptr[user] : indptr[user + 1]]
        return mine

    def history(self, user: int) -> Codes:
        """The items of a user, the latest first where there are times."""
        times, indptr = self.train.times, self._csr.indptr
        mine = self.interactions(user)
        if times is None:
            return mine
        return mine[np.argsort(-times[indptr[user] : indptr[user + 1]], kind="stable")]

    def find_items(self, text: str, limit: int) -> list[int]:
        """Items whose id starts with a text, or whose title contains it; without a text, the most popular ones."""
        if not text:
            popular: list[int] = np.argsort(self.ties)[:limit].tolist()  # the most popular have the first places
            return popular
        found = self.items.starting_with(text, limit)
        titles = self.train.titles
        if titles is not None and len(found) < limit:
            mine = titles.str.to_lowercase().str.contains(text.lower(), literal=True).arg_true()
            found = list(dict.fromkeys([*found, *mine[:limit].to_list()]))
        return found[:limit]

    def described(self, item: int) -> Answer:
        """An item with its title and its attributes."""
        attributes = {
            name: column[item] if not isinstance(column.dtype, pl.List) else column[item].to_list()
            for name, column in self.filters.columns.items()
            if column[item] is not None
        }
        title = {} if self.titles is None else {"title": self.titles[item]}
        return {"item": self.items[item], **title, "attributes": attributes}

    # --- lists ----------------------------------------------------------------------------------

    def who(self, user: int | None, events: Sequence[Event[str]] = (), oldest: float = 0.0) -> Who:
        """A user, with what new events change. Their times are in microseconds since 1970.

        The events follow what the training data has of the user, by the schema of its events. Those before `oldest` do
        not count, but what takes back does, as it does in training.
        """
        counting = [each for event in events if (each := self._counting(event, oldest)) is not None]
        if not counting:
            return Who(user, None, NO_ITEMS if user is None else self._seen_in_training(user))
        known: Known[int] = Known(self.schema)
        for name, part in self._parts.items():
            for item, weight, when in () if user is None else part.of(user):
                known.add(name, item, weight, when)
        before = {name: known.pairs(name) for name in known.names}
        known.follow(counting)
        changed = {
            name: self._changed(before.get(name, {}), known.pairs(name)) for name in {*before, *known.names}
        }
        seen, n_items = self._seen_after(known, self._rules), len(set().union(*changed.values()))
        who = Who(user, None, seen, n_items, known=known)
        learned_from = (INTERACTIONS, *self.scorer.kinds)
        if not any(changed.get(name) for name in learned_from):
            return who
        history = self._folded(known) if any(map(known.pairs, learned_from)) else None
        if history is None or not (history.data > 0).any():  # nothing is known but what counts against items
            return who._replace(user=None)
        return who._replace(history=history)

    def _changed(self, before: Pairs, after: Pairs) -> set[int]:
        """The items of which something else is known. To most models it matters only whether there is a pair."""
        if self.scorer.counting is None:
            return set(before.keys() ^ after.keys())
        return {item for item in before.keys() | after.keys() if before.get(item) != after.get(item)}

    def _counting(self, event: Event[str], oldest: float) -> Event[int] | None:
        """An event by the row of its item, in the units of the times; None if it does not count."""
        row = self.items.row(event.item)
        takes_back = event.kind == REMOVE or event.kind in self._cancelling
        if row is None or not (takes_back or event.kind in self.schema.kinds):
            return None
        if event.kind in self.ignored or (event.time is not None and event.time < oldest and not takes_back):
            return None
        when = round(1e6 * time.time()) if event.time is None else event.time
        if self._span is not None:
            when = int(in_units_of(np.array([when]), self._span)[0])
        return Event(row, event.kind, when, event.quantity)

    def _folded(self, known: Known[int]) -> sparse.csr_array:
        """What is known of a user, as the model counts it."""
        rows = {name: self._row_of(known.pairs(name)) for name in (INTERACTIONS, *self.scorer.kinds)}
        weights, times = rows.pop(INTERACTIONS)
        return self.scorer.counted_kinds(weights, times, {name: row for name, (row, _) in rows.items()})

    def _row_of(self, pairs: Pairs) -> tuple[sparse.csr_array, Times | None]:
        """A CSR of one row of the weights of items, and the times."""
        items = np.array(sorted(pairs), dtype=np.int32)
        weights = np.array([pairs[item][0] for item in items.tolist()])
        times = np.array([pairs[item][1] or 0 for item in items.tolist()], dtype=np.int64)
        return self._row(items, weights), None if self._span is None else times

    def left_out(self, who: Who, exclude_seen: SeenBy) -> Codes:
        """The items that a list leaves out, by an argument `exclude_seen`."""
        if exclude_seen is True:
            return who.seen
        if exclude_seen is False:
            return NO_ITEMS
        rules = SeenRules.of(exclude_seen, self.schema)
        if who.known is not None:
            return self._seen_after(who.known, rules)
        return who.seen if who.user is None else self._seen_in_training(who.user, rules)

    def _seen_in_training(self, user: int, rules: SeenRules | None = None) -> Codes:
        """The items that a user has seen in the training data; by default, by the schema."""
        if rules is None and self._is_plain:
            return self.interactions(user)
        seconds = (rules or self._rules).seconds
        found = [
            part.items_since(user, self._since(seconds[name]))
            for name, part in self._parts.items()
            if name in seconds
        ]
        return np.unique(np.concatenate([NO_ITEMS, *found]))

    def _seen_after(self, known: Known[int], rules: SeenRules) -> Codes:
        """The items that a user has seen after events."""
        found = {
            item
            for name, seconds in rules.seconds.items()
            for item, (_, when) in known.pairs(name).items()
            if when is None or when > self._since(seconds)
        }
        return np.array(sorted(found), dtype=np.int32)

    def _since(self, seconds: float) -> float:
        """The time since which events of a kind make their items seen, in the units of the times."""
        if seconds == math.inf or self._span is None:
            return -math.inf
        units = units_per_second(self._span)
        return -math.inf if units is None else (time.time() - seconds) * units

    def new_user(self, items: Codes) -> Who:
        """A new user with some items, of whom nothing else is known."""
        ones = np.ones(len(items), dtype=np.float32)
        return Who(None, self.scorer.counted(self._row(items, ones)) if len(items) else None, items)

    def _row(self, items: Codes, weights: NDArray[np.number]) -> sparse.csr_array:
        indptr = np.array([0, len(items)], dtype=np.int32)
        data = weights.astype(np.float32), items.astype(np.int32), indptr
        return sparse.csr_array(data, shape=(1, self.n_items))

    @cached_property
    def _span(self) -> Times | None:
        """The first and the last time of the training data; None if there are none."""
        times = self.train.times
        return None if times is None else np.array([times.min(), times.max()])

    def bound(self, options: ListOptions, defaults: Rules | None = None) -> BoundRules | None:
        """The rules of a request, beside those of all lists, in row numbers; None: there are none."""
        rules = options.rules()
        if defaults is not None:
            rules = defaults if rules is None else rules.over(defaults)
        return None if rules is None else rules.bound(self.n_items, self._found, self.filters)

    def recommend(self, who: Who, options: RankOptions, rules: BoundRules | None = None) -> list[Place]:
        """The list for a user. `rules` are those of `bound`, if at hand."""
        rules = rules or self.bound(options)
        allowed, wanted = self._allowed(options, rules), options.offset + options.k
        if rules is not None and rules.arranges:
            ranking = _Ranking(self, who, options.exclude_seen)
            return rules.arrange(ranking, allowed, wanted, options.k)[options.offset :]
        items, scores = self.best(who, wanted, allowed, None, options.exclude_seen)
        return list(map(Place, items.tolist(), scores))[options.offset :]

    @property
    def ranks_together(self) -> bool:
        """Whether lists of several users take less time together."""
        return self.ranker is not None and self.index is None and self._is_plain

    def recommend_together(self, users: list[int], n: int) -> list[list[Place]]:
        """The n best items of several users, as `recommend` lists them without options."""
        found = self.scorer.top_k(np.array(users, dtype=np.int32), n, n_jobs=1, ranker=self.ranker)
        lengths = (found.items >= 0).sum(axis=1).tolist()
        return [
            list(map(Place, items[:length], scores[:length]))
            for items, scores, length in zip(found.items.tolist(), found.scores, lengths, strict=True)
        ]

    def similar(self, item: int, options: ListOptions, rules: BoundRules | None = None) -> list[Place]:
        """The items most similar to one. Of rules, the filter counts."""
        wanted = options.offset + options.k
        allowed = self._without([item], self._allowed(options, rules or self.bound(options)))
        if self._similar is not None:
            items, scores = self._similar.top_k(self._similar.by_factor[:, [item]].T, wanted, allowed=allowed)
        else:
            items, scores = self.scorer.similar(np.array([item], dtype=np.int32), wanted, allowed=allowed)
        found = items[0] >= 0
        places = list(map(Place, items[0][found].tolist(), scores[0][found]))
        return places[options.offset :]

    def hidden_likes(
        self, user: int, options: ListOptions, new: Codes, rules: BoundRules | None = None
    ) -> pl.DataFrame:
        """Items that the user may like, though there was no interaction. Of rules, the filter counts."""
        assert self.likes is not None
        allowed = self._allowed(options, rules or self.bound(options))
        if len(new):
            allowed = self._without(new, allowed)
        users = np.array([user], dtype=np.int32)
        found = self.likes.top_k(users, options.offset + options.k, allowed=allowed, n_jobs=1)
        rows = pl.Series("row", self.train.items.codes(found["item_id"]))
        return found.with_columns(rows).slice(options.offset)

    def explain(self, who: Who, items: Codes) -> Contributions:
        """What the interactions of a user contribute to the scores of items, in the order of `reasons`."""
        if who.history is not None:
            return explain(self.scorer, who.history, items)
        assert who.user is not None
        history = self.scorer.counted(*self.train.history_of(who.user))
        return explain(self.scorer, history, items, who.user)

    def reasons(self, who: Who) -> Codes:
        """The items that scores may be explained by."""
        if who.history is not None:
            return np.asarray(who.history.indices)
        return NO_ITEMS if who.user is None else self.interactions(who.user)

    @property
    def evidence(self) -> Answer | None:
        """What the probabilities of likes rest on; None: there are none."""
        likes = self.likes
        if likes is None:
            return None
        return {"evidence": likes.evidence, "note": likes.note, "identified": likes.is_identified}

    @property
    def can(self) -> list[str]:
        """What the model can do beside lists."""
        return [
            *(["explain"] if self.about.get("explain_milliseconds", 0.0) < EXPLAIN_MS else []),
            "similar",
            *(["hidden_likes"] if self.likes is not None else []),
        ]

    def probabilities(self, who: Who, places: Sequence[Place], rules: BoundRules | None) -> list[float]:
        """The probability that the user likes each item of a list, whatever was boosted or pinned."""
        items = np.array([place.item for place in places], dtype=np.int32)
        if rules is not None and rules.arranges:
            scores = self.scores(who)[items]
        else:
            scores = np.array([place.score for place in places], dtype=np.float32)
        assert self.likes is not None
        if who.source == "model":
            users = np.full(len(items), who.user, dtype=np.int32)
            likely: list[float] = self.likes.of_pairs(users, items, scores).tolist()
        else:
            likely = self.likes.of_scores(scores).tolist()
        return likely

    # --- parts of a list ------------------------------------------------------------------------

    def _without(self, items: Codes | list[int], allowed: Mask | None) -> Mask:
        """The items that may be listed, without some."""
        allowed = np.ones(self.n_items, dtype=bool) if allowed is None else allowed
        allowed[items] = False
        return allowed

    def _found(self, ids: Iterable[Any]) -> Codes:
        """The row of each id, a text; -1 for one that the model does not know."""
        rows = [self.items.row(str(each)) for each in ids]
        return np.array([-1 if row is None else row for row in rows], dtype=np.int32)

    def _allowed(self, options: ListOptions, rules: BoundRules | None) -> Mask | None:
        """The items that may be listed: a new array; None: all."""
        allowed: Mask | None = None
        if options.candidates is not None:
            allowed = np.zeros(self.n_items, dtype=bool)
            allowed[self.item_rows(options.candidates)] = True
        if options.exclude:
            allowed = self._without(self.item_rows(options.exclude), allowed)
        return allowed if rules is None else rules.allow(allowed)

    def unknown(self, options: ListOptions) -> list[str]:
        """What a request names in vain."""
        said: list[str] = []
        for what, ids in (("candidates", options.candidates), ("excluded items", options.exclude)):
            if ids:
                say_unknown(said, what, ids, self._found(ids))
        if isinstance(options, RankOptions) and not isinstance(options.exclude_seen, bool):
            rules = SeenRules.of(options.exclude_seen, self.schema)
            said += filter(None, [missing(rules, self.schema, self._parts)])
        return said

    def scores(self, who: Who) -> Floats:
        """The scores of all items: an array that must not be changed."""
        vector = self._vector(who)
        if vector is not None and self.ranker is not None:
            own: Floats = self.ranker.scores(vector)[0]
            return own
        if who.history is not None:
            return np.asarray(self._new_scores(_frozen(who.history))[0])
        if who.user is None:
            counts = self.popularity if who.fallback == "popular" else self.trending
            return (counts / max(1, len(self.users))).astype(np.float32)
        return np.asarray(self.scorer.score_users(np.array([who.user], dtype=np.int32))[0])

    def _vector(self, who: Who) -> Floats | None:
        """The vector of a user, as trained or folded in; None if scores are no dot products."""
        if self.vectors is None or not who.is_known:
            return None
        if who.history is not None:
            return self._new_vectors(_frozen(who.history))
        row: Floats = self.vectors.users[int(who.user or 0)][None]
        return row

    def best(
        self, who: Who, n: int, allowed: Mask | None, boosted: Floats | None, exclude_seen: SeenBy
    ) -> tuple[Codes, Floats]:
        """The n best items and their scores; `boosted` are the scores of all items, if they are not the model's own."""
        out = self.left_out(who, exclude_seen)
        vector = self._vector(who)
        if vector is not None and self.ranker is not None and boosted is None:
            if self.index is not None:
                found = self._best_by_index(vector, n, allowed, out)
                if found is not None:
                    return found
            if allowed is None:
                return self.ranker.best(vector, n, out)
            items, scores = self.ranker.top_k(vector, n, allowed=self._without(out, allowed))
        else:
            own = self.scores(who).copy() if boosted is None else boosted
            items, scores = top_k_by_scores(
                lambda _: own[None], np.zeros(1, dtype=np.int32), n,
                n_items=self.n_items, allowed=self._without(out, allowed), ties=self.ties, n_jobs=1,
            )  # fmt: skip
        found_here = items[0] >= 0
        return items[0][found_here], scores[0][found_here]

    def _best_by_index(
        self, vector: Floats, n: int, allowed: Mask | None, out: Codes
    ) -> tuple[Codes, Floats] | None:
        """The best items by the index, with exact scores; None if it finds too few, and the list must be exact."""
        assert self.index is not None
        assert self.ranker is not None
        if allowed is not None:
            allowed[out] = False
            left = np.flatnonzero(allowed).astype(np.int32)
        if allowed is not None and len(left) <= SUBSET:
            rows = left  # few enough to score them all
        else:
            # at least as many as decide between index and exact lists, so that all pages of a list are of one kind
            wanted = max(n, INDEX_FINDS)
            rows = self.index.nearest(vector[0], wanted + (len(out) if allowed is None else 0), allowed)
            rows = rows[~np.isin(rows, out)] if allowed is None and len(out) else rows
            if len(rows) < INDEX_FINDS:
                return None
            rows = rows[:n]
        rows = np.sort(rows)
        assert self.vectors is not None
        # by item: few parts of the memory are read
        exact = FactorRanker(self.vectors.items[rows], self.ranker.bias[rows], ties=self.ties[rows])
        items, scores = exact.top_k(vector, n) if len(rows) else (np.zeros((1, 0), np.int32), np.zeros((1, 0)))
        return rows[items[0]], scores[0]


class _Ranking:
    """The items, ranked for a user, as rules see them."""

    def __init__(self, served: ServedModel, who: Who, exclude_seen: SeenBy) -> None:
        self._served, self._who, self._exclude_seen = served, who, exclude_seen
        self.similarities = served.similarities.among
        self._known: Floats | None = None

    def scores(self) -> Floats:
        """The scores of all items."""
        if self._known is None:
            self._known = self._served.scores(self._who)
        return self._known

    def best(self, n: int, allowed: Mask | None, boost: Floats | None) -> tuple[Codes, Floats]:
        """The n best of the allowed items."""
        boosted = None if boost is None else self.scores() + boost
        allowed = None if allowed is None else allowed.copy()
        return self._served.best(self._who, n, allowed, boosted, self._exclude_seen)


def _most_kept(width: int) -> int:
    """How many arrays of a width are kept."""
    return max(2, min(KEPT, KEPT_BYTES // (4 * width)))


def _frozen(history: sparse.csr_array) -> Frozen:
    """What a history consists of, by which a cache finds what follows from it."""
    return history.indices.tobytes(), history.data.tobytes(), history.data.dtype.char


def _thawed(history: Frozen, n_items: int) -> sparse.csr_array:
    """The history."""
    items, counts = np.frombuffer(history[0], dtype=np.int32), np.frombuffer(history[1], dtype=history[2])
    return sparse.csr_array((counts, items, np.array([0, len(items)], dtype=np.int32)), shape=(1, n_items))


def _vectors_of(scorer: Scorer, n_items: int, history: Frozen) -> Floats | None:
    """The vector of a new user, in an array of one row."""
    return scorer.history_vectors(_thawed(history, n_items))


def _scores_of(scorer: Scorer, n_items: int, history: Frozen) -> Floats:
    """The scores of all items for a new user, in an array of one row."""
    return scorer.score_histories(_thawed(history, n_items))
