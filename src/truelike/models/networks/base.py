"""NetworkModel: the base class of models whose scores are computed by networks."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from truelike import negatives as sampling
from truelike import objectives
from truelike.core import randomness
from truelike.core.parameters import choice, jobs, number, special, whole_number
from truelike.data.checks import known_interactions
from truelike.data.dataset import Dataset
from truelike.data.features import Features, OnMissing
from truelike.data.frames import to_native
from truelike.data.ids import Codes
from truelike.engines.loop import Result, Trainer, fit_epochs
from truelike.engines.options import FitOptions
from truelike.engines.regularization import interactions_per_row
from truelike.engines.sgd.samples import SGDSettings
from truelike.engines.torch import backend
from truelike.engines.torch.engine import NetworkEngine
from truelike.engines.torch.networks import Inputs, Maker, Networks
from truelike.errors import ParameterError, StorageError, TrainingWarning, warn
from truelike.evaluation.metrics import is_metric_at_k
from truelike.exposure.evidence import INTERACTIONS
from truelike.models import objective_names
from truelike.models.base import Recommender
from truelike.models.label_noise import Flips, LabelNoise
from truelike.models.networks import checks, network_names
from truelike.models.networks.outputs import Outputs
from truelike.models.networks.scorer import NetworkScorer, Settings

SIDES: tuple[Literal["user", "item"], ...] = ("user", "item")
FLAT = 0.02  # standard deviation of the scores below which they rank nothing
MEASURED_USERS = 20  # users for whom it is measured
SMALL_BATCH = 1 << 18  # numbers in a batch below which one thread is as fast as several

FeatureTables = dict[str, Features]


def objective_field(default: str) -> Any:
    """The parameter `objective`, with the default of a model."""
    return special(default, objective_names.SAMPLED, objective_names.is_sampled)


def flips_field(default: str) -> Any:
    """The parameter `flips`, with the default of a model."""
    return special(default, network_names.EXPECTED, lambda value: value is None or network_names.is_network(value))


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkModel(LabelNoise, Recommender):
    """Base class of models whose scores, and flips if the objective has any, are computed by networks.

    Parameters
    ----------
    objective : str or class, default 'NBPO'
        "BPO", "BPR", "NBPO", "NBPO-s", "NBPO-o", "ShiftMC", "NBPR", or a Pointwise or Pairwise class.
    flips : str, function or None, default 'MF'
        The network of the flip logits g, for objectives with flips: "MF", "FM", "NeuMF", "ACF", "LightGCN", or a
        function that makes one from `Inputs`. None: g = 0 (the paper's Equation 11).
    negatives : str or Negatives, default 'uniform'
        The sampling distribution: "uniform", "popularity", "popularity^0.5", "hard", "hard:10".
    factors : int, default 64
        Width of the preference network.
    flip_factors : int, default 32
        Width of the flip network.
    learning_rate : float, default 0.005
        Epoch e (from 0) runs at learning_rate x decay^(e + 1).
    decay : float, default 0.95
        Decay of the learning rate.
    regularization : float or None, default None
        L2 of the preference network, which counts once per pass over the data. None: 15, or 8 for an objective with
        flips; less for data with fewer than about 20 interactions a user and an item.
    flip_regularization : float, default 15.0
        L2 of the flip network.
    optimizer : {'adam', 'sgd'}, default 'adam'
        "adam", or "sgd" without momentum.
    n_negatives : int, default 4
        Negatives for each positive, 1 to 50.
    batch_size : int, default 2000
        Positives in a batch.
    order : {'shuffled', 'file', 'users'}, default 'shuffled'
        Order of the positives in an epoch; "users": shuffled users, each with all positives.
    positive_weight : {'per_negative', 'once'}, default 'per_negative'
        Whether a positive counts once for each of its negatives, or once.
    flip_rate : float, default 0.1
        The constant flip rate of ShiftMC and NBPR.
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
    decay: float = number(0.95, low=1e-6, high=1.0)
    regularization: float | None = number(None, low=0.0)
    flip_regularization: float = number(15.0, low=0.0)
    optimizer: Literal["adam", "sgd"] = choice("adam", "sgd")
    n_negatives: int = whole_number(4, low=1, high=50)
    batch_size: int | None = whole_number(2_000, low=1, high=2**31 - 1)
    order: Literal["shuffled", "file", "users"] = choice("shuffled", "file", "users")
    positive_weight: Literal["per_negative", "once"] = choice("per_negative", "once")
    flip_rate: float = number(0.1, low=0.0, high=0.99)
    epochs: int = whole_number(40, low=0)
    metric: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_metric_at_k)
    patience: int | None = whole_number(5, low=1, optional=True)
    device: str = special("auto", '"auto", "cpu", "cuda", "cuda:N", "mps" or "xpu"', backend.is_device)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def __post_init__(self) -> None:
        super().__post_init__()
        backend.need(type(self).__name__)
        if isinstance(self.objective, str):
            self.objective = objective_names.known_name(self.objective)

    # --- what a model implements ----------------------------------------------------------------

    @abstractmethod
    def _preference(self) -> Maker:
        """The function that makes the preference network."""

    def _default_batch_size(self, train: Dataset) -> int:
        """The number of positives in a batch if `batch_size` is None."""
        raise ParameterError(f"{self.name}: batch_size is None; it must be a whole number")

    def _prepare(self, train: Dataset, networks: Networks, features: FeatureTables) -> None:
        """Called before the first epoch, and not when training resumes from a checkpoint."""

    def _never_drawn(self) -> Codes:
        """Items that were never sampled as negatives in training."""
        return np.zeros(0, dtype=np.int32)

    # --- parameters -----------------------------------------------------------------------------

    @final
    def _objective(self) -> type[objectives.Objective]:
        return objective_names.objective(self.objective, self.flip_rate)

    def _saved_parameters(self) -> dict[str, Any]:
        negatives = self.negatives
        return {
            **self.get_params(),
            "negatives": negatives.name if isinstance(negatives, sampling.Negatives) else negatives,
            "objective": objective_names.saved_name(self.objective),
            "flips": network_names.saved_name(self.flips),
        }

    # --- learning -------------------------------------------------------------------------------

    @final
    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        given = self._read_features(train)
        features = _of_dataset(given, train, getattr(self, "missing_features", "raise"))
        observed = {"user": train.interactions_per_user() > 0, "item": train.popularity() > 0}
        kept = [observed[side] | (side not in features) for side in SIDES]
        warm = train
        if self.scores_by_features and not all(each.all() for each in kept):
            # ids without interactions are not trained on: as negatives they would be learned as disliked
            warm = train.restrict(*kept)
            if isinstance(options.validation, Dataset):
                options = replace(options, validation=known_interactions(options.validation, warm))
        self._check_cold(warm, train)
        own = _of_dataset(features, warm)
        with backend.gradients_enabled():
            trainer = self._trainer(own)
            result = fit_epochs(trainer, warm, options, trainer.prepare)
        self._warn_if_flat(result, warm, own)
        if warm is not train:
            self._describe(result.trained, train, features)
        search = result.search_history
        return {
            **self._learned(result.trained, features),
            "history_": to_native(result.history, train.library),
            "search_history_": None if search is None else to_native(search, train.library),
        }

    def _read_features(self, train: Dataset) -> FeatureTables:
        sides = {"user": (train.user_features, train.users), "item": (train.item_features, train.items)}
        return {
            side: Features.read(known.table(ids), side).with_kind_of(ids)
            for side, (known, ids) in sides.items()
            if known is not None and f"{side}_features" in self.uses
        }

    def _check_cold(self, warm: Dataset, whole: Dataset) -> None:
        """Raise if there are ids without interactions that the flip network cannot score."""
        if warm.csr.shape != whole.csr.shape and self._has_flips and self.flips != "FM":
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
                network.describe(self._inputs(whole, self.factors, features))
                network.to(where)
        networks.version += 1

    @staticmethod
    def _learned(networks: Networks, features: FeatureTables) -> dict[str, Any]:
        networks.training(False)
        return {"networks_": networks, "features_": features}

    @staticmethod
    def _inputs(train: Dataset, factors: int, features: FeatureTables) -> Inputs:
        return Inputs(train, factors, features.get("user"), features.get("item"))

    @final
    def _trainer(self, features: FeatureTables) -> _Trainer:
        return _Trainer(self, features)

    @final
    def _networks(self, train: Dataset, features: FeatureTables) -> Networks:
        with backend.gradients_enabled():
            with backend.seeded(randomness.key(self.seed, "preference")):
                inputs = self._inputs(train, self.factors, features)
                preference = checks.make("preference", self._preference(), inputs)
            flips = None
            if self._has_flips:
                with backend.seeded(randomness.key(self.seed, "flips")):
                    inputs = self._inputs(train, self.flip_factors, features)
                    flips = checks.make("flips", network_names.maker(self.flips), inputs)
                checks.check_separate(preference, flips)
            return Networks(preference, flips)

    @final
    def _engine(self, train: Dataset, networks: Networks) -> NetworkEngine:
        own = {f.name: getattr(self, f.name) for f in fields(SGDSettings) if hasattr(self, f.name)}
        own["regularization"] = self._strength(train)
        own["batch_size"] = self._default_batch_size(train) if self.batch_size is None else self.batch_size
        samples = min(own["batch_size"], train.n_interactions) * (1 + self.n_negatives)
        return NetworkEngine(
            train,
            networks,
            self._objective(),
            sampling.parse(self.negatives),
            SGDSettings(**own, l2_schedule="epoch"),
            optimizer=self.optimizer,
            seed=self.seed,
            device=backend.device(self.device),
            n_jobs=self.n_jobs if samples * self.factors > SMALL_BATCH else 1,
        )

    def _strength(self, train: Dataset) -> float:
        """The given regularization, otherwise one by the objective and the number of interactions of a row."""
        if self.regularization is not None:
            return self.regularization
        usual = 8.0 if objective_names.kind_of(self.objective).uses_flips else 15.0
        return usual * min(1.0, interactions_per_row(train) / 20)

    def _warn_if_flat(self, result: Result[Networks], train: Dataset, features: FeatureTables) -> None:
        spread, strength = _spread(Outputs(result.trained), train), self._strength(train)
        # a network whose scores are that small from the start is not flattened by regularization
        if strength and spread < FLAT and spread < _spread(Outputs(self._networks(train, features)), train) / 8:
            warn(
                f"{self.name}: the standard deviation of the scores is only {spread:.1g}: regularization={strength:g} "
                f"shrinks the network to zero. Try regularization={strength / 4:g}.",
                TrainingWarning,
            )

    # --- answering ------------------------------------------------------------------------------

    @final
    def _make_scorer(self) -> NetworkScorer:
        never = self._never_drawn()
        popularity, distribution = self.train_.popularity(), sampling.parse(self.negatives)

        def probabilities(history: Codes) -> NDArray[np.float64]:
            """The probability of each item as a negative of a new user."""
            return distribution.probabilities(popularity, np.union1d(history, never))

        settings = Settings(
            self._objective(),
            probabilities,
            self.n_negatives,
            weight=float(self.n_negatives) if self.positive_weight == "per_negative" else 1.0,
            l2=self._strength(self.train_),
            seed=self.seed,
        )
        return NetworkScorer(self.train_, self.networks_, settings)

    @property
    def _has_flips(self) -> bool:
        return objective_names.kind_of(self.objective).uses_flips and self.flips is not None

    @property
    def evidence(self) -> str:
        """What the flips are known from: interactions alone."""
        return INTERACTIONS

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
        ids = {"user": train.users, "item": train.items}
        features: FeatureTables = {}
        for side in SIDES:
            prefix = f"{side}_features."
            parts = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
            if parts:
                features[side] = Features.restored(parts, ids[side])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingWarning)  # about the initial parameters, which are replaced
            networks = self._networks(train, features)
        networks.take(arrays)
        try:
            where = backend.device(self.device)
        except ParameterError as error:
            raise StorageError(f"{error}. Load it with tl.load(directory, device='cpu').") from error
        return self._learned(networks.to(where), features)


@dataclass(frozen=True)
class _Trainer(Trainer[Networks]):
    model: NetworkModel
    features: FeatureTables

    def initial(self, train: Dataset) -> Networks:
        return self.model._networks(train, _of_dataset(self.features, train)).to(backend.device(self.model.device))

    def engine(self, train: Dataset, trained: Networks) -> NetworkEngine:
        return self.model._engine(train, trained)

    def ranker(self, train: Dataset, trained: Networks) -> NetworkModel:
        return self.model._fitted(train, self.model._learned(trained, _of_dataset(self.features, train)))

    def prepare(self, train: Dataset, networks: Networks) -> None:
        self.model._prepare(train, networks, _of_dataset(self.features, train))

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


def _spread(outputs: Outputs, train: Dataset) -> float:
    """The standard deviation of the scores of all items for some users."""
    users = np.arange(min(train.n_users, MEASURED_USERS), dtype=np.int32)
    return float(outputs.block("preference", users, train.n_items).std())
