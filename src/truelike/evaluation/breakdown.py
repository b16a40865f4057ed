"""Results by group: users by activity, items by popularity."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.splits import Split
from truelike.evaluation.metrics import coverage
from truelike.evaluation.pairs import hits_of, relevant_items
from truelike.evaluation.protocol import Ranker
from truelike.evaluation.seen import Seen, SeenParts

THIRDS = ("head", "middle", "tail")


def popularity_thirds(popularity: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each item 0 (head), 1 (middle) or 2 (tail). Each third has about a third of all interactions.

    >>> popularity_thirds(np.array([1, 6, 2, 3, 1, 1, 1])).tolist()
    [2, 0, 1, 1, 2, 2, 2]
    """
    order = np.argsort(-popularity, kind="stable")
    before = np.cumsum(popularity[order]) - popularity[order]  # interactions with all more popular items
    thirds = np.empty(len(popularity), dtype=np.int64)
    thirds[order] = np.minimum(before * 3 // max(int(popularity.sum()), 1), 2)
    return thirds


def by_popularity(
    model: Ranker,
    test: Dataset | Split,
    k: int,
    *,
    seen: Dataset | SeenParts | None = None,
    n_jobs: int | None = -1,
) -> dict[str, Any]:
    """Return the recall@k of popular and of rare items, and the coverage of the catalogue.

    This recall is over interactions, not over users: of all test interactions with the items of a third (head, middle,
    tail), the share that is among the k best items of their users; None for a third without test interactions. `seen`
    is that of `tl.evaluate`.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=200, n_items=100).dataset(), seed=0)
    >>> found = by_popularity(tl.ItemPop().fit(split.train), split, 10)
    >>> found["recall"][0] > found["recall"][2] == 0.0
    True
    """
    train = model.train_
    before, held_out = Seen.of(train, test, seen), test.test if isinstance(test, Split) else test
    relevant = relevant_items(before, held_out.recode(train.users, train.items)[0])
    users = np.flatnonzero(np.diff(relevant.indptr)).astype(np.int32)
    best = model.scorer.top_k(users, k, seen=before, n_jobs=n_jobs).items
    third = popularity_thirds(train.popularity())
    hits = np.bincount(third[best[hits_of(best, relevant[users])[0]]], minlength=3)
    interactions = np.bincount(third[relevant.indices], minlength=3)
    return {
        "k": k,
        "items": np.bincount(third, minlength=3).tolist(),
        "interactions": interactions.tolist(),
        "recall": [float(n) / int(of) if of else None for n, of in zip(hits, interactions, strict=True)],
        "coverage": coverage(best, train.n_items, k),
    }


def activity_quarters(interactions: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
    """Divide users into quarters by their number of training interactions.

    Users with the same number are in the same quarter, so there may be fewer than four. Returns the range of each
    quarter, as text, and the quarter of each user.

    Examples
    --------
    >>> names, quarter = activity_quarters(np.array([1, 2, 2, 3, 5, 8, 9, 20]))
    >>> names, quarter.tolist()
    (['1 to 2', '3', '5 to 8', '9 to 20'], [0, 0, 0, 1, 2, 2, 3, 3])
    """
    edges = np.unique(np.quantile(interactions, (0.25, 0.5, 0.75), method="lower"))
    place = np.searchsorted(edges, interactions)
    places, quarter = np.unique(place, return_inverse=True)
    names = []
    for each in places:
        counts = interactions[place == each]
        low, high = counts.min(), counts.max()
        names.append(f"{low:,}" if low == high else f"{low:,} to {high:,}")
    return names, quarter.astype(np.int64)
