"""ACF, Attentive Collaborative Filtering (Chen et al., SIGIR 2017): a user is also what they voted for.

Two attentions. Of a user's votes some say more about them than others (item level), and of an item some components
matter more to a user than others (component level): here the features of the items, where they are given, take the
place of the paper's regions of an image and frames of a film.

What differs from the paper: any objective instead of BPR alone; and a vote that is being predicted is left out of
the history that it is predicted from, since at the time of recommending it is not there either.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from truelike.models.deep.backend import nn, torch
from truelike.models.deep.features import FeatureModel
from truelike.models.deep.networks import Inputs, Maker
from truelike.models.deep.recommender import objective_field
from truelike.parameters import choice, number

VOTES_AT_ONCE = 1 << 18  # whose attention is worked out together
LEAST = 1e-4  # of the attention that is left without the vote that is predicted


class _Histories(NamedTuple):
    """The votes of some users: `owner` counts the users from 0, and items are sorted within each."""

    owner: Any
    item: Any


class ACFNetwork(nn.Module):
    """(u + sum of alpha(u, l) p_l over the user's votes l) . v_i, alpha a softmax of a small perceptron."""

    def __init__(self, inputs: Inputs, *, init_scale: float = 0.02) -> None:
        super().__init__()
        width, self.n_items = inputs.factors, inputs.n_items
        self.users = nn.Embedding(inputs.n_users, width)
        self.items = nn.Embedding(inputs.n_items, width)
        self.votes = nn.Embedding(inputs.n_items, width)
        for table in (self.users, self.items, self.votes):
            nn.init.normal_(table.weight, std=init_scale)
        self.of_user = nn.Linear(width, width)
        self.of_item = nn.Linear(width, width, bias=False)
        self.of_vote = nn.Linear(width, width, bias=False)
        self.attention = nn.Linear(width, 1, bias=False)
        self.components = _Components(inputs) if inputs.item_features is not None else None
        log = inputs.log.matrix
        self.register_buffer("indptr", torch.from_numpy(log.indptr.astype(np.int64)), persistent=False)
        self.register_buffer("indices", torch.from_numpy(log.indices.astype(np.int64)), persistent=False)

    def forward(self, users: Any, items: Any) -> Any:
        """The scores of pairs, each without the pair itself in the history."""
        who, owner = torch.unique(users, return_inverse=True)
        own = self.users(who)
        histories = self._histories(who)
        weight = self._attention(own, histories)
        drawn = weight[:, None] * self.votes(histories.item)
        total = torch.zeros(len(who), device=users.device).index_add(0, histories.owner, weight)
        brought = torch.zeros_like(own).index_add(0, histories.owner, drawn)
        # where the pair is itself a vote, take it out again
        keys = histories.owner * self.n_items + histories.item
        asked = owner * self.n_items + items
        place = torch.searchsorted(keys, asked).clamp(max=max(0, len(keys) - 1))
        voted = (keys[place] == asked).to(weight.dtype)
        rest = (total[owner] - voted * weight[place]).clamp(min=LEAST)
        history = (brought[owner] - voted[:, None] * drawn[place]) / rest[:, None]
        return ((own[owner] + history) * self.items(items)).sum(dim=-1)

    def vectors(self) -> tuple[Any, Any, None]:
        """The users with their whole histories, and the items."""
        return self._all_users(), self.items.weight, None

    def strangers(self, histories: Any) -> Any:
        """A user of whom nothing is known but the history: the average user pays the attention."""
        where = self.users.weight.device
        own = self.users.weight.mean(dim=0, keepdim=True)
        rows = []
        for start, stop in zip(histories.indptr[:-1], histories.indptr[1:], strict=True):
            item = torch.from_numpy(histories.indices[start:stop].astype(np.int64)).to(where)
            rows.append(self._with_history(own, _Histories(torch.zeros_like(item), item)))
        return torch.cat(rows)

    def _all_users(self) -> Any:
        """In stretches of users with a bounded number of votes."""
        bounds, start = [0], 0
        ends = self.indptr.cpu().numpy()
        while start < len(ends) - 1:
            start = max(start + 1, int(np.searchsorted(ends, ends[start] + VOTES_AT_ONCE, side="right")) - 1)
            bounds.append(start)
        where = self.users.weight.device
        stretches = [torch.arange(a, b, device=where) for a, b in pairwise(bounds)]
        return torch.cat([self._with_history(self.users(who), self._histories(who)) for who in stretches])

    def _histories(self, users: Any) -> _Histories:
        """All votes of some users, who are sorted."""
        start, stop = self.indptr[users], self.indptr[users + 1]
        lengths = stop - start
        owner = torch.repeat_interleave(torch.arange(len(users), device=users.device), lengths)
        first = torch.cumsum(lengths, 0) - lengths
        place = torch.arange(len(owner), device=users.device) - first[owner] + start[owner]
        return _Histories(owner, self.indices[place])

    def _with_history(self, own: Any, histories: _Histories) -> Any:
        weight = self._attention(own, histories)
        total = torch.zeros(len(own), device=own.device).index_add(0, histories.owner, weight)
        drawn = weight[:, None] * self.votes(histories.item)
        brought = torch.zeros_like(own).index_add(0, histories.owner, drawn)
        return own + brought / total.clamp(min=LEAST)[:, None]

    def _attention(self, own: Any, histories: _Histories) -> Any:
        """Exp of the item-level attention of each vote, the largest of a user being 1."""
        owner, item = histories
        of_votes = self.of_item(self.items.weight) + self.of_vote(self.votes.weight)
        hidden = self.of_user(own)[owner] + of_votes[item]
        if self.components is not None:
            hidden = hidden + self.components(own, owner, item)
        score = self.attention(torch.relu(hidden)).squeeze(-1)
        largest = torch.full((len(own),), -torch.inf, device=own.device)
        largest = largest.scatter_reduce(0, owner, score.detach(), "amax")
        return torch.exp(score - largest[owner])


class _Components(nn.Module):
    """The component level: what of an item a user looks at, as a vector that joins the item-level attention."""

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

    def forward(self, own: Any, owner: Any, item: Any) -> Any:
        """For each vote, its components by the attention that its owner pays them."""
        table = self.embeddings.weight
        hidden = torch.relu(self.of_user(own)[:, None, :] + self.of_component(table)[None, :, :])
        looks = torch.exp(torch.clamp(self.attention(hidden).squeeze(-1), -20, 20))  # users x components
        lengths = self.indptr[item + 1] - self.indptr[item]
        vote = torch.repeat_interleave(torch.arange(len(item), device=item.device), lengths)
        first = torch.cumsum(lengths, 0) - lengths
        place = torch.arange(len(vote), device=item.device) - first[vote] + self.indptr[item][vote]
        component, value = self.indices[place], self.values[place]
        weight = looks[owner[vote], component]
        total = torch.zeros(len(item), device=item.device).index_add(0, vote, weight)
        drawn = (weight * value)[:, None] * table[component]
        seen = torch.zeros(len(item), table.shape[1], device=item.device).index_add(0, vote, drawn)
        return self.out(seen / total.clamp(min=1e-9)[:, None])


@dataclass(kw_only=True, eq=False, repr=False)
class ACF(FeatureModel):
    """Attentive collaborative filtering (Chen et al., SIGIR 2017): a user's votes speak for them, some louder.

    `fit(train, item_features=frame)` adds the component level: which features of an item a user looks at.

    Parameters
    ----------
    init_scale
        The standard deviation of the embeddings that training starts from.
    **others
        As for every network: see `NetworkModel`. `order` is "users" here, so that a batch needs few histories.

    Examples
    --------
    >>> import truelike as tl
    >>> log = tl.synthetic.World(n_users=200, n_items=100).log()
    >>> tl.ACF(factors=8, epochs=2).fit(log).recommend(0, k=3).height
    3
    """

    space: ClassVar[dict[str, Any]] = {
        **FeatureModel.space,
        "learning_rate": (0.001, 0.02),
        "regularization": (0.5, 30.0),
        "init_scale": (0.01, 0.1),
    }

    objective: Any = objective_field("BPR")
    regularization: float = number(5.0, low=0.0)
    order: str = choice("users", "shuffled", "file")
    init_scale: float = number(0.02, low=0.0)

    takes_features: ClassVar[tuple[str, ...]] = ("item",)

    def _preference(self) -> Maker:
        return partial(ACFNetwork, init_scale=self.init_scale)
