"""The engine of lists: listwise objectives on a positive and its sampled negatives.

A list is a positive and n negatives of its user. The positives that a user has in a batch share their negatives, so
the score of a negative is computed once for all of them, and no negative is a positive of the user. The objective
turns the scores of a list into steps. A score function maps rows, and gradients back.

A batch is cut into pieces, which depend only on its lists. One thread works on a piece, and sums have a fixed order.
So the result is the same on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.arrays import Codes, Doubles, Floats
from truelike.core.memory import check_memory
from truelike.core.parallel import Team, one_blas_thread
from truelike.core.parallel import threads as thread_count
from truelike.data.dataset import Dataset
from truelike.engines.engine import ArrayEngine
from truelike.engines.exact.adam import OptimizedTable
from truelike.engines.lists.correction import Correction
from truelike.engines.score_functions import Dot, ScoreFunction
from truelike.engines.sgd.samples import BLOCK_SIZE, LEAST_BLOCKS, Samples, SGDSettings
from truelike.engines.tables import Tables
from truelike.errors import ParameterError
from truelike.negatives import Negatives, check_choice
from truelike.objectives import Listwise

PIECE = 1 << 19  # numbers of the rows of negatives, or of the scores, in a piece
COLUMNS = 32  # of the gradient of the items that are computed at once
ROWS = 512  # that are updated at once
BUFFERS = 5  # numbers that are kept for a negative


@dataclass(frozen=True)
class ListSettings:
    """The settings of the engine of lists.

    Attributes
    ----------
    learning_rate, epochs
        Epoch e (from 0) runs at learning_rate x (1 - e / epochs). The rate of a row is divided by the square root of
        the number of its updates in an epoch.
    regularization, frequency_power
        The L2 of the row of a user, and of an item, as in the exact engine.
    n_negatives
        Negatives in a list.
    batch_size
        Positives in a batch.
    """

    learning_rate: float
    epochs: int
    regularization: float
    frequency_power: float
    n_negatives: int
    batch_size: int

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch. Epochs beyond the last run at the rate of the last."""
        epochs = max(1, self.epochs)
        return self.learning_rate * max(1 - epoch / epochs, 1 / epochs)

    def sampling(self) -> SGDSettings:
        """Return what samples are drawn by."""
        return SGDSettings(
            self.learning_rate, 1.0, self.regularization, 0.0, "epoch", self.n_negatives, self.batch_size, "blocks"
        )


class Batch(NamedTuple):
    """Lists of some users: the positives of user n are at starts[n] ... starts[n + 1] - 1.

    Items are places among the touched items; a row of `negatives` is shared by the positives of a user. `numbers` are
    those of `Negatives.priority`, if there is a choice.
    """

    users: Codes
    starts: NDArray[np.int64]
    touched: Codes
    positives: Codes
    negatives: Codes
    numbers: Floats | None


