"""`Batches`: runs the compiled loops of `kernels` on some threads, with buffers that are allocated once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike.core.parallel import Team
from truelike.core.parallel import threads as thread_count
from truelike.data.dataset import Dataset
from truelike.engines.sgd.samples import Entries
from truelike.engines.tables import Tables, aligned_zeros
from truelike.errors import ParameterError
from truelike.objectives import Objective, Pairwise, Pointwise

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

    @classmethod
    def of(cls, steps: tuple[float, float], n_batches: int) -> L2Factors:
        """Return the factors of an epoch of so many batches, each with a step rate x L2 of preference and of flips."""
        factors = [1.0 - step for step in steps]
        with np.errstate(over="ignore"):  # divergence is checked at the end of the epoch
            powers = [(factor ** np.arange(n_batches + 1)).astype(np.float32) for factor in factors]
        return cls(powers[0], powers[1], np.float32(factors[0]), np.float32(factors[1]))

    def apply(self, table: NDArray[np.float32], last_updated: NDArray[np.int32], width: int, batch: int) -> None:
        """Apply the L2 that rows have missed up to a batch, and reset `last_updated` to 0."""
        from truelike.engines.sgd.kernels import apply_missed_l2

        apply_missed_l2(table, last_updated, width, batch, self.powers, self.flip_powers)


class Batches:
    """Trains the rows of some pairs, a number of batches at a time.

    Parameters
    ----------
    pairs
        The training data.
    tables
        The factor tables, which are trained in place.
    compiled
        Returns the compiled loop over batches, whose first phase draws and scores.
    steps
        The compiled steps of the objective.
    batch_size, samples_per_entry
        Entries in a batch, and samples of each.
    item_weights
        About how often each item is sampled.
    sequential
        See `kernels.Rates`.
    n_jobs
        Number of threads; -1: all cores. It does not change the result.
    """

    def __init__(
        self,
        pairs: Dataset | Entries,
        tables: Tables,
        compiled: Callable[[], Any],
        steps: tuple[Any, Any],
        *,
        batch_size: int,
        samples_per_entry: int,
        item_weights: NDArray[Any],
        sequential: bool,
        n_jobs: int | None,
    ) -> None:
        self.pairs, self.tables, self.compiled, self.steps = pairs, tables, compiled, steps
        self.batch_size, self.samples_per_entry, self.sequential = batch_size, samples_per_entry, sequential
        self.largest = min(batch_size, pairs.n_interactions)  # entries of the largest batch
        check_batch(self.largest, samples_per_entry - 1, tables.users.shape[1])
        self.n_batches = -(-pairs.n_interactions // batch_size)
        self.threads = thread_count(n_jobs)
        self.user_last_updated = np.zeros(pairs.n_users, dtype=np.int32)
        self.item_last_updated = np.zeros(pairs.n_items, dtype=np.int32)
        self._counters = np.zeros((2, 8), dtype=np.int64)  # barrier and chunks, each in its own cache line
        self._allocate(_bounds(item_weights, self.threads))

    def _allocate(self, bounds: NDArray[np.int32]) -> None:
        """Allocate all buffers once, so that no thread can run out of memory while others wait for it."""
        from truelike.engines.sgd.kernels import BLOCK, Grouping, Pairs, Samples, Scratch

        n, threads, row_width = self.largest * self.samples_per_entry, self.threads, self.tables.users.shape[1]
        n_items, matrix = self.pairs.n_items, self.pairs.csr
        self._pairs = Pairs(self.pairs.entry_users, matrix.indices, matrix.indptr)
        self._samples = Samples(
            old_rows=aligned_zeros(self.largest, row_width).reshape(-1),
            item=np.empty(n, dtype=np.int32),
            slot=np.empty(n, dtype=np.int32),
            step=np.empty(n, dtype=np.float32),
            flip=np.zeros(n, dtype=np.float32),
        )
        self._grouping = Grouping(
            bounds=bounds,
            cursor=np.zeros(n_items, dtype=np.int32),
            own_samples=np.tile(np.arange(n + 1, dtype=np.int32), (threads, 1)),
            touched=np.empty((threads, min(n, n_items) + 1), dtype=np.int32),
            row_offsets=np.empty((threads, n), dtype=np.uint32),
            steps=np.empty((threads, n), dtype=np.float32),
            flips=np.empty((threads, n), dtype=np.float32),
        )
        self._scratch = Scratch(
            offsets=np.empty((threads, BLOCK + 4), dtype=np.uint64),
            gradient=np.empty((threads, row_width), dtype=np.float32),
            scratch=np.zeros((threads, 4, BLOCK + 4), dtype=np.float32),
        )

    def epoch(
        self,
        entries: Callable[[int, int], NDArray[np.int32]],
        about: Any,
        rate: float,
        factors: L2Factors,
        first: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Train on all pairs once. The missed L2 is left to apply.

        Parameters
        ----------
        entries
            Returns the entries start ... stop - 1 of the epoch; a batch begins at `start`.
        about
            What the first phase needs beside the pairs.
        rate, factors
            The learning rate, and the factors by which rows shrink.
        first
            The number of the first batch.
        progress
            Called with the number of pairs that are done.
        """
        size, n = self.batch_size, self.pairs.n_interactions
        batches_per_call = max(1, SAMPLES_PER_CALL // (size * self.samples_per_entry))
        with Team(self.threads) as team:
            for batch in range(0, self.n_batches, batches_per_call):
                start = batch * size
                stop = min(n, start + batches_per_call * size)
                step = -(-(stop - start) // (size * self.threads)) * size  # each thread makes some batches
                bounds = [(at, min(stop, at + step)) for at in range(start, stop, step)]
                parts = team.map(lambda part: entries(*part), bounds)
                listed = parts[0] if len(parts) == 1 else np.concatenate(parts)
                self._run(team, first + batch, listed, about, rate, factors)
                if progress is not None:
                    progress(stop)

    def _run(
        self, team: Team, first: int, entries: NDArray[np.int32], about: Any, rate: float, factors: L2Factors
    ) -> None:
        """Run some batches, from batch `first` on, on all threads."""
        from truelike.engines.sgd.barrier import abort

        kernel = self.compiled()
        from truelike.engines.sgd.kernels import Rates, TrainedTables

        width = self.tables.width
        tables = TrainedTables(
            self.tables.users.reshape(-1),
            self.tables.items.reshape(-1),
            self.user_last_updated,
            self.item_last_updated,
            np.uint64(width),
            np.uint64(self.tables.users.shape[1] - width),
        )
        rates = Rates(np.float32(rate), *factors, self.sequential)
        self._counters[:] = 0

        def run(thread: int) -> None:
            kernel(
                thread, self.threads, *self._counters, first, self.largest, self.samples_per_entry, entries,
                about, *self.steps, self._pairs, tables, rates, self._samples, self._grouping, self._scratch,
            )  # fmt: skip

        team.run(run, abort=lambda: abort(self._counters))

    def apply_l2(self, factors: L2Factors, batches: int) -> None:
        """Apply the L2 that rows have missed up to a batch."""
        factors.apply(self.tables.users, self.user_last_updated, self.tables.width, batches)
        factors.apply(self.tables.items, self.item_last_updated, self.tables.width, batches)


def _bounds(weights: NDArray[Any], threads: int) -> NDArray[np.int32]:
    """Return the bounds of the threads' items: thread t owns items bounds[t] ... bounds[t + 1] - 1.

    All threads have about the same number of samples.
    """
    bounds = np.searchsorted(np.cumsum(weights), np.linspace(0, weights.sum(), threads + 1))
    bounds[0], bounds[-1] = 0, len(weights)
    return bounds.astype(np.int32)


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


@lru_cache(maxsize=64)
def compiled_steps(objective: type[Objective]) -> tuple[Any, Any]:
    """Return the compiled steps of an objective, for positives and for negatives.

    For a pairwise objective both are the steps of pairs.
    """
    from truelike.engines.objective_compiler import compile_steps

    if issubclass(objective, Pairwise):
        pairs = compile_steps(objective.pair, pairwise=True)
        return pairs, pairs
    if not issubclass(objective, Pointwise):
        raise ParameterError(f"the objective {objective.__name__} is neither pointwise nor pairwise")
    return compile_steps(objective.positive), compile_steps(objective.negative)
