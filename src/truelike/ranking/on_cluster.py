"""The best items of many users by dot products, computed on a cluster.

The items go to each node once. A piece has the vectors of its users and the items that they have seen, so that a worker
needs neither the model nor its training data.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.cluster import Cluster, map_on
from truelike.core.arrays import Floats
from truelike.data.ids import Codes
from truelike.data.protocol import Rows
from truelike.errors import ParameterError
from truelike.ranking.factor_ranker import FactorRanker
from truelike.ranking.top_k import TopK


def check_dot_product(model: str, vectors: Any) -> Any:
    """The vectors of a model; an error if its score is no dot product, so that they are None."""
    if vectors is None:
        raise ParameterError(
            f"the score of {model} is no dot product of two vectors, and a cluster computes only lists by such scores. "
            "Leave cluster out."
        )
    return vectors


def top_k_on_cluster(
    cluster: Cluster,
    vectors: Any,
    seen: Rows | None,
    blocks: Iterable[Codes],
    k: int,
    *,
    allowed: NDArray[np.bool_] | None = None,
    ties: Codes | None = None,
) -> Generator[TopK, None, None]:
    """The k best items of each user of some blocks of users, block by block, as `FactorRanker.top_k` gives them.

    The dot product of the `vectors` is the score. `blocks` have the row numbers of users, and are asked for as workers
    become free. The pairs of `seen` are left out; None: no pair. `ties` is that of `FactorRanker`.
    """
    ranker = FactorRanker(vectors.items, vectors.bias, ties=ties)
    mask = np.zeros(0, dtype=bool) if allowed is None else allowed

    def piece(users: Codes) -> tuple[Any, ...]:
        own = np.ascontiguousarray(vectors.users[users], dtype=np.float32)
        if seen is None:
            return k, own, np.zeros(len(users) + 1, dtype=np.int32), np.zeros(0, dtype=np.int32)
        matrix, rows = seen.rows(users)
        mine = matrix[rows]
        return k, own, mine.indptr, mine.indices

    return map_on(cluster, top_k_of_piece, map(piece, blocks), (ranker.by_factor, ranker.bias, ranker.ties, mask))


def top_k_of_piece(
    by_factor: Floats,
    bias: Floats,
    ties: Codes,
    allowed: NDArray[np.bool_],
    k: int,
    vectors: Floats,
    indptr: Codes,
    indices: Codes,
    *,
    n_jobs: int | None = 1,
) -> TopK:
    """The k best items of each vector, without those of its row of a CSR; an empty `allowed` allows all items."""
    ranker = FactorRanker(None, bias, by_factor=by_factor, ties=ties)
    ones = np.ones(len(indices), dtype=np.float32)
    seen = sparse.csr_array((ones, indices, indptr), shape=(len(vectors), ranker.n_items))
    return ranker.top_k(vectors, k, seen=seen, allowed=allowed if len(allowed) else None, n_jobs=n_jobs)
