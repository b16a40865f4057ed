"""ACF, Attentive Collaborative Filtering (Chen et al., SIGIR 2017): users represented by their histories.

It has two attentions. The item level weighs the items of a user's history. The component level weighs the components
of an item: here its features, where they are given, instead of the paper's regions of an image and frames of a film.

Differences from the paper: it takes any objective instead of BPR only; a component is also weighted by its value (the
words of a list share the weight 1); and the positive that is predicted is left out of the history that it is
predicted from, because it is not there when items are recommended.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy import sparse

from truelike.core.parameters import choice, number, with_inherited_parameters
from truelike.engines.torch.backend import Tensor, nn, torch
from truelike.engines.torch.networks import Inputs, Maker
from truelike.models.networks.base import NetworkModel, objective_field
from truelike.models.networks.ragged import row_entries, sum_by_owner, take_rows

INTERACTIONS_AT_ONCE = 1 << 18  # whose attention is computed together
INIT_SCALE = 0.02  # standard deviation of the initial embeddings
MIN_ATTENTION = 1e-4  # left over when the positive that is predicted is left out


class _Histories(NamedTuple):
    """The interactions of some users: `owner` counts the users from 0; the items of each user are sorted."""

    owner: Tensor
    item: Tensor


class ACFNetwork(nn.Module):
    """(u + sum of alpha(u, l) p_l over the user's items l) . v_i, where alpha is a softmax of a small perceptron."""

    broadcasts = True

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        width, self.n_items = inputs.factors, inputs.n_items
        self.users = nn.Embedding(inputs.n_users, width)
        self.items = nn.Embedding(inputs.n_items, width)
        self.history_items = nn.Embedding(inputs.n_items, width)  # p of the paper
        for table in (self.users, self.items, self.history_items):
            nn.init.normal_(table.weight, std=INIT_SCALE)
        self.of_user = nn.Linear(width, width)
        self.of_item = nn.Linear(width, width, bias=False)
        self.of_history_item = nn.Linear(width, width, bias=False)
        self.attention = nn.Linear(width, 1, bias=False)
        self.components = _Components(inputs) if inputs.item_features is not None else None
        observed = inputs.dataset.csr
        self.register_buffer("indptr", torch.from_numpy(observed.indptr.astype(np.int64)), persistent=False)
        self.register_buffer("indices", torch.from_numpy(observed.indices.astype(np.int64)), persistent=False)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Score pairs, each without the pair itself in the history."""
        distinct, owner = torch.unique(users, return_inverse=True)
        own = self.users(distinct)
        histories = self._histories(distinct)
        weight, weighted, total_weight, total = self._weighted(own, histories)
        # where the pair is itself in the history, subtract it
        keys = histories.owner * self.n_items + histories.item
        asked = owner * self.n_items + items
        place = torch.searchsorted(keys, asked).clamp(max=max(0, len(keys) - 1))
        observed = (keys[place] == asked).to(weight.dtype)
        rest = (take_rows(total_weight, owner) - observed * take_rows(weight, place)).clamp(min=MIN_ATTENTION)
        history = (take_rows(total, owner) - observed[..., None] * take_rows(weighted, place)) / rest[..., None]
        return ((take_rows(own, owner) + history) * self.items(items)).sum(dim=-1)

    def vectors(self) -> tuple[Tensor, Tensor, None]:
        """Return the users with their whole histories, and the items."""
        return self._all_users(), self.items.weight, None

    def new_user_vectors(self, histories: sparse.csr_array) -> Tensor:
        """Return the vectors of new users: the average user with these histories."""
        where = self.users.weight.device
        own = self.users.weight.mean(dim=0, keepdim=True)
        rows = []
        for start, stop in zip(histories.indptr[:-1], histories.indptr[1:], strict=True):
            item = torch.from_numpy(histories.indices[start:stop].astype(np.int64)).to(where)
            rows.append(self._with_history(own, _Histories(torch.zeros_like(item), item)))
        return torch.cat(rows)

    def _all_users(self) -> Tensor:
        """The vectors of all users, computed in blocks with a bounded number of interactions."""
        bounds, start = [0], 0
        ends = self.indptr.cpu().numpy()
        while start < len(ends) - 1:
            end = int(np.searchsorted(ends, ends[start] + INTERACTIONS_AT_ONCE, side="right")) - 1
            start = max(start + 1, end)
            bounds.append(start)
        where = self.users.weight.device
        blocks = [torch.arange(a, b, device=where) for a, b in pairwise(bounds)]
        return torch.cat([self._with_history(self.users(users), self._histories(users)) for users in blocks])

    def _histories(self, users: Tensor) -> _Histories:
        """All interactions of some users, who are sorted."""
        owner, place = row_entries(self.indptr, users)
        return _Histories(owner, self.indices[place])

    def _with_history(self, own: Tensor, histories: _Histories) -> Tensor:
        _, _, total_weight, total = self._weighted(own, histories)
        return own + total / total_weight.clamp(min=MIN_ATTENTION)[:, None]

    def _weighted(self, own: Tensor, histories: _Histories) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The attention weight and weighted vector of each interaction, and the sums of both for each user."""
        weight = self._attention(own, histories)
        weighted = weight[:, None] * self.history_items(histories.item)
        owner, n = histories.owner, len(own)
        return weight, weighted, sum_by_owner(weight, owner, n), sum_by_owner(weighted, owner, n)

    def _attention(self, own: Tensor, histories: _Histories) -> Tensor:
        """The exp of the item-level attention of each interaction, scaled such that a user's largest is 1."""
        owner, item = histories
        of_items = self.of_item(self.items.weight) + self.of_history_item(self.history_items.weight)
        hidden = take_rows(self.of_user(own), owner) + take_rows(of_items, item)
        if self.components is not None:
            hidden = hidden + self.components(own, owner, item)
        score = self.attention(torch.relu(hidden)).squeeze(-1)
        return torch.exp(score - _largest(score, owner, len(own))[owner])


def _largest(score: Tensor, owner: Tensor, n: int) -> Tensor:
    """The largest score of each owner, without a gradient."""
    lowest = torch.full((n,), -torch.inf, dtype=score.dtype, device=score.device)
    return lowest.scatter_reduce(0, owner, score.detach(), "amax")


class _Components(nn.Module):
    """The component level: an item as the weighted sum of its features, by the attention of a user."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        assert inputs.item_features is not None
        matrix, width = inputs.item_features.matrix, inputs.factors
        self.embeddings = nn.Embedding(matrix.shape[1], width)
        nn.init.normal_(self.embeddings.weight, std=0.1)
        self.of_user = nn.Linear(width, width)
        self.of_component = nn.Linear(width, width, bias=False)
        self.attention = nn.Linear(width, 1, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.register_buffer("indptr", torch.from_numpy(matrix.indptr.astype(np.int64)), persistent=False)
        self.register_buffer("indices", torch.from_numpy(matrix.indices.astype(np.int64)), persistent=False)
        self.register_buffer("values", torch.from_numpy(matrix.data.astype(np.float32)), persistent=False)

    def forward(self, own: Tensor, owner: Tensor, item: Tensor) -> Tensor:
        """For each interaction, the item's components weighted by its owner's attention."""
        table = self.embeddings.weight
        interaction, place = row_entries(self.indptr, item)
        component, value = self.indices[place], self.values[place]
        # the attention of a user to a component is the same in every item: compute each such pair once
        pairs, which = torch.unique(owner[interaction] * len(table) + component, return_inverse=True)
        user, part = pairs // len(table), pairs % len(table)
        hidden = torch.relu(take_rows(self.of_user(own), user) + take_rows(self.of_component(table), part))
        score = take_rows(self.attention(hidden).squeeze(-1), which)
        weight = torch.exp(score - _largest(score, interaction, len(item))[interaction])
        weighted = (weight * value)[:, None] * self.embeddings(component)
        total = sum_by_owner(weighted, interaction, len(item))
        return self.out(total / sum_by_owner(weight, interaction, len(item)).clamp(min=1e-9)[:, None])


@with_inherited_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class ACF(NetworkModel):
    """Attentive collaborative filtering (Chen et al., SIGIR 2017): attention over the items of a user's history.

    `item_features` of the dataset add the component level: attention over the features of an item.

    Parameters
    ----------
    regularization : float, default 5.0
        L2 of the preference network, which counts once per pass over the data.
    missing_features : {'raise', 'zeros'}, default 'raise'
        What to do with items of the training data that have no row of features: "raise" an error, or train
        them without features ("zeros").

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.synthetic.World(n_users=200, n_items=100).dataset()
    >>> tl.ACF(factors=8, epochs=2).fit(data).recommend(0, k=3).height
    3
    """

    search_space: ClassVar[dict[str, Any]] = {
        **NetworkModel.search_space,
        "regularization": (0.5, 30.0),
    }
    uses: ClassVar[frozenset[str]] = frozenset({"item_features"})
    order: ClassVar[Literal["shuffled", "users"]] = "users"  # so that a batch needs few histories

    objective: Any = objective_field("BPR")
    regularization: float | None = number(5.0, low=0.0)
    missing_features: Literal["raise", "zeros"] = choice("raise", "zeros")

    def _preference(self) -> Maker:
        return ACFNetwork
