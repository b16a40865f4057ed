from typing import Any

import numpy as np
import pytest

from truelike.errors import ParameterError
from truelike.training.exposure.rates import CERTAIN, ExposureRates

RATES = ExposureRates(np.array([0.5, 2.0, 0.0]), np.array([0.0, 0.1, 1.0, 80.0]), "assumed: a test")


def test_golden_values() -> None:
    expected = 1 - np.exp(-np.outer([0.5, 2.0, 0.0], [0.0, 0.1, 1.0, 80.0]))
    assert np.allclose(RATES.propensity_block([0, 1, 2]), expected, rtol=1e-6)
    assert np.allclose(RATES.propensity([0, 1], [2, 1]), expected[[0, 1], [2, 1]], rtol=1e-6)
    assert RATES.user.dtype == RATES.item.dtype == np.float32


def test_flip_logits_are_those_of_never_shown() -> None:
    logits = RATES.flip_logits([0, 1, 2])
    assert logits.dtype == np.float32
    assert np.allclose(
        1 / (1 + np.exp(-logits.astype(np.float64))), 1 - RATES.propensity_block([0, 1, 2]), atol=1e-6
    )
    assert logits.max() == CERTAIN
    assert logits.min() == -CERTAIN
    assert np.array_equal(RATES.flip_logits([1, 0], [2, 1]), logits[[1, 0], [2, 1]])


def test_clipped_propensities_have_a_floor() -> None:
    clipped = RATES.clipped(0.2)
    assert np.allclose(clipped.propensity_block([0, 1, 2]), np.maximum(RATES.propensity_block([0, 1, 2]), 0.2))
    assert np.allclose(clipped.flip_logits([2]), np.log(0.8 / 0.2))
    assert clipped.clipped(0.1).least == 0.2
    assert np.isclose(-np.expm1(-clipped.least_rate), 0.2)


def test_it_answers_as_known_flips_do() -> None:
    clipped = RATES.clipped(0.05)
    logits = clipped.dense_logits([0, 1, 2])
    out = np.empty((2, 2), dtype=np.float32)
    clipped.fill(out, [2, 1], 1)
    assert np.array_equal(out, logits[[2, 1], 1:3])
    few = clipped.among([1, 0], [3, 1])
    assert np.array_equal(few.dense_logits([0, 1]), logits[[1, 0]][:, [3, 1]])
    assert np.array_equal(clipped.among([1], None).dense_logits([0]), logits[[1]])
    shown = clipped.propensity_block([0, 1, 2])
    assert np.allclose(clipped.exposed_users(), shown.sum(axis=0))
    assert np.allclose(1 / (1 + np.exp(clipped.average_logits())), shown.mean(axis=0), atol=1e-6)
    wider = clipped.reindexed(np.array([0, 2, 3]), np.array([1, 2, 3, 4]), (4, 5))
    assert np.array_equal(wider.dense_logits([0, 2, 3])[:, 1:], logits)
    assert np.isclose(wider.user[1], RATES.user.mean())


def test_it_is_saved_and_restored() -> None:
    clipped = RATES.clipped(0.1)
    again = ExposureRates.restored(clipped.arrays(), (3, 4))
    assert again is not None
    assert (again.basis, again.least, again.digest()) == ("assumed: a test", 0.1, clipped.digest())
    assert np.array_equal(again.dense_logits([0, 1, 2]), clipped.dense_logits([0, 1, 2]))
    assert clipped.digest() != RATES.digest()
    assert ExposureRates.restored({}) is None
    with pytest.raises(ValueError, match="3 users and 4 items"):
        ExposureRates.restored(clipped.arrays(), (3, 5))
    with pytest.raises(ValueError, match="types or shapes"):
        ExposureRates.restored(clipped.arrays() | {"exposure.user": np.ones(3)})


@pytest.mark.parametrize("wrong", [np.array([-1.0]), np.array([np.nan]), np.ones((2, 2))])
def test_wrong_rates_are_rejected(wrong: Any) -> None:
    with pytest.raises(ParameterError, match="user rates"):
        ExposureRates(wrong, np.ones(2), "")
    with pytest.raises(ParameterError, match="least propensity"):
        ExposureRates(np.ones(2), np.ones(2), "", least=1.0)
