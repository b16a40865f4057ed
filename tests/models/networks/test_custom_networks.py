"""Networks of one's own: what they must do, how errors are reported, and that they are saved and loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import truelike as tl
from truelike.errors import DivergedError, ParameterError, StorageError, TrainingWarning, TruelikeError
from truelike.negatives import Negatives

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")

from truelike.models.networks import scorer  # noqa: E402

Quick = Callable[..., dict[str, Any]]


class Plain(torch.nn.Module):  # type: ignore[misc]
    """A network that has only `forward`, and is no dot product."""

    def __init__(self, inputs: Any) -> None:
        super().__init__()
        self.users = torch.nn.Embedding(inputs.n_users, inputs.factors)
        self.items = torch.nn.Embedding(inputs.n_items, inputs.factors)
        for table in (self.users, self.items):
            torch.nn.init.normal_(table.weight, std=0.3)

    def forward(self, users: Any, items: Any) -> Any:
        return 1 - (self.users(users) - self.items(items)).square().sum(dim=-1)


def test_a_network_that_only_has_forward_answers_everything(world: Any, quick: Quick) -> None:
    model = tl.DeepRecommender(preference=Plain, flips=Plain, **quick(objective="NBPO")).fit(world)
    same_taste = np.arange(60)[:, None] % 4 == np.arange(40)[None, :] % 4
    scores = model.scorer.score_users(np.arange(60, dtype=np.int32))
    assert scores[same_taste].mean() > scores[~same_taste].mean() + 0.5
    similar = model.similar_items(4, k=9)["similar_item_id"].to_numpy()
    assert (similar % 4 == 0).sum() >= 7
    best = model.recommend_from_items([0, 4, 8, 12], k=6)["item_id"].to_numpy()
    assert (best % 4 == 0).sum() >= 4
    assert model.hidden_likes(3, k=5)["posterior"].is_between(0, 1).all()


def test_all_items_are_scored_in_blocks(world: Any, quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tl.DeepRecommender(preference=Plain, **quick(objective="BPR", epochs=2)).fit(world)
    whole = model.recommend(k=9)
    monkeypatch.setattr(scorer, "ITEMS_AT_ONCE", 7)
    sizes: list[int] = []
    model.networks_.preference.register_forward_hook(lambda _, given, __: sizes.append(len(given[0])))
    assert model.recommend(k=9)["item_id"].equals(whole["item_id"])
    assert max(sizes) == 7


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_networks_of_other_precisions_are_trained_and_ranked_by(kind: Any, world: Any, quick: Quick) -> None:
    model = tl.DeepRecommender(preference=lambda inputs: Plain(inputs).to(kind), **quick(epochs=2))
    assert model.fit(world).recommend(0).height == 10


# --- what a network returns -----------------------------------------------------------------------


class Returns(torch.nn.Module):  # type: ignore[misc]
    """A network that returns what a test asks for."""

    def __init__(self, inputs: Any, change: Any) -> None:
        super().__init__()
        self.weight, self.change = torch.nn.Parameter(torch.zeros(1)), change

    def forward(self, users: Any, items: Any) -> Any:
        return self.change(self.weight + torch.zeros(len(users)))


@pytest.mark.parametrize("part", ["preference", "flips"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r[:, None], r"returned a tensor of shape \(\d+, 1\) for [\d,]+ pairs"),
        (lambda r: r.sum(), r"of shape \(\) for"),
        (lambda r: [r], "returned a list, not a tensor"),
        (lambda r: r / 0, r"returned nan for the pair \(user \d+, item \d+\)"),
        (lambda r: r + torch.inf, "returned inf"),
        (lambda r: r.detach(), "do not depend on its parameters"),
        (lambda r: r.long(), "scores of type torch.int64"),
        (lambda r: r.to(torch.complex64), "scores of type torch.complex64"),
    ],
    ids=["column", "number", "list", "NaN", "infinity", "detached", "integers", "complex"],
)
def test_wrong_scores_are_an_error_that_names_the_network(
    world: Any, quick: Quick, part: str, change: Any, message: str
) -> None:
    networks = {part: lambda inputs: Returns(inputs, change)}
    with pytest.raises(TruelikeError, match=f"the {part} network Returns .*{message}"):
        tl.DeepRecommender(**networks, **quick(objective="NBPO", epochs=1)).fit(world)


class Broadcasting(Plain):
    """A network that takes rows of items."""

    broadcasts = True


def test_a_network_that_broadcasts_scores_as_one_that_does_not(world: Any, quick: Quick) -> None:
    one, other = (
        tl.DeepRecommender(preference=network, **quick(objective="BPR", epochs=3)).fit(world)
        for network in (Broadcasting, Plain)
    )
    np.testing.assert_allclose(one.recommend([0, 1])["score"], other.recommend([0, 1])["score"], rtol=1e-4)


# --- other ways to score --------------------------------------------------------------------------


class Product(torch.nn.Module):  # type: ignore[misc]
    """A dot product with a bias that has all optional methods; a test can spoil each of them."""

    broadcasts = True
    user_embedding_names = ("users",)
    spoiled: ClassVar[dict[str, Any]] = {}

    def __init__(self, inputs: Any) -> None:
        super().__init__()
        self.users = torch.nn.Embedding(inputs.n_users, inputs.factors)
        self.items = torch.nn.Embedding(inputs.n_items, inputs.factors)
        self.bias = torch.nn.Embedding(inputs.n_items, 1)

    def forward(self, users: Any, items: Any) -> Any:
        return (self.users(users) * self.items(items)).sum(dim=-1) + self.bias(items).squeeze(-1)

    def score_grid(self, users: Any, items: Any) -> Any:
        return self._spoil("score_grid", self.users(users) @ self.items(items).T + self.bias(items).T)

    def vectors(self) -> Any:
        U, V = self.users.weight, self.items.weight
        return self._spoil("vectors", (U, self._spoil("V", V), self._spoil("b", self.bias.weight[:, 0])))

    def item_vectors(self) -> Any:
        return self._spoil("item_vectors", self.items.weight)

    def new_user_vectors(self, histories: Any) -> Any:
        total = histories.toarray() @ self.items.weight.detach().numpy()
        return self._spoil("new_user_vectors", torch.from_numpy(total.astype(np.float32)))

    def _spoil(self, what: str, value: Any) -> Any:
        return self.spoiled.get(what, lambda value: value)(value)


def test_a_network_with_all_optional_methods_is_accepted(world: Any, quick: Quick) -> None:
    model = tl.DeepRecommender(preference=Product, **quick(objective="BPR", epochs=1)).fit(world)
    assert model.recommend(0).height == 10
    assert model.recommend_from_items([0, 1]).height == 10


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        ({"score_grid": lambda x: x.T}, r"score_grid\(users, items\) is of shape \(\d+, \d+\); it must be"),
        (
            {"score_grid": lambda x: x + 1},
            r"score_grid\(users, items\) gives .* for the pair \(user \d+, item \d+\)",
        ),
        ({"vectors": lambda x: x[:2]}, r"vectors\(\) returned a tuple of 2; it must return \(U, V, b\)"),
        ({"vectors": lambda x: x[0]}, r"vectors\(\) returned a Parameter"),
        ({"V": lambda x: x[:-1]}, r"V of vectors\(\) is of shape \(39, 6\); it must be \(40, 6\)"),
        ({"V": lambda x: x.detach().numpy()}, r"V of vectors\(\) is a ndarray, not a tensor"),
        ({"b": lambda x: x[:, None]}, r"b of vectors\(\) is of shape \(40, 1\); it must be \(40\)"),
        ({"b": lambda x: None}, r"vectors\(\) gives .* and forward gives .*\. They must be equal"),
        ({"item_vectors": lambda x: x[0]}, r"item_vectors\(\) is of shape \(6,\); it must be \(40, any number\)"),
        (
            {"new_user_vectors": lambda x: x.T},
            r"new_user_vectors\(histories\) is of shape \(6, 2\); it must be \(2, 6\)",
        ),
    ],
    ids=lambda value: str(next(iter(value))) if isinstance(value, dict) else "",
)
def test_methods_that_disagree_with_forward_are_an_error(
    world: Any, quick: Quick, monkeypatch: pytest.MonkeyPatch, spoiled: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(Product, "spoiled", spoiled)
    with pytest.raises(ParameterError, match=f"the preference network Product: {message}"):
        tl.DeepRecommender(preference=Product, **quick(objective="BPR", epochs=1)).fit(world)


class WrongLater(Product):
    """A network whose initial parameters hide an error."""

    error = "bias"

    def __init__(self, inputs: Any) -> None:
        super().__init__(inputs)
        torch.nn.init.zeros_(self.bias.weight)

    def vectors(self) -> Any:
        if self.error == "bias":
            return self.users.weight, self.items.weight, None
        self.cache = getattr(self, "cache", None) or (self.users.weight.clone(), self.items.weight.clone(), None)
        return self.cache

    def forward(self, users: Any, items: Any) -> Any:
        r = super().forward(users, items)
        return r.flip(1) if self.error == "rows" and r.ndim == 2 else r


@pytest.mark.parametrize(
    ("error", "message"),
    [("bias", r"vectors\(\) gives"), ("cache", r"vectors\(\) gives"), ("rows", "forward with users of shape")],
)
def test_a_disagreement_that_shows_only_after_training_is_an_error_before_it(
    world: Any, quick: Quick, monkeypatch: pytest.MonkeyPatch, error: str, message: str
) -> None:
    monkeypatch.setattr(WrongLater, "error", error)
    with pytest.raises(ParameterError, match=message):
        tl.DeepRecommender(preference=WrongLater, **quick()).fit(world)


def test_new_user_vectors_need_vectors(world: Any, quick: Quick) -> None:
    def make(inputs: Any) -> Any:
        network = Plain(inputs)
        network.new_user_vectors = lambda histories: histories
        return network

    with pytest.raises(ParameterError, match=r"has new_user_vectors\(\), .* but no vectors\(\)"):
        tl.DeepRecommender(preference=make, **quick()).fit(world)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("items",), "its 'items' is not an Embedding with a row for each of the 60 users"),
        (("no_such",), "its 'no_such' is not an Embedding"),
        ((), r"user_embedding_names=\(\); it must be a tuple of names"),
        (None, "user_embedding_names=None; it must be a tuple of names"),
        (("more",), "depend on the user in other ways"),
    ],
)
def test_user_embedding_names_must_name_all_embeddings_of_users(
    world: Any, quick: Quick, monkeypatch: pytest.MonkeyPatch, names: Any, message: str
) -> None:
    def make(inputs: Any) -> Any:
        network = Product(inputs)
        network.more = torch.nn.Embedding(inputs.n_users, 2)
        return network

    monkeypatch.setattr(Product, "user_embedding_names", names)
    with pytest.raises(ParameterError, match=message):
        tl.DeepRecommender(preference=make, **quick()).fit(world)


class NaNInRanking(Plain):
    """A network that gives NaN to one item, but only when all items of a user are scored."""

    def forward(self, users: Any, items: Any) -> Any:
        r = super().forward(users, items)
        ranking = len(r) == 40 and bool((users == users[0]).all())
        return torch.where(items == 3, torch.nan, r) if ranking else r


def test_nan_scores_are_an_error_when_items_are_ranked(world: Any, quick: Quick) -> None:
    few = quick(objective="BPR", epochs=1, batch_size=7, n_negatives=1)
    with pytest.raises(DivergedError, match="the network NaNInRanking returned nan in the scores of"):
        tl.DeepRecommender(preference=NaNInRanking, **few).fit(world)
    model = tl.DeepRecommender(preference=Product, **few).fit(world)
    with torch.no_grad():
        model.networks_.preference.items.weight[2, 1] = torch.nan
    model.networks_.version += 1
    with pytest.raises(DivergedError, match=r"Product returned nan in vectors\(\), at row numbers \(2, 1\)"):
        model.recommend(0)


# --- what can be trained and saved ----------------------------------------------------------------


class FewRows(Plain):
    def __init__(self, inputs: Any) -> None:
        super().__init__(inputs)
        self.items = torch.nn.Embedding(7, inputs.factors)


class SparseGradients(Plain):
    def __init__(self, inputs: Any) -> None:
        super().__init__(inputs)
        self.items = torch.nn.Embedding(inputs.n_items, inputs.factors, sparse=True)


class ExtraState(Plain):
    def get_extra_state(self) -> Any:
        return {"a": 1}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (FewRows, "the preference network FewRows failed to score .* 60 users and 40 items: IndexError"),
        (SparseGradients, "the preference network SparseGradients: items has sparse=True"),
        (ExtraState, "its state '_extra_state' is a dict; only tensors"),
        (lambda inputs: 3, "preference made a int, not a torch.nn.Module"),
        (lambda inputs: torch.nn.ReLU(), "has no parameter that can be trained"),
    ],
    ids=["too few rows", "sparse gradients", "extra state", "no module", "no parameter"],
)
def test_a_network_that_cannot_be_trained_or_saved_is_an_error_before_training(
    make: Any, message: str, world: Any, quick: Quick
) -> None:
    with pytest.raises(ParameterError, match=message):
        tl.DeepRecommender(preference=make, **quick()).fit(world)


@pytest.mark.parametrize("wrong", ["GCN", 3, torch.nn.ReLU()], ids=str)
def test_preference_is_a_name_or_a_function(wrong: Any) -> None:
    with pytest.raises(ParameterError, match=r"it must be one of MF, FM, NeuMF, ACF, LightGCN, or a function"):
        tl.DeepRecommender(preference=wrong)


def test_preference_and_flips_must_not_share_parameters(world: Any, quick: Quick) -> None:
    made: list[Any] = []

    def same(inputs: Any) -> Any:
        made.append(made[0] if made else Plain(inputs))
        return made[-1]

    with pytest.raises(ParameterError, match="share a parameter"):
        tl.DeepRecommender(preference=same, flips=same, **quick(objective="NBPO")).fit(world)


def test_initial_scores_at_which_gradients_vanish_are_a_warning(world: Any, quick: Quick) -> None:
    def far(inputs: Any) -> Any:
        network = Plain(inputs)
        torch.nn.init.normal_(network.users.weight, std=5.0)
        return network

    with pytest.warns(TrainingWarning, match=r"Plain starts with scores of about -\d+, where the gradient"):
        tl.DeepRecommender(preference=far, **quick(epochs=1)).fit(world)


def test_a_custom_network_is_saved_as_arrays_and_loaded_with_its_code(
    world: Any, quick: Quick, tmp_path: Path
) -> None:
    model = tl.DeepRecommender(preference=Plain, flips="NeuMF", **quick(objective="NBPO", epochs=2)).fit(world)
    model.save(tmp_path / "model")
    assert not list(tmp_path.rglob("*.pt"))
    again = tl.load(tmp_path / "model", preference=Plain)
    assert again.recommend([0, 5], k=5).equals(model.recommend([0, 5], k=5))
    assert again.hidden_likes(2, k=4).equals(model.hidden_likes(2, k=4))
    with pytest.raises(StorageError, match=r"'Plain' is code of your own.*tl\.load\(directory, preference="):
        tl.load(tmp_path / "model")
    with pytest.raises(StorageError, match=r"no array preference.bias.weight for the network; .* another class\?"):
        tl.load(tmp_path / "model", preference=Product)


class Odd(Plain):
    """A network with a parameter without dimensions, a layer with a counter, and a constant buffer."""

    def __init__(self, inputs: Any) -> None:
        super().__init__(inputs)
        self.scale = torch.nn.Parameter(torch.tensor(1.0))
        self.normal = torch.nn.BatchNorm1d(1)
        self.register_buffer("year", torch.full((inputs.n_items,), 20230101.0))

    def forward(self, users: Any, items: Any) -> Any:
        return self.scale * self.normal(super().forward(users, items)[:, None]).squeeze(-1)


class Squares(Negatives):
    """Weights of the user's own."""

    def weights(self, popularity: Any) -> Any:
        return popularity**2


