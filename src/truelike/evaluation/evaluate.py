"""`evaluate`: rank all items for all users of a test set, and keep what each user got."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.checks import check_log
from truelike.data.dataset import Dataset
from truelike.data.frames import Library, to_native
from truelike.data.ids import Codes
from truelike.errors import DataError, DataWarning, ParameterError, UnknownMeasureError
from truelike.evaluation import metrics as formulas
from truelike.evaluation.significance import bootstrap_interval

if TYPE_CHECKING:
    from truelike.models.recommender import Recommender

KS = (2, 5, 10, 20)
LIST_METRICS = ("popularity", "novelty", "coverage")
ALL = (*formulas.METRICS, *LIST_METRICS)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What each user got, and the means over users.

    Attributes
    ----------
    model
        The name of the model.
    users
        The ids of the users that were judged.
    values
        For each measure, such as "ndcg@20", one value a user.
    totals
        Measures of all lists together: "coverage@20".

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.split.by_user(tl.synthetic.World(n_users=200, n_items=100).log(), seed=0)
    >>> result = tl.evaluate(tl.ItemPop().fit(split.train), split.test, ks=(5,))
    >>> result.summary().columns
    ['model', 'metric', 'k', 'value', 'low', 'high']
    >>> 0 < result["ndcg@5"] < 1
    True
    """

    model: str
    users: pl.Series
    values: dict[str, NDArray[np.float64]]
    totals: dict[str, float] = field(default_factory=dict)
    library: Library = "polars"

    def __getitem__(self, measure: str) -> float:
        """The mean over users of one measure, e.g. `result["ndcg@20"]`."""
        if measure in self.totals:
            return self.totals[measure]
        if measure not in self.values:
            known = ", ".join([*self.values, *self.totals])
            raise UnknownMeasureError(f"{measure!r} was not measured; there are {known}")
        return float(self.values[measure].mean())

    def means(self) -> dict[str, float]:
        """Every measure, averaged over users."""
        return {name: self[name] for name in (*self.values, *self.totals)}

    def per_user(self) -> Any:
        """A frame with one row a user and one column a measure."""
        columns = [pl.Series(name, values) for name, values in self.values.items()]
        return to_native(pl.DataFrame([self.users.alias("user_id"), *columns]), self.library)

    def summary(self, *, confidence: float = 0.95, resamples: int = 1_000, seed: int = 0) -> Any:
        """A frame (model, metric, k, value, low, high), with bootstrap confidence intervals over users."""
        each = np.array(list(self.values.values())).reshape(-1, len(self.users)).T
        low, high = bootstrap_interval(each, confidence=confidence, resamples=resamples, seed=seed)
        bounds: dict[str, tuple[float | None, float | None]] = {
            name: (float(low[n]), float(high[n])) for n, name in enumerate(self.values)
        }
        rows = []
        for name, value in self.means().items():
            metric, k = name.split("@")
            rows.append((self.model, metric, int(k), value, *bounds.get(name, (None, None))))
        schema = {
            "model": pl.String,
            "metric": pl.String,
            "k": pl.Int64,
            "value": pl.Float64,
            "low": pl.Float64,
            "high": pl.Float64,
        }
        return to_native(pl.DataFrame(rows, schema=schema, orient="row"), self.library)

    def __repr__(self) -> str:
        shown = [f"{name} {value:.4f}" for name, value in self.means().items()]
        more = [*shown[:8], "..."] if len(shown) > 8 else shown
        return f"Evaluation({self.model}, {len(self.users):,} users: {', '.join(more)})"


