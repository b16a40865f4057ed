"""ItemPop: the most popular items, the same for every user. The baseline that every model must beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.engines.options import FitOptions
from truelike.models.base import Recommender
from truelike.models.scorer import Floats, Scorer


@final
class PopularityScorer(Scorer):
    """The popularity of the items, whoever asks."""

    def __init__(self, train: Dataset, popularity: Floats) -> None:
        super().__init__(train)
        self._popularity = popularity

    def score_users(self, users: Codes) -> Floats:
        """The same for every user."""
        return np.tile(self._popularity, (len(users), 1))

    def score_histories(self, histories: sparse.csr_array) -> Floats:
        """The same for every history."""
        return np.tile(self._popularity, (histories.shape[0], 1))

    def similarities(self, items: Codes) -> Floats:
        """Nothing is known of similarity: the most popular items are the best guess for every item."""
        return np.tile(self._popularity, (len(items), 1))

    def contributions(self, history: sparse.csr_array, items: Codes, user: int | None) -> Floats:
        """No interaction contributes."""
        return np.zeros((len(items), history.nnz), dtype=np.float32)


@dataclass(kw_only=True, eq=False, repr=False)
class ItemPop(Recommender):
    """Rank items by the number of users who interacted with them (the paper's ItemPop).

    Attributes
    ----------
    popularity_
        Number of users of each item.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea"), ("bob", "tea"), ("bob", "milk"), ("eve", "rum")])
    >>> tl.ItemPop().fit(data).recommend("ann", k=2)["item_id"].to_list()
    ['milk', 'rum']
    """

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        return {"popularity_": train.popularity().astype(np.float32)}

    def _of_users(self, train: Dataset, users: Codes) -> Mapping[str, Any]:
        return {}  # users have their histories alone

    def _make_scorer(self) -> PopularityScorer:
        return PopularityScorer(self.train_, self.popularity_)

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        return {"popularity_": saved_popularity("popularity", arrays, train)}


def saved_popularity(name: str, arrays: Mapping[str, NDArray[Any]], train: Dataset) -> Floats:
    """The scores of the items from their array, checked."""
    found = arrays[name]
    if found.shape != (train.n_items,) or found.dtype != np.float32:
        raise ValueError(f"{name} is {found.dtype} of shape {found.shape}; expected one float32 per item")
    return found
