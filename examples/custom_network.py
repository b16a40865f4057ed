"""
A network of your own
=====================

Any ``torch.nn.Module`` that maps users and items to scores can be trained by any objective. This one scores by the
distance between points. Matrix factorization models the flips. It needs PyTorch: ``pip install "truelike[deep]"``.

The network sees row numbers only. Ids, samples, early stopping, ranking and files come from the library.
"""

import tempfile

import matplotlib.pyplot as plt
import torch

import truelike as tl


class Distance(torch.nn.Module):
    """Users and items are points. The closer they are, the higher the score; an item has a bias, too."""

    def __init__(self, inputs: tl.Inputs) -> None:
        super().__init__()
        self.users = torch.nn.Embedding(inputs.n_users, inputs.factors)
        self.items = torch.nn.Embedding(inputs.n_items, inputs.factors)
        self.bias = torch.nn.Embedding(inputs.n_items, 1)
        for table in (self.users, self.items, self.bias):
            torch.nn.init.normal_(table.weight, std=0.1)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        """Score pairs of row numbers."""
        squared_distance = (self.users(users) - self.items(items)).square().sum(dim=-1)
        return self.bias(items).squeeze(-1) - squared_distance


# %%
# Train it by NBPO.

data = tl.synthetic.World(n_users=500, n_items=300, seed=0).dataset()
split = tl.splits.by_user(data, validation=0.1, test=0.1, seed=0)
model = tl.DeepRecommender(
    preference=Distance,
    objective="NBPO",
    flips="MF",
    factors=16,
    learning_rate=0.03,
    regularization=0.5,
    batch_size=500,
)
model.fit(split, progress=False)
print(tl.evaluate(model, split, ks=(5, 20), metrics=["ndcg", "f1"]).summary())
print(model.recommend([1, 2], k=3, titles=True))

# %%
# The learning curve: ``history_`` has one row an epoch.

figure, axis = plt.subplots(figsize=(5, 3), layout="constrained")
axis.plot(model.history_["epoch"], model.history_["ndcg@20"], color="#2f6fdb")
axis.set_xlabel("epoch")
axis.set_ylabel("validation NDCG@20")
plt.show()

# %%
# A saved model holds numbers and no code, so pass the class when you load it.

with tempfile.TemporaryDirectory() as directory:
    model.save(f"{directory}/model")
    again = tl.load(f"{directory}/model", preference=Distance)
    print(again.recommend([1], k=3))
