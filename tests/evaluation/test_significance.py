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
from truelike.errors import DataError, DataWarning, ParameterError
from truelike.evaluation.significance import (
    bootstrap_p_values,
    holm,
    mean_interval,
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


@pytest.mark.parametrize("test", [paired_t, wilcoxon, paired_bootstrap])
def test_equal_values_have_a_p_value_of_1_and_the_order_of_the_models_does_not_matter(test: Any) -> None:
    a, b = pair(4, shift=0.1)
    assert test(a, a) == 1.0
    assert test(a, b) == pytest.approx(test(b, a), abs=1e-12)


def test_the_bootstrap_detects_a_difference_and_agrees_with_the_t_test() -> None:
    assert paired_bootstrap(*pair(0, shift=0.5)) == 1 / 10_001
    a, b = pair(6, 400, 0.04)
    assert paired_bootstrap(a, b) == pytest.approx(paired_t(a, b), abs=0.02)
    assert paired_bootstrap(a, b, seed=3) == paired_bootstrap(a, b, seed=3) != paired_bootstrap(a, b, seed=4)


@pytest.mark.parametrize("n_ones", [0, 1, 20, 39, 40])
def test_the_interval_of_a_share_is_that_of_clopper_and_pearson(n_ones: int) -> None:
    expected = stats.binomtest(n_ones, 40).proportion_ci(0.9)
    found = mean_interval(np.repeat([1.0, 0.0], [n_ones, 40 - n_ones]), confidence=0.9)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_interval_of_values_between_0_and_1_is_nearly_students_with_many_users() -> None:
    values = np.random.default_rng(1).beta(2.0, 5.0, 5_000)
    low, high = mean_interval(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-4)
    assert mean_interval(1 - values) == pytest.approx((1 - high, 1 - low))
    assert mean_interval(values + 1e-14 * (values == values.max())) == pytest.approx((low, high))


def test_the_interval_of_other_values_is_students() -> None:
    values = np.random.default_rng(1).gamma(2.0, size=50)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert mean_interval(values) == pytest.approx((expected.low, expected.high))
    assert mean_interval(-values) == pytest.approx((-expected.high, -expected.low))
    assert mean_interval(np.array([3.0])) == (-np.inf, np.inf)


def test_equal_values_of_few_users_say_little() -> None:
    assert mean_interval(np.full(10, 0.5)) == pytest.approx((0.5 - 0.3085, 0.5 + 0.3085), abs=1e-4)
    assert mean_interval(np.ones(1)) == pytest.approx((0.025, 1.0))


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, float("nan")])
def test_a_wrong_confidence_is_an_error(confidence: float) -> None:
    with pytest.raises(ParameterError, match="confidence is"):
        mean_interval(np.ones(3), confidence=confidence)


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


def test_models_evaluated_under_different_protocols_are_compared_with_a_warning() -> None:
    results = [
        replace(evaluation(name, [0.0, 1.0]), left_out=parts)
        for name, parts in (("A", ("train",)), ("B", ("train", "validation")), ("C", ()))
    ]
    with pytest.warns(DataWarning, match=r"not the same.*A: train, B: train, validation, C: nothing.*seen="):
        tl.compare_means(results, "f1@5")


def test_the_p_value_of_the_bootstrap_does_not_depend_on_the_other_columns() -> None:
    differences = np.random.default_rng(0).normal(0.02, 1.0, (500, 23))
    whole = bootstrap_p_values(differences, resamples=50)
    for columns in ([3], [3, 4], list(range(3, 20))):
        assert bootstrap_p_values(differences[:, columns], resamples=50)[0] == whole[3]


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