def evaluate(
    model: Recommender,
    test: Dataset,
    *,
    ks: Sequence[int] = KS,
    metrics: Sequence[str] = ALL,
    n_jobs: int | None = None,
    name: str | None = None,
) -> Evaluation:
    """Rank all items for each user of `test`, but those seen in training, and judge the lists.

    Users without a test item are left out. An item of `test` that the user has in training cannot be
    recommended and does not count as relevant.

    Parameters
    ----------
    model
        Any fitted recommender.
    test
        What the users voted for (or truly like). Ids that the model does not know are left out, with a
        warning.
    ks
        The lengths of the lists.
    metrics
        Any of f1, precision, recall, ndcg, map, mrr, hit_rate, popularity, novelty, coverage.
    n_jobs
        Threads; None: all cores. Never changes the result.
    name
        What to call the model in tables; None: its class.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.split.by_user(tl.synthetic.World(n_users=200, n_items=100).log(), seed=0)
    >>> tl.evaluate(tl.ItemKNN().fit(split.train), split.test, ks=(5,), metrics=["f1"])
    Evaluation(ItemKNN, ... users: f1@5 0...)
    """
    ks = _checked_ks(ks)
    metrics = _checked_metrics(metrics)
    if not hasattr(type(model), "top_k"):
        raise ParameterError(f"evaluate takes a fitted model, not {type(model).__name__}: say tl.load(directory)")
    check_log(test, "evaluate", part="test")
    train = model.train_
    known, strangers = test.recode(train.users, train.items)
    if strangers:
        warnings.warn(
            f"{strangers:,} of {test.n_interactions:,} test rows have a user or an item that the model "
            "does not know; they are left out",
            DataWarning,
            stacklevel=2,
        )
    relevant = relevant_items(train, known)
    counts = np.diff(relevant.indptr)
    users = np.flatnonzero(counts).astype(np.int32)
    if not len(users):
        raise DataError("no user of the test set has a relevant item that the model knows")
    best = model.top_k(users, max(ks), n_jobs=n_jobs).items
    hits = hit_matrix(best, users, relevant)
    values = _per_user(hits, counts[users].astype(np.float64), metrics, ks)
    totals: dict[str, float] = {}
    if set(metrics) & set(LIST_METRICS):
        shares = np.maximum(train.popularity(), 0.5) / train.n_users
        for k in ks:
            found = formulas.novelty(best, shares, k)
            values.update({f"{m}@{k}": v for m, v in zip(LIST_METRICS, found, strict=False) if m in metrics})
            if "coverage" in metrics:
                totals[f"coverage@{k}"] = formulas.coverage(best, train.n_items, k)
    return Evaluation(name or model.name, train.users.take(users), values, totals, train.library)


def _per_user(
    hits: NDArray[np.float64],
    relevant: NDArray[np.float64],
    metrics: Sequence[str],
    ks: Sequence[int],
) -> dict[str, NDArray[np.float64]]:
    chosen = [name for name in metrics if name in formulas.METRICS]
    return {f"{name}@{k}": formulas.METRICS[name](hits, relevant, k) for name in chosen for k in ks}


def hit_matrix(best: Codes, users: Codes, relevant: Any) -> NDArray[np.float64]:
    """1 where the recommended item is one of the user's relevant ones."""
    n_items = relevant.shape[1]
    owners = np.repeat(np.arange(relevant.shape[0], dtype=np.int64), np.diff(relevant.indptr))
    liked = owners * n_items + relevant.indices  # sorted, as the rows of the CSR are
    asked = users[:, None].astype(np.int64) * n_items + best
    at = np.minimum(np.searchsorted(liked, asked), len(liked) - 1)
    return np.asarray((liked[at] == asked) & (best >= 0), dtype=np.float64)


def relevant_items(train: Dataset, test: Dataset) -> Any:
    """What is relevant to whom: CSR (users x items) of the test votes that are not in training, in its codes."""
    return _without(test.matrix, train.matrix)


def _without(matrix: Any, seen: Any) -> Any:
    """The pattern of a matrix less that of another, rows sorted."""
    left = sparse.csr_array(matrix, copy=True)
    left.data = np.ones(left.nnz, dtype=np.float32)
    # by the pattern: a vote of weight 0 is seen as well
    ones = np.ones(seen.nnz, dtype=np.float32)
    overlap = left.multiply(sparse.csr_array((ones, seen.indices, seen.indptr), shape=seen.shape))
    if overlap.nnz:
        left = sparse.csr_array(left - overlap)
        left.eliminate_zeros()
    left.sort_indices()
    return left


def _checked_metrics(metrics: Any) -> list[str]:
    wanted = [metrics] if isinstance(metrics, str) or not isinstance(metrics, Iterable) else list(metrics)
    if not wanted or any(name not in ALL for name in wanted):
        raise ParameterError(f"metrics is {metrics!r}; it is one or more of {', '.join(ALL)}")
    return wanted


def _checked_ks(ks: Sequence[int]) -> list[int]:
    wanted = list(ks) if isinstance(ks, Iterable) else [ks]
    if not wanted or not all(isinstance(k, Integral) and k >= 1 and k is not True for k in wanted):
        raise ParameterError(f"ks is {ks!r}; it is a list of whole numbers from 1 up")
    return sorted({int(k) for k in wanted})
