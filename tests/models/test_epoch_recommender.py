"""A model of one's own that is trained in epochs gets what those of the library have, and clear errors.

The suites of `test_contract.py` and `test_contract_fitting.py` run on `OwnBPR`, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import truelike as tl
from truelike.errors import DivergedError, NotFittedError, ParameterError, StorageError

from .own_models import OwnBPR


@dataclass(kw_only=True, eq=False, repr=False)
class Momentum(tl.EpochRecommender):
    """Items by a vector of scores that moves with momentum: arrays are replaced, and the scorer copies them."""

    def initial_arrays(self, train: Any, rng: np.random.Generator) -> dict[str, Any]:
        zeros = np.zeros(train.n_items)
        return {"item_scores": zeros, "item_speed": zeros, "steps": np.array(0), "best_steps": np.array(7)}

    def run_epoch(self, train: Any, arrays: dict[str, Any], epoch: int, rng: np.random.Generator) -> None:
        arrays["item_speed"] = 0.9 * arrays["item_speed"] + rng.normal(size=train.n_items)
        arrays["item_scores"] = arrays["item_scores"] + arrays["item_speed"]
        arrays["steps"] += 1

    def make_scorer(self, train: Any, arrays: dict[str, Any]) -> tl.Scorer:
        return tl.DotProductScorer(train, np.ones((train.n_users, 1)), 2 * arrays["item_scores"][:, None])


def bytes_of(model: Any) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in model.arrays_.items()}


# --- what comes with the class ---------------------------------------------------------------------


def test_the_arrays_are_those_of_the_best_epoch(world: Any, other_world: Any) -> None:
    model = OwnBPR(epochs=25, patience=3).fit(world, validation=other_world)
    best = int(model.history_["ndcg@20"].arg_max())
    assert 0 < best < model.history_.height - 1, "the last epoch is the best one: the test shows nothing"
    assert bytes_of(OwnBPR(epochs=best + 1).fit(world)) == bytes_of(model)


def test_a_share_of_the_interactions_finds_the_number_of_epochs(world: Any) -> None:
    model = OwnBPR(epochs=25, patience=3).fit(world, validation=0.2)
    found = int(model.search_history_["ndcg@20"].arg_max()) + 1
    assert model.history_.height == found < 25
    assert bytes_of(OwnBPR(epochs=found).fit(world)) == bytes_of(model)


@pytest.mark.filterwarnings("ignore:Momentum ranks no better than item popularity")
def test_each_epoch_is_measured_with_the_arrays_as_they_are_then(world: Any, other_world: Any) -> None:
    model = Momentum(epochs=5, patience=None).fit(world, validation=other_world)
    values = [tl.evaluate(Momentum(epochs=done).fit(world), other_world)["ndcg@20"] for done in range(1, 6)]
    assert len(set(values)) == 5
    assert model.history_["ndcg@20"].to_list() == pytest.approx(values)


@pytest.mark.filterwarnings("ignore:Momentum ranks no better than item popularity")
def test_every_array_is_resumed(world: Any, other_world: Any, tmp_path: Path) -> None:
    def stop(state: Any) -> None:
        if state.epoch == 2:
            raise KeyboardInterrupt

    how: dict[str, Any] = {"validation": other_world, "checkpoint": tmp_path / "place", "checkpoint_epochs": 1}
    whole = Momentum(epochs=5, seed=3).fit(world, validation=other_world)
    assert whole.history_["ndcg@20"].arg_max() > 2, "the best epoch is before the stop: the test shows less"
    with pytest.raises(KeyboardInterrupt):
        Momentum(epochs=5, seed=3).fit(world, callbacks=[stop], **how)
    again = Momentum(epochs=5, seed=3).fit(world, resume=True, **how)
    assert bytes_of(again) == bytes_of(whole)
    assert again.arrays_["best_steps"] == 7
    assert again.history_["loss"].is_nan().all()
    assert again.history_["ndcg@20"].equals(whole.history_["ndcg@20"])
    with pytest.raises(StorageError, match="other data or other parameters"):
        Momentum(epochs=5, seed=1).fit(world, resume=True, **how)


def test_a_callback_sees_the_loss_and_can_stop(world: Any) -> None:
    losses: list[float] = []

    def look(state: Any) -> None:
        losses.append(state.last["loss"])
        state.stop = len(losses) == 3

    model = OwnBPR(epochs=10).fit(world, callbacks=[look])
    assert model.history_["loss"].to_list() == losses
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3


def test_progress_shows_the_loss_only_where_there_is_one(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="truelike"):
        Momentum(epochs=1).fit(world)
        OwnBPR(epochs=1).fit(world)
    assert caplog.messages[0].strip() == "Momentum: epoch 1 of 1"
    assert re.fullmatch(r"OwnBPR: epoch 1 of 1  loss 0\.\d{4}", caplog.messages[1])


def test_a_history_without_losses_is_saved(world: Any, tmp_path: Path) -> None:
    model = Momentum(epochs=2).fit(world)
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model", model_class=Momentum)
    assert bytes_of(again) == bytes_of(model)
    assert again.history_["loss"].to_list() == [None, None]


def test_large_numbers_are_not_taken_for_divergence(world: Any) -> None:
    model = hooked(initial_arrays=lambda given, train: {**given, "counts": np.full(3, 10**9)})
    assert model.fit(world).arrays_["counts"].max() == 10**9


# --- partial_fit -----------------------------------------------------------------------------------


def test_partial_fit_keeps_known_rows_and_fills_new_ones(checkerboard: Any) -> None:
    model = OwnBPR(epochs=3, factors=4).fit(tl.read(checkerboard))  # as many users as items
    known = model.arrays_
    model.partial_fit([(-1, 3), (20, 18), (20, 19)], epochs=0)  # a user before the others, and items after them
    fresh = OwnBPR(epochs=0, factors=4).fit(model.train_).arrays_
    assert_array_equal(model.arrays_["user_vectors"][1:17], known["user_vectors"])
    assert_array_equal(model.arrays_["user_vectors"][[0, 17]], fresh["user_vectors"][[0, 17]])
    assert_array_equal(model.arrays_["item_vectors"][:16], known["item_vectors"])
    assert_array_equal(model.arrays_["item_vectors"][16:], fresh["item_vectors"][16:])
    assert known["user_vectors"].shape == (16, 4)


def test_an_array_that_grows_with_the_data_under_another_name_is_an_error(world: Any) -> None:
    model = hooked(initial_arrays=lambda given, train: {**given, "weights": np.zeros(train.n_items)})
    before = bytes_of(model.fit(world))
    with pytest.raises(ParameterError, match=r"'weights': 'float64 \(41,\)'.*Begin the name .* \"item_\""):
        model.partial_fit([(1, 500)])
    assert bytes_of(model) == before


# --- mistakes --------------------------------------------------------------------------------------


def hooked(
    initial_arrays: Callable[[Any, Any], Any] = lambda given, train: given,
    run_epoch: Callable[[Any, Any], Any] = lambda arrays, loss: loss,
    make_scorer: Callable[[Any, Any], Any] = lambda train, arrays: tl.EpochRecommender.make_scorer(
        OwnBPR(), train, arrays
    ),
) -> Any:
    """A model of which one method does something else."""

    @dataclass(kw_only=True, eq=False, repr=False)
    class Hooked(OwnBPR):
        def initial_arrays(self, train: Any, rng: Any) -> Any:
            return initial_arrays(super().initial_arrays(train, rng), train)

        def run_epoch(self, train: Any, arrays: Any, epoch: int, rng: Any) -> Any:
            return run_epoch(arrays, super().run_epoch(train, arrays, epoch, rng))

        def make_scorer(self, train: Any, arrays: Any) -> Any:
            return make_scorer(train, arrays)

    return Hooked(epochs=2, factors=4)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (lambda given, train: list(given.values()), TypeError, "a list; it must return arrays by name"),
        (lambda given, train: None, TypeError, "a NoneType; it must return arrays by name"),
        (
            lambda given, train: {**given, "user_bias": [0.0] * 60},
            TypeError,
            "'user_bias' as a list; .* NumPy array",
        ),
        (lambda given, train: {**given, "words": np.array(["a"])}, TypeError, "'words' with dtype <U1"),
        (
            lambda given, train: {**given, "user_bias": np.zeros(40)},
            ParameterError,
            r"shape \(40,\); .* each of 60 users",
        ),
        (
            lambda given, train: {**given, "rate": np.array(np.nan)},
            ParameterError,
            "'rate' with a number that is NaN",
        ),
    ],
)
def test_wrong_initial_arrays_are_errors(changed: Any, error: Any, message: str, world: Any) -> None:
    with pytest.raises(error, match=rf"Hooked\.initial_arrays returned .*{message}"):
        hooked(initial_arrays=changed).fit(world)


def test_arrays_without_vectors_need_a_scorer(world: Any) -> None:
    @dataclass(kw_only=True, eq=False, repr=False)
    class Unscored(OwnBPR):
        def initial_arrays(self, train: Any, rng: Any) -> Any:
            return {"weights": np.zeros(3)}

    with pytest.raises(
        ParameterError, match=r"returned no item_vectors and no user_vectors.*implement make_scorer"
    ):
        Unscored().fit(world)


def widen(arrays: Any, loss: Any) -> None:
    arrays["user_vectors"] = np.zeros((60, 5))


def narrow(arrays: Any, loss: Any) -> None:
    arrays["user_vectors"] = arrays["user_vectors"].astype(np.float32)


def forget(arrays: Any, loss: Any) -> None:
    del arrays["item_bias"]


def confuse(arrays: Any, loss: Any) -> None:
    arrays["item_bias"] = None


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (lambda arrays, loss: arrays, TypeError, "returned a dict; it must train the arrays in place"),
        (lambda arrays, loss: "low", TypeError, "returned a str"),
        (widen, ParameterError, r"to {'user_vectors': 'float64 \(60, 5\)'.*must stay"),
        (narrow, ParameterError, r"to {'user_vectors': 'float32 \(60, 4\)'.*must stay"),
        (
            forget,
            ParameterError,
            r"to {'user_vectors': 'float64 \(60, 4\)', 'item_vectors': 'float64 \(40, 4\)'};",
        ),
        (confuse, ParameterError, "'item_bias': 'NoneType'};"),
    ],
)
def test_an_epoch_that_does_something_else_is_an_error(changed: Any, error: Any, message: str, world: Any) -> None:
    with pytest.raises(error, match=rf"Hooked\.run_epoch .*{message}"):
        hooked(run_epoch=changed).fit(world)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_epoch_that_diverges_is_an_error_and_leaves_nothing(value: float, world: Any, tmp_path: Path) -> None:
    def diverge(arrays: Any, loss: Any) -> None:
        arrays["item_bias"][3] = value

    model = hooked(run_epoch=diverge)
    with pytest.raises(
        DivergedError, match=f"Hooked diverged: a number reached {value} in the arrays that run_epoch"
    ):
        model.fit(world, checkpoint=tmp_path / "place", checkpoint_epochs=1)
    assert not (tmp_path / "place").exists()
    with pytest.raises(NotFittedError):
        model.recommend(1)


def test_a_forgotten_dataclass_is_named() -> None:
    class Forgotten(OwnBPR):
        plain: int = 3

    class Declared(OwnBPR):
        rate: float = tl.parameters.number(0.1)

    @dataclass(kw_only=True, eq=False, repr=False)
    class Child(Declared):
        pass

    advice = r"is not a dataclass: write @dataclass\(kw_only=True, eq=False, repr=False\) above `class"
    with pytest.raises(ParameterError, match=f"'plain', as Forgotten {advice} Forgotten`"):
        Forgotten(plain=4)
    for kind in (Declared, Child):
        with pytest.raises(
            ParameterError, match=f"{kind.__name__} has no parameter 'rate', as Declared {advice} Dec"
        ):
            kind()
    with pytest.raises(ParameterError, match="Forgotten has no parameter 'zzz'"):
        Forgotten(zzz=4)


@pytest.mark.parametrize("loss", [np.nan, np.float32(np.inf), -np.inf])
def test_a_loss_that_is_not_finite_is_an_error(loss: float, world: Any) -> None:
    with pytest.raises(
        DivergedError, match=f"Hooked diverged: run_epoch returned a loss of {loss}. Try smaller steps"
    ):
        hooked(run_epoch=lambda arrays, last: loss).fit(world)


@pytest.mark.parametrize("wrong", [None, OwnBPR, np.zeros((60, 40))])
def test_a_scorer_that_is_none_is_an_error_before_training(wrong: Any, world: Any) -> None:
    def never(arrays: Any, loss: Any) -> None:
        raise AssertionError("an epoch was run")

    with pytest.raises(TypeError, match=r"Hooked\.make_scorer returned a .*; it must return a tl\.Scorer"):
        hooked(run_epoch=never, make_scorer=lambda train, arrays: wrong).fit(world)


@pytest.mark.parametrize(
    ("scores", "error", "message"),
    [
        (np.zeros((1, 40), int), ParameterError, "the scores have dtype int64; expected .* floating-point"),
        ([[0.0] * 40], ParameterError, r"the scores are of type list; expected an array .* of shape \(1, 40\)"),
        (None, ParameterError, "the scores are of type NoneType; expected"),
        (np.zeros((1, 3)), ParameterError, r"the scores have shape \(1, 3\); expected .* of shape \(1, 40\)"),
        (
            np.full((1, 40), np.nan),
            DivergedError,
            "Hooked: make_scorer returned a scorer that scores items with NaN",
        ),
    ],
)
def test_scores_that_are_none_are_an_error_before_training(
    scores: Any, error: Any, message: str, world: Any
) -> None:
    class Wrong(tl.Scorer):
        def score_users(self, users: Any) -> Any:
            return scores

        score_histories = similarities = score_users

    with pytest.raises(error, match=message):
        hooked(make_scorer=lambda train, arrays: Wrong(train)).fit(world)


def test_a_saved_model_without_its_rows_is_damaged(world: Any, other_world: Any, tmp_path: Path) -> None:
    model = OwnBPR(epochs=1).fit(world)
    broken = model.with_learned(model.train_, {"arrays_": {**model.arrays_, "user_vectors": np.zeros((3, 16))}})
    broken.save(tmp_path / "model")
    with pytest.raises(StorageError, match=r"damaged or incomplete.*each of 60 users"):
        tl.load(tmp_path / "model", model_class=OwnBPR)


# --- the page --------------------------------------------------------------------------------------


def test_the_model_of_the_page_runs(world: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "custom-model.md").read_text()
    (code,) = (
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "(tl.EpochRecommender)" in block
    )
    names: dict[str, Any] = {"split": tl.splits.by_user(world, seed=0), "__name__": __name__}
    exec(compile(code, "custom-model.md", "exec", dont_inherit=True), names)
    losses = names["model"].history_["loss"]
    assert losses[-1] < 0.8 * losses[0]
