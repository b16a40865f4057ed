"""Random numbers depend on their key and counter only, and are uniform and independent."""

import numpy as np
import pytest
from scipy import stats

from truelike.core import randomness

STREAMS = [(0, "a"), (0, "b"), (1, "a"), (2**63, "a"), (-1, "a"), (0, "a", 1), (0, "a", 2)]


def test_numbers_are_the_same_on_every_machine() -> None:
    assert randomness.key(0, "split", "random") == 3050720014124282040
    assert randomness.bits(7, np.arange(2)).tolist() == [9672475392221035855, 13309476754707697221]
    assert randomness.uniform(3, np.array([0, 10**12])).tolist() == [0.8153614054155671, 0.016916871655734744]


def test_a_number_does_not_depend_on_the_other_counters() -> None:
    counters = np.array([5, 0, 10**15, 5], dtype=np.int64)
    asked = randomness.bits(11, counters)
    assert asked.tolist() == [int(randomness.bits(11, counters[n : n + 1])[0]) for n in range(4)]
    assert asked.tolist() == randomness.bits(11, counters.astype(np.uint64)).tolist()


def test_streams_differ_and_are_uncorrelated() -> None:
    keys = [randomness.key(int(stream[0]), *stream[1:]) for stream in STREAMS]
    assert len(set(keys)) == len(STREAMS)
    numbers = np.array([randomness.uniform(key, np.arange(100_000)) for key in keys])
    correlations = np.corrcoef(numbers)[np.triu_indices(len(keys), 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(100_000)


def test_numbers_of_neighbouring_seeds_are_unrelated() -> None:
    first = [randomness.bits(randomness.key(seed, "x"), np.zeros(1, dtype=np.int64))[0] for seed in range(4_000)]
    bits = np.unpackbits(np.array(first, dtype=np.uint64).view(np.uint8)).reshape(4_000, 64)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(4_000)


def test_normal_numbers_are_normal() -> None:
    numbers = randomness.normal(randomness.key(0, "normal"), np.arange(100_000))
    assert stats.kstest(numbers, "norm").pvalue > 1e-4


@pytest.mark.parametrize("extreme", [0.0, 1 - 2.0**-53])
def test_the_normal_of_the_most_extreme_number_is_finite(monkeypatch: pytest.MonkeyPatch, extreme: float) -> None:
    monkeypatch.setattr(randomness, "uniform", lambda key, counters: np.full(len(counters), extreme))
    assert np.isfinite(randomness.normal(0, np.arange(3))).all()
