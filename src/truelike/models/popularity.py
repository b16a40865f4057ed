"""ItemPop: the most voted items, for everybody alike. The least that any model must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.models.recommender import Floats, HeldOut, Recommender


@dataclass(kw_only=True, eq=False, repr=False)
class ItemPop(Recommender):
    """Rank items by how many users voted for them (the paper's ItemPop).

    Attributes
    ----------
    popularity_
        The number of users of each item.

    Examples
    --------
    >>> import truelike as tl
    >>> log = tl.read([("ann", "tea"), ("bob", "tea"), ("bob", "milk"), ("eve", "rum")])
    >>> tl.ItemPop().fit(log).recommend("ann", k=2)["item_id"].to_list()
    ['milk', 'rum']
    """

    def _learn(self, train: Dataset, validation: HeldOut) -> None:
        self.popularity_: Floats = train.popularity().astype(np.float32)

    def _score_block(self, users: Codes) -> Floats:
        return np.tile(self.popularity_, (len(users), 1))

    def _score_histories(self, histories: Any) -> Floats:
        return np.tile(self.popularity_, (histories.shape[0], 1))

    def _similarity_block(self, items: Codes) -> Floats:
        """Nothing is known of likeness: the most popular are the best guess for any item."""
        return np.tile(self.popularity_, (len(items), 1))

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"popularity": self.popularity_}

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        popularity = arrays["popularity"]
        if popularity.shape != (self.train_.n_items,):
            raise ValueError(f"popularity has the shape {popularity.shape}, not one number an item")
        self.popularity_ = popularity
