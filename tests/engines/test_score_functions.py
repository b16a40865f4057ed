"""A score function's map of gradients is the transposed Jacobian of its map of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from truelike.engines.score_functions import Cosine, Dot

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("score", [Dot(), Cosine(1.0), Cosine(0.07)])
def test_the_gradient_is_that_of_finite_differences(score: Any) -> None:
    table, weights = RNG.normal(size=(4, 5)), RNG.normal(size=(4, 5))
    expected = np.zeros_like(table)
    for place in np.ndindex(table.shape):
        ends = [table + move * (np.arange(20).reshape(4, 5) == place[0] * 5 + place[1]) for move in (-1e-6, 1e-6)]
        below, above = ((weights * score.rows(end)).sum() for end in ends)
        expected[place] = (above - below) / 2e-6
    assert_allclose(score.gradient(table, weights), expected, atol=1e-7)


def test_the_dot_product_of_rows_is_the_cosine_over_the_temperature() -> None:
    u, v = RNG.normal(size=(2, 6))
    score = Cosine(0.05)
    expected = u @ v / np.linalg.norm(u) / np.linalg.norm(v) / 0.05
    assert_allclose(score.rows(u) @ score.rows(v), expected)
    assert score.rows(u.astype(np.float32)).dtype == np.float32


def test_a_row_of_zeros_stays_finite() -> None:
    zeros = np.zeros((1, 3), dtype=np.float32)
    assert not Cosine(0.1).rows(zeros).any()
    assert np.isfinite(Cosine(0.1).gradient(zeros, np.ones((1, 3), dtype=np.float32))).all()
