"""Objectives are found by name in any case, and only by the engines that can train them."""

from __future__ import annotations

from typing import Any

import pytest

from truelike import objectives
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


@pytest.mark.parametrize("wrong", ["", "BP", "NBPOs", 3, ["BPR"], objectives.Objective, int])
def test_other_values_are_no_objectives(wrong: Any) -> None:
    assert not names.is_sampled(wrong)
    assert not names.is_exact(wrong)
