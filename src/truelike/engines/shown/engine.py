"""The engine of shown pairs: mini-batch SGD on the paper's Equation 6 with known flips.

An epoch passes once over all shown pairs, taken or not. So there is no sample of negatives, and the scores are logits
of probabilities. A pair that was never shown counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.engines.engine import ArrayEngine
from truelike.engines.sgd.batches import Batches, L2Factors, compiled_steps
from truelike.engines.sgd.samples import BlockOrder, Entries
from truelike.engines.tables import Tables
from truelike.exposure.shown_pairs import ShownPairs
from truelike.objectives import NBPOo

LOSS_PAIRS = 2_000  # pairs on which the loss is measured


@dataclass(frozen=True)
class ShownSettings:
    """The settings of training on shown pairs.

    Attributes
    ----------
    learning_rate, decay
        Epoch e (from 0) runs at learning_rate x decay^(e + 1).
    regularization, bias_regularization
        The L2 of the factors and of the item biases, which counts once per epoch.
    batch_size
        Pairs in a batch.
    """

    learning_rate: float
    decay: float
    regularization: float
    bias_regularization: float
    batch_size: int

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch."""
        return self.learning_rate * self.decay ** (epoch + 1)

    def factors(self, epoch: int, share: float, n_batches: int) -> L2Factors:
        """Return the factors by which rows shrink in an epoch of so many batches, each with a share of the L2."""
        rate = self.rate(epoch)
        steps = (rate * self.regularization * share, rate * self.bias_regularization * share)
        return L2Factors.of(steps, n_batches)


class ShownEngine(ArrayEngine):
    """Trains factors and item biases in place, an epoch at a time. An epoch depends only on the seed and its number.

    Parameters
    ----------
    pairs
        The shown pairs.
    tables
        The tables, with item biases in the rows, which are trained in place.
    settings
        Learning rate, regularization, batches.
    offset
        What is added to all scores.
    seed
        Determines the order of the pairs.
    n_jobs
        Number of threads; -1: all cores. It does not change the result.
    """

    def __init__(
        self,
        pairs: ShownPairs,
        tables: Tables,
        settings: ShownSettings,
        *,
        offset: float,
        seed: int,
        n_jobs: int | None = -1,
    ) -> None:
        self.pairs, self.tables, self.settings, self.offset, self.seed = pairs, tables, settings, offset, seed
        shown = pairs.pairs_of_item()
        entries = Entries.of(pairs.indptr, pairs.indices, shown)
        self.order = BlockOrder(entries)
        self.batches = Batches(
            entries,
            tables,
            _compiled,
            compiled_steps(NBPOo),
            batch_size=settings.batch_size,
            samples_per_entry=1,
            item_weights=shown,
            sequential=True,
            n_jobs=n_jobs,
        )

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Train on all pairs once."""
        share = min(1.0, self.settings.batch_size / self.pairs.n_pairs)
        factors = self.settings.factors(number, share, self.batches.n_batches)
        self.train_batches(number, 0, factors, progress)
        n, width = self.batches.n_batches, self.tables.width
        shrink_users(factors, self.tables.users, self.batches.user_last_updated, width, n)
        factors.apply(self.tables.items, self.batches.item_last_updated, width, n)

    def train_batches(
        self, number: int, first: int, factors: L2Factors, progress: Callable[[int], None] | None = None
    ) -> None:
        """Train on all pairs once; the first batch has the number `first`. The missed L2 is left to apply."""
        from truelike.engines.shown.kernels import Labels

        pairs, key = self.pairs, np.uint64(randomness.key(self.seed, "order", number))
        labels = Labels(pairs.taken, pairs.logits, np.float32(pairs.logit), np.float32(self.offset))

        def entries(start: int, stop: int) -> NDArray[np.int32]:
            return self.order.entries(key, start, stop, self.settings.batch_size)

        self.batches.epoch(entries, labels, self.settings.rate(number), factors, first, progress)

    def loss(self) -> float:
        """Return minus the mean log likelihood of some pairs, spread evenly."""
        return loss_of_pairs(self.tables, self.offset, *some_pairs(self.pairs, LOSS_PAIRS))

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which training can resume."""
        return dict(self.tables.arrays())


def shrink_users(
    factors: L2Factors, users: NDArray[np.float32], last_updated: NDArray[np.int32], width: int, batches: int
) -> None:
    """Apply the L2 that users' rows have missed up to a batch. Their last columns are constants."""
    constant = factors._replace(flip_powers=np.ones_like(factors.flip_powers))
    constant.apply(users, last_updated, width, batches)


def some_pairs(pairs: ShownPairs, n: int, first_user: int = 0) -> tuple[NDArray[Any], ...]:
    """Return users, items, labels and flip logits of about n pairs, spread evenly; the first user has this number."""
    at = np.unique(np.linspace(0, pairs.n_pairs - 1, min(pairs.n_pairs, n)).astype(np.int64))
    listed = pairs.listed(at)
    return listed.users.astype(np.int64) + first_user, listed.items, listed.taken, listed.logits


def loss_of_pairs(
    tables: Tables, offset: float, users: Any, items: Any, taken: NDArray[np.bool_], logits: NDArray[Any]
) -> float:
    """Return minus the mean log likelihood of pairs."""
    assert tables.item_bias is not None
    r = np.einsum("nk,nk->n", tables.user_factors[users], tables.item_factors[items]).astype(np.float64)
    r += tables.item_bias[items] + offset
    g = logits.astype(np.float64)
    likelihood = NBPOo.likelihood_positive(r[taken], g[taken]).sum()
    likelihood += NBPOo.likelihood_negative(r[~taken], g[~taken]).sum()
    return -float(likelihood / len(r))


def _compiled() -> Any:
    from truelike.engines.shown.kernels import compiled_batches

    return compiled_batches()
