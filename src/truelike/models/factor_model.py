"""What every model with tables of factors can answer: rankings, alike items and users, and its flips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.frames import to_native
from truelike.data.ids import Codes, one_or_many
from truelike.evaluation.topk import TopK, factor_score_block, top_k_by_factors, top_k_by_scores
from truelike.models.flips import FlipModel
from truelike.models.recommender import Floats, OnUnknown
from truelike.training.tables import Tables


@dataclass(kw_only=True, eq=False, repr=False)
class FactorModel(FlipModel):
    """A recommender whose score is r_ui = U_u . V_i, with or without flip tables.

    Attributes
    ----------
    user_factors_, item_factors_, user_flips_, item_flips_
        The paper's U, V, P, Q.
    tables_
        All of them, as they are trained and saved.
    """

    _how_to_have_flips: ClassVar[str] = "use NBPO with flip_factors of at least 1, or ExactNBPO with impressions"

    def _keep(self, tables: Tables) -> None:
        """Take tables as what was learned."""
        self.tables_ = tables
        self.user_factors_, self.item_factors_ = tables.user_factors, tables.item_factors
        for name in ("user_flips_", "item_flips_", "item_bias_"):
            self.__dict__.pop(name, None)  # those of an earlier fit
        if tables.item_bias is not None:
            self.item_bias_ = tables.item_bias
        if tables.flip_factors:
            self.user_flips_, self.item_flips_ = tables.user_flips, tables.item_flips

    def top_k(
        self,
        users: Codes,
        k: int,
        *,
        exclude_seen: bool = True,
        allowed: NDArray[np.bool_] | None = None,
        n_jobs: int | None = None,
    ) -> TopK:
        """`recommend` for hot paths: row numbers in, arrays of row numbers and scores out."""
        tables = self.tables_
        return top_k_by_factors(
            tables.user_factors,
            tables.item_factors,
            users,
            k,
            item_bias=tables.item_bias,
            seen=self.train_.matrix if exclude_seen else None,
            allowed=allowed,
            n_jobs=n_jobs,
        )

    def _score_block(self, users: Codes) -> Floats:
        return self._score_vectors(self.tables_.user_factors[users])

    def _score_vectors(self, vectors: Floats) -> Floats:
        return factor_score_block(vectors, self.tables_.item_factors, self.tables_.item_bias)

    def _similarity_block(self, items: Codes) -> Floats:
        unit = unit_rows(self.tables_.item_factors)
        return np.asarray(unit[items] @ unit.T, dtype=np.float32)

    def similar_users(
        self, users: Any, k: int = 10, *, on_unknown: OnUnknown = "raise", n_jobs: int | None = None
    ) -> Any:
        """The k users most like each of some: a frame user_id, similar_user_id, score, rank."""
        self._check_list(k, "raise" if on_unknown == "popular" else on_unknown)
        asked = one_or_many(users)
        codes = self.train_.users.known(asked) if on_unknown == "raise" else self.train_.users.codes(asked)
        codes = codes[codes >= 0]
        unit = unit_rows(self.tables_.user_factors)
        own = np.arange(len(unit), dtype=np.int32)

        def alike(block: Codes) -> Floats:
            scores = np.asarray(unit[block] @ unit.T, dtype=np.float32)
            scores[np.arange(len(block)), own[block]] = -np.inf  # everybody is most like themselves
            return scores

        best = top_k_by_scores(alike, codes, k, n_items=len(unit), n_jobs=n_jobs)
        row, rank = np.nonzero(best.items >= 0)
        frame = pl.DataFrame(
            [
                self.train_.users.take(codes[row]).alias("user_id"),
                self.train_.users.take(best.items[row, rank]).alias("similar_user_id"),
                pl.Series("score", best.scores[row, rank]),
                pl.Series("rank", rank + 1, dtype=pl.Int32),
            ]
        )
        return to_native(frame, self.train_.library)

    def _flip_logits(self, users: Codes) -> Floats:
        """G of all items for some users: known from impressions, or as it was learned."""
        known, tables = getattr(self, "known_flips_", None), self.tables_
        if known is not None:
            return np.asarray(known.of(users), dtype=np.float32)
        return factor_score_block(tables.user_flips[users], tables.item_flips, tables.flip_bias)

    @property
    def has_posterior(self) -> bool:
        """Whether it says how likely an unvoted item is truly liked: where there are flips, learned or known."""
        _ = self.train_
        return bool(self.tables_.flip_factors) or getattr(self, "known_flips_", None) is not None

    @property
    def flips_from(self) -> str:
        """What the flips rest on: "impressions", or "votes alone", from which they are not identified."""
        return "votes alone" if getattr(self, "known_flips_", None) is None else "impressions"

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return dict(self.tables_.arrays())

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        log, widths = self.train_, self.get_params()
        shape = (log.n_users, log.n_items, int(widths["factors"]), int(widths.get("flip_factors") or 0))
        self._keep(Tables.restored(arrays, *shape))


def unit_rows(table: Floats) -> Floats:
    """The rows at length 1."""
    length = np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table / np.maximum(length, 1e-12), dtype=np.float32)
