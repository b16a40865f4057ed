"""The tests reject, and the intervals contain the truth, as often as documented: a part of the simulations."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

pytestmark = pytest.mark.slow
RARE = 1e-5  # probability that a procedure with the stated rate is outside of the bounds

# procedure, world, models, n, repetitions, size (from, to), least power
TESTS: list[tuple[str, str, int | None, int, int, tuple[float, float], float]] = [
    ("paired t", "equal models", None, 500, 2_000, (0.05, 0.05), 0.5),
    ("paired t", "heavy tails", None, 6_000, 500, (0.05, 0.05), 0.1),
    ("paired t", "skewness -1.8", None, 6_000, 500, (0.05, 0.05), 0.5),
    ("Wilcoxon", "equal models", None, 500, 1_000, (0.05, 0.05), 0.5),
    ("Wilcoxon", "heavy tails", None, 50, 1_000, (0.05, 0.05), 0.03),
    ("paired bootstrap", "equal models", None, 500, 1_000, (0.05, 0.05), 0.5),
    ("compare_means", "equal models", 2, 500, 500, (0.05, 0.05), 0.5),
    ("compare_means", "equal models", 15, 500, 200, (0.02, 0.05), 0.1),
    ("compare", "equal models", 2, 500, 500, (0.05, 0.05), 0.5),
    ("compare", "equal models", 15, 500, 500, (0.03, 0.06), 0.3),
    ("AutoRecommender", "equal models", 2, 500, 500, (0.2, 0.2), 0.8),
    ("AutoRecommender", "equal models", 15, 500, 500, (0.0, 0.05), 0.3),
    ("exposure follows tastes", "it follows users and items", None, 500, 100, (0.0, 0.001), 0.7),
    ("paper, best value", "equal values", 5, 10, 500, (0.01, 0.025), 0.8),
    ("ranks, all pairs", "equal models", 3, 3, 500, (0.01, 0.05), 0.0),
    ("ranks, all pairs", "equal models", 8, 5, 500, (0.03, 0.05), 0.05),
    ("ranks, all pairs", "equal models", 5, 12, 500, (0.03, 0.05), 0.6),
    ("ranks, all pairs", "equal models beside one that is always best", 5, 12, 500, (0.0, 0.02), 0.2),
    ("ranks, Friedman", "equal models", 5, 5, 500, (0.03, 0.05), 0.4),
]
# procedure, world, n, repetitions, coverage (from, to)
INTERVALS = [
    ("mean", "NDCG, a quarter has a hit", 500, 2_000, (0.95, 0.96)),
    ("mean", "NDCG, 1 % have a hit", 500, 2_000, (0.95, 0.96)),
    ("mean", "hit rate 2 %", 50, 2_000, (0.97, 0.99)),
    ("mean", "hit rate 2 %", 500, 2_000, (0.95, 0.98)),
    ("mean", "hit rate 98 %", 50, 2_000, (0.97, 0.99)),
    ("mean", "hit rate 98 %", 500, 2_000, (0.95, 0.98)),
    ("mean", "recall, half is zero", 500, 2_000, (0.95, 0.96)),
    ("mean", "heavy tails", 6_000, 300, (0.94, 0.96)),
    ("mean", "novelty, in bits", 500, 2_000, (0.95, 0.95)),
    ("weighted by propensities", "weights differ little", 500, 1_000, (0.95, 0.96)),
    ("weighted by propensities", "weights differ much", 500, 1_000, (0.95, 0.95)),
    ("miss rate", "one item", 6_000, 200, (0.94, 0.96)),
    ("miss rate", "50 items", 6_000, 200, (0.95, 0.98)),
    ("gain over seeds", "equal models", 10, 2_000, (0.95, 0.97)),
]


@pytest.fixture(scope="module")
def study() -> Any:
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    try:
        yield importlib.import_module("error_rates")
    finally:
        sys.path.pop(0)


def within(rate: float, repetitions: int, rates: tuple[float, float]) -> bool:
    low, high = rates
    least, most = stats.binom.ppf(RARE, repetitions, low), stats.binom.isf(RARE, repetitions, high)
    return bool(least <= round(rate * repetitions) <= most)


def cell_of(cells: Any, *name: Any) -> Any:
    [found] = [cell for cell in cells if (cell.procedure, cell.world, cell.models)[: len(name)] == name]
    return found


def test_all_procedures_are_simulated(study: Any) -> None:
    assert {row[0] for row in TESTS} == {cell.procedure for cell in study.TESTS}
    assert {row[:2] for row in INTERVALS} == {(cell.procedure, cell.world) for cell in study.INTERVALS}


@pytest.mark.parametrize(("procedure", "world", "models", "n", "repetitions", "size", "power"), TESTS)
def test_a_test_rejects_as_often_as_it_says(
    study: Any,
    procedure: str,
    world: str,
    models: int | None,
    n: int,
    repetitions: int,
    size: tuple[float, float],
    power: float,
) -> None:
    found = study.simulated(cell_of(study.TESTS, procedure, world, models), n, repetitions)
    assert within(found["size"], repetitions, size), found
    assert found["power"] >= power, found


@pytest.mark.parametrize(("procedure", "world", "n", "repetitions", "coverage"), INTERVALS)
def test_an_interval_contains_the_truth_as_often_as_it_says(
    study: Any, procedure: str, world: str, n: int, repetitions: int, coverage: tuple[float, float]
) -> None:
    found = study.simulated(cell_of(study.INTERVALS, procedure, world), n, repetitions)
    assert within(found["coverage"], repetitions, coverage), found


def test_the_values_have_the_stated_properties(study: Any) -> None:
    rng = np.random.default_rng(0)
    validation, test = study.models(rng, (200_000,), 2)
    assert np.corrcoef(test)[0, 1] == pytest.approx(0.9, abs=0.01)
    assert (test[0] == test[1]).mean() == pytest.approx(0.75, abs=0.01)
    assert np.corrcoef(validation[0] - validation[1], test[0] - test[1])[0, 1] == pytest.approx(0.05, abs=0.02)
    better = study.models(rng, (200_000,), 2, study.BETTER)[1].mean(axis=1)
    assert better[1] / better[0] == pytest.approx(1.1, abs=0.02)
    for draw, mean in study.MEANS.values():
        values = draw(rng, (1_000_000,))
        assert values.mean() == pytest.approx(mean, abs=5 * values.std() / 1_000)
