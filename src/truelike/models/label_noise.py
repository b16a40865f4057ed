"""What only models with flip probabilities have: `flip_probability`, `like_probability` and `hidden_likes`."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike import objectives
from truelike.data.frames import library_of, to_native
from truelike.data.ids import Codes, one_or_many
from truelike.exposure.calibration import ProbabilityMap
from truelike.models.availability import available_if
from truelike.models.lists import Frame, allowed_items, check, frame_of, pair_codes
from truelike.models.scorer import Floats, Mask, Scorer, pairs_of_rows
from truelike.ranking.top_k import top_k_by_scores

if TYPE_CHECKING:
    from truelike.models.base import Recommender

    _Base = Recommender
else:
    _Base = object

INTERACTIONS = "interactions"
ACTIVITY = "assumed: user activity and item visibility"
NOTES = {
    "impressions": "The probabilities are known from the impressions of the training data: what was shown to whom, and "
    "what of it was taken.",
    "propensities": "The probabilities are known from the propensities of the training data: how likely a like of each "
    "item would have been observed.",
    INTERACTIONS: "These are known from interactions alone, from which like and exposure cannot be told apart: they "
    "are a ranking by the model, not probabilities.",
    ACTIVITY: "The probabilities follow from an assumption about what was shown: that an item is shown the more often "
    "the more active the user and the more visible the item is. They are right as far as it is.",
}


class Flips(Protocol):
    """Flip logits g, learned or known."""

    def dense_logits(self, users: Codes) -> NDArray[np.floating]:
        """The flip logits of all items for some users: a new array (len(users), n_items)."""

    def average_logits(self) -> NDArray[np.floating]:
        """The flip logits of all items for the average user, which stand for those of a new user."""


class LikeLogits(Protocol):
    """Logits of p(truly liked), before they are calibrated, where they are not the scores."""

    def of_users(self, users: Codes) -> Floats:
        """Those of all items for some users: a new array (len(users), n_items)."""

    def of_pairs(self, users: Codes, items: Codes) -> Floats:
        """Those of pairs, at the cost of the pairs."""

    def of_scores(self, scores: Floats) -> Floats:
        """About those of pairs of new users, by their scores."""


class LabelNoise(_Base):
    """Methods of models that have, beside the score r, a flip logit g: sigma(g) = p(observed 0 | truly 1).

    Whether a model has flips depends on its objective and its parameters; without, the methods do not exist.
    """

    @property
    @abstractmethod
    def _has_flips(self) -> bool:
        """Whether the model has flip probabilities, learned or known from impressions."""

    @property
    @abstractmethod
    def _flips(self) -> Flips:
        """The flips, learned or known."""

    @property
    def evidence(self) -> str:
        """What the flips are known from: "impressions", "propensities", "assumed: ..." or "interactions".

        From interactions alone they are learned, and probabilities are a ranking by the model. That is the default,
        and other models may say what else they know.
        """
        return INTERACTIONS

    def _like_logits(self) -> tuple[LikeLogits | None, ProbabilityMap | None]:
        """The logits of likes, and their calibration. Default: the score is the logit, and it is not calibrated."""
        return None, None

    @final
    @property
    def likes(self) -> Likes:
        """What the model says of likes, in row numbers."""
        if not self._has_flips:
            raise AttributeError(f"{type(self).__name__!r} has no attribute 'likes'")
        return Likes(self.scorer, self._flips, self.evidence, *self._like_logits())

    @final
    @available_if(lambda model: model._has_flips)
    def flip_probability(self, users: Any, items: Any) -> Floats:
        """sigma(g) of each pair: the model's p(observed 0 | truly 1).

        From interactions alone only the product of preference and exposure can be learned, so this is a quantity of
        the model that helps it to rank, not a measured probability. Of `ImpressionMF` it is what the impressions say.
        """
        return self.likes.flips_of_pairs(*pair_codes(self.train_, users, items, "flip_probability"))

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
        >>> data = tl.read(world.dataset(), impressions=world.impressions())
        >>> model = tl.ImpressionMF(steps=60, burn_in=20).fit(data)
        >>> model.like_probability(7, [1, 2])["evidence"].to_list()
        ['impressions', 'impressions']
        """
        train = self.train_
        library = library_of(users) or library_of(items) or train.library
        rows, columns = pair_codes(train, users, items, "like_probability")
        frame = pl.DataFrame(
            [
                train.users.take(rows).alias("user_id"),
                train.items.take(columns).alias("item_id"),
                pl.Series("probability", self.likes.of_pairs(rows, columns)),
            ]
        )
        return to_native(frame.with_columns(pl.lit(self.evidence).alias("evidence")), library)

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
        train = self.train_
        check(train, k, "raise", titles)
        codes = train.users.known(one_or_many(users))
        allowed = allowed_items(train, candidates, exclude)
        frame = self.likes.top_k(codes, k, allowed=allowed, titles=titles, n_jobs=n_jobs)
        return to_native(frame, library_of(users) or train.library)


