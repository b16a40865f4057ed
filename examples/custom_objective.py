"""
An objective of your own
========================

An objective is a class with short functions of numbers. The same lines run in the compiled loops, in NumPy and in
PyTorch.

This one is BPO with weaker negatives: the log likelihood of a negative counts by a constant weight, here one half.
"""

import tempfile

import matplotlib.pyplot as plt

import truelike as tl
from truelike.objectives import Pointwise, log, sigmoid

WEIGHT = 0.5


class SoftNegatives(Pointwise):
    """ln sigma(r) for a positive, half of ln sigma(-r) for a negative."""

    name = "soft-negatives"

    @staticmethod
    def positive(r, g):
        """Return the step of r and of g for a positive: the gradient of what is maximized."""
        return sigmoid(-r), 0 * g

    @staticmethod
    def negative(r, g):
        """Return the steps for a negative."""
        return -WEIGHT * sigmoid(r), 0 * g

    @staticmethod
    def likelihood_positive(r, g):
        """Return what is maximized; it is reported as the loss."""
        return log(sigmoid(r))

    @staticmethod
    def likelihood_negative(r, g):
        """Return what is maximized for a negative."""
        return WEIGHT * log(sigmoid(-r))


# %%
# The objective trains a model with sampled negatives and one over all items.

data = tl.synthetic.World(n_users=500, n_items=300, seed=0).dataset()
split = tl.splits.by_user(data, validation=0.1, test=0.1, seed=0)
models = [
    tl.SampledMF(objective="BPO", factors=32, epochs=30),
    tl.SampledMF(objective=SoftNegatives, factors=32, epochs=30),
    tl.ExactMF(objective=SoftNegatives, factors=32),
]
names = ["BPO, sampled", "soft negatives, sampled", "soft negatives, all items"]
for name, model in zip(names, models, strict=True):
    model.fit(split, progress=False)
    result = tl.evaluate(model, split, ks=(20,), metrics=["ndcg"])
    print(f"{name}: ndcg@20 {result['ndcg@20']:.4f}")

# %%
# The learning curves: ``history_`` has one row an epoch.

figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, model in zip(names, models, strict=True):
    axis.plot(model.history_["epoch"], model.history_["ndcg@20"], label=name)
axis.set_xlabel("epoch")
axis.set_ylabel("validation NDCG@20")
axis.legend(frameon=False)
plt.show()

# %%
# A saved model holds numbers and no code, so pass the class when you load it.

with tempfile.TemporaryDirectory() as directory:
    models[1].save(f"{directory}/model")
    again = tl.load(f"{directory}/model", objective=SoftNegatives)
    print(again.recommend([1], k=3, titles=True))
