"""ACF, Attentive Collaborative Filtering (Chen et al., SIGIR 2017): a user is also what they voted for.

Two attentions. Of a user's votes some say more about them than others (item level), and of an item some components
matter more to a user than others (component level): here the features of the items, where they are given, take the
place of the paper's regions of an image and frames of a film.

What differs from the paper: any objective instead of BPR alone; a component also counts by its value (the words of
a list share the weight 1); and a vote that is predicted is left out of the history that it is predicted from,
because at the time of recommending it is not there either.
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
from truelike.models.deep.ragged import entries, sums, take
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

    broadcasts = True

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
        weight, drawn, total, brought = self._brought(own, histories)
        # where the pair is itself a vote, take it out again
        keys = histories.owner * self.n_items + histories.item
        asked = owner * self.n_items + items
        place = torch.searchsorted(keys, asked).clamp(max=max(0, len(keys) - 1))
        voted = (keys[place] == asked).to(weight.dtype)
        rest = (take(total, owner) - voted * take(weight, place)).clamp(min=LEAST)
        history = (take(brought, owner) - voted[..., None] * take(drawn, place)) / rest[..., None]
        return ((take(own, owner) + history) * self.items(items)).sum(dim=-1)

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
        owner, place = entries(self.indptr, users)
        return _Histories(owner, self.indices[place])

    def _with_history(self, own: Any, histories: _Histories) -> Any:
        _, _, total, brought = self._brought(own, histories)
        return own + brought / total.clamp(min=LEAST)[:, None]

    def _brought(self, own: Any, histories: _Histories) -> tuple[Any, Any, Any, Any]:
        """Each vote's attention and what it brings by it, and the sums of both for each user."""
        weight = self._attention(own, histories)
        drawn = weight[:, None] * self.votes(histories.item)
        return weight, drawn, sums(weight, histories.owner, len(own)), sums(drawn, histories.owner, len(own))

    def _attention(self, own: Any, histories: _Histories) -> Any:
        """Exp of the item-level attention of each vote, the largest of a user being 1."""
        owner, item = histories
        of_votes = self.of_item(self.items.weight) + self.of_vote(self.votes.weight)
        hidden = take(self.of_user(own), owner) + take(of_votes, item)
        if self.components is not None:
            hidden = hidden + self.components(own, owner, item)
        score = self.attention(torch.relu(hidden)).squeeze(-1)
        return torch.exp(score - _largest(score, owner, len(own))[owner])


def _largest(score: Any, owner: Any, n: int) -> Any:
    """The largest score of each owner; a constant, as far as gradients go."""
    room = torch.full((n,), -torch.inf, dtype=score.dtype, device=score.device)
    return room.scatter_reduce(0, owner, score.detach(), "amax")


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
        vote, place = entries(self.indptr, item)
        component, value = self.indices[place], self.values[place]
        # a user looks at a component in the same way wherever it is, so each such pair is worked out once
        pairs, which = torch.unique(owner[vote] * len(table) + component, return_inverse=True)
        user, part = pairs // len(table), pairs % len(table)
        hidden = torch.relu(take(self.of_user(own), user) + take(self.of_component(table), part))
        score = take(self.attention(hidden).squeeze(-1), which)
        weight = torch.exp(score - _largest(score, vote, len(item))[vote])
        seen = sums((weight * value)[:, None] * self.embeddings(component), vote, len(item))
        return self.out(seen / sums(weight, vote, len(item)).clamp(min=1e-9)[:, None])


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
    regularization: float | None = number(5.0, low=0.0)
    order: str = choice("users", "shuffled", "file")
    init_scale: float = number(0.02, low=0.0)

    takes_features: ClassVar[tuple[str, ...]] = ("item",)

    def _preference(self) -> Maker:
        return partial(ACFNetwork, init_scale=self.init_scale)
