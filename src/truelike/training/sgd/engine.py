"""The sampled engine: mini-batch SGD on positives and sampled negatives, as in the paper.

`SampledEngine` prepares an epoch: the order of the positives, the learning rate, the L2 factors and all buffers.
The compiled loops of `kernels` do the work, on one or more threads, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.errors import ParameterError
from truelike.negatives import Negatives
from truelike.objectives import Objective, Pairwise, Pointwise
from truelike.parallel import Team
from truelike.parallel import threads as thread_count
from truelike.training.engine import ArrayEngine
from truelike.training.sgd.exposure import KnownExposure
from truelike.training.sgd.samples import Entries, Samples, SGDSettings, labelled_loss, mean_loss
from truelike.training.tables import Tables, aligned_zeros

SAMPLES_PER_CALL = 2_000_000  # of the compiled loops; between calls progress is reported and Ctrl-C is noticed


class L2Factors(NamedTuple):
    """The factors by which a row shrinks, for preference and flips.

    Attributes
    ----------
    powers, flip_powers
        In 0, 1, 2, ... batches that do not touch it.
    shrink, flip_shrink
        In a batch that touches it.
    """

    powers: NDArray[np.float32]
    flip_powers: NDArray[np.float32]
    shrink: np.float32
    flip_shrink: np.float32

    def apply(self, table: NDArray[np.float32], last_updated: NDArray[np.int32], width: int, batch: int) -> None:
        """Apply the L2 that rows have missed up to a batch, and reset `last_updated` to 0."""
        from truelike.training.sgd.kernels import apply_missed_l2

        apply_missed_l2(table, last_updated, width, batch, self.powers, self.flip_powers)

    def of_users(self, *, biased: bool) -> L2Factors:
        """Return the factors of users' rows. With item biases in the flip tables, their flip rows are constants."""
        return self._replace(flip_powers=np.ones_like(self.flip_powers)) if biased else self


def l2_share(settings: SGDSettings, n_interactions: int) -> float:
    """Return how much of the L2 a batch applies: its part of the epoch, or all of it."""
    return min(1.0, settings.batch_size / n_interactions) if settings.l2_schedule == "epoch" else 1.0


def l2_factors(settings: SGDSettings, epoch: int, share: float, n_batches: int) -> L2Factors:
    """Return the factors by which rows shrink in an epoch of so many batches, each with a share of the L2."""
    powers, factors = [], []
    for regularization in (settings.regularization, settings.flip_regularization):
        factor = 1.0 - settings.rate(epoch) * regularization * share
        missed = factor if settings.l2_rows == "all" else 1.0
        with np.errstate(over="ignore"):  # divergence is checked at the end of the epoch
            powers.append((missed ** np.arange(n_batches + 1)).astype(np.float32))
        factors.append(np.float32(factor))
    return L2Factors(powers[0], powers[1], factors[0], factors[1])


