"""
A model of your own
===================

A model is two classes: a ``tl.Recommender`` that learns, and a ``tl.Scorer`` that answers in row numbers with what was
learned. Ids, lists, unknown users, frames, evaluation, tuning and files come with them.

This one walks two steps along the graph of interactions, from the items of a user to other items of the users
who interacted with them.
"""

import tempfile
from dataclasses import dataclass
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np

import truelike as tl


@dataclass(kw_only=True, eq=False, repr=False)
class RandomWalk(tl.Recommender):
    """Score an item by the users that it shares with the items of the user, divided by popularity^damping."""

    search_space: ClassVar[dict[str, Any]] = {"damping": (0.1, 2.0)}

    damping: float = tl.parameters.number(0.5, low=0.0)

    def _fit(self, train, options):
        """Return the learned attributes by name. Their names end in an underscore."""
        x = train.matrix.astype(bool).astype(np.float32)
        weights = (x.T @ x).toarray() / np.maximum(train.popularity(), 1) ** self.damping
        np.fill_diagonal(weights, 0.0)
        return {"weights_": weights.astype(np.float32)}

    def _make_scorer(self):
        """Return what answers, from the learned attributes."""
        return WalkScorer(self.train_, self.weights_)


class WalkScorer(tl.Scorer):
    """Answers in row numbers of users and items."""

    def __init__(self, train, weights):
        super().__init__(train)
        self.weights = weights

    def score_users(self, users):
        """Return the scores of all items for some users."""
        return self.score_histories(self.train.matrix[users])

    def score_histories(self, histories):
        """Return the scores of all items for new users, each a row of a CSR."""
        return histories.astype(bool).astype(np.float32) @ self.weights

    def similarities(self, items):
        """Return the similarity of all items to some items."""
        return self.weights[items].copy()


# %%
# It is used like a built-in model.

data = tl.synthetic.World(n_users=500, n_items=300, seed=0).dataset()
split = tl.splits.by_user(data, validation=0.1, test=0.1, seed=0)
model = RandomWalk().fit(split)
print(tl.evaluate(model, split, ks=(20,), metrics=["ndcg"]).summary())
print(model.recommend([1], k=3, titles=True))
print(model.recommend_from_items([10, 20], k=3))

# %%
# It can be tuned and compared. ``search_space`` says what to search.

found = tl.tune(RandomWalk, split, n_trials=12, n_workers=1)
print(found.parameters, f"ndcg@20 {found.score:.4f} on validation")

trials = found.trials.sort("damping")
figure, axis = plt.subplots(figsize=(5, 3), layout="constrained")
axis.plot(trials["damping"], trials["ndcg@20"], "o-", color="#2f6fdb")
axis.set_xlabel("damping")
axis.set_ylabel("validation NDCG@20")
plt.show()

# %%
# A saved model holds numbers and no code, so pass the class when you load it.

with tempfile.TemporaryDirectory() as directory:
    model.save(f"{directory}/model")
    again = tl.load(f"{directory}/model", model_class=RandomWalk)
    print(again.recommend([1], k=3))
