"""Alternating least squares on blocks.

The users' half of an epoch solves the rows of one block after the other, with the item table fixed, as the engine of
`engines/als` does.

In the items' half, no block has all interactions of an item. But a step of conjugate gradients needs of them only the
product A p for the direction p of each item, which is a sum over users, and so over blocks:

    A p = G p + ridge p + the sum over blocks of the sum over their users of c u (u.p)

The partial products of a block are a table (items x factors). They are added in a fixed order (`tree`), and the steps
of all items are done at once. The steps are those of the plain engine: the results differ by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from truelike.cluster import Cluster
from truelike.core.parallel import for_each, one_blas_thread
from truelike.data.blocks.blocks import Block, Blocks
from truelike.data.ids import Codes
from truelike.engines import spectral
from truelike.engines.als.engine import GRAM_ROWS, Side, Solver, Weights, solve_side, weighted_gram
from truelike.engines.blocks.workers import BlockEngine, Share
from truelike.engines.tables import Tables
from truelike.engines.weights import check_times, unscaled_weights
from truelike.errors import ParameterError

Floats = NDArray[np.float32]
PIECES = 32  # of the items, with about as many interactions each; the result does not depend on the threads


@dataclass
class Products:
    """Partial products of a block: a row for each item, and the sum of the squared errors."""

    rows: Floats
    squares: float

    def __iadd__(self, other: Products) -> Products:
        self.rows += other.rows
        self.squares += other.squares
        return self


@dataclass(frozen=True)
class Counting:
    """How much interactions count: the parameters of `interaction_weights`, and the first and last time of all."""

    weighting: Literal["none", "log", "linear"] = "none"
    recency: Literal["none", "user", "global"] = "none"
    half_life: float = 1.0
    span: tuple[int, int] | None = None

    @property
    def differs(self) -> bool:
        """Whether some interactions may count more than others."""
        return self.weighting != "none" or self.recency != "none"

    def unscaled(self, block: Block) -> NDArray[np.float64]:
        """How much each interaction of a block counts, before it is scaled."""
        return unscaled_weights(block.csr, block.times, self.weighting, self.recency, self.half_life, self.span)

    def weights(self, block: Block, scale: float | None) -> Floats | None:
        """How much each interaction of a block counts; None: all the same."""
        return None if scale is None else (self.unscaled(block) * scale).astype(np.float32)


def counting_of(train: Blocks, weighting: Any, recency: Any, half_life: float) -> Counting:
    """How the interactions of all blocks count."""
    span = None
    if recency != "none":
        check_times(recency, train.has_times)
    if recency == "global":
        ends = [(int(block.times.min()), int(block.times.max())) for block in train if len(block.indices)]  # type: ignore[union-attr]
        span = min(first for first, _ in ends), max(last for _, last in ends)
    return Counting(weighting, recency, half_life, span)


@dataclass
class AlternatingWorker:
    """Solves the rows of the users of some blocks, and computes the partial products of their interactions."""

    share: Share
    weights: Weights
    solver: Solver
    counting: Counting
    factors: int

    def weight_sum(self, number: int) -> float:
        """The sum of how much the interactions of a block count, before they are scaled."""
        return float(self.counting.unscaled(self.share.blocks.block(number)).sum())

    def solve_users(
        self, items: Floats, gram: NDArray[np.float64], beyond: float, scale: float | None
    ) -> list[tuple[Any, float]]:
        """Solve all users' rows. Returns for each block the matrix U'U of its rows, and its ridge terms."""
        found = []
        with one_blas_thread():
            for number in self.share.numbers:
                block, rows = self.share.blocks.block(number), self.share.rows_of(number)
                ridge = self.weights.ridges(np.diff(block.indptr), block.n_items)
                counts = self.counting.weights(block, scale)
                side = Side(rows, items, block.indptr, block.indices, ridge, counts)
                solve_side(side, gram, self.solver, beyond, self.factors, self.share.n_jobs)
                squares = np.einsum("nk,nk->n", rows, rows, dtype=np.float64)
                found.append((weighted_gram(rows, 1.0, self.share.n_jobs), float(squares @ ridge)))
        return found

    def products(self, number: int, table: Floats, target: float, sign: float, scale: float | None) -> Products:
        """The partial products of a block with a row of `table` for each item."""
        from truelike.engines.blocks.kernels import add_products

        block, rows = self.share.blocks.block(number), self.share.rows_of(number)
        out = np.zeros_like(table)
        flat, width = out.reshape(-1), table.shape[1]
        x, users = table.reshape(-1), rows.reshape(-1)
        counts = self.counting.weights(block, scale)
        weights = None if counts is None else block.of_tiles(counts)

        def work(piece: tuple[int, int]) -> float:
            return float(
                add_products(
                    *piece, block.n_items, flat, x, width, users, block.tile_users, block.tile_starts,
                    weights, np.float32(target), np.float32(sign),
                )
            )  # fmt: skip

        squares = for_each(work, self._pieces, self.share.n_jobs)
        return Products(out, float(sum(squares)))

    def spectrum(self, number: int, basis: Floats) -> Floats:
        """The product of a block's normalised interactions, transposed, with those times a basis."""
        block = self.share.blocks.block(number)
        projected, scale = self._projected(block, basis)
        out = self._added(self._pieces, projected, block.tile_users, block.tile_starts, block.n_items, scale)
        out *= self._item_scale()[:, None]
        return out

    def projected_gram(self, number: int, basis: Floats) -> NDArray[np.float64]:
        """The matrix P'P, where P are a block's normalised interactions times a basis."""
        with one_blas_thread():
            projected, _ = self._projected(self.share.blocks.block(number), basis)
            return weighted_gram(projected, 1.0, self.share.n_jobs)

    def _projected(self, block: Block, basis: Floats) -> tuple[Floats, Floats]:
        """A block's normalised interactions times a basis, and the scale of its users."""
        scale = (1 / np.sqrt(np.maximum(np.diff(block.indptr), 1))).astype(np.float32)
        pieces = [(start, min(block.n_users, start + GRAM_ROWS)) for start in range(0, block.n_users, GRAM_ROWS)]
        out = self._added(pieces, basis, block.indices, block.indptr, block.n_users, self._item_scale())
        out *= scale[:, None]
        return out, scale

    def _added(
        self,
        pieces: list[tuple[int, int]],
        table: Floats,
        entries: Codes,
        starts: Codes,
        n_rows: int,
        scale: Floats,
    ) -> Floats:
        """For each row of a matrix in tiles the sum over its entries e of scale_e table_e."""
        from truelike.engines.blocks.kernels import add_scaled

        width = table.shape[1]
        out = np.zeros((n_rows, width), dtype=np.float32)
        given = (n_rows, out.reshape(-1), width, table.reshape(-1), entries, starts, scale)
        for_each(lambda piece: add_scaled(*piece, *given), pieces, self.share.n_jobs)
        return out

    @cached_property
    def _pieces(self) -> list[tuple[int, int]]:
        """The items, cut into PIECES with about as many interactions each."""
        edges = np.linspace(0, self.share.blocks.n_interactions, PIECES + 1)
        bounds = np.searchsorted(np.cumsum(self.share.blocks.popularity()), edges)
        bounds[0], bounds[-1] = 0, self.share.blocks.n_items
        return [(int(a), int(b)) for a, b in pairwise(bounds) if a < b]

    def _item_scale(self) -> Floats:
        return (1 / np.sqrt(np.maximum(self.share.blocks.popularity(), 1))).astype(np.float32)


