"""A parameter is declared once, and its check, its text form and its errors follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from truelike.core.parameters import changed, check, choice, flag, number, parameters_of, parse, whole_number
from truelike.errors import ParameterError


@dataclass(kw_only=True)
class Model:
    rate: float = number(0.1, low=0.0, high=1.0)
    strength: float = number(1.0)
    factors: int = whole_number(10, low=1, high=100)
    limit: int | None = whole_number(5, low=1, optional=True)
    jobs: int | None = whole_number(None, low=1)
    kind: str = choice("sum", "mean")
    quick: bool = flag(False)

    def __post_init__(self) -> None:
        check(self)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"rate": 0},
        {"rate": 1},
        {"rate": 0.5, "factors": 100, "limit": None, "jobs": 2, "kind": "mean", "quick": True},
        {"rate": np.float32(0.5), "factors": np.int16(3), "jobs": np.uint8(1)},
        {"strength": -1e300},
        {"factors": 1},
    ],
)
def test_values_within_bounds_are_taken_as_they_are(given: dict[str, Any]) -> None:
    model = Model(**given)
    assert {name: getattr(model, name) for name in given} == given


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("rate", -0.001, "a number, at least 0.0 and at most 1.0"),
        ("rate", math.nan, "a number, at least 0.0 and at most 1.0"),
        ("strength", math.inf, "a number"),
        ("strength", None, "a number"),
        ("strength", "1", "a number"),
        ("strength", True, "a number"),
        ("factors", True, "a whole number, at least 1 and at most 100"),
        ("factors", 101, "a whole number, at least 1 and at most 100"),
        ("factors", 5.0, "a whole number, at least 1 and at most 100"),
        ("limit", 0, "a whole number, at least 1, or None"),
        ("jobs", 0, "a whole number, at least 1, or None"),
        ("kind", "median", "'sum' or 'mean'"),
        ("quick", 1, "True or False"),
    ],
)
def test_any_other_value_is_an_error_that_names_it_and_what_is_allowed(
    name: str, value: Any, allowed: str
) -> None:
    with pytest.raises(ParameterError) as error:
        Model(**{name: value})
    assert str(error.value) == f"Model: {name} is {value!r}; it must be {allowed}"


def test_only_what_differs_from_the_defaults_is_changed() -> None:
    assert changed(Model()) == {}
    assert changed(Model(rate=0.1, factors=10, jobs=None)) == {}
    assert changed(Model(factors=11, limit=None)) == {"factors": 11, "limit": None}


def test_numbers_of_numpy_come_out_as_pythons_own() -> None:
    model = Model(rate=np.float32(0.5), factors=np.uint8(3))
    assert [type(value) for value in (model.rate, model.factors)] == [float, int]
    assert -model.factors == -3  # where a NumPy number would overflow
    plain = parameters_of(model)
    assert type(plain["rate"]) is float
    assert type(plain["factors"]) is int
    assert repr(changed(model)) == "{'rate': 0.5, 'factors': 3}"


def test_text_becomes_what_the_parameter_is() -> None:
    cases = [
        ("rate", "1e-2", 0.01), ("strength", "-3", -3.0), ("factors", "7", 7), ("limit", "none", None),
        ("jobs", "None", None), ("kind", "mean", "mean"), ("quick", "True", True), ("quick", "false", False),
    ]  # fmt: skip
    for name, text, value in cases:
        assert parse(Model, {name: text}) == {name: value}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("factors", "many"), ("factors", "7.5"), ("factors", ""), ("factors", "none"), ("rate", "nan"),
        ("rate", "inf"), ("rate", "none"), ("quick", "yes"), ("quick", "1"), ("kind", "Mean"), ("limit", "0"),
    ],
)  # fmt: skip
def test_text_that_does_not_fit_is_an_error_of_the_check(name: str, text: str) -> None:
    with pytest.raises(ParameterError, match=f"Model: {name} is "):
        Model(**parse(Model, {name: text}))


@pytest.mark.parametrize(("name", "hint"), [("factor", "; did you mean 'factors'?"), ("zzz", ".")])
def test_an_unknown_name_gets_the_list_and_one_that_is_nearly_right_a_hint(name: str, hint: str) -> None:
    with pytest.raises(ParameterError) as error:
        parse(Model, {name: "7"})
    known = "It has rate, strength, factors, limit, jobs, kind, quick."
    assert str(error.value) == f"Model has no parameter {name!r}{hint} {known}"


def test_a_model_without_parameters_says_so() -> None:
    @dataclass
    class Bare:
        pass

    assert parameters_of(Bare()) == changed(Bare()) == {}
    with pytest.raises(ParameterError, match="It has none"):
        parse(Bare, {"rate": "1"})
