"""The exact engine does what a few plain lines of NumPy say, bit by bit the same on any threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import truelike as tl
from truelike import randomness
from truelike.objectives import BPO, NBPO, Listwise, NBPOo, NBPOs, Softmax, shift_mc
from truelike.training import exact
from truelike.training.exact import ExactEngine, ExactRecipe
from truelike.training.impressions import KnownFlips
from truelike.training.tables import Tables

OBJECTIVES: list[Any] = [BPO, NBPO, NBPOs, NBPOo, shift_mc(0.3), Softmax]
PLAIN = ExactRecipe(
    learning_rate=0.1, decay=0.9, optimizer="adam", regularization=0.4, flip_regularization=0.9,
    frequency_power=0.5, unvoted_weight=0.3, batch_size=8,
)  # fmt: skip


def log_of(n_users: int = 30, n_items: int = 25, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    votes = rng.random((n_users, n_items)) < rng.uniform(0.03, 0.5, (n_users, 1))
    votes[np.arange(n_users), np.arange(n_users) % n_items] = True
    return tl.read(sparse.csr_array(votes.astype(np.float32)))


def fresh(log: Any, factors: int, flip_factors: int, biased: bool) -> Tables:
    tables = Tables.zeros(log.n_users, log.n_items, factors, flip_factors, biased=biased)
    tables.initialise("normal", 0.5, -1.0, 0)
    if tables.item_bias is not None:
        tables.item_bias[:] = np.linspace(-1, 1, log.n_items)
    return tables


def trained(log: Any, objective: Any, recipe: ExactRecipe = PLAIN, **how: Any) -> Tables:
    flips = how.get("flips")
    width = how.get("flip_factors", 3 if objective.uses_flips and flips is None else 0)
    tables = fresh(log, how.get("factors", 5), width, how.get("biased", True))
    engine = ExactEngine(log, tables, objective, recipe, seed=7, n_jobs=how.get("n_jobs", 1), flips=flips)
    for epoch in range(how.get("epochs", 2)):
        engine.epoch(epoch)
    return tables


class Adam:
    """As in the paper (Kingma and Ba, 2015), in float64, for rows that are moved now and then."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.m, self.s, self.t = np.zeros(table.shape), np.zeros(table.shape), np.zeros((len(table), 1))

    def move(self, rows: Any, slope: Any, rate: float, optimizer: str) -> None:
        if optimizer == "sgd":
            self.table[rows] += rate * slope
            return
        self.t[rows] += 1
        self.m[rows] = 0.9 * self.m[rows] + 0.1 * slope
        self.s[rows] = 0.99 * self.s[rows] + 0.01 * slope**2
        m, s = self.m[rows] / (1 - 0.9 ** self.t[rows]), self.s[rows] / (1 - 0.99 ** self.t[rows])
        self.table[rows] += rate * m / (np.sqrt(s) + 1e-8)


