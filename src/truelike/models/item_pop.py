"""ItemPop: the most popular items, the same for every user. The baseline that every model must beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.models.base import Floats, Recommender
from truelike.models.explanations import Contributions
from truelike.training.options import FitOptions


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

    def _score_block(self, users: Codes) -> Floats:
        return np.tile(self.popularity_, (len(users), 1))

    def _score_histories(self, histories: Any) -> Floats:
        return np.tile(self.popularity_, (histories.shape[0], 1))

    def _similarity_block(self, items: Codes) -> Floats:
        """Nothing is known of similarity: the most popular items are the best guess for every item."""
        return np.tile(self.popularity_, (len(items), 1))

    def _contributions(self, history: Codes, items: Codes, user: int | None) -> Contributions:
        """No interaction contributes: the score is the popularity of the item."""
        values = np.zeros((len(items), len(history)), dtype=np.float32)
        return Contributions(values, self.popularity_[items], "exact")

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        popularity = arrays["popularity"]
        if popularity.shape != (train.n_items,):
            raise ValueError(f"popularity has shape {popularity.shape}; expected one number per item")
        return {"popularity_": popularity}
