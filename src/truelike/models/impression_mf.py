"""ImpressionMF: logistic matrix factorization of what was shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike import objectives
from truelike.core import randomness
from truelike.core.parameters import flag, jobs, number, whole_number
from truelike.core.progress import note
from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.engines.blocks.langevin import BlockSampler
from truelike.engines.blocks.workers import allocator
from truelike.engines.callbacks import step_bar
from truelike.engines.langevin.engine import LangevinSampler, Sample, Shape, stretches
from truelike.engines.langevin.link import CLEARLY, are_shown, tested
from truelike.engines.options import FitOptions
from truelike.engines.tables import Tables
from truelike.errors import ParameterError
from truelike.exposure.calibration import ProbabilityMap, Run, Shown, calibrated_fit
from truelike.exposure.shown_blocks import ShownBlocks, shown_blocks
from truelike.exposure.shown_pairs import CERTAIN, NONE, HeldOutPairs, ShownPairs, shown_pairs
from truelike.models.factor_model import FactorModel, restored_tables, table_attributes
from truelike.models.fold_in import AllItemsFoldIn
from truelike.models.label_noise import INTERACTIONS, Flips, LabelNoise
from truelike.models.scorer import DotProduct, Floats

NEGATIVES = 4  # unobserved items of a user, for each interaction, that count as shown without impressions
CHEAP_PAIRS, MANY_STEPS, FEW_STEPS = 4_000_000, 300, 150  # shown pairs up to which there are many steps
PAIRS_PER_FACTOR = 8.0  # shown pairs of a row, for each factor
FEWEST, MOST = 4, 16  # factors
PAIRS_AT_ONCE = 65_536  # whose probabilities are computed together


@final
class _Posterior:
    """Samples of the posterior, as tables of a factor model whose score is the mean of the samples' scores."""

    def __init__(
        self, tables: Tables, user_bias: Floats, item_bias: Floats, precision: float, weight: float
    ) -> None:
        self.tables, self.user_bias, self.item_bias = tables, user_bias, item_bias
        self.precision, self.weight = precision, weight

    @classmethod
    def of(cls, samples: Iterable[Sample], n: int, factors: int, train: Dataset | Blocks) -> _Posterior:
        """The posterior of n samples."""
        tables = Tables.zeros(
            train.n_users, train.n_items, n * factors + 1, 0, biased=True, allocate=allocator(train)
        )
        assert tables.item_bias is not None
        user_bias, item_bias = (np.empty((size, n), dtype=np.float32) for size in (train.n_users, train.n_items))
        root, weights, precision = np.float32(np.sqrt(n)), [], 0.0
        for k, sample in enumerate(samples):
            columns = slice(k * factors, (k + 1) * factors)
            tables.user_factors[:, columns] = sample.users[:, :-1] / root
            tables.item_factors[:, columns] = sample.items[:, :-1] / root
            user_bias[:, k], item_bias[:, k] = sample.users[:, -1], sample.items[:, -1]
            weights.append(sample.weight)
            precision = sample.precision
        tables.user_factors[:, -1], tables.item_factors[:, -1] = user_bias.mean(axis=1), 1.0
        tables.item_bias[:] = item_bias.mean(axis=1)
        return cls(tables, user_bias, item_bias, precision, float(np.mean(weights)))

    def tastes(self, users: Codes, items: Codes) -> Floats:
        """The mean of the samples' u . v of pairs."""
        found = np.empty(len(users), dtype=np.float32)
        for part in _parts(len(users)):
            u, v = self.tables.user_factors[users[part], :-1], self.tables.item_factors[items[part], :-1]
            found[part] = np.einsum("nk,nk->n", u, v)
        return found

    # --- the logits of the mean of the samples' probabilities: see `LikeLogits` --------------------

    def of_users(self, users: Codes) -> Floats:
        """Those of all items for some users."""
        tables, n = self.tables, self.user_bias.shape[1]
        factors = (tables.factors - 1) // n
        total = np.zeros((len(users), len(tables.items)))
        for k in range(n):
            columns = slice(k * factors, (k + 1) * factors)
            r = n * (tables.user_factors[users, columns] @ tables.item_factors[:, columns].T)
            total += objectives.sigmoid(r + self.user_bias[users, k][:, None] + self.item_bias[:, k])
        return _logits(total / n).astype(np.float32)

    def of_pairs(self, users: Codes, items: Codes) -> Floats:
        """Those of pairs, at the cost of the pairs."""
        return self.exact_of_pairs(users, items).astype(np.float32)

    def exact_of_pairs(self, users: Codes, items: Codes) -> NDArray[np.float64]:
        """The same in double precision, which a calibration is fitted to."""
        found, n = np.empty(len(users)), self.user_bias.shape[1]
        for part in _parts(len(users)):
            u, i = users[part], items[part]
            products = self.tables.user_factors[u, :-1] * self.tables.item_factors[i, :-1]
            r = n * products.reshape(len(u), n, -1).sum(axis=2) + self.user_bias[u] + self.item_bias[i]
            found[part] = _logits(objectives.sigmoid(r.astype(np.float64)).mean(axis=1))
        return found

    def of_scores(self, scores: Floats) -> Floats:
        """About: those of pairs with these scores on average."""
        slope, intercept = self._line
        return np.asarray(slope * scores + intercept, dtype=np.float32)

    @cached_property
    def _line(self) -> tuple[float, float]:
        """The slope and the intercept of the line from the mean score to the logit of the mean probability."""
        users = np.unique(np.linspace(0, len(self.user_bias) - 1, 100).astype(np.int32))
        vectors = DotProduct(self.tables.user_factors, self.tables.item_factors, self.tables.item_bias)
        r, p = vectors.scores(users).ravel(), self.of_users(users).ravel()
        slope = float(np.cov(r, p)[0, 1] / max(float(np.var(r)), 1e-9))
        return slope, float(p.mean() - slope * r.mean())

    # --- storage ------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that are saved."""
        return {
            **self.tables.arrays(),
            "sample.user_bias": self.user_bias,
            "sample.item_bias": self.item_bias,
            "sample.precision": np.array([self.precision]),
            "sample.weight": np.array([self.weight]),
            "sample.factors": np.array([self.tables.factors], dtype=np.int64),  # of all samples; rows are wider
        }

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]], train: Dataset) -> _Posterior:
        """The posterior of saved arrays."""
        user_bias, item_bias = arrays["sample.user_bias"], arrays["sample.item_bias"]
        n, factors = user_bias.shape[1], int(arrays["sample.factors"][0])
        if not 1 < factors <= arrays["users"].shape[1] or (factors - 1) % n:
            raise ValueError("the factors of the samples are not those of the rows")
        tables: Tables = restored_tables(arrays, train, factors)["tables_"]
        if user_bias.shape != (train.n_users, n) or item_bias.shape != (train.n_items, n):
            raise ValueError("the biases of the samples are not those of the users and items")
        precision, weight = (float(arrays[f"sample.{name}"][0]) for name in ("precision", "weight"))
        if not weight >= 0:
            raise ValueError("the weight of tastes in the exposure is negative")
        return cls(tables, user_bias, item_bias, precision, weight)


