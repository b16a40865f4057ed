"""The sampled engine: mini-batch SGD on positives and sampled negatives, as in the paper.

`SampledEngine` prepares an epoch: the order of the positives, the learning rate and the L2 factors. It runs the
compiled loops of `kernels`, on one or more threads with the same result, with buffers that are allocated once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from truelike.core.arrays import Codes, Doubles, Floats
from truelike.core.memory import check_memory
from truelike.core.parallel import Team
from truelike.core.parallel import threads as thread_count
from truelike.core.progress import compiling
from truelike.data.dataset import Dataset
from truelike.engines.engine import ArrayEngine
from truelike.engines.sgd.priority import compiled_priority
from truelike.engines.sgd.samples import Entries, Samples, SGDSettings, mean_loss
from truelike.engines.tables import Tables, aligned_zeros
from truelike.errors import ParameterError
from truelike.negatives import Negatives
from truelike.objectives import Objective, Pairwise
from truelike.objectives.compiler import compiled_steps

BUFFERS = 8  # numbers that are kept for a sample, on one thread
SAMPLES_PER_CALL = 2_000_000  # of the compiled loops; between calls progress is reported and Ctrl-C is noticed


class L2Factors(NamedTuple):
    """The factors by which a row shrinks, for preference and flips.

    `powers` are those of 0, 1, 2, ... batches that do not touch it, `shrink` that of a batch that does.
    """

    powers: Floats
    flip_powers: Floats
    shrink: np.float32
    flip_shrink: np.float32

    def apply(self, table: Floats, last_updated: Codes, width: int, batch: int) -> None:
        """Apply the L2 that rows have missed up to a batch, and reset `last_updated` to 0."""
        from truelike.engines.sgd.kernels import apply_missed_l2

        apply_missed_l2(table, last_updated, width, batch, self.powers, self.flip_powers)


def l2_share(settings: SGDSettings, n_interactions: int) -> float:
    """Return how much of the L2 a batch applies: its part of the epoch, or all of it."""
    return min(1.0, settings.batch_size / n_interactions) if settings.l2_schedule == "epoch" else 1.0


def l2_factors(settings: SGDSettings, epoch: int, share: float, n_batches: int) -> L2Factors:
    """Return the factors by which rows shrink in an epoch of so many batches, each with a share of the L2."""
    rate = settings.rate(epoch)
    factors = [1.0 - rate * l2 * share for l2 in (settings.regularization, settings.flip_regularization)]
    with np.errstate(over="ignore"):  # divergence is checked at the end of the epoch
        powers = [(factor ** np.arange(n_batches + 1)).astype(np.float32) for factor in factors]
    return L2Factors(powers[0], powers[1], np.float32(factors[0]), np.float32(factors[1]))


class SampledEngine(ArrayEngine):
    """Trains factor tables in place, an epoch at a time. An epoch depends only on the seed and its number.

    The number of threads, `n_jobs`, does not change the result. `interaction_weights` is how much each interaction
    counts, in the order of `train.matrix`: the step of a positive, or of a pair of positive and negative, is multiplied
    by it. None: all count the same.
    """

    def __init__(
        self,
        train: Dataset | Entries,
        tables: Tables,
        objective: type[Objective],
        negatives: Negatives,
        settings: SGDSettings,
        *,
        seed: int,
        n_jobs: int | None = -1,
        interaction_weights: Floats | None = None,
    ) -> None:
        self.train, self.tables, self.settings = train, tables, settings
        self._weights = np.zeros(0, dtype=np.float32) if interaction_weights is None else interaction_weights
        self.objective, self.negatives = objective, negatives
        self.threads, self._steps = thread_count(n_jobs), compiled_steps(objective)  # type: ignore[arg-type]
        self._priority = compiled_priority(negatives)
        self.largest = min(settings.batch_size, train.n_interactions)  # positives of the largest batch
        check_batch(self.largest, settings.n_negatives, tables.users.shape[1])
        self.n_batches = -(-train.n_interactions // settings.batch_size)
        self.user_last_updated = np.zeros(train.n_users, dtype=np.int32)
        self.item_last_updated = np.zeros(train.n_items, dtype=np.int32)
        self.samples = Samples(train, negatives, settings, seed)
        self._allocate()

    def _allocate(self) -> None:
        """Allocate all buffers once, so that no thread can run out of memory while others wait for it."""
        from truelike.engines.sgd import kernels

        n, threads = self.largest * (1 + self.settings.n_negatives), self.threads
        n_items, row_width = self.train.n_items, self.tables.users.shape[1]
        in_block = max(kernels.BLOCK, 1 + self.settings.n_negatives) + 4  # samples, padded to groups of four
        self._counters = np.zeros((2, 8), dtype=np.int64)  # barrier and chunks, each in its own cache line
        self._batch_samples = kernels.Samples(
            old_rows=aligned_zeros(self.largest, row_width).reshape(-1),
            item=np.empty(n, dtype=np.int32),
            slot=np.empty(n, dtype=np.int32),
            step=np.empty(n, dtype=np.float32),
            flip=np.zeros(n, dtype=np.float32),
        )
        self._grouping = kernels.Grouping(
            bounds=self._bounds(),
            cursor=np.zeros(n_items, dtype=np.int32),
            own_samples=np.tile(np.arange(n + 1, dtype=np.int32), (threads, 1)),
            touched=np.empty((threads, min(n, n_items) + 1), dtype=np.int32),
            row_offsets=np.empty((threads, n), dtype=np.uint32),
            steps=np.empty((threads, n), dtype=np.float32),
            flips=np.empty((threads, n), dtype=np.float32),
        )
        self._scratch = kernels.Scratch(
            offsets=np.empty((threads, in_block), dtype=np.uint64),
            gradient=np.empty((threads, row_width), dtype=np.float32),
            scratch=np.zeros((threads, 4, in_block), dtype=np.float32),
        )

    def _bounds(self) -> Codes:
        """The bounds of the threads' items, so that all threads have about the same number of samples."""
        popularity = self.train.popularity()
        probabilities = self.negatives.shares(popularity)
        weights = popularity + probabilities * (self.settings.n_negatives * popularity.sum() / probabilities.sum())
        bounds = np.searchsorted(np.cumsum(weights), np.linspace(0, weights.sum(), self.threads + 1))
        bounds[0], bounds[-1] = 0, len(weights)
        return bounds.astype(np.int32)

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Train on all positives once."""
        share = l2_share(self.settings, self.train.n_interactions)
        factors = l2_factors(self.settings, number, share, self.n_batches)
        self.train_batches(number, 0, factors, progress)
        width = self.tables.width
        factors.apply(self.tables.users, self.user_last_updated, width, self.n_batches)
        factors.apply(self.tables.items, self.item_last_updated, width, self.n_batches)

    def train_batches(
        self, number: int, first: int, factors: L2Factors, progress: Callable[[int], None] | None = None
    ) -> None:
        """Train on all positives once; the first batch has the number `first`. The missed L2 is left to apply."""
        work = self._work(number, factors)
        size, n = self.settings.batch_size, self.train.n_interactions
        batches_per_call = max(1, SAMPLES_PER_CALL // (size * (1 + self.settings.n_negatives)))
        with Team(self.threads) as team:
            for batch in range(0, self.n_batches, batches_per_call):
                start = batch * size
                stop = min(n, start + batches_per_call * size)
                step = -(-(stop - start) // (size * self.threads)) * size  # each thread makes some batches
                bounds = [(at, min(stop, at + step)) for at in range(start, stop, step)]
                parts = team.map(lambda part: self.samples.entries(number, *part), bounds)
                self._run(team, first + batch, parts[0] if len(parts) == 1 else np.concatenate(parts), work)
                if progress is not None:
                    progress(stop)

    def _work(self, number: int, factors: L2Factors) -> Any:
        """What the compiled loops need in an epoch."""
        from truelike.engines.sgd.kernels import Drawing, Rates, TrainedTables, Work

        tables, settings, width = self.tables, self.settings, self.tables.width
        drawing = Drawing(
            self.samples.key(number),
            self.samples.choice_key(number),
            settings.n_negatives,
            self.negatives.draws,
            issubclass(self.objective, Pairwise),
            np.float32(settings.positive_factor),
        )
        trained = TrainedTables(
            tables.users.reshape(-1),
            tables.items.reshape(-1),
            self.user_last_updated,
            self.item_last_updated,
            np.uint64(width),
            np.uint64(tables.users.shape[1] - width),
        )
        rates = Rates(np.float32(settings.rate(number)), *factors, settings.order == "blocks")
        return Work(
            self.samples.source, drawing, trained, rates, self._batch_samples, self._grouping, self._weights
        )

    def _run(self, team: Team, first: int, entries: Codes, work: Any) -> None:
        """Run some batches, from batch `first` on, on all threads."""
        from truelike.engines.sgd.barrier import abort

        kernel = compiled_batches()
        self._counters[:] = 0

        def run(thread: int) -> None:
            kernel(
                thread,
                self.threads,
                self._counters,
                first,
                self.largest,
                entries,
                *self._steps,
                self._priority,
                work,
                self._scratch,
            )

        team.run(run, abort=lambda: abort(self._counters))

    def loss(self) -> float:
        """Return minus the mean likelihood of a fixed sample of positives and their negatives."""
        tables = self.tables
        users, items, negatives = self.samples.loss_samples
        rows = np.column_stack([items, negatives])

        def scores(left: Floats, right: Floats) -> Doubles:
            return np.asarray(np.einsum("nk,nmk->nm", left[users], right[rows]), dtype=np.float64)

        r, g = scores(tables.user_factors, tables.item_factors), scores(tables.user_flips, tables.item_flips)
        return mean_loss(self.objective, r, g)

    def state(self) -> dict[str, Any]:
        """Return the arrays from which training can resume."""
        return dict(self.tables.arrays())


def check_batch(positives: int, n_negatives: int, row_width: int) -> None:
    """Raise an error if a batch has more samples or numbers than the compiled loops can count.

    >>> check_batch(10**8, 30, 64)
    Traceback (most recent call last):
    ...
    truelike.errors.ParameterError: batch_size is too large: a batch of 100,000,000 positives with 30 negatives each ...
    """
    samples = positives * (1 + n_negatives)
    if samples >= 2**31 or positives * row_width >= 2**32:
        raise ParameterError(
            f"batch_size is too large: a batch of {positives:,} positives with {n_negatives} negatives each and rows "
            f"of {row_width} numbers. Samples must be fewer than 2^31, and positives x numbers fewer than 2^32."
        )
    check_memory(
        4 * (BUFFERS * samples + positives * row_width),
        f"a batch of {positives:,} positives with {n_negatives:,} negatives each",
        "Use a smaller batch_size, or fewer negatives (n_negatives).",
    )


@lru_cache(maxsize=1)
def compiled_batches() -> Callable[..., Any]:
    """Return the compiled loops. The first call of an installation compiles them and reports it."""
    with compiling("the training loops"):
        from truelike.engines.sgd.kernels import compile_batches

        return compile_batches()
