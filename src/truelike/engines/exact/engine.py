"""The exact engine: training on all items of each user instead of sampled negatives, by dense matrix products.

The paper's likelihood (Equations 4 to 6) is a sum over all items; sampling approximates it. Here a batch is a set
of users B. The scores of all items are R = U_B V^T, the objective turns them into steps S, and the gradients are
S V for the users and S^T U_B for the items. A batch has all items, or a weighted sample of them (`items`).

The items of a batch are divided into tiles, which depend only on their number. One thread works on a tile, BLAS runs on
that thread alone, and sums over tiles are taken in a fixed order. So the result is the same on any number of
threads.

The steps of pointwise objectives and of the softmax are compiled. Those of any other listwise objective are
computed by its own `steps`, in NumPy, on the users' whole rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.core.arrays import Codes, Floats
from truelike.core.parallel import Team, one_blas_thread
from truelike.core.parallel import threads as thread_count
from truelike.data.dataset import Dataset
from truelike.engines.engine import ArrayEngine
from truelike.engines.exact import kernels
from truelike.engines.exact.adam import DotProduct, OptimizedTable
from truelike.engines.exact.fixed import FixedFlips
from truelike.engines.exact.items import AllItems, BatchItems, SampledItems
from truelike.engines.exact.kernels import Positives, compiled
from truelike.engines.tables import Tables
from truelike.errors import ParameterError
from truelike.objectives import Listwise, Objective, Pointwise, Softmax
from truelike.objectives.compiler import compiled_steps

MIN_TILE = 512  # items in a tile
MAX_TILES = 64
MAX_BLOCK_BYTES = 256 * 2**20  # bytes of the scores and steps of a block of users
LISTWISE_USERS = 16  # users per call of `steps` of a listwise objective
LOSS_USERS = 200  # users on whom the loss is measured


@dataclass(frozen=True)
class ExactSettings:
    """The settings of the exact engine.

    Attributes
    ----------
    learning_rate, epochs
        Epoch e (from 0) runs at learning_rate x (1 - e / epochs) for the users, which are updated once per epoch. The
        rate of an item is divided by the square root of the number of its updates in an epoch.
    regularization, flip_regularization, frequency_power
        The L2 of a user's row is regularization x (n_u / mean n_u)^frequency_power. That of an item's row is the
        same with its popularity, times n_users / n_items, so that users and items are regularized alike in
        proportion to their interactions.
    unobserved_weight
        The weight of an unobserved item; a positive has weight 1. Listwise objectives do not use it.
    batch_size, item_share
        Users per batch, and the probability of an item to be part of one in which it is no positive.
    """

    learning_rate: float
    epochs: int
    regularization: float
    flip_regularization: float
    frequency_power: float
    unobserved_weight: float
    batch_size: int
    item_share: float

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch. Epochs beyond the last run at the rate of the last."""
        return self.learning_rate * max(1 - epoch / self.epochs, 1 / self.epochs)


