"""What a fitted model answers in row numbers: scores of users, histories and pairs, similarities, vectors, lists.

Lists, explanations, evaluation, files of lists and the service are written on a `Scorer` alone. A model has one as
`model.scorer`. It is built from what the model learned, and it does not change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.feedback import Feedback
from truelike.data.ids import Codes
from truelike.data.protocol import Rows
from truelike.data.trends import trend
from truelike.engines.weights import HistoryCounts
from truelike.ranking.factor_ranker import FactorRanker, factor_pair_scores, factor_score_block
from truelike.ranking.top_k import TopK, check_users, tie_places, top_k_by_scores

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
AVERAGED_USERS = 200  # users whose mean scores are those of a user without interactions
CELLS_AT_ONCE = 2**22  # scores of all items for some users in memory, to find those of pairs
LEFT_OUT_BYTES = 64 * 2**20  # of scores at once, while interactions are left out


class DotProduct(NamedTuple):
    """Vectors whose dot product, plus the bias of the item, is the score."""

    users: Floats
    items: Floats
    bias: Floats | None

    def scores(self, users: Codes) -> Floats:
        """Scores of all items for some users."""
        return self.of_vectors(self.users[users])

    def of_vectors(self, vectors: Floats, items: Codes | None = None) -> Floats:
        """Scores of all items, or of some, for vectors in place of those of users."""
        if items is None:
            return factor_score_block(vectors, self.items, self.bias)
        return factor_score_block(vectors, self.items[items], None if self.bias is None else self.bias[items])

    def of_pairs(self, users: Codes, items: Codes) -> Floats:
        """The score of each pair (users[n], items[n]), at the cost of the pairs."""
        return factor_pair_scores(self.users, self.items, self.bias, users, items)


class Scorer(ABC):
    """What a fitted model answers, in row numbers of users and items.

    A scorer of your own implements `score_users`, `score_histories` and `similarities`. It may implement what follows
    them; the rest is final.

    Parameters
    ----------
    train
        The training data, whose row numbers these are.
    counting
        How the interactions of a history count: see `counted`. None: each counts 1.

    Notes
    -----
    A history is a row of a CSR of items, sorted, whose data are how much each interaction counts. All are 1 unless the
    scorer has `counting`. So a scorer without it may use them or not.

    Examples
    --------
    >>> import numpy as np, truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
    >>> scorer = tl.EASE(regularization=1.0).fit(data).scorer
    >>> eve, milk, tea = data.users.known("eve"), data.items.known("milk"), data.items.known("tea")
    >>> bool(scorer.score_users(eve)[0, milk[0]] == scorer.score_pairs(eve, milk)[0])
    True
    >>> scorer.top_k(eve, 1).items.tolist() == [milk.tolist()], scorer.similar(tea, 1).items.tolist()
    (True, [[0]])
    """

    def __init__(self, train: Dataset | Blocks, counting: HistoryCounts | None = None) -> None:
        self.train, self.counting = train, counting

    # --- what a scorer implements ---------------------------------------------------------------

    @abstractmethod
    def score_users(self, users: Codes) -> Floats:
        """Scores of all items for some users: a new array (len(users), n_items)."""

    @abstractmethod
    def score_histories(self, histories: sparse.csr_array) -> Floats:
        """Scores of all items for new users, each of whom is a row of a CSR: a new array.

        Its data are how much each interaction counts; all are 1 unless the scorer has `counting`.
        """

    @abstractmethod
    def similarities(self, items: Codes) -> Floats:
        """Similarity of all items to some items: a new array (len(items), n_items); -inf is never listed."""

    # --- what a scorer may implement ------------------------------------------------------------

    @property
    def vectors(self) -> DotProduct | None:
        """The vectors whose dot product is the score; None if the score is no dot product."""
        return None

    @property
    def similarity_vectors(self) -> Floats | None:
        """A row for each item; the dot product of two is their similarity. None: there are none."""
        return None

    def history_vectors(self, histories: sparse.csr_array) -> Floats | None:
        """The vectors of new users, whose dot products with `vectors.items` are their scores; None: there are none."""
        return None

    @property
    def kinds(self) -> Mapping[str, Feedback]:
        """The feedback beside the interactions that scores depend on, by its kind."""
        return {}

    def counted_kinds(
        self, weights: sparse.csr_array, times: NDArray[np.int64] | None, kinds: Mapping[str, sparse.csr_array]
    ) -> sparse.csr_array:
        """Histories as by `counted`, with other feedback of the same users by kind: CSRs of weights, one row each."""
        return self.counted(weights, times)

    def contributions(self, history: sparse.csr_array, items: Codes, user: int | None) -> Floats | None:
        """What each interaction adds to the scores of some items; None if the score is no sum over interactions.

        An array (len(items), interactions). The history is one row, which is not empty. `user` is the user of the
        training data whose interactions these are; None: a new user.
        """
        return None

    def left_out_scores(self, history: sparse.csr_array, places: Codes, items: Codes) -> Floats:
        """Scores of some items for a history, then for the history without the interaction at each of some places.

        An array (1 + len(places), len(items)); the history is one row, with two items or more.
        """
        n, at_once = history.nnz, max(1, LEFT_OUT_BYTES // (4 * self.train.n_items))
        kept = np.ones((1 + len(places), n), dtype=bool)
        kept[np.arange(1, len(kept)), places] = False
        blocks = (kept[start : start + at_once] for start in range(0, len(kept), at_once))
        return np.concatenate(
            [self.score_histories(parts_of(history, block))[:, items] for block in blocks], dtype=np.float32
        )

    # --- what follows ---------------------------------------------------------------------------

    @final
    def counted(self, weights: sparse.csr_array, times: NDArray[np.int64] | None = None) -> sparse.csr_array:
        """Histories with how much each interaction counts in place of its weight.

        Parameters
        ----------
        weights
            A CSR with a row for each user: the weights of the interactions, e.g. of ``train.matrix[users]``.
        times
            The times of its entries. None: an interaction is as recent as one of the training data is on average.

        Examples
        --------
        >>> import truelike as tl
        >>> data = tl.read([("ann", "tea", 1), ("ann", "gin", 2), ("bob", "tea", 3)], weight=2)
        >>> model = tl.EASE(weighting="linear", regularization=1.0).fit(data)
        >>> model.scorer.counted(data.matrix[[0]]).data.tolist()  # the mean of all is 1
        [1.0, 0.5]
        """
        if self.counting is not None:
            return self.counting.of(weights, times)
        ones = np.ones(weights.nnz, dtype=np.float32)
        return sparse.csr_array((ones, weights.indices, weights.indptr), shape=weights.shape)

    @final
    def score_pairs(self, users: Codes, items: Codes) -> Floats:
        """The score of each pair (users[n], items[n]); the cost is that of the pairs if the score is a dot product."""
        vectors = self.vectors
        if vectors is None:
            return pairs_of_rows(self.score_users, self.train.n_items, users, items)
        return vectors.of_pairs(users, items)

    @final
    def score_items(self, history: sparse.csr_array, items: Codes, user: int | None = None) -> Floats:
        """Scores of some items for a user of the training data, or, without one, for a new user with a history."""
        if user is not None:
            return self.score_pairs(np.full(len(items), user, dtype=np.int32), items)
        if not history.nnz:
            return self.scores_without_history[items]
        return np.asarray(self.score_histories(history)[0, items])

    @final
    @cached_property
    def scores_without_history(self) -> Floats:
        """Scores of all items for a user without interactions: by a vector of zeros, or those of the average user."""
        n, vectors = self.train.n_users, self.vectors
        if vectors is not None:
            zeros = np.zeros(self.train.n_items, dtype=np.float32)
            return zeros if vectors.bias is None else vectors.bias
        users = np.unique(np.linspace(0, n - 1, min(n, AVERAGED_USERS)).astype(np.int32))
        return np.asarray(np.mean([self.score_users(user[None])[0] for user in users], axis=0), dtype=np.float32)

    @final
    @cached_property
    def ties(self) -> Codes:
        """The place of each item among items with its score: the more popular first, then in a fixed random order."""
        return tie_places(self.train.popularity())

    @final
    @cached_property
    def trending(self) -> Floats:
        """What is trending: the users of each item, of whom those of long ago count less. The data must have times."""
        return trend(self.train).scores

    @final
    def order_ties(self, places: Codes) -> None:
        """Order equal scores by these places of the items, and not by their popularity in the training data."""
        vars(self)["ties"] = places  # where `cached_property` keeps it

    @final
    def ranker(self) -> FactorRanker | None:
        """The items, laid out for the ranking of many users; None if the score is no dot product."""
        vectors = self.vectors
        return None if vectors is None else FactorRanker(vectors.items, vectors.bias, ties=self.ties)

    @final
    def top_k(
        self,
        users: Codes,
        k: int,
        *,
        exclude_seen: bool = True,
        seen: Rows | None = None,
        allowed: Mask | None = None,
        n_jobs: int | None = -1,
        ranker: FactorRanker | None = None,
    ) -> TopK:
        """The k best items of each user.

        Parameters
        ----------
        users
            Row numbers.
        k
            The list length; lists are shorter if fewer items are left.
        exclude_seen
            Leave out the items that the user interacted with in the training data.
        seen
            What `exclude_seen` leaves out in place of the training data: a Dataset with its users and items.
        allowed
            A mask of the items that may be listed; None: all.
        n_jobs
            Number of threads; -1: all cores. It does not change the result.
        ranker
            That of `ranker()`, for many calls.
        """
        check_users(users, self.train.n_users)
        left_out, rows = (self.train if seen is None else seen).rows(users) if exclude_seen else (None, None)
        vectors, ranker = self.vectors, ranker or self.ranker()
        if vectors is not None and ranker is not None:
            return ranker.top_k(vectors.users[users], k, rows=rows, seen=left_out, allowed=allowed, n_jobs=n_jobs)
        return self._best(self.score_users, users, k, left_out, rows, allowed, n_jobs)

    @final
    def top_k_of_histories(
        self,
        weights: sparse.csr_array,
        k: int,
        *,
        times: NDArray[np.int64] | None = None,
        exclude_seen: bool = True,
        seen: sparse.csr_array | None = None,
        allowed: Mask | None = None,
    ) -> TopK:
        """The k best items of new users, each of whom is a row of a CSR of weights; see `counted`.

        `seen` is a CSR of what `exclude_seen` leaves out in place of the interactions.
        """
        rows, histories = np.arange(weights.shape[0], dtype=np.int32), self.counted(weights, times)
        left_out = (weights if seen is None else seen) if exclude_seen else None
        return self._best(
            lambda block: self.score_histories(histories[block]), rows, k, left_out, rows, allowed, 1
        )

    @final
    def similar(self, items: Codes, k: int, *, allowed: Mask | None = None, n_jobs: int | None = 1) -> TopK:
        """The k items most similar to each of some, without the item itself."""

        def others(block: Codes) -> Floats:
            found = self.similarities(block)
            found[np.arange(len(block)), block] = -np.inf
            return found

        return self._best(others, items, k, None, None, allowed, n_jobs)

    def _best(
        self,
        score_block: Callable[[Codes], Floats],
        users: Codes,
        k: int,
        seen: Any,
        rows: Codes | None,
        allowed: Mask | None,
        n_jobs: int | None,
    ) -> TopK:
        n_items, ties = self.train.n_items, self.ties
        return top_k_by_scores(
            score_block, users, k, n_items=n_items, seen=seen, rows=rows, allowed=allowed, ties=ties, n_jobs=n_jobs
        )


def parts_of(history: sparse.csr_array, kept: NDArray[np.bool_]) -> sparse.csr_array:
    """Parts of a history, the interactions that each row of a mask marks.

    >>> history = sparse.csr_array(np.array([[0, 3, 0, 5]]))
    >>> parts_of(history, np.array([[True, True], [False, True]])).toarray().tolist()
    [[0, 3, 0, 5], [0, 0, 0, 5]]
    """
    row, at = np.nonzero(kept)
    indptr = np.searchsorted(row, np.arange(len(kept) + 1)).astype(np.int32)
    return sparse.csr_array((history.data[at], history.indices[at], indptr), shape=(len(kept), history.shape[1]))


def pairs_of_rows(rows_of: Callable[[Codes], Floats], n_items: int, users: Codes, items: Codes) -> Floats:
    """The values of pairs, from a function that gives those of all items for some users; each user is asked for once.

    >>> table = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> pairs_of_rows(lambda users: table[users], 3, np.array([1, 0, 1]), np.array([2, 0, 0])).tolist()
    [5.0, 0.0, 3.0]
    """
    found, order = np.empty(len(users), dtype=np.float32), np.argsort(users, kind="stable")
    wanted, first = np.unique(users[order], return_index=True)
    ends = np.append(first, len(users))
    step = max(1, min(256, CELLS_AT_ONCE // n_items))
    for start in range(0, len(wanted), step):
        asked = wanted[start : start + step]
        part = order[ends[start] : ends[start + len(asked)]]
        found[part] = rows_of(asked)[np.searchsorted(asked, users[part]), items[part]]
    return found
