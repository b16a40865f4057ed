"""The miss rate, estimated from a log of impressions.

A user who likes an item misses it at one showing with probability m (`by_showing`), or at position j with probability
m_j = 1 - e_j, where e_j is the examination probability of the position (`by_position`). The user takes the item at the
first showing that is noticed. So a like is hidden after all showings with the product of their miss rates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from truelike.core import randomness
from truelike.core.progress import note
from truelike.data.dataset import Dataset
from truelike.data.shown import Shown
from truelike.errors import DataWarning, warn

LAST_POSITION = 50  # positions beyond it count as one
LARGEST_ERROR = 0.1  # of a miss rate that is used
MOST_PAIRS = 5_000_000  # from which miss rates are estimated; of more, a sample
MOST_ROWS = 2_000_000  # of the pairs from which the level of the examination is estimated
ITEM_PRIOR = 10.0  # pseudo-pairs of an item, at the mean rate
POSITION_PRIOR = 2.0  # pseudo-interactions of a position, at the mean examination
NEVER = np.iinfo(np.int64).max
Floats = NDArray[np.float64]
Numbers = NDArray[np.integer[Any]]
Positions = NDArray[Any]  # whole numbers from 1, of any type


@dataclass(frozen=True)
class Estimate:
    """A miss rate and its standard error; None where the data does not identify it."""

    miss_rate: float
    standard_error: float | None

    def interval(self) -> tuple[float, float]:
        """The 95% interval, by the logit."""
        if self.standard_error is None:
            return 0.0, 1.0
        m = self.miss_rate
        width = 1.96 * self.standard_error / (m * (1 - m))
        center = np.log(m / (1 - m))
        low, high = 1 / (1 + np.exp(width - center)), 1 / (1 + np.exp(-width - center))
        return float(low), float(high)


@dataclass(frozen=True)
class Missed:
    """What is known of the misses of shown pairs.

    `rates` are minus the logarithms of the probability that a like was missed at all showings of a pair. `miss_rate` is
    that of one showing, or of each position, from 1; the last one is that of all positions beyond `LAST_POSITION`.
    """

    rates: Floats
    miss_rate: float | Floats


def by_showing(n: NDArray[Any], taken: NDArray[np.bool_], group: Numbers | None = None) -> Estimate:
    """Estimate the probability m of missing a liked item at one showing from repeated showings.

    With p the probability that a pair is liked,

        p(taken at showing k) = p m^(k-1) (1 - m),    p(not taken in n showings) = 1 - p (1 - m^n).

    Both are linear in p. So p may differ between pairs, and its mean is what counts, as long as p does not depend on
    the number of showings. Where it does, because good items are shown more often, late takes come from good items
    and m is too large. `group` (the item) gives each group its own p, shrunk to the mean, and removes that bias between
    groups. What is left within a group is small where the number of showings varies by chance. Interactions that came
    about elsewhere, e.g. by a search, look as if they had needed many showings, and m is too large, too.

    `n` is the number of showings of each pair: of a pair that was taken, up to the one at which it was. Without a
    repeated showing or without a pair that was taken, m is 0 and the standard error None. Cost: pairs once, then
    distinct (group, n) some hundred times.
    """
    n, taken = np.asarray(n, dtype=np.float64), np.asarray(taken, dtype=bool)
    repeated = int((n > 1).sum())
    if not repeated or not taken.any() or taken.all():
        return Estimate(0.0, None)
    group = np.zeros(len(n), dtype=np.int64) if group is None else np.asarray(group, dtype=np.int64)
    distinct, kind = np.unique(n, return_inverse=True)
    cells, weights = np.unique((group * len(distinct) + kind)[~taken], return_counts=True)
    showings = distinct[cells % len(distinct)]
    likes = _Groups(group, taken, cells // len(distinct), weights.astype(np.float64))
    n_taken, passed = float(taken.sum()), float((n[taken] - 1).sum())

    def log_likelihood(notice: float) -> float:
        missed = np.log1p(-notice)
        return float(n_taken * np.log(notice) + passed * missed + likes.fit(-np.expm1(showings * missed))[1])

    return _most_likely(log_likelihood, likes.error_factor)


def by_position(item: Numbers, position: Positions, taken: NDArray[np.bool_]) -> Floats:
    """Estimate the examination probability of each position, relative to the best one, from single showings.

    The position-based model (Richardson, Dominowska and Ragno, WWW 2007; Chuklin, Markov and de Rijke 2015; Wang et
    al., WSDM 2018) is

        p(taken) = q_item e_position.

    The effects of the items avoid that good items at good positions are taken for good positions. Given e, the log
    likelihood of each q is concave, and given q that of each e. They are maximised in turn, which leads to the maximum
    that EM climbs to, in far fewer steps where interactions are rare. Positions beyond 50 count as one. A position
    with few rows is shrunk to the mean, an item with few rows to the mean item.
    """
    item, place = np.asarray(item, dtype=np.int64), pooled(position)
    taken = np.asarray(taken, dtype=bool)
    n_positions = int(place.max()) + 1
    share = float(taken.mean())
    if not taken.any() or n_positions == 1:
        return np.ones(n_positions)
    cells, weights = np.unique((item * n_positions + place)[~taken], return_counts=True)
    cell_item, cell_place = cells // n_positions, cells % n_positions
    passed = weights.astype(np.float64)
    items = _Groups(item, taken, cell_item, passed)
    examination, rows = np.ones(n_positions), np.bincount(place, minlength=n_positions)
    taken_at = np.bincount(place[taken], minlength=n_positions).astype(np.float64)
    for _ in range(200):
        quality = items.fit(examination[cell_place], prior_factor=examination @ rows / rows.sum())[0]
        mean_quality = share / (examination @ rows / rows.sum())
        prior = POSITION_PRIOR / share  # rows, of the mean item at the mean examination
        before, examination = (
            examination,
            _largest(
                np.concatenate([cell_place, np.arange(n_positions)]),
                np.concatenate([passed, np.full(n_positions, prior - POSITION_PRIOR)]),
                np.concatenate([quality[cell_item], np.full(n_positions, min(mean_quality, 1.0))]),
                taken_at + POSITION_PRIOR,
            ),
        )
        examination /= examination.max()
        if np.abs(examination - before).max() < 1e-5:
            break
    return examination


def pooled(position: Positions) -> NDArray[np.int64]:
    """Positions from 1 as numbers from 0, of which the largest stands for all positions beyond `LAST_POSITION`."""
    return np.minimum(position, LAST_POSITION + 1).astype(np.int64) - 1


def estimated(train: Dataset, shown: Shown) -> Missed:
    """Estimate the miss rate of a log of showings, and how likely a like was missed at all showings of each pair.

    A pair is taken at its last showing that is not after the interaction; later showings do not count. Only the latest
    interaction of a pair has a time, so a pair with several does not enter the estimate. Without times of both showings
    and interactions, the pairs that were shown once tell the examination of positions relative to the best one, and
    nothing else is known. What is returned is in the order of (user, item).
    """
    showings = _Showings.of(train, shown)
    return showings.by_showing() if showings.place is None else showings.by_position()


@dataclass(frozen=True)
class _Showings:
    """Rows of showings by pair, in the order of time.

    `starts` is the first row of each pair. `counted` marks the rows before which a pair was not taken, and `usable` the
    pairs that enter estimates.
    """

    starts: NDArray[np.intp]
    item: NDArray[np.int64]
    taken: NDArray[np.bool_]
    usable: NDArray[np.bool_]
    count: Floats
    place: NDArray[np.int64] | None
    counted: NDArray[np.bool_]
    has_order: bool

    @classmethod
    def of(cls, train: Dataset, shown: Shown) -> _Showings:
        pairs = shown.users.astype(np.int64) * train.n_items + shown.items
        columns: dict[str, NDArray[Any]] = {"pair": pairs, "count": shown.csr.data.astype(np.float64)}
        if shown.times is not None and train.times is not None:
            columns["time"] = shown.times
        if shown.positions is not None:
            columns["place"] = pooled(shown.positions).astype(np.int8)
        has_order = "time" in columns
        keys = ["pair", "time"] if has_order else ["pair"]
        rows = pl.DataFrame(columns).sort(keys, maintain_order=True)
        pair, count = rows["pair"].to_numpy(), rows["count"].to_numpy()
        starts = np.flatnonzero(np.concatenate([[True], pair[1:] != pair[:-1]]))
        place = rows["place"].to_numpy().astype(np.int64) if "place" in columns else None
        keys_of_train = train.entry_users.astype(np.int64) * train.n_items + train.csr.indices
        first = pair[starts]
        entry = np.minimum(np.searchsorted(keys_of_train, first), len(keys_of_train) - 1)
        taken = keys_of_train[entry] == first
        usable, counted = np.ones(len(first), dtype=bool), np.ones(len(pair), dtype=bool)
        if has_order:
            assert train.times is not None
            taken_time = np.where(taken, train.times[entry], NEVER)
            length = np.diff(starts, append=len(pair))
            counted = rows["time"].to_numpy() <= np.repeat(taken_time, length)
            before = ~np.logical_or.reduceat(counted, starts)
            _check_order(before, taken)
            counted |= np.repeat(before, length)  # taken elsewhere: all that is known is that it was shown
            usable = ~before & ~(taken & (train.csr.data[entry] != 1))
        return cls(starts, first % train.n_items, taken, usable, count, place, counted, has_order)

    def total(self) -> Floats:
        """The showings of each pair that count."""
        return np.asarray(np.add.reduceat(np.where(self.counted, self.count, 0.0), self.starts))

    def sample(self, share: float) -> NDArray[np.bool_]:
        """Marks a share of the usable pairs, all of them if it is 1 or more; the same ones each time."""
        if share >= 1:
            return self.usable
        drawn = randomness.uniform(randomness.key(0, "pairs of the miss rate"), np.arange(len(self.usable)))
        return np.asarray(self.usable & (drawn < share))

    def by_showing(self) -> Missed:
        """The miss rate by repeated showings."""
        n, use = self.total(), self.sample(MOST_PAIRS / len(self.starts))
        found = by_showing(n[use], self.taken[use], self.item[use]) if self.has_order else Estimate(0.0, None)
        repeated = int((n[use] > 1).sum())
        if not _is_known(found):
            note(
                f"{repeated:,} pairs with repeated showings do not tell the miss rate, so it is taken to be 0; pass "
                "miss_rate=... if you know it"
            )
            return Missed(np.full(len(n), np.inf), 0.0)
        low, high = found.interval()
        note(
            f"miss rate estimated from {repeated:,} pairs with repeated showings: {found.miss_rate:.2f} "
            f"({low:.2f} to {high:.2f})"
        )
        return Missed(n * -np.log(found.miss_rate), found.miss_rate)

    def by_position(self) -> Missed:
        """The miss rate of each position."""
        assert self.place is not None
        n = self.total()
        first = self.count[self.starts] == 1
        use = self.sample(MOST_PAIRS / len(self.starts)) & (first if self.has_order else n == 1)
        taken_first = self.taken & (n == 1)
        place = self.place[self.starts]
        n_positions = int(self.place.max()) + 1
        examination = np.ones(n_positions)
        if use.any():
            found = by_position(self.item[use], place[use] + 1, taken_first[use])
            examination[: len(found)] = found
            examination[len(found) :] = found[-1]
        level = self.level(examination) if self.has_order else Estimate(0.0, None)
        known = _is_known(level)
        examination = examination * (1 - level.miss_rate) if known else examination
        missed = 1 - examination
        assumed = "" if known else " (assumed, as repeated showings do not tell it)"
        note(
            f"miss rate by position estimated from {int(use.sum()):,} showings: {missed.min():.2f} at the best"
            f"{assumed}, {missed.max():.2f} at the worst of {n_positions} positions"
        )
        with np.errstate(divide="ignore"):
            each = -np.log(missed)
        rates = np.add.reduceat(np.where(self.counted, each[self.place] * self.count, 0.0), self.starts)
        return Missed(np.asarray(rates), missed)

    def level(self, examination: Floats) -> Estimate:
        """The miss rate at the best position by repeated showings, of a sample of the pairs if there are many."""
        assert self.place is not None
        part = self.sample(MOST_ROWS / len(self.count))
        n = self.total()
        if not (n[part] > 1).any() or not self.taken[part].any() or self.taken[part].all():
            return Estimate(0.0, None)
        length = np.diff(self.starts, append=len(self.count))
        rows = np.repeat(part, length) & self.counted
        pair = np.repeat(np.cumsum(part) - 1, length)[rows]
        n_pairs, taken = int(part.sum()), self.taken[part]
        last = np.concatenate([pair[1:] != pair[:-1], [True]])
        passes = self.count[rows] - (last & taken[pair])  # one showing of the last row is the one that was taken
        place = self.place[rows]
        skipped = ~taken[pair]
        first = np.flatnonzero(np.concatenate([[True], pair[skipped][1:] != pair[skipped][:-1]]))
        passed_by_place = np.bincount(place[~skipped], passes[~skipped], len(examination))
        likes = _Groups(self.item[part], taken, self.item[part][~taken], np.ones(n_pairs - int(taken.sum())))
        place, passes = place[skipped], passes[skipped]

        def log_likelihood(notice: float) -> float:
            missed = np.log1p(-notice * examination)
            noticed = -np.expm1(np.add.reduceat(missed[place] * passes, first))
            return float(taken.sum() * np.log(notice) + passed_by_place @ missed + likes.fit(noticed)[1])

        return _most_likely(log_likelihood, likes.error_factor)


class _Groups:
    """Groups of pairs with a probability x each: p(taken) is proportional to x, and p(not taken) = 1 - a x.

    The x of a group is shrunk to the mean, by `ITEM_PRIOR` pairs, if there is more than one group.
    """

    def __init__(self, group: Numbers, taken: NDArray[np.bool_], cells: Numbers, weights: Floats) -> None:
        n_groups = int(group.max()) + 1
        self.taken = np.bincount(group[taken], minlength=n_groups).astype(np.float64)
        self.cells, self.weights = cells, weights
        self.strength = 0.0 if n_groups == 1 else ITEM_PRIOR
        self.share = float(taken.mean())
        self.all = np.arange(n_groups)
        pseudo_pairs = self.strength * np.count_nonzero(np.bincount(group))
        # an error that is computed as if pseudo-pairs were pairs is too small by this factor
        self.error_factor = float(np.sqrt(1 + pseudo_pairs / len(group)))

    def fit(self, factors: Floats, prior_factor: float | None = None) -> tuple[Floats, float]:
        """The most likely x of each group and the log likelihood of all, for the factor a of each cell."""
        cells, weights, taken, constant = self.cells, self.weights, self.taken, 0.0
        if self.strength:
            mean = float(np.average(factors, weights=self.weights)) if prior_factor is None else prior_factor
            cells = np.concatenate([self.cells, self.all])
            weights = np.concatenate([self.weights, np.full(len(self.all), self.strength * (1 - self.share))])
            factors = np.concatenate([factors, np.full(len(self.all), mean)])
            taken = self.taken + self.strength * self.share
            # pseudo-pairs are taken with probability mean x, so they tell x, and nothing of the factors
            constant = len(self.all) * self.strength * self.share * np.log(mean)
        x = _largest(cells, weights, factors, taken)
        has = taken > 0
        value = taken[has] @ np.log(x[has]) + weights @ np.log1p(-factors * x[cells])
        return x, float(value + constant)


def _largest(cells: Numbers, weights: Floats, factors: Floats, taken: Floats) -> Floats:
    """The x in (0, 1) of each group that maximises taken log x + sum of weight log(1 - factor x) over its cells.

    The derivative times x is concave and falls, so Newton's method converges from above after the first step.
    """
    n = len(taken)
    total = np.bincount(cells, weights * factors, n)
    x = np.clip(taken / np.maximum(taken + total, 1e-300), 1e-12, 1 - 1e-9)
    for _ in range(100):
        left = 1 - factors * x[cells]
        pull = np.bincount(cells, weights * factors / left, n)
        slope = np.bincount(cells, weights * factors / left**2, n)
        step = (taken - x * pull) / np.maximum(slope, 1e-300)
        moved = np.clip(np.minimum(x + step, (x + 1) / 2), 1e-12, 1 - 1e-9)
        done = np.abs(moved - x).max() < 1e-12 or np.abs(moved / x - 1).max() < 1e-9
        x = moved
        if done:
            break
    return x


def _most_likely(log_likelihood: Callable[[float], float], error_factor: float) -> Estimate:
    """The miss rate whose notice rate has the largest log likelihood.

    Half a miss and half a notice are added, so that the estimate is inside (0, 1).
    """

    def loss(logit: float) -> float:
        notice = 1 / (1 + np.exp(-logit))
        return -float(log_likelihood(notice) + 0.5 * np.log(notice) + 0.5 * np.log1p(-notice))

    found = minimize_scalar(loss, bounds=(-8.0, 12.0), method="bounded", options={"xatol": 1e-6})
    best, step = float(found.x), 0.05
    missed = float(1 / (1 + np.exp(best)))
    information = (loss(best + step) - 2 * loss(best) + loss(best - step)) / step**2
    if not information > 1e-3:
        return Estimate(missed, None)
    return Estimate(missed, float(error_factor * missed * (1 - missed) / np.sqrt(information)))


def _is_known(estimate: Estimate) -> bool:
    return estimate.standard_error is not None and estimate.standard_error <= LARGEST_ERROR


def _check_order(before: NDArray[np.bool_], taken: NDArray[np.bool_]) -> None:
    """Warn if many interactions come before all showings of their pair."""
    wrong, of = int(before.sum()), int(taken.sum())
    if 2 * wrong > of:
        warn(
            f"{wrong:,} of {of:,} interactions come before the first showing of their pair. Check that the times of "
            "the impressions and of the interactions are in the same unit and time zone.",
            DataWarning,
        )
