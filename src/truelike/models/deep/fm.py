"""Factorization machines (Rendle, ICDM 2010): every feature has a weight and a vector, and every two meet.

r = w_0 + sum_j w_j x_j + sum_{j < k} (v_j . v_k) x_j x_k, where x are the features of the user and of the item,
their ids among them. Who has features and no votes has no id in it, and is scored by the other features alone.
What differs from the paper: any objective instead of regression, training by mini-batches, and `id_dropout`: now
and then an id is left out in training, so that the features learn to speak without it (Volkovs et al., NIPS 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from scipy import sparse

from truelike.data.dataset import Dataset
from truelike.data.features import Features, OnUnknownValue
from truelike.data.ids import Codes
from truelike.errors import ParameterError
from truelike.models.deep.backend import nn, torch
from truelike.models.deep.features import SIDES, FeatureModel
from truelike.models.deep.networks import Inputs, Maker
from truelike.models.deep.ragged import entries, sums, take
from truelike.models.deep.recommender import flips_field, objective_field
from truelike.models.recommender import HeldOut
from truelike.parameters import number


class FMNetwork(nn.Module):
    """A factorization machine of the second order over the ids and features of a user and an item."""

    broadcasts = True

    def __init__(self, inputs: Inputs, *, init_scale: float = 0.1, id_dropout: float = 0.0) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))
        self.user = _Side(inputs.factors, init_scale, id_dropout)
        self.item = _Side(inputs.factors, init_scale, id_dropout)
        self.describe(inputs)
        self.user.start()
        self.item.start()

    def describe(self, inputs: Inputs) -> None:
        """Who has which features; also of users and items that came after training."""
        log = inputs.log
        self.user.describe(log.rows_per_user() > 0, inputs.user_features)
        self.item.describe(log.popularity() > 0, inputs.item_features)

    def forward(self, users: Any, items: Any) -> Any:
        """The scores of pairs."""
        (P, a), (Q, b) = self.user(users), self.item(items)
        return self.bias + a + b + (P * Q).sum(dim=-1)

    def vectors(self) -> tuple[Any, Any, Any]:
        """All that depends on the user alone is one more factor, which meets a 1."""
        (P, a), (Q, b) = self.user.all(), self.item.all()
        return (
            torch.cat([P, (self.bias + a)[:, None]], dim=1),
            torch.cat([Q, torch.ones_like(b)[:, None]], dim=1),
            b,
        )

    def item_vectors(self) -> Any:
        """The sums of the vectors of the items' features."""
        return self.item.all()[0]


class _Side(nn.Module):
    """The users, or the items: for a row the sum of its features' vectors, and all that it brings by itself."""

    def __init__(self, factors: int, init_scale: float, id_dropout: float) -> None:
        super().__init__()
        self.factors, self.init_scale, self.id_dropout = factors, init_scale, id_dropout

    def describe(self, voted: Any, features: Features | None) -> None:
        """Lay out the features of each row: first its id, unless it has no votes and other features instead."""
        rows = np.flatnonzero(voted) if features is not None else np.arange(len(voted))
        shape = (len(voted), len(rows))
        own = sparse.csr_array((np.ones(len(rows), np.float32), (rows, np.arange(len(rows)))), shape=shape)
        x = own if features is None else sparse.hstack([own, features.matrix], format="csr", dtype=np.float32)
        self.width, self.n_ids = x.shape[1], len(rows)
        for name, array in (("indptr", x.indptr), ("indices", x.indices)):
            self.register_buffer(name, torch.from_numpy(array.astype(np.int64)), persistent=False)
        self.register_buffer("values", torch.from_numpy(x.data.astype(np.float32)), persistent=False)

    def start(self) -> None:
        """Make the tables that are trained."""
        self.weights = nn.Parameter(torch.zeros(self.width))
        self.table = nn.Parameter(torch.empty(self.width, self.factors).normal_(std=self.init_scale))

    def forward(self, rows: Any) -> tuple[Any, Any]:
        """The vectors of rows, and what each brings by itself."""
        asked, place = torch.unique(rows, return_inverse=True)
        vectors, alone = self._of(asked)
        return take(vectors, place), take(alone, place)

    def all(self) -> tuple[Any, Any]:
        """The same of all rows."""
        return self._of(torch.arange(len(self.indptr) - 1, device=self.indptr.device))

    def _of(self, rows: Any) -> tuple[Any, Any]:
        owner, place = entries(self.indptr, rows)
        features, x = self.indices[place], self.values[place]
        if self.training and self.id_dropout and self.n_ids < self.width:
            without = torch.rand(len(rows), device=rows.device) < self.id_dropout
            x = torch.where((features < self.n_ids) & without[owner], 0.0, x)
        scaled = x[:, None] * take(self.table, features)
        vectors = sums(scaled, owner, len(rows))
        # the pairs of a row's own features: half of (the square of the sum - the sum of the squares)
        alone = sums(x * take(self.weights, features) - scaled.square().sum(dim=1) / 2, owner, len(rows))
        return vectors, alone + vectors.square().sum(dim=1) / 2


