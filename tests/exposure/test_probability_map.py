"""From scores to probabilities: Platt's map and the isotonic one, against other ways to compute them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit, logit

from truelike.exposure.calibration import LEAST_OF_ISOTONIC, SLOPE, ProbabilityMap


def sample(n: int, probability: Any, seed: int = 0, spread: float = 2.0) -> tuple[Any, Any]:
    """Scores, and labels with a probability that is a function of the score."""
    rng = np.random.default_rng(seed)
    r = rng.normal(scale=spread, size=n)
    return r, rng.random(n) < probability(r)


@pytest.mark.parametrize("seed", range(3))
def test_the_isotonic_map_is_that_of_pooled_adjacent_violators(seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, y = sample(300, lambda r: np.where(r > 0, 0.7, 0.2), seed)
    seen, w = rng.uniform(0.3, 1.0, 300), rng.uniform(0.5, 2.0, 300)
    found = ProbabilityMap._of_kind("isotonic", r, y.astype(float), seen, w)
    order = np.argsort(r)
    expected = isotonic_regression((y / seen)[order], weights=(w * seen)[order])
    assert len(found.x) == len(expected.blocks) - 1
    for x, start, end in zip(found.x, expected.blocks, expected.blocks[1:], strict=False):
        mine, mean = order[start:end], expected.x[start]
        assert x == pytest.approx(np.average(r[mine], weights=(w * seen)[mine]))
        flat = found.logits(np.array([x]))[0] - SLOPE * (x - found.x[0])
        assert expit(flat) == pytest.approx(np.clip(mean, 0.5 / 300, 1 - 0.5 / 300), abs=1e-9)


@pytest.mark.parametrize("noticed", [1.0, 0.4])
def test_platts_map_has_the_smallest_loss(noticed: float) -> None:
    rng = np.random.default_rng(1)
    r, y = sample(2_000, lambda r: noticed * expit(0.6 * r - 1))
    seen, w = np.full(2_000, noticed), rng.uniform(0.5, 2.0, 2_000)

    def loss(at: Any) -> float:
        p = np.clip(seen * expit(at[0] * r + at[1]), 1e-12, 1 - 1e-12)
        return float(-(w * (y * np.log(p) + (1 - y) * np.log1p(-p))).sum() + 0.5e-3 * (at[0] - 1) ** 2)

    best = minimize(loss, [1.0, 0.0], method="BFGS").x
    found = ProbabilityMap._of_kind("platt", r, y.astype(float), seen, w)
    assert_allclose([found.y[1] - found.y[0], found.y[0]], best, atol=2e-4)
    assert_allclose(found(r), expit(best[0] * r + best[1]), atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "probability"),
    [
        ("platt", lambda r: expit(0.4 * r - 1.5)),
        ("isotonic", lambda r: np.where(np.abs(r) < 1, 0.5, np.where(r > 0, 0.6, 0.02))),
    ],
)
def test_the_kind_is_chosen_by_the_loss_on_pairs_that_were_held_out(kind: str, probability: Any) -> None:
    r, y = sample(20_000, probability)
    found = ProbabilityMap.fitted(r, y)
    assert (found.kind, found.pairs) == (kind, 20_000)
    assert np.abs(found(r) - probability(r)).mean() < 0.02
    again = ProbabilityMap.fitted(r, y)
    assert again.y.tobytes() == found.y.tobytes()


def test_few_pairs_have_no_steps() -> None:
    r, y = sample(LEAST_OF_ISOTONIC - 1, lambda r: np.where(r > 0, 0.9, 0.05))
    assert ProbabilityMap.fitted(r, y).kind != "isotonic"


@pytest.mark.parametrize(
    ("scores", "taken"),
    [(np.zeros(0), np.zeros(0, bool)), (np.arange(5.0), np.arange(5) > 2), (np.zeros(50), np.arange(50) > 9),
     (np.arange(50.0), np.zeros(50, bool)), (np.arange(50.0), np.ones(50, bool))],
    ids=["none", "few", "one score", "none taken", "all taken"],
)  # fmt: skip
def test_where_nothing_can_be_fitted_the_map_is_sigma(scores: Any, taken: Any) -> None:
    found = ProbabilityMap.fitted(scores, taken)
    assert found.kind == "none"
    assert_allclose(found(np.array([-1.0, 2.0])), expit([-1.0, 2.0]), rtol=1e-6)


@pytest.mark.parametrize("kind", ["platt", "isotonic"])
def test_the_map_keeps_the_order_of_all_scores(kind: Any) -> None:
    r, y = sample(3_000, lambda r: np.where(r > 0, 0.7, 0.2))
    ones = np.ones(3_000)
    found = ProbabilityMap._of_kind(kind, r, y.astype(float), ones, ones)
    asked = np.linspace(2 * r.min(), 2 * r.max(), 5_000)
    assert (np.diff(found.logits(asked)) > 0).all()
    values = found(asked)
    assert values.dtype == np.float32
    assert ((values > 0) & (values < 1)).all()


def test_a_score_that_ranks_backwards_keeps_its_order() -> None:
    r, y = sample(5_000, lambda r: expit(-r))
    found = ProbabilityMap.fitted(r, y)
    assert (np.diff(found.logits(np.linspace(-5, 5, 100))) >= 0).all()
    assert abs(found(r).mean() - y.mean()) < 0.02


def test_what_was_not_noticed_is_taken_into_account() -> None:
    like = lambda r: expit(r - 1)  # noqa: E731
    for noticed in (0.3, 0.7):
        r, y = sample(60_000, lambda r, noticed=noticed: noticed * like(r))
        found = ProbabilityMap.fitted(r, y, np.full(len(r), noticed))
        assert np.abs(found(r) - like(r)).mean() < 0.02
        assert ProbabilityMap.fitted(r, y)(r).mean() == pytest.approx(y.mean(), abs=0.01)  # p(taken)


def test_weights_decide_which_pairs_count() -> None:
    rng = np.random.default_rng(0)
    r, first = rng.normal(size=20_000), rng.random(20_000) < 0.5
    y = rng.random(20_000) < np.where(first, expit(r), expit(r - 2))
    for counts, expected in ((first, 0.0), (~first, -2.0)):
        found = ProbabilityMap.fitted(r, y, weights=np.where(counts, 1.0, 1e-6))
        assert logit(found(np.zeros(1)))[0] == pytest.approx(expected, abs=0.2)


# --- storage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["none", "platt", "isotonic"])
def test_a_saved_map_is_restored(kind: Any) -> None:
    r, y = sample(2_000, lambda r: expit(0.5 * r))
    ones = np.ones(2_000)
    found = ProbabilityMap._of_kind(kind, r, y.astype(float), ones, ones)
    again = ProbabilityMap.restored(found.arrays())
    assert again is not None
    assert (again.kind, again.pairs, repr(again)) == (kind, 2_000, repr(found))
    assert again(r).tobytes() == found(r).tobytes()
    assert ProbabilityMap.restored({}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"probability.x": np.array([0.0])},
        {"probability.x": np.array([1.0, 0.0])},
        {"probability.y": np.array([1.0, 0.0])},
        {"probability.y": np.array([0.0, np.nan])},
        {"probability.x": np.zeros(0), "probability.y": np.zeros(0)},
    ],
    ids=str,
)
def test_arrays_that_are_no_map_are_an_error(change: dict[str, Any]) -> None:
    good = ProbabilityMap("platt", np.array([0.0, 1.0]), np.array([-1.0, 0.0]), 9).arrays()
    with pytest.raises(ValueError, match="is not one"):
        ProbabilityMap.restored({**good, **change})
