"""The rest of the contract, for every recommender: parameters, fitting, repeating, saving."""

from __future__ import annotations

import copy
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike.errors import DataError, DataWarning, NotFittedError, ParameterError
from truelike.models import REGISTRY, model_class


def answers(model: Any) -> list[Any]:
    """All that a model says about a small world, to the bit."""
    users = model.train_.users.values.to_list()
    items = model.train_.items.values.to_list()
    frames = [
        model.recommend(users, k=40),
        model.recommend(users, k=5, exclude_seen=False, items=items[::2]),
        model.similar_items(items, k=7),
        model.recommend_from_items(items[:3], k=40),
    ]
    return [(f.drop("score").rows(), f["score"].to_numpy().tobytes()) for f in frames]


def test_fit_returns_the_model_itself(make: Any, world: Any) -> None:
    model = make()
    assert model.fit(world) is model


def test_a_second_fit_starts_afresh(make: Any, world: Any, other_world: Any) -> None:
    model = make().fit(other_world)
    before = answers(model)
    assert answers(model.fit(world)) == answers(make().fit(world)) != before


def test_fitting_twice_gives_the_same_bits(make: Any, world: Any) -> None:
    model = make().fit(world)
    first = answers(model)
    assert answers(model) == first
    assert answers(model.fit(world)) == first


def test_the_order_of_the_rows_does_not_matter(make: Any, world: Any) -> None:
    rows = world.to_frame().sample(fraction=1.0, shuffle=True, seed=3)
    assert answers(make().fit(tl.read(rows))) == answers(make().fit(world))


def test_fitting_leaves_the_log_as_it_was(make: Any, world: Any) -> None:
    parts = ("data", "indices", "indptr")
    before = [getattr(world.matrix, part).copy() for part in parts]
    answers(make().fit(world))
    assert all((getattr(world.matrix, p) == old).all() for p, old in zip(parts, before, strict=True))


def test_an_unfitted_model_says_so_whatever_it_is_asked(make: Any, tmp_path: Path) -> None:
    model = make()
    for ask in (
        lambda: model.recommend(1),
        lambda: model.recommend_from_items([1]),
        lambda: model.similar_items(1),
        lambda: model.score(1, 1),
        lambda: model.top_k(np.array([0], dtype=np.int32), 1),
        lambda: model.save(tmp_path / "model"),
        lambda: model.train_,
    ):
        with pytest.raises(NotFittedError, match=r"call fit\(train\) first"):
            ask()
    assert not (tmp_path / "model").exists()


def test_a_misspelt_attribute_is_an_ordinary_error(make: Any) -> None:
    with pytest.raises(AttributeError, match="recomend"):
        make().recomend  # noqa: B018


def test_rows_that_are_not_a_log_are_an_error_that_says_how(make: Any, world: Any) -> None:
    with pytest.raises(DataError, match=r"DataFrame.*tl\.read"):
        make().fit(pl.DataFrame({"user": [1], "item": [2]}))
    with pytest.raises(DataError, match="validation takes a Dataset, not list"):
        make().fit(world, validation=[(1, 2)])
    with pytest.raises(DataError, match="without a row"):
        make().fit(world.select(np.zeros(world.n_interactions, dtype=bool)))


def test_validation_rows_may_have_ids_of_their_own(make: Any, world: Any) -> None:
    held_out = tl.read([(0, 1), (1, 2), (777, 3), (2, 888)])
    assert make().fit(world, validation=held_out).recommend(0, k=3).height == 3


def test_validation_rows_of_which_none_is_known_are_warned_of(make: Any, world: Any) -> None:
    with pytest.warns(DataWarning, match="none of the 2 validation rows"):
        make().fit(world, validation=tl.read([(777, 3), (778, 888)]))


def test_the_number_of_threads_never_shows(make: Any, world: Any) -> None:
    users, items = list(range(60)), list(range(40))
    model = make().fit(world)
    lists = [model.recommend(users, k=9, n_jobs=n) for n in (1, 2, 3, None)]
    near = [model.similar_items(items, k=9, n_jobs=n) for n in (1, 2, 3, None)]
    for found in (lists, near):
        assert all(frame.equals(found[0]) for frame in found)
    if "n_jobs" in model.get_params():
        fits = [answers(make(n_jobs=n).fit(world)) for n in (1, 2, 3)]
        assert all(fit == fits[0] == answers(model) for fit in fits)


