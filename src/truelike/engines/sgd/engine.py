"""The sampled engine: mini-batch SGD on positives and sampled negatives, as in the paper.

`SampledEngine` prepares an epoch: the order of the positives, the learning rate and the L2 factors. `batches` runs the
compiled loops of `kernels`, on one or more threads, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.engines.engine import ArrayEngine
from truelike.engines.sgd.batches import Batches, L2Factors, compiled_steps
from truelike.engines.sgd.samples import Entries, Samples, SGDSettings, mean_loss
from truelike.engines.tables import Tables
from truelike.negatives import Negatives
from truelike.objectives import Objective, Pairwise


def l2_share(settings: SGDSettings, n_interactions: int) -> float:
    """Return how much of the L2 a batch applies: its part of the epoch, or all of it."""
    return min(1.0, settings.batch_size / n_interactions) if settings.l2_schedule == "epoch" else 1.0


def l2_factors(settings: SGDSettings, epoch: int, share: float, n_batches: int) -> L2Factors:
    """Return the factors by which rows shrink in an epoch of so many batches, each with a share of the L2."""
    rate = settings.rate(epoch)
    steps = (rate * settings.regularization * share, rate * settings.flip_regularization * share)
    return L2Factors.of(steps, n_batches)


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
    ) -> None:
        self.train, self.tables, self.settings = train, tables, settings
        self.objective, self.negatives = objective, negatives
        popularity = train.popularity()
        probabilities = negatives.weights(popularity)
        drawn = settings.n_negatives * popularity.sum() / probabilities.sum()
        self.batches = Batches(
            train,
            tables,
            compiled_batches,
            compiled_steps(objective),  # type: ignore[arg-type]
            batch_size=settings.batch_size,
            samples_per_entry=1 + settings.n_negatives,
            item_weights=popularity + probabilities * drawn,
            sequential=settings.order == "blocks",
            n_jobs=n_jobs,
        )
        self.samples = Samples(train, negatives, settings, seed)

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Train on all positives once."""
        share = l2_share(self.settings, self.train.n_interactions)
        factors = l2_factors(self.settings, number, share, self.batches.n_batches)
        self.train_batches(number, 0, factors, progress)
        self.batches.apply_l2(factors, self.batches.n_batches)

    def train_batches(
        self, number: int, first: int, factors: L2Factors, progress: Callable[[int], None] | None = None
    ) -> None:
        """Train on all positives once; the first batch has the number `first`. The missed L2 is left to apply."""
        from truelike.engines.sgd.kernels import Drawing

        settings, samples = self.settings, self.samples
        drawing = Drawing(
            samples.key(number),
            samples.bit_table,
            settings.n_negatives,
            self.negatives.candidates,
            *samples.alias_tables,
            issubclass(self.objective, Pairwise),
            np.float32(settings.positive_factor),
        )

        def entries(start: int, stop: int) -> NDArray[np.int32]:
            return samples.entries(number, start, stop)

        self.batches.epoch(entries, drawing, settings.rate(number), factors, first, progress)

    def loss(self) -> float:
        """Return minus the mean likelihood of a fixed sample of positives and their negatives."""
        tables = self.tables
        users, items, negatives = self.samples.loss_samples
        rows = np.column_stack([items, negatives])

        def scores(left: Any, right: Any) -> NDArray[np.float64]:
            return np.asarray(np.einsum("nk,nmk->nm", left[users], right[rows]), dtype=np.float64)

        r, g = scores(tables.user_factors, tables.item_factors), scores(tables.user_flips, tables.item_flips)
        return mean_loss(self.objective, r, g)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which training can resume."""
        return dict(self.tables.arrays())


@lru_cache(maxsize=1)
def compiled_batches() -> Any:
    """Return the compiled loops. The first call of an installation compiles them and reports it."""
    from truelike.core.progress import compiling

    with compiling("the training loops"):
        from truelike.engines.sgd.kernels import compile_batches

        return compile_batches()
