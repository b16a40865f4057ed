"""Ranks of models over datasets, and the test of them."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from truelike.errors import ParameterError
from truelike.evaluation.ranks import RankTest, friedman, ranks_of


def figures(seed: int, n: int, k: int, shift: float = 0.0) -> Any:
    return np.random.default_rng(seed).random((n, k)) + shift * np.arange(k)


@pytest.mark.parametrize("ties", [False, True])
def test_friedman_s_statistic_is_that_of_scipy(ties: bool) -> None:
    values = figures(1, 12, 5, 0.1)
    if ties:
        values = values.round(1)
    assert friedman(ranks_of(values)) == pytest.approx(stats.friedmanchisquare(*values.T).statistic, rel=1e-12)
    assert friedman(ranks_of(np.ones((4, 3)))) == 0.0


def test_the_p_values_of_few_datasets_are_those_of_all_orders() -> None:
    values = np.array([[0.5, 0.3, 0.1], [0.6, 0.2, 0.3], [0.5, 0.4, 0.3]])
    ranks = ranks_of(values)
    orders = [np.sum(each, axis=0) for each in product(permutations((1.0, 2.0, 3.0)), repeat=3)]
    found = RankTest.of(values)
    statistics = [((order - 6) ** 2).sum() for order in orders]
    expected = np.mean(np.array(statistics) >= ((ranks.sum(axis=0) - 6) ** 2).sum())
    assert found.p == pytest.approx(expected, abs=0.01)
    spreads = np.array([np.ptp(order) for order in orders])
    for a, b in ((0, 1), (0, 2), (1, 2)):
        expected = np.mean(spreads >= abs(ranks[:, a].sum() - ranks[:, b].sum()))
        assert found.p_of_pairs[a, b] == found.p_of_pairs[b, a] == pytest.approx(expected, abs=0.01)
    assert np.diag(found.p_of_pairs).tolist() == [1.0, 1.0, 1.0]


def test_the_p_values_of_many_datasets_are_those_of_friedman_and_nemenyi_by_scipy() -> None:
    n, k = 60, 4
    values = figures(3, n, k, 0.06)
    found = RankTest.of(values)
    assert found.p == pytest.approx(stats.friedmanchisquare(*values.T).pvalue, abs=0.01)
    deviation = np.sqrt(k * (k + 1) / (6 * n))
    q = np.abs(found.mean_ranks[:, None] - found.mean_ranks) * np.sqrt(2) / deviation
    nemenyi = stats.studentized_range.sf(q, k, np.inf)
    assert 0.001 < nemenyi.min() < 0.3, "the case is one in which p-values differ"
    assert found.p_of_pairs == pytest.approx(nemenyi, abs=0.04)  # sums of ranks are whole, its distribution is not
    critical = stats.studentized_range.isf(0.05, k, np.inf) / np.sqrt(2) * deviation
    assert found.critical_difference == pytest.approx(critical, abs=1.5 / n)


@pytest.mark.parametrize(("n", "k"), [(3, 2), (3, 3), (4, 3), (6, 2)])
def test_the_smallest_p_value_is_that_of_the_same_order_on_all_datasets(n: int, k: int) -> None:
    found = RankTest.of(np.tile(np.arange(float(k)), (n, 1)))
    assert found.p_of_pairs.min() == pytest.approx(found.smallest_p, abs=0.01)
    assert (found.critical_difference is None) == (found.smallest_p > 0.05)


def test_a_pair_is_significant_from_the_critical_difference_on() -> None:
    found = RankTest.of(figures(5, 8, 5, 0.2))
    differences = np.abs(found.mean_ranks[:, None] - found.mean_ranks)
    assert found.critical_difference is not None
    significant = found.p_of_pairs < 0.05
    assert significant.any()
    assert not significant.all()
    assert np.array_equal(significant, differences >= found.critical_difference)


def test_equal_models_are_not_told_apart_and_a_seed_decides_the_draws() -> None:
    equal = RankTest.of(np.ones((5, 3)))
    assert (equal.p, equal.p_of_pairs.min(), equal.critical_difference) == (1.0, 1.0, None)
    values = figures(7, 5, 4)
    assert RankTest.of(values, seed=3).p == RankTest.of(values, seed=3).p != RankTest.of(values, seed=4).p


@pytest.mark.parametrize("shape", [(2, 5), (3, 1)])
def test_too_few_datasets_or_models_are_an_error(shape: tuple[int, int]) -> None:
    with pytest.raises(ParameterError, match="needs 3 datasets and 2 models"):
        RankTest.of(np.zeros(shape))
