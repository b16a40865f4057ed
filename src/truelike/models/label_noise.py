"""What only models with flip probabilities have: `flip_probability`, `like_probability` and `hidden_likes`."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike import objectives
from truelike.data.frames import library_of, to_native
from truelike.data.ids import Codes, one_or_many
from truelike.exposure.evidence import is_identified, sentence
from truelike.exposure.probability_map import ProbabilityMap
from truelike.models.availability import available_if
from truelike.models.base import Floats, Frame, values_of_pairs
from truelike.ranking.top_k import top_k_by_scores

if TYPE_CHECKING:
    from truelike.models.base import Recommender

    _Base = Recommender
else:
    _Base = object


class LabelNoise(_Base):
    """Methods of models that have, beside the score r, a flip logit g: sigma(g) = p(observed 0 | truly 1).

    Whether a model has flips depends on its objective and its parameters; without, the methods do not exist.
    """

    @property
    @abstractmethod
    def _has_flips(self) -> bool:
        """Whether the model has flip probabilities, learned or known from impressions."""

    @abstractmethod
    def _flip_logits(self, users: Codes) -> Floats:
        """The flip logits g of all items for some users: a new array (len(users), n_items)."""

    @property
    @abstractmethod
    def evidence(self) -> str:
        """What the flips are known from: "impressions", "propensities", "assumed: ..." or "interactions".

        From interactions alone they are learned, and probabilities are a ranking by the model.
        """

    @final
    @available_if(lambda model: model._has_flips)
    def flip_probability(self, users: Any, items: Any) -> Floats:
        """sigma(g) of each pair: the model's p(observed 0 | truly 1).

        From interactions alone only the product of preference and exposure can be learned, so this is a quantity of
        the model that helps it to rank, not a measured probability. Of `ImpressionMF` it is what the impressions say.
        """
        pairs = self._pair_codes(users, items, "flip_probability")
        return np.asarray(objectives.sigmoid(values_of_pairs(self._flip_logits, *pairs)), dtype=np.float32)

    @final
    @available_if(lambda model: model._has_flips)
    def like_probability(self, users: Any, items: Any) -> Frame:
        """p(truly liked) of each pair (users[n], items[n]), observed or not, and the evidence for it.

        A frame user_id, item_id, probability, evidence. The evidence is

        - "impressions": of what was shown, and what was not taken; calibrated on shown pairs that were held out,
        - "propensities": of how likely each pair was shown,
        - "assumed: ...": of exposure that was estimated under an assumption,
        - "interactions": of interactions alone, so that it is a ranking by the model, not a probability.

        One user or one item goes with all of the other.

        Examples
        --------
        >>> import truelike as tl
        >>> world = tl.synthetic.World(n_users=200, n_items=100)
        >>> model = tl.ImpressionMF(steps=60, burn_in=20).fit(world.dataset(), impressions=world.impressions())
        >>> model.like_probability(7, [1, 2])["evidence"].to_list()
        ['impressions', 'impressions']
        """
        train = self.train_
        library = library_of(users) or library_of(items) or train.library
        rows, columns = self._pair_codes(users, items, "like_probability")
        values = values_of_pairs(self._like_block, rows, columns)
        frame = pl.DataFrame(
            [
                train.users.take(rows).alias("user_id"),
                train.items.take(columns).alias("item_id"),
                pl.Series("probability", np.asarray(values, dtype=np.float32)),
            ]
        )
        return to_native(frame.with_columns(pl.lit(self.evidence).alias("evidence")), library)

    @final
    @property
    def is_identified(self) -> bool:
        """Whether posteriors and `like_probability` are probabilities, given the evidence, and not only a ranking."""
        return is_identified(self.evidence)

    @final
    @property
    def evidence_in_words(self) -> str:
        """What the probabilities are known from, in a sentence for people."""
        found = self._probability_map
        return sentence(self.evidence, 0 if found is None else found.pairs)

    @final
    @available_if(lambda model: model._has_flips)
    def hidden_likes(
        self,
        users: Any,
        k: int = 10,
        *,
        candidates: Any = None,
        exclude: Any = None,
        titles: bool = False,
        n_jobs: int | None = -1,
    ) -> Frame:
        """Find unobserved items that the model takes for liked.

        A frame user_id, item_id, posterior, flip_probability, rank, evidence. The posterior is
        sigma(g) sigma(r) / (sigma(-r) + sigma(g) sigma(r)), by Bayes from Equation 5: it estimates
        p(truly liked | not observed), with sigma(r) calibrated as in `like_probability`, and with the same `evidence`.
        From interactions alone it is a quantity of the model that helps it to rank, not a probability: see "Hidden
        likes" in the documentation.

        Parameters
        ----------
        users
            One id or many.
        k, candidates, exclude, titles, n_jobs
            As in `recommend`.
        """
        self._check_list(k, "raise", titles)
        codes = self.train_.users.known(one_or_many(users))
        allowed = self._allowed(candidates, exclude)
        frame = self._hidden_like_lists(codes, k, allowed=allowed, titles=titles, n_jobs=n_jobs)
        return to_native(frame, library_of(users) or self.train_.library)

    @final
    def _hidden_like_lists(
        self, codes: Codes, k: int, *, allowed: NDArray[np.bool_] | None, titles: bool, n_jobs: int | None
    ) -> pl.DataFrame:
        """`hidden_likes` of users by their row numbers."""
        train = self.train_
        seen, rows = train._rows(codes)
        user_of_row = np.zeros(seen.shape[0], dtype=np.int32)
        user_of_row[rows] = codes
        with self._ranking():
            best = top_k_by_scores(
                lambda block: self._hidden_like_block(user_of_row[block]),
                rows,
                k,
                n_items=train.n_items,
                seen=seen,
                allowed=allowed,
                n_jobs=n_jobs,
            )
        frame = self._frame({"user_id": train.users.take(codes)}, best, titles, "polars")
        flips = self.flip_probability(frame["user_id"], frame["item_id"])
        frame = frame.rename({"score": "posterior"}).insert_column(3, pl.Series("flip_probability", flips))
        return frame.with_columns(pl.lit(self.evidence).alias("evidence"))

    @final
    def _hidden_like_block(self, users: Codes) -> Floats:
        """p(truly liked | not observed) of all items for some users, by the model."""
        r, g = self._calibrated_logits(users), self._flip_logits(users)
        return np.asarray(objectives.hidden_like_posterior(r, g), dtype=np.float32)

    @final
    def _like_block(self, users: Codes) -> Floats:
        """p(truly liked) of all items for some users, by the model."""
        return np.asarray(objectives.sigmoid(self._calibrated_logits(users)), dtype=np.float32)

    def _like_of_scores(self, scores: Floats) -> Floats:
        """p(truly liked) of pairs with these scores, by the model. Default: by the map from scores to probabilities."""
        found = self._probability_map
        return np.asarray(objectives.sigmoid(scores if found is None else found.logits(scores)), dtype=np.float32)

    def _like_of_pairs(self, users: Codes, items: Codes, scores: Floats) -> Floats:
        """p(truly liked) of pairs of users as trained, whose scores are known. Default: by the scores alone."""
        return self._like_of_scores(scores)

    @final
    def _calibrated_logits(self, users: Codes) -> Floats:
        r, found = self._like_logits(users), self._probability_map
        return r if found is None else np.asarray(found.logits(r), dtype=np.float32)

    def _like_logits(self, users: Codes) -> Floats:
        """The logits of p(truly liked) of all items for some users, before they are calibrated. Default: the score."""
        return self._score_block(users)

    @property
    def _probability_map(self) -> ProbabilityMap | None:
        """The map from scores to probabilities; None: sigma."""
        found: ProbabilityMap | None = vars(self).get("_state", {}).get("calibration_")
        return found
