"""LightGCN (He et al., SIGIR 2020): embeddings that are propagated over the graph of interactions.

With E the embeddings of users and items on top of each other and A the adjacency matrix of the interactions, a layer
is D^-1/2 A D^-1/2 times the one before, starting from E, and the final embedding is the mean of the layers.
Differences from the paper: it takes any objective instead of BPR only, and the L2 term is on the whole of E instead
of on the rows of a batch.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from truelike.core.parameters import number, whole_number, with_inherited_parameters
from truelike.engines.torch.backend import Tensor, nn, torch
from truelike.engines.torch.networks import Inputs, Maker
from truelike.models.networks.base import NetworkModel, objective_field
from truelike.models.networks.ragged import take_rows

INIT_SCALE = 0.1  # standard deviation of the initial embeddings


class LightGCNNetwork(nn.Module):
    """The mean of (D^-1/2 A D^-1/2)^l E over l = 0 ... layers; the score is a dot product of its rows."""

    broadcasts = True

    def __init__(self, inputs: Inputs, *, layers: int = 3) -> None:
        super().__init__()
        self.layers, self.n_users = layers, inputs.n_users
        self.embeddings = nn.Embedding(inputs.n_users + inputs.n_items, inputs.factors)
        nn.init.normal_(self.embeddings.weight, std=INIT_SCALE)
        train = inputs.dataset
        self.popularity = np.maximum(train.popularity(), 1)
        by_user = np.sqrt(np.maximum(train.interactions_per_user(), 1))[train.user_of_entry]
        weights = 1 / (by_user * np.sqrt(self.popularity)[train.csr.indices])
        observed = sparse.csr_array(
            (weights.astype(np.float32), train.csr.indices, train.csr.indptr), train.csr.shape
        )
        self.graph = _Graph(observed)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Score pairs of users and items."""
        final = self._final()
        return (take_rows(final, users) * take_rows(final, items + self.n_users)).sum(dim=-1)

    def vectors(self) -> tuple[Tensor, Tensor, None]:
        """Return the final embeddings."""
        final = self._final()
        return final[: self.n_users], final[self.n_users :], None

    def new_user_vectors(self, histories: sparse.csr_array) -> Tensor:
        """Return the vectors of new users, whose own embedding is zero: the propagated layers of their items."""
        layers = [self.embeddings.weight]
        for _ in range(self.layers - 1):
            layers.append(self._layer(layers[-1]))
        of_items = sum(layer[self.n_users :] for layer in layers[: self.layers]) / (self.layers + 1)
        observed = (histories != 0).astype(np.float32)
        scaled = observed.multiply(1 / np.sqrt(self.popularity)).tocsr()
        rows = scaled @ of_items.detach().cpu().numpy() / np.sqrt(np.maximum(observed.sum(axis=1), 1))[:, None]
        return torch.from_numpy(rows.astype(np.float32))

    def _layer(self, table: Tensor) -> Tensor:
        """D^-1/2 A D^-1/2 times a table."""
        by_user, by_item = self.graph.on(table.device)
        return torch.cat([by_user @ table[self.n_users :], by_item @ table[: self.n_users]])

    def _mean_of_layers(self, table: Tensor) -> Tensor:
        total = layer = table
        for _ in range(self.layers):
            layer = self._layer(layer)
            total = total + layer
        return total / (self.layers + 1)

    def _final(self) -> Tensor:
        return _Symmetric.apply(self.embeddings.weight, self._mean_of_layers)


class _Symmetric(torch.autograd.Function):
    """A linear map with a symmetric matrix: its backward pass is the map itself, so no layer is stored."""

    @staticmethod
    def forward(context: Any, table: Tensor, linear: Any) -> Tensor:
        context.linear = linear
        return linear(table)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return context.linear(gradient), None


class _Graph:
    """The normalised interactions and their transpose. They never change, so copies of a network share them."""

    def __init__(self, by_user: sparse.csr_array) -> None:
        self.both = (_tensor(by_user), _tensor(by_user.T.tocsr()))

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return both matrices on a device."""
        if self.both[0].device != device:
            self.both = (self.both[0].to(device), self.both[1].to(device))
        return self.both

    def __deepcopy__(self, memory: Any) -> _Graph:
        return self


def _tensor(matrix: sparse.csr_array) -> Tensor:
    parts = (torch.from_numpy(matrix.indptr), torch.from_numpy(matrix.indices), torch.from_numpy(matrix.data))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(*parts, size=matrix.shape, check_invariants=False)


@with_inherited_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class LightGCN(NetworkModel):
    """LightGCN (He et al., SIGIR 2020): matrix factorization with embeddings propagated over the interactions.

    Parameters
    ----------
    layers : int, default 3
        Number of propagation layers.
    batch_size : int or None, default None
        Positives in a batch. None: 5,000, or a fortieth of the interactions if this is more, because every batch
        propagates over the whole graph.
    regularization : float, default 1.0
        L2 of the embeddings before propagation, which counts once per pass over the data.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.synthetic.World(n_users=200, n_items=100).dataset()
    >>> tl.LightGCN(factors=8, epochs=2).fit(data).recommend(0, k=3).height
    3
    """

    search_space: ClassVar[dict[str, Any]] = {
        **NetworkModel.search_space,
        "learning_rate": (0.01, 0.1),
        "regularization": (0.1, 10.0),
        "layers": (1, 3),
    }

    objective: Any = objective_field("BPR")
    learning_rate: float = number(0.05, low=1e-9)
    # lower than for other networks: the mean of the layers is small compared to E
    regularization: float | None = number(1.0, low=0.0)
    batch_size: int | None = whole_number(None, low=1, high=2**31 - 1)
    layers: int = whole_number(3, low=1)

    def _preference(self) -> Maker:
        return partial(LightGCNNetwork, layers=self.layers)
