"""Scores by vectors of one's own, and the vectors of new users."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import truelike as tl
from truelike.core.parallel import one_blas_thread
from truelike.errors import ParameterError
from truelike.models.fold_in import histories_of


def vectors_of(world: Any, factors: int = 5) -> tuple[Any, Any, Any]:
    """Item vectors, and user vectors that follow from them linearly."""
    rng = np.random.default_rng(0)
    items, matrix = rng.normal(size=(world.n_items, factors)), rng.normal(size=(factors, factors))
    seen = (world.matrix > 0).astype(float)
    return seen @ items / np.sqrt(seen.sum(axis=1))[:, None] @ matrix, items, matrix


def test_vectors_of_new_users_are_predicted_as_the_training_users_have_them(world: Any) -> None:
    users, items, matrix = vectors_of(world)
    scorer = tl.DotProductScorer(world, users, items, np.arange(40.0))
    assert_allclose(scorer.history_vectors(world.matrix), users, rtol=2e-3, atol=2e-3)
    history = np.array([3, 8, 21], dtype=np.int32)
    expected = items @ (items[history].sum(axis=0) / np.sqrt(3) @ matrix) + np.arange(40)
    assert_allclose(
        scorer.score_items(histories_of([history], 40), np.arange(40, dtype=np.int32)),
        expected,
        rtol=2e-3,
        atol=2e-3,
    )


def test_the_prediction_does_not_depend_on_blas_threads(world: Any) -> None:
    users, items, _ = vectors_of(world)
    found = tl.DotProductScorer(world, users, items).history_vectors(world.matrix)
    with one_blas_thread():
        again = tl.DotProductScorer(world, users, items).history_vectors(world.matrix)
    assert found.tobytes() == again.tobytes()


def test_vectors_that_are_all_zero_predict_zeros(world: Any) -> None:
    scorer = tl.DotProductScorer(world, np.zeros((60, 4)), np.zeros((40, 4)))
    assert not scorer.history_vectors(world.matrix).any()


@pytest.mark.parametrize(
    ("users", "items", "bias", "message"),
    [
        ((59, 4), (40, 4), 40, r"user_vectors has the shape \(59, 4\); expected \(60, 4\)"),
        ((60, 4), (40, 5), 40, r"item_vectors has the shape \(40, 5\); expected \(40, 4\)"),
        ((60, 4), (40, 4), 60, r"item_bias has the shape \(60,\); expected \(40,\)"),
    ],
)
def test_arrays_of_other_shapes_are_errors_that_say_the_shape(
    world: Any, users: Any, items: Any, bias: int, message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        tl.DotProductScorer(world, np.zeros(users), np.zeros(items), np.zeros(bias))
