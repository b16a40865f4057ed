"""The exact engine: all unvoted items instead of a sample, by dense matrix products.

The paper's likelihood (Equations 4 to 6) runs over every item; drawing a few is a shortcut. Here a batch is some
users, and three products do the work: the scores of all items, R = U_B V^T; the objective turns them into steps S;
then the gradients S V of the users and S^T U_B of the items.

Items are cut into tiles, which depend on their number alone. A tile is one thread's work, BLAS runs on that
thread, and sums over tiles are taken in their order: the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from truelike import randomness
from truelike.data.dataset import Dataset
from truelike.objectives import Listwise, Objective, Pointwise
from truelike.parallel import one_blas_thread
from truelike.parallel import threads as thread_count
from truelike.training.blocks import compiled
from truelike.training.impressions import KnownFlips
from truelike.training.moving import Floats, Moving, Part, Rows
from truelike.training.sampled import compiled_steps
from truelike.training.tables import Tables
from truelike.training.trainer import ArrayEngine

TILE = 512  # items, at least; at most TILES of them
TILES = 64
MEMORY = 256 * 2**20  # bytes of scores and steps that are alive at once
LOSS_USERS = 200  # on whom the loss is measured


@dataclass(frozen=True)
class ExactRecipe:
    """The switches of the exact engine.

    Attributes
    ----------
    learning_rate, decay
        Epoch e (from 0) runs at learning_rate x decay^e for the users, who move once in it; for the items, which
        move at each of the batches, by the root of their number less.
    optimizer
        "adam", or plain "sgd".
    regularization, flip_regularization, frequency_power
        The L2 of a user's row is regularization x (n_u / mean n_u)^frequency_power, that of an item's row the same
        by its popularity, times users / items: so the two priors weigh alike on the votes that speak against them.
    unvoted_weight
        How much an unvoted item counts against a vote.
    batch_size
        Users between two steps.
    """

    learning_rate: float
    decay: float
    optimizer: Literal["adam", "sgd"]
    regularization: float
    flip_regularization: float
    frequency_power: float
    unvoted_weight: float
    batch_size: int

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch."""
        return self.learning_rate * self.decay**epoch


