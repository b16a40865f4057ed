"""Objectives are found by name in any case, and only by the engines that can train them."""

from __future__ import annotations

import importlib.util
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
        assert names.is_listwise(name) == issubclass(names.kind_of(name), objectives.Listwise)
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


class NotStatic(objectives.BPO):
    def positive(self, r: Any, g: Any) -> Any:  # type: ignore[override]
        return r, g


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (NotStatic, r"of the objective NotStatic takes \(self, r: .* Write a @staticmethod of two arguments"),
        (OneStep, r"pair\(r_i, r_j\) of the objective OneStep must return two steps"),
        (Broken, r"positive\(r, g\) of the objective Broken failed: name 'undefined'"),
        (objectives.Pointwise, r"the objective Pointwise has no function positive\(r, g\)"),
    ],
)
def test_a_mistake_in_an_objective_is_found_before_it_is_compiled(objective: Any, message: str) -> None:
    data = tl.read([(u, i) for u in range(6) for i in range(6) if (u + i) % 3])
    with pytest.raises(ParameterError, match=message):
        tl.SampledMF(objective=objective, epochs=1).fit(data)


# --- propensities ---------------------------------------------------------------------------------

PROPENSITIES = ["Rel-MF", "MF-DU", "UBPR", "UPL", "ExposureMF"]


class RelMF(objectives.Pointwise):
    """Weights by a propensity, with a default that would be used in silence."""

    name = "Rel-MF"

    @staticmethod
    def positive(r: Any, g: Any, propensity: Any = 0.5) -> Any:
        return (1 - r) / propensity, 0 * g

    @staticmethod
    def negative(r: Any, g: Any, propensity: Any = 0.5) -> Any:
        return -r, 0 * g


class UBPR(objectives.Pairwise):
    name = "UBPR"

    @staticmethod
    def pair(r_i: Any, r_j: Any, propensity: Any) -> Any:
        return objectives.sigmoid(r_j - r_i) / propensity, -objectives.sigmoid(r_j - r_i) / propensity


class UPL(objectives.Listwise):
    name = "UPL"

    @staticmethod
    def steps(r: Any, observed: Any, propensity: Any = 0.5) -> Any:
        return observed / propensity - r


def models_of(objective: Any) -> list[Any]:
    """The models that may take an objective, networks among them if PyTorch is installed."""
    models: list[Any] = [tl.SampledMF, tl.ExactMF]
    if importlib.util.find_spec("torch"):
        models += [tl.NeuMF, tl.FM, tl.DeepRecommender]
    return models


@pytest.mark.parametrize("objective", [*PROPENSITIES, tl.ExposureMF])
def test_names_of_objectives_with_propensities_are_refused_by_all_models(objective: Any) -> None:
    for model in models_of(objective):
        with pytest.raises(ParameterError, match=r"objective is .*; it must be one of BPO, "):
            model(objective=objective)


@pytest.mark.parametrize("objective", [RelMF, UBPR, UPL])
def test_a_class_with_propensities_is_refused_by_all_models(objective: Any) -> None:
    data, refused = tl.read([(u, i) for u in range(6) for i in range(6) if (u + i) % 3]), 0
    for model in models_of(objective):
        takes = names.is_exact if model is tl.ExactMF else names.is_sampled
        if takes(objective):
            with pytest.raises(
                ParameterError, match=r"an objective gets two arrays and no propensities.*tl\.ExposureMF"
            ):
                model(objective=objective, epochs=1).fit(data, progress=False)
            refused += 1
    assert refused


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("part", ["preference", "flips"])
@pytest.mark.parametrize("value", ["ExposureMF", tl.ExposureMF])
def test_exposure_is_no_network(part: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=f"DeepRecommender: {part} is .*; it must be one of MF, FM"):
        tl.DeepRecommender(**{part: value})


@pytest.mark.parametrize("exposure", PROPENSITIES)
def test_exposure_is_one_of_two_guesses(exposure: str) -> None:
    with pytest.raises(ParameterError, match="it must be 'structured' or 'item'"):
        tl.ExposureMF(exposure=exposure)  # type: ignore[arg-type]
