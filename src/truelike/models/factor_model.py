"""Models with tables of factors: the score is r_ui = U_u . V_i (+ b_i)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from truelike import negatives as sampling
from truelike.cluster import Cluster
from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.engines.engine import Engine
from truelike.engines.loop import Result, Trainer, continue_epochs, fit_epochs
from truelike.engines.options import FitOptions
from truelike.engines.tables import Tables
from truelike.engines.weights import HistoryCounts
from truelike.errors import ParameterError
from truelike.models import objective_names
from truelike.models.base import Recommender
from truelike.models.dot_product import DotProductScorer
from truelike.models.fold_in import FoldIn
from truelike.models.label_noise import LabelNoise
from truelike.models.scorer import DotProduct, Floats
from truelike.objectives import Objective


class TableFlips:
    """The flips that tables hold: g_ui = P_u . Q_i (+ bias)."""

    def __init__(self, tables: Tables) -> None:
        self._vectors = DotProduct(tables.user_flips, tables.item_flips, tables.flip_bias)

    def dense_logits(self, users: Codes) -> Floats:
        """The flip logits of all items for some users: a new array (len(users), n_items)."""
        return self._vectors.scores(users)

    def average_logits(self) -> Floats:
        """The flip logits of the average user."""
        users, items, bias = self._vectors
        g = items @ users.mean(axis=0)
        return np.asarray(g if bias is None else g + bias, dtype=np.float32)


@dataclass(kw_only=True, eq=False, repr=False)
class FactorModel(Recommender):
    """Base class of models whose score is r_ui = U_u . V_i (+ b_i).

    Attributes
    ----------
    user_factors_, item_factors_, user_flips_, item_flips_
        The paper's U, V, P, Q.
    item_bias_
        Bias of each item, if the model has one.
    tables_
        All of these, as they are trained and saved.
    """

    scores_by_vectors: ClassVar[bool] = True

    @property
    def user_factors_(self) -> Floats:
        """The paper's U."""
        return self._tables().user_factors

    @property
    def item_factors_(self) -> Floats:
        """The paper's V."""
        return self._tables().item_factors

    @abstractmethod
    def _fold_in(self) -> FoldIn:
        """How the rows of new users are found."""

    def _counting(self) -> HistoryCounts | None:
        """How the interactions of a history count. Default: each counts 1."""
        return None

    @final
    def _tables(self) -> Tables:
        tables: Tables = self.tables_
        return tables

    @final
    def _make_scorer(self) -> DotProductScorer:
        # the copy has no scorer, so that none refers to itself: what is not used any more is freed at once
        fold_in = self.with_learned(self.train_, self.learned)._fold_in
        tables = self._tables()
        return DotProductScorer(
            self.train_, tables.user_factors, tables.item_factors, tables.item_bias, fold_in, self._counting()
        )


@dataclass(kw_only=True, eq=False, repr=False)
class EpochMF(FactorModel):
    """Base class of factor models that are trained in epochs, and that learn tables and nothing else."""

    iterative: ClassVar[bool] = True
    epochs_decide_rates: ClassVar[bool] = False  # so a checkpoint is of one number of epochs
    saved_figures: ClassVar[
        tuple[str, ...]
    ] = ()  # what follows from the data, and is saved because it takes a while
    if TYPE_CHECKING:  # parameters
        factors: int
        epochs: int

    # --- what a model implements ----------------------------------------------------------------

    @abstractmethod
    def _initial(self, train: Dataset, *, spectral: bool = True) -> Tables:
        """The tables before the first epoch; without `spectral` no singular vectors are computed."""

    @abstractmethod
    def _engine(self, train: Dataset, tables: Tables) -> Engine:
        """What trains the tables on interactions in memory."""

    @abstractmethod
    def _derived(self, train: Dataset) -> dict[str, float]:
        """The learned attributes that follow from the data and the parameters."""

    @abstractmethod
    def _advice(self) -> str:
        """What to try when training diverges: the end of an error message."""

    # --- what a model may implement -------------------------------------------------------------

    @property
    def _flip_width(self) -> int:
        """Number of flip factors of saved tables, if they have any."""
        return 0

    def _block_engine(self, train: Blocks, tables: Tables, cluster: Cluster | None) -> Engine:
        """What trains the tables on blocks. Default: the model does not train on blocks, and `fit` refuses them."""
        raise NotImplementedError

    def _start_new_users(self, tables: Tables, train: Dataset, new: NDArray[np.integer]) -> None:
        """Fill the rows of users who came with `partial_fit`. Default: they stay as they are initialised."""
        return

    # --- what follows ---------------------------------------------------------------------------

    @final
    def _trainer(self, cluster: Cluster | None = None) -> EpochTrainer:
        return EpochTrainer(self, cluster)

    @final
    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        result = fit_epochs(self._trainer(options.cluster), train, options)
        return {**learned_tables(result, train), **self._derived(train)}

    @final
    def _update(
        self, train: Dataset, users: Codes, items: Codes, epochs: int, progress: bool
    ) -> Mapping[str, Any]:
        tables, old = self._initial(train, spectral=False), self._tables().arrays()
        for name, table in tables.arrays().items():
            table[users if name == "users" else items] = old[name]
        self._start_new_users(tables, train, np.setdiff1d(np.arange(train.n_users), users))
        result = continue_epochs(self._trainer(), train, tables, epochs, progress=progress)
        return {**learned_tables(result, train), **self._derived(train)}

    @final
    def _of_users(self, train: Dataset, users: Codes) -> Mapping[str, Any]:
        return table_attributes(self._tables().of_users(users))

    @final
    def _arrays(self) -> dict[str, NDArray[Any]]:
        figures = {name: np.array([getattr(self, f"{name}_")]) for name in self.saved_figures}
        return {**self._tables().arrays(), **figures}

    @final
    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        figures = {f"{name}_": float(arrays[name][0]) for name in self.saved_figures} or self._derived(train)
        return {**restored_tables(arrays, train, self.factors, self._flip_width), **figures}


