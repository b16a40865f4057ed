"""One suite for every recommender: parameters, fitting, repeating, saving."""

from __future__ import annotations

import copy
import inspect
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike.core.parameters import parameter_fields
from truelike.errors import DataError, DataWarning, NotFittedError, ParameterError, StorageError
from truelike.models.item_pop import PopularityScorer
from truelike.models.lists import Answers
from truelike.models.registry import REGISTRY, model_class

from .conftest import OTHERS, REPRESENTATIVES, class_of, maker

EVERY = pytest.mark.parametrize("name", [*REPRESENTATIVES, *OTHERS])


def answers(model: Any) -> list[Any]:
    """The answers of a model to many questions, to the bit."""
    users = model.train_.users.values.to_list()
    items = model.train_.items.values.to_list()
    frames = [
        model.recommend(users, k=40),
        model.recommend(users, k=5, exclude_seen=False, candidates=items[::2]),
        model.similar_items(items, k=7),
        model.recommend_from_items(items[:3], k=40),
    ]
    return [(f.drop("score").rows(), f["score"].to_numpy().tobytes()) for f in frames]


# --- fitting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_models_are_fitted_saved_and_loaded(name: str, world: Any, tmp_path: Path) -> None:
    model = maker(name)()
    assert model.fit(world) is model
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    assert answers(again) == answers(model)
    if name == "AutoRecommender":
        assert type(again) is type(model.model_)
        assert again.choice_ == model.choice_
    else:
        assert type(again) is type(model)
        assert again.get_params() == model.get_params()


def test_a_second_fit_starts_from_scratch(make: Any, world: Any, other_world: Any, model: Any) -> None:
    again = make().fit(other_world)
    before = answers(again)
    assert answers(again.fit(world)) == answers(model) != before


def test_neither_threads_nor_the_order_of_rows_change_the_result(make: Any, world: Any, model: Any) -> None:
    shuffled = tl.read(world.to_frame().sample(fraction=1.0, shuffle=True, seed=3))
    assert answers(make().fit(shuffled)) == answers(model)
    if "n_jobs" in model.get_params():
        for n_jobs in (1, 3, None):
            assert answers(make(n_jobs=n_jobs).fit(world)) == answers(model)


