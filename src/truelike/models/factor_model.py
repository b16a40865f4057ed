"""Models with tables of factors: the score is r_ui = U_u . V_i (+ b_i)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.frames import to_native
from truelike.data.ids import Codes
from truelike.engines.loop import Result
from truelike.engines.tables import Tables
from truelike.models.base import Recommender
from truelike.models.fold_in import FoldIn, rows_of
from truelike.models.scorer import DotProduct, Floats, Scorer
from truelike.ranking.factor_ranker import factor_pair_scores, factor_score_block


@final
class FactorScorer(Scorer):
    """Scores of tables of factors.

    Parameters
    ----------
    train
        The training data.
    tables
        The tables.
    fold_in
        Returns how the rows of new users are found; called when the first is asked for.
    """

    def __init__(self, train: Dataset | Blocks, tables: Tables, fold_in: Callable[[], FoldIn]) -> None:
        super().__init__(train)
        self._vectors = DotProduct(tables.user_factors, tables.item_factors, tables.item_bias)
        self._new_fold_in = fold_in

    @cached_property
    def fold_in(self) -> FoldIn:
        """How the rows of new users are found."""
        return self._new_fold_in()

    @property
    def vectors(self) -> DotProduct:
        """The factors."""
        return self._vectors

    def score_users(self, users: Codes) -> Floats:
        """By dot products."""
        return self._vectors.scores(users)

    def history_vectors(self, histories: sparse.csr_array) -> Floats:
        """By fold-in."""
        return np.stack([self.fold_in.row(history) for history in rows_of(histories)])

    def score_histories(self, histories: sparse.csr_array) -> Floats:
        """By fold-in."""
        return self._vectors.of_vectors(self.history_vectors(histories))

    @property
    def similarity_vectors(self) -> Floats:
        """The items' factors, scaled to length 1."""
        return unit_rows(self._vectors.items)

    def similarities(self, items: Codes) -> Floats:
        """The cosine of the items' factors."""
        unit = self.similarity_vectors
        return factor_score_block(unit[items], unit)

    def contributions(self, history: Codes, items: Codes, user: int | None) -> Floats | None:
        """Those of the fold-in, where the row is a sum over the interactions."""
        return self.fold_in.contributions(history, items, user)

    def left_out_scores(self, history: Codes, places: Codes, items: Codes) -> Floats:
        """By rows that are folded in together."""
        return self._vectors.of_vectors(self.fold_in.rows_without(history, places), items)


class TableFlips:
    """The flips that tables hold: g_ui = P_u . Q_i (+ bias)."""

    def __init__(self, tables: Tables) -> None:
        self._vectors = DotProduct(tables.user_flips, tables.item_flips, tables.flip_bias)

    def dense_logits(self, users: Codes) -> Floats:
        """The flip logits of all items for some users: a new array (len(users), n_items)."""
        return self._vectors.scores(users)

    def average_logits(self) -> Floats:
        """The flip logits of the average user."""
        users, items, bias = self._vectors
        g = items @ users.mean(axis=0)
        return np.asarray(g if bias is None else g + bias, dtype=np.float32)


@dataclass(kw_only=True, eq=False, repr=False)
class FactorModel(Recommender):
    """Base class of models whose score is r_ui = U_u . V_i (+ b_i).

    Attributes
    ----------
    user_factors_, item_factors_, user_flips_, item_flips_
        The paper's U, V, P, Q.
    item_bias_
        Bias of each item, if the model has one.
    tables_
        All of these, as they are trained and saved.
    """

    scores_by_vectors: ClassVar[bool] = True

    @property
    def user_factors_(self) -> Floats:
        """The paper's U."""
        return self._tables().user_factors

    @property
    def item_factors_(self) -> Floats:
        """The paper's V."""
        return self._tables().item_factors

    @abstractmethod
    def _fold_in(self) -> FoldIn:
        """How the rows of new users are found."""

    @final
    def _tables(self) -> Tables:
        tables: Tables = self.tables_
        return tables

    @final
    def _make_scorer(self) -> FactorScorer:
        # the copy has no scorer, so that none refers to itself: what is not used any more is freed at once
        return FactorScorer(self.train_, self._tables(), self.with_learned(self.train_, self.learned)._fold_in)


def learned_tables(result: Result[Tables], train: Dataset) -> dict[str, Any]:
    """The learned attributes of a factor model."""
    search = result.search_history
    return {
        **table_attributes(result.trained),
        "history_": to_native(result.history, train.library),
        "search_history_": None if search is None else to_native(search, train.library),
    }


def scores_of_pairs(result: Result[Tables], users: Codes, items: Codes) -> Floats:
    """The scores r of pairs, by trained tables."""
    tables = result.trained
    return factor_pair_scores(tables.user_factors, tables.item_factors, tables.item_bias, users, items)


def table_attributes(tables: Tables) -> dict[str, Any]:
    """The tables as learned attributes; those that the model does not have are left out."""
    found: dict[str, Any] = {"tables_": tables}
    if tables.item_bias is not None:
        found["item_bias_"] = tables.item_bias
    if tables.flip_factors:
        found["user_flips_"], found["item_flips_"] = tables.user_flips, tables.item_flips
    return found


def restored_tables(
    arrays: Mapping[str, NDArray[Any]], train: Dataset, factors: int, flip_factors: int = 0
) -> dict[str, Any]:
    """The learned attributes from saved arrays."""
    return table_attributes(Tables.restored(arrays, train.n_users, train.n_items, factors, flip_factors))


def extended_tables(fresh: Tables, old: Tables, users: Codes, items: Codes) -> Tables:
    """New tables with the rows of the old ones: old user n is row users[n], old item n is row items[n]."""
    fresh.users[users] = old.users
    for name, table in old.arrays().items():
        if name != "users":
            fresh.arrays()[name][items] = table
    return fresh


def unit_rows(table: Floats) -> Floats:
    """The rows, scaled to length 1."""
    length = np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table / np.maximum(length, 1e-12), dtype=np.float32)
