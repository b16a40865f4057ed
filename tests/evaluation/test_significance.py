"""Bootstrap intervals, paired tests, Holm's correction and `compare_means`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats

import truelike as tl
from truelike.errors import DataError, ParameterError
from truelike.evaluation.significance import (
    bootstrap_interval,
    bootstrap_means,
    holm,
    paired_bootstrap,
    paired_t,
    wilcoxon,
)


def pair(seed: int, n: int = 80, shift: float = 0.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    a = rng.gamma(1.0, size=n)
    return a, a + rng.normal(0, 0.5, size=n) + shift


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("n", [2, 3, 80, 2_000])
def test_the_t_test_agrees_with_scipy(n: int, shift: float) -> None:
    a, b = pair(n, n, shift)
    assert paired_t(a, b) == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-9)


def test_the_t_test_of_a_difference_that_is_equal_for_all_users_has_a_p_value_of_0() -> None:
    assert paired_t(np.array([1.0, 0.5, 0.25]), np.array([0.5, 0.0, -0.25])) == 0.0


@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_wilcoxon_is_that_of_scipy_with_the_zeros_ranked_and_left_out(shift: float) -> None:
    a, b = pair(1, 300, shift)
    b[:100] = a[:100]
    assert wilcoxon(a, b) == stats.wilcoxon(a, b, zero_method="pratt").pvalue
    assert wilcoxon(a, b) != stats.wilcoxon(a, b).pvalue


def test_wilcoxon_rejects_as_often_as_its_level_where_most_differences_are_zero() -> None:
    """300 comparisons of equal models: 5 % are 15, within 3 standard errors; with `zsplit` there would be 3."""
    rng = np.random.default_rng(0)
    differences = rng.normal(size=(300, 100)) * (rng.random((300, 100)) < 0.25)
    rejected = sum(wilcoxon(each, np.zeros(100)) < 0.05 for each in differences)
    assert 5 <= rejected <= 26


@pytest.mark.parametrize("test", [paired_t, wilcoxon, paired_bootstrap])
def test_equal_values_have_a_p_value_of_1_and_the_order_of_the_models_does_not_matter(test: Any) -> None:
    a, b = pair(4, shift=0.1)
    assert test(a, a) == 1.0
    assert test(a, b) == pytest.approx(test(b, a), abs=1e-12)


def test_without_a_difference_the_bootstrap_rejects_about_as_often_as_its_level() -> None:
    p = np.array([paired_bootstrap(*pair(seed), resamples=200) for seed in range(250)])
    assert 0.02 < (p < 0.05).mean() < 0.10
    assert 0.40 < (p < 0.50).mean() < 0.60


def test_the_bootstrap_detects_a_difference_and_agrees_with_the_t_test() -> None:
    assert paired_bootstrap(*pair(0, shift=0.5)) == 1 / 10_001
    a, b = pair(6, 400, 0.04)
    assert paired_bootstrap(a, b) == pytest.approx(paired_t(a, b), abs=0.02)
    assert paired_bootstrap(a, b, seed=3) == paired_bootstrap(a, b, seed=3) != paired_bootstrap(a, b, seed=4)


@pytest.mark.parametrize(
    "wrong", [{"confidence": each} for each in (0.0, 1.0, 95, float("nan"))] + [{"resamples": 0}]
)
def test_a_wrong_confidence_or_number_of_samples_is_an_error(wrong: Any) -> None:
    with pytest.raises(ParameterError, match=f"{next(iter(wrong))} is"):
        bootstrap_interval(np.ones((3, 1)), **wrong)


def test_a_hand_computed_holm_correction() -> None:
    """Sorted .005 .01 .03 .04: times 4, 3, 2, 1 is .02 .03 .06 .04, and the last may not fall below .06."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


def evaluation(name: str, values: Any, users: Any = None, library: Any = "polars") -> tl.Evaluation:
    values = np.asarray(values, dtype=float)
    users = pl.Series(range(len(values)) if users is None else users)
    return tl.Evaluation(name, users, {"f1@5": values}, {"coverage@5": 0.5}, library)


