"""Models with tables of factors: the score is r_ui = U_u . V_i (+ b_i)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.frames import library_of, to_native
from truelike.data.ids import Codes, one_or_many
from truelike.errors import ParameterError
from truelike.models.base import DotProduct, Floats, Frame, OnUnknown, Recommender, score_by_vectors
from truelike.models.fold_in import rows_of
from truelike.ranking.factor_ranker import factor_score_block
from truelike.ranking.top_k import top_k_by_scores
from truelike.training.loop import Result
from truelike.training.tables import Tables

PAIRS = 65_536  # that are scored at a time


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

    @property
    def user_factors_(self) -> Floats:
        """The paper's U."""
        return self._tables().user_factors

    @property
    def item_factors_(self) -> Floats:
        """The paper's V."""
        return self._tables().item_factors

    @abstractmethod
    def _fold_in(self, history: Codes) -> Floats:
        """The row of U of a user with this history, with the item tables fixed."""

    @final
    def _tables(self) -> Tables:
        tables: Tables = self.tables_
        return tables

    @final
    def _dot_product(self) -> DotProduct:
        tables = self._tables()
        return DotProduct(tables.user_factors, tables.item_factors, tables.item_bias)

    @final
    def _score_block(self, users: Codes) -> Floats:
        return score_by_vectors(self._dot_product(), users)

    @final
    def _score_histories(self, histories: Any) -> Floats:
        return self._score_vectors(np.stack([self._fold_in(history) for history in rows_of(histories)]))

    @final
    def _score_vectors(self, vectors: Floats) -> Floats:
        return factor_score_block(vectors, self._tables().item_factors, self._tables().item_bias)

    @final
    def _scores_by_rows(self, vectors: Floats, items: Codes) -> Floats:
        tables = self._tables()
        bias = None if tables.item_bias is None else tables.item_bias[items]
        return factor_score_block(vectors, tables.item_factors[items], bias)

    @final
    def _similarity_block(self, items: Codes) -> Floats:
        unit = unit_rows(self._tables().item_factors)
        return factor_score_block(unit[items], unit)

    @final
    def similar_users(
        self, users: Any, k: int = 10, *, on_unknown: OnUnknown = "raise", n_jobs: int | None = -1
    ) -> Frame:
        """Find the k users most similar to each of some: a frame user_id, similar_user_id, score, rank."""
        self._check_list(k, on_unknown)
        if on_unknown == "popular":
            raise ParameterError('on_unknown is "popular"; for similar users it must be "raise" or "skip"')
        library = library_of(users) or self.train_.library
        asked = one_or_many(users)
        codes = self.train_.users.known(asked) if on_unknown == "raise" else self.train_.users.codes(asked)
        codes = codes[codes >= 0]
        unit = unit_rows(self._tables().user_factors)
        own = np.arange(len(unit), dtype=np.int32)

        def similarity(block: Codes) -> Floats:
            scores = factor_score_block(unit[block], unit)
            scores[np.arange(len(block)), own[block]] = -np.inf  # users are not listed as similar to themselves
            return scores

        best = top_k_by_scores(similarity, codes, k, n_items=len(unit), n_jobs=n_jobs)
        row, rank = np.nonzero(best.items >= 0)
        frame = pl.DataFrame(
            [
                self.train_.users.take(codes[row]).alias("user_id"),
                self.train_.users.take(best.items[row, rank]).alias("similar_user_id"),
                pl.Series("score", best.scores[row, rank]),
                pl.Series("rank", rank + 1, dtype=pl.Int32),
            ]
        )
        return to_native(frame, library)


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
    scores = np.empty(len(users), dtype=np.float32)
    for start in range(0, len(users), PAIRS):
        part = slice(start, start + PAIRS)
        u, v = tables.user_factors[users[part]], tables.item_factors[items[part]]
        scores[part] = np.einsum("nk,nk->n", u, v)
    return scores if tables.item_bias is None else scores + tables.item_bias[items]


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
