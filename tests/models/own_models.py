"""A model that a user would write: BPR in NumPy, with public names alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import truelike as tl


@dataclass(kw_only=True, eq=False, repr=False)
class OwnBPR(tl.EpochRecommender):
    """Bayesian personalized ranking (Rendle et al., 2009), one random negative for each interaction and epoch."""

    search_space: ClassVar[dict[str, Any]] = {"factors": [8, 16], "learning_rate": (0.02, 0.2)}

    factors: int = tl.parameters.whole_number(16, low=1)
    learning_rate: float = tl.parameters.number(0.1, low=0.0)
    regularization: float = tl.parameters.number(0.01, low=0.0)

    def initial_arrays(self, train: Any, rng: np.random.Generator) -> dict[str, Any]:
        return {
            "user_vectors": rng.normal(0, 0.1, (train.n_users, self.factors)),
            "item_vectors": rng.normal(0, 0.1, (train.n_items, self.factors)),
            "item_bias": np.zeros(train.n_items),
        }

    def run_epoch(self, train: Any, arrays: dict[str, Any], epoch: int, rng: np.random.Generator) -> float:
        U, V, b = arrays["user_vectors"], arrays["item_vectors"], arrays["item_bias"]
        users, items = train.matrix.nonzero()
        order, losses = rng.permutation(len(users)), []
        for batch in np.array_split(order, 1 + len(order) // 100):
            u, i, j = users[batch], items[batch], rng.integers(train.n_items, size=len(batch))
            margin = (U[u] * (V[i] - V[j])).sum(axis=1) + b[i] - b[j]
            step = self.learning_rate / (1 + np.exp(margin))[:, None]
            l2 = self.learning_rate * self.regularization
            of_user, of_item = step * (V[i] - V[j]) - l2 * U[u], step * U[u]
            np.add.at(U, u, of_user)
            np.add.at(V, i, of_item - l2 * V[i])
            np.add.at(V, j, -of_item - l2 * V[j])
            np.add.at(b, i, step[:, 0])
            np.add.at(b, j, -step[:, 0])
            losses.append(np.logaddexp(0, -margin).mean())
        return float(np.mean(losses))
