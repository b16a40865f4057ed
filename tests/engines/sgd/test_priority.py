"""Samplers that see scores: what is chosen, by which law, and what cannot choose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chisquare
from tests.engines.data import Soft, assert_chosen, make_dataset

import truelike as tl
from truelike.engines.sgd.engine import SampledEngine
from truelike.engines.sgd.priority import compiled_priority
from truelike.engines.sgd.samples import SGDSettings
from truelike.engines.tables import Tables
from truelike.errors import ParameterError
from truelike.negatives import AHNS, Hard, Negatives, Popularity
from truelike.objectives import BPO, BPR, NBPO, sigmoid


@dataclass(frozen=True)
class SemiHard(Negatives):
    """The best-scored below the positive."""

    draws: int = 5
    far = 1_000  # not a field

    def priority(self, r_i: Any, r_j: Any, u: Any) -> Any:
        return sigmoid(r_j) - self.far * (r_j >= r_i)


@dataclass(frozen=True)
class AtRandom(Popularity):
    """A choice that does not depend on scores."""

    draws: int = 4

    def priority(self, r_i: Any, r_j: Any, u: Any) -> Any:
        return abs(u - 0.5) + 0 * r_j


SAMPLERS = [Hard(3), AHNS(6), AHNS(6, 0.1, 0.8), Soft(), SemiHard()]


def engine_of(
    train: Any, negatives: Negatives, scale: float = 0.7, order: Any = "file", objective: Any = BPR, **options: Any
) -> SampledEngine:
    settings = SGDSettings(0.05, 1.0, 0.3, 0.2, "epoch", 50, 10**6, order)
    tables = Tables.zeros(train.n_users, train.n_items, 5, 3)
    tables.initialise("normal", scale, 0.0, 0)
    return SampledEngine(train, tables, objective, negatives, settings, seed=4, **{"n_jobs": 1, **options})


@pytest.mark.parametrize("negatives", SAMPLERS, ids=str)
@pytest.mark.parametrize("objective", [BPO, BPR, NBPO], ids=lambda each: each.name)
def test_the_chosen_candidates_are_those_of_numpy(negatives: Negatives, objective: Any) -> None:
    engine = engine_of(make_dataset(60, 90), negatives, objective=objective)
    for epoch in range(2):
        before = engine.tables.copy()
        engine.epoch(epoch)
        assert_chosen(engine, before, epoch)


@pytest.mark.parametrize("negatives", SAMPLERS, ids=str)
@pytest.mark.parametrize("order", ["shuffled", "blocks"])
def test_the_number_of_threads_does_not_change_the_result(negatives: Negatives, order: Any) -> None:
    found = set()
    for n_jobs in (1, 2, 8):
        engine = engine_of(make_dataset(60, 40), negatives, order=order, n_jobs=n_jobs)
        for epoch in range(2):
            engine.epoch(epoch)
        found.add(engine.tables.users.tobytes() + engine.tables.items.tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("negatives", [*SAMPLERS, AHNS(6, 0.0, 2.0, -1.5)], ids=str)
def test_numba_gives_the_numbers_of_numpy(negatives: Negatives) -> None:
    """Also where r_i + alpha is negative, of which a power is not defined."""
    r_i, r_j, u = np.random.default_rng(0).normal(scale=3, size=(3, 400)).astype(np.float32)
    u = np.abs(u) / 20 + 1e-6
    compiled = compiled_priority(negatives)
    found = [compiled(*map(np.float32, each)) for each in zip(r_i, r_j, u, strict=True)]
    assert_allclose(found, negatives.priority(r_i, r_j, u), rtol=2e-5, atol=1e-5)


def test_ahns_takes_harder_negatives_for_positives_of_lower_score() -> None:
    sampler, r_j = AHNS(8, 1.0, 0.5, -2.0), np.linspace(-2, 2, 401)
    nearest = [float(r_j[sampler.priority(r_i, r_j, 0.5).argmax()]) for r_i in (-3.0, -1.0, -0.5, 0.0, 1.0, 4.0)]
    assert_allclose(nearest, [2.0, 2.0, 1.0, 0.5, 0.25, 0.1], atol=1e-6)


# --- the law of the choice --------------------------------------------------------------------------


def counts_of(negatives: Negatives, epochs: int) -> tuple[Any, Any, Any, SampledEngine]:
    """How often each item was a negative of user 0, who has the items 0 to 9, at fixed scores."""
    observed = np.ones((2, 30), dtype=np.float32)
    observed[0, 10:], observed[1, :10] = 0, 0
    train = tl.read(
        [(u, i) for u in range(2) for i in range(30) if observed[u, i]] + [(2 + k, 10 + k % 7) for k in range(25)]
    )
    engine = engine_of(train, negatives)
    tables, counts = engine.tables.copy(), np.zeros(train.n_items)
    for epoch in range(epochs):
        engine.tables.users[:], engine.tables.items[:] = tables.users, tables.items
        engine.epoch(epoch)
        counts += np.bincount(engine._batch_samples.item.reshape(-1, 51)[:10, 1:].ravel(), minlength=train.n_items)
    own = train.csr.indices[:10]
    return (
        counts,
        tables.item_factors @ tables.user_factors[0],
        negatives.probabilities(train.popularity(), own),
        engine,
    )


def p_value(counts: Any, expected: Any) -> float:
    assert counts[expected == 0].sum() == 0
    possible = expected > 0
    return float(chisquare(counts[possible], expected[possible] * counts.sum()).pvalue)


def test_a_choice_without_scores_follows_the_distribution_of_the_candidates() -> None:
    counts, _, probabilities, _ = counts_of(AtRandom(), 60)
    assert p_value(counts, probabilities) > 1e-4
    hard, _, _, _ = counts_of(Hard(4), 5)
    assert p_value(hard, probabilities) < 1e-9, "the test tells samplers apart"


def test_gumbel_noise_chooses_in_proportion_to_the_exponential_of_the_score() -> None:
    """Of two candidates a and b, drawn by popularity, a with the probability w_a / (w_a + w_b), w = exp(r / t)."""
    counts, r, p, _ = counts_of(Soft(draws=2), 60)
    w = np.exp(r / 0.5)
    law = 2 * p * ((w[:, None] / (w[:, None] + w)) @ p)
    assert law.sum() == pytest.approx(1)
    assert p_value(counts, law) > 1e-4
    assert p_value(counts, p) < 1e-9, "the scores matter"


def test_a_sampler_with_candidates_and_no_priority_takes_the_best_scored() -> None:
    @dataclass(frozen=True)
    class Three(Negatives):
        draws: int = 3

    data = make_dataset()
    own, hard = (
        tl.BPR(factors=4, epochs=2, negatives=each).fit(data, progress=False) for each in (Three(), "hard:3")
    )
    assert own.user_factors_.tobytes() == hard.user_factors_.tobytes()


# --- what cannot choose -----------------------------------------------------------------------------


class Own(Negatives):
    draws = 3
    word = "hard"

    def __repr__(self) -> str:
        return "Own()"

    def helper(self, r_j: Any) -> Any:
        return r_j


class Branches(Own):
    def priority(self, r_i: Any, r_j: Any, u: Any) -> Any:
        return r_j if r_j < r_i else u


class OneForAll(Own):
    def priority(self, r_i: Any, r_j: Any, u: Any) -> Any:
        return 1.0


class Divides(Own):
    def priority(self, r_i: Any, r_j: Any, u: Any) -> Any:
        return r_i / r_j


class Calls(Own):
    def priority(self, r_i: Any, r_j: Any, u: Any) -> Any:
        return self.helper(r_j)


class TwoArguments(Own):
    def priority(self, r_i: Any, r_j: Any) -> Any:  # type: ignore[override]
        return r_j


class Half(Own):
    draws = 1.5  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (
            Branches,
            r"priority\(r_i, r_j, u\) of Own\(\) fails for arguments of type ndarray: .*comparisons as factors",
        ),
        (OneForAll, r"returned an array of shape \(\) for candidates of shape .*a number for each"),
        (Divides, r"is (nan|-?inf) at r_i=-50, r_j=0, u=1e-07; it must be finite"),
        (Calls, r"priority\(r_i, r_j, u\) of Own\(\) cannot be compiled: .*helper"),
        (TwoArguments, "takes 3 positional arguments but 4 were given"),
        (Half, r"Own\(\): draws must be a whole number, at least 1; it is 1.5"),
    ],
)
def test_a_sampler_that_cannot_choose_is_an_error_before_training(
    sampler: Any, message: str, tmp_path: Path
) -> None:
    data = make_dataset()
    blocks = tl.blocks.build(data, tmp_path / "blocks", blocks=2, progress=False)
    for train in (data, blocks):
        with pytest.raises(ParameterError, match=message):
            tl.BPR(factors=4, epochs=1, negatives=sampler()).fit(train, progress=False)