class OwnBPO(tl.objectives.BPO):
    """An objective of the user's own."""


@pytest.mark.parametrize("given", [{"negatives": Squares()}, {"objective": OwnBPO}])
@pytest.mark.parametrize("name", ["DeepRecommender", "NeuMF"])
def test_without_code_of_ones_own_a_loaded_network_answers_users_of_the_training_data(
    name: str, given: Any, world: Any, quick: Quick, tmp_path: Path
) -> None:
    model = getattr(tl, name)(**quick(epochs=2, **given)).fit(world)
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    assert again.recommend([0, 5], k=5).equals(model.recommend([0, 5], k=5))
    assert again.similar_items(4, k=5).equals(model.similar_items(4, k=5))
    with pytest.raises(ParameterError, match="of your own, which no file holds"):
        again.recommend_from_items([0, 4])
    whole = tl.load(tmp_path / "model", **given)
    assert whole.recommend_from_items([0, 4]).equals(model.recommend_from_items([0, 4]))


def test_scalars_and_buffers_are_saved_loaded_and_resumed(world: Any, quick: Quick, tmp_path: Path) -> None:
    model = tl.DeepRecommender(preference=Odd, **quick(objective="BPR", epochs=2)).fit(
        world, checkpoint=tmp_path / "place", checkpoint_epochs=1
    )
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model", preference=Odd)
    assert again.recommend([0, 5], k=5).equals(model.recommend([0, 5], k=5))
    assert int(again.networks_.preference.normal.num_batches_tracked) > 0
    more = tl.DeepRecommender(preference=Odd, **quick(objective="BPR", epochs=3))
    assert len(more.fit(world, checkpoint=tmp_path / "place", resume=True).history_) == 3


def test_a_resumed_training_may_make_the_network_with_another_function_object(
    world: Any, quick: Quick, tmp_path: Path
) -> None:
    def maker() -> Any:
        return lambda inputs: Plain(inputs)

    how = {"checkpoint": tmp_path / "place", "checkpoint_epochs": 1}
    tl.DeepRecommender(preference=maker(), **quick(epochs=2)).fit(world, **how)
    epochs: list[int] = []
    tl.DeepRecommender(preference=maker(), **quick(epochs=4)).fit(
        world, resume=True, callbacks=[lambda state: epochs.append(state.epoch)], **how
    )
    assert epochs == [2, 3]
