"""What every model with flips can answer: how likely a like is not voted, and which likes are hidden."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from truelike import objectives
from truelike.data.frames import to_native
from truelike.data.ids import Codes, one_or_many
from truelike.errors import ParameterError
from truelike.evaluation.topk import top_k_by_scores
from truelike.models.recommender import Floats, Recommender, of_pairs


@dataclass(kw_only=True, eq=False, repr=False)
class FlipModel(Recommender):
    """A recommender that may have, beside the scores r, flip logits g: sigma(g) = p(observed 0 | truly 1)."""

    _how_to_have_flips: ClassVar[str] = "use an objective with flips, such as NBPO"

    @abstractmethod
    def _flip_logits(self, users: Codes) -> Floats:
        """G of all items for some users: a fresh array (len(users), n_items)."""

    def flip_probability(self, users: Any, items: Any) -> Floats:
        """sigma(g) for each pair: what the model takes for p(observed 0 | truly 1).

        From votes alone only the product of like and exposure can be learned, so this is a quantity of the
        model that helps it to rank, not a measured probability. After `fit(..., impressions=...)` it is what the
        impressions say.
        """
        self._need_flips("flip_probability")
        pairs = self._pair_codes(users, items, "flip_probability")
        return np.asarray(objectives.sigmoid(of_pairs(self._flip_logits, *pairs)), dtype=np.float32)

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

    def _need_flips(self, what: str) -> None:
        _ = self.train_  # asked here: what a property raises looks like a missing attribute
        if not self.has_posterior:
            raise ParameterError(f"{what} needs flips: {self._how_to_have_flips}")

    @property
    def flips_from(self) -> str:
        """What the flips rest on: "impressions", or "votes alone", from which they are not identified."""
        return "votes alone"
