"""A network of one's own, trained by NBPO, with matrix factorization for the flips.

    pip install 'truelike[deep]'
    python examples/custom_network.py

The network maps row numbers of users and items to scores, nothing else; ids, samples, early stopping, ranking and
files are the library's.
"""

import torch

import truelike as tl


class Distance(torch.nn.Module):
    """Users and items as points: the nearer, the better liked; and some items are liked by all."""

    def __init__(self, inputs: tl.Inputs) -> None:
        super().__init__()
        self.users = torch.nn.Embedding(inputs.n_users, inputs.factors)
        self.items = torch.nn.Embedding(inputs.n_items, inputs.factors)
        self.liked_by_all = torch.nn.Embedding(inputs.n_items, 1)
        for table in (self.users, self.items, self.liked_by_all):
            torch.nn.init.normal_(table.weight, std=0.1)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        apart = (self.users(users) - self.items(items)).square().sum(dim=-1)
        return self.liked_by_all(items).squeeze(-1) - apart


log = tl.synthetic.World(n_users=500, n_items=300, seed=0).log()
split = tl.split.by_user(log, validation=0.1, test=0.1, seed=0)
model = tl.DeepRecommender(
    preference=Distance,
    objective="NBPO",
    flips="MF",
    factors=16,
    learning_rate=0.03,
    regularization=0.5,
    batch_size=500,
)
model.fit(split.train, validation=split.validation)

print(tl.evaluate(model, split.test, ks=(5, 20)).summary())
print(model.recommend([1, 2], k=3, titles=True))
model.save("distance")  # numbers only; the code stays with you:
print(tl.load("distance", preference=Distance).recommend(1, k=3))
