"""Metrics of one user's ranked list, for all users at once, each with its formula.

R_u are the user's relevant items, h_1 ... h_k are 1 where the n-th recommended item is relevant and 0
where it is not. A list that is shorter than k (the catalogue is small) is a list with misses at its end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Metric = Callable[[Floats, Floats, int], Floats]


def precision(hits: Floats, relevant: Floats, k: int) -> Floats:
    """Precision@k = sum(h) / k.

    >>> precision(np.array([[1.0, 0.0]]), np.array([1.0]), 2)
    array([0.5])
    """
    return np.asarray(hits[:, :k].sum(axis=1) / k)


def recall(hits: Floats, relevant: Floats, k: int) -> Floats:
    """Recall@k = sum(h) / |R_u|.

    >>> recall(np.array([[1.0, 0.0]]), np.array([4.0]), 2)
    array([0.25])
    """
    return np.asarray(hits[:, :k].sum(axis=1) / relevant)


def f1(hits: Floats, relevant: Floats, k: int) -> Floats:
    """F1@k = 2 P R / (P + R), the harmonic mean of precision and recall of one user; 0 without a hit.

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
    """MRR@k: the mean over users of 1 / (rank of the first hit), 0 without one.

    >>> reciprocal_rank(np.array([[0.0, 1.0, 1.0]]), np.array([2.0]), 3)
    array([0.5])
    """
    listed = hits[:, :k]
    found = listed.any(axis=1)
    first = 1 + np.argmax(listed, axis=1)
    return np.asarray(found / first, dtype=np.float64)


def hit_rate(hits: Floats, relevant: Floats, k: int) -> Floats:
    """HitRate@k = 1 if any of the k is relevant, else 0.

    >>> hit_rate(np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([2.0, 1.0]), 2)
    array([1., 0.])
    """
    return np.asarray(hits[:, :k].any(axis=1), dtype=np.float64)


METRICS: dict[str, Metric] = {
    "f1": f1,
    "precision": precision,
    "recall": recall,
    "ndcg": ndcg,
    "map": average_precision,
    "mrr": reciprocal_rank,
    "hit_rate": hit_rate,
}


def coverage(recommended: NDArray[np.int32], n_items: int, k: int) -> float:
    """Coverage@k: the share of the catalogue that is recommended to at least one user.

    >>> coverage(np.array([[0, 1], [0, 2]], dtype=np.int32), 4, 1)
    0.25
    """
    listed = np.unique(recommended[:, :k])
    return float((listed >= 0).sum() / n_items)


def novelty(recommended: NDArray[np.int32], shares: Floats, k: int) -> tuple[Floats, Floats]:
    """Popularity@k and novelty@k of each user's list.

    Popularity@k = mean(p_i) and novelty@k = mean(-log2 p_i), where p_i is the share of users who voted
    for item i in training (at least half a vote, so that an item without one has a finite novelty).

    >>> shares = np.array([0.5, 0.25])
    >>> popularity, surprise = novelty(np.array([[0, 1]], dtype=np.int32), shares, 2)
    >>> popularity.tolist(), surprise.tolist()
    ([0.375], [1.5])
    """
    listed = recommended[:, :k]
    there = listed >= 0
    count = np.maximum(there.sum(axis=1), 1)
    popularity = np.where(there, shares[listed], 0.0)
    surprise = np.where(there, -np.log2(shares[listed]), 0.0)
    return popularity.sum(axis=1) / count, surprise.sum(axis=1) / count
