"""The trainer of networks is the trainer of tables: the same objectives, samples and steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike import objectives
from truelike.negatives import parse
from truelike.training.sampled import SampledEngine
from truelike.training.samples import Recipe
from truelike.training.tables import Tables

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")

from truelike.models.deep.engine import NetworkEngine, sampled_steps  # noqa: E402
from truelike.models.deep.mf import MFNetwork  # noqa: E402
from truelike.models.deep.networks import Inputs, Networks  # noqa: E402

EVERY = [
    objectives.BPO,
    objectives.NBPO,
    objectives.NBPOs,
    objectives.NBPOo,
    objectives.BPR,
    objectives.shift_mc(0.3),
    objectives.noisy_bpr(0.2),
]
RECIPE = Recipe(0.02, 0.98, 5.0, 2.0, "epoch", "all", 4, 200, "shuffled", "each")


@pytest.fixture(scope="module")
def log() -> Any:
    return tl.synthetic.World(n_users=300, n_items=150).log()


def both(log: Any, objective: Any, law: str, recipe: Recipe) -> tuple[SampledEngine, NetworkEngine]:
    """The two back ends on the same start."""
    tables = Tables.zeros(log.n_users, log.n_items, 12, 6)
    tables.initialise("normal", 0.1, 0.5, 0)
    preference, flips = MFNetwork(Inputs(log, 12)), MFNetwork(Inputs(log, 6))
    with torch.no_grad():
        for network, users, items in (
            (preference, tables.user_factors, tables.item_factors),
            (flips, tables.user_flips, tables.item_flips),
        ):
            network.users.weight.copy_(torch.tensor(np.array(users)))
            network.items.weight.copy_(torch.tensor(np.array(items)))
    networks = Networks(preference, flips if objective.uses_flips else None)
    how = {"seed": 3}
    return (
        SampledEngine(log, tables, objective, parse(law), recipe, **how),
        NetworkEngine(
            log, networks, objective, parse(law), recipe, optimizer="sgd", device="cpu", n_jobs=1, **how
        ),
    )


def apart(tables: Tables, networks: Networks) -> float:
    pairs = [
        (tables.user_factors, networks.preference.users),
        (tables.item_factors, networks.preference.items),
    ]
    if networks.flips is not None:
        pairs += [(tables.user_flips, networks.flips.users), (tables.item_flips, networks.flips.items)]
    return max(float(np.abs(table - other.weight.detach().numpy()).max()) for table, other in pairs)


@pytest.mark.parametrize("objective", EVERY, ids=lambda objective: objective.name)
@pytest.mark.parametrize("law", ["uniform", "popularity", "hard:3"])
def test_after_three_epochs_of_sgd_the_tables_are_those_of_the_compiled_engine(
    log: Any, objective: Any, law: str
) -> None:
    # hard negatives: a tie in float32 may be broken the other way by another order of summing
    tables_engine, network_engine = both(log, objective, law, RECIPE)
    start = tables_engine.tables.copy()
    for epoch in range(1 if law == "hard:3" else 3):
        tables_engine.epoch(epoch)
        network_engine.epoch(epoch)
    assert np.abs(tables_engine.tables.users - start.users).max() > 0.02  # they have gone somewhere
    assert apart(tables_engine.tables, network_engine.networks) < 1e-4
    assert network_engine.loss() == pytest.approx(tables_engine.loss(), abs=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"prior": "batch", "regularization": 0.5, "flip_regularization": 0.2},
        {"positives": "once"},
        {"order": "file"},
        {"n_negatives": 1, "batch_size": 57},
        {"batch_size": 10**6},
    ],
    ids=str,
)
def test_every_switch_of_the_recipe_means_the_same(log: Any, change: dict[str, Any]) -> None:
    tables_engine, network_engine = both(log, objectives.NBPO, "uniform", replace(RECIPE, **change))
    for epoch in range(2):
        tables_engine.epoch(epoch)
        network_engine.epoch(epoch)
    assert apart(tables_engine.tables, network_engine.networks) < 1e-4


@pytest.mark.parametrize(
    "objective", [e for e in EVERY if issubclass(e, objectives.Pointwise)], ids=lambda e: e.name
)
def test_the_steps_of_a_batch_are_the_functions_of_the_objective(objective: Any) -> None:
    rng = np.random.default_rng(0)
    r, g = (torch.from_numpy(rng.normal(size=(7, 4)).astype(np.float32)) for _ in range(2))
    steps, flips = sampled_steps(objective, r, g, 3.0)
    for row in range(7):
        up, up_flip = objective.positive(float(r[row, 0]), float(g[row, 0]))
        assert float(steps[row, 0]) == pytest.approx(3 * up, rel=1e-5, abs=1e-6)
        assert float(flips[row, 0]) == pytest.approx(3 * up_flip, rel=1e-5, abs=1e-6)
        for place in range(1, 4):
            down, down_flip = objective.unvoted(float(r[row, place]), float(g[row, place]))
            assert float(steps[row, place]) == pytest.approx(down, rel=1e-4, abs=1e-6)
            assert float(flips[row, place]) == pytest.approx(down_flip, rel=1e-4, abs=1e-6)


def test_what_is_maximised_by_autograd_is_the_likelihood(log: Any) -> None:
    """For an objective whose steps are a gradient: autograd of the likelihood gives the same gradient."""
    network = MFNetwork(Inputs(log, 5))
    users, items = torch.arange(40), torch.arange(160).view(40, 4) % log.n_items
    flat = (users.repeat_interleave(4), items.reshape(-1))
    zero = torch.zeros(40, 4)
    r = network(*flat).view(40, 4)
    voted = objectives.BPO.likelihood_positive(r[:, :1], zero[:, :1]).sum()
    likelihood = 3 * voted + objectives.BPO.likelihood_unvoted(r[:, 1:], zero[:, 1:]).sum()
    expected = torch.autograd.grad(likelihood, list(network.parameters()))
    r = network(*flat).view(40, 4)
    steps, _ = sampled_steps(objectives.BPO, r.detach(), zero, 3.0)
    found = torch.autograd.grad([r], list(network.parameters()), [steps])
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_hard_negatives_are_the_best_scored_of_their_lot(log: Any) -> None:
    _, engine = both(log, objectives.BPR, "hard:3", RECIPE)
    entries = np.arange(50, dtype=np.int32)
    drawn = torch.from_numpy(engine.samples.drawn(engine.samples.key(0), entries).astype(np.int64))
    users = torch.from_numpy(log.user_of_entry[entries].astype(np.int64))
    assert drawn.shape == (50, 12)
    hardest = engine._hardest(users, drawn)
    with torch.no_grad():
        scores = engine.networks.preference(users.repeat_interleave(12), drawn.reshape(-1)).view(50, 4, 3)
        of_hardest = engine.networks.preference(users.repeat_interleave(4), hardest.reshape(-1)).view(50, 4)
    torch.testing.assert_close(scores.max(dim=2).values, of_hardest)


def test_users_order_keeps_a_user_together_and_shuffles_users_at_each_epoch(log: Any) -> None:
    _, engine = both(log, objectives.BPR, "uniform", replace(RECIPE, order="users"))
    n = log.n_interactions
    orders = [engine.samples.entries(epoch, 0, n) for epoch in (0, 1)]
    for order in orders:
        assert np.array_equal(np.sort(order), np.arange(n))
        users = log.user_of_entry[order]
        changes = int((users[1:] != users[:-1]).sum())
        assert changes == len(np.unique(log.user_of_entry)) - 1
    assert not np.array_equal(*orders)
    assert np.array_equal(engine.samples.entries(0, 10, 99), orders[0][10:99])


def test_adam_is_pytorch_s(log: Any) -> None:
    """The first step of Adam is the learning rate, whatever the gradient."""
    _, engine = both(log, objectives.BPO, "uniform", replace(RECIPE, batch_size=log.n_interactions))
    adam = NetworkEngine(
        log, engine.networks, objectives.BPO, parse("uniform"), engine.recipe, seed=3, device="cpu", n_jobs=1
    )
    table = adam.networks.preference.users.weight
    before = table.detach().clone()
    adam.epoch(0)
    moved = (table.detach() - before).abs()
    assert float(moved.max()) == pytest.approx(adam.recipe.rate(0), rel=1e-3)
    assert float(moved.median()) == pytest.approx(adam.recipe.rate(0), rel=1e-2)
