"""IALS: matrix factorization of implicit feedback by alternating least squares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.evaluation.metrics import is_metric_at_k
from truelike.models.base import Floats
from truelike.models.factor_model import (
    FactorModel,
    extended_tables,
    learned_tables,
    restored_tables,
    table_attributes,
)
from truelike.models.fold_in import rows_of
from truelike.parallel import one_blas_thread
from truelike.parameters import choice, jobs, number, special, whole_number
from truelike.training.als.engine import AlternatingEngine, Weights, exact_row, weighted_gram
from truelike.training.loop import Training, continue_epochs, fit_epochs
from truelike.training.options import FitOptions
from truelike.training.tables import Tables
from truelike.training.weights import SHORTEST_HALF_LIFE, interaction_weights


@dataclass(kw_only=True, eq=False, repr=False)
class IALS(FactorModel):
    """Implicit alternating least squares (Hu, Koren and Volinsky, ICDM 2008): r_ui = U_u . V_i.

    Minimises the sum over interactions of (1 - r_ui)^2, plus unobserved_weight times the sum over *all* pairs of
    r_ui^2, plus a ridge on each row that grows with its interactions, in the form of Rendle, Krichene, Zhang and
    Koren ("Revisiting the performance of iALS on item recommendation benchmarks", RecSys 2022): for a user's row
    ``regularization (n_u + unobserved_weight n_items)^frequency_power |U_u|^2``, for an item's row likewise.

    With `weighting` or `recency`, an interaction counts c_ui (1 - r_ui)^2, where the mean of c is 1. The ridge
    counts interactions as before. The items of a new user, in `recommend_from_items`, all count 1.

    Parameters
    ----------
    factors : int, default 128
        Number of factors K.
    regularization : float or None, default None
        Their lambda. None: chosen by the data, such that the mean ridge of the users is `usual_ridge`. The best
        lambda of one dataset may be twice that of another, while the best mean ridge was nearly the same.
    unobserved_weight : float, default 0.25
        Their alpha_0: weight of a pair that was not observed.
    frequency_power : float, default 1.0
        Their nu: 1 is a ridge in proportion to what a row is fitted to, 0 the same ridge for every row.
    weighting : {'none', 'log', 'linear'}, default 'none'
        How the weight of a pair counts, which is the number of its rows or the sum of their weights: not at all, as
        log(1 + weight), or as it is.
    recency : {'none', 'user', 'global'}, default 'none'
        Whether new interactions count more than old ones; the training data must have times then. The age of an
        interaction is for "user" the share of the user's interactions that are later, for "global" the time to the
        last interaction of all, as a share of the time span of the training data.
    half_life : float, default 0.5
        The age at which an interaction counts half.
    solver : {'cg', 'cholesky'}, default 'cg'
        "cg": some steps of conjugate gradients for each row, from its current value. "cholesky": the exact solution
        of each row in float64.
    cg_steps : int, default 3
        Number of steps.
    epochs : int, default 16
        Maximum number of epochs; an epoch solves all users' rows, then all items' rows.
    init_scale : float, default 0.1
        The initialization is normal with standard deviation init_scale / sqrt(factors).
    monitor : str, default 'ndcg@20'
        Validation metric whose best epoch is kept.
    patience : int or None, default 5
        Stop after this many epochs without a better one; None: never. Training never stops before it ranks better
        than item popularity.
    seed : int, default 0
        Seed. It alone decides the result.
    n_jobs : int or None, default -1
        Number of threads; -1: all cores. Never changes the result.

    Attributes
    ----------
    user_factors_, item_factors_
        U and V.
    regularization_
        The lambda that was used.
    history_
        A frame with one row per epoch: epoch, seconds, loss (the objective per interaction) and each validation
        metric.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=200, n_items=100).dataset(), seed=0)
    >>> model = tl.IALS(factors=8, epochs=3).fit(split.train)
    >>> model.user_factors_.shape[1], model.history_["loss"].is_sorted(descending=True)
    (8, True)
    """

    iterative: ClassVar[bool] = True
    search_space: ClassVar[dict[str, Any]] = {
        "factors": [32, 64, 128, 256],
        "regularization": (0.001, 0.1),
        "unobserved_weight": (0.02, 1.0),
    }

    factors: int = whole_number(128, low=1)
    regularization: float | None = number(None, low=1e-6)
    unobserved_weight: float = number(0.25, low=0.0)
    frequency_power: float = number(1.0, low=0.0, high=2.0)
    weighting: Literal["none", "log", "linear"] = choice("none", "log", "linear")
    recency: Literal["none", "user", "global"] = choice("none", "user", "global")
    half_life: float = number(0.5, low=SHORTEST_HALF_LIFE)
    solver: Literal["cg", "cholesky"] = choice("cg", "cholesky")
    cg_steps: int = whole_number(3, low=1, high=1_000)
    epochs: int = whole_number(16, low=0)
    init_scale: float = number(0.1, low=0.0)
    monitor: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_metric_at_k)
    patience: int | None = whole_number(5, low=1, optional=True)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        result = fit_epochs(self._training(), train, options)
        return {**learned_tables(result, train), "regularization_": self._weights(train).regularization}

    def _training(self) -> Training[Tables]:
        return Training.of(
            self,
            initial=self._initial,
            engine=self._engine,
            ranker=lambda train, tables: self._fitted(train, table_attributes(tables)),
            identity={"class": type(self).__name__, **self.get_params()},
            advice="with this regularization. Try more."
            if self.regularization is None
            else f"at regularization={self.regularization:g}. Try more.",
        )

    def _initial(self, train: Dataset) -> Tables:
        tables = Tables.zeros(train.n_users, train.n_items, self.factors, 0)
        tables.initialise("normal", self.init_scale / np.sqrt(self.factors), 0.0, self.seed)
        return tables

    def _engine(self, train: Dataset, tables: Tables) -> AlternatingEngine:
        return AlternatingEngine(
            train,
            tables,
            self._weights(train),
            solver=self.solver,
            cg_steps=self.cg_steps,
            n_jobs=self.n_jobs,
            interaction_weights=interaction_weights(train, self.weighting, self.recency, self.half_life),
        )

    def _counts_weights(self) -> bool:
        return self.weighting != "none"

    def _weights(self, train: Dataset) -> Weights:
        given = (self.unobserved_weight, self.regularization or 1.0, self.frequency_power)
        weights = Weights(*map(float, given))
        if self.regularization is None:
            mean = float(np.mean(weights.ridge(train.interactions_per_user(), train.n_items)))
            weights = replace(weights, regularization=usual_ridge(train) / mean)
        return weights

    def _update(
        self, train: Dataset, users: Codes, items: Codes, epochs: int, progress: bool
    ) -> Mapping[str, Any]:
        tables = extended_tables(self._initial(train), self._tables(), users, items)
        result = continue_epochs(self._training(), train, tables, epochs, progress=progress)
        return {**learned_tables(result, train), "regularization_": self._weights(train).regularization}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return dict(self._tables().arrays())

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        regularization = self._weights(train).regularization
        return {**restored_tables(arrays, train, self.factors), "regularization_": regularization}

    def _score_histories(self, histories: Any) -> Floats:
        """The row of a new user is one exact solve with the item table fixed."""
        table, weights = self._tables().item_factors, self._weights(self.train_)
        with one_blas_thread():
            gram = weighted_gram(table, weights.unobserved)
            vectors = [
                exact_row(table[row].astype(np.float64), gram, weights.ridge(len(row), len(table)))
                for row in rows_of(histories)
            ]
        return self._score_vectors(np.stack(vectors).astype(np.float32))


def usual_ridge(train: Dataset) -> float:
    """A good mean ridge of the users: 8, and less for data so sparse that 8 would shrink every row to zero.

    If the ridges exceed all singular values of the interactions, all rows become zero. A third of sqrt(interactions
    of the mean user x interactions of the mean item) is well below the first of them.

    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
    >>> round(usual_ridge(data), 2)
    0.68
    """
    return min(8.0, float(train.n_interactions / np.sqrt(train.n_users * train.n_items)) / 3.0)