class BlockAlternatingEngine(BlockEngine[AlternatingWorker]):
    """Alternating least squares on blocks.

    `weights` and `solver`, which must be "cg", are those of `AlternatingEngine`. The first epoch starts at the spectrum
    of the interactions with the seed `spectral_seed` (see `spectral`); None: at the tables as they are.
    """

    def __init__(
        self,
        train: Blocks,
        tables: Tables,
        weights: Weights,
        solver: Solver,
        counting: Counting,
        *,
        spectral_seed: int | None,
        cluster: Cluster | None,
        n_jobs: int | None,
    ) -> None:
        check_solver(solver.method, train)
        make = partial(
            AlternatingWorker, weights=weights, solver=solver, counting=counting, factors=tables.factors
        )
        super().__init__(train, tables, make, cluster=cluster, n_jobs=n_jobs)
        self.weights, self.solver, self.counting = weights, solver, counting
        self.ridge = weights.ridges(train.popularity(), train.n_users)
        self.spectral_seed = spectral_seed
        self._scale: float | None = None  # of how much interactions count: their mean is 1
        self._loss = float("nan")

    def run_epoch(self, number: int, progress: Callable[[int], None] | None) -> None:
        """Solve the users' rows, then the items' rows."""
        items, beyond = self.tables.items, self.solver.beyond(number)
        with one_blas_thread():
            if number == 0 and self.spectral_seed is not None:
                self._start_at_spectrum(self.spectral_seed)
            if self.counting.differs and self._scale is None:
                self._scale = self.train.n_interactions / self.workers.sum(AlternatingWorker.weight_sum)
            gram = weighted_gram(items, self.weights.unobserved, self.n_jobs)
            solved = self.workers.call(AlternatingWorker.solve_users, items, gram, beyond, self._scale)
            if progress is not None:
                progress(self.train.n_interactions // 2)
            by_block = [each for worker in solved for each in worker]
            user_gram = self.weights.unobserved * sum(each for each, _ in by_block)
            terms = self._solve_items(user_gram.astype(np.float32), beyond)
        self._loss = (terms + sum(ridge for _, ridge in by_block)) / self.train.n_interactions

    def _start_at_spectrum(self, seed: int) -> None:
        """Set V as `spectral.set_items` does, by products that are sums over blocks."""
        n_items = self.train.n_items
        n = min(self.tables.factors, self.train.n_users, n_items)
        width = min(n + spectral.OVERSAMPLING, self.train.n_users, n_items)
        basis = spectral.random_signs(n_items, width, seed)
        for _ in range(spectral.ITERATIONS):
            found = self.workers.sum(AlternatingWorker.spectrum, basis)
            basis = np.ascontiguousarray(spectral.orthonormal(found))
        values, rotation = spectral.leading(self.workers.sum(AlternatingWorker.projected_gram, basis), n)
        spectral.start_at(self.tables, self.train, self.weights.unobserved, values, basis @ rotation)

    def _solve_items(self, gram: Floats, beyond: float) -> float:
        """Do some steps of conjugate gradients for all items' rows. Return the objective's terms of the items."""
        x, ridge = self.tables.items, self.ridge[:, None]
        x[self.train.popularity() == 0] = 0.0
        old = x.copy()
        found = self.workers.sum(AlternatingWorker.products, x, 1.0, -1.0, self._scale)
        r, terms, kept = found.rows, found.squares, 1.0 - beyond * beyond

        def begin(at: slice) -> float:
            product = x[at] @ gram + ridge[at] * x[at]
            r[at] -= product
            return float(np.einsum("nk,nk->", x[at], product, dtype=np.float64))

        terms += sum(self._in_pieces(begin))
        p, squares = r.copy(), _dots(r, r)
        for _ in range(self.solver.cg_steps):
            q = self.workers.sum(AlternatingWorker.products, p, 0.0, 1.0, self._scale).rows

            def step(at: slice, q: Floats = q) -> float:
                q[at] += p[at] @ gram + ridge[at] * p[at]
                curvature, before = _dots(p[at], q[at]), squares[at].copy()
                going = (before > 0) & (curvature > 0)  # the others are solved already
                alpha = np.divide(before, curvature, out=np.zeros_like(before), where=going)
                x[at] += alpha[:, None] * p[at]
                r[at] -= alpha[:, None] * q[at]
                squares[at] = np.where(going, _dots(r[at], r[at]), before)
                beta = np.divide(squares[at], before, out=np.zeros_like(before), where=going)
                p[at] = np.where(going[:, None], r[at] + beta[:, None] * p[at], p[at])
                return float(alpha.astype(np.float64) @ before)

            terms -= kept * sum(self._in_pieces(step))
        if beyond:
            x += np.float32(beyond) * (x - old)
        return float(terms)

    def _in_pieces(self, work: Callable[[slice], float]) -> list[float]:
        """The results of `work` on fixed ranges of items."""
        ranges = [slice(start, start + GRAM_ROWS) for start in range(0, self.train.n_items, GRAM_ROWS)]
        return for_each(work, ranges, self.n_jobs)

    def loss(self) -> float:
        """Return the objective after the last epoch, per interaction."""
        return self._loss


def _dots(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.einsum("nk,nk->n", a, b), dtype=np.float32)


def check_solver(method: str, train: Blocks) -> None:
    """Raise if the equations of the items cannot be solved block by block."""
    if method != "cg":
        raise ParameterError(
            f"solver is {method!r}, which needs all interactions of an item at once, and {train!r} has them in several "
            'blocks. Use solver="cg", or one block.'
        )
