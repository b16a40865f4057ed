"""What every model with tables of factors can answer: rankings, alike items and users, flips and hidden likes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike import objectives
from truelike.data.frames import to_native
from truelike.data.ids import Codes, one_or_many
from truelike.errors import ParameterError
from truelike.evaluation.topk import TopK, factor_score_block, top_k_by_factors, top_k_by_scores
from truelike.models.recommender import Floats, OnUnknown, Recommender
from truelike.training.tables import Tables


@dataclass(kw_only=True, eq=False, repr=False)
class FactorModel(Recommender):
    """A recommender whose score is r_ui = U_u . V_i, with or without flip tables.

    Attributes
    ----------
    user_factors_, item_factors_, user_flips_, item_flips_
        The paper's U, V, P, Q.
    tables_
        All of them, as they are trained and saved.
    """

    def _keep(self, tables: Tables) -> None:
        """Take tables as what was learned."""
        self.tables_ = tables
        self.user_factors_, self.item_factors_ = tables.user_factors, tables.item_factors
        for name in ("user_flips_", "item_flips_"):
            self.__dict__.pop(name, None)  # those of an earlier fit
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
            seen=self.train_.matrix if exclude_seen else None,
            allowed=allowed,
            n_jobs=n_jobs,
        )

    def _score_block(self, users: Codes) -> Floats:
        return self._score_vectors(self.tables_.user_factors[users])

    def _score_vectors(self, vectors: Floats) -> Floats:
        return factor_score_block(vectors, self.tables_.item_factors)

    def _similarity_block(self, items: Codes) -> Floats:
        unit = _unit_rows(self.tables_.item_factors)
        return np.asarray(unit[items] @ unit.T, dtype=np.float32)

    def similar_users(
        self, users: Any, k: int = 10, *, on_unknown: OnUnknown = "raise", n_jobs: int | None = None
    ) -> Any:
        """The k users most like each of some: a frame user_id, similar_user_id, score, rank."""
        self._check_list(k, "raise" if on_unknown == "popular" else on_unknown)
        asked = one_or_many(users)
        codes = self.train_.users.known(asked) if on_unknown == "raise" else self.train_.users.codes(asked)
        codes = codes[codes >= 0]
        unit = _unit_rows(self.tables_.user_factors)
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

    def flip_probability(self, users: Any, items: Any) -> Floats:
        """sigma(g) for each pair: what the model takes for p(observed 0 | truly 1).

        From votes alone only the product of like and exposure can be learned, so this is a quantity of the
        model that helps it to rank; it is not a measured probability.
        """
        self._need_flips("flip_probability")
        user_codes, item_codes = self.train_.users.known(users), self.train_.items.known(items)
        if len(user_codes) != len(item_codes) and 1 not in (len(user_codes), len(item_codes)):
            raise ParameterError(
                f"flip_probability takes pairs: {len(user_codes)} users and {len(item_codes)} items were given"
            )
        user_codes, item_codes = np.broadcast_arrays(user_codes, item_codes)
        tables = self.tables_
        g = np.einsum("nl,nl->n", tables.user_flips[user_codes], tables.item_flips[item_codes])
        return np.asarray(objectives.sigmoid(g), dtype=np.float32)

    def hidden_likes(self, users: Any, k: int = 10, *, titles: bool = False) -> Any:
        """Unvoted items that the model takes for liked: user_id, item_id, posterior, flip_probability, rank.

        The posterior is sigma(g) sigma(r) / (sigma(-r) + sigma(g) sigma(r)), Bayes on Equation 5. It means what
        `flip_probability` means: a quantity of the model, not a measured probability.
        """
        self._need_flips("hidden_likes")
        self._check_list(k, "raise")
        codes = self.train_.users.known(one_or_many(users))
        tables = self.tables_

        def logits(block: Codes) -> tuple[Floats, Floats]:
            r = self._score_block(block)
            return r, np.asarray(tables.user_flips[block] @ tables.item_flips.T, dtype=np.float32)

        def posterior(block: Codes) -> Floats:
            return np.asarray(objectives.hidden_like_posterior(*logits(block)), dtype=np.float32)

        n_items = self.train_.n_items
        best = top_k_by_scores(posterior, codes, k, n_items=n_items, seen=self.train_.matrix)
        frame = self._frame({"user_id": self.train_.users.take(codes)}, best, titles, "polars")
        flips = self.flip_probability(frame["user_id"], frame["item_id"])
        frame = frame.rename({"score": "posterior"}).insert_column(3, pl.Series("flip_probability", flips))
        return to_native(frame, self.train_.library)

    def _need_flips(self, what: str) -> None:
        _ = self.train_
        if not self.tables_.flip_factors:
            raise ParameterError(f"{what} needs flip tables: use NBPO with flip_factors of at least 1")

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return dict(self.tables_.arrays())


def _unit_rows(table: Floats) -> Floats:
    length = np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table / np.maximum(length, 1e-12), dtype=np.float32)
