"""FM, the factorization machine (Rendle, ICDM 2010): all pairs of features interact.

r = w_0 + sum_j w_j x_j + sum_{j < k} (v_j . v_k) x_j x_k, where x are the features of the user and of the item, their
ids among them. Users and items with features and without interactions have no id in x: they are scored by their other
features. Differences from the paper: it takes any objective instead of regression, is trained by mini-batches, and has
`id_dropout`: an id is sometimes left out in training, so that the features learn to predict without it (Volkovs et al.,
NIPS 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.parameters import choice, number, with_inherited_parameters
from truelike.data.features import Features, OnUnknownValue
from truelike.engines.torch.backend import Tensor, nn, torch
from truelike.engines.torch.networks import Inputs, Maker
from truelike.errors import ParameterError
from truelike.models.networks.base import NetworkModel, flips_field, objective_field
from truelike.models.networks.ragged import row_entries, sum_by_owner, take_rows

INIT_SCALE = 0.1  # standard deviation of the initial vectors


class FMNetwork(nn.Module):
    """A second-order factorization machine of the ids and features of a user and an item."""

    broadcasts = True

    def __init__(self, inputs: Inputs, *, id_dropout: float = 0.0) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))
        self.user, self.item = (_Side(inputs.factors, id_dropout) for _ in range(2))
        self.describe(inputs)
        self.user.initialise()
        self.item.initialise()

    def describe(self, inputs: Inputs) -> None:
        """Set the features of all users and items, also of those that were added after training."""
        data = inputs.dataset
        self.user.describe(data.interactions_per_user() > 0, inputs.user_features)
        self.item.describe(data.popularity() > 0, inputs.item_features)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Score pairs of users and items."""
        (P, a), (Q, b) = self.user(users), self.item(items)
        return self.bias + a + b + (P * Q).sum(dim=-1)

    def vectors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return U, V and b; the terms that depend on the user only are one more factor, whose counterpart is 1."""
        (P, a), (Q, b) = self.user.all(), self.item.all()
        return (
            torch.cat([P, (self.bias + a)[:, None]], dim=1),
            torch.cat([Q, torch.ones_like(b)[:, None]], dim=1),
            b,
        )

    def item_vectors(self) -> Tensor:
        """Return the sums of the vectors of the items' features."""
        return self.item.all()[0]


