"""Trending: what is popular now, the same for every user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from truelike.core.parameters import special
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.data.moments import A_DURATION, is_duration
from truelike.data.trends import trend
from truelike.engines.options import FitOptions
from truelike.models.base import Recommender
from truelike.models.item_pop import PopularityScorer, saved_popularity


@dataclass(kw_only=True, eq=False, repr=False)
class Trending(Recommender):
    """Rank items by the users who interacted with them lately: popularity with a half-life.

    The score of an item is the sum over its users of 2^(-age / half_life), where the age is the time from the last
    interaction of the user with the item to the last one of all. The training data must have times. With a very long
    half-life it is `ItemPop`.

    Parameters
    ----------
    half_life : str, float or None, default None
        The age at which a user counts half: a length of time such as "7d", "12h" or "30min" where times are dates, or
        seconds or parts of seconds since 1970; or a number in the units of the times. None: a twentieth of the time
        span of the training data.

    Attributes
    ----------
    trend_
        The score of each item.
    half_life_
        The half-life that was used, in the units of the times.

    Examples
    --------
    >>> import truelike as tl
    >>> rows = [("ann", "tea", 1, 10), ("bob", "tea", 1, 20), ("eve", "rum", 1, 90), ("joe", "gin", 1, 100)]
    >>> model = tl.Trending(half_life=10).fit(tl.read(rows))
    >>> model.recommend("ann", k=2)["item_id"].to_list()
    ['gin', 'rum']
    """

    uses: ClassVar[frozenset[str]] = frozenset({"times"})

    half_life: str | float | None = special(None, A_DURATION, lambda value: value is None or is_duration(value))

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        found = trend(train, self.half_life)
        return {"trend_": found.scores, "half_life_": found.half_life}

    def _of_users(self, train: Dataset, users: Codes) -> Mapping[str, Any]:
        return {}  # users have their histories alone

    def _make_scorer(self) -> PopularityScorer:
        return PopularityScorer(self.train_, self.trend_)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"trend": self.trend_, "half_life": np.array([self.half_life_])}

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        half_life = arrays["half_life"]
        if half_life.shape != (1,) or half_life.dtype != np.float64 or not half_life[0] > 0:
            raise ValueError("the half-life is not a positive number")
        return {"trend_": saved_popularity("trend", arrays, train), "half_life_": float(half_life[0])}
