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
        model that helps it to rank, not a measured probability. After `fit(..., impressions=...)` it is what the
        impressions say.
        """
        self._need_flips("flip_probability")
        user_codes, item_codes = self.train_.users.known(users), self.train_.items.known(items)
        if len(user_codes) != len(item_codes) and 1 not in (len(user_codes), len(item_codes)):
            raise ParameterError(
                f"flip_probability takes pairs: {len(user_codes)} users and {len(item_codes)} items were given"
            )
        user_codes, item_codes = np.broadcast_arrays(user_codes, item_codes)
        rows, at = np.unique(user_codes, return_inverse=True)
        found = np.empty(len(at), dtype=np.float32)
        for start in range(0, len(rows), 256):
            block = self._flip_logits(rows[start : start + 256])
            mine = (at >= start) & (at < start + 256)
            found[mine] = block[at[mine] - start, item_codes[mine]]
        return np.asarray(objectives.sigmoid(found), dtype=np.float32)

    def _flip_logits(self, users: Codes) -> Floats:
        """G of all items for some users: known from impressions, or as it was learned."""
        known, tables = getattr(self, "known_flips_", None), self.tables_
        if known is not None:
            return np.asarray(known.of(users), dtype=np.float32)
        return factor_score_block(tables.user_flips[users], tables.item_flips, tables.flip_bias)

    def hidden_like_block(self, users: Codes) -> Floats:
        """p(truly liked | not voted) of all items for some users, as the model has it."""
        self._need_flips("the posterior of a hidden like")
        r, g = self._score_block(users), self._flip_logits(users)
        return np.asarray(objectives.hidden_like_posterior(r, g), dtype=np.float32)

    def hidden_likes(self, users: Any, k: int = 10, *, titles: bool = False) -> Any:
        """Unvoted items that the model takes for liked, with the posterior of each and what it rests on.

        A frame user_id, item_id, posterior, flip_probability, rank, flips_from. The posterior is
        sigma(g) sigma(r) / (sigma(-r) + sigma(g) sigma(r)), Bayes on Equation 5. Where `flips_from` says
        "impressions", it is an estimate of p(truly liked | not voted); where it says "votes alone", it is a
        quantity of the model that helps it to rank, and no probability of anything: see the page on hidden likes.
        """
        self._need_flips("hidden_likes")
        self._check_list(k, "raise")
        codes = self.train_.users.known(one_or_many(users))
        n_items = self.train_.n_items
        best = top_k_by_scores(self.hidden_like_block, codes, k, n_items=n_items, seen=self.train_.matrix)
        frame = self._frame({"user_id": self.train_.users.take(codes)}, best, titles, "polars")
        flips = self.flip_probability(frame["user_id"], frame["item_id"])
        frame = frame.rename({"score": "posterior"}).insert_column(3, pl.Series("flip_probability", flips))
        frame = frame.with_columns(pl.lit(self.flips_from).alias("flips_from"))
        return to_native(frame, self.train_.library)

    @property
    def has_posterior(self) -> bool:
        """Whether it says how likely an unvoted item is truly liked: where there are flips, learned or known."""
        _ = self.train_
        return bool(self.tables_.flip_factors) or getattr(self, "known_flips_", None) is not None

    def _need_flips(self, what: str) -> None:
        _ = self.train_  # asked here: what a property raises looks like a missing attribute
        if not self.has_posterior:
            raise ParameterError(
                f"{what} needs flips: use NBPO with flip_factors of at least 1, or ExactNBPO with impressions"
            )

    @property
    def flips_from(self) -> str:
        """What the flips rest on: "impressions", or "votes alone", from which they are not identified."""
        return "votes alone" if getattr(self, "known_flips_", None) is None else "impressions"

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return dict(self.tables_.arrays())


def _unit_rows(table: Floats) -> Floats:
    length = np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table / np.maximum(length, 1e-12), dtype=np.float32)
