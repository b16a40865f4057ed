"""Bayesian logistic matrix factorization of shown pairs, by preconditioned Langevin dynamics with momentum.

    r_ui = a_u + b_i + u_u . v_i,               p(taken | shown) = q_ui sigma(r_ui)
    e_ui = c_u + d_i + w u_u . v_i + s_u . t_i, p(shown) = sigma(e_ui), up to a constant of the user

q is the probability that a user who likes a shown item takes it (1 without misses). Each column of u and v is normal
around 0, and the biases are normal around a line in the logarithm of how often the user, or the item, was shown: what
is shown often may be liked more or less than the rest. The precisions are updated from the rows in every step, so
there is no regularization to choose.

The second line is the exposure, for data where it follows tastes (`link`). A recommender shows, and a user looks for,
what the user likes. Then the shown pairs are not like the others, and what was shown tells of tastes. w says how much.
It is learned, not negative, with a prior of spread 1. s and t are what else decides what is shown: without them, tastes
would have to explain it. The pairs are those that were shown and as many that were not, drawn at random among the
items of the user. Drawing changes c_u alone (case-control sampling: Prentice and Pyke, Biometrika 1979). Marlin and
Zemel (RecSys 2009) and Hernandez-Lobato, Houlsby and Ghahramani (ICML 2014) learn ratings together with what is missing
in this way.

A step moves all rows along the gradient of the log posterior, scaled by a diagonal preconditioner (the inverse
information of each parameter), and adds noise of the matching size (Welling and Teh, ICML 2011; Li, Chen, Carlson and
Carin, AAAI 2016). Then rows are samples of the posterior. After a burn-in, which begins without noise, some are kept.
Their mean probability accounts for how little is known of a rarely shown item, which a single best point does not.

The rows of users are moved where their pairs are (`Part`): in this process, or by the workers of blocks. The rows of
items, and what all rows have in common, are moved here (`Chain`). The bits are the same in all cases (see `kernels`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.core.arrays import Doubles, Floats
from truelike.core.memory import check_memory
from truelike.core.parallel import for_each, threads
from truelike.core.progress import compiling
from truelike.engines.langevin import kernels
from truelike.engines.langevin.kernels import MOMENTUM, STEP, Exposure, Labels, Motion, Sums
from truelike.exposure.shown_pairs import ShownPairs

START = 0.3  # standard deviation of the first rows
FIRST_PRECISION = 2.0
SHAPE, RATE = 2.0, 0.1  # of the gamma prior of the precisions
LEAST_PRECISION = 0.05  # where labels are separable, as if all was shown but a few pairs, rows would grow for ever
SETTLED = 20  # steps before the precisions move
QUIET = 25  # steps without noise
INFORMED = 4  # the information is computed in every fourth step, and in the first four
WARM = 40  # steps from labels alone, before the exposure is learned from
OTHER_FACTORS = 8  # of the exposure alone
TRIES = 2  # items that are drawn for a shown pair
PAIRS_AT_ONCE = 500_000  # that a thread takes
ROWS_AT_ONCE = 100_000  # that are initialised
COPIES = 3  # a table has rows, momentum and preconditioner


class Shape(NamedTuple):
    """The shape of rows, and the seed that decides them. Those of a `joint` one have columns of the exposure."""

    factors: int
    joint: bool
    seed: int

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.factors + (OTHER_FACTORS + 2 if self.joint else 1)

    def start(self, table: Floats, name: str, bias: float) -> None:
        """Set the first rows of a table."""
        key, width = randomness.key(self.seed, "langevin", name), self.width
        for first in range(0, len(table), ROWS_AT_ONCE):
            rows = table[first : first + ROWS_AT_ONCE, :width]
            counters = np.arange(first * width, first * width + rows.size).reshape(rows.shape)
            rows[:] = START * randomness.normal(key, counters)
            rows[:, self.factors + OTHER_FACTORS :] = 0.0
            rows[:, -1] = bias

    def motion(self, name: str, number: int, first: int = 0) -> Motion:
        """How the rows of a side move in a step; those before the exposure is learned from have negative numbers."""
        since = number + WARM if number < 0 else number
        informed = since < INFORMED or since % INFORMED == 0
        key = np.uint64(randomness.key(self.seed, "langevin noise", name, number))
        joint = self.joint and number >= 0
        return Motion(self.factors, joint, since == 0, informed, number >= QUIET, key, first)

    def sums(self, n_items: int, number: int, flat: Doubles | None = None) -> tuple[Doubles, Sums]:
        """The sums of a step as one array, and its parts; of zeros if no array is given."""
        size = n_items * self.width
        informed = self.motion("users", number).informed
        ends = np.cumsum([size, size if informed else 0, self.width, 3])
        flat = np.zeros(ends[-1]) if flat is None else flat
        gradient, information, squares, others = np.split(flat, ends[:-1])
        shape = (-1, self.width)
        return flat, Sums(gradient.reshape(shape), information.reshape(shape), squares, others)


class Prior(NamedTuple):
    """What all rows have in common after a step.

    These are the precisions of the columns, the slope of the biases of users in their activity, the centres of the
    biases of items, and how much exposure follows tastes, with its momentum.
    """

    users: Floats
    items: Floats
    slope: float
    centres: Floats
    weight: float
    momentum: float


class Sample(NamedTuple):
    """The rows of all users and items: factors, and the bias in the last column.

    Also the weight w, and the mean precision of the factors of users.
    """

    users: Floats
    items: Floats
    weight: float
    precision: float


class Part:
    """Some users, of whom `first` is the number of the first: the rows of a table, which are moved in place.

    `pairs` are the shown pairs whose labels are learned from, and `shown` all pairs that were shown, from which the
    exposure is learned, if the shape says so. The number of threads does not change the result.
    """

    def __init__(
        self, shape: Shape, table: Floats, pairs: ShownPairs, shown: ShownPairs, first: int, n_jobs: int | None
    ) -> None:
        self.shape, self.table, self.pairs, self.shown = shape, table, pairs, shown
        self.first, self.n_jobs = first, n_jobs

    def logs(self) -> Doubles:
        """The sums of ln(1 + pairs) over users, of its squares, and the number of users with pairs."""
        logs = np.log1p(np.diff(self.pairs.indptr).astype(np.float64))
        return np.array([kernels.fine(each).sum() for each in (logs, logs * logs, np.sign(logs))])

    @cached_property
    def exposure(self) -> Exposure:
        """The pairs from which the exposure is learned."""
        pairs = self.shown
        if not self.shape.joint:
            return Exposure(pairs.indptr, pairs.indices, np.zeros(0, dtype=np.int32))
        key = np.uint64(randomness.key(self.shape.seed, "items that were not shown"))
        given = (pairs.indptr, pairs.indices, pairs.unlisted, pairs.n_items, key, self.first, TRIES)
        return Exposure(pairs.indptr, pairs.indices, kernels.draw_others(*given))

    def advance(self, items: Floats, precision: Floats, common: tuple[float, ...], number: int) -> Doubles:
        """Move the users in a step, and return the sums of `Shape.sums`.

        `common` are the slope of the biases, the mean and the spread of `logs`, and the weight.
        """
        pairs, shape, table = self.pairs, self.shape, self.table
        motion = shape.motion("users", number, self.first)
        labels = Labels(pairs.indptr, pairs.indices, pairs.taken, pairs.logits, np.float32(pairs.logit))
        prior = kernels.Prior(precision, *common)
        flat, sums = shape.sums(len(items), number)
        arrays = (table, items, labels, self.exposure, prior, motion)
        with compiling("the loops of ImpressionMF"):  # so that no thread waits for the compiler
            kernels.move_users(0, 0, *arrays, sums)
        ranges = self._ranges()
        n = min(threads(self.n_jobs), len(ranges))
        buffers = [(flat, sums), *(shape.sums(len(items), number) for _ in range(n - 1))]
        free: SimpleQueue[Sums] = SimpleQueue()
        for _, buffer in buffers:
            free.put(buffer)

        def work(users: tuple[int, int]) -> None:
            own = free.get()
            kernels.move_users(*users, *arrays, own)
            free.put(own)

        for_each(work, ranges, n)
        for other, _ in buffers[1:]:
            flat += other
        return flat

    def _ranges(self) -> list[tuple[int, int]]:
        """Ranges of users with about PAIRS_AT_ONCE pairs each."""
        indptr = self.pairs.indptr
        bounds = np.searchsorted(indptr, np.arange(PAIRS_AT_ONCE, int(indptr[-1]), PAIRS_AT_ONCE))
        edges = np.unique(np.concatenate([[0], bounds, [len(indptr) - 1]]))
        return [(int(a), int(b)) for a, b in pairwise(edges)]


LEAST_VARIANCE = 1e-6  # of ln(1 + shown pairs) of users: the logarithms are multiples of 2^-24


class Chain:
    """The rows of items, which are moved in place, and what all rows have in common.

    `counts` are the numbers of pairs of the items, and `share` is the share of shown pairs that were taken. `advance`
    moves all users, and returns the sum of what `Part.advance` returns; `logs` is that of `Part.logs`. `link` is the
    first value of the weight.
    """

    def __init__(
        self,
        shape: Shape,
        table: Floats,
        n_users: int,
        counts: NDArray[np.integer],
        share: float,
        *,
        advance: Callable[..., Doubles],
        logs: Doubles,
        link: float,
    ) -> None:
        self.shape, self.table, self.n_users, self.advance = shape, table, n_users, advance
        bias = float(np.log(share / (1 - share)))
        shape.start(table, "items", bias)
        visible, shown = np.log1p(counts.astype(np.float64)), counts > 0  # of others nothing is known
        self.visible = np.where(shown, (visible - visible[shown].mean()) / (visible[shown].std() + 1e-9), 0.0)
        active = float(logs[2])
        self.mean = float(logs[0]) / active
        variance = max(0.0, float(logs[1]) / active - self.mean**2)
        # equally active users do not tell what activity means
        self.spread = float(np.sqrt(variance)) + 1e-9 if variance > LEAST_VARIANCE else 1e9
        self.activity_squares = active * variance / self.spread**2
        first = np.full(shape.width, FIRST_PRECISION, dtype=np.float32)
        self.prior = Prior(first, first, 0.0, np.full(len(table), bias, dtype=np.float32), link, 0.0)

    def run(self, first: int, stop: int, done: Callable[[int], None] | None = None) -> None:
        """Do the steps first ... stop - 1; `done` is called with the number of each, plus 1."""
        shape, table = self.shape, self.table
        for number in range(first, stop):
            prior, items = self.prior, np.ascontiguousarray(table[:, : shape.width])
            common = (prior.slope, self.mean, self.spread, prior.weight)
            flat = self.advance(items, prior.users, common, number)
            _, sums = shape.sums(len(table), number, flat)
            motion = shape.motion("items", number)
            kernels.move_items(table, sums, prior.centres, prior.items, motion)
            if (number + WARM if number < 0 else number) >= SETTLED:
                self._update_precisions(sums)
            if motion.joint:
                self._move_weight(sums, number)
            if done is not None and number >= 0:
                done(number + 1)

    def _update_precisions(self, sums: Sums) -> None:
        """Fit the lines of the biases and the precision of each column to the rows."""
        cross, squares = float(sums.others[0]), sums.squares
        slope = cross / (self.activity_squares + 1.0)
        squares[-1] += slope * (slope * self.activity_squares - 2 * cross)
        rows = self.table[:, : self.shape.width].astype(np.float64)
        bias, n, total = rows[:, -1], len(rows), float(self.visible.sum())
        design = np.array([[n + 1e-3, total], [total, (self.visible**2).sum() + 1e-3]])
        line = np.linalg.solve(design, [bias.sum(), (self.visible * bias).sum()])
        centres = line[0] + line[1] * self.visible
        rows[:, -1] -= centres
        precisions = (self._precision(self.n_users, squares), self._precision(n, (rows * rows).sum(axis=0)))
        self.prior = self.prior._replace(
            users=precisions[0], items=precisions[1], slope=slope, centres=centres.astype(np.float32)
        )

    def _precision(self, n: int, squares: Doubles) -> Floats:
        found = (SHAPE + n / 2) / (RATE + np.maximum(squares, 0.0) / 2)
        return np.maximum(found, LEAST_PRECISION).astype(np.float32)

    def _move_weight(self, sums: Sums, number: int) -> None:
        """Move the weight of tastes in the exposure, as a row moves."""
        _, gradient, information = (float(each) for each in sums.others)
        weight, scale = self.prior.weight, 1 / (information + 1.0)
        momentum = MOMENTUM * self.prior.momentum + STEP**2 * scale * (gradient - weight)
        if number >= QUIET:
            key = randomness.key(self.shape.seed, "langevin noise", "weight")
            noise = float(randomness.normal(key, np.array([number]))[0])
            momentum += float(np.sqrt(2 * (1 - MOMENTUM) * STEP**2 * scale)) * noise
        weight += momentum
        if weight < 0:  # it bounces
            weight, momentum = -weight, -momentum
        self.prior = self.prior._replace(weight=weight, momentum=momentum)

    def sample(self, users: Floats) -> Sample:
        """The present rows, with the columns of the like, given the users' table."""
        factors, prior = self.shape.factors, self.prior
        columns = np.r_[0:factors, self.shape.width - 1]
        weight = prior.weight if self.shape.joint else 0.0
        return Sample(users[:, columns], self.table[:, columns], weight, float(prior.users[:factors].mean()))


