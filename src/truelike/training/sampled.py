"""The sampled engine: the paper's mini-batch descent, each positive with a few drawn negatives."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from truelike import randomness
from truelike.data.dataset import Dataset
from truelike.negatives import Negatives, check_drawable
from truelike.objectives import Objective, Pairwise, Pointwise
from truelike.parallel import threads as thread_count
from truelike.training.tables import Tables, aligned_zeros

SAMPLES_AT_ONCE = 2_000_000  # between two looks at the clock and the keyboard
LOSS_SAMPLE = 2_000  # positives on which the loss is measured


@dataclass(frozen=True)
class Recipe:
    """The switches of mini-batch descent, each a choice that the paper's text or its release makes.

    Attributes
    ----------
    learning_rate, decay
        Epoch e (from 0) runs at learning_rate x decay^(e + 1): the release decays before the first epoch too.
    regularization, flip_regularization
        The paper's lambda of Theta and of Phi.
    prior
        "batch": every batch takes the whole prior, as in the release: rows shrink by 1 - rate x lambda at each.
        "epoch": a batch takes its share of it, so that the prior counts once for each pass over the data, as
        in Equation 4, and the best lambda does not depend on the batch size.
    shrink
        "all": every row shrinks at every batch, touched or not. "touched": only the rows of the batch.
    n_negatives
        The paper's rho.
    batch_size
        Positives in a batch.
    order
        "shuffled" anew at each epoch, or in "file" order: all of user 0, then all of user 1, ...
    positives
        A positive's step counts "once" (Equation 8), or once for "each" of its negatives (the release).
    """

    learning_rate: float
    decay: float
    regularization: float
    flip_regularization: float
    prior: Literal["epoch", "batch"]
    shrink: Literal["all", "touched"]
    n_negatives: int
    batch_size: int
    order: Literal["shuffled", "file"]
    positives: Literal["once", "each"]

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch."""
        return self.learning_rate * self.decay ** (epoch + 1)


class SampledEngine:
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
        from truelike.training.drawing import vote_bits

        check_drawable(train)
        self.train, self.tables, self.recipe, self.seed = train, tables, recipe, seed
        self.objective, self.negatives = objective, negatives
        self.threads = thread_count(n_jobs)
        self.n_batches = -(-train.n_interactions // recipe.batch_size)
        self.law = negatives.tables(train.popularity())
        self.user_settled = np.zeros(train.n_users, dtype=np.int32)
        self.item_settled = np.zeros(train.n_items, dtype=np.int32)
        self._steps = compiled_steps(objective)  # type: ignore[arg-type]
        self.votes = vote_bits(train.matrix.indptr, train.matrix.indices, train.n_items)
        self._meeting = np.zeros((2, 8), dtype=np.int64)  # two counters, each in a line of the cache of its own
        self._room = self._allocate()

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Go once through all positives."""
        from truelike.training.kernels import settle

        recipe, n = self.recipe, self.train.n_interactions
        rate = recipe.rate(number)
        powers, flip_powers, shrink, flip_shrink = self._shrinking(rate)
        key = np.uint64(randomness.key(self.seed, "negatives", number))
        order_key = np.uint64(randomness.key(self.seed, "order", number))
        at_once = max(1, SAMPLES_AT_ONCE // (recipe.batch_size * (1 + recipe.n_negatives)))
        with ThreadPoolExecutor(max(1, self.threads - 1)) as pool:
            for first in range(0, self.n_batches, at_once):
                start = first * recipe.batch_size
                stop = min(n, start + at_once * recipe.batch_size)
                entries = self._entries(order_key, start, stop)
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
                self.train.user_of_entry, matrix.indices, matrix.indptr, self.votes,
                tables.users.reshape(-1), tables.items.reshape(-1), self.user_settled, self.item_settled,
                np.uint64(tables.width), np.uint64(tables.users.shape[1] - tables.width),
                np.float32(rate), *decay,
                recipe.n_negatives, self.negatives.candidates, *self.law,
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

    def _entries(self, key: np.uint64, start: int, stop: int) -> NDArray[np.int32]:
        """The positives of some batches. Sorted within a batch, so that a user's stand together."""
        if self.recipe.order == "file":
            return np.arange(start, stop, dtype=np.int32)
        from truelike.training.drawing import permutation

        size = self.recipe.batch_size
        entries: NDArray[np.int32] = permutation(key, start, stop, self.train.n_interactions)
        whole = len(entries) // size * size
        entries[:whole].reshape(-1, size).sort(axis=1)
        entries[whole:].sort()
        return entries

    def loss(self) -> float:
        """Minus the mean likelihood of some positives and of some negatives of theirs, always the same ones.

        Not a number for an objective of the user's own that does not say what it maximises.
        """
        try:
            return self._loss()
        except NotImplementedError:
            return float("nan")

    def _loss(self) -> float:
        users, items, drawn = self._loss_sample
        tables = self.tables

        def scores(left: Any, right: Any, of: NDArray[Any]) -> NDArray[np.float64]:
            return np.asarray(np.einsum("nk,n...k->n...", left[users], right[of]), dtype=np.float64)

        r_i = scores(tables.user_factors, tables.item_factors, items)
        r_j = scores(tables.user_factors, tables.item_factors, drawn)
        if issubclass(self.objective, Pairwise):
            return -float(np.mean(self.objective.likelihood_pair(r_i[:, None], r_j)))
        assert issubclass(self.objective, Pointwise)
        g_i = scores(tables.user_flips, tables.item_flips, items)
        g_j = scores(tables.user_flips, tables.item_flips, drawn)
        voted, unvoted = (
            self.objective.likelihood_positive(r_i, g_i),
            self.objective.likelihood_unvoted(r_j, g_j),
        )
        return -float((voted.sum() + unvoted.sum()) / (r_i.size + r_j.size))

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays that training goes on from."""
        return dict(self.tables.arrays())

    @cached_property
    def _loss_sample(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
        """Users, items and drawn negatives of up to LOSS_SAMPLE positives, spread over the log."""
        from truelike.training.drawing import draw_many

        n, n_items = self.train.n_interactions, self.train.n_items
        chosen = np.unique(np.linspace(0, n - 1, min(n, LOSS_SAMPLE)).astype(np.int64))
        key = np.uint64(randomness.key(self.seed, "loss"))
        indptr, indices = self.train.matrix.indptr, self.train.matrix.indices
        users = self.train.user_of_entry[chosen]
        voted = [indices[indptr[user] : indptr[user + 1]] for user in users]
        rho = self.recipe.n_negatives
        pairs = zip(chosen, voted, strict=True)
        drawn = np.stack([draw_many(key, entry, rho, items, n_items, *self.law) for entry, items in pairs])
        return users, indices[chosen], drawn


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