class ExactEngine(ArrayEngine):
    """Trains factor tables in place, an epoch at a time, on all items of each user.

    The seed determines the order of the users. The number of threads does not change the result. `flips` are the flip
    logits, where they are not learned; None: learned if the tables have flip factors, else 0. `interaction_weights` is
    how much each interaction counts, in the order of `train.matrix`; None: all the same.
    """

    def __init__(
        self,
        train: Dataset,
        tables: Tables,
        objective: type[Objective],
        settings: ExactSettings,
        *,
        seed: int,
        n_jobs: int | None = -1,
        flips: FixedFlips | None = None,
        interaction_weights: Floats | None = None,
    ) -> None:
        if not issubclass(objective, Pointwise | Listwise):
            raise ParameterError(f"the objective {objective.__name__} is neither pointwise nor listwise")
        self.train, self.tables, self.objective, self.settings = train, tables, objective, settings
        self.seed, self.threads = seed, thread_count(n_jobs)
        if interaction_weights is not None and self._is_custom_listwise:
            raise ParameterError(
                f"the listwise objective {objective.__name__} does not use weights of interactions"
            )
        size, share, weights = settings.batch_size, settings.item_share, interaction_weights
        self.choice: AllItems | SampledItems = AllItems(train, size, weights)
        if share < 1 and not self._is_custom_listwise:
            self.choice = SampledItems(train, size, share, seed, weights)
        # a positive counts by its weight
        self._n_u = np.bincount(train.entry_users, weights, train.n_users).astype(np.float32)
        self.components: list[DotProduct | FixedFlips]
        self.largest = self.choice.largest()  # number of items of a batch
        n_arrays = 1 + (flips is not None or tables.flip_factors > 0)
        if self._is_custom_listwise:
            n_arrays += 3  # whole rows of scores and of `observed`, and a temporary of the objective
        fitting = MAX_BLOCK_BYTES // (4 * self.largest * n_arrays)
        self.block_size = int(max(1, min(settings.batch_size, fitting, train.n_users)))
        strengths = (settings.regularization, settings.flip_regularization)
        parts = zip(self._parts()[: 1 + (tables.flip_factors > 0)], strengths, strict=False)
        learned = [self._dot_product(*part, strength) for part, strength in parts]
        self.preference = learned[0]
        self.components = [self.preference, *(learned[1:] if flips is None else [flips])]
        self._row_max, self._sums = np.empty((2, MAX_TILES, self.block_size), dtype=np.float32)
        n_whole_rows = self.block_size if self._is_custom_listwise else 0
        self._whole_rows = np.empty((n_whole_rows, train.n_items), dtype=np.float32)

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Train on all users once."""
        n, size = self.train.n_users, self.settings.batch_size
        key = randomness.key(self.seed, "users", number)
        order = np.argsort(randomness.bits(key, np.arange(n)), kind="stable").astype(np.int32)
        positives = np.cumsum(self.train.interactions_per_user()[order])
        quiet = np.errstate(over="ignore", invalid="ignore")  # divergence is checked at the end of the epoch
        with one_blas_thread(), quiet, Team(self.threads) as self._team:
            for batch, start in enumerate(range(0, n, size)):
                users = np.sort(order[start : start + size])
                self._batch(users, self.choice.batch(users, number, batch), self.settings.rate(number))
                if progress is not None:
                    progress(int(positives[min(start + size, n) - 1]))
        self._write_back()

    def _batch(self, users: Codes, items: BatchItems, rate: float) -> None:
        """Update the rows of some users and of the items of the batch by the gradients of these users."""
        self.items, self.tiles = items, tiles(len(items))
        for component in self.components:
            component.select(items.rows)
        gradients: list[list[Floats]] = [[] for _ in self.components]
        for start in range(0, len(users), self.block_size):
            block = slice(start, min(start + self.block_size, len(users)))
            found = self._block_gradients(users[block], block, first=start == 0)
            for of_blocks, of_block in zip(gradients, found, strict=True):
                of_blocks.append(of_block)
        item_rate = np.float32(rate) * items.rate
        self._map_tiles(lambda t, tile: self._update_items(tile, item_rate))
        for component, of_blocks in zip(self.components, gradients, strict=True):
            component.update_users(users, np.concatenate(of_blocks), rate)

    def _block_gradients(self, users: Codes, block: slice, *, first: bool) -> list[Floats]:
        """Return the gradients of a block of the users of the batch, for each component, which stores the items'."""
        rows = [component.user_rows(users) for component in self.components]
        steps_of_tile = self._prepare_steps(users, block, rows)

        def work(t: int, tile: slice) -> list[Floats]:
            steps = zip(self.components, rows, steps_of_tile(t), strict=True)
            return [
                component.gradients(tile, each, sums, user_rows, first=first)
                for component, user_rows, (each, sums) in steps
            ]

        # summed in the order of the tiles, whichever thread was first
        return [reduce(np.add, of_tiles) for of_tiles in zip(*self._map_tiles(work), strict=True)]

    def _map_tiles(self, work: Callable[[int, slice], Any]) -> list[Any]:
        """Call a function of each tile's number and slice, on all threads."""
        return self._team.map(lambda t: work(t, self.tiles[t]), range(len(self.tiles)))

    def _update_items(self, tile: slice, rate: Floats) -> None:
        for component in self.components:
            component.update_items(tile, self.items.rows, self.items.l2_part, rate)

    # --- from scores to steps -----------------------------------------------------------------------

    @property
    def _is_custom_listwise(self) -> bool:
        """Whether the objective is listwise, but not the softmax, which has compiled loops of its own."""
        return issubclass(self.objective, Listwise) and self.objective.steps is not Softmax.steps

    def _prepare_steps(
        self, users: Codes, block: slice, rows: list[Floats]
    ) -> Callable[[int], list[tuple[Floats, Floats]]]:
        """Do what needs the whole rows of a block, and return a function that computes the steps of tile t.

        The function returns the steps of r, and of g if it is learned, each with its sums over the users.
        """
        if issubclass(self.objective, Pointwise):
            return lambda t: self._pointwise_steps(t, block, rows)
        if self._is_custom_listwise:
            self._listwise_rows(users, rows[0])
            return lambda t: self._listwise_steps(t, users)
        scale = self._softmax_scale(users, block, rows[0])
        return lambda t: self._softmax_steps(t, block, scale)

    def _positives(self, block: slice) -> Positives:
        """The positives of a block of the users of the batch."""
        return self.items.positives._replace(users=self.items.positives.users[block])

    def _biases(self, tile: slice) -> Floats:
        return np.ascontiguousarray(self.preference.row_biases[tile])

    def _pointwise_steps(self, t: int, block: slice, rows: list[Floats]) -> list[tuple[Floats, Floats]]:
        tile = self.tiles[t]
        r = self.preference.scores(tile, rows[0])
        g = r[:0]
        if len(self.components) > 1:
            g = self.components[1].scores(tile, rows[1])
            g += self.components[1].row_biases[tile]
        sums = np.empty((2, r.shape[1]), dtype=np.float32)
        weights = np.float32(self.settings.unobserved_weight) * self.items.weights[tile]
        steps = compiled_steps(self.objective)  # type: ignore[arg-type]
        compiled(kernels.pointwise)(
            r, g, self._biases(tile), weights, self._positives(block), tile.start, *steps, sums
        )
        return [(r, sums[0]), (g, sums[1])][: len(self.components)]

    def _softmax_scale(self, users: Codes, block: slice, rows: Floats) -> Floats:
        """Leave the exp of the scores in the buffer, and return their factors for each tile to get n_u p_ui."""
        n = len(users)

        def work(t: int, tile: slice) -> None:
            r = self.preference.scores(tile, rows)
            compiled(kernels.subtract_row_max)(
                r,
                self._biases(tile),
                self.items.weights[tile],
                self._positives(block),
                tile.start,
                self._row_max[t, :n],
            )
            np.exp(r, out=r)
            r.sum(axis=1, out=self._sums[t, :n])

        self._map_tiles(work)
        row_max, sums = self._row_max[: len(self.tiles), :n], self._sums[: len(self.tiles), :n]
        scale = np.exp(row_max - row_max.max(axis=0))
        return np.asarray(scale * (self._n_u[users] / (scale * sums).sum(axis=0)), dtype=np.float32)

    def _softmax_steps(self, t: int, block: slice, scale: Floats) -> list[tuple[Floats, Floats]]:
        tile = self.tiles[t]
        steps = self.preference.scores_of(tile, block.stop - block.start)
        sums = np.empty(tile.stop - tile.start, dtype=np.float32)
        compiled(kernels.softmax)(steps, scale[t], self._positives(block), tile.start, sums)
        return [(steps, sums)]

    def _listwise_rows(self, users: Codes, rows: Floats) -> None:
        """Compute the steps of a listwise objective in `_whole_rows`, by the objective's own function.

        The function is always called for the same groups of users, whatever the number of threads.
        """
        objective, r = self.objective, self._whole_rows[: len(users)]
        assert issubclass(objective, Listwise)
        positives = self.train.csr[users]
        observed = np.zeros(r.shape, dtype=np.float32)
        observed[np.repeat(np.arange(len(users)), np.diff(positives.indptr)), positives.indices] = 1.0

        def score(t: int, tile: slice) -> None:
            np.add(self.preference.scores(tile, rows), self.preference.row_biases[tile], out=r[:, tile])

        def step(start: int) -> None:
            group = slice(start, start + LISTWISE_USERS)
            with np.errstate(over="ignore", invalid="ignore"):
                steps = np.asarray(objective.steps(r[group], observed[group]))
            if steps.shape != r[group].shape:
                raise ParameterError(
                    f"{objective.__name__}.steps returned an array of shape {steps.shape}; it must return one "
                    f"step for each score, an array of shape {r[group].shape}"
                )
            r[group] = steps

        self._map_tiles(score)
        self._team.map(step, range(0, len(users), LISTWISE_USERS))

    def _listwise_steps(self, t: int, users: Codes) -> list[tuple[Floats, Floats]]:
        steps = self.preference.scores_of(self.tiles[t], len(users))
        steps[:] = self._whole_rows[: len(users), self.tiles[t]]
        return [(steps, steps.sum(axis=0))]

    # --- tables, state and loss ---------------------------------------------------------------------

    def _dot_product(self, users: Floats, items: Floats, bias: Floats | None, regularization: float) -> DotProduct:
        """Return contiguous copies of two tables and a bias, with the L2 of each row."""
        train = self.train
        nu = self.settings.frequency_power
        n_u, n_i = train.interactions_per_user(), train.popularity()
        user_l2 = regularization * (n_u / n_u.mean()) ** nu
        item_l2 = regularization * (train.n_users / train.n_items) * ((n_i + 1) / n_i.mean()) ** nu
        no_l2 = np.zeros(train.n_items, dtype=np.float32)
        return DotProduct(
            OptimizedTable(np.array(users, order="C"), user_l2.astype(np.float32)),
            OptimizedTable(np.array(items, order="C"), item_l2.astype(np.float32)),
            None if bias is None else OptimizedTable(bias[:, None].copy(), no_l2),
            np.empty(self.block_size * self.largest, dtype=np.float32),
            np.empty((self.largest, items.shape[1]), dtype=np.float32),
            np.empty((self.largest, 1), dtype=np.float32),
        )

    def _parts(self) -> list[tuple[Floats, Floats, Floats | None]]:
        tables = self.tables
        return [
            (tables.user_factors, tables.item_factors, tables.item_bias),
            (tables.user_flips, tables.item_flips, tables.flip_bias),
        ]

    def _write_back(self) -> None:
        """Copy the trained parameters to the tables."""
        for component, part in zip(self.components, self._parts(), strict=False):
            component.write_to(*part)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which training can resume."""
        named = zip(("preference", "flips"), self.components, strict=False)
        trained = {f"{name}.{part}": array for name, each in named for part, array in each.state().items()}
        return {**self.tables.arrays(), **trained}

    def loss(self) -> float:
        """Return minus the likelihood of all items of a fixed sample of users, per positive.

        NaN for an objective without likelihood functions.
        """
        with suppress(NotImplementedError):
            return self._loss()
        return float("nan")

    def _loss(self) -> float:
        train, tables = self.train, self.tables
        users = np.unique(np.linspace(0, train.n_users - 1, LOSS_USERS).astype(np.int32))
        users = users[train.interactions_per_user()[users] > 0]
        observed = train.csr[users].toarray() != 0
        r = (tables.user_factors[users] @ tables.item_factors.T).astype(np.float64)
        r += 0 if tables.item_bias is None else tables.item_bias
        if issubclass(self.objective, Listwise):
            likelihood = self.objective.likelihood(r, observed.astype(np.float64))
            return -float(np.sum(likelihood) / observed.sum())
        assert issubclass(self.objective, Pointwise)
        g = self.components[1].dense(users) if len(self.components) > 1 else np.zeros_like(r)
        positive = self.objective.likelihood_positive(r[observed], g[observed]).sum()
        negative = self.objective.likelihood_negative(r[~observed], g[~observed]).sum()
        return -float((positive + self.settings.unobserved_weight * negative) / observed.sum())


def tiles(n: int) -> list[slice]:
    """Divide n items into tiles.

    >>> tiles(1000)
    [slice(0, 512, None), slice(512, 1000, None)]
    """
    size = max(MIN_TILE, -(-n // MAX_TILES))
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