@dataclass(frozen=True)
class EpochTrainer(Trainer[Tables]):
    """Trains the tables of an `EpochMF`, here or on a cluster."""

    model: EpochMF
    cluster: Cluster | None = None

    def initial(self, train: Dataset) -> Tables:
        """The tables before the first epoch."""
        return self.model._initial(train, spectral=not isinstance(train, Blocks))  # which start in the engine

    def engine(self, train: Dataset, trained: Tables) -> Engine:
        """What trains the tables."""
        if isinstance(train, Blocks):
            return self.model._block_engine(train, trained, self.cluster)
        return self.model._engine(train, trained)

    def ranker(self, train: Dataset, trained: Tables) -> FactorModel:
        """The model with these tables."""
        return self.model.with_learned(train, table_attributes(trained))

    def identity(self) -> Mapping[str, object]:
        """The class and the parameters."""
        model = self.model
        schedule = {"schedule": model.epochs} if model.epochs_decide_rates else {}
        return {"class": type(model).__name__, **model._saved_parameters(), **schedule}

    def advice(self) -> str:
        """What to try when training diverges."""
        return self.model._advice()


@dataclass(kw_only=True, eq=False, repr=False)
class ObjectiveMF(LabelNoise, EpochMF):
    """Base class of models with a parameter `objective`, which may learn flips.

    Parameters
    ----------
    flip_rate : float, default 0.1
        The constant flip rate.
    """

    _only_objective: ClassVar[str | None] = None  # set by `preset`: a preset is its objective
    if TYPE_CHECKING:  # parameters
        objective: Any
        flip_factors: int
        flip_rate: float

    @final
    def _check_objective(self, general: str) -> None:
        """Refuse another objective than that of a preset; spell a name as it is known."""
        if isinstance(self.objective, str):
            self.objective = objective_names.known_name(self.objective)
        if self._only_objective is not None and self.objective != self._only_objective:
            raise ParameterError(
                f"{self.name}: objective is {self.objective!r}; it must be {self._only_objective!r}, which the name "
                f"stands for. {general} takes any."
            )

    @final
    def _objective(self) -> type[Objective]:
        return objective_names.objective(self.objective, self.flip_rate)

    @final
    def _saved_parameters(self) -> dict[str, Any]:
        found = {**self.get_params(), "objective": objective_names.saved_name(self.objective)}
        if "negatives" in found:
            found["negatives"] = sampling.saved_name(found["negatives"])
        return found

    @final
    @property
    def _flip_width(self) -> int:
        return self.flip_factors

    @final
    @property
    def _trained_flips(self) -> int:
        """Number of flip factors that the objective learns."""
        return self.flip_factors if objective_names.kind_of(self.objective).uses_flips else 0

    @final
    @property
    def _has_flips(self) -> bool:
        return self._trained_flips > 0

    @final
    @property
    def _flips(self) -> TableFlips:
        return TableFlips(self._tables())


def learned_tables(result: Result[Tables], train: Dataset) -> dict[str, Any]:
    """The learned attributes of a factor model."""
    return {**table_attributes(result.trained), **result.histories(train.library)}


def table_attributes(tables: Tables) -> dict[str, Any]:
    """The tables as learned attributes; those that the model does not have are left out."""
    found: dict[str, Any] = {"tables_": tables}
    if tables.item_bias is not None:
        found["item_bias_"] = tables.item_bias
    if tables.flip_factors:
        found["user_flips_"], found["item_flips_"] = tables.user_flips, tables.item_flips
    return found


def restored_tables(
    arrays: Mapping[str, NDArray[Any]], train: Dataset, factors: int, flip_factors: int = 0
) -> dict[str, Any]:
    """The learned attributes from saved arrays."""
    return table_attributes(Tables.restored(arrays, train.n_users, train.n_items, factors, flip_factors))
