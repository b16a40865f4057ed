"""Each network against its paper's equations, written out in NumPy or from another library."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike.data.features import Features
from truelike.errors import DataError, ParameterError, TrainingWarning

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")

from truelike.models.deep.acf import ACFNetwork  # noqa: E402
from truelike.models.deep.fm import FMNetwork  # noqa: E402
from truelike.models.deep.lightgcn import LightGCNNetwork  # noqa: E402
from truelike.models.deep.mf import MFNetwork  # noqa: E402
from truelike.models.deep.networks import Inputs  # noqa: E402
from truelike.models.deep.neumf import NeuMFNetwork  # noqa: E402

QUICK: dict[str, Any] = {
    "factors": 6, "epochs": 30, "batch_size": 100, "learning_rate": 0.05, "regularization": 1.0,
}  # fmt: skip


def numbers(tensor: Any) -> Any:
    return tensor.detach().numpy().astype(np.float64)


def features_of(log: Any, seed: int = 0) -> tuple[Features, Features]:
    rng = np.random.default_rng(seed)
    words = np.array(["a", "b", "c", "d"])
    users = pl.DataFrame({"user": np.arange(log.n_users), "age": rng.normal(size=log.n_users)})
    kinds = [sorted(set(words[rng.integers(0, 4, 3)])) for _ in range(log.n_items)]
    items = pl.DataFrame({"item": np.arange(log.n_items), "kinds": kinds, "price": rng.normal(size=log.n_items)})
    return Features.read(users, "user"), Features.read(items, "item")


def pairs(log: Any, n: int = 50) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return torch.from_numpy(rng.integers(0, log.n_users, n)), torch.from_numpy(rng.integers(0, log.n_items, n))


def same_in_vectors(network: Any, log: Any) -> None:
    """What is ranked by is what `forward` gives."""
    U, V, b = network.vectors()
    users, items = pairs(log)
    by_vectors = (U[users] * V[items]).sum(dim=1) + (0 if b is None else b[items])
    torch.testing.assert_close(by_vectors, network(users, items), rtol=1e-4, atol=1e-5)


def scaled(network: Any, by: float = 3.0) -> Any:
    """With larger numbers, so that no term is lost beside the others."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(by).add_(
                0.01 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
            )
    return network


@pytest.mark.parametrize("make", [MFNetwork, FMNetwork, NeuMFNetwork, ACFNetwork, LightGCNNetwork])
def test_a_user_beside_a_row_of_items_is_scored_as_pair_by_pair(make: Any, world: Any) -> None:
    network = scaled(make(Inputs(world, 4)))
    assert network.broadcasts
    users, items = torch.arange(30), torch.arange(150).view(30, 5) % 40
    flat = network(users.repeat_interleave(5), items.reshape(-1)).view(30, 5)
    torch.testing.assert_close(network(users[:, None], items), flat, rtol=1e-4, atol=1e-5)


# --- factorization machines -----------------------------------------------------------------------


def test_fm_is_the_sum_over_all_pairs_of_features(world: Any) -> None:
    of_users, of_items = features_of(world)
    network = scaled(FMNetwork(Inputs(world, 5, of_users, of_items)))
    x_users = np.hstack([np.eye(world.n_users), of_users.matrix.toarray()])
    x_items = np.hstack([np.eye(world.n_items), of_items.matrix.toarray()])
    w = np.concatenate([numbers(network.user.weights), numbers(network.item.weights)])
    v = np.vstack([numbers(network.user.table), numbers(network.item.table)])
    users, items = pairs(world)
    for user, item, score in zip(users, items, network(users, items).detach(), strict=True):
        x = np.concatenate([x_users[user], x_items[item]])
        every = sum(v[j] @ v[k] * x[j] * x[k] for j in np.flatnonzero(x) for k in np.flatnonzero(x) if j < k)
        assert float(score) == pytest.approx(network.bias.item() + w @ x + every, rel=1e-4)
    same_in_vectors(network, world)


