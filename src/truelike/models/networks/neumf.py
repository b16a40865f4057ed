"""NeuMF, neural matrix factorization (He et al., WWW 2017): a product of embeddings beside a perceptron.

The paper's last layer is one vector of weights over the concatenated towers. That is the sum of two towers with
weights of their own, and is implemented so. Differences from the paper: it takes any objective instead of the logistic
loss only, and `factors` is the width of all four embeddings, with layers that halve it; the paper counts from the last
layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from truelike.core.parameters import whole_number, with_inherited_parameters
from truelike.engines.torch.backend import Module, Tensor, nn, torch
from truelike.engines.torch.networks import Inputs, Maker
from truelike.models.networks.base import NetworkModel, objective_field

INIT_SCALE = 0.1  # standard deviation of the initial embeddings


def _embedding(n: int, width: int) -> Module:
    table = nn.Embedding(n, width)
    nn.init.normal_(table.weight, std=INIT_SCALE)
    return table


class GMFNetwork(nn.Module):
    """Generalised matrix factorization: h . (p_u * q_i)."""

    broadcasts = True

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.users = _embedding(inputs.n_users, inputs.factors)
        self.items = _embedding(inputs.n_items, inputs.factors)
        self.head = nn.Linear(inputs.factors, 1, bias=False)
        nn.init.constant_(self.head.weight, 1.0)  # as in matrix factorization

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Score pairs of users and items."""
        return (self.users(users) * self.items(items)) @ self.head.weight[0]

    def score_grid(self, users: Tensor, items: Tensor) -> Tensor:
        """Score all pairs of some users and some items."""
        weighted = self.items(items) * self.head.weight
        return torch.stack([weighted @ user for user in self.users(users)])


class MLPNetwork(nn.Module):
    """A perceptron of the two concatenated embeddings; its first layer is a sum of a user part and an item part."""

    broadcasts = True

    def __init__(self, inputs: Inputs, *, layers: int = 3) -> None:
        super().__init__()
        self.width = inputs.factors
        widths = [2 * inputs.factors, *(max(1, inputs.factors >> n) for n in range(layers))]
        self.users = _embedding(inputs.n_users, inputs.factors)
        self.items = _embedding(inputs.n_items, inputs.factors)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.head = nn.Linear(widths[-1], 1, bias=False)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Score pairs of users and items."""
        return self._after_first_layer(self._user_part(users) + self._item_part(items))

    def score_grid(self, users: Tensor, items: Tensor) -> Tensor:
        """Score all pairs of some users and some items."""
        item_part = self._item_part(items)
        return torch.stack([self._after_first_layer(self._user_part(user) + item_part) for user in users])

    def _user_part(self, users: Tensor) -> Tensor:
        """The users' part of the first layer."""
        return nn.functional.linear(self.users(users), self.layers[0].weight[:, : self.width])

    def _item_part(self, items: Tensor) -> Tensor:
        """The items' part of the first layer, and its bias."""
        first = self.layers[0]
        return nn.functional.linear(self.items(items), first.weight[:, self.width :], first.bias)

    def _after_first_layer(self, hidden: Tensor) -> Tensor:
        """The scores from the sums of the first layer."""
        hidden = torch.relu(hidden)
        for layer in self.layers[1:]:
            hidden = torch.relu(layer(hidden))
        return hidden @ self.head.weight[0]


class NeuMFNetwork(nn.Module):
    """The sum of both towers."""

    broadcasts = True
    user_embedding_names = ("gmf.users", "mlp.users")

    def __init__(self, inputs: Inputs, *, layers: int = 3) -> None:
        super().__init__()
        self.gmf = GMFNetwork(inputs)
        self.mlp = MLPNetwork(inputs, layers=layers)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Score pairs of users and items."""
        return self.gmf(users, items) + self.mlp(users, items)

    def score_grid(self, users: Tensor, items: Tensor) -> Tensor:
        """Score all pairs of some users and some items."""
        return self.gmf.score_grid(users, items) + self.mlp.score_grid(users, items)

    def item_vectors(self) -> Tensor:
        """Return the item embeddings of both towers."""
        return torch.cat([self.gmf.items.weight, self.mlp.items.weight], dim=1)


@with_inherited_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class NeuMF(NetworkModel):
    """Neural matrix factorization (He et al., WWW 2017): a product of embeddings beside a perceptron of them.

    Parameters
    ----------
    layers : int, default 3
        Hidden layers of the perceptron. The first has `factors` units, each further one half as many.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.synthetic.World(n_users=200, n_items=100).dataset()
    >>> tl.NeuMF(factors=8, epochs=2).fit(data).recommend(0, k=3).height
    3
    """

    objective: Any = objective_field("BPO")
    layers: int = whole_number(3, low=1, high=10)

    def _preference(self) -> Maker:
        return partial(NeuMFNetwork, layers=self.layers)
