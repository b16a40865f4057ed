"""`evaluate`: rank all items for each user of a test set and compute the metrics of the lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.checks import check_dataset
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.data.splits import Split
from truelike.data.truth import Truth
from truelike.errors import DataError, DataWarning, ParameterError, warn
from truelike.evaluation.metrics import METRICS, coverage, popularity_and_novelty
from truelike.evaluation.protocol import Ranker, check_ranker
from truelike.evaluation.result import ALL_METRICS, Evaluation
from truelike.evaluation.truth import TruthScores, score_truth

__all__ = ["ALL_METRICS", "KS", "Evaluation", "evaluate", "hit_matrix", "relevant_items"]

KS = (2, 5, 10, 20)


def evaluate(
    model: Ranker,
    test: Dataset | Split | None = None,
    *,
    truth: Truth | Dataset | None = None,
    ks: Sequence[int] | int = KS,
    metrics: Sequence[str] | str = ALL_METRICS,
    n_jobs: int | None = -1,
    name: str | None = None,
) -> Evaluation:
    """Rank all items for each user of a test set and compute the metrics of the lists.

    Items that a user has in training are never recommended, and do not count as relevant. Users without a relevant
    item are left out. With `truth`, the model is also, or only, scored against true labels of unobserved pairs.

    Parameters
    ----------
    model
        Any fitted recommender.
    test
        The interactions (or true likes) to find, or a split, whose test part is used. Rows with ids that the model
        does not know are left out, with a warning. None: only `truth` is used.
    truth
        The true labels of pairs; or the true likes, if all other pairs are dislikes. Adds "truth_auc" and
        "truth_ndcg@k" of the ranking over unobserved pairs. For models with flip probabilities it also adds
        "hidden_auc", "hidden_pooled_auc", "hidden_ece" and "hidden_log_loss" of the posterior of hidden likes,
        and `result.truth.reliability()`.
    ks
        The list lengths.
    metrics
        Any of ndcg, recall, precision, f1, map, mrr, hit_rate, coverage, novelty, popularity.
    n_jobs
        Number of threads; -1: all cores. It does not change the result.
    name
        The name of the model in tables; None: its class.

    Returns
    -------
    Evaluation
        The value of each user, the means, and tables of them.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=200, n_items=100).dataset(), seed=0)
    >>> tl.evaluate(tl.ItemKNN().fit(split.train), split.test, ks=(5,), metrics=["ndcg"])
    Evaluation(ItemKNN, ... users: ndcg@5 0...)

    In a synthetic world the true likes are known:

    >>> world = tl.synthetic.World(n_users=200, n_items=100)
    >>> tl.evaluate(tl.ItemPop().fit(world.dataset()), truth=world.truth(), ks=(5,))
    Evaluation(ItemPop, ... users: truth_auc 0..., truth_ndcg@5 0..., hidden_share 0...)
    """
    ks = _checked_ks(ks)
    metrics = _checked_metrics(metrics)
    check_ranker(model)
    scores = None if truth is None else _score_truth(model, truth, ks, n_jobs)
    if test is None and scores is not None:
        return Evaluation(name or model.name, scores.users, scores.values, scores.totals, scores.library, scores)
    if isinstance(test, Split):
        test = test.test
    check_dataset(test, "evaluate", part="test")
    assert test is not None
    train = model.train_
    known, unknown = test.recode(train.users, train.items)
    if unknown:
        warn(
            f"{unknown:,} of {test.n_interactions:,} test rows have a user or an item that the model "
            "does not know; they are left out",
            DataWarning,
        )
    relevant = relevant_items(train, known)
    counts = np.diff(relevant.indptr)
    users = np.flatnonzero(counts).astype(np.int32)
    if not len(users):
        raise DataError(
            f"no user of the held-out part ({test.n_interactions:,} interactions) has a relevant item: one that the "
            "model knows and the user does not have in training. Give interactions held out of training."
        )
    best = model._top_k(users, max(ks), n_jobs=n_jobs).items
    hits = hit_matrix(best, users, relevant)
    n_relevant = counts[users].astype(np.float64)
    per_user = {
        f"{metric}@{k}": METRICS[metric](hits, n_relevant, k)
        for metric in metrics
        if metric in METRICS
        for k in ks
    }
    per_user.update(_popularity_and_novelty(best, train, metrics, ks))
    totals = {f"coverage@{k}": coverage(best, train.n_items, k) for k in ks if "coverage" in metrics}
    return Evaluation(name or model.name, train.users.take(users), per_user, totals, train.library, scores)


def _score_truth(model: Ranker, truth: Any, ks: Sequence[int], n_jobs: int | None) -> TruthScores:
    labels = truth if isinstance(truth, Truth) else Truth(truth)
    return score_truth(model, labels, ks=ks, n_jobs=n_jobs)


def _popularity_and_novelty(
    best: Codes, train: Dataset, metrics: Sequence[str], ks: Sequence[int]
) -> dict[str, NDArray[np.float64]]:
    wanted = [metric for metric in metrics if metric in ("popularity", "novelty")]
    if not wanted:
        return {}
    shares = np.maximum(train.popularity(), 0.5) / train.n_users
    found = {
        k: dict(zip(("popularity", "novelty"), popularity_and_novelty(best, shares, k), strict=True)) for k in ks
    }
    return {f"{metric}@{k}": found[k][metric] for metric in wanted for k in ks}


def hit_matrix(best: Codes, users: Codes, relevant: Any) -> NDArray[np.float64]:
    """Return 1 where a recommended item is one of the user's relevant items, else 0."""
    n_items = relevant.shape[1]
    owners = np.repeat(np.arange(relevant.shape[0], dtype=np.int64), np.diff(relevant.indptr))
    liked = owners * n_items + relevant.indices  # sorted, because the rows of the CSR are
    asked = users[:, None].astype(np.int64) * n_items + best
    at = np.minimum(np.searchsorted(liked, asked), len(liked) - 1)
    return np.asarray((liked[at] == asked) & (best >= 0), dtype=np.float64)