class SampledEngine(ArrayEngine):
    """Trains factor tables in place, an epoch at a time. An epoch depends only on the seed and its number.

    Parameters
    ----------
    train
        The training data.
    tables
        The factor tables, which are trained in place.
    objective
        A pointwise or pairwise objective.
    negatives
        The sampling distribution of negatives.
    settings
        Learning rate, regularization, batches.
    seed
        Determines the samples.
    n_jobs
        Number of threads; -1: all cores. It does not change the result.
    exposure
        What is known of exposure; None: nothing.
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
        exposure: KnownExposure | None = None,
    ) -> None:
        check_batch(min(settings.batch_size, train.n_interactions), settings.n_negatives, tables.users.shape[1])
        self.exposure = exposure or KnownExposure()
        self.samples = Samples(train, negatives, settings, seed)
        self.train, self.tables, self.settings = train, tables, settings
        self.objective, self.negatives = objective, negatives
        self.threads = thread_count(n_jobs)
        self.n_batches = self.samples.n_batches
        self.user_last_updated = np.zeros(train.n_users, dtype=np.int32)
        self.item_last_updated = np.zeros(train.n_items, dtype=np.int32)
        self._steps = compiled_steps(objective)  # type: ignore[arg-type]
        self._counters = np.zeros((2, 8), dtype=np.int64)  # barrier and chunks, each in its own cache line
        self._buffers = self._allocate()

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Train on all positives once."""
        share = l2_share(self.settings, self.train.n_interactions)
        factors = l2_factors(self.settings, number, share, self.n_batches)
        self.train_batches(number, 0, factors, progress)
        self.apply_l2(factors, self.n_batches)

    def apply_l2(self, factors: L2Factors, batches: int) -> None:
        """Apply the L2 that rows have missed up to a batch."""
        width, of_users = self.tables.width, factors.of_users(biased=self.exposure.offset is not None)
        of_users.apply(self.tables.users, self.user_last_updated, width, batches)
        factors.apply(self.tables.items, self.item_last_updated, width, batches)

    def train_batches(
        self, number: int, offset: int, factors: L2Factors, progress: Callable[[int], None] | None = None
    ) -> None:
        """Train on all positives once; the first batch has the number `offset`. The missed L2 is left to apply."""
        settings, n = self.settings, self.train.n_interactions
        key = self.samples.key(number)
        batches_per_call = max(1, SAMPLES_PER_CALL // (settings.batch_size * (1 + settings.n_negatives)))
        with Team(self.threads) as team:
            for first in range(0, self.n_batches, batches_per_call):
                start = first * settings.batch_size
                stop = min(n, start + batches_per_call * settings.batch_size)
                entries = self._entries(team, number, start, stop)
                self._run(team, offset + first, entries, key, settings.rate(number), *factors)
                if progress is not None:
                    progress(stop)

    def _entries(self, team: Team, epoch: int, start: int, stop: int) -> NDArray[np.int32]:
        """The positives start ... stop - 1 of an epoch; each thread makes those of some batches."""
        size = self.settings.batch_size
        step = -(-(stop - start) // (size * self.threads)) * size
        parts = team.map(
            lambda at: self.samples.entries(epoch, at, min(stop, at + step)), range(start, stop, step)
        )
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _run(self, team: Team, first: int, entries: Any, key: Any, rate: float, *l2_factors: Any) -> None:
        """Run some batches, from batch `first` on, on all threads."""
        kernel = compiled_batches()
        from truelike.training.sgd.barrier import abort

        matrix, tables, settings = self.train._csr, self.tables, self.settings
        batch_size = min(settings.batch_size, self.train.n_interactions)
        self._counters[:] = 0

        def run(thread: int) -> None:
            kernel(
                thread, self.threads, *self._counters, first, batch_size, entries, key,
                self.train._user_of_entry, matrix.indices, matrix.indptr, self.samples.bit_table,
                tables.users.reshape(-1), tables.items.reshape(-1),
                self.user_last_updated, self.item_last_updated,
                np.uint64(tables.width), np.uint64(tables.users.shape[1] - tables.width),
                np.float32(rate), *l2_factors, settings.order == "blocks",
                settings.n_negatives, self.negatives.candidates, *self.samples.alias_tables,
                issubclass(self.objective, Pairwise), np.float32(settings.positive_factor), *self._steps,
                *self.exposure.arguments(),
                *self._buffers.values(),
            )  # fmt: skip

        team.run(run, abort=lambda: abort(self._counters))

    def _allocate(self) -> dict[str, Any]:
        """Allocate all buffers of the loops, in the order of the kernel's arguments.

        They are allocated once, so that no thread can run out of memory while others wait for it.
        """
        from truelike.training.sgd.kernels import BLOCK

        positives = min(self.settings.batch_size, self.train.n_interactions)
        samples = positives * (1 + self.settings.n_negatives)
        n_items, threads, row_width = self.train.n_items, self.threads, self.tables.users.shape[1]
        return {
            "old_rows": aligned_zeros(positives, row_width).reshape(-1),
            "sample_item": np.empty(samples, dtype=np.int32),
            "sample_slot": np.empty(samples, dtype=np.int32),
            "sample_step": np.empty(samples, dtype=np.float32),
            "sample_flip": np.zeros(samples, dtype=np.float32),
            "bounds": self._item_bounds(),
            "item_cursor": np.zeros(n_items, dtype=np.int32),
            "own_samples": np.tile(np.arange(samples + 1, dtype=np.int32), (threads, 1)),
            "touched_items": np.empty((threads, min(samples, n_items) + 1), dtype=np.int32),
            "row_offsets": np.empty((threads, samples), dtype=np.uint32),
            "steps": np.empty((threads, samples), dtype=np.float32),
            "flips": np.empty((threads, samples), dtype=np.float32),
            "offsets": np.empty((threads, BLOCK + 4), dtype=np.uint64),
            "gradient": np.empty((threads, row_width), dtype=np.float32),
            "scratch": np.zeros((threads, 6, BLOCK + 4), dtype=np.float32),
        }

    def _item_bounds(self) -> NDArray[np.int32]:
        """Return the bounds of the threads' items: thread t owns items bounds[t] ... bounds[t + 1] - 1.

        All threads have about the same number of samples.
        """
        popularity = self.train.popularity()
        probabilities = self.negatives.weights(popularity)
        weights = popularity + probabilities * (self.settings.n_negatives * popularity.sum() / probabilities.sum())
        edges = np.linspace(0, weights.sum(), self.threads + 1)
        bounds = np.searchsorted(np.cumsum(weights), edges)
        bounds[0], bounds[-1] = 0, len(popularity)
        return bounds.astype(np.int32)

    def loss(self) -> float:
        """Return minus the mean likelihood of a fixed sample of positives and their negatives."""
        tables, exposure, objective = self.tables, self.exposure, self.objective

        def scores(left: Any, right: Any) -> NDArray[np.float64]:
            return np.asarray(np.einsum("nk,nmk->nm", left[users], right[rows]), dtype=np.float64)

        if exposure.labelled:
            entries = self.samples.loss_entries
            users, rows = self.train._user_of_entry[entries], self.train._csr.indices[entries][:, None]
            r = scores(tables.user_factors, tables.item_factors)
            if exposure.offset is not None:
                assert tables.item_bias is not None
                r += tables.item_bias[rows] + exposure.offset
            g = np.full(r.shape, exposure.logit) if not len(exposure.logits) else exposure.logits[entries, None]
            return labelled_loss(objective, r, g.astype(np.float64), exposure.taken[entries] == 1)
        users, items, negatives = self.samples.loss_samples
        rows = np.column_stack([items, negatives])
        r = scores(tables.user_factors, tables.item_factors)
        g = scores(tables.user_flips, tables.item_flips)
        if exposure.rates is not None:
            g = exposure.rates.flip_logits(users[:, None], rows).astype(np.float64)
        return mean_loss(objective, r, g)

    def state(self) -> dict[str, NDArray[Any]]:
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


@lru_cache(maxsize=1)
def compiled_batches() -> Any:
    """Return the compiled loops. The first call of an installation compiles them and reports it."""
    from truelike.progress import compiling

    with compiling("the training loops"):
        from truelike.training.sgd.kernels import compile_batches

        return compile_batches()


@lru_cache(maxsize=64)
def compiled_steps(objective: type[Objective]) -> tuple[Any, Any]:
    """Return the compiled steps of an objective, for positives and for negatives.

    For a pairwise objective both are the steps of pairs.
    """
    from truelike.training.objective_compiler import compile_steps

    if issubclass(objective, Pairwise):
        pairs = compile_steps(objective.pair, pairwise=True, exposure=objective.uses_exposure)
        return pairs, pairs
    if not issubclass(objective, Pointwise):
        raise ParameterError(f"the objective {objective.__name__} is neither pointwise nor pairwise")
    return compile_steps(objective.positive), compile_steps(objective.negative)