class ListEngine(ArrayEngine):
    """Trains factor tables in place, an epoch at a time. The rows are those of a score function.

    `correction` is subtracted from the scores of negatives; None: nothing is. An epoch depends only on the seed and its
    number.
    """

    def __init__(
        self,
        train: Dataset,
        tables: Tables,
        objective: type[Listwise],
        negatives: Negatives,
        settings: ListSettings,
        *,
        score: ScoreFunction,
        correction: Correction | None,
        seed: int,
        n_jobs: int | None = -1,
    ) -> None:
        check_choice(negatives, np.asarray)
        n, size = settings.n_negatives, min(settings.batch_size, train.n_interactions)
        check_memory(
            4 * size * (BUFFERS * n * negatives.draws + 4 * tables.factors),
            f"a batch of {size:,} positives with {n:,} negatives each",
            "Use a smaller batch_size, or fewer negatives (n_negatives).",
        )
        self.train, self.tables, self.objective, self.settings = train, tables, objective, settings
        self.negatives, self.score, self.correction = negatives, score, correction
        self.seed, self.threads = seed, thread_count(n_jobs)
        self.samples = Samples(train, negatives, settings.sampling(), seed)
        n_batches = -(-train.n_interactions // settings.batch_size)
        n_u, n_i = train.interactions_per_user(), train.popularity()
        # the number of updates in an epoch: of the batches that have one of the user's blocks, or draw the item
        blocks = _touched(n_batches, np.maximum(-(-n_u // BLOCK_SIZE), np.minimum(n_u, LEAST_BLOCKS)))
        drawn = _touched(n_batches, n_i + negatives.shares(n_i) * n * blocks.sum())
        strength, nu = settings.regularization, settings.frequency_power
        user_l2 = strength * (n_u / n_u.mean()) ** nu
        item_l2 = strength * (train.n_users / train.n_items) * ((n_i + 1) / n_i.mean()) ** nu
        self.users = self._optimized(tables.user_factors, user_l2, blocks)
        self.items = self._optimized(tables.item_factors, item_l2, drawn)
        bias = np.zeros(train.n_items, np.float32) if tables.item_bias is None else tables.item_bias
        no_l2 = np.zeros(train.n_items, dtype=np.float32)
        self.bias = _Rows(OptimizedTable(bias[:, None].copy(), no_l2), Dot(), self.items.updates)
        self._place = np.zeros(train.n_items, dtype=np.int32)
        self._write_back()

    def _optimized(self, table: Floats, l2: Doubles, updates: Doubles) -> _Rows:
        rows = np.ascontiguousarray(self.score.rows(np.array(table)), dtype=np.float32)
        return _Rows(OptimizedTable(rows, l2.astype(np.float32)), self.score, updates.astype(np.float32))

    # --- an epoch -------------------------------------------------------------------------------

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Train on all positives once."""
        n, size = self.train.n_interactions, self.settings.batch_size
        quiet = np.errstate(over="ignore", invalid="ignore")  # divergence is checked at the end of the epoch
        with one_blas_thread(), quiet, Team(self.threads) as self._team:
            for start in range(0, n, size):
                stop = min(n, start + size)
                self._train(self.samples.entries(number, start, stop), number)
                if progress is not None:
                    progress(stop)
        self._write_back()

    def _train(self, entries: Codes, epoch: int) -> None:
        """Update the rows of the users and items of a batch by its gradients."""
        batch = self._batch(entries, epoch)
        rows, bias = self.items.table[batch.touched], self.bias.table[batch.touched, 0]
        found = self._team.map(lambda piece: self._piece(batch, rows, bias, piece), self._pieces(batch))
        gradient, of_positives, of_negatives = (np.concatenate(parts) for parts in zip(*found, strict=True))
        U, rate = self.users.table[batch.users], self.settings.rate(epoch)
        n, shape = batch.negatives.shape[1], (len(batch.users), len(batch.touched))
        row_starts = np.arange(0, batch.negatives.size + 1, n)
        steps = [
            sparse.csr_array((of_positives, batch.positives, batch.starts), shape=shape).T,
            sparse.csr_array((of_negatives.reshape(-1), batch.negatives.reshape(-1), row_starts), shape=shape).T,
        ]

        def columns(start: int) -> Floats:
            part = np.ascontiguousarray(U[:, start : start + COLUMNS])
            return np.asarray(steps[0] @ part + steps[1] @ part)

        of_items = np.concatenate(self._team.map(columns, range(0, U.shape[1], COLUMNS)), axis=1)
        updates = [(self.items, batch.touched, of_items), (self.users, batch.users, gradient)]
        if self.tables.item_bias is not None:
            of_bias = sum(each @ np.ones((len(batch.users), 1), dtype=np.float32) for each in steps)
            updates.append((self.bias, batch.touched, of_bias))
        pieces = [
            (table, chosen[start : start + ROWS], each[start : start + ROWS])
            for table, chosen, each in updates
            for start in range(0, len(chosen), ROWS)
        ]
        self._team.map(lambda piece: piece[0].update(*piece[1:], rate), pieces)

    def _batch(self, entries: Codes, epoch: int) -> Batch:
        """Return the lists of some positives; those of a user are adjacent."""
        users, positives = self.samples.source.users[entries], self.samples.source.items[entries]
        first, key = np.flatnonzero(np.diff(users, prepend=-1)), self.samples.key(epoch)
        parts = self._team.map(
            lambda start: self.samples.draw(key, entries[first[start : start + ROWS]]), range(0, len(first), ROWS)
        )
        negatives = np.concatenate(parts)
        chosen = np.zeros(self.train.n_items, dtype=bool)
        chosen[positives] = True
        chosen[negatives] = True
        touched = np.flatnonzero(chosen).astype(np.int32)
        self._place[touched] = np.arange(len(touched), dtype=np.int32)
        starts = np.append(first, len(entries))
        numbers = None
        if self.negatives.draws > 1:
            numbers = self.samples.numbers(self.samples.choice_key(epoch), entries[first])
        return Batch(users[first], starts, touched, self._place[positives], self._place[negatives], numbers)

    def _pieces(self, batch: Batch) -> list[slice]:
        """Cut the users of a batch so that no piece has many numbers."""
        width, n = self.users.table.shape[1], 1 + batch.negatives.shape[1]
        cost = np.cumsum(n * (width + 4 * np.diff(batch.starts)))
        number = cost // PIECE
        bounds = np.concatenate([[0], np.flatnonzero(np.diff(number)) + 1, [len(batch.users)]])
        return [slice(int(a), int(b)) for a, b in pairwise(bounds)]

    def _piece(self, batch: Batch, rows: Floats, bias: Floats, piece: slice) -> tuple[Floats, Floats, Floats]:
        """Return the gradients of some users' rows, and the steps of their positives and of their negatives.

        The steps of a negative are summed over the positives that share it. Of several candidates only the chosen one
        has a step.
        """
        starts = batch.starts[piece.start : piece.stop + 1]
        lists = slice(starts[0], starts[-1])
        places, owner = starts[:-1] - starts[0], np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        U, users = self.users.table[batch.users[piece]], batch.users[piece]
        negatives, positives = batch.negatives[piece], batch.positives[lists]
        V, own = rows[negatives], rows[positives]
        r_i = np.einsum("nk,nk->n", own, U[owner]) + bias[positives]
        r_j = (np.matmul(V, U[:, :, None])[:, :, 0] + bias[negatives])[owner]
        best = self._best(r_i, r_j, None if batch.numbers is None else batch.numbers[piece][owner])
        if self.correction is not None:
            r_j -= self.correction.of_pairs(users, batch.touched[negatives])[owner]
        steps = list_steps(self.objective, np.column_stack([r_i, np.take_along_axis(r_j, best, 1)]))
        of_candidates = np.zeros_like(r_j)
        np.put_along_axis(of_candidates, best, steps[:, 1:], 1)
        of_negatives = np.add.reduceat(of_candidates, places, axis=0)
        gradient = np.matmul(of_negatives[:, None, :], V)[:, 0]
        gradient += np.add.reduceat(steps[:, :1] * own, places, axis=0)
        return gradient, steps[:, 0], of_negatives

    def _best(self, r_i: Floats, r_j: Floats, u: Floats | None) -> NDArray[np.intp]:
        """Return the place of the chosen candidate of each negative of some lists."""
        shape = (len(r_j), self.settings.n_negatives, self.negatives.draws)
        first = np.arange(0, r_j.shape[1], self.negatives.draws)
        if u is None:
            return np.tile(first, (len(r_j), 1))
        priority = self.negatives.priority(r_i[:, None, None], r_j.reshape(shape), u.reshape(shape))
        return np.asarray(first + np.asarray(priority).argmax(axis=2))

    # --- loss and state -------------------------------------------------------------------------

    def _write_back(self) -> None:
        self.tables.user_factors[:], self.tables.item_factors[:] = self.users.table, self.items.table
        if self.tables.item_bias is not None:
            self.tables.item_bias[:] = self.bias.table[:, 0]

    def loss(self) -> float:
        """Return minus the mean likelihood of a fixed sample of lists."""
        users, items, negatives = self.samples.loss_samples
        lists = np.column_stack([items, negatives])
        r = np.einsum("nk,nmk->nm", self.users.table[users], self.items.table[lists]) + self.bias.table[lists, 0]
        if self.correction is not None:
            r[:, 1:] -= self.correction.of_pairs(users, negatives)
        return list_loss(self.objective, r.astype(np.float64))

    def state(self) -> dict[str, Any]:
        """Return the arrays from which training can resume."""
        parts = {"users": self.users, "items": self.items, "bias": self.bias}
        moments = {f"{part}.{name}": each for part, rows in parts.items() for name, each in rows.state().items()}
        return {**self.tables.arrays(), **moments}


class _Rows:
    """The rows of one side, and how often each is updated in an epoch."""

    def __init__(self, optimized: OptimizedTable, score: ScoreFunction, updates: Floats) -> None:
        self.optimized, self.score, self.updates = optimized, score, updates
        self.table, self.state = optimized.table, optimized.state

    def update(self, chosen: Codes, gradient: Floats, rate: float) -> None:
        """Update some rows by the gradient of the mapped rows, and map them."""
        share = np.asarray(1 / self.updates[chosen], dtype=np.float32)
        raw = np.ascontiguousarray(self.score.gradient(self.table[chosen], gradient), dtype=np.float32)
        self.optimized.update(chosen, raw, share, np.sqrt(share) * np.float32(rate))
        self.table[chosen] = self.score.rows(self.table[chosen])


def _touched(n_batches: int, events: NDArray[Any]) -> Doubles:
    """The mean number of batches that have at least one of some events, and at least 1."""
    return np.asarray(np.maximum(1.0, n_batches * -np.expm1(-events / n_batches)))


def list_steps(objective: type[Listwise], r: NDArray[Any]) -> NDArray[Any]:
    """Return the steps of rows of (a positive, its negatives)."""
    steps = np.asarray(objective.steps(r, _observed(r)))
    if steps.shape != r.shape:
        raise ParameterError(
            f"{objective.__name__}.steps returned an array of shape {steps.shape}; it must return one step for each "
            f"score, an array of shape {r.shape}"
        )
    return steps


def list_loss(objective: type[Listwise], r: Doubles) -> float:
    """Return minus the mean likelihood of rows of (a positive, its negatives); NaN if the objective has none."""
    try:
        return -float(np.mean(objective.likelihood(r, _observed(r))))
    except NotImplementedError:
        return float("nan")


def _observed(r: NDArray[Any]) -> NDArray[Any]:
    observed = np.zeros_like(r)
    observed[:, 0] = 1.0
    return observed
