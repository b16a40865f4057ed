"""The result of a comparison, from figures alone: nothing is trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.report.test_latex import check

import truelike as tl
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


def with_seeds(result: ModelResult, means: list[float]) -> ModelResult:
    """The same result of several final runs, whose means of the metric on test are given."""
    return replace(result, records=[{**result.records[0], "test": {"ndcg@20": mean}} for mean in means])


def test_the_deviation_over_seeds_is_that_of_the_means(values: Any) -> None:
    seeded = with_seeds(measured("A", 0.3, values), [0.1, 0.2, 0.4])
    assert seeded.deviation("ndcg@20") == pytest.approx(np.std([0.1, 0.2, 0.4], ddof=1))
    assert measured("B", 0.3, values).deviation("ndcg@20") is None


def test_latex_has_the_names_the_highest_in_bold_and_marks_with_a_note(values: Any) -> None:
    found = comparison(
        measured("BPR, 5% & more_negatives", 0.3, values + 0.2 + noise(1)),
        measured("Chosen", 0.4, values),
        measured("Worse", 0.1, values - 0.2 + noise(4)),
    )
    found.split = tl.Split([("ann", "tea")])
    text = found.to_latex()
    check(text)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")][1:]
    assert rows[0].startswith(rf"BPR, 5\% \& more\_negatives & \textbf{{{values.mean() + 0.2:.4f}}}$^\uparrow$ &")
    assert rows[1].startswith(rf"Chosen & {values.mean():.4f}$^\ast$ &")
    assert rows[2].startswith(rf"Worse & {values.mean() - 0.2:.4f}$^\downarrow$ &")
    assert "paired $t$-test over users" in text
    assert "deviation" not in text, "there is one run of each"
