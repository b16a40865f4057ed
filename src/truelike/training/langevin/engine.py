"""Bayesian logistic matrix factorization of shown pairs, by preconditioned Langevin dynamics with momentum.

    r_ui = a_u + b_i + u_u . v_i,    p(taken) = q_ui sigma(r_ui)

q is the probability that a user who likes a shown item takes it (1 without misses). Each column of u and v is normal
around 0, and the biases are normal around a line in the logarithm of how often the user, or the item, was shown: what
is shown often may be liked more or less than the rest. The precisions are updated from the rows in every step, so
there is no regularization to choose.

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

from truelike import objectives, randomness
from truelike.memory import check_memory
from truelike.parallel import Team, threads
from truelike.progress import compiling
from truelike.training.shown_pairs import ShownPairs

Floats = NDArray[np.float32]
STEP, MOMENTUM = 0.3, 0.9
MEMORY = 0.98  # of the running mean of the preconditioner
START = 0.3  # standard deviation of the first rows
FIRST_PRECISION = 2.0
SHAPE, RATE = 2.0, 0.1  # of the gamma prior of the precisions
SETTLED = 20  # steps before the precisions move
PIECES = 16  # of rows for each thread
ARRAYS = 8  # of the size of all rows, about


class Sample(NamedTuple):
    """The rows of all users and items: factors, and the bias in the last column."""

    users: Floats
    items: Floats


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

    def step(self, key: int, number: int) -> None:
        """Move the rows by the gradient, with noise."""
        self.gradient -= self.precision * self.rows
        self.gradient[:, -1] += self.precision[-1] * self.centre
        inverse = np.float32(1) / (self.information + self.precision)
        self.scale = inverse if number == 0 else self.scale + np.float32(1 - MEMORY) * (inverse - self.scale)
        counters = np.arange(self.rows.size).reshape(self.rows.shape)
        noise = randomness.normal(key, counters).astype(np.float32)
        self.momentum *= np.float32(MOMENTUM)
        self.momentum += np.float32(STEP**2) * self.scale * self.gradient
        self.momentum += np.sqrt(np.float32(2 * (1 - MOMENTUM) * STEP**2) * self.scale) * noise
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
        self.precision = ((SHAPE + len(bias) / 2) / (RATE + squares / 2)).astype(np.float32)


class LangevinSampler:
    """Samples rows of users and items given shown pairs.

    Parameters
    ----------
    pairs
        The shown pairs.
    factors
        The length of u and v.
    seed
        Determines everything.
    n_jobs
        Number of threads; -1: all cores. It does not change the result.
    """

    def __init__(self, pairs: ShownPairs, factors: int, *, seed: int, n_jobs: int | None = -1) -> None:
        self.pairs, self.seed, self.threads = pairs, seed, threads(n_jobs)
        n_users, n_items = pairs.shape
        needed = ARRAYS * 4 * (n_users + n_items) * (factors + 1)
        check_memory(needed, f"rows of {factors:,} factors", "Use fewer factors.")
        by_item = np.argsort(pairs.indices, kind="stable").astype(np.int32)
        counts = np.bincount(pairs.indices, minlength=n_items)
        self._by_item = (np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), by_item)
        self._user_of_entry = np.repeat(np.arange(n_users, dtype=np.int32), np.diff(pairs.indptr))
        noticed = objectives.sigmoid(-pairs.logits) if len(pairs.logits) else pairs.logits
        self._noticed = np.asarray(noticed, dtype=np.float32)
        self._notice = np.float32(objectives.sigmoid(-pairs.logit))
        self._steps, self._curvatures = np.zeros((2, pairs.n_pairs), dtype=np.float32)
        share = pairs.taken_share()
        self.users = self._side("users", n_users, factors, np.diff(pairs.indptr), 0.0)
        self.items = self._side("items", n_items, factors, counts, float(np.log(share / (1 - share))))

    def _side(self, name: str, n: int, factors: int, shown: NDArray[np.integer], bias: float) -> _Rows:
        counters = np.arange(n * (factors + 1)).reshape(n, factors + 1)
        rows = (START * randomness.normal(randomness.key(self.seed, "langevin", name), counters)).astype(
            np.float32
        )
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
                for name, side in (("users", self.users), ("items", self.items)):
                    side.step(randomness.key(self.seed, "langevin noise", name, number), number)
                if number >= SETTLED:
                    self.users.update_prior(centred=True)
                    self.items.update_prior(centred=False)
                if number + 1 in kept:
                    found.append(Sample(self.users.rows.copy(), self.items.rows.copy()))
                if done is not None:
                    done(number + 1)
        return found

    def _compile(self) -> None:
        """Compile the loops, so that no thread waits for the compiler."""
        with compiling("the loops of ImpressionMF"), Team(1) as team:
            self._gradients(team)

    def _gradients(self, team: Team) -> None:
        """Set the gradients of all rows at their present values."""
        from truelike.training.langevin.kernels import item_gradients, user_gradients

        pairs, users, items = self.pairs, self.users, self.items
        what = (self._steps, self._curvatures)

        def of_users(part: tuple[int, int]) -> None:
            user_gradients(
                *part, pairs.indptr, pairs.indices, pairs.taken, self._noticed, self._notice,
                users.rows, items.rows, *what, users.gradient, users.information,
            )  # fmt: skip

        def of_items(part: tuple[int, int]) -> None:
            item_gradients(
                *part, *self._by_item, self._user_of_entry, users.rows, *what, items.gradient, items.information
            )

        team.map(of_users, self._parts(pairs.indptr))
        team.map(of_items, self._parts(self._by_item[0]))

    def _parts(self, indptr: NDArray[np.int32]) -> list[tuple[int, int]]:
        """Ranges of rows with about as many pairs each."""
        n = 1 if self.threads == 1 else PIECES * self.threads
        bounds = np.searchsorted(indptr, np.linspace(0, indptr[-1], n + 1)[1:-1])
        edges = np.unique(np.concatenate([[0], bounds, [len(indptr) - 1]]))
        return [(int(a), int(b)) for a, b in pairwise(edges)]
