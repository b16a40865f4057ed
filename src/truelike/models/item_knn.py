"""ItemKNN: items that the same people voted for are alike (Sarwar et al., WWW 2001)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.models.recommender import Floats, HeldOut, Recommender
from truelike.parallel import for_each
from truelike.parameters import number, whole_number

MEMORY = 32 * 2**20  # bytes of a block of likenesses, if every item were like every other


@dataclass(kw_only=True, eq=False, repr=False)
class ItemKNN(Recommender):
    """Score an item by how alike it is to what the user voted for.

    s_ij = c_ij / (sqrt(n_i n_j) + shrinkage), where c_ij users voted for both, n_i for item i; each item
    keeps its `neighbors` most alike, and score(u, i) = sum of s_ij over the neighbours j of i that u
    voted for. Of equal scores, such as the 0 of items that nothing speaks for, the more popular item
    comes first; an item that shares no user with another is not listed as similar to it.

    Parameters
    ----------
    neighbors
        How many alike items each item keeps; None: all that share a user with it.
    shrinkage
        Weakens likeness that rests on few users; 0 is the plain cosine.
    n_jobs
        Threads; None: all cores. Never changes the result.

    Notes
    -----
    The defaults are a compromise chosen on validation NDCG@20: 200 neighbours are best on MovieLens 1M,
    all of them on the small Amazon split, where shrinkage makes up for most of the difference.

    Attributes
    ----------
    similarity_
        CSR (items x items): in row i the neighbours of item i.

    Examples
    --------
    >>> import truelike as tl
    >>> log = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
    >>> tl.ItemKNN().fit(log).recommend("eve", k=1)["item_id"].to_list()
    ['milk']
    """

    space: ClassVar[dict[str, Any]] = {"neighbors": (5, 500)}

    neighbors: int | None = whole_number(200, low=1, optional=True)
    shrinkage: float = number(10.0, low=0.0)
    n_jobs: int | None = whole_number(None, low=1)

    def _learn(self, train: Dataset, validation: HeldOut) -> None:
        votes = sparse.csr_array(train.matrix, copy=True)
        votes.data = np.ones(votes.nnz, dtype=np.float32)
        voters = sparse.csr_array(votes.T)
        length = np.sqrt(train.popularity())

        def rows(start: int) -> Any:
            return self._neighbours(voters, votes, length, slice(start, start + block))

        block = max(1, MEMORY // (16 * train.n_items))
        blocks = for_each(rows, range(0, train.n_items, block), self.n_jobs)
        self._set(sparse.csr_array(sparse.vstack(blocks)), train)

    def _neighbours(self, voters: Any, votes: Any, length: NDArray[np.float64], block: slice) -> Any:
        """The best of s_ij for a block of items i: always sparse, never items x items."""
        common = sparse.csr_array(voters[block] @ votes)  # c_ij
        common.sort_indices()
        row = np.repeat(np.arange(common.shape[0]), np.diff(common.indptr))
        scale = length[block][row] * length[common.indices] + self.shrinkage
        likeness = (common.data / scale).astype(np.float32)
        likeness[common.indices == row + block.start] = 0.0  # an item is not its own neighbour
        common.data = likeness
        common.eliminate_zeros()
        if self.neighbors is not None:
            _keep_best(common.indptr, common.data, self.neighbors)
            common.eliminate_zeros()
        return common

    def _set(self, similarity: Any, train: Dataset) -> None:
        self.similarity_ = similarity
        self._by_popularity = np.argsort(-train.popularity(), kind="stable").astype(np.int32)
        # row j: the items that have j as a neighbour, so that a history adds up rows
        self._supports = sparse.csr_array(similarity.T)

    def _score_block(self, users: Codes) -> Floats:
        return self._score_histories(self.train_.matrix[users])

    def _score_histories(self, histories: Any) -> Floats:
        from truelike.models.kernels import add_rows

        scores = np.zeros(histories.shape, dtype=np.float32)
        add_rows(
            histories.indptr, histories.indices,
            self._supports.indptr, self._supports.indices, self._supports.data, scores,
        )  # fmt: skip
        return scores

    def _tie_order(self) -> Codes:
        return self._by_popularity

    def _similarity_block(self, items: Codes) -> Floats:
        alike = np.asarray(self.similarity_[items].toarray(), dtype=np.float32)
        alike[alike == 0] = -np.inf  # not alike at all: never listed
        return alike

    def _arrays(self) -> dict[str, NDArray[Any]]:
        s = self.similarity_
        return {
            "similarity.indptr": s.indptr.astype(np.int64),
            "similarity.indices": s.indices.astype(np.int32),
            "similarity.data": s.data,
        }

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        from truelike.storage import checked_csr

        parts = (
            arrays["similarity.data"],
            arrays["similarity.indices"],
            arrays["similarity.indptr"],
        )
        n = self.train_.n_items
        self._set(checked_csr(parts, (n, n)), self.train_)


def _keep_best(indptr: NDArray[np.integer], data: Floats, k: int) -> None:
    """Set all but the k greatest values of each CSR row to 0; of equal ones the first stay."""
    for row in np.flatnonzero(np.diff(indptr) > k):
        values = data[indptr[row] : indptr[row + 1]]
        kth = np.partition(values, len(values) - k)[len(values) - k]
        keep = values > kth
        keep[np.flatnonzero(values == kth)[: k - keep.sum()]] = True
        values[~keep] = 0.0
