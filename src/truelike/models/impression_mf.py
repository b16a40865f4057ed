"""ImpressionMF: Bayesian logistic matrix factorization of what was shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from truelike import objectives, randomness
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.models.base import Floats
from truelike.models.calibrating import Calibrated, calibrated_fit
from truelike.models.factor_model import FactorModel, restored_tables, table_attributes
from truelike.models.fold_in import fold_in_all
from truelike.models.label_noise import LabelNoise
from truelike.parameters import flag, jobs, number, whole_number
from truelike.training.callbacks import step_bar
from truelike.training.impressions import check_held_out, shown_pairs
from truelike.training.langevin.engine import LangevinSampler, Sample
from truelike.training.options import FitOptions
from truelike.training.probability_map import ProbabilityMap
from truelike.training.shown_pairs import CERTAIN, ShownPairs
from truelike.training.tables import Tables

NEGATIVES = 4  # unobserved items of a user, for each interaction, that count as shown without impressions
PAIRS_PER_FACTOR = 8.0  # shown pairs of a row, for each factor
FEWEST, MOST = 4, 16  # factors
MOST_SHOWN = 5_000_000  # showings up to which AutoRecommender takes this model


class _Posterior:
    """Samples of the posterior, as tables of a factor model whose score is the mean of the samples' scores."""

    def __init__(
        self, tables: Tables, user_bias: Floats, item_bias: Floats, precision: float, weight: float
    ) -> None:
        self.tables, self.user_bias, self.item_bias = tables, user_bias, item_bias
        self.precision, self.weight = precision, weight

    @classmethod
    def of(cls, samples: list[Sample], precision: float) -> _Posterior:
        n, factors = len(samples), samples[0].users.shape[1] - 1
        n_users, n_items = len(samples[0].users), len(samples[0].items)
        tables = Tables.zeros(n_users, n_items, n * factors + 1, 0, biased=True)
        assert tables.item_bias is not None
        root = np.float32(np.sqrt(n))
        for k, sample in enumerate(samples):
            columns = slice(k * factors, (k + 1) * factors)
            tables.user_factors[:, columns] = sample.users[:, :-1] / root
            tables.item_factors[:, columns] = sample.items[:, :-1] / root
        user_bias = np.stack([sample.users[:, -1] for sample in samples], axis=1)
        item_bias = np.stack([sample.items[:, -1] for sample in samples], axis=1)
        tables.user_factors[:, -1], tables.item_factors[:, -1] = user_bias.mean(axis=1), 1.0
        tables.item_bias[:] = item_bias.mean(axis=1)
        return cls(tables, user_bias, item_bias, precision, float(np.mean([sample.weight for sample in samples])))

    def probabilities(self, users: Codes) -> NDArray[np.float64]:
        """The mean of the samples' probabilities of all items for some users."""
        tables, n = self.tables, self.user_bias.shape[1]
        factors = (tables.factors - 1) // n
        total = np.zeros((len(users), len(tables.items)))
        for k in range(n):
            columns = slice(k * factors, (k + 1) * factors)
            r = n * (tables.user_factors[users, columns] @ tables.item_factors[:, columns].T)
            total += objectives.sigmoid(r + self.user_bias[users, k][:, None] + self.item_bias[:, k])
        return np.asarray(total / n)

    def pair_logits(self, users: Codes, items: Codes) -> NDArray[np.float64]:
        """The logits of the mean probabilities of pairs."""
        found = np.empty(len(users))
        for start in range(0, len(users), 65_536):
            part = slice(start, start + 65_536)
            u, i = users[part], items[part]
            n = self.user_bias.shape[1]
            products = self.tables.user_factors[u, :-1] * self.tables.item_factors[i, :-1]
            r = n * products.reshape(len(u), n, -1).sum(axis=2) + self.user_bias[u] + self.item_bias[i]
            found[part] = _logits(objectives.sigmoid(r.astype(np.float64)).mean(axis=1))
        return found


def _logits(p: NDArray[Any]) -> NDArray[Any]:
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return np.asarray(np.log(p) - np.log1p(-p))