def test_fm_without_features_is_matrix_factorization_with_biases(world: Any) -> None:
    network = scaled(FMNetwork(Inputs(world, 5)))
    users, items = pairs(world)
    expected = (network.user.table[users] * network.item.table[items]).sum(dim=1)
    expected = expected + network.user.weights[users] + network.item.weights[items] + network.bias
    torch.testing.assert_close(network(users, items), expected, rtol=1e-4, atol=1e-5)


def test_ids_that_are_left_out_in_training_leave_the_features(world: Any) -> None:
    of_users, of_items = features_of(world)
    network = scaled(FMNetwork(Inputs(world, 5, of_users, of_items), id_dropout=0.5))
    whole = network.eval().item.all()[0]
    alone = torch.from_numpy(of_items.matrix.toarray()).float() @ network.item.table[world.n_items :]
    some = network.train().item.all()[0]
    left_out = ~torch.isclose(some, whole, atol=1e-5).all(dim=1)
    assert 5 < int(left_out.sum()) < 35
    torch.testing.assert_close(some[left_out], alone[left_out], rtol=1e-4, atol=1e-5)
    # without features there is nothing that could speak instead
    plain = FMNetwork(Inputs(world, 5), id_dropout=0.5)
    assert torch.equal(plain.train().item.all()[0], plain.eval().item.all()[0])
    assert "id_dropout" not in tl.FM().deciding_params()


@pytest.fixture(scope="module")
def cold() -> tuple[Any, Any, Any]:
    """A world with features, its log without 60 of 400 items, and the votes for those."""
    world = tl.synthetic.World(n_users=600, n_items=400, exposure_skew=0.0, taste=4.0, seed=2)
    log = world.log()
    held_out = np.arange(400) % 7 == 3
    return world, log.select(~held_out[log.matrix.indices]), log.select(held_out[log.matrix.indices])


@pytest.mark.parametrize("objective", ["BPR", "NBPO"])
def test_fm_ranks_items_without_a_vote_far_better_than_chance_and_popularity(
    objective: str, cold: tuple[Any, Any, Any]
) -> None:
    world, train, held_out = cold
    model = tl.FM(factors=16, epochs=15, learning_rate=0.02, regularization=5.0, objective=objective, seed=1)
    model.fit(train, item_features=world.item_features())
    unvoted = np.flatnonzero(train.popularity() == 0).astype(np.int32)
    new = np.intersect1d(unvoted, held_out.matrix.indices)
    assert len(new) > 50
    scores = model._score_block(np.arange(600, dtype=np.int32))[:, new]
    voted = held_out.matrix.toarray()[:, new] > 0

    def area(scores: Any) -> float:
        """The chance that a voted new item stands above another new one of the same user."""
        found = [
            (row[mine][:, None] > row[~mine][None, :]).mean()
            + (row[mine][:, None] == row[~mine][None, :]).mean() / 2
            for row, mine in zip(scores, voted, strict=True)
            if 0 < mine.sum() < len(mine)
        ]
        assert len(found) > 300
        return float(np.mean(found))

    popular = np.broadcast_to(held_out.popularity()[new], voted.shape)  # which nobody could know yet
    assert area(np.zeros(voted.shape)) == 0.5
    assert area(scores) > 0.78
    assert area(scores) > area(popular) + 0.05
    # and they are really recommended
    first = model.recommend(list(range(600)), k=20)["item_id"].to_numpy()
    assert np.isin(first, new).any()