def _parts(n: int) -> Iterator[slice]:
    """Ranges of pairs, so that memory is bounded."""
    return (slice(start, start + PAIRS_AT_ONCE) for start in range(0, n, PAIRS_AT_ONCE))


def _logits(p: NDArray[np.float64]) -> NDArray[np.float64]:
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return np.asarray(np.log(p) - np.log1p(-p))


class _NoFlips:
    """The flips of a model that knows no impressions: every flip logit is 0."""

    def __init__(self, n_items: int) -> None:
        self.n_items = n_items

    def dense_logits(self, users: Codes) -> Floats:
        return np.zeros((len(users), self.n_items), dtype=np.float32)

    def average_logits(self) -> Floats:
        return np.zeros(self.n_items, dtype=np.float32)


@dataclass(kw_only=True, eq=False, repr=False)
class ImpressionMF(LabelNoise, FactorModel):
    """Logistic matrix factorization of impressions, at any size: p(like) of what was shown and of what was not.

    r_ui = a_u + b_i + U_u . V_i, fitted to the shown pairs: p(taken) = sigma(r) if every showing is noticed, and
    q sigma(r) if a liked item is taken with probability q (see `miss_rate`): Equation 6 of the paper, with known flips.
    A shown item that was not taken counts as disliked with the probability that follows. A never-shown item says
    nothing of its label.

    It keeps some samples of the posterior (Langevin dynamics) instead of the one best value of the parameters:
    `like_probability` is the mean of the samples' probabilities, and the score that ranks is the mean of their scores.
    It takes `steps` passes over the shown pairs, and has the same bits in memory, on blocks and on Ray.

    Where exposure follows tastes, what was shown tells of them, too: the logit of p(shown) is
    c_u + d_i + w U_u . V_i + S_u . T_i, and w is learned (see `taste_in_exposure`).

    Without impressions, four random unobserved items of the user for each interaction count as shown. Then the
    probabilities have no meaning, and other models rank better.

    Parameters
    ----------
    factors : int or None, default None
        Factors of one sample. None: 4, 8 or 16, more the more pairs there are for each user and item.
    samples : int, default 24
        Number of samples of the posterior that are kept.
    steps : int or None, default None
        Number of steps; each is a pass over all shown pairs. None: 300 for up to 4 million pairs, and 150
        for more.
    burn_in : int or None, default None
        Number of steps before the first sample. None: a fifth of the steps.
    taste_in_exposure : bool, default True
        Whether what was shown may also tell of tastes, because a recommender or the user chose it. The
        pairs that are held out to calibrate tell whether it does (see `exposure_z_`). If so, how much is learned, and
        training takes some five times as long. Without `calibrate`, labels alone are learned from.
    miss_rate : float or None, default None
        The probability that a user misses a liked item when it is shown once. None: it is estimated where the
        impressions have positions, or times of repeated showings, and 0 otherwise. On blocks, None is 0.
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
    exposure_z_
        The statistic of the test whether exposure follows tastes; it does if this is above 3. None: not tested.
    steps_
        The number of steps.

    Examples
    --------
    >>> import truelike as tl
    >>> world = tl.synthetic.World(n_users=200, n_items=100)
    >>> data = tl.read(world.dataset(), impressions=world.impressions())
    >>> model = tl.ImpressionMF(steps=60, burn_in=20).fit(data)
    >>> model.hidden_likes(7, k=2).columns[:3]
    ['user_id', 'item_id', 'posterior']
    """

    uses: ClassVar[frozenset[str]] = frozenset({"shown", "times"})
    trains_on_blocks: ClassVar[bool] = True
    supports_partial_fit: ClassVar[bool] = False
    search_space: ClassVar[dict[str, Any]] = {"factors": [4, 8, 16]}

    factors: int | None = whole_number(None, low=1, optional=True)
    samples: int = whole_number(24, low=1, high=200)
    steps: int | None = whole_number(None, low=1, high=10**6, optional=True)
    burn_in: int | None = whole_number(None, low=0, high=10**6, optional=True)
    taste_in_exposure: bool = flag(True)
    miss_rate: float | None = number(None, low=0.0, high=0.99)
    calibrate: bool = flag(True)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        pairs = self._shown(train, options)
        sampling = _Sampling(self, pairs, train, options)
        if train.shown is None or not self.calibrate:
            posterior, calibration = sampling.run(pairs), None
        else:
            posterior, calibration = calibrated_fit(
                pairs,
                seed=self.seed,
                run=sampling.run,
                scores=_Posterior.exact_of_pairs,
                revise=sampling.revised if self.taste_in_exposure else None,
            )
        return _learned(posterior, None if train.shown is None else pairs, calibration, sampling.steps, sampling.z)

    def _shown(self, train: Dataset | Blocks, options: FitOptions) -> Shown:
        """The shown pairs: the one place that reads the impressions of a dataset."""
        if train.shown is None:
            return _random_pairs(train, self.seed)
        if isinstance(options.validation, float) and options.validation:
            raise ParameterError(
                "with impressions a held-out interaction looks like a dislike: split the data, and call "
                "fit(split), which holds out what was shown, too"
            )
        if isinstance(train, Blocks):
            return shown_blocks(train, train.shown, self.miss_rate)
        return shown_pairs(train, train.shown, self.miss_rate)

    def _steps(self, n_pairs: int) -> int:
        """Many steps where they are cheap."""
        return self.steps or (MANY_STEPS if n_pairs <= CHEAP_PAIRS else FEW_STEPS)

    def _factors(self, pairs: Shown) -> int:
        if self.factors is not None:
            return self.factors
        per_row = pairs.n_pairs / sum(pairs.shape) / PAIRS_PER_FACTOR
        return int(np.clip(2 ** round(np.log2(max(per_row, 1.0))), FEWEST, MOST))

    def _expected_seconds(self, train: Dataset) -> float:
        shown, pairs = train.shown, train.n_interactions * (NEGATIVES + 1)
        if shown is not None:
            pairs = shown.n_interactions if isinstance(shown, Blocks) else shown.n_entries
        runs = 1 if train.shown is None or not self.calibrate else 2
        return runs * self._steps(pairs) * (pairs + train.n_users + train.n_items) * 1e-7

    def _arrays(self) -> dict[str, NDArray[Any]]:
        parts = (self.posterior_, self.shown_, self.calibration_)
        found = {name: array for part in parts if part is not None for name, array in part.arrays().items()}
        z = [] if self.exposure_z_ is None else [self.exposure_z_]
        about = {"exposure_z": np.array(z, dtype=np.float64), "steps": np.array([self.steps_], dtype=np.int64)}
        return {**found, **about}

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        posterior = _Posterior.restored(arrays, train)
        pairs = ShownBlocks.restored(arrays, train) or ShownPairs.restored(arrays, train)
        z = float(arrays["exposure_z"][0]) if len(arrays["exposure_z"]) else None
        return _learned(posterior, pairs, ProbabilityMap.restored(arrays), int(arrays["steps"][0]), z)

    # --- probabilities --------------------------------------------------------------------------

    @property
    def _has_flips(self) -> bool:
        return True

    @property
    def evidence(self) -> str:
        """What the probabilities are known from: "impressions" or "propensities"; "interactions" without."""
        return INTERACTIONS if self.shown_ is None else str(self.shown_.evidence)

    @property
    def _flips(self) -> Flips:
        return self.shown_ or _NoFlips(self.train_.n_items)

    def _like_logits(self) -> tuple[_Posterior, ProbabilityMap | None]:
        return self.posterior_, self.calibration_

    def exposed_users(self) -> NDArray[np.float64] | None:
        """The expected number of users who noticed each item; None without impressions."""
        return None if self.shown_ is None else self.shown_.exposed_users()

    # --- new users ------------------------------------------------------------------------------

    def _fold_in(self) -> AllItemsFoldIn:
        tables = self._tables()
        return AllItemsFoldIn(
            tables.item_factors,
            tables.item_bias,
            objectives.NBPOo,
            self.shown_ or _random_pairs(self.train_, self.seed),
            unobserved_weight=1.0,
            l2=float(self.posterior_.precision),
        )


