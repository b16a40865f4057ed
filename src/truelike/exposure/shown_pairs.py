"""`ShownPairs`: the pairs of which it is known what the user did: the interactions, and what was shown without one.

If a user likes an item, it is missed at one showing with probability m, the miss rate, and at all of them with the
product of their miss rates. That is the flip probability p(observed 0 | truly 1) of the pair. For an item that was not
shown it is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike import objectives
from truelike.core import randomness
from truelike.core.compile_cache import cached_njit
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.data.matrix import checked_csr
from truelike.data.shown import Shown
from truelike.errors import DataError, DataWarning, warn
from truelike.exposure.miss_rate import Missed, estimated

HELD_OUT_SHARE, MOST_HELD_OUT = 0.1, 200_000  # of the shown pairs, for a calibration
PAIRS_AT_ONCE = 2**22  # in steps that need memory for each pair
CERTAIN = 30.0  # the largest flip logit: sigma is 1 in float32, and 0 for its negative
NONE: NDArray[np.float32] = np.zeros(0, dtype=np.float32)
Indptr = NDArray[np.int32]


def entries_of(indptr: Indptr, rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of all entries of some rows of a CSR, and how many each row has.

    >>> entries_of(np.array([0, 2, 2, 5], dtype=np.int32), np.array([2, 0]))
    (array([2, 3, 4, 0, 1]), array([3, 2]))
    """
    lengths = np.diff(indptr)[rows].astype(np.int64)
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(indptr[rows] - before, lengths), lengths


