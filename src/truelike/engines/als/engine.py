"""The engine of iALS: an epoch solves all users' rows, then all items' rows, each with the other table fixed.

The equations of a row do not depend on the other rows of its table. So rows are solved in fixed blocks, and the
result is the same on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from truelike.core.arrays import Codes, Doubles, Floats
from truelike.core.parallel import for_each, one_blas_thread
from truelike.core.progress import compiling
from truelike.data.dataset import Dataset
from truelike.engines.engine import ArrayEngine
from truelike.engines.tables import Tables
from truelike.errors import DivergedError

ROWS = 64  # per block of work; even, because the compiled loop solves two rows at a time
GRAM_ROWS = 4096


@dataclass(frozen=True)
class Weights:
    """The weights of the objective: `unobserved` is that of every pair's squared score.

    The ridge of a row is regularization x (its interactions + unobserved x other side's rows)^frequency_power.
    """

    unobserved: float
    regularization: float
    frequency_power: float

    def ridge(self, interactions: Any, n_others: int) -> Any:
        """Return the ridge of a row with so many interactions, where the other table has n_others rows."""
        return self.regularization * (interactions + self.unobserved * n_others) ** self.frequency_power

    def ridges(self, counts: NDArray[np.integer], n_others: int) -> Floats:
        """Return the ridge of each row, by its number of interactions."""
        return np.asarray(self.ridge(counts.astype(np.float64), n_others), dtype=np.float32)


@dataclass(frozen=True)
class Solver:
    """How the equations of a row are solved: exactly ("cholesky"), or by some steps of conjugate gradients ("cg").

    The steps start from the row's present value. From the second epoch on the row moves `relaxation` as far as the
    steps lead. Above 1 the alternation converges sooner (successive over-relaxation).
    """

    method: Literal["cg", "cholesky"]
    cg_steps: int
    relaxation: float = 1.0

    def beyond(self, epoch: int) -> float:
        """How much further than the steps lead a row moves in an epoch, as a share."""
        return self.relaxation - 1.0 if epoch else 0.0


@dataclass
class Side:
    """A half of an epoch: the rows to solve, the fixed table, the interactions (CSR) and the ridge of each row.

    `weights` are those of the interactions; None if they count the same.
    """

    rows: Floats
    table: Floats
    indptr: Codes
    positives: Codes
    ridge: Floats
    weights: Floats | None


class AlternatingEngine(ArrayEngine):
    """Alternating least squares on factor tables, in place. The number of threads does not change the result.

    `interaction_weights` is how much each interaction counts, in the order of `train.matrix`; None: all the same. The
    ridge of a row counts its interactions, whatever their weights.
    """

    def __init__(
        self, train: Dataset, tables: Tables, weights: Weights, *, solver: Solver, n_jobs: int | None,
        interaction_weights: Floats | None = None,
    ) -> None:  # fmt: skip
        self.train, self.tables, self.weights = train, tables, weights
        self.solver, self.n_jobs = solver, n_jobs
        by_user, weighted = train.csr, interaction_weights is not None
        if weighted:
            by_user = sparse.csr_array((interaction_weights, by_user.indices, by_user.indptr), shape=by_user.shape)
        by_item = sparse.csr_array(by_user.T)

        def side(rows: Floats, table: Floats, interactions: Any) -> Side:
            ridge = weights.ridges(np.diff(interactions.indptr), interactions.shape[1])
            counts = interactions.data if weighted else None
            return Side(rows, table, interactions.indptr, interactions.indices, ridge, counts)

        self.sides = (side(tables.users, tables.items, by_user), side(tables.items, tables.users, by_item))
        self._loss = float("nan")

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Solve the users' rows, then the items' rows."""
        users, items = self.sides
        beyond = self.solver.beyond(number)
        with one_blas_thread():
            self._solve(users, beyond)
            if progress is not None:
                progress(self.train.n_interactions // 2)
            terms = self._solve(items, beyond)
        # the items' terms contain all but the users' ridge
        squares = np.einsum("nk,nk->n", users.rows, users.rows, dtype=np.float64)
        self._loss = (terms + float(squares @ users.ridge)) / self.train.n_interactions

    def loss(self) -> float:
        """Return the objective after the last epoch, per interaction."""
        return self._loss

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which training can resume."""
        return dict(self.tables.arrays())

    def _solve(self, side: Side, beyond: float = 0.0) -> float:
        """Solve all rows of a side. Return the objective's terms of its rows."""
        gram = weighted_gram(side.table, self.weights.unobserved, self.n_jobs)
        return solve_side(side, gram, self.solver, beyond, self.tables.factors, self.n_jobs)


def solve_side(
    side: Side, gram: Doubles, solver: Solver, beyond: float, factors: int, n_jobs: int | None
) -> float:
    """Solve all rows of a side. Return the objective's terms of its rows.

    `gram` is that of the fixed table (see `weighted_gram`), and `factors` the columns without the padding.
    """
    if solver.method == "cg":
        work = _conjugate_gradients(side, gram, solver.cg_steps, beyond)
    else:
        work = _cholesky(side, gram, factors)
    return float(sum(for_each(work, range(0, len(side.rows), ROWS), n_jobs)))


def _conjugate_gradients(side: Side, gram: Doubles, steps: int, beyond: float) -> Callable[[int], float]:
    solve_rows = compiled_solver(side.weights is not None)
    from truelike.engines.als.conjugate_gradient import Buffers, Equations

    width = side.rows.shape[1]
    rows, table, flat_gram = side.rows.reshape(-1), side.table.reshape(-1), gram.astype(np.float32).reshape(-1)
    equations = Equations(rows, table, flat_gram, side.indptr, side.positives, side.ridge, np.uint64(width))

    def work(start: int) -> float:
        stop = min(start + ROWS, len(side.rows))
        p, q, r, old = np.zeros((4, 2 * width), dtype=np.float32)
        buffers = Buffers(p, q, r, old, np.zeros(2, dtype=np.float32))
        return float(solve_rows(start, stop, equations, side.weights, steps, np.float32(beyond), buffers))

    return work


def _cholesky(side: Side, gram: Doubles, factors: int) -> Callable[[int], float]:
    small, table = gram[:factors, :factors], side.table[:, :factors]

    def work(start: int) -> float:
        terms = 0.0
        for row in range(start, min(start + ROWS, len(side.rows))):
            mine = slice(side.indptr[row], side.indptr[row + 1])
            own = table[side.positives[mine]].astype(np.float64)
            weights = None if side.weights is None else side.weights[mine].astype(np.float64)
            x = exact_row(own, small, float(side.ridge[row]), weights)
            side.rows[row, :factors] = x
            b = own.sum(axis=0) if weights is None else weights @ own
            total = len(own) if weights is None else float(weights.sum())
            terms += total - float(b @ x)  # at the solution x'Ax is b'x
        return terms

    return work


@lru_cache(maxsize=2)
def compiled_solver(weighted: bool) -> Callable[..., float]:
    """Return the compiled loop. It is called once without rows, so that no thread waits for the compiler.

    It is compiled once for interactions with weights and once for those without.
    """
    with compiling("the loops of iALS"):
        from truelike.engines.als.conjugate_gradient import Buffers, Equations, solve_rows

        numbers, places = np.zeros(2, dtype=np.float32), np.zeros(2, dtype=np.int32)
        equations = Equations(numbers, numbers, numbers, places, places, numbers, np.uint64(0))
        solve_rows(0, 0, equations, numbers if weighted else None, 0, np.float32(0), Buffers(*[numbers] * 5))
        return solve_rows  # type: ignore[no-any-return]


def weighted_gram(table: Floats, weight: float, n_jobs: int | None = -1) -> Doubles:
    """Return weight x V'V, summed over fixed blocks in a fixed order."""

    def product(start: int) -> Doubles:
        block = table[start : start + GRAM_ROWS]
        return np.asarray(block.T @ block, dtype=np.float64)

    return np.asarray(weight * sum(for_each(product, range(0, len(table), GRAM_ROWS), n_jobs)), dtype=np.float64)


def exact_row(own: Doubles, gram: Doubles, ridge: float, weights: Doubles | None = None) -> Doubles:
    """Return the row x that minimises the sum of weights x (1 - own x)^2, + x' gram x + ridge |x|^2.

    `own` are the positives' rows of the other table; without `weights` each counts once.
    """
    if not len(own):
        return np.zeros(len(gram))
    return solved(own, gram, ridge, own.sum(axis=0) if weights is None else weights @ own, weights)


def solved(own: Doubles, gram: Doubles, ridge: float, b: NDArray[Any], weights: Doubles | None = None) -> Doubles:
    """Return A^-1 b, where A = gram + own' weights own + ridge is the matrix of the equations of a row."""
    matrix = gram + (own.T if weights is None else own.T * weights) @ own
    matrix[np.diag_indices_from(matrix)] += ridge
    try:
        factor = linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError as error:
        raise DivergedError(
            "the equations of a row have no unique solution in float64. Use more regularization."
        ) from error
    return np.asarray(linalg.cho_solve(factor, b, check_finite=False), dtype=np.float64)
