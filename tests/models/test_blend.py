"""A blend is the weighted sum of two models' normalised scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import truelike as tl
from truelike.errors import ParameterError
from truelike.models.blend import normalise

SETTING: dict[str, Any] = {"first": "IALS:factors=8:epochs=3", "second": "ItemKNN:neighbors=20", "weight": 0.3}


@pytest.fixture(scope="module")
def data() -> Any:
    return tl.synthetic.World(n_users=150, n_items=80).dataset()


@pytest.fixture(scope="module")
def blend(data: Any) -> Any:
    return tl.Blend(**SETTING).fit(data, progress=False)


def scaled(scores: Any) -> Any:
    return (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)


def test_scores_are_the_weighted_sum_of_normalised_scores(blend: Any, data: Any) -> None:
    one = tl.IALS(factors=8, epochs=3).fit(data, progress=False)
    two = tl.ItemKNN(neighbors=20).fit(data)
    users = np.arange(20, dtype=np.int32)
    expected = 0.7 * scaled(one.scorer.score_users(users)) + 0.3 * scaled(two.scorer.score_users(users))
    assert_allclose(blend.scorer.score_users(users), expected, atol=1e-5)


@pytest.mark.parametrize(("weight", "name"), [(0.0, "first"), (1.0, "second")])
def test_at_the_ends_it_ranks_as_one_of_the_two(data: Any, weight: float, name: str) -> None:
    model = tl.Blend(first="IALS:factors=8:epochs=3", second="EASE", weight=weight).fit(data, progress=False)
    alone = getattr(model, f"{name}_")
    assert model.recommend(k=5)["item_id"].to_list() == alone.recommend(k=5)["item_id"].to_list()


def test_the_models_get_its_seed_and_threads_unless_they_are_given(data: Any) -> None:
    parts = tl.Blend(first="IALS:seed=5", second="SoftmaxMF", seed=7, n_jobs=1)._parts()
    assert (parts["first"].seed, parts["second"].seed) == (5, 7)
    assert parts["first"].n_jobs == parts["second"].n_jobs == 1


def test_partial_fit_updates_both(data: Any) -> None:
    model = tl.Blend(**SETTING).fit(data, progress=False)
    model.partial_fit([(10_000, 3), (10_000, 5)], epochs=1, progress=False)
    assert model.recommend(10_000, k=3).height == 3
    assert model.first_.train_.n_users == model.second_.train_.n_users == data.n_users + 1


@pytest.mark.parametrize("name", ["Blend", "AutoRecommender", "FM", "Nothing", "IALS:wings=2", "", 3, None])
def test_what_cannot_be_blended_is_an_error(name: Any) -> None:
    with pytest.raises(ParameterError, match="first is"):
        tl.Blend(first=name)


def test_a_wrong_value_of_a_part_is_an_error_of_fit(data: Any) -> None:
    with pytest.raises(ParameterError, match="factors is -3"):
        tl.Blend(first="IALS:factors=-3").fit(data)


def test_a_row_without_a_finite_score_becomes_zeros() -> None:
    scores = np.full((1, 3), -np.inf, dtype=np.float32)
    normalise(scores)
    assert scores.tolist() == [[0.0, 0.0, 0.0]]


def test_weights_count_if_they_do_in_a_part(recwarn: pytest.WarningsRecorder) -> None:
    repeated = tl.read(
        [(u, i) for u in range(30) for i in range(8) if (u * i) % 3 for _ in range(1 + (u + i) % 3)]
    )
    tl.Blend(first="IALS:weighting=log:factors=4", second="ItemKNN").fit(repeated, progress=False)
    assert not [each for each in recwarn if "weight" in str(each.message)]


def test_a_part_without_partial_fit_is_named() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    data = tl.synthetic.World(n_users=60, n_items=30).dataset()
    model = tl.Blend(first="NeuMF:epochs=1", second="ItemPop").fit(data, progress=False)
    with pytest.raises(ParameterError, match="NeuMF has no partial_fit"):
        model.partial_fit([(1, 2)], progress=False)