class _Side(nn.Module):
    """The users or the items: for each row, the sum of its feature vectors, and the terms of its features alone."""

    def __init__(self, factors: int, id_dropout: float) -> None:
        super().__init__()
        self.factors, self.id_dropout = factors, id_dropout

    def describe(self, observed: NDArray[np.bool_], features: Features | None) -> None:
        """Set the features of each row: its id, and the given ones.

        With given features, a row without interactions has no id, because nothing would be learned about it.
        """
        rows = np.flatnonzero(observed) if features is not None else np.arange(len(observed))
        shape = (len(observed), len(rows))
        own = sparse.csr_array((np.ones(len(rows), np.float32), (rows, np.arange(len(rows)))), shape=shape)
        x = own if features is None else sparse.hstack([own, features.matrix], format="csr", dtype=np.float32)
        self.width, self.n_ids = x.shape[1], len(rows)
        for name, array in (("indptr", x.indptr), ("indices", x.indices)):
            self.register_buffer(name, torch.from_numpy(array.astype(np.int64)), persistent=False)
        self.register_buffer("values", torch.from_numpy(x.data.astype(np.float32)), persistent=False)

    def initialise(self) -> None:
        """Create the parameters."""
        self.weights = nn.Parameter(torch.zeros(self.width))
        self.table = nn.Parameter(torch.empty(self.width, self.factors).normal_(std=INIT_SCALE))

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors of rows, and the terms of their features alone."""
        distinct, place = torch.unique(rows, return_inverse=True)
        vectors, alone = self._of(distinct)
        return take_rows(vectors, place), take_rows(alone, place)

    def all(self) -> tuple[Tensor, Tensor]:
        """Return the same for all rows."""
        return self._of(torch.arange(len(self.indptr) - 1, device=self.indptr.device))

    def _of(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        owner, place = row_entries(self.indptr, rows)
        features, x = self.indices[place], self.values[place]
        if self.training and self.id_dropout and self.n_ids < self.width:
            dropped = torch.rand(len(rows), device=rows.device) < self.id_dropout
            x = torch.where((features < self.n_ids) & dropped[owner], 0.0, x)
        scaled = x[:, None] * take_rows(self.table, features)
        vectors = sum_by_owner(scaled, owner, len(rows))
        # the pairs of a row's own features sum to half of (the square of the sum - the sum of the squares)
        alone = sum_by_owner(
            x * take_rows(self.weights, features) - scaled.square().sum(dim=1) / 2, owner, len(rows)
        )
        return vectors, alone + vectors.square().sum(dim=1) / 2


@with_inherited_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class FM(NetworkModel):
    """A factorization machine (Rendle, ICDM 2010) of ids and features, which also scores new users and items.

    It uses the features of the dataset (`tl.read(..., users=frame, items=frame)`). Users and items without
    interactions, in the dataset or added later by `extend`, are scored by their features.

    Parameters
    ----------
    id_dropout : float, default 0.1
        Share of users and items whose id is left out in a batch, if they have features. More of it ranks users and
        items without interactions better, less of it the others.
    missing_features : {'raise', 'zeros'}, default 'raise'
        What to do with users and items of the training data that have no row of features: "raise" an error, or train
        them without features ("zeros").

    Examples
    --------
    >>> import polars as pl, truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "rum"), ("bob", "gin"), ("eve", "tea")])
    >>> kinds = {"tea": "soft", "milk": "soft", "rum": "hard", "gin": "hard", "juice": "soft"}
    >>> table = pl.DataFrame({"item": list(kinds), "kind": list(kinds.values())})
    >>> model = tl.FM(factors=4, epochs=30, learning_rate=0.05, regularization=0.1).fit(tl.read(data, items=table))
    >>> model.recommend("eve", k=2)["item_id"].to_list()  # juice has no interactions
    ['milk', 'juice']
    """

    uses: ClassVar[frozenset[str]] = frozenset({"user_features", "item_features"})
    scores_by_features: ClassVar[bool] = True

    objective: Any = objective_field("BPR")
    flips: Any = flips_field("FM")
    id_dropout: float = number(0.1, low=0.0, high=0.95)
    missing_features: Literal["raise", "zeros"] = choice("raise", "zeros")

    def _preference(self) -> Maker:
        return partial(FMNetwork, id_dropout=self.id_dropout)

    def extend(
        self, *, user_features: Any = None, item_features: Any = None, on_unknown: OnUnknownValue = "raise"
    ) -> Self:
        """Add users and items by their features, without training, and return self.

        Parameters
        ----------
        user_features, item_features
            Tables with the columns that `fit` was given. The row of an id that is already there is replaced.
        on_unknown
            For a word that was not in the features of training: "raise" an error, or "skip" it.
        """
        features = dict(self.features_)
        self._check_cold()
        for side, table in (("user", user_features), ("item", item_features)):
            if table is None:
                continue
            if side not in features:
                raise ParameterError(
                    f"this FM was fitted without {side}_features, so it has no weights for them: fit it with both"
                )
            more = Features.read(table, side, like=features[side].columns, on_unknown=on_unknown)
            features[side] = features[side].updated_with(more.with_kind_of(features[side].ids))
        ids = {"user": self.train_.users, "item": self.train_.items}
        ids.update({side: ids[side].union(known.ids) for side, known in features.items()})
        whole = self.train_.recode(ids["user"], ids["item"])[0]
        features = {side: known.of(ids[side]) for side, known in features.items()}
        networks = self.networks_.copy()
        self._describe(networks, whole, features)
        self._assign(whole, {**vars(self)["_state"], **self._learned(networks, features), "train_": whole})
        return self
