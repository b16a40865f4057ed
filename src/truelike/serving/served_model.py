"""A model that is served: lists, similar items, hidden likes and explanations, from the arrays of a snapshot.

Users and items are row numbers here. The answers are those of the model's own methods.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.array_files import read_arrays
from truelike.data.ids import Codes
from truelike.data.moments import in_units_of
from truelike.errors import ParameterError
from truelike.models.explain import Contributions, explain
from truelike.models.label_noise import Likes
from truelike.models.registry import load_described
from truelike.models.scorer import Scorer
from truelike.ranking.factor_ranker import FactorRanker
from truelike.ranking.top_k import top_k_by_scores
from truelike.serving.budget import check_time
from truelike.serving.filters import FilterError, Filters
from truelike.serving.index import ApproximateIndex
from truelike.serving.schemas import MOST_DIVERSE, Answer, Boost, ListOptions, RankOptions
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


class Who(NamedTuple):
    """For whom a list is."""

    user: int | None  # the row of a user of the training data; None: a new user
    # what is folded in, as the model counts it; None: the user as trained, or, without a user, popular items
    history: sparse.csr_array | None
    seen: Codes  # the items that the user interacted with
    events: int = 0  # how many of them are new

    @property
    def source(self) -> Literal["model", "fold_in", "popular"]:
        """Where the scores come from."""
        if self.history is not None:
            return "fold_in"
        return "popular" if self.user is None else "model"


class NewItems(NamedTuple):
    """Items of new events of a user, sorted; the weight and the time of each, where they are known."""

    items: Codes
    weights: Floats | None = None
    times: Times | None = None


NOTHING_NEW = NewItems(NO_ITEMS)


class Place(NamedTuple):
    """A place of a list."""

    item: int
    score: float | None
    pinned: bool = False


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
        self.popularity, self.ties = arrays["popularity"], arrays["ties"]
        self.examples = arrays["examples"]
        table = directory / ITEMS
        self.filters = Filters(pl.read_parquet(table) if table.exists() else pl.DataFrame())
        self.n_items = len(self.items)
        self._csr = self.train.csr
        self.vectors = self.scorer.vectors
        self.ranker = self._similar = None
        if self.vectors is not None:
            self.ranker = FactorRanker(None, self.vectors.bias, by_factor=arrays["by_factor"], ties=self.ties)
        if "unit_by_factor" in arrays:
            self._similar = FactorRanker(None, by_factor=arrays["unit_by_factor"], ties=self.ties)
        self.index: ApproximateIndex | None = None
        self.ranking: Answer = self.about.get("ranking", {"kind": "exact"})
        if self.ranking["kind"] == "ivf":
            biased = self.vectors is not None and self.vectors.bias is not None
            self.index = ApproximateIndex.read(directory / INDEX, self.ranking["probes"], biased=biased)
        width = 1 if self.vectors is None else self.vectors.items.shape[1]
        # functions that do not refer to this object, which so ends when another one takes its place
        self._new_vectors = lru_cache(_most_kept(width))(partial(_vectors_of, self.scorer, self.n_items))
        self._new_scores = lru_cache(_most_kept(self.n_items))(partial(_scores_of, self.scorer, self.n_items))

    # --- ids ------------------------------------------------------------------------------------

    def item_rows(self, ids: Iterable[str]) -> Codes:
        """The rows of the items that the model knows, sorted."""
        rows = [row for row in map(self.items.row, ids) if row is not None]
        return np.unique(np.array(rows, dtype=np.int32))

    def new_items(self, times: Mapping[str, int | None]) -> NewItems:
        """The items of new events that the model knows, with their times in microseconds since 1970; None: now."""
        rows = {row: when for item, when in times.items() if (row := self.items.row(item)) is not None}
        items, now = np.array(sorted(rows), dtype=np.int32), round(1e6 * time.time())
        found = [rows[item] for item in items.tolist()]
        return NewItems(items, None, np.array([now if when is None else when for when in found], dtype=np.int64))

    def seen(self, user: int) -> Codes:
        """The items of a user in the training data."""
        indptr = self._csr.indptr
        mine: Codes = self._csr.indices[indptr[user] : indptr[user + 1]]
        return mine

    def history(self, user: int) -> Codes:
        """The items of a user, the latest first where there are times."""
        times, indptr = self.train.times, self._csr.indptr
        mine = self.seen(user)
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

    def who(self, user: int | None, new: Codes, weights: Floats | None = None, times: Times | None = None) -> Who:
        """A user, with items of new events, sorted. An event has the weight 1 and is new, unless it is said.

        The weights and times of the training data stay; an event with an item of it adds to the weight. `times` are in
        microseconds since 1970.
        """
        seen = NO_ITEMS if user is None else self.seen(user)
        # whether an interaction is repeated matters to a model that counts
        added = new if self.scorer.counting is not None or not len(new) else np.setdiff1d(new, seen)
        if not len(added):
            return Who(user, None, seen)
        history = self._merged(user, new, weights, times)
        return Who(user, history, history.indices, len(added))

    def new_user(self, items: Codes) -> Who:
        """A new user with some items, of whom nothing else is known."""
        ones = np.ones(len(items), dtype=np.float32)
        return Who(None, self.scorer.counted(self._row(items, ones)) if len(items) else None, items)

    def _merged(
        self, user: int | None, new: Codes, weights: Floats | None, times: Times | None
    ) -> sparse.csr_array:
        """The interactions of a user in the training data, and new ones, as the model counts them."""
        known: tuple[sparse.csr_array, Times | None] = (self._row(NO_ITEMS, NO_ITEMS), None)
        known = known if user is None else self.train.history_of(user)
        items, place = np.unique(np.concatenate([known[0].indices, new]), return_inverse=True)
        weights = np.ones(len(new), dtype=np.float32) if weights is None else weights
        row = self._row(items, np.bincount(place, np.concatenate([known[0].data, weights])))
        if self._span is None:
            return self.scorer.counted(row)
        recent = np.full(len(new), self._span[1]) if times is None else in_units_of(times, self._span)
        latest = np.full(len(items), np.iinfo(np.int64).min)
        np.maximum.at(latest, place, np.concatenate([NO_ITEMS if known[1] is None else known[1], recent]))
        return self.scorer.counted(row, latest)

    def _row(self, items: Codes, weights: NDArray[np.number]) -> sparse.csr_array:
        indptr = np.array([0, len(items)], dtype=np.int32)
        data = weights.astype(np.float32), items.astype(np.int32), indptr
        return sparse.csr_array(data, shape=(1, self.n_items))

    @cached_property
    def _span(self) -> Times | None:
        """The first and the last time of the training data; None if there are none."""
        times = self.train.times
        return None if times is None else np.array([times.min(), times.max()])

    def recommend(self, who: Who, options: RankOptions) -> list[Place]:
        """The list for a user."""
        allowed, pins = self._allowed(options), self._pins(options)
        if pins:
            allowed = self._without(list(pins.values()), allowed)
        boost = self._boost(who, options.boosts)
        wanted = options.offset + options.k
        if options.diversity:
            if wanted > MOST_DIVERSE:
                raise ParameterError(
                    f"offset + k is {wanted}; with diversity it is at most {MOST_DIVERSE}: such a list is chosen among "
                    f"the best {MOST_DIVERSE} items"
                )
            items, scores = self._best(who, MOST_DIVERSE, allowed, boost, options.exclude_seen)
            order = self._diverse(items, scores, options.diversity, wanted)
            items, scores = items[order], scores[order]
        else:
            items, scores = self._best(who, wanted, allowed, boost, options.exclude_seen)
        places = list(map(Place, items.tolist(), scores))
        if pins:
            own = self._scores(who) if boost is None else self._scores(who) + boost
            for position, row in sorted(pins.items()):
                score = own[row] if np.isfinite(own[row]) else None
                places.insert(position - 1, Place(row, score, pinned=True))
        return places[options.offset : wanted]

    @property
    def ranks_together(self) -> bool:
        """Whether lists of several users take less time together."""
        return self.ranker is not None and self.index is None

    def recommend_together(self, users: list[int], n: int) -> list[list[Place]]:
        """The n best items of several users, as `recommend` lists them without options."""
        found = self.scorer.top_k(np.array(users, dtype=np.int32), n, n_jobs=1, ranker=self.ranker)
        lengths = (found.items >= 0).sum(axis=1).tolist()
        return [
            list(map(Place, items[:length], scores[:length]))
            for items, scores, length in zip(found.items.tolist(), found.scores, lengths, strict=True)
        ]

    def similar(self, item: int, options: ListOptions) -> list[Place]:
        """The items most similar to one."""
        wanted = options.offset + options.k
        allowed = self._without([item], self._allowed(options))
        if self._similar is not None:
            items, scores = self._similar.top_k(self._similar.by_factor[:, [item]].T, wanted, allowed=allowed)
        else:
            items, scores = self.scorer.similar(np.array([item], dtype=np.int32), wanted, allowed=allowed)
        found = items[0] >= 0
        places = list(map(Place, items[0][found].tolist(), scores[0][found]))
        return places[options.offset :]

    def hidden_likes(self, user: int, options: ListOptions, new: Codes) -> pl.DataFrame:
        """Items that the user may like, though there was no interaction."""
        assert self.likes is not None
        allowed = self._allowed(options)
        if len(new):
            allowed = self._without(new, allowed)
        users = np.array([user], dtype=np.int32)
        found = self.likes.top_k(users, options.offset + options.k, allowed=allowed, n_jobs=1)
        rows = pl.Series("row", self.train.items.codes(found["item_id"]))
        return found.with_columns(rows).slice(options.offset)

    def explain(self, who: Who, items: Codes) -> Contributions:
        """What the interactions of a user contribute to the scores of items, in the order of `who.seen`."""
        if who.history is not None:
            return explain(self.scorer, who.history, items)
        assert who.user is not None
        history = self.scorer.counted(*self.train.history_of(who.user))
        return explain(self.scorer, history, items, who.user)

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

    def probabilities(self, who: Who, places: Sequence[Place], options: RankOptions) -> list[float]:
        """The probability that the user likes each item of a list, whatever was boosted or pinned."""
        items = np.array([place.item for place in places], dtype=np.int32)
        if options.boosts or options.pins:
            scores = self._scores(who)[items]
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

    def _fitting(self, ids: Iterable[str] | None, text: str | None) -> Mask | None:
        """The items that are named and fit a filter: a new array; None: all."""
        if ids is None and text is None:
            return None
        chosen = np.full(self.n_items, ids is None)
        if ids is not None:
            chosen[self.item_rows(ids)] = True
        if text is not None:
            if not self.filters.columns:
                raise FilterError("there are no attributes to filter by: start the server with --items FILE")
            chosen &= self.filters.mask(text)
        return chosen

    def _allowed(self, options: ListOptions) -> Mask | None:
        """The items that may be listed: a new array; None: all."""
        allowed = self._fitting(options.candidates, options.filter)
        return self._without(self.item_rows(options.exclude), allowed) if options.exclude else allowed

    def _pins(self, options: RankOptions) -> dict[int, int]:
        """The rows of pinned items by their position."""
        pins: dict[int, int] = {}
        for pin in options.pins:
            row = self.items.row(pin.item)
            if row is None:
                continue
            if pin.position in pins or row in pins.values():
                raise ParameterError("two pins have the same position or the same item")
            pins[pin.position] = row
        return pins

    def _boost(self, who: Who, boosts: Sequence[Boost]) -> Floats | None:
        """What is added to the score of each item."""
        if not boosts:
            return None
        units = np.zeros(self.n_items, dtype=np.float32)
        for boost in boosts:
            check_time()
            chosen = self._fitting(boost.items, boost.filter)
            units[slice(None) if chosen is None else chosen] += np.float32(boost.add)
        scores = self._scores(who)
        finite = scores[np.isfinite(scores)]
        return units * np.float32(finite.std(dtype=np.float64) if len(finite) else 1.0)

    def _scores(self, who: Who) -> Floats:
        """The scores of all items: an array that must not be changed."""
        vector = self._vector(who)
        if vector is not None and self.ranker is not None:
            own: Floats = self.ranker.scores(vector)[0]
            return own
        if who.history is not None:
            return np.asarray(self._new_scores(_frozen(who.history))[0])
        if who.user is None:
            return (self.popularity / max(1, len(self.users))).astype(np.float32)
        return np.asarray(self.scorer.score_users(np.array([who.user], dtype=np.int32))[0])

    def _vector(self, who: Who) -> Floats | None:
        """The vector of a user, as trained or folded in; None if scores are no dot products."""
        if self.vectors is None or who.source == "popular":
            return None
        if who.history is not None:
            return self._new_vectors(_frozen(who.history))
        row: Floats = self.vectors.users[int(who.user or 0)][None]
        return row

    def _best(
        self, who: Who, n: int, allowed: Mask | None, boost: Floats | None, exclude_seen: bool
    ) -> tuple[Codes, Floats]:
        """The n best items and their scores."""
        out = who.seen if exclude_seen else NO_ITEMS
        vector = self._vector(who)
        if vector is not None and self.ranker is not None:
            if self.index is not None and boost is None:
                found = self._best_by_index(vector, n, allowed, out)
                if found is not None:
                    return found
            if allowed is None and boost is None:
                return self.ranker.best(vector, n, out)
            bias = None if boost is None else self.ranker.bias + boost
            items, scores = self.ranker.top_k(vector, n, allowed=self._without(out, allowed), bias=bias)
        else:
            own = self._scores(who)
            own = own.copy() if boost is None else own + boost
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

    def _diverse(self, items: Codes, scores: Floats, weight: float, n: int) -> list[int]:
        """Maximal marginal relevance: positions of items, each good and unlike the ones before it.

        The next item maximises (1 - weight) x relevance - weight x its largest similarity to the chosen ones. Relevance
        and similarity are scaled to 0 ... 1.
        """
        if not len(items):
            return []
        spread = float(scores.max() - scores.min())
        relevance = (scores - scores.min()) / spread if spread > 0 else np.ones(len(items))
        similarity = self._similarities(items)
        chosen: list[int] = []
        nearest = np.zeros(len(items))
        left = np.ones(len(items), dtype=bool)
        for _ in range(min(n, len(items))):
            value = np.where(left, (1 - weight) * relevance - weight * nearest, -np.inf)
            best = int(np.argmax(value))
            chosen.append(best)
            left[best] = False
            nearest = np.maximum(nearest, similarity[best])
        return chosen

    def _similarities(self, items: Codes) -> NDArray[np.float64]:
        """The similarity of some items with each other, from 0 to 1."""
        if self._similar is not None:
            unit = self._similar.by_factor[:, items].astype(np.float64)
            found = unit.T @ unit
        else:
            found = np.asarray(self.scorer.similarities(items)[:, items], dtype=np.float64)
            found = np.where(np.isfinite(found), found, 0.0)
        np.fill_diagonal(found, 0.0)
        largest = found.max(initial=0.0)
        return np.clip(found / largest if largest > 0 else found, 0.0, 1.0)


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
