"""Networks under the contract of every other model: ids, lists, early stopping, checkpoints, files."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike import negatives as laws
from truelike import objectives, randomness
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.errors import ParameterError, StorageError, TrainingWarning
from truelike.evaluation.topk import TopK, factor_score_block, top_k_by_factors
from truelike.models import naming
from truelike.models.deep import backend, checks, networks, scoring, strangers
from truelike.models.deep.engine import NetworkEngine
from truelike.models.deep.networks import Inputs, Maker, Networks
from truelike.models.flips import FlipModel
from truelike.models.folding import fold_in, rows_of
from truelike.models.iterative import IterativeModel, is_measure
from truelike.models.recommender import Floats, HeldOut
from truelike.parameters import choice, number, special, whole_number
from truelike.training.recipes import votes_of_a_row
from truelike.training.samples import Recipe

DRAWN = [name for name in naming.KNOWN if name != "softmax"]
EXPECTED = f"one of {', '.join(DRAWN)}, or a Pointwise or Pairwise class"
FLAT = 0.02  # logits so near to each other are all the same probability
FEW_USERS = 20  # to judge that by
SMALL = 1 << 18  # numbers in a batch; with fewer, threads would wait for each other more than they work


def _is_drawn_law(value: Any) -> bool:
    return value is not None and value != laws.ALL and laws.is_law(value)


def _is_sampled_objective(value: Any) -> bool:
    return (
        value is not None
        and naming.is_objective(value)
        and not issubclass(naming.kind_of(value), objectives.Listwise)
    )


def objective_field(default: str) -> Any:
    """The parameter `objective`, with a default of a model's own."""
    return special(default, EXPECTED, _is_sampled_objective)