@dataclass(kw_only=True, eq=False, repr=False)
class FM(FeatureModel):
    """A factorization machine (Rendle, ICDM 2010) of ids and features, which scores what has no votes yet.

    `fit(train, user_features=frame, item_features=frame)` takes features. Users and items without votes, in the
    frames or added later by `extend`, are scored by their features alone.

    Parameters
    ----------
    init_scale
        The standard deviation of the vectors that training starts from.
    id_dropout
        The share of users and items that a batch sees by their features alone, where they have any. More of it
        serves those without votes, less of it the others.
    **others
        As for every network: see `NetworkModel`. `flips` is "FM" here.

    Examples
    --------
    >>> import polars as pl, truelike as tl
    >>> log = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "rum"), ("bob", "gin"), ("eve", "tea")])
    >>> kinds = {"tea": "soft", "milk": "soft", "rum": "hard", "gin": "hard", "juice": "soft"}
    >>> table = pl.DataFrame({"item": list(kinds), "kind": list(kinds.values())})
    >>> model = tl.FM(factors=4, epochs=30, learning_rate=0.05, regularization=0.1).fit(log, item_features=table)
    >>> model.recommend("eve", k=2)["item_id"].to_list()  # nobody has voted for juice
    ['milk', 'juice']
    """

    objective: Any = objective_field("BPR")
    flips: Any = flips_field("FM")
    init_scale: float = number(0.1, low=0.0)
    id_dropout: float = number(0.1, low=0.0, high=0.95)

    def _preference(self) -> Maker:
        return partial(FMNetwork, init_scale=self.init_scale, id_dropout=self.id_dropout)

    def deciding_params(self) -> dict[str, Any]:
        """The parameters that decide the result, by name; without features no id is left out."""
        found = super().deciding_params()
        return found if self.features_ else {name: value for name, value in found.items() if name != "id_dropout"}

    def _fit_with(self, train: Dataset, validation: HeldOut, how: dict[str, Any]) -> Self:
        whole = self._with_ids_of_features(train)
        given = self._of_log(whole)
        self._know(given)
        # what has no votes is left out of training, where it would be drawn as if it had been turned down
        voted = {"user": whole.rows_per_user() > 0, "item": whole.popularity() > 0}
        warm = whole.restrict(*(voted[side] | (side not in given) for side in SIDES))
        if warm.matrix.shape != whole.matrix.shape and self.has_flips and self.flips != "FM":
            raise ParameterError(
                f"flips={self.flips!r} knows nobody without votes, of whom there are some in the features: take "
                'flips="FM" or flips=None, or leave them out'
            )
        super()._fit_with(warm, validation, how)
        self._describe(whole, given)
        return self

    def extend(
        self, *, user_features: Any = None, item_features: Any = None, on_unknown: OnUnknownValue = "raise"
    ) -> Self:
        """Take in users and items that came after training, by their features; nothing is trained.

        Parameters
        ----------
        user_features, item_features
            Tables with the columns that `fit` was given. A row of somebody known takes the place of theirs.
        on_unknown
            For a word that was not there in training: "raise" an error, or "skip" it.
        """
        known = dict(self.features_)
        _ = self.train_
        if self.has_flips and self.flips != "FM":
            raise ParameterError(
                f"flips={self.flips!r} knows nobody without votes: only an FM with flips of an FM can"
            )
        for side, table in (("user", user_features), ("item", item_features)):
            if table is None:
                continue
            if side not in known:
                raise ParameterError(f"this FM was fitted without {side}_features, so it has no weights for any")
            more = Features.read(table, side, like=known[side].columns, on_unknown=on_unknown)
            known[side] = known[side].and_also(more.in_the_kind_of(known[side].ids))
        before = self.features_
        self._know(known)
        try:
            whole = self._with_ids_of_features(self.train_)
            known = self._of_log(whole)
        finally:
            self._know(before)
        self._describe(whole, known)
        return self

    def _never_drawn(self) -> Codes:
        voted = self.train_.popularity() > 0
        return np.flatnonzero(~voted if "item" in self.features_ else []).astype(np.int32)

    def _describe(self, whole: Dataset, known: dict[str, Features]) -> None:
        """Let the trained networks speak of all of a log, also of what has no votes in it."""
        self._know(known)
        for network in self.networks_.parts().values():
            if isinstance(network, FMNetwork):
                where = network.bias.device
                network.describe(self._inputs(whole, self.factors))
                network.to(where)
        self.networks_.version += 1
        self.__dict__["train_"] = whole

    def _with_ids_of_features(self, log: Dataset) -> Dataset:
        users, items = log.users, log.items
        if "user" in self.features_:
            users = users.union(self.features_["user"].ids)
        if "item" in self.features_:
            items = items.union(self.features_["item"].ids)
        whole = log.recode(users, items)[0]
        if log.titles is not None:
            whole = whole.with_titles(dict(zip(log.items.values, log.titles, strict=True)))
        return whole
