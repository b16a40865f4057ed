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
from truelike.data.truth import Truth
from truelike.errors import DataError, DataWarning, ParameterError, UnknownMeasureError
from truelike.evaluation import metrics as formulas
from truelike.evaluation.significance import bootstrap_interval

if TYPE_CHECKING:
    from truelike.evaluation.truth import TruthScores
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
    truth
        What was measured against the truth, where it was given, with the reliability table.

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
    truth: TruthScores | None = None

    def __getitem__(self, measure: str) -> float:
        """The mean over users of one measure, e.g. `result["ndcg@20"]`."""
        values = self._all_values()
        totals = self.totals if self.truth is None else {**self.totals, **self.truth.totals}
        if measure in totals:
            return totals[measure]
        if measure not in values:
            raise UnknownMeasureError(f"{measure!r} was not measured; there are {', '.join([*values, *totals])}")
        return float(values[measure].mean())

    def means(self) -> dict[str, float]:
        """Every measure, averaged over users."""
        totals = {} if self.truth is None else self.truth.totals
        return {name: self[name] for name in dict.fromkeys((*self._all_values(), *self.totals, *totals))}

    def _all_values(self) -> dict[str, NDArray[np.float64]]:
        """Those of the test and those of the truth; the latter may be of other users."""
        return self.values if self.truth is None else {**self.values, **self.truth.values}

    def per_user(self) -> Any:
        """A frame with one row a user and one column a measure; given a test and a truth, those of the test."""
        columns = [pl.Series(name, values) for name, values in self.values.items()]
        return to_native(pl.DataFrame([self.users.alias("user_id"), *columns]), self.library)

    def summary(self, *, confidence: float = 0.95, resamples: int = 1_000, seed: int = 0) -> Any:
        """A frame (model, metric, k, value, low, high), with bootstrap confidence intervals over users."""
        bounds: dict[str, tuple[float | None, float | None]] = {}
        for values in (self.values, {} if self.truth is None else self.truth.values):
            if not values:
                continue
            each = np.array(list(values.values())).T
            low, high = bootstrap_interval(each, confidence=confidence, resamples=resamples, seed=seed)
            bounds |= {name: (float(low[n]), float(high[n])) for n, name in enumerate(values)}
        rows = []
        for name, value in self.means().items():
            metric, _, k = name.partition("@")
            rows.append((self.model, metric, int(k) if k else None, value, *bounds.get(name, (None, None))))
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
    test: Dataset | None = None,
    *,
    truth: Truth | Dataset | None = None,
    ks: Sequence[int] = KS,
    metrics: Sequence[str] = ALL,
    n_jobs: int | None = None,
    name: str | None = None,
) -> Evaluation:
    """Rank all items for each user of `test`, but those seen in training, and judge the lists.

    Users without a test item are left out. An item of `test` that the user has in training cannot be
    recommended and does not count as relevant. With `truth`, the model is scored against true labels of unvoted
    pairs, too, or only.

    Parameters
    ----------
    model
        Any fitted recommender.
    test
        What the users voted for (or truly like). Ids that the model does not know are left out, with a
        warning. None: only the truth counts.
    truth
        The true labels of pairs, or the true likes, all else being disliked. Adds "truth_auc" and "truth_ndcg@k"
        of the ranking over unvoted pairs, and of models with flips "hidden_auc", "hidden_pooled_auc",
        "hidden_ece" and "hidden_log_loss" of the posterior, and `result.truth.reliability()`.
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

    In a world, the likes that were never voted are known:

    >>> world = tl.synthetic.World(n_users=200, n_items=100)
    >>> result = tl.evaluate(tl.ItemPop().fit(world.log()), truth=world.truth(), ks=(5,))
    >>> result
    Evaluation(ItemPop, ... users: truth_auc 0..., truth_ndcg@5 0..., hidden_share 0...)
    """
    ks = _checked_ks(ks)
    metrics = _checked_metrics(metrics)
    if not hasattr(type(model), "top_k"):
        raise ParameterError(f"evaluate takes a fitted model, not {type(model).__name__}: say tl.load(directory)")
    scores = None if truth is None else _by_truth(model, truth, ks, n_jobs)
    if test is None and scores is not None:
        own = scores.users, scores.values, scores.totals
        return Evaluation(name or model.name, *own, scores.library, scores)
    check_log(test, "evaluate", part="test")
    assert test is not None
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
    return Evaluation(name or model.name, train.users.take(users), values, totals, train.library, scores)


def _by_truth(model: Recommender, truth: Any, ks: Sequence[int], n_jobs: int | None) -> TruthScores:
    from truelike.evaluation.truth import score_truth

    labels = truth if isinstance(truth, Truth) else Truth(truth)
    return score_truth(model, labels, ks=ks, n_jobs=n_jobs)


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