def relevant_items(train: Dataset, test: Dataset) -> Any:
    """Return a CSR (users x items) of the test interactions that are not in training.

    Both datasets must have the same ids. The rows of the result are sorted, and its data are ones.
    """
    matrix = sparse.csr_array(test._csr, copy=True)
    matrix.sort_indices()
    owners = np.repeat(np.arange(matrix.shape[0], dtype=np.int32), np.diff(matrix.indptr))
    kept = ~is_seen(train, owners, matrix.indices)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(owners[kept], minlength=matrix.shape[0]))])
    ones = np.ones(np.count_nonzero(kept), dtype=np.float32)
    return sparse.csr_array((ones, matrix.indices[kept], indptr.astype(np.int32)), shape=matrix.shape)


def is_seen(train: Dataset, users: Codes, items: Codes) -> NDArray[np.bool_]:
    """Return whether each pair, given by row numbers and sorted by user, is in the training data."""
    wanted = np.unique(users)
    seen, rows = train._rows(wanted)
    lengths = (seen.indptr[rows + 1] - seen.indptr[rows]).astype(np.int64)
    ends = np.cumsum(lengths)
    at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(seen.indptr[rows] - (ends - lengths), lengths)
    pairs = np.repeat(wanted.astype(np.int64), lengths) * train.n_items + seen.indices[at]  # sorted
    asked = users.astype(np.int64) * train.n_items + items
    if not len(pairs):
        return np.zeros(len(asked), dtype=bool)
    return np.asarray(pairs[np.minimum(np.searchsorted(pairs, asked), len(pairs) - 1)] == asked)


def _checked_metrics(metrics: Any) -> list[str]:
    wanted = [metrics] if isinstance(metrics, str) or not isinstance(metrics, Iterable) else list(metrics)
    if not wanted or any(name not in ALL_METRICS for name in wanted):
        raise ParameterError(f"metrics is {metrics!r}; it must be one or more of {', '.join(ALL_METRICS)}")
    return wanted


def _checked_ks(ks: Any) -> list[int]:
    wanted: list[Any] = list(ks) if isinstance(ks, Iterable) else [ks]
    if not wanted or not all(isinstance(k, Integral) and not isinstance(k, bool) and int(k) >= 1 for k in wanted):
        raise ParameterError(f"ks is {ks!r}; it must be one or more whole numbers from 1 up")
    return sorted({int(k) for k in wanted})
