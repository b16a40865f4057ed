"""Bayesian logistic matrix factorization of shown pairs, by preconditioned Langevin dynamics with momentum.

    r_ui = a_u + b_i + u_u . v_i,               p(taken | shown) = q_ui sigma(r_ui)
    e_ui = c_u + d_i + w u_u . v_i + s_u . t_i, p(shown) = sigma(e_ui), up to a constant of the user

q is the probability that a user who likes a shown item takes it (1 without misses). Each column of u and v is normal
around 0, and the biases are normal around a line in the logarithm of how often the user, or the item, was shown: what
is shown often may be liked more or less than the rest. The precisions are updated from the rows in every step, so
there is no regularization to choose.

The second line is the exposure. A recommender shows, and a user looks for, what the user likes. Then the shown pairs
are not like the others, and what was shown tells of tastes. w says how much. It is learned, not negative, with a prior
of spread 1, and near 0 where exposure has nothing to do with taste. s and t are what else decides what is shown:
without them, tastes would have to explain it. The pairs are those that were shown and as many that were not,
drawn at random among the items of the user. Drawing changes c_u alone (case-control sampling: Prentice and Pyke,
Biometrika 1979). Marlin and Zemel (RecSys 2009) and Hernandez-Lobato, Houlsby and Ghahramani (ICML 2014) learn ratings
together with what is missing in this way.

A step moves all rows along the gradient of the log posterior, scaled by a diagonal preconditioner (the inverse
information of each parameter), and adds noise of the matching size (Welling and Teh, ICML 2011; Li, Chen, Carlson and
Carin, AAAI 2016). Then rows are samples of the posterior. After a burn-in some are kept. Their mean probability
accounts for how little is known of a rarely shown item, which a single best point does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike import objectives
from truelike.core import randomness
from truelike.core.memory import check_memory
from truelike.core.parallel import Team, threads
from truelike.core.progress import compiling
from truelike.exposure.shown_pairs import PAIRS_AT_ONCE, ShownPairs

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
STEP, MOMENTUM = 0.3, 0.9
PRECONDITIONER_DECAY = 0.98  # of the running mean of the preconditioner
START = 0.3  # standard deviation of the first rows
FIRST_PRECISION = 2.0
SHAPE, RATE = 2.0, 0.1  # of the gamma prior of the precisions
LEAST_PRECISION = 0.05  # where labels are separable, as if all was shown but a few pairs, rows would grow for ever
SETTLED = 20  # steps before the precisions and the weight of tastes in the exposure move
OTHER_FACTORS = 8  # of the exposure alone
TASTES_FIRST = 100  # steps for which these do not move, if the exposure is first taken for tastes
TRIES = 2  # items that are drawn for a shown pair, of which the first that was not shown is taken
PIECES = 16  # of rows for each thread
ARRAYS = 8  # of the size of all rows, about
LABEL_BYTES, EXPOSURE_BYTES = 16, 75  # of a shown pair, about


class Sample(NamedTuple):
    """The rows of all users and items: factors, and the bias in the last column; and the weight w."""

    users: Floats
    items: Floats
    weight: float


@dataclass
class _Rows:
    """The rows of one side, and what moves them."""

    rows: Floats
    shown: NDArray[np.float64]  # standardised log of how often each was shown

    def __post_init__(self) -> None:
        self.momentum = np.zeros_like(self.rows)
        self.scale = np.zeros_like(self.rows)  # the preconditioner
        self.gradient, self.information = np.zeros_like(self.rows), np.zeros_like(self.rows)
        self.precision = np.full(self.rows.shape[1], FIRST_PRECISION, dtype=np.float32)
        self.centre = np.zeros(len(self.rows), dtype=np.float32)  # of the biases

    def step(self, key: int, number: int, held: slice) -> None:
        """Move the rows by the gradient, with noise, but for the columns that are held."""
        self.gradient -= self.precision * self.rows
        self.gradient[:, -1] += self.precision[-1] * self.centre
        inverse = np.float32(1) / (self.information + self.precision)
        self.scale = (
            inverse if number == 0 else self.scale + np.float32(1 - PRECONDITIONER_DECAY) * (inverse - self.scale)
        )
        counters = np.arange(self.rows.size).reshape(self.rows.shape)
        noise = randomness.normal(key, counters).astype(np.float32)
        self.momentum *= np.float32(MOMENTUM)
        self.momentum += np.float32(STEP**2) * self.scale * self.gradient
        self.momentum += np.sqrt(np.float32(2 * (1 - MOMENTUM) * STEP**2) * self.scale) * noise
        self.momentum[:, held] = 0.0
        self.rows += self.momentum

    def update_prior(self, *, centred: bool) -> None:
        """Fit the line of the biases and the precision of each column to the rows."""
        bias = self.rows[:, -1].astype(np.float64)
        columns = [self.shown] if centred else [np.ones(len(bias)), self.shown]
        design = np.column_stack(columns)
        ridge = np.diag([1.0] if centred else [1e-3, 1e-3])
        self.centre = (design @ np.linalg.solve(design.T @ design + ridge, design.T @ bias)).astype(np.float32)
        squares = np.einsum("nk,nk->k", self.rows, self.rows, dtype=np.float64)
        squares[-1] = float(((bias - self.centre) ** 2).sum())
        precision = (SHAPE + len(bias) / 2) / (RATE + squares / 2)
        self.precision = np.maximum(precision, LEAST_PRECISION).astype(np.float32)


class _Pairs:
    """Pairs with a label, by user and by item, and the steps of each."""

    def __init__(self, indptr: Ints, indices: Ints, labels: NDArray[np.uint8], n_items: int) -> None:
        self.indptr, self.indices, self.labels = indptr, indices, labels
        self.counts = np.bincount(indices, minlength=n_items)
        self.by_item = np.argsort(indices, kind="stable").astype(np.int32)
        self.item_indptr = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int32)
        self.user_of_entry = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
        self.steps, self.curvatures = np.zeros((2, len(indices)), dtype=np.float32)


class LangevinSampler:
    """Samples rows of users and items given shown pairs.

    Parameters
    ----------
    pairs
        The shown pairs whose labels are learned from.
    factors
        The length of u and v.
    seed
        Determines everything.
    n_jobs
        Number of threads; -1: all cores. It does not change the result.
    shown
        All pairs that were shown, from which the exposure is learned; None: it is not.
    tastes_first
        Whether to start from an exposure that follows tastes, not from one that has nothing to do with them. The
        posterior may have a mode for each, and steps do not lead from one to the other.
    """

    def __init__(
        self,
        pairs: ShownPairs,
        factors: int,
        *,
        seed: int,
        n_jobs: int | None = -1,
        shown: ShownPairs | None = None,
        tastes_first: bool = False,
    ) -> None:
        self.pairs, self.factors, self.seed, self.threads = pairs, factors, seed, threads(n_jobs)
        n_users, n_items = pairs.shape
        columns = factors + (1 if shown is None else OTHER_FACTORS + 2)
        needed = ARRAYS * 4 * (n_users + n_items) * columns + LABEL_BYTES * pairs.n_pairs
        needed += 0 if shown is None else EXPOSURE_BYTES * shown.n_pairs
        check_memory(needed, f"rows of {factors:,} factors", "Use fewer factors.")
        self._likes = _Pairs(pairs.indptr, pairs.indices, pairs.taken, n_items)
        self._exposure = None if shown is None else _Pairs(*shown_or_not(shown, seed), n_items)
        if self._exposure is not None and self._exposure.labels.all():  # everything was shown
            self._exposure, columns = None, factors + 1
        noticed = objectives.sigmoid(-pairs.logits) if len(pairs.logits) else pairs.logits
        self._noticed = np.asarray(noticed, dtype=np.float32)
        self._notice = np.float32(objectives.sigmoid(-pairs.logit))
        self.tastes_first = tastes_first and self._exposure is not None
        self.weight, self._momentum = float(self.tastes_first), 0.0
        self._sums = np.zeros((n_users, 2))
        share = pairs.taken_share()
        self.users = self._side("users", n_users, columns, np.diff(pairs.indptr), 0.0)
        self.items = self._side("items", n_items, columns, self._likes.counts, float(np.log(share / (1 - share))))

    def _side(self, name: str, n: int, columns: int, shown: NDArray[np.integer], bias: float) -> _Rows:
        counters = np.arange(n * columns).reshape(n, columns)
        rows = START * randomness.normal(randomness.key(self.seed, "langevin", name), counters).astype(np.float32)
        rows[:, self.factors + OTHER_FACTORS :] = 0.0
        rows[:, -1] = bias
        logs = np.log1p(shown.astype(np.float64))
        side = _Rows(rows, (logs - logs.mean()) / (logs.std() + 1e-9))
        side.centre[:] = bias
        return side

    def run(
        self, steps: int, burn_in: int, n_samples: int, done: Callable[[int], None] | None = None
    ) -> list[Sample]:
        """Return samples at even distances after the burn-in; `done` is called with the number of each step."""
        self._compile()
        kept = np.unique(np.linspace(burn_in, steps, n_samples + 1)[1:].astype(int))
        found = []
        with Team(self.threads) as team:
            for number in range(steps):
                self._gradients(team)
                held = self._other_factors if self.tastes_first and number < TASTES_FIRST else slice(0)
                for name, side in (("users", self.users), ("items", self.items)):
                    side.step(randomness.key(self.seed, "langevin noise", name, number), number, held)
                if number >= SETTLED:
                    self.users.update_prior(centred=True)
                    self.items.update_prior(centred=False)
                    self._step_weight(number)
                if number + 1 in kept:
                    found.append(Sample(self._kept(self.users), self._kept(self.items), self.weight))
                if done is not None:
                    done(number + 1)
        return found

    @property
    def _other_factors(self) -> slice:
        """The columns of the exposure alone, without its bias."""
        return slice(self.factors, self.factors + OTHER_FACTORS)

    def _kept(self, side: _Rows) -> Floats:
        """The columns of the like."""
        return np.concatenate([side.rows[:, : self.factors], side.rows[:, -1:]], axis=1)

    def _step_weight(self, number: int) -> None:
        """Move the weight of tastes in the exposure, as a row moves."""
        if self._exposure is None:
            return
        gradient, information = self._sums.sum(axis=0)
        scale = 1 / (information + 1.0)
        key = randomness.key(self.seed, "langevin noise", "weight")
        noise = float(randomness.normal(key, np.array([number]))[0])
        self._momentum *= MOMENTUM
        self._momentum += STEP**2 * scale * (gradient - self.weight)
        self._momentum += float(np.sqrt(2 * (1 - MOMENTUM) * STEP**2 * scale)) * noise
        self.weight = float(self.weight + self._momentum)
        if self.weight < 0:  # it bounces
            self.weight, self._momentum = -self.weight, -self._momentum

    def _compile(self) -> None:
        """Compile the loops, so that no thread waits for the compiler."""
        with compiling("the loops of ImpressionMF"), Team(1) as team:
            self._gradients(team)

    def _gradients(self, team: Team) -> None:
        """Set the gradients of all rows at their present values."""
        from truelike.engines.langevin import kernels

        users, items, likes, exposure = self.users, self.items, self._likes, self._exposure
        weight = np.float32(self.weight)
        for side in (users, items):
            side.gradient[:], side.information[:] = 0.0, 0.0
        of_users = (users.gradient, users.information)
        of_items = (items.gradient, items.information)

        def add_likes(part: tuple[int, int]) -> None:
            kernels.like_gradients(
                *part, self.factors, likes.indptr, likes.indices, likes.labels, self._noticed, self._notice,
                users.rows, items.rows, likes.steps, likes.curvatures, *of_users,
            )  # fmt: skip

        def add_exposure(part: tuple[int, int]) -> None:
            assert exposure is not None
            kernels.exposure_gradients(
                *part, self.factors, weight, exposure.indptr, exposure.indices, exposure.labels,
                users.rows, items.rows, exposure.steps, exposure.curvatures, *of_users, self._sums,
            )  # fmt: skip

        def add_to_items(pairs: _Pairs, scale: np.float32, column: int) -> None:
            def work(part: tuple[int, int]) -> None:
                kernels.item_gradients(
                    *part, self.factors, scale, column, pairs.item_indptr, pairs.by_item, pairs.user_of_entry,
                    users.rows, pairs.steps, pairs.curvatures, *of_items,
                )  # fmt: skip

            team.map(work, self._parts(pairs.item_indptr))

        last = users.rows.shape[1] - 1
        team.map(add_likes, self._parts(likes.indptr))
        add_to_items(likes, np.float32(1.0), last)
        if exposure is not None:
            team.map(add_exposure, self._parts(exposure.indptr))
            add_to_items(exposure, weight, last - 1)

    def _parts(self, indptr: NDArray[np.int32]) -> list[tuple[int, int]]:
        """Ranges of rows with about as many pairs each."""
        n = 1 if self.threads == 1 else PIECES * self.threads
        bounds = np.searchsorted(indptr, np.linspace(0, indptr[-1], n + 1)[1:-1])
        edges = np.unique(np.concatenate([[0], bounds, [len(indptr) - 1]]))
        return [(int(a), int(b)) for a, b in pairwise(edges)]


def shown_or_not(pairs: ShownPairs, seed: int) -> tuple[Ints, Ints, NDArray[np.uint8]]:
    """Return a CSR of the shown pairs and of as many that were not, and whether each was shown.

    For a shown pair two items are drawn at random, and the first of them that the user was not shown is taken. Where
    both were shown, none is. Interactions that are not among the impressions are left out: they are known because they
    were taken, so that exposure would seem to follow tastes.
    """
    n_items, users, everything = pairs.n_items, np.arange(pairs.shape[0]), pairs
    pairs = pairs.select(pairs.unlisted == 0) if len(pairs.unlisted) else pairs
    key = randomness.key(seed, "items that were not shown")
    drawn_users, drawn_items = [], []
    for first, stop in _ranges(pairs.indptr):
        entries = np.arange(pairs.indptr[first], pairs.indptr[stop])
        row = np.repeat(users[first:stop], np.diff(pairs.indptr[first : stop + 1]))
        known = _keys(everything, first, stop)
        item, is_free = np.zeros(len(entries), dtype=np.int64), np.zeros(len(entries), dtype=np.bool_)
        for number in range(TRIES):
            drawn = (randomness.uniform(key, TRIES * entries + number) * n_items).astype(np.int64)
            at = np.minimum(np.searchsorted(known, row * n_items + drawn), len(known) - 1)
            better = ~is_free & (known[at] != row * n_items + drawn)
            item[better], is_free = drawn[better], is_free | better
        drawn_users.append(row[is_free])
        drawn_items.append(item[is_free])
    of_user, of_item = np.concatenate(drawn_users), np.concatenate(drawn_items)
    counts, others = np.diff(pairs.indptr), np.bincount(of_user, minlength=len(users))
    indptr = np.concatenate([[0], np.cumsum(counts + others)])
    indices, labels = np.empty(indptr[-1], dtype=np.int32), np.zeros(indptr[-1], dtype=np.uint8)
    entries = np.arange(pairs.n_pairs) + np.repeat(indptr[:-1] - pairs.indptr[:-1], counts)
    indices[entries], labels[entries] = pairs.indices, 1
    starts = np.concatenate([[0], np.cumsum(others)])[:-1]
    indices[np.arange(len(of_user)) + np.repeat(indptr[:-1] + counts - starts, others)] = of_item
    return indptr.astype(np.int32), indices, labels


def _keys(pairs: ShownPairs, first: int, stop: int) -> NDArray[np.int64]:
    """A number for each pair of some users, sorted."""
    row = np.repeat(np.arange(first, stop), np.diff(pairs.indptr[first : stop + 1]))
    return row * pairs.n_items + pairs.indices[pairs.indptr[first] : pairs.indptr[stop]]


def _ranges(indptr: Ints) -> list[tuple[int, int]]:
    """Ranges of users with about PAIRS_AT_ONCE pairs each."""
    edges = np.searchsorted(indptr, np.arange(0, int(indptr[-1]), PAIRS_AT_ONCE))
    bounds = np.unique(np.concatenate([[0], edges, [len(indptr) - 1]]))
    return [(int(a), int(b)) for a, b in pairwise(bounds) if indptr[b] > indptr[a]]
