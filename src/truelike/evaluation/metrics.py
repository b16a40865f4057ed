"""Ranking metrics, computed for all users at once.

R_u is the set of relevant items of user u. h_n is 1 if the n-th recommended item is relevant and 0 if not. A list
that is shorter than k, because the catalogue is small, counts as a list with misses at its end.

A *measure* is a metric at a list length, written "ndcg@20".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from truelike.errors import ParameterError

Floats = NDArray[np.float64]
Metric = Callable[[Floats, Floats, int], Floats]


def precision(hits: Floats, relevant: Floats, k: int) -> Floats:
    """Precision@k = sum(h_1 ... h_k) / k.

    >>> precision(np.array([[1.0, 0.0]]), np.array([1.0]), 2)
    array([0.5])
    """
    return np.asarray(hits[:, :k].sum(axis=1) / k)


def recall(hits: Floats, relevant: Floats, k: int) -> Floats:
    """Recall@k = sum(h_1 ... h_k) / |R_u|.

    >>> recall(np.array([[1.0, 0.0]]), np.array([4.0]), 2)
    array([0.25])
    """
    return np.asarray(hits[:, :k].sum(axis=1) / relevant)


def capped_recall(hits: Floats, relevant: Floats, k: int) -> Floats:
    """CappedRecall@k = sum(h_1 ... h_k) / min(k, |R_u|), so that k hits are 1: Recall@k of the Mult-VAE paper.

    >>> capped_recall(np.array([[1.0, 0.0]]), np.array([4.0]), 2)
    array([0.5])
    """
    return np.asarray(hits[:, :k].sum(axis=1) / np.minimum(k, relevant))


def f1(hits: Floats, relevant: Floats, k: int) -> Floats:
    """F1@k = 2 P R / (P + R), the harmonic mean of precision and recall of one user; 0 without hits.

    >>> f1(np.array([[1.0, 0.0]]), np.array([2.0]), 2)
    array([0.5])
    """
    # 2 P R / (P + R) with P = s / k and R = s / |R_u| is 2 s / (k + |R_u|)
    return np.asarray(2 * hits[:, :k].sum(axis=1) / (k + relevant))


def ndcg(hits: Floats, relevant: Floats, k: int) -> Floats:
    """NDCG@k = sum(h_n / log2(n + 1)) / sum(1 / log2(n + 1) for n = 1 ... min(|R_u|, k)).

    >>> ndcg(np.array([[0.0, 1.0]]), np.array([1.0]), 2).round(4)
    array([0.6309])
    """
    gains = 1 / np.log2(np.arange(2, k + 2))
    ideal = np.concatenate(([0.0], np.cumsum(gains)))
    listed = hits[:, :k]
    best = ideal[np.minimum(relevant, k).astype(np.int64)]
    return np.asarray((listed @ gains[: listed.shape[1]]) / best)


def average_precision(hits: Floats, relevant: Floats, k: int) -> Floats:
    """MAP@k: the mean over users of sum(h_n x Precision@n for n = 1 ... k) / |R_u|.

    >>> average_precision(np.array([[1.0, 0.0, 1.0]]), np.array([2.0]), 3).round(4)
    array([0.8333])
    """
    listed = hits[:, :k]
    ranks = np.arange(1, listed.shape[1] + 1)
    return np.asarray((listed * np.cumsum(listed, axis=1) / ranks).sum(axis=1) / relevant)


def reciprocal_rank(hits: Floats, relevant: Floats, k: int) -> Floats:
    """MRR@k: the mean over users of 1 / (rank of the first hit); 0 without hits.

    >>> reciprocal_rank(np.array([[0.0, 1.0, 1.0]]), np.array([2.0]), 3)
    array([0.5])
    """
    listed = hits[:, :k]
    found = listed.any(axis=1)
    first = 1 + np.argmax(listed, axis=1)
    return np.asarray(found / first, dtype=np.float64)


def hit_rate(hits: Floats, relevant: Floats, k: int) -> Floats:
    """HitRate@k = 1 if any of the k items is relevant, else 0.

    >>> hit_rate(np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([2.0, 1.0]), 2)
    array([1., 0.])
    """
    return np.asarray(hits[:, :k].any(axis=1), dtype=np.float64)


# the order is that of tables
METRICS: dict[str, Metric] = {
    "ndcg": ndcg,
    "recall": recall,
    "capped_recall": capped_recall,
    "precision": precision,
    "f1": f1,
    "map": average_precision,
    "mrr": reciprocal_rank,
    "hit_rate": hit_rate,
}


def own_metric(function: Metric) -> tuple[str, Metric]:
    """The name of a metric of the user's own, and the metric with its input and its result checked.

    >>> def first_hit(hits, relevant, k):
    ...     return hits[:, 0]
    >>> name, metric = own_metric(first_hit)
    >>> name, metric(np.array([[1.0], [0.0]]), np.array([2.0, 1.0]), 2)
    ('first_hit', array([1., 0.]))
    """
    name = getattr(function, "__name__", None)
    if name is None or not name.isidentifier():
        raise ParameterError(
            f"a metric of your own is named by its function, and {name or type(function).__name__!r} is no name: "
            "write it with def"
        )

    def measured(hits: Floats, relevant: Floats, k: int) -> Floats:
        listed = np.zeros((len(hits), k))
        listed[:, : hits.shape[1]] = hits[:, :k]  # a list that is shorter has misses at its end
        found = np.asarray(function(listed, relevant.copy(), k))
        wrong = found.shape != (len(hits),) or found.dtype.kind not in "biuf"
        if wrong or not np.isfinite(found).all():
            what = (
                f"an array of {found.dtype} of the shape {found.shape}" if wrong else "values that are not finite"
            )
            raise ParameterError(
                f"the metric {name} returned {what} for k = {k}; it must return one finite number for each of the "
                f"{len(hits):,} users, which are the rows of hits"
            )
        return found.astype(np.float64)

    return name, measured


def is_metric_at_k(value: object) -> bool:
    """Return whether a value is a metric at a list length.

    >>> is_metric_at_k("ndcg@20"), is_metric_at_k("ndcg"), is_metric_at_k("auc@20"), is_metric_at_k("f1@0")
    (True, False, False, False)
    """
    metric, _, k = str(value).partition("@")
    return metric in METRICS and k.isascii() and k.isdigit() and int(k) > 0


def parse_measure(measure: str) -> tuple[str, int]:
    """Return the metric and the list length of a measure.

    >>> parse_measure("ndcg@20")
    ('ndcg', 20)
    """
    if not is_metric_at_k(measure):
        raise ParameterError(
            f"metric is {measure!r}; it must be a metric at a list length, such as 'ndcg@20'. The metrics are "
            f"{', '.join(METRICS)}"
        )
    metric, _, k = measure.partition("@")
    return metric, int(k)


def coverage(recommended: NDArray[np.int32], n_items: int, k: int) -> float:
    """Coverage@k: the share of the catalogue that is recommended to at least one user.

    >>> coverage(np.array([[0, 1], [0, 2]], dtype=np.int32), 4, 1)
    0.25
    """
    listed = np.unique(recommended[:, :k])
    return float((listed >= 0).sum() / n_items)


def mean_of_listed(recommended: NDArray[np.int32], values: Floats, k: int) -> Floats:
    """The mean of a value of items over the list of each user.

    Popularity@k = mean(p_i) and novelty@k = mean(-log2 p_i). p_i is the share of users who interacted with item i
    in training. An item without interactions counts as half of one, so that its novelty is finite.

    >>> mean_of_listed(np.array([[0, 1, -1]], dtype=np.int32), np.array([0.5, 0.25]), 3)
    array([0.375])
    """
    listed = recommended[:, :k]
    filled = listed >= 0
    mean: Floats = np.where(filled, values[listed], 0.0).sum(axis=1) / np.maximum(filled.sum(axis=1), 1)
    return mean
