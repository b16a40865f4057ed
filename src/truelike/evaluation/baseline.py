"""The value of a metric for the popularity ranking: the least that a trained model must reach."""

from __future__ import annotations

import numpy as np

from truelike.data.dataset import Dataset
from truelike.evaluation.metrics import METRICS, parse_measure
from truelike.evaluation.pairs import relevant_items
from truelike.ranking.top_k import tie_places


def popularity_baseline(train: Dataset, validation: Dataset, measure: str) -> float:
    """Return the value that `tl.ItemPop` has on a validation part, without ranking any item.

    In the list of a user, an item stands at its rank by popularity less the number of more popular items that the
    user has in training. So only the validation items are looked at.

    The validation part has the ids of `train`. The value is the mean over users; NaN if no user has a relevant item.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=200, n_items=100).dataset(), seed=0)
    >>> model = tl.ItemPop().fit(split.train)
    >>> value = popularity_baseline(split.train, split.validation, "ndcg@20")
    >>> bool(np.isclose(value, tl.evaluate(model, split.validation)["ndcg@20"]))
    True
    """
    metric, k = parse_measure(measure)
    relevant = relevant_items(train, validation)
    counts = np.diff(relevant.indptr)
    users = np.flatnonzero(counts)
    if not len(users):
        return float("nan")
    n_items = train.n_items
    rank = tie_places(train.popularity()).astype(np.int64)
    row_of_user = np.cumsum(counts > 0) - 1
    owners = np.repeat(np.arange(train.n_users, dtype=np.int64), counts)
    ranks = rank[relevant.indices]
    # pairs are numbers row * n_items + rank, so that one sorted array holds the seen items of all these users
    matrix, rows = train.rows(users.astype(np.int32))
    matrix = matrix[rows]
    row_of_entry = np.repeat(np.arange(len(users), dtype=np.int64), np.diff(matrix.indptr))
    seen = np.sort(row_of_entry * n_items + rank[matrix.indices])
    owner_rows = row_of_user[owners]
    more_popular_seen = np.searchsorted(seen, owner_rows * n_items + ranks) - matrix.indptr[owner_rows]
    places = ranks - more_popular_seen
    hits = np.zeros((len(users), min(k, n_items)))
    listed = places < hits.shape[1]
    hits[row_of_user[owners[listed]], places[listed]] = 1.0
    return float(METRICS[metric](hits, counts[users].astype(np.float64), k).mean())
