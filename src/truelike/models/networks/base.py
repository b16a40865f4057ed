"""NetworkModel: the base class of models whose scores are computed by networks."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from truelike import negatives as sampling
from truelike import objectives
from truelike.core import randomness
from truelike.core.memory import check_memory
from truelike.core.parameters import flag, jobs, number, special, whole_number
from truelike.data.checks import known_interactions
from truelike.data.dataset import Dataset
from truelike.data.features import Features, OnMissing
from truelike.data.ids import Codes
from truelike.engines.lists.correction import Correction, check_known
from truelike.engines.loop import Result, Trainer, fit_epochs
from truelike.engines.options import FitOptions
from truelike.engines.regularization import interactions_per_row
from truelike.engines.sgd.samples import SGDSettings
from truelike.engines.torch import backend
from truelike.engines.torch.backend import Module
from truelike.engines.torch.engine import NetworkEngine
from truelike.engines.torch.networks import Inputs, Maker, Networks
from truelike.errors import ParameterError, StorageError, TrainingWarning, warn
from truelike.evaluation.metrics import is_metric_at_k
from truelike.models import objective_names
from truelike.models.base import Recommender
from truelike.models.label_noise import Flips, LabelNoise
from truelike.models.networks import checks, network_names
from truelike.models.networks.scorer import NetworkScorer, Outputs, Settings

Side = Literal["user", "item"]
FeatureTables = dict[Side, Features]
SIDES: tuple[Side, ...] = ("user", "item")
DECAY = 0.95  # of the learning rate, an epoch
FLIP_RATE = 0.1  # of ShiftMC and NBPR
MIN_BATCH, MAX_BATCHES = 5_000, 40  # positives in a batch, and batches in an epoch, if batch_size is None
FLAT = 0.02  # standard deviation of the scores below which they rank nothing
MEASURED_USERS = 20  # users for whom it is measured
BYTES = 8  # of a sample and a factor at least: the rows of an item, and their gradient
SMALL_BATCH = 1 << 18  # numbers in a batch below which one thread is as fast as several


def objective_field(default: str) -> Any:
    """The parameter `objective`, with the default of a model."""
    return special(default, objective_names.ANY, objective_names.is_objective)


def flips_field(default: str) -> Any:
    """The parameter `flips`, with the default of a model."""
    return special(default, network_names.EXPECTED, lambda value: value is None or network_names.is_network(value))


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkModel(LabelNoise, Recommender):
    """Base class of models whose scores, and flips if the objective has any, are computed by networks.

    Parameters
    ----------
    objective : str or class, default 'NBPO'
        "BPO", "BPR", "NBPO", "NBPO-s", "NBPO-o", "NBPO-lb", "ShiftMC", "NBPR", "softmax", or a Pointwise, Pairwise or
        Listwise class. The flip rate of ShiftMC and NBPR is 0.1. A listwise objective is trained on lists of a positive
        and its negatives.
    flips : str, function or None, default 'MF'
        The network of the flip logits g, for objectives with flips: "MF", "FM", "NeuMF", "ACF", "LightGCN", or a
        function that makes one from `Inputs`. None: g = 0 (the paper's Equation 11).
    negatives : str or Negatives, default 'uniform'
        The sampler: "uniform", "popularity", "popularity^0.5", "hard", "hard:10", "ahns", or an object of a subclass
        of Negatives.
    factors : int, default 64
        Width of the preference network.
    flip_factors : int, default 32
        Width of the flip network.
    learning_rate : float, default 0.005
        Learning rate of Adam. Epoch e (from 0) runs at learning_rate x 0.95^(e + 1).
    regularization : float or None, default None
        L2 of the preference network, which counts once per pass over the data. None: 15, or 8 for an objective with
        flips, or 4 for a listwise one; less for data with fewer than about 20 interactions a user and an item.
    flip_regularization : float, default 15.0
        L2 of the flip network.
    n_negatives : int, default 4
        Negatives for each positive. A positive counts once for each of them.
    corrected : bool, default True
        For listwise objectives: whether ln(n q) is subtracted from the score of a negative, where n negatives are drawn
        with probabilities q, so that they stand for all unobserved items. Samplers that choose by scores, such as
        "hard", need False.
    batch_size : int or None, default 2000
        Positives in a batch. None: 5,000, or a fortieth of the interactions if this is more.
    epochs : int, default 40
        Maximum number of epochs.
    metric : str, default 'ndcg@20'
        Validation metric whose best epoch is kept.
    patience : int or None, default 5
        Stop after this many epochs without a better one; None: never. Training never stops before it ranks better
        than item popularity.
    device : str, default 'auto'
        "auto": "cuda" if PyTorch finds it, otherwise "cpu"; or "cuda:1", "mps", "xpu".
    seed : int, default 0
        Seed. It alone decides the result (on a GPU, as far as PyTorch allows).
    n_jobs : int or None, default -1
        Number of threads; -1: all cores.

    Attributes
    ----------
    networks_
        `networks_.preference` and `networks_.flips`, the trained modules.
    features_
        Features of users and items, if they were given: a dict with "user" and "item".
    history_
        A frame with one row per epoch: epoch, seconds, loss and each validation metric.
    """

    iterative: ClassVar[bool] = True
    scores_by_vectors: ClassVar[bool] = True
    supports_partial_fit: ClassVar[bool] = False
    scores_by_features: ClassVar[bool] = False  # also users and items without interactions
    order: ClassVar[Literal["shuffled", "users"]] = "shuffled"  # of the positives in an epoch: see `SGDSettings`
    search_space: ClassVar[dict[str, Any]] = {
        "factors": [32, 64, 128],
        "learning_rate": (0.001, 0.02),
        "regularization": (3.0, 60.0),
        "flip_regularization": (1.0, 60.0),
        "n_negatives": (1, 8),
    }

    objective: Any = objective_field("NBPO")
    flips: Any = flips_field("MF")
    negatives: Any = special("uniform", sampling.NAMES, sampling.is_distribution)
    factors: int = whole_number(64, low=1)
    flip_factors: int = whole_number(32, low=1)
    learning_rate: float = number(0.005, low=1e-9)
    regularization: float | None = number(None, low=0.0)
    flip_regularization: float = number(15.0, low=0.0)
    n_negatives: int = whole_number(4, low=1)
    corrected: bool = flag(True)
    batch_size: int | None = whole_number(2_000, low=1, high=2**31 - 1, optional=True)
    epochs: int = whole_number(40, low=0)
    metric: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_metric_at_k)
    patience: int | None = whole_number(5, low=1, optional=True)
    device: str = special("auto", '"auto", "cpu", "cuda", "cuda:N", "mps" or "xpu"', backend.is_device)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def _complete(self) -> None:
        backend.need(type(self).__name__)
        if isinstance(self.objective, str):
            self.objective = objective_names.known_name(self.objective)
        if self._is_corrected and not str(self.negatives).startswith(sampling.OWN):
            check_known(sampling.parse(self.negatives))

    # --- what a model implements ----------------------------------------------------------------

    @abstractmethod
    def _preference(self) -> Maker:
        """The function that makes the preference network."""

    # --- parameters -----------------------------------------------------------------------------

    @final
    @property
    def _is_listwise(self) -> bool:
        return issubclass(objective_names.kind_of(self.objective), objectives.Listwise)

    @final
    @property
    def _is_corrected(self) -> bool:
        return self.corrected and self._is_listwise

    @final
    def _objective(self) -> type[objectives.Objective]:
        return objective_names.objective(self.objective, FLIP_RATE)

    def _saved_parameters(self) -> dict[str, Any]:
        return {
            **self.get_params(),
            "negatives": sampling.saved_name(self.negatives),
            "objective": objective_names.saved_name(self.objective),
            "flips": network_names.saved_name(self.flips),
        }

    # --- learning -------------------------------------------------------------------------------

    @final
    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        features = _of_dataset(self._read_features(train), train, getattr(self, "missing_features", "raise"))
        warm = train
        if self.scores_by_features:
            # ids without interactions are not trained on: as negatives they would be learned as disliked
            observed = {"user": train.interactions_per_user() > 0, "item": train.popularity() > 0}
            kept = [observed[side] | (side not in features) for side in SIDES]
            if not all(each.all() for each in kept):
                self._check_cold()
                warm = train.restrict(*kept)
                if isinstance(options.validation, Dataset):
                    options = replace(options, validation=known_interactions(options.validation, warm))
        own = _of_dataset(features, warm)
        with backend.gradients_enabled():
            result = fit_epochs(self._trainer(own), warm, options)
        self._warn_if_flat(result, warm, own)
        if warm is not train:
            self._describe(result.trained, train, features)
        return {**self._learned(result.trained, features), **result.histories(train.library)}

    def _read_features(self, train: Dataset) -> FeatureTables:
        found: FeatureTables = {}
        for side, known, ids in (
            (SIDES[0], train.user_features, train.users),
            (SIDES[1], train.item_features, train.items),
        ):
            if known is not None and f"{side}_features" in self.uses:
                found[side] = Features.read(known.table(ids), side).with_kind_of(ids)
        return found

    @final
    def _check_cold(self) -> None:
        """Raise if the flip network cannot score ids without interactions."""
        if self._has_flips and self.flips != "FM":
            raise ParameterError(
                f"flips={self.flips!r} cannot score users or items without interactions, and the features have some: "
                'use flips="FM" or flips=None, or remove them from the features'
            )

    @final
    def _describe(self, networks: Networks, whole: Dataset, features: FeatureTables) -> None:
        """Let trained networks score all users and items of a dataset, also those without interactions."""
        for network in networks.parts().values():
            if hasattr(network, "describe"):
                where = network.bias.device
                network.describe(_inputs(whole, self.factors, features))
                network.to(where)
        networks.version += 1

    @staticmethod
    def _learned(networks: Networks, features: FeatureTables) -> dict[str, Any]:
        networks.training(False)
        return {"networks_": networks, "features_": features}

    @final
    def _trainer(self, features: FeatureTables) -> _Trainer:
        return _Trainer(self, features)

    @final
    def _networks(self, train: Dataset, features: FeatureTables) -> Networks:
        def made(part: str, maker: Maker, factors: int) -> Module:
            with backend.seeded(randomness.key(self.seed, part)):
                return checks.make(part, maker, _inputs(train, factors, features))

        with backend.gradients_enabled():
            preference = made("preference", self._preference(), self.factors)
            if not self._has_flips:
                return Networks(preference, None)
            flips = made("flips", network_names.maker(self.flips), self.flip_factors)
            checks.check_separate(preference, flips)
            return Networks(preference, flips)

    @final
    def _engine(self, train: Dataset, networks: Networks) -> NetworkEngine:
        settings = SGDSettings(
            learning_rate=self.learning_rate,
            decay=DECAY,
            regularization=self._strength(train),
            flip_regularization=self.flip_regularization,
            l2_schedule="epoch",
            n_negatives=self.n_negatives,
            batch_size=self.batch_size or max(MIN_BATCH, -(-train.n_interactions // MAX_BATCHES)),
            order=self.order,
        )
        negatives = sampling.parse(self.negatives)
        samples = min(settings.batch_size, train.n_interactions) * (1 + self.n_negatives * negatives.draws)
        check_memory(
            BYTES * samples * self.factors,
            f"a batch of {samples:,} positives and negatives",
            f"Use fewer negatives (n_negatives={self.n_negatives}) or a smaller batch_size ({settings.batch_size:,}).",
        )
        return NetworkEngine(
            train,
            networks,
            self._objective(),
            negatives,
            settings,
            seed=self.seed,
            device=backend.device(self.device),
            n_jobs=self.n_jobs if samples * self.factors > SMALL_BATCH else 1,
            correction=Correction.of(train, negatives, self.n_negatives) if self._is_corrected else None,
        )

    def _strength(self, train: Dataset) -> float:
        """The given regularization, otherwise one by the objective and the number of interactions of a row."""
        if self.regularization is not None:
            return self.regularization
        flips = objective_names.kind_of(self.objective).uses_flips
        usual = 8.0 if flips else 4.0 if self._is_listwise else 15.0
        return usual * min(1.0, interactions_per_row(train) / 20)

    def _warn_if_flat(self, result: Result[Networks], train: Dataset, features: FeatureTables) -> None:
        spread, strength = _spread(result.trained, train), self._strength(train)
        # a network whose scores are that small from the start is not flattened by regularization
        if strength and spread < FLAT and spread < _spread(self._networks(train, features), train) / 8:
            warn(
                f"{self.name}: the standard deviation of the scores is only {spread:.1g}: regularization={strength:g} "
                f"shrinks the network to zero. Try regularization={strength / 4:g}.",
                TrainingWarning,
            )

    # --- answering ------------------------------------------------------------------------------

    @final
    def _make_scorer(self) -> NetworkScorer:
        popularity = self.train_.popularity()
        # items that have features alone were never sampled in training
        never = np.flatnonzero(popularity == 0 if self.scores_by_features and "item" in self.features_ else [])

        def probabilities(history: Codes) -> NDArray[np.float64]:
            """The probability of each item as a negative of a new user."""
            return sampling.parse(self.negatives).probabilities(popularity, np.union1d(history, never))

        settings = Settings(
            self._objective,
            probabilities,
            self.n_negatives,
            self._strength(self.train_),
            self.seed,
            self.corrected,
        )
        return NetworkScorer(self.train_, self.networks_, settings)

    @property
    def _has_flips(self) -> bool:
        return objective_names.kind_of(self.objective).uses_flips and self.flips is not None

    @final
    @property
    def _flips(self) -> Flips:
        scorer = self.scorer
        assert isinstance(scorer, NetworkScorer)
        assert scorer.flips is not None
        return scorer.flips

    # --- files ----------------------------------------------------------------------------------

    @final
    def _arrays(self) -> dict[str, NDArray[Any]]:
        tables = {
            f"{side}_features.{name}": array
            for side, features in self.features_.items()
            for name, array in features.arrays().items()
        }
        return {**self.networks_.arrays(), **tables}

    @final
    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        features: FeatureTables = {}
        for side, ids in zip(SIDES, (train.users, train.items), strict=True):
            prefix = f"{side}_features."
            parts = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
            if parts:
                features[side] = Features.restored(parts, ids)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingWarning)  # about the initial parameters, which are replaced
            networks = self._networks(train, features)
        networks.take(arrays)
        try:
            where = backend.device(self.device)
        except ParameterError as error:
            raise StorageError(f"{error}. Load it with tl.load(directory, device='cpu').") from error
        return self._learned(networks.to(where), features)


def _inputs(train: Dataset, factors: int, features: FeatureTables) -> Inputs:
    return Inputs(train, factors, features.get("user"), features.get("item"))


@dataclass(frozen=True)
class _Trainer(Trainer[Networks]):
    model: NetworkModel
    features: FeatureTables

    def initial(self, train: Dataset) -> Networks:
        return self.model._networks(train, _of_dataset(self.features, train)).to(backend.device(self.model.device))

    def engine(self, train: Dataset, trained: Networks) -> NetworkEngine:
        return self.model._engine(train, trained)

    def ranker(self, train: Dataset, trained: Networks) -> NetworkModel:
        return self.model.with_learned(train, self.model._learned(trained, _of_dataset(self.features, train)))

    def identity(self) -> Mapping[str, object]:
        tables = {f"{side}_features": known.digest() for side, known in self.features.items()}
        return {"class": type(self.model).__name__, **self.model._saved_parameters(), **tables}

    def advice(self) -> str:
        rate = self.model.learning_rate
        return f"at learning_rate={rate:g}. Try learning_rate={rate / 5:g}."


def _of_dataset(features: FeatureTables, data: Dataset, missing: OnMissing = "raise") -> FeatureTables:
    """The features of the users and items of a dataset, in its order."""
    ids = {"user": data.users, "item": data.items}
    return {side: known.of(ids[side], missing) for side, known in features.items()}


def _spread(networks: Networks, train: Dataset) -> float:
    """The standard deviation of the scores of all items for some users."""
    users = np.arange(min(train.n_users, MEASURED_USERS), dtype=np.int32)
    return float(Outputs(networks, networks.preference, train).dense_logits(users).std())