@final
class Likes:
    """What a fitted model with flip probabilities says of likes, in row numbers: `model.likes`.

    Parameters
    ----------
    scorer
        The scores r.
    flips
        The flip logits g.
    evidence
        What the probabilities are known from: "impressions", "propensities", "assumed: ..." or "interactions".
    logits
        The logits of p(truly liked); None: they are the scores.
    calibration
        The map from the logits to calibrated ones; None: they stay as they are.

    Attributes
    ----------
    note
        The evidence in a sentence for people.
    is_identified
        Whether they are probabilities, given the evidence, and not only a ranking.
    """

    def __init__(
        self,
        scorer: Scorer,
        flips: Flips,
        evidence: str,
        logits: LikeLogits | None = None,
        calibration: ProbabilityMap | None = None,
    ) -> None:
        self._scorer, self._flips, self._logits, self._calibration = scorer, flips, logits, calibration
        self.evidence, self.note, self.is_identified = evidence, NOTES[evidence], evidence != INTERACTIONS
        if calibration is not None and calibration.pairs:
            self.note += f" They are calibrated on {calibration.pairs:,} held-out impressions."

    def of_pairs(self, users: Codes, items: Codes, scores: Floats | None = None) -> Floats:
        """p(truly liked) of each pair (users[n], items[n]); their scores, if they are known, need not be computed."""
        if self._logits is not None:
            return self._probabilities(self._logits.of_pairs(users, items))
        return self._probabilities(self._scorer.score_pairs(users, items) if scores is None else scores)

    def of_scores(self, scores: Floats) -> Floats:
        """p(truly liked) of pairs of new users, by their scores."""
        return self._probabilities(scores if self._logits is None else self._logits.of_scores(scores))

    def _probabilities(self, logits: Floats) -> Floats:
        return np.asarray(objectives.sigmoid(self._calibrated(logits)), dtype=np.float32)

    def _calibrated(self, logits: Floats) -> NDArray[np.floating]:
        return logits if self._calibration is None else self._calibration.logits(logits)

    def flips_of_pairs(self, users: Codes, items: Codes) -> Floats:
        """p(not observed | truly liked) of each pair."""
        g = pairs_of_rows(self._flips.dense_logits, self._scorer.train.n_items, users, items)
        return np.asarray(objectives.sigmoid(g), dtype=np.float32)

    def hidden(self, users: Codes) -> Floats:
        """p(truly liked | not observed) of all items for some users: a new array (len(users), n_items)."""
        r = self._scorer.score_users(users) if self._logits is None else self._logits.of_users(users)
        r = np.asarray(self._calibrated(r), dtype=np.float32)
        return np.asarray(objectives.hidden_like_posterior(r, self._flips.dense_logits(users)), dtype=np.float32)

    def top_k(
        self, users: Codes, k: int, *, allowed: Mask | None = None, titles: bool = False, n_jobs: int | None = -1
    ) -> pl.DataFrame:
        """The frame of `hidden_likes`."""
        train = self._scorer.train
        seen, rows = train.rows(users)
        user_of_row = np.zeros(seen.shape[0], dtype=np.int32)
        user_of_row[rows] = users
        best = top_k_by_scores(
            lambda block: self.hidden(user_of_row[block]),
            rows,
            k,
            n_items=train.n_items,
            seen=seen,
            allowed=allowed,
            ties=self._scorer.ties,
            n_jobs=n_jobs,
        )
        listed = best.items >= 0
        flips = self.flips_of_pairs(np.repeat(users, listed.sum(axis=1)), best.items[listed])
        shown = train.titles if titles else None
        frame = frame_of({"user_id": train.users.take(users)}, best, train.items, titles=shown)
        frame = frame.rename({"score": "posterior"}).insert_column(3, pl.Series("flip_probability", flips))
        return frame.with_columns(pl.lit(self.evidence).alias("evidence"))
