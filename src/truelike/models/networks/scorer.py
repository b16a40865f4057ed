"""What models of networks answer in row numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core import randomness
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.engines.torch import backend
from truelike.engines.torch.networks import Networks
from truelike.models.fold_in import SampledFoldIn, rows_of
from truelike.models.networks import new_users
from truelike.models.networks.outputs import Outputs
from truelike.models.scorer import DotProduct, Floats, Scorer
from truelike.objectives import Objective
from truelike.ranking.factor_ranker import factor_score_block


@dataclass(frozen=True)
class Settings:
    """The settings of training that scores of new users follow from: see `SampledFoldIn`."""

    objective: type[Objective]
    probabilities: Callable[[Codes], NDArray[np.float64]]
    n_negatives: int
    weight: float
    l2: float
    seed: int


class NetworkFlips:
    """The flips that a network computes."""

    def __init__(self, train: Dataset, outputs: Outputs) -> None:
        self._train, self._outputs = train, outputs

    def dense_logits(self, users: Codes) -> Floats:
        """The flip logits of all items for some users: a new array (len(users), n_items)."""
        with backend.using_threads(1):  # users are spread over threads already
            return self._outputs.block("flips", users, self._train.n_items)

    def average_logits(self) -> Floats:
        """The flip logits of the average user."""
        return self._outputs.average_user("flips", self._train)


@final
class NetworkScorer(Scorer):
    """Scores of networks.

    Parameters
    ----------
    train
        The training data.
    networks
        The trained networks.
    settings
        How they were trained.
    """

    def __init__(self, train: Dataset, networks: Networks, settings: Settings) -> None:
        super().__init__(train)
        self._data, self._network, self._outputs = train, networks.preference, Outputs(networks)
        self._settings = settings
        self.flips = None if networks.flips is None else NetworkFlips(train, self._outputs)

    @property
    def vectors(self) -> DotProduct | None:
        """The vectors of the network, if it has any."""
        return self._outputs.vectors("preference")

    def score_users(self, users: Codes) -> Floats:
        """By vectors, or user by user."""
        with backend.using_threads(1):  # users are spread over threads already
            return self._outputs.block("preference", users, self.train.n_items)

    @property
    def similarity_vectors(self) -> Floats:
        """Rows of length 1, which a network has or which follow from its scores."""
        return self._outputs.unit_items(self._data)

    def similarities(self, items: Codes) -> Floats:
        """The cosine of the rows of the items."""
        unit = self.similarity_vectors
        return factor_score_block(unit[items], unit)

    def history_vectors(self, histories: sparse.csr_array) -> Floats | None:
        """As the network computes them, or by fold-in, if its score is a dot product."""
        if hasattr(self._network, "new_user_vectors"):
            return new_users.by_network(self._network, histories)
        fold_in = self._fold_in()
        return None if fold_in is None else np.stack([fold_in.row(history) for history in rows_of(histories)])

    def score_histories(self, histories: sparse.csr_array) -> Floats:
        """By vectors, by training the user's embeddings, or by users with similar histories."""
        found, vectors = self.history_vectors(histories), self.vectors
        if found is not None and vectors is not None:
            return vectors.of_vectors(found)
        if hasattr(self._network, "user_embedding_names"):
            return np.stack([self._by_training(history) for history in rows_of(histories)])
        return new_users.by_similar_users(self.score_users, self._data.csr, histories)

    def left_out_scores(self, history: Codes, places: Codes, items: Codes) -> Floats:
        """By rows that are folded in together, if rows are folded in."""
        fold_in, vectors = self._fold_in(), self.vectors
        if fold_in is None or vectors is None or hasattr(self._network, "new_user_vectors"):
            return super().left_out_scores(history, places, items)
        return vectors.of_vectors(fold_in.rows_without(history, places), items)

    def _fold_in(self) -> SampledFoldIn | None:
        """How vectors of new users are found; None if the network has no vectors, or embeddings to be trained."""
        vectors, how = self.vectors, self._settings
        if vectors is None or hasattr(self._network, "user_embedding_names"):
            return None
        return SampledFoldIn(
            vectors.items, vectors.bias, how.objective, self.flips, how.probabilities, how.n_negatives, how.weight,
            how.l2,
        )  # fmt: skip

    def _by_training(self, history: Codes) -> Floats:
        """The scores for a user with this history, by training the user's embeddings."""
        how = self._settings
        edges = np.cumsum(how.probabilities(history))
        # a user who interacted with every item has no negatives
        size = (new_users.STEPS, len(history), how.n_negatives if edges[-1] else 0)
        chance = randomness.uniform(randomness.key(how.seed, "strangers"), np.arange(math.prod(size)))
        drawn = np.searchsorted(edges, chance * edges[-1], side="right").clip(max=len(edges) - 1).reshape(size)
        none = np.zeros(self.train.n_items, dtype=np.float32)
        g = none if self.flips is None else self.flips.average_logits()
        with backend.using_threads(1):
            return new_users.by_training(
                self._network, history, drawn, how.objective, g, weight=how.weight, regularization=how.l2
            )