def flips_field(default: str) -> Any:
    """The parameter `flips`, with a default of a model's own."""
    return special(default, networks.EXPECTED, lambda value: value is None or networks.is_network(value))


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkModel(FlipModel, IterativeModel[Networks]):
    """A recommender whose r_ui is a network's, and whose flips, if the objective has any, are another's.

    Parameters
    ----------
    objective
        "BPO", "BPR", "NBPO", "NBPO-s", "NBPO-o", "ShiftMC", "NBPR", or a class of your own: as for matrix
        factorization, and the very same functions.
    flips
        The network of the flip logits g, for an objective with flips: "MF", "FM", "NeuMF", "ACF", "LightGCN", or a
        function that makes one from `Inputs`; None: g = 0 (the paper's Equation 11).
    negatives
        The law by which unvoted items are drawn: "uniform", "popularity", "popularity^0.5", "hard", "hard:10".
    factors, flip_factors
        How wide the two networks are.
    learning_rate, decay
        Epoch e (from 0) runs at learning_rate x decay^(e + 1).
    regularization, flip_regularization
        The L2 of the two networks' parameters, which counts once for each pass over the data. None: 15, or 8 for
        an objective with flips, which pulls less at unvoted items and would be drawn to nothing by as much; less
        on a log with fewer than about 20 votes a user and an item. ACF has 5 and LightGCN 1, for all.
    optimizer
        "adam", or "sgd" without momentum.
    n_negatives, batch_size
        Unvoted items for each positive, 1 to 50, and positives in a batch.
    order
        Positives "shuffled" at each epoch, in "file" order, or "users": shuffled users, each with all of theirs.
    positives
        A positive's step counts "once", or once for "each" of its negatives.
    flip_rate
        The f of ShiftMC and NBPR.
    epochs
        How many at most.
    monitor, patience
        With a validation set: the metric whose best epoch is kept, and after how many epochs without a better
        one training stops.
    device
        "auto": "cuda" where PyTorch finds it, else "cpu"; or "cuda:1", "mps", "xpu".
    seed
        Decides the result, alone (on a GPU, as far as PyTorch allows).
    n_jobs
        Threads; None: all cores.

    Attributes
    ----------
    networks_
        `networks_.preference` and `networks_.flips`, the trained modules.
    history_
        A frame with a row an epoch: epoch, seconds, loss, and each metric.
    """

    _how_to_have_flips: ClassVar[str] = 'use objective="NBPO" with flips="MF", or another network for them'
    exact: ClassVar[bool] = False  # unvoted items are drawn
    space: ClassVar[dict[str, Any]] = {
        "factors": [32, 64, 128],
        "learning_rate": (0.001, 0.02),
        "regularization": (3.0, 60.0),
        "flip_regularization": (1.0, 60.0),
        "n_negatives": (1, 8),
    }

    objective: Any = objective_field("NBPO")
    flips: Any = flips_field("MF")
    negatives: Any = special("uniform", laws.NAMES.replace(' or "all"', ""), _is_drawn_law)
    factors: int = whole_number(64, low=1)
    flip_factors: int = whole_number(32, low=1)
    learning_rate: float = number(0.005, low=1e-9)
    decay: float = number(0.95, low=1e-6, high=1.0)
    regularization: float | None = number(None, low=0.0)
    flip_regularization: float = number(15.0, low=0.0)
    optimizer: str = choice("adam", "sgd")
    n_negatives: int = whole_number(4, low=1, high=50)
    batch_size: int | None = whole_number(2_000, low=1)
    order: str = choice("shuffled", "file", "users")
    positives: str = choice("each", "once")
    flip_rate: float = number(0.1, low=0.0, high=0.99)
    epochs: int = whole_number(40, low=0)
    monitor: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_measure)
    patience: int | None = whole_number(5, low=1, optional=True)
    device: str = special("auto", '"auto", "cpu", "cuda", "cuda:N", "mps" or "xpu"', backend.is_device)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = whole_number(None, low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        backend.need(type(self).__name__)

    def fit(self, train: Dataset, *, validation: HeldOut = None, **how: Any) -> Self:
        """Learn from a log, from the start, and return self.

        As every model that is trained epoch by epoch: with callbacks, checkpoint, resume, progress.
        """
        self._check_taken({side: how.pop(f"{side}_features", None) for side in ("user", "item")})
        return super().fit(train, validation=validation, **how)

    def _check_taken(self, features: dict[str, Any]) -> None:
        for side, table in features.items():
            if table is not None and side not in self.takes_features:
                able = "FM and DeepRecommender do" if side == "user" else "FM, ACF and DeepRecommender do"
                raise ParameterError(f"{self.name} takes no {side}_features; {able}")

    @abstractmethod
    def _preference(self) -> Maker:
        """What makes the network of the preference."""

    @property
    def has_flips(self) -> bool:
        """Whether there is a network of flips."""
        return naming.kind_of(self.objective).uses_flips and self.flips is not None

    def _saved_parameters(self) -> dict[str, Any]:
        saved = self.get_params()
        if isinstance(self.negatives, laws.Negatives):
            saved["negatives"] = self.negatives.name
        saved["objective"] = naming.saved_name(self.objective)
        saved["flips"] = networks.saved_name(self.flips)
        return saved

    # --- learning -------------------------------------------------------------------------------

    def _also_deciding(self) -> dict[str, Any]:
        return self._saved_parameters()  # a function by its name, which is the same in another process

    def _inputs(self, log: Dataset, factors: int) -> Inputs:
        return Inputs(log, factors)

    def _start(self, log: Dataset) -> Networks:
        return self._networks(log).to(backend.device(self.device))

    def _train(self, *parts: Any) -> tuple[Networks, pl.DataFrame]:
        with backend.learning():
            return super()._train(*parts)

    @backend.learning()
    def _networks(self, log: Dataset) -> Networks:
        with backend.seeded(randomness.key(self.seed, "preference")):
            preference = checks.make("preference", self._preference(), self._inputs(log, self.factors))
        flips = None
        if self.has_flips:
            with backend.seeded(randomness.key(self.seed, "flips")):
                flips = checks.make("flips", networks.maker(self.flips), self._inputs(log, self.flip_factors))
            checks.check_apart(preference, flips)
        return Networks(preference, flips)

    def _engine(self, log: Dataset, trained: Networks, /) -> NetworkEngine:
        own = {f.name: getattr(self, f.name) for f in fields(Recipe) if hasattr(self, f.name)}
        own["regularization"], own["batch_size"] = self._strength(log), self._batch(log)
        samples = min(own["batch_size"], log.n_interactions) * (1 + self.n_negatives)
        return NetworkEngine(
            log,
            trained,
            naming.objective(self.objective, self.flip_rate),
            laws.parse(self.negatives),
            Recipe(**own, prior="epoch", shrink="all"),
            optimizer=cast(Any, self.optimizer),
            seed=self.seed,
            device=backend.device(self.device),
            n_jobs=self.n_jobs if samples * self.factors > SMALL else 1,
        )

    def _batch(self, log: Dataset) -> int:
        """The positives in a batch that were asked for; a model whose default is None says how many those are."""
        return cast(int, self.batch_size)

    def _strength(self, log: Dataset) -> float:
        """The regularization that was given; else what the objective bears, by how much the log says of a row."""
        if self.regularization is not None:
            return self.regularization
        usual = 8.0 if naming.kind_of(self.objective).uses_flips else 15.0
        return usual * min(1.0, votes_of_a_row(log) / 20)

    def _learn(self, train: Dataset, validation: HeldOut) -> None:
        super()._learn(train, validation)
        spread, strength = _spread(self._worked_out, train), self._strength(train)
        # small from the start is not made small by the prior
        if strength and spread < FLAT and spread < _spread(scoring.Kept(self._networks(train)), train) / 8:
            warnings.warn(
                f"{self.name}: the scores spread by {spread:.1g} only, so the network says next to nothing: "
                f"regularization={strength:g} draws it to zero. Try regularization={strength / 4:g}.",
                TrainingWarning,
                stacklevel=4,
            )

    def _remedy(self) -> str:
        return f"at learning_rate={self.learning_rate:g}. Try learning_rate={self.learning_rate / 5:g}."

    def _keep(self, trained: Networks, /) -> None:
        trained.training(False)
        self.networks_ = trained
        self._worked_out = scoring.Kept(trained)

    # --- answering ------------------------------------------------------------------------------

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
        log = self.train_
        found = self._worked_out.vectors("preference")
        if found is None:
            with backend.using_threads(1):  # users are shared out among threads already
                return super().top_k(users, k, exclude_seen=exclude_seen, allowed=allowed, n_jobs=n_jobs)
        user_vectors, item_vectors, bias = found
        seen = log.matrix if exclude_seen else None
        return top_k_by_factors(
            user_vectors, item_vectors, users, k, item_bias=bias, seen=seen, allowed=allowed, n_jobs=n_jobs
        )

    def _score_block(self, users: Codes) -> Floats:
        return self._worked_out.block("preference", users, self.train_.n_items)

    def _flip_logits(self, users: Codes) -> Floats:
        return self._worked_out.block("flips", users, self.train_.n_items)

    @property
    def has_posterior(self) -> bool:
        """Whether it says how likely an unvoted item is truly liked: where there is a network of flips."""
        _ = self.train_
        return self.networks_.flips is not None

    def _score_histories(self, histories: Any) -> Floats:
        found, network = self._worked_out.vectors("preference"), self.networks_.preference
        if hasattr(network, "personal") and not hasattr(network, "strangers"):
            return np.stack([self._by_training(history) for history in rows_of(histories)])
        if found is None:
            return strangers.as_the_most_alike(self._score_block, self.train_.matrix, histories)
        _, item_vectors, bias = found
        if hasattr(network, "strangers"):
            rows = strangers.own_vectors(network, histories)
        else:
            rows = np.stack([self._folded_in(each, item_vectors, bias) for each in rows_of(histories)])
        return factor_score_block(rows, item_vectors, bias)

    def _folded_in(self, history: Codes, item_vectors: Floats, bias: Floats | None) -> Floats:
        """The row of U of a user with this history, where the score is a dot product."""
        return fold_in(
            item_vectors,
            history,
            law=self._chances(history),
            item_bias=bias,
            n_negatives=self.n_negatives,
            **self._as_in_training(),
        )

    def _by_training(self, history: Codes) -> Floats:
        """The scores for a user with this history, by a network that names what is a user's own."""
        edges = np.cumsum(self._chances(history))
        # who voted for all has no negatives
        size = (strangers.STEPS, len(history), self.n_negatives if edges[-1] else 0)
        chance = randomness.uniform(randomness.key(self.seed, "strangers"), np.arange(math.prod(size)))
        drawn = np.searchsorted(edges, chance * edges[-1], side="right").clip(max=len(edges) - 1)
        with backend.using_threads(1):
            return strangers.by_training(
                self.networks_.preference, history, drawn.reshape(size), **self._as_in_training()
            )

    def _as_in_training(self) -> dict[str, Any]:
        """What a stranger's votes are trained by."""
        log = self.train_
        none = np.zeros(log.n_items, dtype=np.float32)
        return {
            "objective": naming.objective(self.objective, self.flip_rate),
            "flips": self._worked_out.typical("flips", log) if self.has_posterior else none,
            "weight": float(self.n_negatives) if self.positives == "each" else 1.0,
            "regularization": self._strength(log),
        }

    def _chances(self, history: Codes) -> NDArray[np.float64]:
        """How likely each item is drawn as a negative of a stranger."""
        never = np.union1d(history, self._never_drawn())
        return laws.parse(self.negatives).law(self.train_.popularity(), never)

    def _never_drawn(self) -> Codes:
        """Items that were no negatives of anybody in training."""
        return np.zeros(0, dtype=np.int32)

    def _similarity_block(self, items: Codes) -> Floats:
        unit = self._worked_out.unit_items(self.train_)
        return np.asarray(unit[items] @ unit.T, dtype=np.float32)

    # --- files ----------------------------------------------------------------------------------

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return self.networks_.arrays()

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingWarning)  # how it starts does not matter any more
            restored = self._networks(self.train_)
        restored.take(arrays)
        try:
            where = backend.device(self.device)
        except ParameterError as error:
            raise StorageError(f"{error}. Load it with tl.load(directory, device='cpu').") from error
        self._keep(restored.to(where))


def _spread(scores: scoring.Kept, log: Dataset) -> float:
    """How far the scores of all items for some users are from each other."""
    users = np.arange(min(log.n_users, FEW_USERS), dtype=np.int32)
    return float(scores.block("preference", users, log.n_items).std())