class ExactEngine(ArrayEngine):
    """Trains tables, an epoch at a time, on all items of every user."""

    def __init__(
        self,
        train: Dataset,
        tables: Tables,
        objective: type[Objective],
        recipe: ExactRecipe,
        *,
        seed: int,
        n_jobs: int | None = None,
        flips: KnownFlips | None = None,
    ) -> None:
        assert flips is None or flips.logits.shape == train.matrix.shape
        self.train, self.tables, self.objective, self.recipe = train, tables, objective, recipe
        self.seed, self.threads, self.flips = seed, thread_count(n_jobs), flips
        size = max(TILE, -(-train.n_items // TILES))
        self.tiles = [slice(a, min(a + size, train.n_items)) for a in range(0, train.n_items, size)]
        dense = 1 + (flips is not None or tables.flip_factors > 0)
        fitting = MEMORY // (4 * train.n_items * dense)
        self.users_at_once = int(max(1, min(recipe.batch_size, fitting, train.n_users)))
        self.preference = self._part(
            tables.user_factors, tables.item_factors, tables.item_bias, recipe.regularization
        )
        self.parts = [self.preference]
        if flips is None and tables.flip_factors:
            strength = recipe.flip_regularization
            self.parts.append(self._part(tables.user_flips, tables.item_flips, tables.flip_bias, strength))
        self._known = self._rooms() if flips is not None else []
        self._best, self._sums = np.empty((2, len(self.tiles), self.users_at_once), dtype=np.float32)

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Go once through all users."""
        n, size = self.train.n_users, self.recipe.batch_size
        key = randomness.key(self.seed, "users", number)
        order = np.argsort(randomness.bits(key, np.arange(n)), kind="stable").astype(np.int32)
        votes = np.cumsum(self.train.rows_per_user()[order])
        quiet = np.errstate(over="ignore", invalid="ignore")  # a run that diverges is noticed at the end
        with one_blas_thread(), quiet, ThreadPoolExecutor(self.threads) as pool:
            self._spread: Any = map if self.threads == 1 else pool.map
            for start in range(0, n, size):
                self._batch(np.sort(order[start : start + size]), self.recipe.rate(number))
                if progress is not None:
                    progress(int(votes[min(start + size, n) - 1]))
        self._write_back()

    def _batch(self, users: Rows, rate: float) -> None:
        """One step of everything, by the gradients of some users."""
        gradients: list[list[Floats]] = [[] for _ in self.parts]
        for start in range(0, len(users), self.users_at_once):
            block = users[start : start + self.users_at_once]
            for known, found in zip(gradients, self._block(block, fresh=start == 0), strict=True):
                known.append(found)
        # a user moves once in an epoch, an item at every batch: by less, for the two to learn alike
        item_rate = rate / (-(-self.train.n_users // self.recipe.batch_size)) ** 0.5
        self._each_tile(lambda t, tile: self._move_items(tile, len(users) / self.train.n_users, item_rate))
        for part, known in zip(self.parts, gradients, strict=True):
            part.users.move(users, np.concatenate(known), 1.0, rate)

    def _block(self, block: Rows, *, fresh: bool) -> list[Floats]:
        """The gradients of some users, for each part; those of the items are kept by the parts."""
        rows = [part.users.table[block] for part in self.parts]
        scale = self._softmax_scale(block, rows[0]) if issubclass(self.objective, Listwise) else None

        def work(t: int, tile: slice) -> list[Floats]:
            made = (
                self._softmax_steps(t, block, scale)
                if scale is not None
                else self._pointwise_steps(t, block, rows)
            )
            return [
                part.gradients(tile, steps, up, mine, fresh=fresh)
                for part, mine, (steps, up) in zip(self.parts, rows, made, strict=False)
            ]

        # summed in the order of the tiles, whichever thread was first
        return [reduce(np.add, found) for found in zip(*self._each_tile(work), strict=True)]

    def _each_tile(self, work: Callable[[int, slice], Any]) -> list[Any]:
        return list(self._spread(work, range(len(self.tiles)), self.tiles))

    def _move_items(self, tile: slice, share: float, rate: float) -> None:
        for part in self.parts:
            part.move_items(tile, share, rate)

    # --- scores become steps ------------------------------------------------------------------------

    def _pointwise_steps(self, t: int, block: Rows, rows: list[Floats]) -> list[tuple[Floats, Floats]]:
        """The steps of r, and of g where it is learned, each with its sums over the users."""
        tile, matrix = self.tiles[t], self.train.matrix
        n = tile.stop - tile.start
        r = self.preference.scores(t, tile, rows[0])
        g = r[:0]
        if self.flips is not None:
            g = self._known[t][: r.size].reshape(r.shape)
            self.flips.fill(g, block, tile.start)
        elif len(self.parts) > 1:
            g = self.parts[1].scores(t, tile, rows[1])
            g += self.parts[1].biases(tile)
        up, flip_up, some_r, some_g, no_g = np.empty((5, n), dtype=np.float32)
        compiled("pointwise")(
            r, g, self.preference.biases(tile), block, matrix.indptr, matrix.indices, tile.start,
            *compiled_steps(self.objective), np.float32(self.recipe.unvoted_weight),  # type: ignore[arg-type]
            some_r, some_g, no_g, up, flip_up,
        )  # fmt: skip
        return [(r, up), (g, flip_up)]

    def _softmax_scale(self, block: Rows, rows: Floats) -> Floats:
        """Leave exp of the scores in the tiles; what to multiply those of each tile by to get n_u p_ui."""

        def work(t: int, tile: slice) -> None:
            r = self.preference.scores(t, tile, rows)
            compiled("below_best")(r, self.preference.biases(tile), self._best[t, : len(block)])
            np.exp(r, out=r)
            r.sum(axis=1, out=self._sums[t, : len(block)])

        self._each_tile(work)
        best, sums = self._best[:, : len(block)], self._sums[:, : len(block)]
        share = np.exp(best - best.max(axis=0))
        votes = self.train.rows_per_user()[block].astype(np.float32)
        return np.asarray(share * (votes / (share * sums).sum(axis=0)), dtype=np.float32)

    def _softmax_steps(self, t: int, block: Rows, scale: Floats) -> list[tuple[Floats, Floats]]:
        tile, matrix = self.tiles[t], self.train.matrix
        n = tile.stop - tile.start
        steps, up = self.preference.room[t][: len(block) * n].reshape(len(block), n), np.empty(n, dtype=np.float32)
        compiled("softmax")(steps, scale[t], block, matrix.indptr, matrix.indices, tile.start, up)
        return [(steps, up)]

    # --- what it is made of, and what is told of it -------------------------------------------------

    def _part(self, users: Floats, items: Floats, bias: Floats | None, regularization: float) -> Part:
        """Copies of the tables that products run on, with the prior of each row."""
        log, adam = self.train, self.recipe.optimizer == "adam"
        nu = self.recipe.frequency_power
        n_u, n_i = log.rows_per_user(), log.popularity()
        user_prior = regularization * (n_u / n_u.mean()) ** nu
        item_prior = regularization * (log.n_users / log.n_items) * ((n_i + 1) / n_i.mean()) ** nu
        no_prior = np.zeros(log.n_items, dtype=np.float32)
        return Part(
            Moving(np.array(users, order="C"), user_prior.astype(np.float32), adam),
            Moving(np.array(items, order="C"), item_prior.astype(np.float32), adam),
            None if bias is None else Moving(bias[:, None].copy(), no_prior, adam),
            self._rooms(),
            np.empty_like(items, order="C"),
            np.empty((log.n_items, 1), dtype=np.float32),
        )

    def _rooms(self) -> list[Floats]:
        return [np.empty(self.users_at_once * (t.stop - t.start), dtype=np.float32) for t in self.tiles]

    def _write_back(self) -> None:
        tables = self.tables
        into = [(tables.user_factors, tables.item_factors, tables.item_bias)]
        into.append((tables.user_flips, tables.item_flips, tables.flip_bias))
        for part, (users, items, bias) in zip(self.parts, into, strict=False):
            users[:], items[:] = part.users.table, part.items.table
            if bias is not None and part.bias is not None:
                bias[:] = part.bias.table[:, 0]

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays that training goes on from."""
        parts = zip(("preference", "flips"), self.parts, strict=False)
        trained = {f"{name}.{what}": array for name, part in parts for what, array in part.state().items()}
        return {**self.tables.arrays(), **trained}

    def loss(self) -> float:
        """Minus the mean likelihood of some users' votes and unvoted items, always the same users.

        Not a number for an objective of the user's own that does not say what it maximises.
        """
        try:
            return self._loss()
        except NotImplementedError:
            return float("nan")

    def _loss(self) -> float:
        log, tables = self.train, self.tables
        users = np.unique(np.linspace(0, log.n_users - 1, LOSS_USERS).astype(np.int32))
        users = users[log.rows_per_user()[users] > 0]
        voted = log.matrix[users].toarray() != 0
        r = (tables.user_factors[users] @ tables.item_factors.T).astype(np.float64)
        r += 0 if tables.item_bias is None else tables.item_bias
        if issubclass(self.objective, Listwise):
            return -float(self.objective.likelihood(r, voted).sum() / voted.sum())
        assert issubclass(self.objective, Pointwise)
        g = np.zeros_like(r) if self.flips is None else self.flips.of(users)
        if self.flips is None and tables.flip_factors:
            g = tables.user_flips[users] @ tables.item_flips.T
            g = (g if tables.flip_bias is None else g + tables.flip_bias).astype(np.float64)
        positive = self.objective.likelihood_positive(r[voted], g[voted]).sum()
        unvoted = self.objective.likelihood_unvoted(r[~voted], g[~voted]).sum()
        return -float((positive + self.recipe.unvoted_weight * unvoted) / voted.sum())
