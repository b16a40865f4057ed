"""IALS: matrix factorisation of implicit votes by alternating least squares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np

from truelike.data.dataset import Dataset
from truelike.models.factor_model import FactorModel
from truelike.models.iterative import IterativeModel, is_measure
from truelike.models.recommender import Floats
from truelike.parallel import one_blas_thread
from truelike.parameters import choice, number, special, whole_number
from truelike.training.alternating import AlternatingEngine, Weights, exact_row, weighted_gram
from truelike.training.tables import Tables


@dataclass(kw_only=True, eq=False, repr=False)
class IALS(FactorModel, IterativeModel[Tables]):
    """Implicit alternating least squares (Hu, Koren and Volinsky, ICDM 2008): r_ui = U_u . V_i.

    It minimises the sum over votes of (1 - r_ui)^2, plus unobserved_weight times the sum over *all* pairs of
    r_ui^2, plus a ridge on each row that grows with its votes, in the form of Rendle, Krichene, Zhang and Koren
    ("Revisiting the performance of iALS on item recommendation benchmarks", RecSys 2022): for a user's row
    regularization (n_u + unobserved_weight n_items)^frequency_power |U_u|^2, for an item's likewise.

    Parameters
    ----------
    factors
        The width K of the rows.
    regularization
        Their lambda. None: chosen by the log, such that the users' mean ridge is `usual_ridge`. The best lambda of
        one log may be twice that of another, while the best mean ridge was nearly the same.
    unobserved_weight
        Their alpha_0: how much a pair without a vote pulls r_ui to zero, beside a vote that pulls it to one.
    frequency_power
        Their nu: 1 is a ridge in proportion to what a row is fitted to, 0 the same ridge for every row.
    solver
        "cg": some steps of conjugate gradients for each row from where it stands, quick; "cholesky": the exact
        solution of each row, in float64, to check by.
    cg_steps
        How many steps.
    epochs
        How many at most; an epoch is all users' rows, then all items'.
    init_scale
        The start is normal with standard deviation init_scale / sqrt(factors).
    monitor, patience
        With a validation set: the metric whose best epoch is kept, and after how many epochs without a better
        one training stops.
    seed
        Decides the result, alone.
    n_jobs
        Threads; None: all cores. Never changes the result.

    Attributes
    ----------
    user_factors_, item_factors_
        U and V.
    history_
        A frame with a row an epoch: epoch, seconds, loss (the objective for each vote), and each metric.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.split.by_user(tl.synthetic.World(n_users=200, n_items=100).log(), seed=0)
    >>> model = tl.IALS(factors=8, epochs=3).fit(split.train)
    >>> model.user_factors_.shape[1], model.history_["loss"].is_sorted(descending=True)
    (8, True)
    """

    space: ClassVar[dict[str, Any]] = {
        "factors": [32, 64, 128, 256],
        "regularization": (0.001, 0.1),
        "unobserved_weight": (0.02, 1.0),
    }

    factors: int = whole_number(128, low=1)
    regularization: float | None = number(None, low=1e-6)
    unobserved_weight: float = number(0.25, low=0.0)
    frequency_power: float = number(1.0, low=0.0, high=2.0)
    solver: str = choice("cg", "cholesky")
    cg_steps: int = whole_number(3, low=1)
    epochs: int = whole_number(16, low=0)
    init_scale: float = number(0.1, low=0.0)
    monitor: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_measure)
    patience: int | None = whole_number(5, low=1, optional=True)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = whole_number(None, low=1)

    def _start(self, log: Dataset) -> Tables:
        tables = Tables.zeros(log.n_users, log.n_items, self.factors, 0)
        tables.initialise("normal", self.init_scale / np.sqrt(self.factors), 0.0, self.seed)
        return tables

    def _weights(self, log: Dataset) -> Weights:
        weights = Weights(self.unobserved_weight, self.regularization or 1.0, self.frequency_power)
        if self.regularization is None:
            mean = float(np.mean(weights.ridge(log.rows_per_user(), log.n_items)))
            weights = replace(weights, regularization=usual_ridge(log) / mean)
        return weights

    def _engine(self, log: Dataset, tables: Tables) -> AlternatingEngine:
        solver = cast(Any, self.solver)
        return AlternatingEngine(
            log, tables, self._weights(log), solver=solver, cg_steps=self.cg_steps, n_jobs=self.n_jobs
        )

    def _remedy(self) -> str:
        return f"at regularization={self.regularization}. Try more."

    def _score_histories(self, histories: Any) -> Floats:
        """A stranger's row is one exact solve, the items' rows as they are."""
        table, weights = self.tables_.item_factors, self._weights(self.train_)
        rows = [histories.indices[a:b] for a, b in zip(histories.indptr[:-1], histories.indptr[1:], strict=True)]
        with one_blas_thread():
            gram = weighted_gram(table, weights.unobserved)
            vectors = [
                exact_row(table[row].astype(np.float64), gram, weights.ridge(len(row), len(table))) for row in rows
            ]
        return self._score_vectors(np.stack(vectors).astype(np.float32))


def usual_ridge(log: Dataset) -> float:
    """A good mean ridge of the users: 8, and less for a log so sparse that 8 would leave nothing of it.

    Where the ridges exceed all singular values of the votes, all rows become zero. A third of sqrt(votes of the
    mean user x votes of the mean item) is well below the first of them.

    >>> import truelike as tl
    >>> log = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
    >>> round(usual_ridge(log), 2)
    0.68
    """
    return min(8.0, float(log.n_interactions / np.sqrt(log.n_users * log.n_items)) / 3.0)