def test_a_users_list_does_not_depend_on_who_else_is_asked(make: Any, world: Any) -> None:
    model = make().fit(world)
    everybody = model.recommend(list(range(60)), k=9)
    for users in ([17], [58, 3, 17]):
        alone = model.recommend(users, k=9)
        for user in users:
            mine = alone.filter(pl.col("user_id") == user)
            assert mine.equals(everybody.filter(pl.col("user_id") == user))


def test_top_k_is_recommend_in_row_numbers(make: Any, world: Any) -> None:
    model = make().fit(world)
    best = model.top_k(np.array([4, 2], dtype=np.int32), 6)
    frame = model.recommend([4, 2], k=6)
    assert best.items.ravel().tolist() == frame["item_id"].to_list()
    assert best.scores.tobytes() == frame["score"].to_numpy().tobytes()


# --- files ----------------------------------------------------------------------------------------


def test_a_model_comes_back_from_its_directory_as_it_was(make: Any, world: Any, tmp_path: Path) -> None:
    model = make().fit(world)
    model.save(tmp_path / "model", metrics={"ndcg@20": np.float32(0.5)})
    again = tl.load(tmp_path / "model")
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    assert again.train_.users.kind == model.train_.users.kind
    assert again.train_.library == model.train_.library
    assert again.train_.name == model.train_.name
    assert answers(again) == answers(model)


def test_a_copy_answers_alike(make: Any, world: Any) -> None:
    model = make().fit(world)
    assert answers(copy.deepcopy(model)) == answers(model)


def test_a_model_that_was_loaded_can_be_fitted_again(
    make: Any, world: Any, other_world: Any, tmp_path: Path
) -> None:
    make().fit(world).save(tmp_path / "model")
    assert answers(tl.load(tmp_path / "model").fit(other_world)) == answers(make().fit(other_world))


# --- parameters -----------------------------------------------------------------------------------


def wrong_values(name: str) -> list[tuple[str, Any, str]]:
    """For each parameter some values that its declaration forbids, and words that the error must have."""
    wrong: list[tuple[str, Any, str]] = []
    for parameter in fields(model_class(name)):
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


def test_a_wrong_value_is_an_error_that_names_parameter_value_and_range(name: str, make: Any) -> None:
    for parameter, value, expected in wrong_values(name):
        with pytest.raises(ParameterError) as error:
            make(**{parameter: value})
        assert f"{name}: {parameter} is {value!r}; it must be " in str(error.value)
        assert expected in str(error.value)


def test_every_parameter_is_declared_with_its_rule(name: str) -> None:
    checked = {parameter for parameter, *_ in wrong_values(name)}
    assert checked == {parameter.name for parameter in fields(model_class(name))}


def test_a_value_that_was_set_later_is_checked_by_fit(name: str, make: Any, world: Any) -> None:
    wrong = wrong_values(name)
    if not wrong:
        pytest.skip(f"{name} has no parameters")
    model = make()
    setattr(model, wrong[0][0], wrong[0][1])
    with pytest.raises(ParameterError, match=wrong[0][0]):
        model.fit(world)


def test_parameters_go_by_keyword_only(name: str) -> None:
    with pytest.raises(TypeError):
        model_class(name)(1)


def test_the_short_form_shows_what_differs_from_the_defaults_and_makes_the_same_model(name: str) -> None:
    plain = model_class(name)()
    assert repr(plain) == f"{name}()"
    for parameter, value in plain.get_params().items():
        if isinstance(value, int) and not isinstance(value, bool):
            changed = model_class(name)(**{parameter: value + 1})
            assert repr(changed) == f"{name}({parameter}={value + 1})"


def test_the_parameters_can_be_asked_for_and_make_the_same_model(name: str, make: Any) -> None:
    model = make()
    given = model.get_params()
    assert set(given) == {parameter.name for parameter in fields(model)}
    assert model_class(name)(**given).get_params() == given
    assert model.name == name


@pytest.mark.parametrize("spelling", [str.lower, str.upper, lambda name: name.replace("Item", "item-")])
def test_a_model_is_found_by_any_spelling_of_its_name(name: str, spelling: Any) -> None:
    assert model_class(spelling(name)).__name__ == name


def test_a_model_that_does_not_exist_is_an_error_that_lists_those_that_do() -> None:
    with pytest.raises(ParameterError, match=r"no model 'BestOfAll'; there are .*ItemPop.*ItemKNN"):
        model_class("BestOfAll")


def test_every_model_is_a_public_name() -> None:
    assert set(REGISTRY) <= set(tl.__all__)