@dataclass(frozen=True)
class HeldOut:
    """Which shown pairs are held out: a tenth of those of a share of the users, by the seed and the pair alone."""

    seed: int
    user_share: float

    @classmethod
    def of(cls, n_pairs: int, seed: int) -> HeldOut:
        """Return a tenth of the pairs, but about MOST_HELD_OUT at most."""
        return cls(seed, min(1.0, MOST_HELD_OUT / (HELD_OUT_SHARE * max(1, n_pairs))))

    @property
    def share(self) -> float:
        """The share of all pairs."""
        return HELD_OUT_SHARE * self.user_share

    def users(self, n_users: int, first: int = 0) -> NDArray[np.int64]:
        """Return those of the users first ... first + n_users - 1 of whom pairs are held out."""
        users = np.arange(first, first + n_users)
        drawn = randomness.uniform(randomness.key(self.seed, "users of held-out impressions"), users)
        return users[drawn < self.user_share]

    def entries(
        self, indptr: Indptr, indices: Codes, n_items: int, users: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the places in a CSR of the pairs that are held out; `users` are those of the method, in `rows`."""
        entries, lengths = entries_of(indptr, rows)
        pairs = np.repeat(users, lengths) * n_items + indices[entries]
        key = randomness.key(self.seed, "held-out impressions")
        return np.asarray(entries[randomness.uniform(key, pairs) < HELD_OUT_SHARE])


class HeldOutPairs(NamedTuple):
    """Pairs that were held out; `shown` is the number of pairs of the user of each, held out or not."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    taken: NDArray[np.bool_]
    logits: NDArray[np.float32]
    shown: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ShownPairs:
    """A CSR of pairs, each taken (an interaction) or not.

    Attributes
    ----------
    indptr, indices, n_items
        The items of each user, sorted.
    taken
        1 for an interaction, 0 for a pair that was shown without one.
    logits, logit
        The flip logit of each pair, sigma(g) = p(not taken | truly liked); empty if all have the same, `logit`.
    added
        Interactions that are not among the impressions. They count as shown.
    evidence
        What the labels rest on: "impressions", or "propensities" where pairs may not have been shown.
    unlisted
        1 for an interaction that is not among the impressions; empty if there is none, or it is not known any more.
    miss_rate
        The miss rate of one showing, given or estimated; an array: that of each position, from 1. None if it is not
        known any more, e.g. in a saved model.
    """

    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]
    taken: NDArray[np.uint8]
    logits: NDArray[np.float32]
    logit: float
    n_items: int
    added: int = 0
    evidence: str = "impressions"
    miss_rate: float | NDArray[np.float64] | None = None
    unlisted: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))

    @classmethod
    def merged(
        cls,
        train: sparse.csr_array,
        shown: sparse.csr_array,
        logits: NDArray[np.float32],
        logit: float,
        evidence: str = "impressions",
    ) -> ShownPairs:
        """Merge the CSR of the interactions and that of the impressions, whose entries have the flip `logits`."""
        given = (shown.indptr, shown.indices)
        indptr, indices, taken, merged, added = merge(
            train.indptr, train.indices, *given, logits, np.float32(logit)
        )
        # merged once more, what was shown counts as taken, so that the rest was not
        unlisted = 1 - merge(*given, indptr, indices, NONE, np.float32(0))[2] if added else np.zeros(0, np.uint8)
        return cls(
            indptr, indices, taken, merged, float(logit), shown.shape[1], int(added), evidence, unlisted=unlisted
        )

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return len(self.indices)

    def pairs_of_item(self) -> NDArray[np.int64]:
        """Return the number of pairs of each item."""
        counts = np.zeros(self.n_items, dtype=np.int64)
        for start in range(0, self.n_pairs, PAIRS_AT_ONCE):  # bincount makes a copy of 8 bytes for each pair
            counts += np.bincount(self.indices[start : start + PAIRS_AT_ONCE], minlength=self.n_items)
        return counts

    def all_logits(self) -> NDArray[np.float32]:
        """Return the flip logit of each pair."""
        return self.logits if len(self.logits) else np.full(self.n_pairs, self.logit, dtype=np.float32)

    def select(self, entries: NDArray[np.bool_]) -> ShownPairs:
        """Return some of the pairs."""
        before = np.zeros(self.n_pairs + 1, dtype=np.int32)
        np.cumsum(entries, out=before[1:])
        return replace(
            self,
            indptr=before[self.indptr],
            indices=self.indices[entries],
            taken=self.taken[entries],
            logits=self.logits[entries] if len(self.logits) else self.logits,
            unlisted=self.unlisted[entries] if len(self.unlisted) else self.unlisted,
        )

    def held_out(self, which: HeldOut) -> HeldOutPairs:
        """Return the pairs that are held out."""
        users = which.users(self.shape[0])
        return self.listed(which.entries(self.indptr, self.indices, self.n_items, users, rows=users))

    def listed(self, entries: NDArray[np.int64]) -> HeldOutPairs:
        """Return some pairs, by their places in `indices`."""
        users = (np.searchsorted(self.indptr, entries, side="right") - 1).astype(np.int32)
        logits = self.logits[entries] if len(self.logits) else np.full(len(entries), self.logit, dtype=np.float32)
        shown = np.diff(self.indptr)[users].astype(np.int64)
        return HeldOutPairs(users, self.indices[entries], self.taken[entries] == 1, logits, shown)

    def without(self, which: HeldOut, first: int = 0) -> ShownPairs:
        """Return the pairs that are not held out; the first user has the number `first`."""
        kept = np.ones(self.n_pairs, dtype=np.bool_)
        users = which.users(self.shape[0], first)
        kept[which.entries(self.indptr, self.indices, self.n_items, users, rows=users - first)] = False
        return self.select(kept)

    def taken_share(self) -> float:
        """Return the share of pairs that were taken, away from 0 and 1."""
        return float((self.taken.sum(dtype=np.int64) + 0.5) / (self.n_pairs + 1))

    # --- as flips that are known: p(observed 0 | truly 1) of the listed pairs, and 1 for all others -----------------

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of users and items."""
        return len(self.indptr) - 1, self.n_items

    def dense_logits(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return the flip logits of all items for some users."""
        out = np.full((len(users), self.n_items), CERTAIN, dtype=np.float32)
        entries, lengths = entries_of(self.indptr, users)
        flips = self.logits[entries] if len(self.logits) else np.float32(self.logit)
        out[np.repeat(np.arange(len(users)), lengths), self.indices[entries]] = flips
        return out

    def exposed_users(self) -> NDArray[np.float64]:
        """Return the expected number of users who noticed each item."""
        if not len(self.logits):
            return np.asarray(self.pairs_of_item() * objectives.sigmoid(-np.float64(self.logit)))
        seen = np.zeros(self.n_items)
        for start in range(0, self.n_pairs, PAIRS_AT_ONCE):
            part = slice(start, start + PAIRS_AT_ONCE)
            noticed = objectives.sigmoid(-self.logits[part].astype(np.float64))
            seen += np.bincount(self.indices[part], weights=noticed, minlength=self.n_items)
        return seen

    def average_logits(self) -> NDArray[np.float64]:
        """Return the flip logits of all items for the average user, which are used for a new user."""
        return average_logits(self.exposed_users(), self.shape[0])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that are saved, by name."""
        missed: Any = [] if self.miss_rate is None else self.miss_rate
        return {
            "shown.miss_rate": np.atleast_1d(np.asarray(missed, dtype=np.float64)),
            "shown.indptr": self.indptr,
            "shown.indices": self.indices,
            "shown.taken": self.taken,
            "shown.logits": self.logits,
            "shown.logit": np.array([self.logit]),
            "shown.propensities": np.array([self.evidence == "propensities"]).astype(np.uint8),
        }

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]], train: Dataset) -> ShownPairs | None:
        """Return the pairs of saved arrays; None if there are none."""
        if "shown.indptr" not in arrays:
            return None
        kinds = {"indptr": np.int32, "indices": np.int32, "taken": np.uint8, "logits": np.float32}
        # those of a file are not copied: there may be many, and workers share them
        indptr, indices, taken, logits = (np.asarray(arrays[f"shown.{name}"]) for name in kinds)
        missed, logit = np.asarray(arrays["shown.miss_rate"], dtype=np.float64), float(arrays["shown.logit"][0])
        is_good = all(
            each.ndim == 1 and each.dtype == kind
            for each, kind in zip((indptr, indices, taken, logits), kinds.values(), strict=True)
        )
        is_good = is_good and len(taken) == len(indices) and len(logits) in (0, len(indices))
        is_good = is_good and bool((np.abs(logits) <= CERTAIN).all() and abs(logit) <= CERTAIN)
        is_good = is_good and bool(((missed >= 0) & (missed <= 1)).all())
        if not (is_good and _is_union(indptr, indices, taken, train.csr)):
            raise ValueError("the shown pairs are not those of the interactions")
        evidence = "propensities" if arrays["shown.propensities"][0] else "impressions"
        miss_rate = float(missed[0]) if len(missed) == 1 else missed if len(missed) else None
        return cls(indptr, indices, taken, logits, logit, train.n_items, evidence=evidence, miss_rate=miss_rate)


def shown_pairs(train: Dataset, shown: Shown, miss_rate: float | None) -> ShownPairs:
    """The interactions of a dataset, and what was shown without one.

    `miss_rate` is the probability that a user misses a liked item when it is shown once. None: it is estimated where
    positions, or times of repeated showings, are known, and 0 otherwise.

    >>> import truelike as tl
    >>> seen = [("ann", "tea"), ("ann", "rum"), ("ann", "rum"), ("bob", "rum")]
    >>> data = tl.read([("ann", "tea"), ("bob", "rum")], impressions=seen)
    >>> pairs = shown_pairs(data, data.shown, miss_rate=0.5)
    >>> pairs.taken.tolist(), (1 / (1 + np.exp(-pairs.logits))).tolist()
    ([0, 1, 1], [0.25, 0.5, 0.5])
    """
    missed = _missed(train, shown, miss_rate)
    logits = flip_logits(missed.rates)
    same = bool((logits == logits[0]).all())
    once = float(logits[0]) if same else -CERTAIN
    evidence = "impressions" if shown.propensities is None else "propensities"
    pairs = ShownPairs.merged(train.csr, shown.counts, NONE if same else logits, once, evidence)
    if pairs.added == train.n_interactions:
        raise DataError(
            f"none of the {train.n_interactions:,} interactions is among the impressions, so these say nothing of what "
            "the users saw. Use impressions and interactions of the same time and place."
        )
    if pairs.added:
        warn(
            f"{pairs.added:,} of {train.n_interactions:,} interactions are not among the impressions; they count as "
            "shown, since a user cannot take what was not shown. If the impressions are those of a part of the time "
            "or of one page only, use the interactions of that part, too.",
            DataWarning,
        )
    if not (pairs.taken == 0).any():
        raise DataError(
            "every pair of the impressions is an interaction, so nothing is known of what users saw and did not take"
        )
    seen = float(objectives.sigmoid(-pairs.logits if len(pairs.logits) else np.array([-pairs.logit])).mean())
    noise = float(np.sqrt(seen * (1 - seen) / pairs.n_pairs))
    if pairs.taken_share() > seen + 4 * noise:
        warn(
            f"{pairs.taken_share():.1%} of the shown pairs were taken, but only {seen:.1%} would be if all were liked: "
            "the propensities or the miss rate contradict the interactions, and every probability comes out near 1",
            DataWarning,
        )
    return replace(pairs, miss_rate=missed.miss_rate)


def _missed(train: Dataset, shown: Shown, miss_rate: float | None) -> Missed:
    """How likely a like of each shown pair was missed, as rates."""
    if shown.propensities is not None:
        noticed = shown.propensities.astype(np.float64) * (1 - (miss_rate or 0.0))
        with np.errstate(divide="ignore"):
            return Missed(-np.log1p(-noticed), miss_rate or 0.0)
    has_order = shown.times is not None and train.times is not None
    if miss_rate is None and (shown.positions is not None or has_order):
        return estimated(train, shown)
    with np.errstate(divide="ignore"):
        rate = -np.log(miss_rate or 0.0)
    times = shown.counts.data
    if np.isinf(rate) or times.min() == times.max():  # one rate for all: there may be many pairs
        times = times[:1]
    return Missed(times.astype(np.float64) * rate, miss_rate or 0.0)


def average_logits(exposed_users: NDArray[np.float64], n_users: int) -> NDArray[np.float64]:
    """Return the flip logits of all items for the average user, from the expected numbers of users who noticed them."""
    hidden = np.clip(1 - exposed_users / n_users, 1e-9, 1 - 1e-9)
    return np.asarray(np.log(hidden) - np.log1p(-hidden))


def flip_logits(rates: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the logits of exp(-rate), the probability that a like was not noticed, within CERTAIN.

    >>> flip_logits(np.array([0.0, 1.0, np.inf])).round(3)
    array([ 30.   ,  -0.541, -30.   ], dtype=float32)
    """
    logits, flat = np.empty(rates.size, dtype=np.float32), rates.reshape(-1)
    with np.errstate(over="ignore", divide="ignore"):
        for start in range(0, len(flat), PAIRS_AT_ONCE):
            part = flat[start : start + PAIRS_AT_ONCE].astype(np.float64)
            logits[start : start + PAIRS_AT_ONCE] = np.clip(-part - np.log(-np.expm1(-part)), -CERTAIN, CERTAIN)
    return logits.reshape(rates.shape)


