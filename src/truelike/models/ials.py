"""IALS: matrix factorization of implicit feedback by alternating least squares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from truelike.cluster import Cluster
from truelike.core.parallel import one_blas_thread
from truelike.core.parameters import choice, jobs, number, special, whole_number, with_inherited_parameters
from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.engines.als.engine import AlternatingEngine, Solver, Weights, exact_row, solved, weighted_gram
from truelike.engines.blocks.als import (
    BlockAlternatingEngine,
    check_solver,
    counting_of,
)
from truelike.engines.blocks.workers import allocator
from truelike.engines.engine import Engine
from truelike.engines.regularization import IALS_L2, UNOBSERVED, density, noise_edge
from truelike.engines.spectral import set_items
from truelike.engines.tables import Tables
from truelike.engines.weights import (
    SHORTEST_HALF_LIFE,
    HistoryCounts,
    counts_of_histories,
    interaction_weights,
)
from truelike.evaluation.metrics import is_metric_at_k
from truelike.models.factor_model import EpochMF
from truelike.models.fold_in import FoldIn
from truelike.models.scorer import Floats


@with_inherited_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class IALS(EpochMF):
    """Implicit alternating least squares (Hu, Koren and Volinsky, ICDM 2008): r_ui = U_u . V_i.

    Minimises the sum over interactions of (1 - r_ui)^2, plus unobserved_weight times the sum over *all* pairs of
    r_ui^2, plus a ridge on each row that grows with its interactions, in the form of Rendle, Krichene, Zhang and
    Koren ("Revisiting the performance of iALS on item recommendation benchmarks", RecSys 2022): for a user's row
    ``regularization (n_u + unobserved_weight n_items)^frequency_power |U_u|^2``, for an item's row likewise.

    With `weighting` or `recency`, an interaction counts c_ui (1 - r_ui)^2, where the mean of c is 1. The ridge
    counts interactions as before. A history in `recommend_from_items` counts as that of a user of the training data.

    Parameters
    ----------
    factors : int, default 128
        Number of factors K.
    regularization : float or None, default None
        Their lambda. None: in proportion to the noise that is expected in such data; see `regularization_` and
        `truelike.engines.regularization`.
    unobserved_weight : float or None, default None
        Their alpha_0: weight of a pair that was not observed. None: such that all pairs together have 8 times the
        weight of the interactions; see `unobserved_weight_`.
    frequency_power : float, default 1.0
        Their nu: 1 is a ridge in proportion to what a row is fitted to, 0 the same ridge for every row.
    solver : {'cg', 'cholesky'}, default 'cg'
        "cg": some steps of conjugate gradients for each row, from its current value. "cholesky": the exact solution
        of each row in float64.
    cg_steps : int, default 3
        Number of steps.
    relaxation : float, default 1.4
        How far a row moves from the second epoch on, relative to where the steps of "cg" lead. Above 1, fewer epochs
        are needed; 1 is plain alternating least squares.
    epochs : int, default 8
        Maximum number of epochs; an epoch solves all users' rows, then all items' rows.
    init : {'spectral', 'normal'}, default 'spectral'
        "spectral": items start at the singular vectors of the interactions. "normal": rows are normal with mean zero
        and standard deviation init_scale / sqrt(factors).
    init_scale : float, default 0.1
        Scale of the initialization "normal".

    Attributes
    ----------
    user_factors_, item_factors_
        U and V.
    regularization_, unobserved_weight_
        The values that were used.
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

    trains_on_blocks: ClassVar[bool] = True
    uses: ClassVar[frozenset[str]] = frozenset({"times"})
    search_space: ClassVar[dict[str, Any]] = {
        "factors": [32, 64, 128, 256],
        "regularization": (0.001, 0.3),
        "unobserved_weight": (0.002, 1.0),
    }

    factors: int = whole_number(128, low=1)
    regularization: float | None = number(None, low=1e-6)
    unobserved_weight: float | None = number(None, low=0.0)
    frequency_power: float = number(1.0, low=0.0, high=2.0)
    weighting: Literal["none", "log", "linear"] = choice("none", "log", "linear")
    recency: Literal["none", "user", "global"] = choice("none", "user", "global")
    half_life: float = number(0.5, low=SHORTEST_HALF_LIFE)
    solver: Literal["cg", "cholesky"] = choice("cg", "cholesky")
    cg_steps: int = whole_number(3, low=1, high=1_000)
    relaxation: float = number(1.4, low=1.0, high=1.9)
    epochs: int = whole_number(8, low=0)
    init: Literal["spectral", "normal"] = choice("spectral", "normal")
    init_scale: float = number(0.1, low=0.0)
    metric: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_metric_at_k)
    patience: int | None = whole_number(5, low=1, optional=True)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def _advice(self) -> str:
        given = self.regularization
        return (
            "with this regularization. Try more." if given is None else f"at regularization={given:g}. Try more."
        )

    def _initial(self, train: Dataset, *, spectral: bool = True) -> Tables:
        tables = Tables.zeros(train.n_users, train.n_items, self.factors, 0, allocate=allocator(train))
        tables.initialise("normal", self.init_scale / np.sqrt(self.factors), 0.0, self.seed)
        if spectral and self.init == "spectral" and self.factors > 1:
            set_items(tables, train, self._weights(train).unobserved, self.seed, self.n_jobs)
        return tables

    def _engine(self, train: Dataset, tables: Tables) -> Engine:
        return AlternatingEngine(
            train,
            tables,
            self._weights(train),
            solver=self._solver,
            n_jobs=self.n_jobs,
            interaction_weights=interaction_weights(train, self.weighting, self.recency, self.half_life),
        )

    def _block_engine(self, train: Blocks, tables: Tables, cluster: Cluster | None) -> Engine:
        return BlockAlternatingEngine(
            train,
            tables,
            self._weights(train),
            self._solver,
            counting_of(train, self.weighting, self.recency, self.half_life),
            spectral_seed=self.seed if self.init == "spectral" and self.factors > 1 else None,
            cluster=cluster,
            n_jobs=self.n_jobs,
        )

    @property
    def _solver(self) -> Solver:
        return Solver(self.solver, self.cg_steps, self.relaxation)

    def _check_blocks(self, train: Blocks) -> None:
        check_solver(self.solver, train)

    def _expected_seconds(self, train: Dataset) -> float:
        products = 32 * train.n_interactions * self.factors + 8 * (train.n_users + train.n_items) * self.factors**2
        return self.epochs * products / 6e10

    def _weights(self, train: Dataset | Blocks) -> Weights:
        return usual_weights(train, self.unobserved_weight, self.regularization, self.frequency_power)

    def _derived(self, train: Dataset) -> dict[str, float]:
        weights = self._weights(train)
        return {"regularization_": weights.regularization, "unobserved_weight_": weights.unobserved}

    def _fold_in(self) -> LeastSquaresFoldIn:
        return LeastSquaresFoldIn(self._tables().item_factors, self._weights(self.train_))

    def _counting(self) -> HistoryCounts | None:
        return counts_of_histories(self.train_, self.weighting, self.recency, self.half_life)


