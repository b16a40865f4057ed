"""For whom, and with which items, a model does well: users by activity, items by popularity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.evaluation import metrics as formulas
from truelike.evaluation.evaluate import hit_matrix, relevant_items

if TYPE_CHECKING:
    from truelike.models.recommender import Recommender

THIRDS = ("head", "middle", "tail")


def popularity_thirds(popularity: NDArray[Any]) -> NDArray[np.int64]:
    """For each item 0 (head), 1 (middle) or 2 (tail): each third has about a third of all votes.

    >>> popularity_thirds(np.array([1, 6, 2, 3, 1, 1, 1])).tolist()
    [2, 0, 1, 1, 2, 2, 2]
    """
    order = np.argsort(-popularity, kind="stable")
    before = np.cumsum(popularity[order]) - popularity[order]  # the votes of all that are more popular
    thirds = np.empty(len(popularity), dtype=np.int64)
    thirds[order] = np.minimum(before * 3 // max(int(popularity.sum()), 1), 2)
    return thirds


def by_popularity(model: Recommender, test: Dataset, k: int, *, n_jobs: int | None = None) -> dict[str, Any]:
    """The recall@k of test votes for popular and rare items, and the share of all items that anybody gets.

    Unlike the recall of a user, this is of votes: of all test votes for items of a third, the share that is
    among the k best of their users.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.split.by_user(tl.synthetic.World(n_users=200, n_items=100).log(), seed=0)
    >>> found = by_popularity(tl.ItemPop().fit(split.train), split.test, 10)
    >>> found["recall"][0] > found["recall"][2] == 0.0
    True
    """
    train = model.train_
    relevant = relevant_items(train, test.recode(train.users, train.items)[0])
    users = np.flatnonzero(np.diff(relevant.indptr)).astype(np.int32)
    best = model.top_k(users, k, n_jobs=n_jobs).items
    third = popularity_thirds(train.popularity())
    hit = hit_matrix(best, users, relevant) > 0
    hits = np.bincount(third[best[hit]], minlength=3)
    votes = np.bincount(third[relevant.indices], minlength=3)
    return {
        "k": k,
        "items": np.bincount(third, minlength=3).tolist(),
        "votes": votes.tolist(),
        "recall": [float(n) / int(of) if of else None for n, of in zip(hits, votes, strict=True)],
        "coverage": formulas.coverage(best, train.n_items, k),
    }


def activity_quarters(votes: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """The quarters of users by their training votes: what each is called, and the quarter of each user.

    Users with as many votes are never parted, so there may be fewer than four.

    >>> names, quarter = activity_quarters(np.array([1, 2, 2, 3, 5, 8, 9, 20]))
    >>> names, quarter.tolist()
    (['1 to 2', '3', '5 to 8', '9 to 20'], [0, 0, 0, 1, 2, 2, 3, 3])
    """
    edges = np.unique(np.quantile(votes, (0.25, 0.5, 0.75), method="lower"))
    place = np.searchsorted(edges, votes)
    there, quarter = np.unique(place, return_inverse=True)
    names = []
    for each in there:
        low, high = votes[place == each].min(), votes[place == each].max()
        names.append(f"{low:,}" if low == high else f"{low:,} to {high:,}")
    return names, quarter.astype(np.int64)
