"""LightGCN (He et al., SIGIR 2020): embeddings that are smoothed along the graph of votes.

With E the users' and the items' embeddings on top of each other and A the votes as a graph, each layer is
D^-1/2 A D^-1/2 E, and the final embedding of a row is the mean of its layers. What differs from the paper: any
objective instead of BPR alone, and the prior is on the whole of E instead of on the rows of a batch.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from truelike.data.dataset import Dataset
from truelike.models.deep.backend import nn, torch
from truelike.models.deep.networks import Inputs, Maker
from truelike.models.deep.ragged import take
from truelike.models.deep.recommender import NetworkModel, objective_field
from truelike.parameters import number, whole_number

SMALLEST_BATCH = 5_000
WALKS = 40  # along the whole graph, at most, in an epoch of a model whose batch_size is not given


class LightGCNNetwork(nn.Module):
    """The mean of the layers of (D^-1/2 A D^-1/2)^l E, l = 0 ... layers; the score is a dot product of them."""

    broadcasts = True

    def __init__(self, inputs: Inputs, *, layers: int = 3, init_scale: float = 0.1) -> None:
        super().__init__()
        self.layers, self.n_users = layers, inputs.n_users
        self.embeddings = nn.Embedding(inputs.n_users + inputs.n_items, inputs.factors)
        nn.init.normal_(self.embeddings.weight, std=init_scale)
        log = inputs.log
        self.popularity = np.maximum(log.popularity(), 1)
        by_user = np.sqrt(np.maximum(log.rows_per_user(), 1))[log.user_of_entry]
        weights = 1 / (by_user * np.sqrt(self.popularity)[log.matrix.indices])
        votes = sparse.csr_array(
            (weights.astype(np.float32), log.matrix.indices, log.matrix.indptr), log.matrix.shape
        )
        self.graph = _Graph(votes)

    def forward(self, users: Any, items: Any) -> Any:
        """The scores of pairs."""
        smoothed = self._smoothed()
        return (take(smoothed, users) * take(smoothed, items + self.n_users)).sum(dim=-1)

    def vectors(self) -> tuple[Any, Any, None]:
        """The final embeddings."""
        smoothed = self._smoothed()
        return smoothed[: self.n_users], smoothed[self.n_users :], None

    def strangers(self, histories: Any) -> Any:
        """A user without an embedding of their own: what the layers of the items bring."""
        layers = [self.embeddings.weight]
        for _ in range(self.layers - 1):
            layers.append(self._layer(layers[-1]))
        brought = sum(layer[self.n_users :] for layer in layers[: self.layers]) / (self.layers + 1)
        voted = (histories != 0).astype(np.float32)
        scaled = voted.multiply(1 / np.sqrt(self.popularity)).tocsr()
        rows = scaled @ brought.detach().cpu().numpy() / np.sqrt(np.maximum(voted.sum(axis=1), 1))[:, None]
        return torch.from_numpy(rows.astype(np.float32))

    def _layer(self, table: Any) -> Any:
        """D^-1/2 A D^-1/2 times a table."""
        votes, voters = self.graph.on(table.device)
        return torch.cat([votes @ table[self.n_users :], voters @ table[: self.n_users]])

    def _mean_of_layers(self, table: Any) -> Any:
        total = layer = table
        for _ in range(self.layers):
            layer = self._layer(layer)
            total = total + layer
        return total / (self.layers + 1)

    def _smoothed(self) -> Any:
        return _Symmetric.apply(self.embeddings.weight, self._mean_of_layers)


class _Symmetric(torch.autograd.Function):
    """A linear map whose matrix is symmetric is its own derivative: no layer has to be remembered."""

    @staticmethod
    def forward(context: Any, table: Any, linear: Any) -> Any:
        context.linear = linear
        return linear(table)

    @staticmethod
    def backward(context: Any, gradient: Any) -> tuple[Any, None]:
        return context.linear(gradient), None


class _Graph:
    """The normalised votes and their transpose. They never change, so copies of a network share them."""

    def __init__(self, votes: Any) -> None:
        self.both = (_tensor(votes), _tensor(votes.T.tocsr()))

    def on(self, device: Any) -> Any:
        """Both matrices, on a device."""
        if self.both[0].device != device:
            self.both = (self.both[0].to(device), self.both[1].to(device))
        return self.both

    def __deepcopy__(self, memory: Any) -> _Graph:
        return self


def _tensor(matrix: Any) -> Any:
    parts = (torch.from_numpy(matrix.indptr), torch.from_numpy(matrix.indices), torch.from_numpy(matrix.data))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(*parts, size=matrix.shape, check_invariants=False)


@dataclass(kw_only=True, eq=False, repr=False)
class LightGCN(NetworkModel):
    """LightGCN (He et al., SIGIR 2020): matrix factorization with embeddings smoothed along the graph of votes.

    Parameters
    ----------
    layers
        How far along the graph.
    batch_size
        None: 5,000 positives, or a fortieth of a larger log, because the whole graph is walked for every batch.
    init_scale
        The standard deviation of the embeddings that training starts from.
    **others
        As for every network: see `NetworkModel`.

    Examples
    --------
    >>> import truelike as tl
    >>> log = tl.synthetic.World(n_users=200, n_items=100).log()
    >>> tl.LightGCN(factors=8, epochs=2).fit(log).recommend(0, k=3).height
    3
    """

    space: ClassVar[dict[str, Any]] = {
        **NetworkModel.space,
        "learning_rate": (0.01, 0.1),
        "regularization": (0.1, 10.0),
        "layers": (1, 3),
    }

    objective: Any = objective_field("BPR")
    learning_rate: float = number(0.05, low=1e-9)
    # what counts is the mean of layers, which is small beside E
    regularization: float | None = number(1.0, low=0.0)
    batch_size: int | None = whole_number(None, low=1)
    layers: int = whole_number(3, low=1)
    init_scale: float = number(0.1, low=0.0)

    def _preference(self) -> Maker:
        return partial(LightGCNNetwork, layers=self.layers, init_scale=self.init_scale)

    def _batch(self, log: Dataset) -> int:
        return self.batch_size or max(SMALLEST_BATCH, -(-log.n_interactions // WALKS))