def usual_weights(
    train: Dataset | Blocks,
    unobserved_weight: float | None = None,
    regularization: float | None = None,
    frequency_power: float = 1.0,
) -> Weights:
    """The weights of the objective: those that are given, and what follows from the data where they are None."""
    dense, power = density(train), float(frequency_power)
    unobserved = min(1.0, UNOBSERVED * dense) if unobserved_weight is None else float(unobserved_weight)
    if regularization is not None:
        return Weights(unobserved, float(regularization), power)
    weights = Weights(unobserved, IALS_L2 * noise_edge(train) / (1 + unobserved / dense), 1.0)
    if power == 1:
        return weights
    other = Weights(unobserved, 1.0, power)  # the same ridge of the users on average
    mean, other_mean = (
        float(np.mean(each.ridge(train.interactions_per_user(), train.n_items))) for each in (weights, other)
    )
    return replace(other, regularization=mean / other_mean)


@dataclass(frozen=True)
class LeastSquaresFoldIn(FoldIn):
    """New users of `IALS`: one exact solve with the item table fixed."""

    item_factors: Floats
    weights: Weights

    def row(self, history: Codes, counts: Floats | None = None) -> Floats:
        """By the equations of the user."""
        table = self.item_factors
        with one_blas_thread():
            ridge = self.weights.ridge(len(history), len(table))
            row = exact_row(table[history].astype(np.float64), self._gram, ridge, _exactly(counts))
        return row.astype(np.float32)

    def contributions(self, history: Codes, items: Codes, counts: Floats | None = None) -> Floats:
        """The terms of v_i' A^-1 sum_j c_j v_j, the score by the exact row of the user (Hu et al., section 5)."""
        table = self.item_factors
        own = table[history].astype(np.float64)
        weights = _exactly(counts)
        weighted = own if weights is None else own * weights[:, None]
        with one_blas_thread():
            ridge = self.weights.ridge(len(history), len(table))
            inverse = solved(own, self._gram, ridge, table[items].T, weights)
            values = inverse.T @ weighted.T
        return np.asarray(values, dtype=np.float32)

    @cached_property
    def _gram(self) -> NDArray[np.float64]:
        """What the equations of all users have in common: unobserved_weight x V'V."""
        return weighted_gram(self.item_factors, self.weights.unobserved)


def _exactly(counts: Floats | None) -> NDArray[np.float64] | None:
    """How much interactions count, in float64; None: each counts 1."""
    return None if counts is None else counts.astype(np.float64)
