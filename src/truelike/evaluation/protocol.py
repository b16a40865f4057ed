"""What the evaluation needs of a model: a protocol, so that no model is imported here."""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.errors import ParameterError
from truelike.ranking.top_k import TopK

__all__ = ["LabelNoiseRanker", "Ranker", "check_ranker", "has_hidden_likes"]

Floats = NDArray[np.float32]


class Ranker(Protocol):
    """A fitted model, as the evaluation sees it. Users and items are row numbers of `train_`."""

    @property
    def name(self) -> str:
        """The name of the model in tables."""

    @property
    def train_(self) -> Dataset:
        """The dataset that the model was fitted on."""

    def _top_k(
        self,
        users: Codes,
        k: int,
        *,
        exclude_seen: bool = True,
        allowed: NDArray[np.bool_] | None = None,
        n_jobs: int | None = -1,
    ) -> TopK:
        """Return the k best items of each user."""

    def _dot_product(self) -> Any:
        """Return the vectors whose dot product is the score; None if the score is no dot product."""

    def _score_block(self, users: Codes) -> Floats:
        """Return the scores of all items for some users: a new array (len(users), n_items)."""

    def _tie_order(self) -> Codes | None:
        """Return all items in the order in which equal scores are ranked; None: in item order."""


class LabelNoiseRanker(Ranker, Protocol):
    """A fitted model that also estimates which unobserved items are liked."""

    def hidden_likes(self, users: Any, k: int = 10) -> Any:
        """Return the unobserved items that are probably liked. Its presence marks such a model."""

    def _hidden_like_block(self, users: Codes) -> Floats:
        """Return p(truly liked | not observed) of all items for some users: a new array (len(users), n_items)."""


def has_hidden_likes(model: Ranker) -> TypeGuard[LabelNoiseRanker]:
    """Return whether a fitted model has flip probabilities, and so a posterior of hidden likes."""
    return hasattr(model, "hidden_likes")


def check_ranker(model: Any, caller: str = "evaluate") -> None:
    """Raise an error with a suggestion if a value is not a model.

    >>> check_ranker("model/")
    Traceback (most recent call last):
    ...
    truelike.errors.ParameterError: evaluate takes a fitted model, not str; ...tl.load(directory)
    """
    if isinstance(model, type):
        fit = f"; create and fit it first: {model.__name__}().fit(train)" if hasattr(model, "_top_k") else ""
        raise ParameterError(f"{caller} takes a fitted model, not the class {model.__name__}{fit}")
    if not hasattr(type(model), "_top_k"):
        raise ParameterError(
            f"{caller} takes a fitted model, not {type(model).__name__}; load a saved one with tl.load(directory)"
        )
