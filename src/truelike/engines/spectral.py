"""Spectral initialisation: factors that start at the singular vectors of the training data.

Each interaction is divided by sqrt(n_u n_i). The singular values are then at most 1, and the first pair of
vectors contains only the popularity. If users chose items at random, with the same numbers of interactions, no
other singular value would exceed about 1 / sqrt(mean n_u) + 1 / sqrt(mean n_i), the edge of the spectrum of a
random bipartite graph. Vectors are scaled by how far their values are above this edge; vectors below it, which
may be noise, are left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from truelike.core import randomness
from truelike.core.arrays import Doubles, Floats
from truelike.core.parallel import for_each, one_blas_thread
from truelike.data.dataset import Dataset
from truelike.data.protocol import Interactions
from truelike.engines.regularization import noise_edge
from truelike.engines.tables import Tables

Floating = NDArray[np.floating]

SCALE = 4.0  # 1 to 8 gave the same final quality on the datasets at hand; larger values converge sooner
SMALL = 0.02  # size of components below the edge at the start of IALS, in proportion to the edge
ROW_SQUARES = 0.5  # mean squared length of an item's row at the start of IALS, near that at its end
OVERSAMPLING = 8  # additional vectors, which make the last ones more accurate
ITERATIONS = 2
ROWS = 1024  # rows of a sparse matrix per block of work


def add_spectrum(tables: Tables, train: Dataset, seed: int, n_jobs: int | None = -1) -> None:
    """Add the scaled singular vectors of the training data to U and V."""
    users, values, items = _spectrum(train, tables.factors, seed, n_jobs)
    edge = sum(1 / np.sqrt(count.mean()) for count in (train.interactions_per_user(), train.popularity()))
    size = SCALE * np.sqrt(np.maximum(values - edge, 0.0))
    tables.user_factors[:, : len(size)] += (size * train.n_users**0.25 * users).astype(np.float32)
    tables.item_factors[:, : len(size)] += (size * train.n_items**0.25 * items).astype(np.float32)


def set_items(tables: Tables, train: Dataset, unobserved: float, seed: int, n_jobs: int | None = -1) -> None:
    """Set V to the singular vectors, with the popularity first, as alternating least squares would shrink them.

    The objective of IALS weights an item by its interactions and all pairs by `unobserved`; a component loses about
    half of the edge of the spectrum (see `regularization`). Components that would vanish start small.
    """
    _, values, items = _spectrum(train, tables.factors - 1, seed, n_jobs)
    start_at(tables, train, unobserved, values, items)


def start_at(tables: Tables, train: Interactions, unobserved: float, values: Floating, items: Floating) -> None:
    """Set V to singular vectors with these values, as `set_items` does."""
    popularity = train.popularity().astype(np.float64)
    edge = noise_edge(train)
    vectors = np.column_stack([np.sqrt(popularity / popularity.sum()), items])
    size = np.sqrt(np.maximum(np.concatenate([[1.0], values]) - 0.5 * edge, SMALL * edge))
    vectors *= size * np.sqrt(popularity / (popularity + unobserved * train.n_users))[:, None]
    vectors *= np.sqrt(ROW_SQUARES / np.mean(np.square(vectors).sum(axis=1)))
    tables.item_factors[:, : vectors.shape[1]] = vectors


def _spectrum(train: Dataset, factors: int, seed: int, n_jobs: int | None) -> tuple[Floating, Floating, Floating]:
    """Return the left vectors, values and right vectors of the leading singular triplets but the first.

    They are computed by subspace iteration (Halko et al., 2011).
    """
    user_scale = 1 / np.sqrt(np.maximum(train.interactions_per_user(), 1))
    item_scale = 1 / np.sqrt(np.maximum(train.popularity(), 1))
    matrix = train.csr
    scaled = (user_scale[train.user_of_entry] * item_scale[matrix.indices]).astype(np.float32)
    by_user = sparse.csr_array((scaled, matrix.indices, matrix.indptr), shape=matrix.shape)
    by_item = sparse.csr_array(by_user.T)
    n = min(factors + 1, *by_user.shape)
    width = min(n + OVERSAMPLING, *by_user.shape)
    with one_blas_thread():
        basis = random_signs(train.n_items, width, seed)
        for _ in range(ITERATIONS):
            basis = orthonormal(_product(by_item, _product(by_user, basis, n_jobs), n_jobs))
        projected = _product(by_user, basis, n_jobs)
        values, rotation = leading((projected.T @ projected).astype(np.float64), n)
        return (projected @ rotation) / values, values, basis @ rotation


def random_signs(n_items: int, width: int, seed: int) -> Floats:
    """Return a table of -1 and 1, where the iteration starts."""
    signs = randomness.bits(randomness.key(seed, "spectrum"), np.arange(n_items * width)) >> np.uint64(63)
    return signs.reshape(n_items, width).astype(np.float32) * 2 - 1


def leading(gram: Doubles, n: int) -> tuple[Doubles, Floats]:
    """Return the singular values 2 to n of a projected matrix P, and the vectors that rotate to them, from P'P."""
    squares, rotation = np.linalg.eigh(gram)
    values = np.sqrt(np.maximum(squares[::-1][1:n], 1e-12))
    return values, rotation[:, ::-1][:, 1:n].astype(np.float32)


def orthonormal(basis: Floats) -> Floats:
    """Return an orthonormal basis of the columns: by their Cholesky factor, or by QR if they are nearly dependent."""
    try:
        factor = linalg.cholesky(basis.T.astype(np.float64) @ basis, lower=False)
    except linalg.LinAlgError:
        return np.asarray(np.linalg.qr(basis)[0], dtype=np.float32)
    inverse = linalg.solve_triangular(factor, np.eye(len(factor)))
    return np.asarray(basis @ inverse.astype(np.float32), dtype=np.float32)


def _product(matrix: sparse.csr_array, dense: Floats, n_jobs: int | None) -> Floats:
    """Return a sparse matrix times a dense one, in fixed blocks of rows."""
    blocks = [matrix[start : start + ROWS] for start in range(0, matrix.shape[0], ROWS)]
    return np.concatenate(for_each(lambda block: block @ dense, blocks, n_jobs))