def test_items_of_the_features_alone_are_part_of_the_model(tmp_path: Any) -> None:
    rows = [(f"u{u}", f"{kind}{i}") for u in range(40) for i in range(10) for kind in "xy"[u % 2] if (u + i) % 3]
    log = tl.read(rows)
    items = [f"{kind}{i}" for kind in "xy" for i in range(10)]
    table = pl.DataFrame({"item": [*items, "x-new", "y-new"], "kind": [*(name[0] for name in items), "x", "y"]})
    model = tl.FM(**QUICK, objective="NBPO").fit(log, item_features=table)
    assert model.train_.n_items == 22
    for user, own, other in (("u0", "x-new", "y-new"), ("u1", "y-new", "x-new")):
        assert model.score(user, own) > model.score(user, other)
        assert own in model.recommend(user, k=6)["item_id"].to_list()
    model.hidden_likes("u0", k=3)
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    assert again.recommend("u0", k=5).equals(model.recommend("u0", k=5))
    # who came later still
    more = pl.DataFrame({"kind": ["y", None], "item": ["y-later", "unknown"]})
    later = again.extend(item_features=more)
    assert later.score("u1", "y-later") == pytest.approx(later.score("u1", "y-new"), rel=1e-5)
    assert later.recommend("u0", k=4, items=items).equals(model.recommend("u0", k=4, items=items))
    assert np.isfinite(later.score("u1", "unknown")).all()
    later.save(tmp_path / "later")
    assert tl.load(tmp_path / "later").score("u1", "y-later") == later.score("u1", "y-later")


def test_users_of_the_features_alone_get_lists_of_their_own() -> None:
    rows = [(u, i) for u in range(40) for i in range(20) if u % 2 == i % 2 and (u + i) % 5]
    users = pl.DataFrame(
        {
            "user": [*range(40), 98, 99],
            "side": [*("even" if u % 2 == 0 else "odd" for u in range(40)), "even", "odd"],
        }
    )
    model = tl.FM(**QUICK).fit(tl.read(rows), user_features=users)
    assert (model.recommend(98, k=6)["item_id"].to_numpy() % 2 == 0).all()
    assert (model.recommend(99, k=6)["item_id"].to_numpy() % 2 == 1).all()
    model.extend(user_features=pl.DataFrame({"user": [100], "side": ["odd"]}))
    assert model.score(100, 3) == pytest.approx(model.score(99, 3), rel=1e-5)


def test_what_is_wrong_with_features_is_named(world: Any) -> None:
    table = pl.DataFrame({"item": np.arange(40), "kind": ["a", "b"] * 20, "price": np.arange(40.0)})
    with pytest.raises(DataError, match=r"the item 0, 1, 2 of the log has no row among the item features"):
        tl.FM(**QUICK).fit(world, item_features=table[3:])
    model = tl.FM(**QUICK).fit(world, item_features=table)
    new = pl.DataFrame({"item": [77], "kind": ["z"], "price": [1.0]})
    with pytest.raises(
        DataError, match=r"the item 77 has kind='z', which was not among the 2 values of training \('a', 'b'\)"
    ):
        model.extend(item_features=new)
    with pytest.raises(DataError, match=r"no column 'price', which was there in training"):
        model.extend(item_features=new.drop("price").with_columns(kind=pl.lit("a")))
    with pytest.raises(ParameterError, match="fitted without user_features"):
        model.extend(user_features=pl.DataFrame({"user": [1], "age": [3]}))
    assert model.train_.n_items == 40
    assert model.extend(item_features=new, on_unknown="skip").train_.n_items == 41
    other = tl.FM(**QUICK, objective="NBPO", flips="MF").fit(world)
    before = other.recommend([0, 1])
    with pytest.raises(ParameterError, match=r"flips='MF' knows nobody without votes.*flips=\"FM\""):
        other.fit(world, item_features=pl.concat([table, new.with_columns(kind=pl.lit("a"))]))
    assert other.recommend([0, 1]).equals(before)  # a fit that fails leaves what was learned
    with pytest.raises(ParameterError, match="on_unknown is 'ignore'"):
        model.extend(item_features=new, on_unknown="ignore")
    with pytest.raises(ParameterError, match="ACF takes no user_features"):
        tl.ACF(**QUICK).fit(world, user_features=pl.DataFrame({"user": np.arange(60), "age": np.arange(60)}))


