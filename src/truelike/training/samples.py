"""Which positives make a batch, and which unvoted items are drawn for them: the same for every back end.

All of it depends on the seed, the number of the epoch and the place of a positive in the log, and on nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from truelike import randomness
from truelike.data.dataset import Dataset
from truelike.negatives import Negatives, check_drawable
from truelike.objectives import Objective, Pairwise, Pointwise

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
        "shuffled" anew at each epoch; in "file" order: all of user 0, then all of user 1, ...; or by "users": as
        in the file, but the users shuffled anew.
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
    order: Literal["shuffled", "file", "users"]
    positives: Literal["once", "each"]

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch."""
        return self.learning_rate * self.decay ** (epoch + 1)


class Samples:
    """The samples of mini-batch descent on a log."""

    def __init__(self, train: Dataset, negatives: Negatives, recipe: Recipe, seed: int) -> None:
        from truelike.training.drawing import vote_bits

        check_drawable(train)
        self.train, self.negatives, self.recipe, self.seed = train, negatives, recipe, seed
        self.n_batches = -(-train.n_interactions // recipe.batch_size)
        self.law = negatives.tables(train.popularity())
        self._shuffled: tuple[int, NDArray[np.int32]] = (-1, np.zeros(0, dtype=np.int32))
        self.votes = vote_bits(train.matrix.indptr, train.matrix.indices, train.n_items)

    def key(self, epoch: int) -> np.uint64:
        """The key of an epoch's negatives."""
        return np.uint64(randomness.key(self.seed, "negatives", epoch))

    def entries(self, epoch: int, start: int, stop: int) -> NDArray[np.int32]:
        """The positives of some batches. Sorted within a batch, so that a user's stand together."""
        if self.recipe.order == "file":
            return np.arange(start, stop, dtype=np.int32)
        from truelike.training.drawing import permutation

        size = self.recipe.batch_size
        key = np.uint64(randomness.key(self.seed, "order", epoch))
        if self.recipe.order == "users":
            if self._shuffled[0] != epoch:
                users = permutation(key, 0, self.train.n_users, self.train.n_users)
                order = np.argsort(np.argsort(users)[self.train.user_of_entry], kind="stable")
                self._shuffled = (epoch, order.astype(np.int32))
            return self._shuffled[1][start:stop]
        entries: NDArray[np.int32] = permutation(key, start, stop, self.train.n_interactions)
        whole = len(entries) // size * size
        entries[:whole].reshape(-1, size).sort(axis=1)
        entries[whole:].sort()
        return entries

    def drawn(self, key: np.uint64, entries: NDArray[np.int32]) -> NDArray[np.int32]:
        """The negatives of some positives, a row each; hard ones come as that many lots of candidates."""
        from truelike.training.drawing import draw_for

        matrix, n = self.train.matrix, self.recipe.n_negatives * self.negatives.candidates
        log = (self.train.user_of_entry, matrix.indices, matrix.indptr, self.votes, self.train.n_items)
        drawn: NDArray[np.int32] = draw_for(key, entries, n, *log, *self.law)
        return drawn

    @cached_property
    def for_loss(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Users, items and drawn negatives of up to LOSS_SAMPLE positives, spread over the log."""
        n = self.train.n_interactions
        chosen = np.unique(np.linspace(0, n - 1, min(n, LOSS_SAMPLE)).astype(np.int32))
        drawn = self.drawn(np.uint64(randomness.key(self.seed, "loss")), chosen)[:, : self.recipe.n_negatives]
        return self.train.user_of_entry[chosen], self.train.matrix.indices[chosen], drawn


def mean_loss(objective: type[Objective], r: Any, g: Any) -> float:
    """Minus the mean likelihood of rows of (a positive, its negatives).

    Not a number for an objective of the user's own that does not say what it maximises.
    """
    try:
        return _mean_loss(objective, r, g)
    except NotImplementedError:
        return float("nan")


def _mean_loss(objective: type[Objective], r: Any, g: Any) -> float:
    if issubclass(objective, Pairwise):
        return -float(np.mean(objective.likelihood_pair(r[:, :1], r[:, 1:])))
    assert issubclass(objective, Pointwise)
    voted = objective.likelihood_positive(r[:, :1], g[:, :1])
    unvoted = objective.likelihood_unvoted(r[:, 1:], g[:, 1:])
    return -float((voted.sum() + unvoted.sum()) / r.size)