@dataclass(kw_only=True, eq=False, repr=False)
class ImpressionMF(LabelNoise, FactorModel):
    """Bayesian logistic matrix factorization of impressions: p(like) with its uncertainty averaged out.

    r_ui = a_u + b_i + U_u . V_i, fitted to the shown pairs: p(taken) = sigma(r) if every showing is noticed, and
    q sigma(r) if a liked item is taken with probability q (see `miss_rate`). A shown item that was not taken counts as
    disliked with the probability that follows. A never-shown item says nothing of its label, but what was shown to whom
    tells of tastes where exposure follows them: the logit of p(shown) is c_u + d_i + w U_u . V_i + S_u . T_i, and w is
    learned (see `taste_in_exposure`).

    Instead of the one best value of the parameters, some samples of their posterior are kept (Langevin dynamics);
    `like_probability` is the mean of the samples' probabilities, and the score that ranks is the mean of their scores.
    The precisions of the prior are learned, so there is no regularization to choose.

    It is the most accurate model of likes where impressions are known. The cost grows with the impressions, in `steps`
    passes; for more than some 5 million shown pairs use `NBPO`.

    Without impressions, four random unobserved items of the user for each interaction count as shown. Then the
    probabilities have no meaning, and other models rank better.

    Parameters
    ----------
    factors : int or None, default None
        Factors of one sample. None: 4, 8 or 16, more the more pairs there are for each user and item.
    samples : int, default 32
        Number of samples of the posterior that are kept.
    steps : int, default 600
        Number of steps; each is a pass over all shown pairs.
    burn_in : int, default 200
        Number of steps before the first sample.
    miss_rate : float or None, default None
        The probability that a user misses a liked item when it is shown once. None: it is estimated where the
        impressions have positions, or times of repeated showings, and 0 otherwise.
    taste_in_exposure : bool, default True
        Whether what was shown also tells of tastes, because a recommender or the user chose it. How much is learned. It
        takes some five times as long. With `calibrate`, held-out pairs tell whether training starts from an exposure
        that follows tastes, which finds strong links, or from one that does not.
    calibrate : bool, default True
        Whether `like_probability` is calibrated. A tenth of the shown pairs, at most 200,000, is held out for it; if
        that is more than a hundredth of them, the model is then trained again on all. See `calibration_`.
    seed : int, default 0
        Seed. It alone decides the result.
    n_jobs : int or None, default -1
        Number of threads; -1: all cores. Never changes the result.

    Attributes
    ----------
    user_factors_, item_factors_, item_bias_
        The factors of all samples side by side, and the biases: U_u . V_i + b_i is the mean score.
    calibration_
        The map from the mean probability to the calibrated one.
    miss_rate_
        The miss rate that was used, or one for each position.
    taste_in_exposure_
        How much tastes decided what was shown: 0: they did not; 1: the logit of p(shown) follows them as that of
        p(like) does.

    Examples
    --------
    >>> import truelike as tl
    >>> world = tl.synthetic.World(n_users=200, n_items=100)
    >>> model = tl.ImpressionMF(steps=60, burn_in=20).fit(world.dataset(), impressions=world.impressions())
    >>> model.hidden_likes(7, k=2).columns[:3]
    ['user_id', 'item_id', 'posterior']
    """

    takes_impressions: ClassVar[bool] = True
    supports_partial_fit: ClassVar[bool] = False
    search_space: ClassVar[dict[str, Any]] = {"factors": [4, 8, 16]}

    factors: int | None = whole_number(None, low=1, optional=True)
    samples: int = whole_number(32, low=1, high=200)
    steps: int = whole_number(600, low=1, high=10**6)
    burn_in: int = whole_number(200, low=0, high=10**6)
    miss_rate: float | None = number(None, low=0.0, high=0.99)
    taste_in_exposure: bool = flag(True)
    calibrate: bool = flag(True)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        given = options.impressions is not None
        if given:
            check_held_out(options)
        pairs = (
            shown_pairs(options.impressions, train, self.miss_rate) if given else _random_pairs(train, self.seed)
        )
        shown = pairs if given and self.taste_in_exposure and pairs.all_shown else None
        factors = self._factors(pairs)

        def run(known: ShownPairs, data: Dataset, how: FitOptions, *, tastes_first: bool = False) -> _Posterior:
            sampler = LangevinSampler(
                known, factors, seed=self.seed, n_jobs=self.n_jobs, shown=shown, tastes_first=tastes_first
            )
            with step_bar(self.name, self.steps, show=how.progress) as done:
                samples = sampler.run(self.steps, min(self.burn_in, self.steps - 1), self.samples, done)
            return _Posterior.of(samples, float(sampler.users.precision[:factors].mean()))

        found = Calibrated(None, None)
        if given and self.calibrate:
            other = None if shown is None else partial(run, tastes_first=True)
            found = calibrated_fit(
                pairs, train, options, seed=self.seed, run=run, scores=_Posterior.pair_logits, other=other
            )
        posterior = found.result or run(pairs, train, options)
        return self._learned(posterior, pairs if given else None, found.probability)

    def _factors(self, pairs: ShownPairs) -> int:
        if self.factors is not None:
            return self.factors
        per_row = pairs.n_pairs / sum(pairs.shape) / PAIRS_PER_FACTOR
        return int(np.clip(2 ** round(np.log2(max(per_row, 1.0))), FEWEST, MOST))

    def _learned(
        self, posterior: _Posterior, pairs: ShownPairs | None, calibration: ProbabilityMap | None
    ) -> dict[str, Any]:
        return {
            **table_attributes(posterior.tables),
            "posterior_": posterior,
            "known_flips_": pairs,
            "calibration_": calibration,
            "miss_rate_": None if pairs is None else pairs.miss_rate,
            "taste_in_exposure_": posterior.weight,
        }

    def _expected_seconds(self, train: Dataset) -> float:
        return self.steps * train.n_interactions * NEGATIVES * 16 * 1.5e-9

    def _arrays(self) -> dict[str, NDArray[Any]]:
        posterior: _Posterior = self.posterior_
        biases = {
            "sample.user_bias": posterior.user_bias,
            "sample.item_bias": posterior.item_bias,
            "sample.precision": np.array([posterior.precision]),
            "sample.weight": np.array([posterior.weight]),
            "sample.factors": np.array(
                [posterior.tables.factors], dtype=np.int64
            ),  # of all samples; rows are wider
        }
        parts = (self.known_flips_, self.calibration_)
        known = {name: array for part in parts if part is not None for name, array in part.arrays().items()}
        return {**posterior.tables.arrays(), **biases, **known}

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        user_bias, item_bias = arrays["sample.user_bias"], arrays["sample.item_bias"]
        n = user_bias.shape[1]
        factors = int(arrays["sample.factors"][0])
        if not 1 < factors <= arrays["users"].shape[1] or (factors - 1) % n:
            raise ValueError("the factors of the samples are not those of the rows")
        tables: Tables = restored_tables(arrays, train, factors)["tables_"]
        if user_bias.shape != (train.n_users, n) or item_bias.shape != (train.n_items, n):
            raise ValueError("the biases of the samples are not those of the users and items")
        precision, weight = (float(arrays[f"sample.{name}"][0]) for name in ("precision", "weight"))
        if not weight >= 0:
            raise ValueError("the weight of tastes in the exposure is negative")
        posterior = _Posterior(tables, user_bias, item_bias, precision, weight)
        return self._learned(posterior, ShownPairs.restored(arrays, train), ProbabilityMap.restored(arrays))

    # --- probabilities --------------------------------------------------------------------------

    @property
    def _has_flips(self) -> bool:
        return True

    @property
    def _flips_from(self) -> str:
        return "interactions" if self.known_flips_ is None else str(self.known_flips_.basis)

    def _flip_logits(self, users: Codes) -> Floats:
        if self.known_flips_ is None:
            return np.zeros((len(users), self.train_.n_items), dtype=np.float32)
        return np.asarray(self.known_flips_.dense_logits(users), dtype=np.float32)

    def _like_logits(self, users: Codes) -> Floats:
        posterior: _Posterior = self.posterior_
        return _logits(posterior.probabilities(users)).astype(np.float32)

    def _like_of_scores(self, scores: Floats) -> Floats:
        """About: the probability is that of a pair with this score on average."""

        def line() -> tuple[float, float]:
            users = np.unique(np.linspace(0, self.train_.n_users - 1, 100).astype(np.int32))
            r, p = self._score_block(users).ravel(), self._like_logits(users).ravel()
            slope = float(np.cov(r, p)[0, 1] / max(float(np.var(r)), 1e-9))
            return slope, float(p.mean() - slope * r.mean())

        slope, intercept = self._cached("moderation", line)
        return super()._like_of_scores(np.asarray(slope * scores + intercept, dtype=np.float32))

    def _like_of_pairs(self, users: Codes, items: Codes, scores: Floats) -> Floats:
        posterior: _Posterior = self.posterior_
        return LabelNoise._like_of_scores(self, posterior.pair_logits(users, items).astype(np.float32))

    # --- new users ------------------------------------------------------------------------------

    def _fold_in(self, history: Codes) -> Floats:
        tables = self._tables()
        assert tables.item_bias is not None
        return fold_in_all(
            tables.item_factors,
            tables.item_bias,
            history,
            objectives.NBPOo,
            self._cached("typical flips", self._typical_flips),
            unobserved_weight=1.0,
            regularization=float(self.posterior_.precision),
        )

    def _typical_flips(self) -> Floats:
        known = self.known_flips_ or _random_pairs(self.train_, self.seed)
        return np.asarray(known.average_logits(), dtype=np.float32)


def _random_pairs(train: Dataset, seed: int) -> ShownPairs:
    """The interactions, and random items of the same users that count as shown."""
    from scipy import sparse

    users = np.repeat(train._user_of_entry, NEGATIVES)
    drawn = randomness.uniform(randomness.key(seed, "shown at random"), np.arange(len(users))) * train.n_items
    items = np.minimum(drawn.astype(np.int64), train.n_items - 1)
    ones = np.ones(len(users), dtype=np.float32)
    shown = sparse.csr_array((ones, (users, items)), shape=train._csr.shape)
    shown.sort_indices()
    return ShownPairs.merged(train._csr, shown, np.zeros(0, np.float32), -CERTAIN)
