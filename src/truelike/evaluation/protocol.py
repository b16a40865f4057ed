"""What the evaluation needs of a model: a protocol, so that no model is imported here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from truelike import objectives
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.errors import ParameterError
from truelike.ranking.top_k import TopK

__all__ = [
    "LabelNoiseRanker",
    "Ranker",
    "check_ranker",
    "has_hidden_likes",
    "like_probabilities",
    "scores_of_pairs",
]

Floats = NDArray[np.float32]
Pairs = Callable[[Codes, Codes], Floats]  # a value of each pair (users[n], items[n])
PAIRS_AT_ONCE = 2**18  # whose factors are in memory at a time
CELLS_AT_ONCE = 2**22  # of the scores of all items for some users


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


def like_probabilities(model: Ranker) -> Pairs | None:
    """Return a function of pairs (users, items) that gives p(truly liked); None for a model without probabilities.

    A model has them if it has a method `_like_block`, or flip probabilities: then sigma(score) is p(truly liked). A
    model whose class has `like_probability` has them only if it has that method itself, so BPR has none.

    >>> import truelike as tl
    >>> data = tl.synthetic.World(n_users=50, n_items=40).dataset()
    >>> like_probabilities(tl.ItemPop().fit(data)) is None
    True
    """
    if hasattr(type(model), "like_probability") and not hasattr(model, "like_probability"):
        return None
    block = getattr(model, "_like_block", None)
    if block is not None:
        return lambda users, items: _of_blocks(block, model.train_.n_items, users, items)
    if has_hidden_likes(model):
        return lambda users, items: np.asarray(
            objectives.sigmoid(scores_of_pairs(model, users, items)), dtype=np.float32
        )
    return None


def scores_of_pairs(model: Ranker, users: Codes, items: Codes) -> Floats:
    """Return the score of each pair, sorted by user. The cost is that of the pairs if the score is a dot product."""
    vectors = model._dot_product()
    if vectors is None:
        return _of_blocks(model._score_block, model.train_.n_items, users, items)
    found = np.empty(len(users), dtype=np.float32)
    for start in range(0, len(users), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        found[part] = np.einsum("nk,nk->n", vectors.users[users[part]], vectors.items[items[part]])
        if vectors.bias is not None:
            found[part] += vectors.bias[items[part]]
    return found


def _of_blocks(block: Callable[[Codes], Floats], n_items: int, users: Codes, items: Codes) -> Floats:
    """Return the values of pairs, sorted by user, of a function that gives all items of some users."""
    found = np.empty(len(users), dtype=np.float32)
    wanted, first = np.unique(users, return_index=True)
    ends = np.append(first, len(users))
    step = max(1, min(256, CELLS_AT_ONCE // n_items))
    for start in range(0, len(wanted), step):
        some = wanted[start : start + step]
        part = slice(ends[start], ends[start + len(some)])
        found[part] = block(some)[np.searchsorted(some, users[part]), items[part]]
    return found


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
