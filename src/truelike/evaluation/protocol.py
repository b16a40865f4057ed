"""What the evaluation needs of a model: a protocol, so that no model is imported here."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.data.protocol import Rows
from truelike.errors import ParameterError
from truelike.ranking.top_k import TopK

Floats = NDArray[np.float32]


class Scores(Protocol):
    """What a fitted model answers in row numbers, as the evaluation sees it; see `tl.Scorer`."""

    @property
    def vectors(self) -> Any:
        """The vectors whose dot product is the score; None if the score is no dot product."""

    @property
    def ties(self) -> Codes:
        """The place of each item among items with its score."""

    def score_users(self, users: Codes) -> Floats:
        """Scores of all items for some users: a new array (len(users), n_items)."""

    def score_pairs(self, users: Codes, items: Codes) -> Floats:
        """The score of each pair (users[n], items[n])."""

    def top_k(
        self,
        users: Codes,
        k: int,
        *,
        exclude_seen: bool = True,
        seen: Rows | None = None,
        allowed: NDArray[np.bool_] | None = None,
        n_jobs: int | None = -1,
    ) -> TopK:
        """The k best items of each user."""


class Likes(Protocol):
    """What a model says of likes, in row numbers."""

    def of_pairs(self, users: Codes, items: Codes) -> Floats:
        """p(truly liked) of each pair (users[n], items[n])."""

    def hidden(self, users: Codes) -> Floats:
        """p(truly liked | not observed) of all items for some users: a new array (len(users), n_items)."""


class Ranker(Protocol):
    """A fitted model, as the evaluation sees it. Users and items are row numbers of `train_`."""

    @property
    def name(self) -> str:
        """The name of the model in tables."""

    @property
    def train_(self) -> Dataset:
        """The dataset that the model was fitted on."""

    @property
    def scorer(self) -> Scores:
        """What the model answers in row numbers."""


def likes_of(model: Ranker) -> Likes | None:
    """What a fitted model says of likes; None for a model without flip probabilities.

    >>> import truelike as tl
    >>> likes_of(tl.ItemPop().fit(tl.synthetic.World(n_users=50, n_items=40).dataset())) is None
    True
    """
    return getattr(model, "likes", None)


def exposure_of(model: Ranker) -> NDArray[np.float64] | None:
    """The number of users that each item was shown to, of a model that knows impressions; else None."""
    found: NDArray[np.float64] | None = getattr(model, "exposed_users", lambda: None)()
    return found


def check_ranker(model: object, what: str = "evaluate") -> None:
    """Raise an error with a suggestion if a value is not a model.

    >>> check_ranker("model/")
    Traceback (most recent call last):
    ...
    truelike.errors.ParameterError: evaluate takes a fitted model, not str; ...tl.load(directory)
    """
    if isinstance(model, type):
        fit = f"; create and fit it first: {model.__name__}().fit(train)" if hasattr(model, "scorer") else ""
        raise ParameterError(f"{what} takes a fitted model, not the class {model.__name__}{fit}")
    if not hasattr(type(model), "scorer"):
        raise ParameterError(
            f"{what} takes a fitted model, not {type(model).__name__}; load a saved one with tl.load(directory)"
        )
