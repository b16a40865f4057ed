"""Explanations: how much each interaction of a user contributes to the score of an item.

Where the score is a sum over the interactions, the contributions are its terms ("exact"). For other models the
contribution of an interaction is what the score loses without it ("leave_one_out").
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.models.scorer import Floats, Scorer

Method = Literal["exact", "leave_one_out"]
MOST_LEFT_OUT = 100  # interactions that are left out, one at a time, to explain one item
ITEMS_AT_ONCE = 16  # items whose similarities to all others are in memory


class Contributions(NamedTuple):
    """What the interactions of a user contribute to the scores of some items.

    `values` has a row for each item and a column for each interaction. What a row does not add up to is the base of
    the score.
    """

    values: Floats
    scores: Floats
    method: Method

    def shares(self) -> Floats:
        """The contributions, divided so that the absolute values of a row add up to 1; 0 if all are 0.

        >>> values = np.array([[3.0, -1.0], [0.0, 0.0]], dtype=np.float32)
        >>> Contributions(values, np.zeros(2, np.float32), "exact").shares().tolist()
        [[0.75, -0.25], [0.0, 0.0]]
        """
        total = np.abs(self.values).sum(axis=1, keepdims=True, dtype=np.float64)
        return (self.values / np.where(total > 0, total, 1.0)).astype(np.float32)

    def largest(self, k: int) -> Codes:
        """The places of the k largest contributions of each row, the largest first; of equal ones the first."""
        return np.argsort(-self.values, axis=1, kind="stable")[:, :k].astype(np.int32)


def explain(scorer: Scorer, history: sparse.csr_array, items: Codes, user: int | None = None) -> Contributions:
    """What each interaction of a history, one row of a CSR as `Scorer.counted` returns it, adds to some scores.

    With a `user` of the training data, whose interactions these are, the scores are those of the user as trained.
    """
    if not len(items):
        return Contributions(np.zeros((0, history.nnz), dtype=np.float32), np.zeros(0, dtype=np.float32), "exact")
    values = scorer.contributions(history, items, user) if history.nnz else np.zeros((len(items), 0), np.float32)
    if values is not None:
        return Contributions(values, scorer.score_items(history, items, user), "exact")
    values, scores = _lost(scorer, history, items)
    return Contributions(
        values, scores if user is None else scorer.score_items(history, items, user), "leave_one_out"
    )


def _lost(scorer: Scorer, history: sparse.csr_array, items: Codes) -> tuple[Floats, Floats]:
    """What the scores of a new user lose without each interaction, and the scores."""
    marked = _most_similar(scorer, history.indices, items)
    places = np.flatnonzero(marked.any(axis=0)).astype(np.int32)
    if history.nnz == 1:
        found = np.stack([scorer.score_items(history, items), scorer.scores_without_history[items]])
    else:
        found = scorer.left_out_scores(history, places, items)
    values = np.zeros(marked.shape, dtype=np.float32)
    values[:, places] = (found[0] - np.where(np.isfinite(found[1:]), found[1:], found[0])).T
    values[~(marked & np.isfinite(values))] = 0.0
    return values, found[0]


def _most_similar(scorer: Scorer, history: Codes, items: Codes) -> NDArray[np.bool_]:
    """Mark, for each of some items, the MOST_LEFT_OUT items of a history that are most similar to it."""
    marked = np.ones((len(items), len(history)), dtype=np.bool_)
    if len(history) <= MOST_LEFT_OUT:
        return marked
    for start in range(0, len(items), ITEMS_AT_ONCE):
        similarity = scorer.similarities(items[start : start + ITEMS_AT_ONCE])[:, history]
        least = np.argsort(-similarity, axis=1, kind="stable")[:, MOST_LEFT_OUT:]
        np.put_along_axis(marked[start : start + ITEMS_AT_ONCE], least, False, axis=1)
    return marked


def explanation(
    train: Dataset | Blocks, found: Contributions, history: Codes, items: Codes, k: int, titles: bool
) -> pl.DataFrame:
    """The frame of `Recommender.explain`."""
    places = found.largest(k)
    row, rank = np.indices(places.shape).reshape(2, -1)
    at = places.reshape(-1)
    of, because = items[row], history[at]
    columns = [
        train.items.take(of).alias("item_id"),
        train.items.take(because).alias("because_item_id"),
        pl.Series("contribution", found.values[row, at]),
        pl.Series("share", found.shares()[row, at]),
        pl.Series("rank", rank + 1, dtype=pl.Int32),
        pl.Series("method", [found.method] * len(row), dtype=pl.String),
    ]
    if titles and train.titles is not None:
        columns.append(train.titles.gather(of).alias("title"))
        columns.append(train.titles.gather(because).alias("because_title"))
    return pl.DataFrame(columns)
