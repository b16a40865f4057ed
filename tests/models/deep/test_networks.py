"""Networks of one's own: what they must do, what is said where they do not, and what comes of it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import truelike as tl
from truelike.errors import ParameterError, StorageError, TrainingWarning, TruelikeError
from truelike.training.trainer import DivergedError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")

QUICK: dict[str, Any] = {
    "factors": 6, "flip_factors": 3, "epochs": 30, "batch_size": 100, "learning_rate": 0.05, "regularization": 1.0,
    "flip_regularization": 1.0,
}  # fmt: skip


class Plain(torch.nn.Module):  # type: ignore[misc]
    """Knows nothing but `forward`, and is no dot product."""

    def __init__(self, inputs: Any) -> None:
        super().__init__()
        self.users = torch.nn.Embedding(inputs.n_users, inputs.factors)
        self.items = torch.nn.Embedding(inputs.n_items, inputs.factors)
        for table in (self.users, self.items):
            torch.nn.init.normal_(table.weight, std=0.3)

    def forward(self, users: Any, items: Any) -> Any:
        return 1 - (self.users(users) - self.items(items)).square().sum(dim=-1)


class Returns(torch.nn.Module):  # type: ignore[misc]
    """Gives back what a test wants it to."""

    def __init__(self, inputs: Any, given: Any) -> None:
        super().__init__()
        self.weight, self.given = torch.nn.Parameter(torch.zeros(1)), given

    def forward(self, users: Any, items: Any) -> Any:
        return self.given(self.weight + torch.zeros(len(users)))


def returning(given: Any) -> Any:
    return lambda inputs: Returns(inputs, given)


def test_a_network_that_only_has_forward_answers_everything(world: Any) -> None:
    model = tl.DeepRecommender(preference=Plain, objective="NBPO", flips=Plain, **QUICK).fit(world)
    same = np.arange(60)[:, None] % 4 == np.arange(40)[None, :] % 4
    scores = model._score_block(np.arange(60, dtype=np.int32))
    assert scores[same].mean() > scores[~same].mean() + 0.5
    near = model.similar_items(4, k=9)["similar_item_id"].to_numpy()
    assert (near % 4 == 0).sum() >= 7
    liked = model.recommend_from_items([0, 4, 8, 12], k=6)["item_id"].to_numpy()
    assert (liked % 4 == 0).sum() >= 4
    assert model.hidden_likes(3, k=5)["posterior"].is_between(0, 1).all()
    assert model.hidden_likes(3, k=5)["flips_from"].unique().to_list() == ["votes alone"]


@pytest.mark.parametrize(
    ("preference", "flips"),
    [("NeuMF", "MF"), ("MF", "NeuMF"), ("LightGCN", "ACF"), ("ACF", "LightGCN"), ("FM", "FM"), (Plain, None)],
    ids=str,
)
def test_networks_for_preference_and_flips_mix_at_will(world: Any, preference: Any, flips: Any) -> None:
    model = tl.DeepRecommender(preference=preference, flips=flips, objective="NBPO", **QUICK).fit(world)
    users = np.arange(60, dtype=np.int32)
    same = users[:, None] % 4 == np.arange(40)[None, :] % 4
    scores = model._score_block(users)
    assert scores[same].mean() > scores[~same].mean() + 0.3
    assert model.has_posterior == (flips is not None)
    if flips is None:
        with pytest.raises(ParameterError, match=r"hidden_likes needs flips: .*flips=\"MF\""):
            model.hidden_likes(0)
    else:
        assert model.flip_probability([0, 1], [2, 3]).shape == (2,)


@pytest.mark.parametrize("objective", ["BPO", "BPR", "NBPO", "NBPO-s", "NBPO-o", "ShiftMC", "NBPR"])
def test_every_objective_trains_a_network(world: Any, objective: str) -> None:
    model = tl.NeuMF(objective=objective, **{**QUICK, "epochs": 15}).fit(world)
    losses = model.history_["loss"].to_numpy()
    assert losses[-1] < losses[0]
    assert model.has_posterior == objective.startswith("NBPO")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            lambda r: r[:, None],
            r"the preference network Returns returned a tensor of shape \(\d+, 1\) for [\d,]+ pairs",
        ),
        (lambda r: r.sum(), r"of shape \(\) for"),
        (lambda r: [r], "returned a list, not a tensor"),
        (lambda r: r / 0, r"returned nan for the pair \(user \d+, item \d+\)"),
        (lambda r: r + torch.inf, "returned inf"),
    ],
    ids=["a column", "one number", "a list", "NaN", "infinity"],
)
def test_what_a_network_returns_wrongly_is_named(world: Any, given: Any, words: str) -> None:
    with pytest.raises(TruelikeError, match=words):
        tl.DeepRecommender(preference=returning(given), objective="BPR", **QUICK).fit(world)
    with pytest.raises(TruelikeError, match=words.replace("preference", "flips")):
        tl.DeepRecommender(flips=returning(given), objective="NBPO", **QUICK).fit(world)


class Rows(Plain):
    """Says that it takes rows of items, and gives back what a test wants of them."""

    broadcasts = True
    given = staticmethod(lambda r: r)

    def forward(self, users: Any, items: Any) -> Any:
        return self.given(super().forward(users, items))


def test_a_network_that_takes_rows_of_items_is_checked_too(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {**QUICK, "epochs": 3, "objective": "BPR"}
    rows = tl.DeepRecommender(preference=Rows, **quick).fit(world)
    plain = tl.DeepRecommender(preference=Plain, **quick).fit(world)
    np.testing.assert_allclose(rows.recommend([0, 1])["score"], plain.recommend([0, 1])["score"], rtol=1e-4)
    for given, words in (
        (
            lambda r: r.sum(dim=-1) if r.ndim == 2 else r,
            r"of shape \((\d+),\) for \d+ pairs; it must be \(\1, 2\)",
        ),
        (lambda r: r / 0, r"returned -?(nan|inf) for the pair \(user \d+, item \d+\)"),
    ):
        monkeypatch.setattr(Rows, "given", staticmethod(given))
        with pytest.raises(TruelikeError, match=words):
            tl.DeepRecommender(preference=Rows, **quick).fit(world)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda r: r.detach(), "do not depend on its parameters"),
        (lambda r: r.long(), r"scores of type torch.int64"),
        (lambda r: r.to(torch.complex64), "scores of type torch.complex64"),
    ],
    ids=["detached", "whole numbers", "complex"],
)
def test_scores_from_which_nothing_can_be_learned_are_refused(world: Any, given: Any, words: str) -> None:
    for networks in ({"preference": returning(given)}, {"flips": returning(given)}):
        with pytest.raises(ParameterError, match=words):
            tl.DeepRecommender(objective="NBPO", **networks, **QUICK).fit(world)


class Product(torch.nn.Module):  # type: ignore[misc]
    """A dot product with a bias, which offers all that a network may offer; each part can be spoiled."""

    broadcasts = True
    personal = ("users",)
    spoiled: ClassVar[dict[str, Any]] = {}

    def __init__(self, inputs: Any) -> None:
        super().__init__()
        self.users = torch.nn.Embedding(inputs.n_users, inputs.factors)
        self.items = torch.nn.Embedding(inputs.n_items, inputs.factors)
        self.bias = torch.nn.Embedding(inputs.n_items, 1)

    def forward(self, users: Any, items: Any) -> Any:
        return (self.users(users) * self.items(items)).sum(dim=-1) + self.bias(items).squeeze(-1)

    def grid(self, users: Any, items: Any) -> Any:
        return self._given("grid", self.users(users) @ self.items(items).T + self.bias(items).T)

    def vectors(self) -> Any:
        U, V = self.users.weight, self.items.weight
        return self._given("vectors", (U, self._given("V", V), self._given("b", self.bias.weight[:, 0])))

    def item_vectors(self) -> Any:
        return self._given("item_vectors", self.items.weight)

    def strangers(self, histories: Any) -> Any:
        mean = histories.toarray() @ self.items.weight.detach().numpy()
        return self._given("strangers", torch.from_numpy(mean.astype(np.float32)))

    def _given(self, what: str, value: Any) -> Any:
        return self.spoiled.get(what, lambda value: value)(value)


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [
        ({"grid": lambda x: x.T}, r"grid\(users, items\) is of shape \(\d+, \d+\); it must be"),
        ({"grid": lambda x: x + 1}, r"grid\(users, items\) gives .* for the pair \(user \d+, item \d+\)"),
        ({"vectors": lambda x: x[:2]}, r"vectors\(\) is \(U, V, b\), .* it returned 2 things"),
        ({"vectors": lambda x: x[0]}, ".* it returned a Parameter"),
        ({"V": lambda x: x[:-1]}, r"V of vectors\(\) is of shape \(39, 6\); it must be \(40, 6\)"),
        ({"V": lambda x: x.detach().numpy()}, r"V of vectors\(\) is a ndarray, not a tensor"),
        ({"b": lambda x: x[:, None]}, r"b of vectors\(\) is of shape \(40, 1\); it must be \(40\)"),
        ({"b": lambda x: None}, r"vectors\(\) gives .* and forward .* what is ranked by must be what is trained"),
        ({"item_vectors": lambda x: x[0]}, r"item_vectors\(\) is of shape \(6,\); it must be \(40, any number\)"),
        ({"strangers": lambda x: x.T}, r"strangers\(histories\) is of shape \(6, 2\); it must be \(2, 6\)"),
    ],
    ids=lambda value: str(next(iter(value))) if isinstance(value, dict) else "",
)
def test_a_network_must_say_the_same_in_all_the_ways_it_offers(
    world: Any, monkeypatch: pytest.MonkeyPatch, spoiled: dict[str, Any], words: str
) -> None:
    quick = {**QUICK, "epochs": 2, "objective": "BPR"}
    assert tl.DeepRecommender(preference=Product, **quick).fit(world).recommend(0).height == 10
    monkeypatch.setattr(Product, "spoiled", spoiled)
    with pytest.raises(ParameterError, match=f"the preference network Product: {words}"):
        tl.DeepRecommender(preference=Product, **quick).fit(world)


class Later(Product):
    """Right as it starts, wrong as soon as something is learned."""

    wrong = "bias"

    def __init__(self, inputs: Any) -> None:
        super().__init__(inputs)
        torch.nn.init.zeros_(self.bias.weight)

    def vectors(self) -> Any:
        if self.wrong == "bias":
            return self.users.weight, self.items.weight, None
        self.kept = getattr(self, "kept", None) or (self.users.weight.clone(), self.items.weight.clone(), None)
        return self.kept

    def forward(self, users: Any, items: Any) -> Any:
        r = super().forward(users, items)
        return r.flip(1) if self.wrong == "rows" and r.ndim == 2 else r


@pytest.mark.parametrize(
    ("wrong", "words"),
    [("bias", r"vectors\(\) gives"), ("kept", r"vectors\(\) gives"), ("rows", "rows of items,")],
)
def test_ways_that_part_only_later_are_found_too(
    world: Any, monkeypatch: pytest.MonkeyPatch, wrong: str, words: str
) -> None:
    monkeypatch.setattr(Later, "wrong", wrong)
    with pytest.raises(ParameterError, match=words):
        tl.DeepRecommender(preference=Later, **QUICK).fit(world)


@pytest.mark.parametrize(
    ("personal", "words"),
    [
        (("items",), "its 'items' is no Embedding with a row for each of the 60 users"),
        (("no_such",), "its 'no_such' is no Embedding"),
        ((), r"personal=\(\); it is a tuple of names"),
        (None, "personal=None; it is a tuple of names"),
        (("more",), "tells users apart by more than that"),
    ],
)
def test_what_is_a_user_s_own_must_be_all_that_is(
    world: Any, monkeypatch: pytest.MonkeyPatch, personal: Any, words: str
) -> None:
    def make(inputs: Any) -> Any:
        network = Product(inputs)
        network.more = torch.nn.Embedding(inputs.n_users, 2)
        return network

    monkeypatch.setattr(Product, "personal", personal)
    with pytest.raises(ParameterError, match=words):
        tl.DeepRecommender(preference=make, **QUICK).fit(world)


class Nowhere(Plain):
    """NaN for one item, once it is asked to rank."""

    def forward(self, users: Any, items: Any) -> Any:
        r = super().forward(users, items)
        ranking = len(r) == 40 and bool((users == users[0]).all())
        return torch.where(items == 3, torch.nan, r) if ranking else r


def test_a_nan_where_items_are_ranked_is_an_error(world: Any) -> None:
    quick = {**QUICK, "epochs": 1, "objective": "BPR", "batch_size": 7, "n_negatives": 1}
    with pytest.raises(DivergedError, match="the network Nowhere gave nan in the scores of"):
        tl.DeepRecommender(preference=Nowhere, **quick).fit(world).recommend(0)
    model = tl.DeepRecommender(preference=Product, **quick).fit(world)
    with torch.no_grad():
        model.networks_.preference.items.weight[2, 1] = torch.nan
    model.networks_.version += 1
    with pytest.raises(DivergedError, match=r"the network Product gave nan in vectors\(\), at \(2, 1\)"):
        model.recommend(0)


class Few(Plain):
    """Too few rows."""

    def __init__(self, inputs: Any) -> None:
        super().__init__(inputs)
        self.items = torch.nn.Embedding(7, inputs.factors)


class Sparse(Plain):
    """With gradients that Adam does not take."""

    def __init__(self, inputs: Any) -> None:
        super().__init__(inputs)
        self.items = torch.nn.Embedding(inputs.n_items, inputs.factors, sparse=True)


class Stateful(Plain):
    """With a state that is no tensor."""

    def get_extra_state(self) -> Any:
        return {"a": 1}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Few, "the preference network Few failed when it was asked .* 60 users and 40 items: IndexError"),
        (Sparse, "the preference network Sparse: items has sparse=True"),
        (Stateful, "its state '_extra_state' is a dict; only tensors"),
    ],
)
def test_what_cannot_be_asked_trained_or_saved_is_named_before_training(make: Any, words: str, world: Any) -> None:
    with pytest.raises(ParameterError, match=words):
        tl.DeepRecommender(preference=make, **QUICK).fit(world)


def test_preference_and_flips_share_nothing(world: Any) -> None:
    made: list[Any] = []

    def same(inputs: Any) -> Any:
        made.append(made[0] if made else Plain(inputs))
        return made[-1]

    with pytest.raises(ParameterError, match="share a parameter"):
        tl.DeepRecommender(preference=same, flips=same, objective="NBPO", **QUICK).fit(world)


def test_a_start_at_which_nothing_moves_is_told(world: Any) -> None:
    def far(inputs: Any) -> Any:
        network = Plain(inputs)
        torch.nn.init.normal_(network.users.weight, std=5.0)
        return network

    with pytest.warns(TrainingWarning, match=r"Plain starts with scores of about -\d+, at which"):
        tl.DeepRecommender(preference=far, **{**QUICK, "epochs": 1}).fit(world)


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_networks_of_other_precisions_are_trained_and_ranked_by(kind: Any, world: Any) -> None:
    model = tl.DeepRecommender(preference=lambda inputs: Plain(inputs).to(kind), **{**QUICK, "epochs": 3})
    assert model.fit(world).recommend(0).height == 10


def test_features_for_a_network_without_are_refused_by_name(world: Any) -> None:
    with pytest.raises(ParameterError, match="NeuMF takes no item_features; FM, ACF and DeepRecommender do"):
        tl.NeuMF(**QUICK).fit(world, item_features="items.csv")
    with pytest.raises(ParameterError, match="LightGCN takes no user_features"):
        tl.LightGCN(**QUICK).fit(world, user_features="users.csv")


def test_a_file_of_another_class_of_network_says_so(world: Any, tmp_path: Path) -> None:
    tl.DeepRecommender(preference=Plain, **{**QUICK, "epochs": 1}).fit(world).save(tmp_path / "model")
    with pytest.raises(StorageError, match=r"no array preference.bias.weight for the network; .* class\?"):
        tl.load(tmp_path / "model", preference=Product)


class Odd(Plain):
    """With a number that has no dimension, layers that count, and a constant of its own."""

    def __init__(self, inputs: Any) -> None:
        super().__init__(inputs)
        self.scale = torch.nn.Parameter(torch.tensor(1.0))
        self.normal = torch.nn.BatchNorm1d(1)
        self.register_buffer("year", torch.full((inputs.n_items,), 20230101.0))

    def forward(self, users: Any, items: Any) -> Any:
        return self.scale * self.normal(super().forward(users, items)[:, None]).squeeze(-1)


def test_numbers_without_a_dimension_and_buffers_are_saved_loaded_and_resumed(world: Any, tmp_path: Path) -> None:
    quick = {**QUICK, "epochs": 3}
    model = tl.DeepRecommender(preference=Odd, objective="BPR", **quick).fit(
        world, checkpoint=tmp_path / "place", checkpoint_epochs=1
    )
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model", preference=Odd)
    assert again.recommend([0, 5], k=5).equals(model.recommend([0, 5], k=5))
    assert int(again.networks_.preference.normal.num_batches_tracked) > 0
    more = tl.DeepRecommender(preference=Odd, objective="BPR", **{**quick, "epochs": 5})
    assert len(more.fit(world, checkpoint=tmp_path / "place", resume=True).history_) == 5


def test_loading_says_what_is_missing_here(world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from truelike.models.deep import backend

    place = tmp_path / "model"
    tl.NeuMF(**{**QUICK, "epochs": 1}).fit(world).save(place)
    with pytest.raises(StorageError, match="is a NeuMF, which has no 'preference'"):
        tl.load(place, preference=Plain)
    about = (place / "model.json").read_text()
    (place / "model.json").write_text(about.replace('"device": "auto"', '"device": "xpu:7"'))
    with pytest.raises(StorageError, match=r"'xpu:7', which is not to be had here.*device='cpu'"):
        tl.load(place)
    assert tl.load(place, device="cpu").recommend(0).height == 10
    monkeypatch.setattr(backend, "installed", False)
    with pytest.raises(tl.errors.MissingExtraError, match="NeuMF needs PyTorch"):
        tl.load(place)


@pytest.mark.parametrize("name", ["FM", "NeuMF", "ACF", "LightGCN", "DeepRecommender"])
def test_a_batch_that_is_shared_among_threads_gives_the_same_bits(name: str) -> None:
    """Large enough that several threads are really used."""
    from truelike.models.deep.recommender import SMALL

    world = tl.synthetic.World(n_users=500, n_items=300, seed=3)
    features = {"item_features": world.item_features()} if name in ("FM", "ACF") else {}
    parameters = {"factors": 64, "batch_size": 2_000, "n_negatives": 4, "epochs": 2, "objective": "NBPO"}
    assert SMALL < 2_000 * 5 * 64

    def fitted(n_jobs: int) -> Any:
        model = getattr(tl, name)(**parameters, n_jobs=n_jobs).fit(world.log(), **features)
        return {name: array.tobytes() for name, array in model.networks_.arrays().items()}

    one = fitted(1)
    assert all(fitted(n_jobs) == one for n_jobs in (2, 2, 3))


def test_a_network_that_becomes_nan_later_is_a_divergence(world: Any) -> None:
    with pytest.raises(DivergedError, match=r"learning_rate"):
        tl.NeuMF(**{**QUICK, "learning_rate": 1e6, "optimizer": "sgd"}).fit(world)


def test_what_is_no_network_is_an_error_that_says_what_is(world: Any) -> None:
    with pytest.raises(ParameterError, match=r"preference made a int, not a torch.nn.Module"):
        tl.DeepRecommender(preference=lambda inputs: 3).fit(world)
    with pytest.raises(ParameterError, match=r"has no parameter that could be trained"):
        tl.DeepRecommender(preference=lambda inputs: torch.nn.ReLU()).fit(world)
    for wrong in ("GCN", 3, torch.nn.ReLU()):
        with pytest.raises(ParameterError, match=r"it must be one of MF, FM, NeuMF, ACF, LightGCN, or a function"):
            tl.DeepRecommender(preference=wrong)
    for wrong in ("softmax", "no such"):
        with pytest.raises(ParameterError, match="objective is"):
            tl.NeuMF(objective=wrong)
    with pytest.raises(ParameterError, match=r"negatives is 'all'"):
        tl.NeuMF(negatives="all")


def test_a_device_that_is_not_there_is_named(world: Any) -> None:
    assert tl.NeuMF(device="cpu", **QUICK).fit(world).networks_.preference.gmf.users.weight.device.type == "cpu"
    with pytest.raises(ParameterError, match=r"device is 'tpu'; it must be"):
        tl.NeuMF(device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ParameterError, match=r"device is 'cuda', which is not to be had here"):
            tl.NeuMF(device="cuda").fit(world)


def test_a_network_of_one_s_own_is_saved_as_numbers_and_loaded_with_its_code(world: Any, tmp_path: Path) -> None:
    model = tl.DeepRecommender(preference=Plain, flips="NeuMF", objective="NBPO", **QUICK).fit(world)
    model.save(tmp_path / "model")
    assert not list(tmp_path.rglob("*.pt"))
    again = tl.load(tmp_path / "model", preference=Plain)
    assert again.recommend([0, 5], k=5).equals(model.recommend([0, 5], k=5))
    assert again.hidden_likes(2, k=4).equals(model.hidden_likes(2, k=4))
    with pytest.raises(StorageError, match=r"'Plain' is of your own making.*tl\.load\(directory, preference="):
        tl.load(tmp_path / "model")


def test_a_file_of_another_width_is_refused(world: Any, tmp_path: Path) -> None:
    tl.NeuMF(**QUICK).fit(world).save(tmp_path / "model")
    about = tmp_path / "model" / "model.json"
    about.write_text(about.read_text().replace('"factors": 6', '"factors": 7'))
    with pytest.raises(TruelikeError, match=r"has the shape"):
        tl.load(tmp_path / "model")


@pytest.mark.filterwarnings("ignore::truelike.errors.TrainingWarning")  # a few steps of SGD say little
@pytest.mark.parametrize("name", ["NeuMF", "LightGCN", "ACF", "FM", "DeepRecommender"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_stopped_and_resumed_it_ends_with_the_same_bits(
    name: str, optimizer: str, world: Any, other_world: Any, tmp_path: Path
) -> None:
    more = {"dropout": 0.3, "pretrain": 1} if name == "NeuMF" else {}
    rate = {"adam": 0.05, "sgd": 0.002}[optimizer]
    parameters = {**QUICK, "epochs": 5, "learning_rate": rate, "optimizer": optimizer, "objective": "NBPO", **more}

    class StoppedError(Exception):
        pass

    def unplug(state: Any) -> None:
        if state.epoch == 2:
            raise StoppedError

    def bits(model: Any) -> Any:
        return {name: array.tobytes() for name, array in model.networks_.arrays().items()}

    def make() -> Any:
        return getattr(tl, name)(**parameters)

    how = {"validation": other_world, "checkpoint": tmp_path / "place", "checkpoint_epochs": 1}
    whole = make().fit(world, validation=other_world)
    with pytest.raises(StoppedError):
        make().fit(world, callbacks=[unplug], **how)
    done: list[int] = []
    again = make().fit(world, resume=True, callbacks=[lambda state: done.append(state.epoch)], **how)
    assert done == [2, 3, 4]
    assert bits(again) == bits(whole)
    assert again.history_.drop("seconds").equals(whole.history_.drop("seconds"))


def test_what_was_trained_beforehand_is_not_trained_again_where_training_goes_on(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {"checkpoint": tmp_path / "place", "checkpoint_epochs": 1}
    tl.NeuMF(**{**QUICK, "epochs": 2}, pretrain=2).fit(world, **how)
    whole = tl.NeuMF(**{**QUICK, "epochs": 4}, pretrain=2).fit(world)
    monkeypatch.delattr(tl.NeuMF, "_prepare")
    again = tl.NeuMF(**{**QUICK, "epochs": 4}, pretrain=2).fit(world, resume=True, **how)
    assert again.recommend(list(range(60))).equals(whole.recommend(list(range(60))))
    assert not again.recommend(0).equals(tl.NeuMF(**{**QUICK, "epochs": 4}).fit(world).recommend(0))


def test_a_function_that_makes_a_network_may_be_another_object_when_training_goes_on(
    world: Any, tmp_path: Path
) -> None:
    def maker() -> Any:
        return lambda inputs: Plain(inputs)

    how = {"checkpoint": tmp_path / "place", "checkpoint_epochs": 1}
    tl.DeepRecommender(preference=maker(), **{**QUICK, "epochs": 2}).fit(world, **how)
    done: list[int] = []
    tl.DeepRecommender(preference=maker(), **{**QUICK, "epochs": 4}).fit(
        world, resume=True, callbacks=[lambda state: done.append(state.epoch)], **how
    )
    assert done == [2, 3]


def test_the_best_epoch_by_validation_is_kept(world: Any, other_world: Any) -> None:
    model = tl.NeuMF(**{**QUICK, "epochs": 25, "patience": 3}).fit(world, validation=other_world)
    curve = model.history_["ndcg@20"].to_numpy()
    assert len(curve) < 25
    assert len(curve) - 1 - curve.argmax() == 3
    kept = tl.evaluate(model, other_world.recode(world.users, world.items)[0], ks=(20,))["ndcg@20"]
    assert kept == pytest.approx(curve.max())


def test_training_leaves_the_caller_s_random_numbers_and_threads_alone(world: Any) -> None:
    torch.manual_seed(5)
    torch.set_num_threads(2)
    expected = torch.random.get_rng_state()
    tl.NeuMF(dropout=0.5, n_jobs=1, **{**QUICK, "epochs": 2}).fit(world).recommend(0)
    assert torch.equal(torch.random.get_rng_state(), expected)
    assert torch.get_num_threads() == 2


def test_dropout_is_at_work_in_training_and_not_in_answers(world: Any) -> None:
    model = tl.NeuMF(dropout=0.5, **{**QUICK, "epochs": 3}).fit(world)
    assert not model.networks_.preference.training
    assert model.recommend(0).equals(model.recommend(0))
    plain = tl.NeuMF(**{**QUICK, "epochs": 3}).fit(world)
    assert not np.array_equal(plain.history_["loss"], model.history_["loss"])


def test_a_fitted_model_survives_a_copy_and_goes_its_own_way(world: Any, other_world: Any) -> None:
    model = tl.LightGCN(**{**QUICK, "epochs": 3}).fit(world)
    before = model.recommend(0)
    copy.deepcopy(model).fit(other_world)
    assert model.recommend(0).equals(before)


def test_all_items_are_ranked_in_blocks_of_items(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from truelike.models.deep import scoring

    model = tl.DeepRecommender(preference=Plain, objective="BPR", **{**QUICK, "epochs": 3}).fit(world)
    whole = model.recommend(list(range(60)), k=9)
    monkeypatch.setattr(scoring, "ITEMS_AT_ONCE", 7)
    asked: list[int] = []
    model.networks_.preference.register_forward_hook(lambda _, given, __: asked.append(len(given[0])))
    blocks = model.recommend(list(range(60)), k=9)
    assert blocks["item_id"].equals(whole["item_id"])
    assert max(asked) == 7