def _is_union(indptr: Indptr, indices: Codes, taken: NDArray[np.uint8], train: sparse.csr_array) -> bool:
    """Return whether a CSR has sorted items of each user, and those that were taken are the interactions."""
    try:
        checked_csr((taken, indices, indptr), train.shape)
    except ValueError:
        return False
    before = np.concatenate([[0], np.cumsum(taken, dtype=np.int64)])
    own = (train.indptr, train.indices)
    return taken.max(initial=0) < 2 and all(map(np.array_equal, (before[indptr], indices[taken == 1]), own))


@cached_njit(nogil=True)
def merge(indptr: Any, items: Any, shown_indptr: Any, shown_items: Any, logits: Any, logit: Any) -> Any:
    """Merge two CSRs of sorted items: interactions, and shown pairs with their flip logits.

    Return indptr, indices, taken and logits of the union, and how many interactions are not among the shown pairs;
    these have the flip logit `logit`.
    """
    n_users = len(indptr) - 1
    out_indptr = np.zeros(n_users + 1, dtype=np.int32)
    added = 0
    for user in range(n_users):
        at, stop = indptr[user], indptr[user + 1]
        shown, shown_stop = shown_indptr[user], shown_indptr[user + 1]
        both = 0
        while at < stop and shown < shown_stop:
            if items[at] == shown_items[shown]:
                both += 1
                at += 1
                shown += 1
            elif items[at] < shown_items[shown]:
                at += 1
            else:
                shown += 1
        own = indptr[user + 1] - indptr[user]
        added += own - both
        out_indptr[user + 1] = out_indptr[user] + own + shown_indptr[user + 1] - shown_indptr[user] - both
    n = out_indptr[n_users]
    indices, taken = np.empty(n, dtype=np.int32), np.zeros(n, dtype=np.uint8)
    out_logits = np.empty(n if len(logits) > 0 else 0, dtype=np.float32)
    for user in range(n_users):
        at, stop = indptr[user], indptr[user + 1]
        shown, shown_stop = shown_indptr[user], shown_indptr[user + 1]
        for k in range(out_indptr[user], out_indptr[user + 1]):
            is_shown = shown < shown_stop and (at == stop or shown_items[shown] <= items[at])
            is_taken = at < stop and (shown == shown_stop or items[at] <= shown_items[shown])
            indices[k] = items[at] if is_taken else shown_items[shown]
            taken[k] = is_taken
            if len(logits) > 0:
                out_logits[k] = logits[shown] if is_shown else logit
            at += is_taken
            shown += is_shown
    return out_indptr, indices, taken, out_logits, added