def test_other_features_are_another_training(world: Any, tmp_path: Any) -> None:
    table = pl.DataFrame({"item": np.arange(40), "price": np.arange(40.0)})
    how = {"checkpoint": tmp_path / "place", "checkpoint_epochs": 1}
    tl.FM(**{**QUICK, "epochs": 2}).fit(world, item_features=table, **how)
    with pytest.raises(tl.errors.StorageError, match="other data or other parameters"):
        tl.FM(**{**QUICK, "epochs": 3}).fit(
            world, item_features=table.with_columns(price=-(pl.col("price") ** 2)), resume=True, **how
        )


# --- NeuMF ----------------------------------------------------------------------------------------


def test_neumf_is_one_head_over_both_towers(world: Any) -> None:
    network = scaled(NeuMFNetwork(Inputs(world, 8), layers=3))
    users, items = pairs(world)
    g = numbers(network.gmf.users.weight)[users] * numbers(network.gmf.items.weight)[items]
    h = np.hstack([numbers(network.mlp.users.weight)[users], numbers(network.mlp.items.weight)[items]])
    widths = [h.shape[1]]
    for layer in network.mlp.layers:
        h = np.maximum(h @ numbers(layer.weight).T + numbers(layer.bias), 0)
        widths.append(h.shape[1])
    assert widths == [16, 8, 4, 2]
    head = np.concatenate([numbers(network.gmf.head.weight)[0], numbers(network.mlp.head.weight)[0]])
    np.testing.assert_allclose(numbers(network(users, items)), np.hstack([g, h]) @ head, rtol=1e-4, atol=1e-5)


def test_the_grid_of_neumf_is_its_forward(world: Any) -> None:
    network = scaled(NeuMFNetwork(Inputs(world, 8), layers=2)).eval()
    users, items = torch.tensor([3, 1, 59]), torch.arange(40)
    flat = network(users.repeat_interleave(40), items.repeat(3)).view(3, 40)
    torch.testing.assert_close(network.grid(users, items), flat, rtol=1e-4, atol=1e-5)


def test_pretrained_towers_are_put_together_with_half_their_weight(world: Any) -> None:
    plain = tl.NeuMF(**{**QUICK, "epochs": 0}).fit(world).networks_.preference
    made = tl.NeuMF(**{**QUICK, "epochs": 0}, pretrain=20).fit(world)
    assert not torch.equal(made.networks_.preference.gmf.users.weight, plain.gmf.users.weight)
    scores = made._score_block(np.arange(60, dtype=np.int32))
    same = np.arange(60)[:, None] % 4 == np.arange(40)[None, :] % 4
    assert scores[same].mean() > scores[~same].mean() + 0.5
    again = tl.NeuMF(**{**QUICK, "epochs": 0}, pretrain=20).fit(world)
    assert again._score_block(np.arange(3, dtype=np.int32)).tobytes() == scores[:3].tobytes()


# --- LightGCN -------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_lightgcn_is_the_mean_of_the_powers_of_the_normalised_graph(world: Any, layers: int) -> None:
    network = scaled(LightGCNNetwork(Inputs(world, 5), layers=layers))
    votes = (world.matrix.toarray() > 0).astype(np.float64)
    graph = np.block([[np.zeros((60, 60)), votes], [votes.T, np.zeros((40, 40))]])
    degree = graph.sum(axis=1)
    normal = graph / np.sqrt(np.outer(degree, degree))
    start = numbers(network.embeddings.weight)
    expected = sum(np.linalg.matrix_power(normal, n) @ start for n in range(layers + 1)) / (layers + 1)
    U, V, _ = network.vectors()
    np.testing.assert_allclose(np.vstack([numbers(U), numbers(V)]), expected, rtol=1e-4, atol=1e-5)
    same_in_vectors(network, world)


