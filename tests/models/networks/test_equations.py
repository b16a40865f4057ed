"""Each network computes the equations of its paper, written out in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from truelike.data.features import Features

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")

from truelike.engines.torch.networks import Inputs  # noqa: E402
from truelike.models.networks import acf  # noqa: E402
from truelike.models.networks.acf import ACFNetwork  # noqa: E402
from truelike.models.networks.custom import MFNetwork  # noqa: E402
from truelike.models.networks.fm import FMNetwork  # noqa: E402
from truelike.models.networks.lightgcn import LightGCNNetwork  # noqa: E402
from truelike.models.networks.neumf import NeuMFNetwork  # noqa: E402


def array(tensor: Any) -> Any:
    return tensor.detach().numpy().astype(np.float64)


def features_of(data: Any) -> tuple[Features, Features]:
    rng = np.random.default_rng(0)
    words = np.array(["a", "b", "c", "d"])
    users = pl.DataFrame({"user": np.arange(data.n_users), "age": rng.normal(size=data.n_users)})
    kinds = [sorted(set(words[rng.integers(0, 4, 3)])) for _ in range(data.n_items)]
    items = pl.DataFrame({"item": np.arange(data.n_items), "kinds": kinds, "price": rng.normal(size=data.n_items)})
    return Features.read(users, "user"), Features.read(items, "item")


def random_pairs(data: Any, n: int = 50) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return torch.from_numpy(rng.integers(0, data.n_users, n)), torch.from_numpy(rng.integers(0, data.n_items, n))


def enlarged(network: Any) -> Any:
    """The network with larger parameters, so that no term is negligible."""
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
            parameter.mul_(3.0).add_(0.01 * noise)
    return network


def assert_vectors_score_as_forward(network: Any, data: Any) -> None:
    U, V, b = network.vectors()
    users, items = random_pairs(data)
    by_vectors = (U[users] * V[items]).sum(dim=1) + (0 if b is None else b[items])
    torch.testing.assert_close(by_vectors, network(users, items), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [MFNetwork, FMNetwork, NeuMFNetwork, ACFNetwork, LightGCNNetwork])
def test_a_row_of_items_is_scored_as_pair_by_pair(make: Any, world: Any) -> None:
    network = enlarged(make(Inputs(world, 4)))
    assert network.broadcasts
    users, items = torch.arange(30), torch.arange(150).view(30, 5) % 40
    flat = network(users.repeat_interleave(5), items.reshape(-1)).view(30, 5)
    torch.testing.assert_close(network(users[:, None], items), flat, rtol=1e-4, atol=1e-5)


# --- FM -------------------------------------------------------------------------------------------


def test_fm_is_the_sum_over_all_pairs_of_features(world: Any) -> None:
    of_users, of_items = features_of(world)
    network = enlarged(FMNetwork(Inputs(world, 5, of_users, of_items)))
    x_users = np.hstack([np.eye(world.n_users), of_users.matrix.toarray()])
    x_items = np.hstack([np.eye(world.n_items), of_items.matrix.toarray()])
    w = np.concatenate([array(network.user.weights), array(network.item.weights)])
    v = np.vstack([array(network.user.table), array(network.item.table)])
    users, items = random_pairs(world)
    for user, item, score in zip(users, items, network(users, items).detach(), strict=True):
        x = np.concatenate([x_users[user], x_items[item]])
        pairs = sum(v[j] @ v[k] * x[j] * x[k] for j in np.flatnonzero(x) for k in np.flatnonzero(x) if j < k)
        assert float(score) == pytest.approx(network.bias.item() + w @ x + pairs, rel=1e-4, abs=1e-5)
    assert_vectors_score_as_forward(network, world)


def test_fm_without_features_is_matrix_factorization_with_biases(world: Any) -> None:
    network = enlarged(FMNetwork(Inputs(world, 5)))
    users, items = random_pairs(world)
    expected = (network.user.table[users] * network.item.table[items]).sum(dim=1)
    expected = expected + network.user.weights[users] + network.item.weights[items] + network.bias
    torch.testing.assert_close(network(users, items), expected, rtol=1e-4, atol=1e-5)


def test_id_dropout_of_fm_leaves_the_other_features(world: Any) -> None:
    of_users, of_items = features_of(world)
    network = enlarged(FMNetwork(Inputs(world, 5, of_users, of_items), id_dropout=0.5))
    whole = network.eval().item.all()[0]
    without_id = torch.from_numpy(of_items.matrix.toarray()).float() @ network.item.table[world.n_items :]
    in_training = network.train().item.all()[0]
    dropped = ~torch.isclose(in_training, whole, atol=1e-5).all(dim=1)
    assert 5 < int(dropped.sum()) < 35
    torch.testing.assert_close(in_training[dropped], without_id[dropped], rtol=1e-4, atol=1e-5)


def test_id_dropout_of_fm_needs_features(world: Any) -> None:
    plain = FMNetwork(Inputs(world, 5), id_dropout=0.5)
    assert torch.equal(plain.train().item.all()[0], plain.eval().item.all()[0])


# --- NeuMF ----------------------------------------------------------------------------------------


def test_neumf_is_one_layer_over_both_towers(world: Any) -> None:
    network = enlarged(NeuMFNetwork(Inputs(world, 8), layers=3))
    users, items = random_pairs(world)
    g = array(network.gmf.users.weight)[users] * array(network.gmf.items.weight)[items]
    h = np.hstack([array(network.mlp.users.weight)[users], array(network.mlp.items.weight)[items]])
    widths = [h.shape[1]]
    for layer in network.mlp.layers:
        h = np.maximum(h @ array(layer.weight).T + array(layer.bias), 0)
        widths.append(h.shape[1])
    assert widths == [16, 8, 4, 2]
    head = np.concatenate([array(network.gmf.head.weight)[0], array(network.mlp.head.weight)[0]])
    np.testing.assert_allclose(array(network(users, items)), np.hstack([g, h]) @ head, rtol=1e-4, atol=1e-5)


def test_the_score_grid_of_neumf_equals_forward(world: Any) -> None:
    network = enlarged(NeuMFNetwork(Inputs(world, 8), layers=2)).eval()
    users, items = torch.tensor([3, 1, 59]), torch.arange(40)
    flat = network(users.repeat_interleave(40), items.repeat(3)).view(3, 40)
    torch.testing.assert_close(network.score_grid(users, items), flat, rtol=1e-4, atol=1e-5)


# --- LightGCN -------------------------------------------------------------------------------------


def normalised_graph(data: Any) -> Any:
    observed = (data.matrix.toarray() > 0).astype(np.float64)
    graph = np.block([[np.zeros((60, 60)), observed], [observed.T, np.zeros((40, 40))]])
    degree = graph.sum(axis=1)
    return graph / np.sqrt(np.outer(degree, degree))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_lightgcn_is_the_mean_of_the_powers_of_the_normalised_graph(world: Any, layers: int) -> None:
    network = enlarged(LightGCNNetwork(Inputs(world, 5), layers=layers))
    graph, start = normalised_graph(world), array(network.embeddings.weight)
    expected = sum(np.linalg.matrix_power(graph, n) @ start for n in range(layers + 1)) / (layers + 1)
    U, V, _ = network.vectors()
    np.testing.assert_allclose(np.vstack([array(U), array(V)]), expected, rtol=1e-4, atol=1e-5)
    assert_vectors_score_as_forward(network, world)


def test_the_gradient_of_lightgcn_is_that_of_the_dense_graph(world: Any) -> None:
    network = LightGCNNetwork(Inputs(world, 3), layers=2)
    users, items = random_pairs(world)
    network(users, items).square().sum().backward()
    graph = torch.from_numpy(normalised_graph(world).astype(np.float32))
    dense = network.embeddings.weight.detach().clone().requires_grad_()
    final = (dense + graph @ dense + graph @ graph @ dense) / 3
    (final[users] * final[items + 60]).sum(dim=1).square().sum().backward()
    torch.testing.assert_close(network.embeddings.weight.grad, dense.grad, rtol=1e-3, atol=1e-6)


# --- ACF ------------------------------------------------------------------------------------------


def attention(hidden: Any, weights: Any, among: Any = True) -> Any:
    """The share of each row, which is zero where it is not among them."""
    e = np.where(among, np.exp(np.maximum(hidden, 0) @ weights[0]), 0)
    return e / e.sum(axis=-1, keepdims=True)


def acf_by_hand(network: Any, data: Any, user: int, item: int, of_items: Any = None) -> float:
    """The paper's equations for one pair, with the item itself left out of the history."""
    w = {name: array(value) for name, value in network.named_parameters()}
    u, table = w["users.weight"][user], w["history_items.weight"]
    history = [i for i in data.matrix.indices[slice(*data.matrix.indptr[user : user + 2])] if i != item]
    hidden = w["of_user.weight"] @ u + w["of_user.bias"] + w["items.weight"][history] @ w["of_item.weight"].T
    hidden = hidden + table[history] @ w["of_history_item.weight"].T
    if of_items is not None:
        x, components = of_items.matrix[history].toarray(), w["components.embeddings.weight"]
        inner = w["components.of_user.weight"] @ u + w["components.of_user.bias"]
        inner = inner + components @ w["components.of_component.weight"].T
        beta = attention(inner, w["components.attention.weight"], x != 0)
        hidden = hidden + (beta * x) @ components @ w["components.out.weight"].T
    vector = u + attention(hidden, w["attention.weight"]) @ table[history]
    return float(vector @ w["items.weight"][item])


