"""Fold-in of models that are trained on lists: the row of a new user is trained on lists of the history.

The item tables are fixed. Any listwise objective and any score function has a step, and few have a likelihood whose
expectation over the sample is known, so the row is found by steps on samples, as in training. The samples follow from
the seed, and are the same for all histories of one set of items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.core.arrays import Codes, Doubles, Floats
from truelike.engines.lists.correction import Correction
from truelike.engines.lists.engine import list_steps
from truelike.engines.score_functions import ScoreFunction
from truelike.models.fold_in import FoldIn
from truelike.objectives import Listwise

STEPS = 100  # of Adam
LEARNING_RATE = 0.1  # of the first step; it decreases linearly to zero
BETA_1, BETA_2 = 0.9, 0.99


@dataclass(frozen=True)
class ListFoldIn(FoldIn):
    """New users of a model that is trained on lists."""

    item_factors: Floats
    item_bias: Floats | None
    objective: type[Listwise]
    score: ScoreFunction
    probabilities: Callable[[Codes], NDArray[np.float64]]  # of each item as a negative of a user with a history
    n_negatives: int
    corrected: bool
    seed: int
    l2: float  # of the row of a user with `mean_interactions`; it grows with their number to the power
    frequency_power: float = 0.0
    mean_interactions: float = 1.0

    def row(self, history: Codes, counts: Floats | None = None) -> Floats:
        """The row after steps on lists of the history, in which all interactions count the same."""
        V = self.item_factors
        own, probabilities = V[history].astype(np.float64), self.probabilities(history)
        row = self.score.rows(own.mean(axis=0))
        if not probabilities.any():  # a user who interacted with every item has no negatives
            return np.asarray(row, dtype=np.float32)
        l2 = self.l2 * (len(history) / self.mean_interactions) ** self.frequency_power
        bias = np.zeros(len(V)) if self.item_bias is None else self.item_bias.astype(np.float64)
        shift = bias - Correction.of_history(probabilities, self.n_negatives).items if self.corrected else bias
        first, second = np.zeros_like(row), np.zeros_like(row)
        for step, drawn in enumerate(self._drawn(probabilities), start=1):
            negatives = V[drawn]
            r = negatives @ row + shift[drawn]
            lists = np.column_stack([own @ row + bias[history], np.broadcast_to(r, (len(own), len(r)))])
            steps = list_steps(self.objective, lists)
            gradient = (
                self.score.gradient(row, steps[:, 0] @ own + steps[:, 1:].sum(axis=0) @ negatives) - l2 * row
            )
            first += (1 - BETA_1) * (gradient - first)
            second += (1 - BETA_2) * (gradient * gradient - second)
            size = np.sqrt(second / (1 - BETA_2**step)) + 1e-8
            rate = LEARNING_RATE * (1 - (step - 1) / STEPS)
            row = self.score.rows(row + rate * first / (1 - BETA_1**step) / size)
        return np.asarray(row, dtype=np.float32)

    def _drawn(self, probabilities: Doubles) -> NDArray[np.intp]:
        """The negatives of each step."""
        edges = np.cumsum(probabilities)
        chance = randomness.uniform(randomness.key(self.seed, "strangers"), np.arange(STEPS * self.n_negatives))
        drawn = np.searchsorted(edges, chance * edges[-1], side="right").clip(max=len(edges) - 1)
        return np.asarray(drawn.reshape(STEPS, self.n_negatives))
