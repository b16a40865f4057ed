"""The exact engine equals a dense NumPy reference, with the same bits on any number of threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.engines.data import make_dataset

import truelike as tl
from truelike.core import randomness
from truelike.engines.exact import engine as exact
from truelike.engines.exact.engine import ExactEngine, ExactSettings
from truelike.engines.exact.fixed import FixedFlips
from truelike.engines.tables import Tables
from truelike.errors import ParameterError
from truelike.exposure.rates import ExposureRates
from truelike.objectives import BPO, BPR, NBPO, Listwise, NBPOo, NBPOs, Softmax, log, shift_mc, softmax


def tempered_softmax(temperature: float) -> Any:
    """Softmax of r / temperature: a listwise objective that is not in the library."""

    class TemperedSoftmax(Listwise):
        name = f"softmax at {temperature}"

        @staticmethod
        def steps(r: Any, observed: Any) -> Any:
            n_u = observed.sum(-1)[..., None]
            return (observed - n_u * softmax(r / temperature)) / temperature

        @staticmethod
        def likelihood(r: Any, observed: Any) -> Any:
            return (observed * log(softmax(r / temperature))).sum(-1)

    return TemperedSoftmax


class CentredSquares(Listwise):
    """The squared error of centred scores, without a likelihood."""

    name = "centred squares"

    @staticmethod
    def steps(r: Any, observed: Any) -> Any:
        error = observed - r
        return error - error.mean(-1)[..., None]


OBJECTIVES: list[Any] = [
    BPO, NBPO, NBPOs, NBPOo, shift_mc(0.3), Softmax, tempered_softmax(2.0), CentredSquares,
]  # fmt: skip
SETTINGS = ExactSettings(
    learning_rate=0.1, epochs=2, regularization=0.4, flip_regularization=0.9,
    frequency_power=0.5, unobserved_weight=0.3, batch_size=8, item_share=1.0,
)  # fmt: skip


def initial_tables(train: Any, factors: int, flip_factors: int, biased: bool) -> Tables:
    tables = Tables.zeros(train.n_users, train.n_items, factors, flip_factors, biased=biased)
    tables.initialise("normal", 0.5, -1.0, 0)
    if tables.item_bias is not None:
        tables.item_bias[:] = np.linspace(-1, 1, train.n_items)
    return tables


def trained(train: Any, objective: Any, settings: ExactSettings = SETTINGS, **options: Any) -> Tables:
    flips = options.get("flips")
    width = options.get("flip_factors", 3 if objective.uses_flips and flips is None else 0)
    tables = initial_tables(train, options.get("factors", 5), width, options.get("biased", True))
    engine = ExactEngine(
        train, tables, objective, settings, seed=7, n_jobs=options.get("n_jobs", 1), flips=flips,
        interaction_weights=options.get("weights"),
    )  # fmt: skip
    for epoch in range(options.get("epochs", 2)):
        engine.epoch(epoch)
    return tables


class Adam:
    """Adam as in its paper (Kingma and Ba, 2015), in float64, with a step count for each row."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.m, self.s, self.t = np.zeros(table.shape), np.zeros(table.shape), np.zeros((len(table), 1))

    def move(self, rows: Any, gradient: Any, rate: float) -> None:
        self.t[rows] += 1
        self.m[rows] = 0.9 * self.m[rows] + 0.1 * gradient
        self.s[rows] = 0.99 * self.s[rows] + 0.01 * gradient**2
        m, s = self.m[rows] / (1 - 0.9 ** self.t[rows]), self.s[rows] / (1 - 0.99 ** self.t[rows])
        self.table[rows] += rate * m / (np.sqrt(s) + 1e-8)