def _learned(
    posterior: _Posterior, pairs: Shown | None, calibration: ProbabilityMap | None, steps: int, z: float | None
) -> dict[str, Any]:
    return {
        **table_attributes(posterior.tables),
        "posterior_": posterior,
        "shown_": pairs,
        "calibration_": calibration,
        "miss_rate_": None if pairs is None else pairs.miss_rate,
        "taste_in_exposure_": posterior.weight,
        "exposure_z_": z,
        "steps_": steps,
    }


class _Sampling:
    """Sampling the posterior: how many steps there are, and what was found of the exposure."""

    def __init__(self, model: ImpressionMF, pairs: Shown, train: Dataset | Blocks, options: FitOptions) -> None:
        self.model, self.pairs, self.train, self.options = model, pairs, train, options
        self.factors, self.steps = model._factors(pairs), model._steps(pairs.n_pairs)
        self.burn_in = min(self.steps // 5 if model.burn_in is None else model.burn_in, self.steps - 1)
        self.z: float | None = None
        self.added = 0  # interactions that are not among the impressions

    def run(self, known: Shown, *, link: float | None = None) -> _Posterior:
        """Sample given the labels of pairs, and with a link given the exposure, too."""
        model, joint = self.model, link is not None
        note(f"{model.name}: {self.steps} steps over {known.n_pairs:,} shown pairs, {self.factors} factors")
        sampler = self._sampler(known, joint, link or 0.0)
        n = len(stretches(self.steps, self.burn_in, model.samples, joint=joint))
        with step_bar(model.name, self.steps, show=self.options.progress) as done:
            samples = sampler.run(self.steps, self.burn_in, model.samples, done)
            posterior = _Posterior.of(samples, n, self.factors, self.train)
        self.added = known.counts.added if isinstance(known, ShownBlocks) else known.added
        return posterior

    def _sampler(self, known: Shown, joint: bool, link: float) -> LangevinSampler | BlockSampler:
        seed, n_jobs = self.model.seed, self.model.n_jobs
        if isinstance(known, ShownBlocks):
            shape = Shape(self.factors, joint, seed)
            return BlockSampler(known.train, known, shape, cluster=self.options.cluster, n_jobs=n_jobs, link=link)
        shown = self.pairs if isinstance(self.pairs, ShownPairs) and joint else None
        return LangevinSampler(known, self.factors, seed=seed, n_jobs=n_jobs, shown=shown, link=link)

    def revised(self, first: _Posterior, held_out: HeldOutPairs) -> Run[_Posterior] | None:
        """Training with the exposure, if the held-out pairs tell that it follows tastes."""
        name, pairs, users, items = self.model.name, self.pairs, held_out.users, held_out.items
        if isinstance(pairs, ShownBlocks):
            if self.added:
                note(f"{name}: some interactions are not among the impressions, so blocks do not tell of exposure")
                return None
        elif pairs.evidence != "impressions":
            return None
        elif len(pairs.unlisted):
            listed = are_shown(pairs.select(pairs.unlisted == 0), users, items)
            users, items = users[listed], items[listed]
        link = tested(users, items, partial(are_shown, pairs), first.tastes, self.model.seed)
        self.z = link.z
        follows = "follows tastes and is learned from" if link.is_clear else "does not follow tastes"
        note(f"{name}: exposure {follows} (z = {link.z:.1f}, with tastes above {CLEARLY:g})")
        return partial(self.run, link=link.weight) if link.is_clear else None


def _random_pairs(train: Dataset | Blocks, seed: int) -> ShownPairs:
    """The interactions, and random items of the same users that count as shown."""
    if isinstance(train, Blocks):
        raise ParameterError(
            "ImpressionMF needs impressions on several blocks: fit(blocks.with_impressions(another block directory))"
        )
    users = np.repeat(train.entry_users, NEGATIVES)
    drawn = randomness.uniform(randomness.key(seed, "shown at random"), np.arange(len(users))) * train.n_items
    items = np.minimum(drawn.astype(np.int64), train.n_items - 1)
    ones = np.ones(len(users), dtype=np.float32)
    shown = sparse.csr_array((ones, (users, items)), shape=train.csr.shape)
    shown.sort_indices()
    return ShownPairs.merged(train.csr, shown, NONE, -CERTAIN)
