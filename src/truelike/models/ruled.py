"""Lists by rules: the scores of a `Scorer` as the rules see them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.core.arrays import Codes, Floats, Mask
from truelike.core.parallel import for_each
from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.errors import DataWarning, ParameterError, some, warn
from truelike.models.scorer import Scorer
from truelike.ranking.factor_ranker import FactorRanker
from truelike.ranking.top_k import TopK, no_items, top_k_by_scores, users_at_once
from truelike.rules.arrange import BoundRules
from truelike.rules.rules import Rules


class Similarities:
    """The similarities of items with each other, for diversity.

    `by_factor` has the items' similarity vectors as a `FactorRanker` has them, if they are at hand.
    """

    def __init__(self, scorer: Scorer, by_factor: Floats | None = None) -> None:
        self._scorer, self._given = scorer, by_factor

    @cached_property
    def _by_factor(self) -> Floats | None:
        vectors = self._scorer.similarity_vectors
        return self._given if vectors is None or self._given is not None else FactorRanker(vectors).by_factor

    def among(self, items: Codes) -> NDArray[np.float64]:
        """The similarity of some items with each other, from 0 to 1; that of an item with itself is 0."""
        if self._by_factor is not None:
            own = np.ascontiguousarray(self._by_factor[:, items])
            found = FactorRanker(None, by_factor=own).scores(own.T).astype(np.float64)
        else:
            found = np.asarray(self._scorer.similarities(items)[:, items], dtype=np.float64)
            found = np.where(np.isfinite(found), found, 0.0)
        np.fill_diagonal(found, 0.0)
        largest = found.max(initial=0.0)
        return np.clip(found / largest if largest > 0 else found, 0.0, 1.0)


class ScoredUser:
    """The `Ranking` of a user whose scores of all items are known. The items `out` are left out."""

    def __init__(self, scores: Floats, out: Codes, ties: Codes, similar: Similarities) -> None:
        self._scores, self._out, self._ties = scores, out, ties
        self.similarities = similar.among

    def scores(self) -> Floats:
        """The scores of all items."""
        return self._scores

    def best(self, n: int, allowed: Mask | None, boost: Floats | None) -> tuple[Codes, Floats]:
        """The n best of the allowed items."""
        own = self._scores.copy() if boost is None else self._scores + boost
        own[self._out] = -np.inf
        items, scores = top_k_by_scores(
            lambda _: own[None], np.zeros(1, dtype=np.int32), n,
            n_items=len(own), allowed=allowed, ties=self._ties, n_jobs=1,
        )  # fmt: skip
        found = items[0] >= 0
        return items[0][found], scores[0][found]


def bound(rules: Rules | None, train: Dataset | Blocks, k: int) -> BoundRules | None:
    """Rules in row numbers, with a warning for each thing that they name in vain."""
    if rules is None:
        return None
    if not isinstance(rules, Rules):
        raise ParameterError(f"rules is {some([repr(rules)])}; expected tl.Rules(...) or tl.Rules.read(path)")
    found = rules.bound_to(train)
    found.check_length(k)
    for text in found.warnings:
        warn(f"rules: {text}", DataWarning)
    return found


def top_k_by_rules(
    rules: BoundRules,
    scorer: Scorer,
    score_block: Callable[[slice], Floats],
    n_users: int,
    k: int,
    *,
    left_out: tuple[Any, Codes] | None,
    allowed: Mask | None,
    n_jobs: int | None,
) -> TopK:
    """The lists of some users by rules.

    `score_block` gives the scores of all items for a part of the users, and `left_out` is a CSR of items to leave out,
    and the row of it of each user.
    """
    n_items, similar = scorer.train.n_items, Similarities(scorer)
    result, at_once = no_items(n_users, min(k, n_items)), users_at_once(n_items, n_jobs)

    def out(user: int) -> Codes:
        if left_out is None:
            return np.zeros(0, dtype=np.int32)
        matrix, rows = left_out
        found: Codes = matrix.indices[matrix.indptr[rows[user]] : matrix.indptr[rows[user] + 1]]
        return found

    def work(start: int) -> None:
        block = slice(start, min(start + at_once, n_users))
        for user, scores in enumerate(score_block(block), start):
            own = ScoredUser(scores, out(user), scorer.ties, similar)
            places = rules.arrange(own, allowed, result.items.shape[1], k)
            result.items[user, : len(places)] = [place.item for place in places]
            result.scores[user, : len(places)] = [
                np.nan if place.score is None else place.score for place in places
            ]

    for_each(work, range(0, n_users, at_once), n_jobs)
    return result