@pytest.fixture
def three() -> list[tl.Evaluation]:
    rng = np.random.default_rng(0)
    base = rng.random(100)
    return [
        evaluation("A", base),
        evaluation("B", base + rng.normal(0.2, 0.1, 100)),
        evaluation("C", base + rng.normal(0.0, 0.1, 100)),
    ]


@pytest.mark.parametrize("test", ["t", "wilcoxon", "bootstrap"])
def test_all_pairs_are_compared_and_corrected_together(three: list[tl.Evaluation], test: Any) -> None:
    frame = tl.compare_means(three, "f1@5", test=test)
    assert frame.columns == ["model", "other", "measure", "difference", "relative", "p", "p_holm"]
    assert list(zip(frame["model"], frame["other"], strict=True)) == [("A", "B"), ("A", "C"), ("B", "C")]
    assert frame["p_holm"].to_list() == holm(frame["p"].to_list())
    assert frame["difference"][0] == pytest.approx(three[0]["f1@5"] - three[1]["f1@5"])
    assert frame["relative"][0] == pytest.approx(frame["difference"][0] / three[1]["f1@5"])
    assert frame["p_holm"][0] < 0.01 < frame["p_holm"][1]


def test_against_one_model_the_others_come_first_and_only_they_are_corrected(
    three: list[tl.Evaluation],
) -> None:
    frame = tl.compare_means([replace(result, library="pandas") for result in three], "f1@5", against="A")
    assert isinstance(frame, pd.DataFrame)
    assert list(zip(frame["model"], frame["other"], strict=True)) == [("B", "A"), ("C", "A")]
    assert frame["difference"][0] > 0
    assert frame["p_holm"].to_list() == holm(frame["p"].to_list())


def test_a_mean_of_zero_has_no_relative_difference() -> None:
    frame = tl.compare_means([evaluation("A", [0.1, 0.2]), evaluation("B", [0.0, 0.0])], "f1@5")
    assert np.isnan(frame["relative"][0])
    assert frame["difference"][0] == pytest.approx(0.15)


def test_models_evaluated_on_different_users_cannot_be_compared(three: list[tl.Evaluation]) -> None:
    for users in (range(1, 101), range(99)):
        other = evaluation("D", np.ones(len(users)), users=users)
        with pytest.raises(DataError, match="not evaluated on the same users"):
            tl.compare_means([*three, other], "f1@5")


def test_evaluations_with_the_same_name_get_a_number() -> None:
    results = [evaluation(name, [0.0, 1.0]) for name in ("A", "A", "B", "A")]
    table = tl.compare_means(results, "f1@5", against="A (3)")
    assert table["model"].to_list() == ["A", "A (2)", "B"]
    assert set(table["other"]) == {"A (3)"}


def test_a_bootstrap_mean_does_not_depend_on_the_other_columns() -> None:
    values = np.random.default_rng(0).random((500, 23))
    whole = bootstrap_means(values, resamples=50)
    for columns in ([3], [3, 4], list(range(3, 20))):
        assert bootstrap_means(values[:, columns], resamples=50)[:, 0].tobytes() == whole[:, 3].tobytes()


@pytest.mark.parametrize(
    ("names", "users", "options", "words"),
    [
        ("AB", 1, {}, "only one user"),
        ("A", 2, {}, "two or more evaluations"),
        ("", 2, {}, "two or more evaluations"),
        ("AB", 2, {"measure": "f1@7"}, "f1@7.*not measured per user.*available: f1@5"),
        ("AB", 2, {"measure": "coverage@5"}, "coverage@5.*not measured per user.*available: f1@5"),
        ("AB", 2, {"test": "z"}, "test is 'z'; it must be one of t, wilcoxon, bootstrap"),
        ("AB", 2, {"against": "Z"}, "against is 'Z'; it must be one of A, B"),
    ],
)
def test_what_cannot_be_compared_is_an_error(names: str, users: int, options: Any, words: str) -> None:
    results = [evaluation(name, np.arange(users)) for name in names]
    with pytest.raises((DataError, ParameterError), match=words):
        tl.compare_means(results, **{"measure": "f1@5", **options})