def stretches(steps: int, burn_in: int, n_samples: int, *, joint: bool) -> list[tuple[int, int]]:
    """The steps up to each sample, at even distances after the burn-in.

    >>> stretches(150, 30, 3, joint=False)
    [(0, 70), (70, 110), (110, 150)]
    """
    kept = np.unique(np.linspace(burn_in, steps, n_samples + 1)[1:].astype(int))
    return [(int(a), int(b)) for a, b in pairwise([-WARM if joint else 0, *kept])]


class LangevinSampler:
    """Samples rows of users and items given the labels of `pairs`, in memory.

    `shown` are all pairs that were shown, from which the exposure is learned; None: it is not. `link` is the first
    value of the weight of tastes in it.
    """

    def __init__(
        self,
        pairs: ShownPairs,
        factors: int,
        *,
        seed: int,
        n_jobs: int | None = -1,
        shown: ShownPairs | None = None,
        link: float = 0.0,
    ) -> None:
        shape = Shape(factors, shown is not None, seed)
        n_users, n_items = pairs.shape
        per_thread = 4 * threads(n_jobs) * n_items
        needed = 4 * shape.width * (COPIES * (n_users + n_items) + per_thread)
        check_memory(needed, f"rows of {factors:,} factors", "Use fewer factors.")
        self.users = np.zeros((n_users, COPIES * shape.width), dtype=np.float32)
        shape.start(self.users, "users", 0.0)
        self.part = Part(shape, self.users, pairs, pairs if shown is None else shown, 0, n_jobs)
        items = np.zeros((n_items, COPIES * shape.width), dtype=np.float32)
        counts, share = pairs.pairs_of_item(), pairs.taken_share()
        advance, logs = self.part.advance, self.part.logs()
        self.chain = Chain(shape, items, n_users, counts, share, advance=advance, logs=logs, link=link)

    def run(
        self, steps: int, burn_in: int, n_samples: int, done: Callable[[int], Any] | None = None
    ) -> Iterator[Sample]:
        """Return samples at even distances after the burn-in; `done` is called with the number of each step."""
        for first, stop in stretches(steps, burn_in, n_samples, joint=self.chain.shape.joint):
            self.chain.run(first, stop, done)
            yield self.chain.sample(self.users)