def test_the_gradient_of_lightgcn_goes_back_along_the_graph(world: Any) -> None:
    network = LightGCNNetwork(Inputs(world, 3), layers=2)
    votes = torch.from_numpy((world.matrix.toarray() > 0).astype(np.float32))
    graph = torch.zeros(100, 100)
    graph[:60, 60:], graph[60:, :60] = votes, votes.T
    normal = graph / torch.sqrt(torch.outer(graph.sum(1), graph.sum(1)))
    users, items = pairs(world)
    network(users, items).square().sum().backward()
    dense = network.embeddings.weight.detach().clone().requires_grad_()
    smoothed = (dense + normal @ dense + normal @ normal @ dense) / 3
    (smoothed[users] * smoothed[items + 60]).sum(dim=1).square().sum().backward()
    torch.testing.assert_close(network.embeddings.weight.grad, dense.grad, rtol=1e-3, atol=1e-6)


def test_lightgcn_walks_the_graph_forty_times_an_epoch_at_most() -> None:
    def batch(votes: int, **given: Any) -> int:
        log = tl.read([(u, i) for u in range(votes // 500) for i in range(500)])
        return int(tl.LightGCN(**given)._batch(log))

    assert batch(10_000) == 5_000
    assert batch(250_000) == 6_250
    assert batch(250_000, batch_size=77) == 77


def test_a_stranger_of_lightgcn_is_a_user_whose_own_embedding_is_zero(world: Any) -> None:
    model = tl.LightGCN(**QUICK).fit(world)
    network = model.networks_.preference
    with torch.no_grad():
        network.embeddings.weight[7] = 0.0
    history = world.seen(7)
    # the graph of the others holds user 7's votes too; what they add to it is small, but is there
    with_votes = model._score_histories(world.matrix[[7]])[0]
    U, V, _ = network.vectors()
    expected = numbers(V) @ numbers(U[7])
    assert np.corrcoef(with_votes, expected)[0, 1] > 0.999
    assert len(history)


# --- ACF ------------------------------------------------------------------------------------------


def acf_by_hand(network: Any, log: Any, user: int, item: int, of_items: Any = None) -> float:
    """The paper's equations for one pair, the vote itself left out of the history."""
    weight = {name: numbers(value) for name, value in network.named_parameters()}
    u = weight["users.weight"][user]
    votes = [vote for vote in log.matrix.indices[slice(*log.matrix.indptr[user : user + 2])] if vote != item]
    logits = []
    for vote in votes:
        hidden = weight["of_user.weight"] @ u + weight["of_user.bias"]
        hidden = hidden + weight["of_item.weight"] @ weight["items.weight"][vote]
        hidden = hidden + weight["of_vote.weight"] @ weight["votes.weight"][vote]
        if of_items is not None:
            x = of_items.matrix[[vote]].toarray()[0]
            components = np.flatnonzero(x)
            table = weight["components.embeddings.weight"]
            looks = []
            for component in components:
                inner = weight["components.of_user.weight"] @ u + weight["components.of_user.bias"]
                inner = inner + weight["components.of_component.weight"] @ table[component]
                looks.append(float(weight["components.attention.weight"][0] @ np.maximum(inner, 0)))
            beta = np.exp(looks) / np.exp(looks).sum()
            seen = sum(b * x[component] * table[component] for b, component in zip(beta, components, strict=True))
            hidden = hidden + weight["components.out.weight"] @ seen
        logits.append(float(weight["attention.weight"][0] @ np.maximum(hidden, 0)))
    alpha = np.exp(logits) / np.exp(logits).sum()
    vector = u + sum(a * weight["votes.weight"][vote] for a, vote in zip(alpha, votes, strict=True))
    return float(vector @ weight["items.weight"][item])


@pytest.mark.parametrize("components", [False, True], ids=["items", "items and components"])
def test_acf_is_the_paper_s_two_attentions(world: Any, components: bool) -> None:
    of_items = features_of(world)[1] if components else None
    network = scaled(ACFNetwork(Inputs(world, 4, None, of_items)))
    users, items = pairs(world)
    users[:10] = torch.from_numpy(world.user_of_entry[:10].astype(np.int64))  # some that are votes
    items[:10] = torch.from_numpy(world.matrix.indices[:10].astype(np.int64))
    for user, item, score in zip(users.tolist(), items.tolist(), network(users, items).detach(), strict=True):
        assert float(score) == pytest.approx(acf_by_hand(network, world, user, item, of_items), rel=1e-3, abs=1e-4)


def test_acf_ranks_by_the_whole_history(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from truelike.models.deep import acf

    network = scaled(ACFNetwork(Inputs(world, 4)))
    U = network.vectors()[0]
    unvoted = np.argwhere(world.matrix.toarray() == 0)[::17]
    users, items = (torch.from_numpy(column.copy()) for column in unvoted.T)
    by_vectors = (U[users] * network.items.weight[items]).sum(dim=1)
    torch.testing.assert_close(by_vectors, network(users, items), rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(acf, "VOTES_AT_ONCE", 20)
    torch.testing.assert_close(network.vectors()[0], U)


def test_acf_takes_components_and_saves_them(world: Any, tmp_path: Any) -> None:
    table = pl.DataFrame({"item": np.arange(40), "kind": [f"k{i % 4}" for i in range(40)]})
    model = tl.ACF(**QUICK).fit(world, item_features=table)
    assert model.networks_.preference.components is not None
    model.save(tmp_path / "model")
    assert tl.load(tmp_path / "model").recommend(list(range(60))).equals(model.recommend(list(range(60))))
    assert tl.ACF(**QUICK).fit(world).networks_.preference.components is None


def test_a_user_with_a_single_vote_can_be_trained_and_asked() -> None:
    rows = [("one", "a"), *((f"u{u}", item) for u in range(9) for item in "abcd" if item != "abcd"[u % 4])]
    for make in (tl.ACF, tl.LightGCN, tl.FM, tl.NeuMF):
        model = make(**{**QUICK, "epochs": 3}).fit(tl.read(rows))
        assert model.recommend("one", k=3).height == 3


def test_a_prior_that_draws_the_network_to_nothing_is_told() -> None:
    log = tl.synthetic.World(n_users=120, n_items=60).log()
    strong = tl.DeepRecommender(factors=4, epochs=20, batch_size=50, learning_rate=0.05, regularization=2000.0)
    with pytest.warns(
        TrainingWarning, match=r"says next to nothing: regularization=2000 .* Try regularization=500"
    ):
        strong.fit(log)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tl.DeepRecommender(factors=4, epochs=20, batch_size=50, learning_rate=0.05, regularization=1.0).fit(log)


@pytest.mark.filterwarnings("ignore::truelike.errors.TrainingWarning")
@pytest.mark.parametrize(("votes", "share"), [(30, 1.0), (5, 0.25)])
def test_without_a_regularization_flips_and_thin_logs_get_less(votes: int, share: float) -> None:
    assert tl.NeuMF(objective="BPR").regularization is None
    log = tl.read([(u, (u + i) % 60) for u in range(60) for i in range(votes)])
    few = {"factors": 4, "epochs": 3, "learning_rate": 0.05}
    for objective, strength in (("BPO", 15.0), ("NBPO", 8.0)):
        usual = tl.DeepRecommender(objective=objective, **few).fit(log)
        given = tl.DeepRecommender(objective=objective, regularization=strength * share, **few).fit(log)
        assert np.array_equal(usual.recommend(0)["score"], given.recommend(0)["score"])


def test_a_network_as_it_is_learns_from_a_small_log() -> None:
    """At the strength that suits large logs it would be drawn to nothing."""
    split = tl.split.by_user(tl.synthetic.World(n_users=300, n_items=150).log(), validation=0, test=0.2, seed=0)
    popular = tl.evaluate(tl.ItemPop().fit(split.train), split.test)["ndcg@20"]
    assert tl.evaluate(tl.NeuMF(epochs=25).fit(split.train), split.test)["ndcg@20"] > 0.95 * popular
    assert tl.evaluate(tl.DeepRecommender().fit(split.train), split.test)["ndcg@20"] > 0.95 * popular