@pytest.mark.parametrize("components", [False, True], ids=["items", "items and components"])
def test_acf_is_the_two_attentions_of_its_paper(world: Any, components: bool) -> None:
    of_items = features_of(world)[1] if components else None
    network = enlarged(ACFNetwork(Inputs(world, 4, None, of_items)))
    users, items = random_pairs(world)
    users[:10] = torch.from_numpy(world.user_of_entry[:10].astype(np.int64))  # observed pairs
    items[:10] = torch.from_numpy(world.matrix.indices[:10].astype(np.int64))
    for user, item, score in zip(users.tolist(), items.tolist(), network(users, items).detach(), strict=True):
        assert float(score) == pytest.approx(acf_by_hand(network, world, user, item, of_items), rel=1e-3, abs=1e-4)


def test_acf_ranks_by_the_whole_history(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    network = enlarged(ACFNetwork(Inputs(world, 4)))
    U = network.vectors()[0]
    unobserved = np.argwhere(world.matrix.toarray() == 0)[::17]
    users, items = (torch.from_numpy(column.copy()) for column in unobserved.T)
    by_vectors = (U[users] * network.items.weight[items]).sum(dim=1)
    torch.testing.assert_close(by_vectors, network(users, items), rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(acf, "INTERACTIONS_AT_ONCE", 20)
    torch.testing.assert_close(network.vectors()[0], U)