def test_an_interrupted_fit_leaves_the_fitted_model_as_it_was(
    make: Any, world: Any, other_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make().fit(world)
    before, given = answers(model), model.get_params()

    def interrupted(*_: Any) -> Any:
        fitted(model, other_world, options)
        raise KeyboardInterrupt

    from truelike.engines.options import FitOptions

    options, fitted = FitOptions(progress=False), type(model)._fit
    monkeypatch.setattr(type(model), "_fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(other_world)
    assert answers(model) == before
    assert model.get_params() == given


@pytest.mark.parametrize("name", [name for name in REPRESENTATIVES if class_of(name).iterative])
def test_a_resumed_training_ends_with_the_same_bits(
    name: str, make: Any, world: Any, other_world: Any, tmp_path: Path
) -> None:
    kinds = pl.DataFrame({"item": np.arange(40), "kind": [f"k{i % 4}" for i in range(40)]})
    data = tl.read(world, items=kinds) if name == "FM" else world  # an FM with features has dropout of ids
    epochs: list[int] = []

    def stop(state: Any) -> None:
        if state.epoch == 1:
            raise KeyboardInterrupt

    how = {"validation": other_world, "checkpoint": tmp_path / "place", "checkpoint_epochs": 1}
    whole = make(epochs=4).fit(data, validation=other_world)
    with pytest.raises(KeyboardInterrupt):
        make(epochs=4).fit(data, callbacks=[stop], **how)
    again = make(epochs=4).fit(data, resume=True, callbacks=[lambda state: epochs.append(state.epoch)], **how)
    assert epochs == [1, 2, 3]
    assert answers(again) == answers(whole)
    assert again.history_.drop("seconds").equals(whole.history_.drop("seconds"))


@pytest.mark.parametrize("name", ["IALS", "NBPO", "SampledListMF", "ExactNBPO", "NeuMF", "OwnBPR"])
def test_the_best_epoch_on_validation_is_kept(make: Any, world: Any, other_world: Any) -> None:
    model = make(epochs=25, patience=3).fit(world, validation=other_world)
    measured = model.history_["ndcg@20"]
    assert len(measured) == min(25, measured.arg_max() + 4)
    assert tl.evaluate(model, other_world)["ndcg@20"] == pytest.approx(measured.max())


def test_fit_takes_a_split(make: Any, world: Any) -> None:
    split = tl.splits.by_user(world, validation=0.1, test=0.1, seed=0)
    explicit = make().fit(split.train, validation=split.validation)
    assert answers(make().fit(split)) == answers(explicit)
    assert make().fit(split).train_ is split.train


def test_an_option_that_a_model_cannot_use_is_an_error(make: Any, world: Any, tmp_path: Path) -> None:
    model = make()
    if not model.iterative:
        with pytest.raises(ParameterError, match="not trained in epochs"):
            model.fit(world, checkpoint=tmp_path / "state")
        assert answers(make().fit(world, validation=0.2)) == answers(make().fit(world))
    else:
        with pytest.raises(ParameterError, match="resume=True needs checkpoint="):
            model.fit(world, resume=True)


def test_what_a_dataset_has_and_a_model_does_not_use_is_said(
    make: Any, world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = make()
    ages = pl.DataFrame({"user_id": world.users.values, "age": np.arange(world.n_users)})
    sizes = pl.DataFrame({"item_id": world.items.values, "size": np.arange(world.n_items)})
    every_item = pl.DataFrame({"user_id": [world.users[0]] * world.n_items, "item_id": world.items.values})
    pairs = world.to_frame().select("user_id", "item_id")
    data = tl.read(world, users=ages, items=sizes, impressions=pl.concat([pairs, every_item]))
    with caplog.at_level("INFO", logger="truelike"):
        model.fit(data, progress=False)
    unused = {"shown", "item_features", "user_features"} - model.uses
    said = [message for message in caplog.messages if "does not use what the dataset has" in message]
    assert said == [f"{model.name} does not use what the dataset has as {', '.join(sorted(unused))}"] * bool(
        unused
    )


def test_data_that_cannot_be_used_is_an_error_that_says_how(make: Any, world: Any) -> None:
    with pytest.raises(DataError, match=r"DataFrame.*tl\.read"):
        make().fit(pl.DataFrame({"user": [1], "item": [2]}))
    with pytest.raises(DataError, match="validation takes a Dataset, not list"):
        make().fit(world, validation=[(1, 2)])
    with pytest.raises(DataError, match="dataset is empty"):
        make().fit(world.select(np.zeros(world.n_interactions, dtype=bool)))


def test_validation_data_may_have_ids_of_its_own(make: Any, world: Any) -> None:
    held_out = tl.read([(0, 1), (1, 2), (777, 3), (2, 888)])
    assert make().fit(world, validation=held_out).recommend(0, k=3).height == 3
    with pytest.warns(DataWarning, match="none of the 2 validation"):
        make().fit(world, validation=tl.read([(777, 3), (778, 888)]))


def test_weights_and_repeated_rows_do_not_count_and_fit_says_so(make: Any, checkerboard: Any) -> None:
    with pytest.warns(DataWarning, match="weights and repeated rows of the training data do not count"):
        model = make().fit(tl.read([*checkerboard, checkerboard[0]]))
    assert answers(model) == answers(make().fit(tl.read(checkerboard)))


def test_partial_fit_counts_the_same_night_once() -> None:
    night = [("ann", "tea", 2, 7), ("bob", "rum", 1, 8)]
    model = tl.IALS(weighting="log", factors=2, epochs=1)
    model.fit(tl.read([("ann", "tea", 1, 5), ("bob", "tea", 1, 5), ("bob", "gin", 1, 5)]), progress=False)
    model.partial_fit(night)
    once = model.train_.to_frame().rows()
    with pytest.warns(DataWarning, match="2 of 2 interactions have the user, the item and the time"):
        model.partial_fit(night)
    assert model.train_.to_frame().rows() == once
    model.partial_fit([("ann", "tea", 2, 9)])
    assert model.train_.to_frame().row(0) == ("ann", "tea", 3.0, 9)


def test_partial_fit_adds_rows_users_and_items(name: str, make: Any, world: Any) -> None:
    if not make().supports_partial_fit:
        assert not hasattr(make(), "partial_fit")
        return
    model = make().fit(world)
    before = answers(model)
    assert model.partial_fit([(1_000, 3), (1_000, 7), (2, 500)], epochs=1, progress=False) is model
    assert {3, 7}.isdisjoint(model.recommend(1_000, k=40)["item_id"])
    assert 500 in model.recommend([5], k=41)["item_id"].to_list()
    assert model.train_.n_interactions == world.n_interactions + 3
    assert answers(model) != before
    if not model.iterative:
        assert answers(model) == answers(make().fit(model.train_))


def test_an_unfitted_model_says_so(make: Any, tmp_path: Path) -> None:
    model = make()
    for ask in (
        lambda: model.recommend(1),
        lambda: model.recommend_from_items([1]),
        lambda: model.similar_items(1),
        lambda: model.score(1, 1),
        lambda: model.save(tmp_path / "model"),
        lambda: model.train_,
    ):
        with pytest.raises(NotFittedError, match=r"call fit\(train\) first"):
            ask()
    assert not (tmp_path / "model").exists()


def test_a_misspelt_attribute_is_an_ordinary_error(make: Any, model: Any) -> None:
    for asked in (make(), model):
        with pytest.raises(AttributeError, match="recomend"):
            asked.recomend  # noqa: B018


# --- files ----------------------------------------------------------------------------------------


def test_a_loaded_model_is_the_saved_one_and_can_be_fitted_again(
    name: str, make: Any, model: Any, other_world: Any, tmp_path: Path
) -> None:
    model.save(tmp_path / "model", metrics={"ndcg@20": np.float32(0.5)})
    again = tl.load(tmp_path / "model", **({} if name in REGISTRY else {"model_class": class_of(name)}))
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    assert again.train_.users.kind == model.train_.users.kind
    assert (again.train_.library, again.train_.name) == (model.train_.library, model.train_.name)
    numbers = [{n: v for n, v in m.learned.items() if isinstance(v, float)} for m in (again, model)]
    assert numbers[0] == numbers[1]
    assert answers(again) == answers(model)
    assert answers(again.fit(other_world)) == answers(make().fit(other_world))


def test_a_deep_copy_gives_the_same_answers(model: Any) -> None:
    assert answers(copy.deepcopy(model)) == answers(model)


def test_parameters_given_to_load_are_checked_as_usual(world: Any, tmp_path: Path) -> None:
    tl.IALS(factors=4, epochs=1).fit(world).save(tmp_path / "model")
    assert tl.load(tmp_path / "model", n_jobs=1).n_jobs == 1
    with pytest.raises(ParameterError, match="n_jobs is 0"):
        tl.load(tmp_path / "model", n_jobs=0)
    with pytest.raises(ParameterError, match="IALS has no parameter 'preference'"):
        tl.load(tmp_path / "model", preference=3)


def test_a_changed_parameter_makes_a_model_unfitted(world: Any) -> None:
    model = tl.IALS(factors=4, epochs=1).fit(world)
    assert model.set_params(n_jobs=1, factors=4).recommend(1).height == 10
    with pytest.raises(NotFittedError):
        model.set_params(factors=5).recommend(1)


def test_wrong_options_are_errors_that_name_them(world: Any, tmp_path: Path) -> None:
    model = tl.IALS(factors=4, epochs=1)
    for option, value in (("checkpoint_epochs", 0), ("checkpoint_minutes", "x"), ("callbacks", print)):
        with pytest.raises(ParameterError, match=f"{option} is"):
            model.fit(world, checkpoint=tmp_path / "state", **{option: value})
    for epochs in (-3, 2.5, "x"):
        with pytest.raises(ParameterError, match="epochs is"):
            model.fit(world).partial_fit([(1, 2)], epochs=epochs)
    with pytest.raises(DataError, match="every validation interaction is also in the training data"):
        model.fit(world, validation=world.select(np.arange(world.n_interactions) < 60))


@dataclass(kw_only=True, eq=False, repr=False)
class Sparse(tl.ItemPop):
    """A model of a user's own that learns something else than an array."""

    def _fit(self, train: Any, options: Any) -> Any:
        return {"popularity_": train.popularity().astype(np.float32), "similarity_": train.matrix}


@dataclass(kw_only=True, eq=False, repr=False)
class Narrow(tl.ItemPop):
    """A model of a user's own that scores too few items."""

    def _make_scorer(self) -> Any:
        return PopularityScorer(self.train_, np.zeros(3, dtype=np.float32))


@dataclass(kw_only=True, eq=False, repr=False)
class Forgetful(tl.ItemPop):
    """A model of a user's own whose _fit returns nothing."""

    def _fit(self, train: Any, options: Any) -> Any:
        return None


def test_mistakes_in_a_model_of_ones_own_are_named(world: Any) -> None:
    with pytest.raises(ParameterError, match=r"the scores have shape \(1, 3\); expected .* of shape \(1, 40\)"):
        Narrow().fit(world).recommend(1)
    with pytest.raises(TypeError, match=r"Forgetful\._fit returned a NoneType"):
        Forgetful().fit(world)


def test_what_cannot_be_saved_is_named(world: Any, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="Sparse: similarity_ is a csr_array; only arrays are saved"):
        Sparse().fit(world).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@dataclass(kw_only=True, eq=False, repr=False)
class Shifted(tl.ItemPop):
    """A model of a user's own: popularity plus a constant."""

    shift: float = 1.0

    def _fit(self, train: Any, options: Any) -> Any:
        return {"popularity_": train.popularity().astype(np.float32) + self.shift}


def test_a_class_of_ones_own_is_saved_and_loaded_with_the_class(world: Any, tmp_path: Path) -> None:
    model = Shifted(shift=2.0).fit(world)
    model.save(tmp_path / "model")
    with pytest.raises(StorageError, match=r"'Shifted'.*model_class=Shifted"):
        tl.load(tmp_path / "model")
    with pytest.raises(StorageError, match="is a Shifted; model_class is ItemPop"):
        tl.load(tmp_path / "model", model_class=tl.ItemPop)
    again = tl.load(tmp_path / "model", model_class=Shifted)
    assert again.shift == 2.0
    assert answers(again) == answers(model)


# --- parameters -----------------------------------------------------------------------------------


def wrong_values(name: str) -> list[tuple[str, Any, str]]:
    """For each parameter some values that its declaration forbids, and words that the error must have."""
    wrong: list[tuple[str, Any, str]] = []
    for parameter in parameter_fields(class_of(name)):
        rule = parameter.metadata
        if "choices" in rule:
            wrong.append((parameter.name, "no such word", repr(rule["choices"][-1])))
        elif "accepts" in rule:
            wrong.append((parameter.name, "no such word", rule["expected"]))
        elif "flag" in rule:
            wrong.append((parameter.name, "yes", "True or False"))
        elif "whole" in rule:
            kind = "a whole number" if rule["whole"] else "a number"
            wrong += [(parameter.name, value, kind) for value in ("ten", True, math.nan, math.inf)]
            if rule["low"] is not None:
                wrong.append((parameter.name, rule["low"] - 1, f"at least {rule['low']}"))
            if rule["high"] is not None:
                wrong.append((parameter.name, rule["high"] + 1, f"at most {rule['high']}"))
    return wrong


@EVERY
def test_a_wrong_value_is_an_error_that_names_parameter_value_and_range(name: str) -> None:
    for parameter, value, expected in wrong_values(name):
        with pytest.raises(ParameterError) as error:
            maker(name)(**{parameter: value})
        assert f"{name}: {parameter} is {value!r}; it must be " in str(error.value)
        assert expected in str(error.value)
    assert {parameter for parameter, *_ in wrong_values(name)} == {
        f.name for f in parameter_fields(class_of(name))
    }


@EVERY
def test_a_wrong_name_is_an_error_that_names_the_model_and_the_nearest_parameter(name: str) -> None:
    with pytest.raises(ParameterError, match=f"{name} has no parameter 'n_fctors'"):
        class_of(name)(n_fctors=3)
    if "factors" in {f.name for f in parameter_fields(class_of(name))}:
        with pytest.raises(ParameterError, match="did you mean 'factors'"):
            class_of(name)(n_factors=3)
    with pytest.raises(TypeError, match=f"{name} takes its parameters by keyword"):
        class_of(name)(1)


def test_a_value_that_was_set_later_is_checked_by_fit(name: str, make: Any, world: Any) -> None:
    for parameter, value, _ in wrong_values(name)[:1]:
        model = make()
        setattr(model, parameter, value)
        with pytest.raises(ParameterError, match=parameter):
            model.fit(world)


@EVERY
def test_the_repr_shows_what_differs_from_the_defaults(name: str) -> None:
    plain = class_of(name)()
    assert repr(plain) == f"{name}()"
    for parameter, value in plain.get_params().items():
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            changed = class_of(name)(**{parameter: value + 1})
            assert repr(changed) == f"{name}({parameter}={value + 1})"


@EVERY
def test_parameters_can_be_read_set_and_cloned(name: str) -> None:
    model = maker(name)()
    given = model.get_params()
    assert set(given) == {parameter.name for parameter in parameter_fields(model)}
    assert model.name == name
    other = tl.clone(model)
    assert other is not model
    assert other.get_params() == given
    if "seed" in given:
        assert model.set_params(seed=7) is model
        assert model.get_params() == {**given, "seed": 7}
        assert tl.clone(model, seed=8).seed == 8
        with pytest.raises(ParameterError, match="seed is -1"):
            model.set_params(seed=-1)
        assert model.seed == 7
    with pytest.raises(ParameterError, match="no parameter 'nothing'"):
        model.set_params(nothing=1)


def test_a_clone_is_not_fitted(make: Any, model: Any) -> None:
    with pytest.raises(NotFittedError):
        tl.clone(model).recommend(1)
    with pytest.raises(ParameterError, match="clone takes a model, not str"):
        tl.clone("BPR")


@pytest.mark.parametrize("spelling", [str.lower, str.upper, lambda name: name.replace("Item", "item-")])
@pytest.mark.parametrize("name", REGISTRY)
def test_a_model_is_found_by_any_spelling_of_its_name(name: str, spelling: Any) -> None:
    assert model_class(spelling(name)).__name__ == name


def test_a_model_that_does_not_exist_is_an_error_that_lists_those_that_do() -> None:
    with pytest.raises(ParameterError, match=r"no model 'BestOfAll'; there are .*ItemPop.*ItemKNN"):
        model_class("BestOfAll")


def test_every_model_is_a_public_name_and_overrides_no_final_method() -> None:
    assert set(REGISTRY) <= set(tl.__all__)
    final = [
        each for base in (tl.Recommender, Answers) for each in vars(base).items() if hasattr(each[1], "__final__")
    ]
    assert {"fit", "partial_fit", "save", "recommend", "similar_items", "score", "__repr__"} <= {
        n for n, _ in final
    }
    for name in REGISTRY:
        for method, value in final:
            assert inspect.getattr_static(class_of(name), method) is value
