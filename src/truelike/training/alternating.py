"""The engine of iALS: an epoch solves every user's row with the items' fixed, then every item's with the users'.

A row's equations do not know the other rows of its table, so rows are solved in fixed blocks on any number of
threads, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from truelike.data.dataset import Dataset
from truelike.parallel import for_each, one_blas_thread
from truelike.training.tables import Tables
from truelike.training.trainer import ArrayEngine

Floats = NDArray[np.float32]
ROWS = 64  # that are one piece of work; even, since the compiled loop takes them by twos
GRAM_ROWS = 4096


@dataclass(frozen=True)
class Weights:
    """What the objective weighs: every pair by `unobserved`, every row by a ridge that grows with its votes."""

    unobserved: float
    regularization: float
    frequency_power: float

    def ridge(self, votes: Any, n_others: int) -> Any:
        """Regularization x (votes + unobserved x how many others there are) ^ frequency_power."""
        return self.regularization * (votes + self.unobserved * n_others) ** self.frequency_power


@dataclass
class _Side:
    """One of the two tables: whose rows are solved, from whose, by which votes."""

    rows: Floats
    table: Floats
    votes: Any
    ridge: NDArray[np.float32]


class AlternatingEngine(ArrayEngine):
    """Alternating least squares on tables.

    Parameters
    ----------
    train
        The log.
    tables
        What is trained, in place.
    weights
        Of the objective.
    solver
        "cg": some steps of conjugate gradients from where a row stands; "cholesky": its exact solution.
    cg_steps
        How many.
    n_jobs
        Threads; None: all cores. Never changes the result.
    """

    def __init__(
        self,
        train: Dataset,
        tables: Tables,
        weights: Weights,
        *,
        solver: Literal["cg", "cholesky"],
        cg_steps: int,
        n_jobs: int | None,
    ) -> None:
        self.train, self.tables, self.weights = train, tables, weights
        self.solver, self.cg_steps, self.n_jobs = solver, cg_steps, n_jobs
        by_user = train.matrix
        by_item = sparse.csr_array(by_user.T)
        self.sides = tuple(
            _Side(rows, table, votes, self._ridge(votes))
            for rows, table, votes in (
                (tables.users, tables.items, by_user),
                (tables.items, tables.users, by_item),
            )
        )
        self._loss = float("nan")

    def _ridge(self, votes: Any) -> NDArray[np.float32]:
        counts = np.diff(votes.indptr).astype(np.float64)
        return np.asarray(self.weights.ridge(counts, votes.shape[1]), dtype=np.float32)

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Solve the users' rows, then the items'."""
        users, items = self.sides
        with one_blas_thread():
            self._solve(users)
            if progress is not None:
                progress(self.train.n_interactions // 2)
            terms = self._solve(items)
        # the items' terms hold the votes, the unobserved pairs and the items' ridge; the users' is still missing
        squares = np.einsum("nk,nk->n", users.rows, users.rows, dtype=np.float64)
        self._loss = (terms + float(squares @ users.ridge)) / self.train.n_interactions

    def loss(self) -> float:
        """The objective after the last epoch, for each vote."""
        return self._loss

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays that training goes on from."""
        return dict(self.tables.arrays())

    def _solve(self, side: _Side) -> float:
        """Solve every row of a side; gives the objective's terms of its rows."""
        gram = weighted_gram(side.table, self.weights.unobserved, self.n_jobs)
        work = self._conjugate_gradients(side, gram) if self.solver == "cg" else self._cholesky(side, gram)
        return float(sum(for_each(work, range(0, len(side.rows), ROWS), self.n_jobs)))

    def _conjugate_gradients(self, side: _Side, gram: NDArray[np.float64]) -> Callable[[int], float]:
        solve_rows = compiled_solver()
        width = side.rows.shape[1]
        single, rows, table = gram.astype(np.float32).reshape(-1), side.rows.reshape(-1), side.table.reshape(-1)
        indptr, voted = side.votes.indptr, side.votes.indices

        def work(start: int) -> float:
            stop = min(start + ROWS, len(side.rows))
            room = (*np.zeros((3, 2 * width), dtype=np.float32), np.zeros(2, dtype=np.float32))
            steps = self.cg_steps
            return float(
                solve_rows(start, stop, rows, width, table, single, indptr, voted, side.ridge, steps, *room)
            )

        return work

    def _cholesky(self, side: _Side, gram: NDArray[np.float64]) -> Callable[[int], float]:
        factors = self.tables.factors  # without the padding, whose equations are empty
        small, table = gram[:factors, :factors], side.table[:, :factors]
        indptr, voted = side.votes.indptr, side.votes.indices

        def work(start: int) -> float:
            terms = 0.0
            for row in range(start, min(start + ROWS, len(side.rows))):
                own = table[voted[indptr[row] : indptr[row + 1]]].astype(np.float64)
                x = exact_row(own, small, float(side.ridge[row]))
                side.rows[row, :factors] = x
                terms += len(own) - float(own.sum(axis=0) @ x)  # at the solution x'Ax is b'x
            return terms

        return work


@lru_cache(maxsize=1)
def compiled_solver() -> Any:
    """The compiled loop, called once for no rows, so that no block of work waits for the compiler."""
    from truelike.progress import compiling

    with compiling("the loops of iALS"):
        from truelike.training.solving import solve_rows

        numbers, places = np.zeros(2, dtype=np.float32), np.zeros(2, dtype=np.int32)
        solve_rows(0, 0, numbers, 0, numbers, numbers, places, places, numbers, 0, *[numbers] * 4)
        return solve_rows


def weighted_gram(table: Floats, weight: float, n_jobs: int | None = None) -> NDArray[np.float64]:
    """The weight times V'V, summed over fixed blocks in their order."""

    def product(start: int) -> NDArray[np.float64]:
        block = table[start : start + GRAM_ROWS]
        return np.asarray(block.T @ block, dtype=np.float64)

    return np.asarray(weight * sum(for_each(product, range(0, len(table), GRAM_ROWS), n_jobs)), dtype=np.float64)


def exact_row(own: NDArray[np.float64], gram: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
    """The row x with the least |1 - own x|^2 + x'gram x + ridge |x|^2; own: the voted rows of the other table."""
    if not len(own):
        return np.zeros(len(gram))
    matrix = gram + own.T @ own
    matrix[np.diag_indices_from(matrix)] += ridge
    factor = linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    return np.asarray(linalg.cho_solve(factor, own.sum(axis=0), check_finite=False), dtype=np.float64)
