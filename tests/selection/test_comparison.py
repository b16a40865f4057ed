"""The result of a comparison, from figures alone: nothing is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from truelike.selection.comparison import Comparison, ModelResult
from truelike.selection.plan import Plan
from truelike.selection.variants import Variant, variant

USERS = 400


def result(name: str, validation: float, values: Any, measures: tuple[str, ...] = ("ndcg@20",)) -> ModelResult:
    """A model with one final run; `values` are its test figures of each user."""
    record = {
        "test": dict.fromkeys(measures),
        "fit": {"seconds": 2.0, "mb": None},
        "popularity": {"coverage": 0.5},
    }
    of_users = np.tile(np.asarray(values, dtype=float)[:, None], len(measures))
    return ModelResult(Variant(name, variant("ItemPop").model_class), {}, validation, 1, 0.0, [record], of_users)


def comparison(*results: ModelResult) -> Comparison:
    nothing: Any = None
    plan = Plan([each.variant for each in results])
    return Comparison(list(results), plan, nothing, np.zeros(USERS, dtype=int), True)


def measured(name: str, validation: float, values: Any) -> ModelResult:
    return result(name, validation, values, ("ndcg@20", "ndcg@5", "f1@5", "f1@20"))


@pytest.fixture
def values() -> Any:
    return np.random.default_rng(0).random(USERS)


def noise(seed: int, size: float = 0.1) -> Any:
    drawn = np.random.default_rng(seed).normal(0, size, USERS)
    return drawn - drawn.mean()


def test_the_best_model_is_chosen_on_validation_whatever_the_test_part_says(values: Any) -> None:
    found = comparison(
        measured("Winner", 0.3, values + 0.1 + noise(1)),
        measured("Chosen", 0.4, values),
        measured("Close", 0.2, values + 0.001 + noise(2)),
        measured("Level", 0.2, values - 0.001 + noise(3)),
        measured("Worse", 0.1, values - 0.1 + noise(4)),
    )
    assert found.best == "Chosen"
    assert [each.model for each in found.ranked] == ["Winner", "Close", "Chosen", "Level", "Worse"]
    assert found.against_best == {
        "Winner": "above",
        "Chosen": "best",
        "Close": "not distinguishable",
        "Level": "not distinguishable",
        "Worse": "below",
    }
    mean = values.mean()
    assert found.verdict.startswith(
        "Use Chosen on this dataset: it is the best of 5 models on validation (ndcg@20"
    )
    assert found.verdict.endswith(
        f". On the test part Winner is above it ({mean + 0.1:.4f}), significantly; Close is above it "
        f"({mean + 0.001:.4f}), but not significantly; Level is not distinguishable from it; all others are "
        "significantly below it (p < 0.05 after Holm's correction)"
    )


def test_models_that_are_equal_on_validation_are_not_told_apart_by_the_test_part(values: Any) -> None:
    assert comparison(measured("B", 0.3, values + 1), measured("A", 0.3, values)).best == "A"


def test_values_that_are_equal_for_all_users_are_not_above_nor_below(values: Any) -> None:
    found = comparison(measured("A", 0.3, values), measured("B", 0.2, values))
    assert found.against_best["B"] == "not distinguishable"
    assert found.verdict.endswith("On the test part B is not distinguishable from it")
