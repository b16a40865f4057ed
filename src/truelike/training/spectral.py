"""A start that already knows the log: its spectrum, as far as it stands out from that of a random log.

The votes, each divided by sqrt(n_u n_i), have singular values up to 1; the first pair of vectors is popularity
alone. Of a log in which everybody votes at random, by the same numbers of votes, no other value is above about
1 / sqrt(mean n_u) + 1 / sqrt(mean n_i) (the edge of the spectrum of a random bipartite graph). What is above this
edge is taste; what is below may be noise, and starts at almost nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike import randomness
from truelike.data.dataset import Dataset
from truelike.parallel import for_each, one_blas_thread
from truelike.training.tables import Tables

SCALE = 4.0  # of the start; 1 to 8 ended alike on the data sets at hand, and larger is sooner there
SPARE = 8  # vectors beside those that are kept, which sharpen the last of them
ROUNDS = 2
ROWS = 1024  # of a sparse matrix, multiplied at once


def add_spectrum(tables: Tables, log: Dataset, seed: int, n_jobs: int | None = None) -> None:
    """Add the singular vectors of the log to the preference tables, by how much they stand out."""
    users, values, items = _spectrum(log, tables.factors, seed, n_jobs)
    edge = sum(1 / np.sqrt(count.mean()) for count in (log.rows_per_user(), log.popularity()))
    size = SCALE * np.sqrt(np.maximum(values - edge, 0.0))
    tables.user_factors[:, : len(size)] += (size * log.n_users**0.25 * users).astype(np.float32)
    tables.item_factors[:, : len(size)] += (size * log.n_items**0.25 * items).astype(np.float32)


def _spectrum(
    log: Dataset, factors: int, seed: int, n_jobs: int | None
) -> tuple[NDArray[np.floating], NDArray[np.floating], NDArray[np.floating]]:
    """The leading singular vectors and values but the first, by subspace iteration (Halko et al., 2011)."""
    by_user = 1 / np.sqrt(np.maximum(log.rows_per_user(), 1))
    by_item = 1 / np.sqrt(np.maximum(log.popularity(), 1))
    matrix = log.matrix
    scaled = (by_user[log.user_of_entry] * by_item[matrix.indices]).astype(np.float32)
    votes = sparse.csr_array((scaled, matrix.indices, matrix.indptr), shape=matrix.shape)
    voters = sparse.csr_array(votes.T)
    n = min(factors + 1, *votes.shape)
    wide = min(n + SPARE, *votes.shape)
    with one_blas_thread():
        random = randomness.normal(randomness.key(seed, "spectrum"), np.arange(log.n_items * wide))
        basis = random.reshape(log.n_items, wide).astype(np.float32)
        for _ in range(ROUNDS):
            basis = np.linalg.qr(_product(voters, _product(votes, basis, n_jobs), n_jobs))[0]
        reached = _product(votes, basis, n_jobs)
        squares, turn = np.linalg.eigh((reached.T @ reached).astype(np.float64))
        turn = turn[:, ::-1][:, 1:n].astype(np.float32)
        values = np.sqrt(np.maximum(squares[::-1][1:n], 1e-12))
        return (reached @ turn) / values, values, basis @ turn


def _product(matrix: Any, dense: NDArray[np.float32], n_jobs: int | None) -> NDArray[np.float32]:
    """A sparse matrix times a dense one, by fixed pieces."""
    pieces = [matrix[start : start + ROWS] for start in range(0, matrix.shape[0], ROWS)]
    return np.concatenate(for_each(lambda piece: piece @ dense, pieces, n_jobs))
