"""Which of the two engines a factorization is trained by, what belongs to it, and the values that it brings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truelike import negatives as laws
from truelike import objectives
from truelike.errors import ParameterError
from truelike.models import naming
from truelike.training.recipes import DEFAULT, EXACT, OF_EXACT, OF_SAMPLED, PAPER

if TYPE_CHECKING:
    from truelike.models.factorization import MatrixFactorization


def check(model: MatrixFactorization) -> None:
    """Each of the two engines has parameters and objectives of its own."""
    here, elsewhere = ('"all"', OF_SAMPLED) if model.exact else ("drawn", OF_EXACT)
    given = [name for name in elsewhere if getattr(model, name) is not None]
    if given:
        raise ParameterError(f"{model.name}: {given[0]} has no meaning where negatives are {here}; leave it out")
    if model.exact and model.recipe == "paper":
        raise ParameterError(
            f'{model.name}: the paper\'s recipe draws its negatives; negatives="all" is not of it'
        )
    kind = naming.kind_of(model.objective or model.preset.get("objective"))
    if issubclass(kind, objectives.Pairwise if model.exact else objectives.Listwise):
        need = "a law to draw the second of a pair by" if model.exact else 'negatives="all"'
        raise ParameterError(f"{model.name}: the objective {kind.name} needs {need}")
    if model.unvoted_weight is not None and issubclass(kind, objectives.Listwise):
        raise ParameterError(f"{model.name}: the softmax weighs unvoted items by itself; leave unvoted_weight out")


def recipe_values(model: MatrixFactorization) -> dict[str, Any]:
    """What the parameters are that were not given."""
    if model.exact:
        kind = naming.kind_of(model.objective or model.preset.get("objective") or EXACT["objective"])
        weight = {} if issubclass(kind, objectives.Listwise) else {"unvoted_weight": 1.0}
        # of a preset for drawn negatives only its objective is for all of them, and the other way round
        preset = model.preset if model.preset.get("negatives") == laws.ALL else _objective_of(model)
        return {**EXACT, **weight, "negatives": laws.ALL, **preset}
    if model.recipe == "paper":
        return {
            **DEFAULT,
            **PAPER,
            **{name: model.preset[name] for name in ("objective", "negatives") if model.preset},
        }
    preset = _objective_of(model) if model.preset.get("negatives") == laws.ALL else model.preset
    return {**DEFAULT, **preset}


def _objective_of(model: MatrixFactorization) -> dict[str, Any]:
    return {"objective": model.preset["objective"]} if model.preset else {}
