"""NeuMF, neural collaborative filtering (He et al., WWW 2017): a product of embeddings beside a perceptron.

The paper's last layer is a vector of weights over both towers laid side by side, which is the same as the sum of
two towers with weights of their own; so it is written here. What differs from the paper: any objective instead of
the logistic loss alone, and `factors` is the width of all four embeddings, with layers that halve it, where the
paper counts from the last layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from truelike.data.dataset import Dataset
from truelike.models.deep.backend import nn, torch
from truelike.models.deep.networks import Inputs, Maker, Networks
from truelike.models.deep.recommender import NetworkModel, objective_field
from truelike.parameters import number, whole_number


def _embedding(n: int, width: int, init_scale: float) -> Any:
    table = nn.Embedding(n, width)
    nn.init.normal_(table.weight, std=init_scale)
    return table


class GMFNetwork(nn.Module):
    """Generalised matrix factorization: h . (p_u * q_i)."""

    broadcasts = True

    def __init__(self, inputs: Inputs, *, init_scale: float = 0.1) -> None:
        super().__init__()
        self.users = _embedding(inputs.n_users, inputs.factors, init_scale)
        self.items = _embedding(inputs.n_items, inputs.factors, init_scale)
        self.head = nn.Linear(inputs.factors, 1, bias=False)
        nn.init.constant_(self.head.weight, 1.0)  # as in matrix factorization

    def forward(self, users: Any, items: Any) -> Any:
        """The scores of pairs."""
        return (self.users(users) * self.items(items)) @ self.head.weight[0]

    def grid(self, users: Any, items: Any) -> Any:
        """The scores of all pairs of some users and some items."""
        weighted = self.items(items) * self.head.weight
        return torch.stack([weighted @ user for user in self.users(users)])


class MLPNetwork(nn.Module):
    """A perceptron of both embeddings laid side by side: its first layer is a sum of two parts."""

    broadcasts = True

    def __init__(self, inputs: Inputs, *, layers: int = 3, dropout: float = 0.0, init_scale: float = 0.1) -> None:
        super().__init__()
        self.width = inputs.factors
        widths = [2 * inputs.factors, *(max(1, inputs.factors >> n) for n in range(layers))]
        self.users = _embedding(inputs.n_users, inputs.factors, init_scale)
        self.items = _embedding(inputs.n_items, inputs.factors, init_scale)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(widths[-1], 1, bias=False)

    def forward(self, users: Any, items: Any) -> Any:
        """The scores of pairs."""
        return self._beyond(self._of_users(users) + self._of_items(items))

    def grid(self, users: Any, items: Any) -> Any:
        """The scores of all pairs of some users and some items."""
        of_items = self._of_items(items)
        return torch.stack([self._beyond(self._of_users(user) + of_items) for user in users])

    def _of_users(self, users: Any) -> Any:
        """What users bring to the first layer."""
        return nn.functional.linear(self.users(users), self.layers[0].weight[:, : self.width])

    def _of_items(self, items: Any) -> Any:
        """What items bring to it, and its bias."""
        first = self.layers[0]
        return nn.functional.linear(self.items(items), first.weight[:, self.width :], first.bias)

    def _beyond(self, hidden: Any) -> Any:
        """From what the first layer gives to the scores."""
        hidden = self.dropout(torch.relu(hidden))
        for layer in self.layers[1:]:
            hidden = self.dropout(torch.relu(layer(hidden)))
        return hidden @ self.head.weight[0]


class NeuMFNetwork(nn.Module):
    """Both towers, added up."""

    broadcasts = True
    personal = ("gmf.users", "mlp.users")

    def __init__(self, inputs: Inputs, *, layers: int = 3, dropout: float = 0.0, init_scale: float = 0.1) -> None:
        super().__init__()
        self.gmf = GMFNetwork(inputs, init_scale=init_scale)
        self.mlp = MLPNetwork(inputs, layers=layers, dropout=dropout, init_scale=init_scale)

    def forward(self, users: Any, items: Any) -> Any:
        """The scores of pairs."""
        return self.gmf(users, items) + self.mlp(users, items)

    def grid(self, users: Any, items: Any) -> Any:
        """The scores of all pairs of some users and some items."""
        return self.gmf.grid(users, items) + self.mlp.grid(users, items)

    def item_vectors(self) -> Any:
        """The items' embeddings of both towers."""
        return torch.cat([self.gmf.items.weight, self.mlp.items.weight], dim=1)


@dataclass(kw_only=True, eq=False, repr=False)
class NeuMF(NetworkModel):
    """Neural matrix factorization (He et al., WWW 2017): a product of embeddings beside a perceptron of them.

    Parameters
    ----------
    layers
        Hidden layers of the perceptron: the first is `factors` wide, each further one half of that before.
    dropout
        The share of hidden units that is left out at each step of training.
    init_scale
        The standard deviation of the embeddings that training starts from.
    pretrain
        So many epochs for each of the two towers by itself, which are then put together, each with half of its
        weight, as in the paper. 0: both are trained together from the start.
    **others
        As for every network: see `NetworkModel`.

    Examples
    --------
    >>> import truelike as tl
    >>> log = tl.synthetic.World(n_users=200, n_items=100).log()
    >>> tl.NeuMF(factors=8, epochs=2).fit(log).recommend(0, k=3).height
    3
    """

    objective: Any = objective_field("BPO")
    layers: int = whole_number(3, low=1, high=10)
    dropout: float = number(0.0, low=0.0, high=0.95)
    init_scale: float = number(0.1, low=0.0)
    pretrain: int = whole_number(0, low=0)

    def _preference(self) -> Maker:
        return partial(NeuMFNetwork, layers=self.layers, dropout=self.dropout, init_scale=self.init_scale)

    def _prepare(self, log: Dataset, trained: Networks, /) -> None:
        for tower in (trained.preference.gmf, trained.preference.mlp) if self.pretrain else ():
            alone = Networks(tower, None if trained.flips is None else trained.copy().flips)
            engine = self._engine(log, alone)
            for epoch in range(self.pretrain):
                engine.epoch(epoch)
            with torch.no_grad():
                tower.head.weight.mul_(0.5)
