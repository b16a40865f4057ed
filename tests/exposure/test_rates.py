from typing import Any

import numpy as np
import pytest

from truelike.errors import ParameterError
from truelike.exposure.rates import ExposureRates
from truelike.exposure.shown_pairs import CERTAIN

RATES = ExposureRates(np.array([0.5, 2.0, 0.0]), np.array([0.0, 0.1, 1.0, 80.0]))
SHOWN = 1 - np.exp(-np.outer([0.5, 2.0, 0.0], [0.0, 0.1, 1.0, 80.0]))


def test_golden_values() -> None:
    assert np.allclose(RATES.propensity([0, 1], [2, 1]), SHOWN[[0, 1], [2, 1]], rtol=1e-6)
    assert RATES.user.dtype == RATES.item.dtype == np.float32
    assert np.allclose(RATES.exposed_users(), SHOWN.sum(axis=0))
    assert np.allclose(1 / (1 + np.exp(RATES.average_logits())), SHOWN.mean(axis=0), atol=1e-6)


def test_flip_logits_are_those_of_never_shown() -> None:
    logits = RATES.dense_logits([0, 1, 2])
    assert logits.dtype == np.float32
    assert np.allclose(1 / (1 + np.exp(-logits.astype(np.float64))), 1 - SHOWN, atol=1e-6)
    assert (logits.min(), logits.max()) == (-CERTAIN, CERTAIN)


def test_it_is_saved_and_restored() -> None:
    again = ExposureRates.restored(RATES.arrays(), (3, 4))
    assert again is not None
    assert np.array_equal(again.dense_logits([0, 1, 2]), RATES.dense_logits([0, 1, 2]))
    assert ExposureRates.restored({}, (3, 4)) is None
    with pytest.raises(ValueError, match="3 users and 4 items"):
        ExposureRates.restored(RATES.arrays(), (3, 5))
    with pytest.raises(ValueError, match="other types"):
        ExposureRates.restored(RATES.arrays() | {"exposure.user": np.ones(3)}, (3, 4))


@pytest.mark.parametrize("wrong", [np.array([-1.0]), np.array([np.nan]), np.ones((2, 2))])
def test_wrong_rates_are_rejected(wrong: Any) -> None:
    with pytest.raises(ParameterError, match="user rates"):
        ExposureRates(wrong, np.ones(2))