def reference(log: Any, objective: Any, recipe: ExactRecipe, epochs: int, start: Tables, flips: Any = None) -> Any:
    """Whole matrices, no blocks, no tiles."""
    voted = log.matrix.toarray() > 0
    n, m = voted.shape
    n_u, n_i = voted.sum(1), voted.sum(0)
    user_prior = (n_u / n_u.mean()) ** recipe.frequency_power
    item_prior = n / m * ((n_i + 1) / n_i.mean()) ** recipe.frequency_power
    U, V, P, Q = (
        Adam(np.array(table, dtype=np.float64))
        for table in (start.user_factors, start.item_factors, start.user_flips, start.item_flips)
    )
    b, c = (
        None if bias is None else Adam(bias[:, None].astype(np.float64))
        for bias in (start.item_bias, start.flip_bias)
    )
    batches = -(-n // recipe.batch_size)
    for epoch in range(epochs):
        rate = recipe.learning_rate * recipe.decay**epoch
        order = np.argsort(randomness.bits(randomness.key(7, "users", epoch), np.arange(n)), kind="stable")
        for first in range(0, n, recipe.batch_size):
            users = np.sort(order[first : first + recipe.batch_size])
            r = U.table[users] @ V.table.T + (0 if b is None else b.table.T)
            g = P.table[users] @ Q.table.T + (0 if c is None else c.table.T)
            if flips is not None:
                g = flips[users]
            y = voted[users]
            if issubclass(objective, Listwise):
                step, flip_step = objective.steps(r, y.astype(float)), np.zeros_like(r)
            else:
                up, down = objective.positive(r, g), objective.unvoted(r, g)
                step = np.where(y, up[0], recipe.unvoted_weight * down[0])
                flip_step = np.where(y, up[1], recipe.unvoted_weight * down[1])
            share, everything = len(users) / n, np.arange(m)
            lam, phi = recipe.regularization, recipe.flip_regularization
            item_rate = rate / batches**0.5
            users_slope = step @ V.table - lam * user_prior[users, None] * U.table[users]
            flips_slope = flip_step @ Q.table - phi * user_prior[users, None] * P.table[users]
            slopes = [
                (U, users, users_slope, rate),
                (P, users, flips_slope, rate),
                (V, everything, step.T @ U.table[users] - share * lam * item_prior[:, None] * V.table, item_rate),
                (
                    Q,
                    everything,
                    flip_step.T @ P.table[users] - share * phi * item_prior[:, None] * Q.table,
                    item_rate,
                ),
                (b, everything, step.sum(0)[:, None], item_rate),
                (c, everything, flip_step.sum(0)[:, None], item_rate),
            ]
            for table, rows, slope, speed in slopes:
                if table is not None and table.table.size:
                    table.move(rows, slope, speed, recipe.optimizer)
    return [None if x is None else x.table for x in (U, V, P, Q, b, c)]


def assert_like_reference(log: Any, objective: Any, recipe: ExactRecipe, **how: Any) -> None:
    found = trained(log, objective, recipe, **how)
    width = how.get("flip_factors", 3 if objective.uses_flips and how.get("flips") is None else 0)
    start = fresh(log, how.get("factors", 5), width, how.get("biased", True))
    known = None if how.get("flips") is None else how["flips"].of(np.arange(log.n_users, dtype=np.int32))
    U, V, P, Q, b, c = reference(log, objective, recipe, how.get("epochs", 2), start, known)
    for ours, theirs in ((found.user_factors, U), (found.item_factors, V), (found.user_flips, P)):
        assert_allclose(ours, theirs, atol=2e-4)
    if Q.size:
        assert_allclose(found.item_flips, Q, atol=2e-4)
    for bias, expected in ((found.item_bias, b), (found.flip_bias, c)):
        assert (bias is None) == (expected is None)
        if bias is not None:
            assert_allclose(bias, expected[:, 0], atol=2e-4)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
def test_every_objective_is_its_reference(objective: Any, optimizer: Any) -> None:
    rate = 0.1 if optimizer == "adam" else 0.01
    assert_like_reference(log_of(), objective, replace(PLAIN, optimizer=optimizer, learning_rate=rate))


@pytest.mark.parametrize(
    "change",
    [
        {"frequency_power": 0.0}, {"frequency_power": 1.3}, {"unvoted_weight": 1.0}, {"regularization": 0.0},
        {"batch_size": 1}, {"batch_size": 30}, {"batch_size": 1000}, {"decay": 1.0},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("objective", [NBPOo, Softmax], ids=lambda o: o.name)
def test_every_switch_is_its_reference(objective: Any, change: dict[str, Any]) -> None:
    assert_like_reference(log_of(), objective, replace(PLAIN, **change))


@pytest.mark.parametrize("objective", [BPO, NBPO, Softmax], ids=lambda o: o.name)
def test_without_biases_there_are_none(objective: Any) -> None:
    assert_like_reference(log_of(), objective, PLAIN, biased=False)


def test_without_flip_tables_g_is_zero() -> None:
    assert_like_reference(log_of(), NBPO, PLAIN, flip_factors=0)


@pytest.mark.parametrize("objective", [NBPOo, Softmax], ids=lambda o: o.name)
def test_blocks_and_tiles_give_the_same_numbers(objective: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "TILE", 7)
    monkeypatch.setattr(exact, "MEMORY", 4 * 25 * 2 * 3)  # three users at once
    assert_like_reference(log_of(), objective, PLAIN)


@pytest.mark.parametrize("objective", [BPO, NBPOo, Softmax], ids=lambda o: o.name)
def test_the_number_of_threads_never_shows(objective: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "TILE", 64)
    log = log_of(80, 500)
    recipe = replace(PLAIN, batch_size=32)
    one, *others = (trained(log, objective, recipe, n_jobs=n, factors=24).arrays() for n in (1, 2, 3, 8))
    for other in others:
        assert {name: table.tobytes() for name, table in other.items()} == {
            name: table.tobytes() for name, table in one.items()
        }


def test_many_items_are_cut_into_a_bounded_number_of_tiles_and_blocks_fit_the_memory() -> None:
    n_items = 100_000
    rows = [(u, i) for u in range(40) for i in range(u, n_items, 1_000)] + [(0, i) for i in range(n_items - 1)]
    log = tl.read([*rows, (1, n_items - 1)])
    tables = fresh(log, 4, 0, True)
    engine = ExactEngine(log, tables, Softmax, replace(PLAIN, batch_size=1_000_000), seed=0)
    assert len(engine.tiles) <= exact.TILES
    assert engine.tiles[-1].stop == log.n_items
    assert engine.users_at_once * log.n_items * 4 <= exact.MEMORY
    engine.epoch(0)
    assert np.isfinite(tables.largest())


@pytest.mark.parametrize("objective", [BPO, NBPOo, Softmax], ids=lambda o: o.name)
def test_the_loss_goes_down(objective: Any) -> None:
    log = log_of()
    tables = fresh(log, 5, 3 if objective.uses_flips else 0, True)
    engine = ExactEngine(log, tables, objective, PLAIN, seed=0)
    losses = [engine.loss()]
    for epoch in range(5):
        engine.epoch(epoch)
        losses.append(engine.loss())
    assert losses == sorted(losses, reverse=True)


def test_a_pair_that_was_never_shown_teaches_nothing_and_one_that_was_is_a_dislike() -> None:
    log = log_of()
    shown = sparse.csr_array(
        np.random.default_rng(1).integers(0, 3, (log.n_users, log.n_items)).astype(np.float32)
    )
    flips = KnownFlips.of_counts(shown, 0.2)
    assert_like_reference(log, NBPOo, replace(PLAIN, unvoted_weight=1.0), flips=flips)
    chance = 1 / (1 + np.exp(-flips.of(np.arange(log.n_users, dtype=np.int32)).astype(np.float64)))
    assert_allclose(chance, 0.2 ** shown.toarray(), atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_steps_of_the_softmax_are_the_slopes_of_its_likelihood(seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, voted = rng.normal(size=9), (rng.random(9) < 0.4).astype(float)
    slopes = [
        (Softmax.likelihood(r + e, voted) - Softmax.likelihood(r - e, voted)) / 2e-5 for e in 1e-5 * np.eye(9)
    ]
    assert_allclose(Softmax.steps(r, voted), slopes, atol=1e-8)


def test_the_softmax_of_tensors_is_that_of_arrays() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    r, voted = rng.normal(size=(3, 9)), (rng.random((3, 9)) < 0.4).astype(float)
    tensors = torch.tensor(r, requires_grad=True), torch.tensor(voted)
    assert_allclose(Softmax.steps(*tensors).detach(), Softmax.steps(r, voted))
    Softmax.likelihood(*tensors).sum().backward()
    assert_allclose(tensors[0].grad, Softmax.steps(r, voted), atol=1e-12)