def reference(
    train: Any, objective: Any, settings: ExactSettings, epochs: int, start: Tables, flips: Any, weights: Any
) -> Any:
    """The same training on whole matrices in float64, without blocks and tiles."""
    observed = train.matrix.toarray() > 0
    counts = observed.astype(float)
    if weights is not None:
        counts[train.user_of_entry, train.matrix.indices] = weights
    n, m = observed.shape
    n_u, n_i = observed.sum(1), observed.sum(0)
    user_l2 = (n_u / n_u.mean()) ** settings.frequency_power
    item_l2 = n / m * ((n_i + 1) / n_i.mean()) ** settings.frequency_power
    U, V, P, Q = (
        Adam(np.array(table, dtype=np.float64))
        for table in (start.user_factors, start.item_factors, start.user_flips, start.item_flips)
    )
    b, c = (
        None if bias is None else Adam(bias[:, None].astype(np.float64))
        for bias in (start.item_bias, start.flip_bias)
    )
    batches = -(-n // settings.batch_size)
    for epoch in range(epochs):
        rate = settings.learning_rate * max(1 - epoch / settings.epochs, 1 / settings.epochs)
        order = np.argsort(randomness.bits(randomness.key(7, "users", epoch), np.arange(n)), kind="stable")
        for first in range(0, n, settings.batch_size):
            users = np.sort(order[first : first + settings.batch_size])
            r = U.table[users] @ V.table.T + (0 if b is None else b.table.T)
            g = P.table[users] @ Q.table.T + (0 if c is None else c.table.T)
            if flips is not None:
                g = flips[users]
            y, count = observed[users], counts[users]
            if issubclass(objective, Listwise):
                step, flip_step = objective.steps(r, count), np.zeros_like(r)
            else:
                up, down = objective.positive(r, g), objective.negative(r, g)
                step = np.where(y, count * up[0], settings.unobserved_weight * down[0])
                flip_step = np.where(y, count * up[1], settings.unobserved_weight * down[1])
            share, everything = len(users) / n, np.arange(m)
            lam, phi = settings.regularization, settings.flip_regularization
            item_rate = rate / batches**0.5
            user_gradient = step @ V.table - lam * user_l2[users, None] * U.table[users]
            flip_gradient = flip_step @ Q.table - phi * user_l2[users, None] * P.table[users]
            gradients = [
                (U, users, user_gradient, rate),
                (P, users, flip_gradient, rate),
                (V, everything, step.T @ U.table[users] - share * lam * item_l2[:, None] * V.table, item_rate),
                (
                    Q,
                    everything,
                    flip_step.T @ P.table[users] - share * phi * item_l2[:, None] * Q.table,
                    item_rate,
                ),
                (b, everything, step.sum(0)[:, None], item_rate),
                (c, everything, flip_step.sum(0)[:, None], item_rate),
            ]
            for table, rows, gradient, learning_rate in gradients:
                if table is not None and table.table.size:
                    table.move(rows, gradient, learning_rate)
    return [None if x is None else x.table for x in (U, V, P, Q, b, c)]


def assert_like_reference(train: Any, objective: Any, settings: ExactSettings, **options: Any) -> None:
    found = trained(train, objective, settings, **options)
    width = options.get("flip_factors", 3 if objective.uses_flips and options.get("flips") is None else 0)
    start = initial_tables(train, options.get("factors", 5), width, options.get("biased", True))
    known = (
        None if options.get("flips") is None else options["flips"].dense(np.arange(train.n_users, dtype=np.int32))
    )
    epochs, weights = options.get("epochs", 2), options.get("weights")
    U, V, P, Q, b, c = reference(train, objective, settings, epochs, start, known, weights)
    for ours, theirs in ((found.user_factors, U), (found.item_factors, V), (found.user_flips, P)):
        assert_allclose(ours, theirs, atol=2e-4)
    if Q.size:
        assert_allclose(found.item_flips, Q, atol=2e-4)
    for bias, expected in ((found.item_bias, b), (found.flip_bias, c)):
        assert (bias is None) == (expected is None)
        if bias is not None:
            assert_allclose(bias, expected[:, 0], atol=2e-4)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
def test_every_objective_equals_the_reference(objective: Any) -> None:
    assert_like_reference(make_dataset(), objective, SETTINGS)


@pytest.mark.parametrize(
    "change",
    [
        {"frequency_power": 0.0}, {"frequency_power": 1.3}, {"unobserved_weight": 1.0}, {"regularization": 0.0},
        {"batch_size": 1}, {"batch_size": 30}, {"batch_size": 1000}, {"epochs": 5},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("objective", [NBPOo, Softmax], ids=lambda o: o.name)
def test_every_setting_equals_the_reference(objective: Any, change: dict[str, Any]) -> None:
    assert_like_reference(make_dataset(), objective, replace(SETTINGS, **change))


@pytest.mark.parametrize("objective", [BPO, NBPO, Softmax], ids=lambda o: o.name)
def test_training_without_biases_equals_the_reference(objective: Any) -> None:
    assert_like_reference(make_dataset(), objective, SETTINGS, biased=False)


@pytest.mark.parametrize("share", [1.0, 1 - 1e-9])
@pytest.mark.parametrize("objective", [BPO, NBPOo, Softmax], ids=lambda o: o.name)
def test_weights_of_interactions_equal_the_reference(objective: Any, share: float) -> None:
    train = make_dataset()
    weights = np.random.default_rng(3).uniform(0.2, 3.0, train.n_interactions).astype(np.float32)
    assert_like_reference(train, objective, replace(SETTINGS, item_share=share), weights=weights)


def test_a_listwise_objective_of_ones_own_refuses_weights() -> None:
    train = make_dataset()
    with pytest.raises(ParameterError, match="does not use weights"):
        trained(train, CentredSquares, weights=np.ones(train.n_interactions, dtype=np.float32))


def test_without_flip_tables_g_is_0() -> None:
    assert_like_reference(make_dataset(), NBPO, SETTINGS, flip_factors=0)


@pytest.mark.parametrize("objective", [NBPOo, Softmax, CentredSquares], ids=lambda o: o.name)
def test_blocks_and_tiles_do_not_change_the_result(objective: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "MIN_TILE", 7)
    monkeypatch.setattr(exact, "MAX_BLOCK_BYTES", 4 * 25 * 2 * 3)  # three users at once
    assert_like_reference(make_dataset(), objective, SETTINGS)


@pytest.mark.parametrize("objective", [BPO, NBPOo, Softmax, tempered_softmax(0.5)], ids=lambda o: o.name)
def test_the_number_of_threads_does_not_change_the_result(objective: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "MIN_TILE", 64)
    train = make_dataset(80, 500)
    settings = replace(SETTINGS, batch_size=32)
    one, *others = (trained(train, objective, settings, n_jobs=n, factors=24).arrays() for n in (1, 2, 3, 8))
    for other in others:
        assert {name: table.tobytes() for name, table in other.items()} == {
            name: table.tobytes() for name, table in one.items()
        }


@pytest.mark.parametrize("objective", [Softmax, CentredSquares], ids=lambda o: o.name)
def test_many_items_give_a_bounded_number_of_tiles_and_blocks_that_fit_the_memory(objective: Any) -> None:
    n_items = 100_000
    rows = [(u, i) for u in range(40) for i in range(u, n_items, 1_000)] + [(0, i) for i in range(n_items - 1)]
    train = tl.read([*rows, (1, n_items - 1)])
    tables = initial_tables(train, 4, 0, True)
    engine = ExactEngine(train, tables, objective, replace(SETTINGS, batch_size=1_000_000), seed=0)
    assert len(exact.tiles(n_items)) <= exact.MAX_TILES
    assert exact.tiles(n_items)[-1].stop == n_items
    assert engine.block_size * train.n_items * 4 <= exact.MAX_BLOCK_BYTES
    engine.epoch(0)
    assert np.isfinite(tables.largest())


@pytest.mark.parametrize("objective", [BPO, NBPOo, Softmax, tempered_softmax(2.0)], ids=lambda o: o.name)
def test_the_loss_decreases(objective: Any) -> None:
    train = make_dataset()
    tables = initial_tables(train, 5, 3 if objective.uses_flips else 0, True)
    engine = ExactEngine(train, tables, objective, SETTINGS, seed=0)
    losses = [engine.loss()]
    for epoch in range(5):
        engine.epoch(epoch)
        losses.append(engine.loss())
    assert losses == sorted(losses, reverse=True)


# --- listwise objectives --------------------------------------------------------------------------


def test_the_loss_of_an_objective_without_likelihood_is_nan() -> None:
    train = make_dataset()
    assert np.isnan(ExactEngine(train, initial_tables(train, 5, 0, True), CentredSquares, SETTINGS, seed=0).loss())


def test_the_loss_is_the_mean_likelihood_per_positive() -> None:
    train, objective = make_dataset(), tempered_softmax(2.0)
    tables = initial_tables(train, 5, 0, True)
    r = tables.user_factors @ tables.item_factors.T + tables.item_bias
    p = np.exp(r / 2) / np.exp(r / 2).sum(axis=1, keepdims=True)
    expected = -np.log(p[train.matrix.toarray() > 0]).mean()
    assert ExactEngine(train, tables, objective, SETTINGS, seed=0).loss() == pytest.approx(expected, rel=1e-5)


def test_steps_of_the_wrong_shape_are_an_error() -> None:
    class Sums(Listwise):
        name = "sums"

        @staticmethod
        def steps(r: Any, observed: Any) -> Any:
            return (observed - r).sum(-1)

    with pytest.raises(ParameterError, match=r"Sums.steps returned an array of shape \(8,\).*\(8, 25\)"):
        trained(make_dataset(), Sums)


def test_a_pairwise_objective_is_an_error() -> None:
    train = make_dataset()
    with pytest.raises(ParameterError, match="BPR is neither pointwise nor listwise"):
        ExactEngine(train, initial_tables(train, 5, 0, True), BPR, SETTINGS, seed=0)


# --- known flips ----------------------------------------------------------------------------------


def test_flips_that_are_not_learned_are_used_in_training() -> None:
    train, rng = make_dataset(), np.random.default_rng(1)
    rates = ExposureRates(rng.uniform(0.1, 2, train.n_users), rng.uniform(0.1, 2, train.n_items))
    assert_like_reference(train, NBPOo, replace(SETTINGS, unobserved_weight=1.0), flips=FixedFlips(rates))


# --- the functions of the softmax ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_steps_of_the_softmax_are_the_gradient_of_its_likelihood(seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, observed = rng.normal(size=9), (rng.random(9) < 0.4).astype(float)
    gradients = [
        (Softmax.likelihood(r + e, observed) - Softmax.likelihood(r - e, observed)) / 2e-5
        for e in 1e-5 * np.eye(9)
    ]
    assert_allclose(Softmax.steps(r, observed), gradients, atol=1e-8)


def test_the_softmax_of_tensors_equals_that_of_arrays() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    r, observed = rng.normal(size=(3, 9)), (rng.random((3, 9)) < 0.4).astype(float)
    tensors = torch.tensor(r, requires_grad=True), torch.tensor(observed)
    assert_allclose(Softmax.steps(*tensors).detach(), Softmax.steps(r, observed))
    Softmax.likelihood(*tensors).sum().backward()
    assert_allclose(tensors[0].grad, Softmax.steps(r, observed), atol=1e-12)
