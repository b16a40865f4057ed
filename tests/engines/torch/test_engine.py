"""The engine for networks equals the sampled engine: the same objectives, samples and steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.engines.data import Soft

import truelike as tl
from truelike import objectives
from truelike.engines.sgd.engine import SampledEngine
from truelike.engines.sgd.samples import SGDSettings
from truelike.engines.tables import Tables
from truelike.errors import ParameterError
from truelike.negatives import Negatives, parse

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")

from truelike.engines.lists.correction import Correction  # noqa: E402
from truelike.engines.lists.engine import list_loss, list_steps  # noqa: E402
from truelike.engines.torch.engine import NetworkEngine  # noqa: E402
from truelike.engines.torch.networks import Inputs, Networks  # noqa: E402
from truelike.engines.torch.steps import steps_of  # noqa: E402
from truelike.models.networks.custom import MFNetwork  # noqa: E402

EVERY = [
    objectives.BPO,
    objectives.NBPO,
    objectives.NBPOs,
    objectives.NBPOo,
    objectives.BPR,
    objectives.shift_mc(0.3),
    objectives.noisy_bpr(0.2),
]
SETTINGS = SGDSettings(0.02, 0.98, 5.0, 2.0, "epoch", 4, 200, "shuffled")


@pytest.fixture(scope="module")
def train() -> Any:
    return tl.synthetic.World(n_users=300, n_items=150).dataset()


def both(train: Any, objective: Any, negatives: Any, settings: SGDSettings) -> tuple[SampledEngine, NetworkEngine]:
    """Both engines with the same initial parameters."""
    tables = Tables.zeros(train.n_users, train.n_items, 12, 6)
    tables.initialise("normal", 0.1, 0.5, 0)
    preference, flips = MFNetwork(Inputs(train, 12)), MFNetwork(Inputs(train, 6))
    with torch.no_grad():
        for network, users, items in (
            (preference, tables.user_factors, tables.item_factors),
            (flips, tables.user_flips, tables.item_flips),
        ):
            network.users.weight.copy_(torch.tensor(np.array(users)))
            network.items.weight.copy_(torch.tensor(np.array(items)))
    networks = Networks(preference, flips if objective.uses_flips else None)
    rest = (objective, parse(negatives), settings)
    engine = NetworkEngine(train, networks, *rest, seed=3, device="cpu", n_jobs=1)
    groups = [
        {name: group[name] for name in ("params", "weight_decay")} for group in engine.optimizer.param_groups
    ]
    engine.optimizer = torch.optim.SGD(groups, lr=settings.learning_rate)
    return SampledEngine(train, tables, *rest, seed=3), engine


def largest_difference(tables: Tables, networks: Networks) -> float:
    pairs = [
        (tables.user_factors, networks.preference.users),
        (tables.item_factors, networks.preference.items),
    ]
    if networks.flips is not None:
        pairs += [(tables.user_flips, networks.flips.users), (tables.item_flips, networks.flips.items)]
    return max(float(np.abs(table - other.weight.detach().numpy()).max()) for table, other in pairs)


@pytest.mark.parametrize("objective", EVERY, ids=lambda objective: objective.name)
@pytest.mark.parametrize("negatives", ["uniform", "popularity", "hard:3", "ahns:4:1:0.5", Soft()], ids=str)
def test_three_epochs_of_sgd_equal_the_sampled_engine(train: Any, objective: Any, negatives: Any) -> None:
    # one epoch of chosen negatives: a near-tie may be decided differently by another order of summation
    tables_engine, network_engine = both(train, objective, negatives, SETTINGS)
    start = tables_engine.tables.copy()
    for epoch in range(1 if parse(negatives).draws > 1 else 3):
        tables_engine.epoch(epoch)
        network_engine.epoch(epoch)
    assert np.abs(tables_engine.tables.users - start.users).max() > 0.02  # they were trained
    assert largest_difference(tables_engine.tables, network_engine.networks) < 1e-4
    assert network_engine.loss() == pytest.approx(tables_engine.loss(), abs=1e-5)


@pytest.mark.parametrize("negatives", ["hard:3", "ahns:4:1:0.5", Soft()], ids=str)
def test_the_chosen_negatives_are_those_of_numpy(train: Any, negatives: Any) -> None:
    _, engine = both(train, objectives.BPR, negatives, SETTINGS)
    entries, sampler = np.arange(0, 2_000, 3, dtype=np.int32), parse(negatives)
    users, positives = train.user_of_entry[entries], train.csr.indices[entries]
    drawn = engine.samples.draw(engine.samples.key(1), entries)
    numbers = engine.samples.numbers(engine.samples.choice_key(1), entries)
    items = np.column_stack([positives, drawn]).astype(np.int64)
    found = engine._chosen(torch.from_numpy(users.astype(np.int64)), torch.from_numpy(items), numbers).numpy()
    U, V = (
        each.weight.detach().numpy()
        for each in (engine.networks.preference.users, engine.networks.preference.items)
    )
    r = np.einsum("nk,nmk->nm", U[users], V[items])
    shape = (len(users), 4, sampler.draws)
    priority = sampler.priority(r[:, :1, None], r[:, 1:].reshape(shape), numbers.reshape(shape))
    best = priority.argmax(axis=2)[:, :, None]
    clear = np.diff(np.sort(priority, axis=2)[:, :, -2:], axis=2)[:, :, 0] > 1e-6  # no near-tie
    expected = np.take_along_axis(drawn.reshape(shape), best, axis=2)[:, :, 0]
    assert (found[:, 0] == positives).all()
    assert clear.mean() > 0.9
    assert (found[:, 1:] == expected)[clear].all()


def test_a_priority_that_tensors_do_not_have_is_an_error_before_training(train: Any) -> None:
    class OnlyNumPy(Negatives):
        draws = 2

        def priority(self, r_i: Any, r_j: Any, u: Any) -> Any:
            return r_j.astype("float32")

    with pytest.raises(
        ParameterError, match=r"priority\(r_i, r_j, u\) of .* fails for arguments of type Tensor: "
    ):
        tl.NeuMF(negatives=OnlyNumPy(), epochs=1).fit(train, progress=False)


@pytest.mark.parametrize(
    "change",
    [
        {"order": "file"},
        {"n_negatives": 1, "batch_size": 57},
        {"batch_size": 10**6},
    ],
    ids=str,
)
def test_every_setting_equals_the_sampled_engine(train: Any, change: dict[str, Any]) -> None:
    tables_engine, network_engine = both(train, objectives.NBPO, "uniform", replace(SETTINGS, **change))
    for epoch in range(2):
        tables_engine.epoch(epoch)
        network_engine.epoch(epoch)
    assert largest_difference(tables_engine.tables, network_engine.networks) < 1e-4


def test_order_users_keeps_users_together_and_shuffles_them_in_each_epoch(train: Any) -> None:
    _, engine = both(train, objectives.BPR, "uniform", replace(SETTINGS, order="users"))
    n = train.n_interactions
    orders = [engine.samples.entries(epoch, 0, n) for epoch in (0, 1)]
    for order in orders:
        assert np.array_equal(np.sort(order), np.arange(n))
        users = train.user_of_entry[order]
        changes = int((users[1:] != users[:-1]).sum())
        assert changes == len(np.unique(train.user_of_entry)) - 1
    assert not np.array_equal(*orders)
    assert np.array_equal(engine.samples.entries(0, 10, 99), orders[0][10:99])


# --- lists ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("corrected", [True, False])
def test_the_steps_of_lists_are_those_of_numpy_after_the_correction(train: Any, corrected: bool) -> None:
    rng, sampler = np.random.default_rng(0), parse("popularity")
    users, items = rng.integers(0, 300, 20), rng.integers(0, train.n_items, (20, 61))
    r = rng.normal(size=items.shape).astype(np.float32)
    correction = Correction.of(train, sampler, 60) if corrected else None
    seen = r.copy()
    for row, user in enumerate(users):
        q = sampler.shares(train.popularity())
        q = q / (1 - q[train.csr[[user]].indices].sum())
        seen[row, 1:] -= np.log(60 * q[items[row, 1:]]) if corrected else 0.0
    how = steps_of(objectives.Softmax, 60.0, correction)
    arguments = [torch.tensor(each) for each in (r, np.zeros_like(r), users, items)]
    found, flips = how.steps(*arguments)
    assert np.allclose(found.numpy(), list_steps(objectives.Softmax, seen), atol=1e-5)
    assert not flips.any()
    assert how.loss(*arguments) == pytest.approx(list_loss(objectives.Softmax, seen.astype(float)), rel=1e-5)


def test_a_network_moves_along_the_steps_of_its_lists() -> None:
    train = tl.synthetic.World(n_users=60, n_items=40).dataset()
    network = MFNetwork(Inputs(train, 12))
    settings = replace(SETTINGS, n_negatives=100, batch_size=10**6, regularization=0.0)
    engine = NetworkEngine(
        train,
        Networks(network, None),
        objectives.Softmax,
        parse("uniform"),
        settings,
        seed=3,
        device="cpu",
        n_jobs=1,
    )
    engine.optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    engine.optimizer.param_groups[0]["weight_decay"] = 0.0
    U, V = (each.weight.detach().numpy().copy() for each in (network.users, network.items))
    entries = engine.samples.entries(0, 0, train.n_interactions)
    rows = np.column_stack([train.csr.indices[entries], engine.samples.draw(engine.samples.key(0), entries)])
    owners = train.user_of_entry[entries]
    steps = list_steps(objectives.Softmax, np.einsum("nk,nmk->nm", U[owners], V[rows]))
    expected = np.zeros_like(U)
    np.add.at(expected, owners, np.einsum("nm,nmk->nk", steps, V[rows]))
    engine.epoch(0)
    assert np.allclose(network.users.weight.detach().numpy() - U, settings.rate(0) * expected, atol=1e-4)


def test_listwise_steps_that_need_arrays_are_an_error_that_says_so(train: Any) -> None:
    class Arrays(objectives.Softmax):
        @staticmethod
        def steps(r: Any, observed: Any) -> Any:
            return objectives.Softmax.steps(r.astype(float), observed)

    class Short(objectives.Softmax):
        @staticmethod
        def steps(r: Any, observed: Any) -> Any:
            return r[:, 1:]

    for objective, message in (
        (Arrays, "Arrays.steps failed on PyTorch tensors: .*astype"),
        (Short, "one step for"),
    ):
        how = steps_of(objective, 1.0, None)
        with pytest.raises(ParameterError, match=message):
            how.steps(*[torch.zeros(2, 3)] * 4)
