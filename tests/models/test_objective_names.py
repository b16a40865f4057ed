"""Objectives are found by name in any case, and only by the engines that can train them."""

from __future__ import annotations

from typing import Any

import pytest

import truelike as tl
from truelike import objectives
from truelike.errors import ParameterError
from truelike.models import objective_names as names


@pytest.mark.parametrize("name", names.KNOWN)
@pytest.mark.parametrize("spelled", [str, str.lower, str.upper])
def test_names_ignore_case(name: str, spelled: Any) -> None:
    assert names.is_sampled(spelled(name)) or names.is_exact(spelled(name))
    assert names.known_name(spelled(name)) == name
    assert names.objective(spelled(name), 0.2).name == names.objective(name, 0.2).name == name


def test_sampled_engines_take_no_listwise_and_the_exact_engine_no_pairwise_objective() -> None:
    for name in names.KNOWN:
        assert names.is_sampled(name) != issubclass(names.kind_of(name), objectives.Listwise)
        assert names.is_exact(name) != issubclass(names.kind_of(name), objectives.Pairwise)


class OneStep(objectives.Pairwise):
    name = "OneStep"

    @staticmethod
    def pair(r_i: Any, r_j: Any) -> Any:
        return r_i - r_j


class Broken(objectives.Pointwise):
    name = "Broken"

    @staticmethod
    def positive(r: Any, g: Any) -> Any:
        return undefined(r), g  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (OneStep, r"pair\(r_i, r_j\) of the objective OneStep must return two steps"),
        (Broken, r"positive\(r, g\) of the objective Broken failed: name 'undefined'"),
        (objectives.Pointwise, r"the objective Pointwise has no function positive\(r, g\)"),
    ],
)
def test_a_mistake_in_an_objective_is_found_before_it_is_compiled(objective: Any, message: str) -> None:
    data = tl.read([(u, i) for u in range(6) for i in range(6) if (u + i) % 3])
    with pytest.raises(ParameterError, match=message):
        tl.SampledMF(objective=objective, epochs=1).fit(data)
