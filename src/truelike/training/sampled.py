"""The sampled engine: the paper's mini-batch descent, each positive with a few drawn negatives."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.negatives import Negatives
from truelike.objectives import Objective, Pairwise, Pointwise
from truelike.parallel import threads as thread_count
from truelike.training.samples import Recipe, Samples, mean_loss
from truelike.training.tables import Tables, aligned_zeros
from truelike.training.trainer import ArrayEngine

SAMPLES_AT_ONCE = 2_000_000  # between two looks at the clock and the keyboard


class SampledEngine(ArrayEngine):
    """Trains tables in place, an epoch at a time; an epoch depends on the seed and its number alone."""

    def __init__(
        self,
        train: Dataset,
        tables: Tables,
        objective: type[Objective],
        negatives: Negatives,
        recipe: Recipe,
        *,
        seed: int,
        n_jobs: int | None = None,
    ) -> None:
        self.samples = Samples(train, negatives, recipe, seed)
        self.train, self.tables, self.recipe = train, tables, recipe
        self.objective, self.negatives = objective, negatives
        self.threads = thread_count(n_jobs)
        self.n_batches = self.samples.n_batches
        self.user_settled = np.zeros(train.n_users, dtype=np.int32)
        self.item_settled = np.zeros(train.n_items, dtype=np.int32)
        self._steps = compiled_steps(objective)  # type: ignore[arg-type]
        self._meeting = np.zeros((2, 8), dtype=np.int64)  # two counters, each in a line of the cache of its own
        self._room = self._allocate()

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Go once through all positives."""
        from truelike.training.kernels import settle

        recipe, n = self.recipe, self.train.n_interactions
        rate = recipe.rate(number)
        powers, flip_powers, shrink, flip_shrink = self._shrinking(rate)
        key = self.samples.key(number)
        at_once = max(1, SAMPLES_AT_ONCE // (recipe.batch_size * (1 + recipe.n_negatives)))
        with ThreadPoolExecutor(max(1, self.threads - 1)) as pool:
            for first in range(0, self.n_batches, at_once):
                start = first * recipe.batch_size
                stop = min(n, start + at_once * recipe.batch_size)
                entries = self.samples.entries(number, start, stop)
                self._run(pool, first, entries, key, rate, powers, flip_powers, shrink, flip_shrink)
                if progress is not None:
                    progress(stop)
        for table, settled in (
            (self.tables.users, self.user_settled),
            (self.tables.items, self.item_settled),
        ):
            settle(table, settled, self.tables.width, self.n_batches, powers, flip_powers)

    def _run(self, pool: ThreadPoolExecutor, first: int, entries: Any, key: Any, rate: float, *decay: Any) -> None:
        """Let every thread do its share; this thread is the first of them."""
        kernel, room = compiled_batches(), self._room
        matrix, tables, recipe, objective = self.train.matrix, self.tables, self.recipe, self.objective
        self._meeting[:] = 0
        weight = recipe.n_negatives if recipe.positives == "each" else 1

        def share(thread: int) -> None:
            kernel(
                thread, self.threads, *self._meeting, first, recipe.batch_size, entries, key,
                self.train.user_of_entry, matrix.indices, matrix.indptr, self.samples.votes,
                tables.users.reshape(-1), tables.items.reshape(-1), self.user_settled, self.item_settled,
                np.uint64(tables.width), np.uint64(tables.users.shape[1] - tables.width),
                np.float32(rate), *decay,
                recipe.n_negatives, self.negatives.candidates, *self.samples.law,
                issubclass(objective, Pairwise), np.float32(weight), *self._steps,
                *room.values(),
            )  # fmt: skip

        others = [pool.submit(share, thread) for thread in range(1, self.threads)]
        share(0)
        for other in others:
            other.result()

    def _allocate(self) -> dict[str, Any]:
        """All memory that the loops write to, so that no thread can fail for want of it."""
        from truelike.training.kernels import BLOCK

        largest = min(self.recipe.batch_size, self.train.n_interactions)
        samples = largest * (1 + self.recipe.n_negatives)
        n_items, threads, whole = self.train.n_items, self.threads, self.tables.users.shape[1]
        return {
            "old_rows": aligned_zeros(largest, whole).reshape(-1),
            "sample_item": np.empty(samples, dtype=np.int32),
            "sample_slot": np.empty(samples, dtype=np.int32),
            "sample_step": np.empty(samples, dtype=np.float32),
            "sample_flip": np.zeros(samples, dtype=np.float32),
            "bounds": self._item_bounds(),
            "cursor": np.zeros(n_items, dtype=np.int32),
            "own": np.tile(np.arange(samples + 1, dtype=np.int32), (threads, 1)),
            "touched": np.empty((threads, min(samples, n_items) + 1), dtype=np.int32),
            "slots": np.empty((threads, samples), dtype=np.uint32),
            "steps": np.empty((threads, samples), dtype=np.float32),
            "flips": np.empty((threads, samples), dtype=np.float32),
            "places": np.empty((threads, BLOCK + 4), dtype=np.uint64),
            "gradient": np.empty((threads, whole), dtype=np.float32),
            "scratch": np.empty((threads, 4, BLOCK + 4), dtype=np.float32),
        }

    def _item_bounds(self) -> NDArray[np.int32]:
        """Items bounds[t] ... bounds[t + 1] - 1 are thread t's: stretches with about as many samples each."""
        popularity = self.train.popularity()
        law = self.negatives.weights(popularity)
        weights = popularity + law * (self.recipe.n_negatives * popularity.sum() / law.sum())
        share = np.linspace(0, weights.sum(), self.threads + 1)
        bounds = np.searchsorted(np.cumsum(weights), share)
        bounds[0], bounds[-1] = 0, len(popularity)
        return bounds.astype(np.int32)

    def _shrinking(self, rate: float) -> tuple[NDArray[np.float32], NDArray[np.float32], np.float32, np.float32]:
        """The factors by which a row shrinks in 0, 1, 2, ... missed batches, and in the one that touches it."""
        share = min(1.0, self.recipe.batch_size / self.train.n_interactions)
        powers, factors = [], []
        for strength in (self.recipe.regularization, self.recipe.flip_regularization):
            factor = 1.0 - rate * strength * (share if self.recipe.prior == "epoch" else 1.0)
            missed = factor if self.recipe.shrink == "all" else 1.0
            with np.errstate(over="ignore"):  # a run that diverges is noticed at the end of its epoch
                powers.append((missed ** np.arange(self.n_batches + 1)).astype(np.float32))
            factors.append(np.float32(factor))
        return powers[0], powers[1], factors[0], factors[1]

    def loss(self) -> float:
        """Minus the mean likelihood of some positives and of some negatives of theirs, always the same ones."""
        users, items, drawn = self.samples.for_loss
        rows, tables = np.column_stack([items, drawn]), self.tables

        def scores(left: Any, right: Any) -> NDArray[np.float64]:
            return np.asarray(np.einsum("nk,nmk->nm", left[users], right[rows]), dtype=np.float64)

        r = scores(tables.user_factors, tables.item_factors)
        return mean_loss(self.objective, r, scores(tables.user_flips, tables.item_flips))

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays that training goes on from."""
        return dict(self.tables.arrays())


@lru_cache(maxsize=1)
def compiled_batches() -> Any:
    """The compiled loops; says so where that takes a while, which is once for each installation."""
    from truelike.progress import compiling

    with compiling("the training loops"):
        from truelike.training.kernels import compile_batches

        return compile_batches()


@lru_cache(maxsize=64)
def compiled_steps(objective: type[Objective]) -> tuple[Any, Any]:
    """The compiled steps of an objective: of positives and of negatives (of pairs, for a pairwise one)."""
    from truelike.training.equations import compile_steps

    if issubclass(objective, Pairwise):
        pairs = compile_steps(objective.pair, pairwise=True)
        return pairs, pairs
    assert issubclass(objective, Pointwise)
    return compile_steps(objective.positive), compile_steps(objective.unvoted)
