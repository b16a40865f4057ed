"""The Langevin engine samples the posterior: gradients, bits, and a posterior that is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse

from truelike.core import randomness
from truelike.engines.langevin import engine, kernels
from truelike.engines.langevin.engine import LangevinSampler
from truelike.exposure.shown_pairs import CERTAIN, ShownPairs

JOINT = pytest.mark.parametrize("joint", [False, True])


def make_pairs(n_users: int = 30, n_items: int = 20, *, repeated: bool = False) -> ShownPairs:
    rng = np.random.default_rng(0)
    shown = rng.random((n_users, n_items)) < 0.5
    liked = shown & (rng.random((n_users, n_items)) < 0.3)
    train, seen = (sparse.csr_array(each.astype(np.float32)) for each in (liked, shown))
    logits = rng.normal(size=seen.nnz).astype(np.float32) if repeated else np.zeros(0, np.float32)
    return ShownPairs.merged(train, seen, logits, -CERTAIN)


def make_sampler(pairs: ShownPairs, *, joint: bool, factors: int = 3, **options: Any) -> LangevinSampler:
    shown = pairs if joint else None
    return LangevinSampler(pairs, factors, shown=shown, link=0.7, **{"seed": 1, **options})


def log_likelihood(sampler: LangevinSampler, users: Any, items: Any, weight: float) -> float:
    """Of labels, and of the exposure if there are columns for it, in float64."""
    pairs, k = sampler.part.pairs, sampler.chain.shape.factors
    row = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
    u, i = users[row], items[pairs.indices]
    r = (u * i)[:, :k].sum(axis=1) + u[:, -1] + i[:, -1]
    q = 1 / (1 + np.exp(pairs.all_logits().astype(float)))
    p = q / (1 + np.exp(-r))
    total = float(np.where(pairs.taken == 1, np.log(p), np.log1p(-p)).sum())
    if not sampler.chain.shape.joint:
        return total
    others = sampler.part.exposure.others
    for shown, rows, listed in ((1, row, pairs.indices), (-1, row[others >= 0], others[others >= 0])):
        products = users[rows] * items[listed]
        e = users[rows, -2] + items[listed, -2] + weight * products[:, :k].sum(1) + products[:, k:-2].sum(1)
        total -= float(np.log1p(np.exp(-shown * e)).sum())
    return total


@JOINT
def test_the_gradients_are_those_of_the_log_likelihood(joint: bool) -> None:
    """One step from rest moves a row by the square of the step, times the preconditioner, times the gradient."""
    sampler = make_sampler(make_pairs(repeated=True), joint=joint)
    chain, width = sampler.chain, sampler.chain.shape.width
    if joint:
        for table in (sampler.users, chain.table):
            table[:, width - 2] = np.linspace(-1, 1, len(table))
    users, items = (table[:, :width].astype(float) for table in (sampler.users, chain.table))
    sums: list[Any] = []
    advance = chain.advance
    chain.advance = lambda *given: sums.append(advance(*given)) or sums[-1].copy()  # type: ignore[func-returns-value]
    chain.run(0, 1)
    precision, bias = 2.0, float(chain.prior.centres[0])
    weight = float(np.float32(0.7))
    for table, rows, centre in ((sampler.users, users, 0.0), (chain.table, items, bias)):
        moved, scale = table[:, width : 2 * width], table[:, 2 * width :]
        for at in [(0, 0), (7, 2), (19, width - 1)] + ([(5, 4), (4, width - 2)] if joint else []):
            ends = []
            for move in (1e-5, -1e-5):
                rows[at] += move
                ends.append(log_likelihood(sampler, users, items, weight))
                rows[at] -= move
            expected = (ends[0] - ends[1]) / 2e-5
            prior = -precision * (rows[at] - (centre if at[1] == width - 1 else 0))
            found = moved[at] / (kernels.STEP**2 * scale[at]) - prior
            assert_allclose(found, expected, rtol=1e-3, atol=3e-3)
    if joint:
        ends = [log_likelihood(sampler, users, items, weight + move) for move in (1e-5, -1e-5)]
        assert_allclose(sums[0][-2], (ends[0] - ends[1]) / 2e-5, rtol=1e-3)


def bits(samples: Any) -> bytes:
    return b"".join(np.ascontiguousarray(part).tobytes() for sample in samples for part in sample)


@JOINT
def test_neither_threads_nor_ranges_of_users_change_the_samples(
    joint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, found = make_pairs(), []
    for n_jobs, at_once in ((1, 10**6), (2, 50), (3, 7)):
        monkeypatch.setattr(engine, "PAIRS_AT_ONCE", at_once)
        samples = list(make_sampler(pairs, joint=joint, n_jobs=n_jobs).run(60, 20, 4))
        assert len(samples) == 4
        assert samples[0].users.shape == (30, 4)
        found.append(bits(samples))
    assert len(set(found)) == 1
    assert bits(make_sampler(pairs, joint=joint, seed=2).run(60, 20, 4)) != found[0]


def test_the_sums_of_a_step_are_exact() -> None:
    """All are multiples of 2^-24, so that float64 adds them without rounding, in any order."""
    sampler = make_sampler(make_pairs(), joint=True)
    chain = sampler.chain
    items = np.ascontiguousarray(chain.table[:, : chain.shape.width])
    flat = sampler.part.advance(items, chain.prior.users, (0.1, chain.mean, chain.spread, 0.7), 0)
    assert (flat * 2**24 % 1 == 0).all()
    assert (flat[: items.size] * 2**16 % 1 == 0).all()
    assert np.abs(flat).max() > 0.1


def test_a_quiet_step_has_no_noise_and_the_noise_is_that_of_a_normal_number() -> None:
    key = np.uint64(randomness.key(0, "test"))
    found = np.array([kernels._noise(key, n) for n in range(20_000)])
    assert_allclose([found.mean(), found.std()], [0, 1], atol=0.02)
    assert kernels.random_bits(key, 5) == randomness.bits(int(key), np.array([5]))[0]
    noisy = [engine.Shape(3, False, 0).motion("users", number).noisy for number in range(40)]
    assert noisy == [False] * engine.QUIET + [True] * (40 - engine.QUIET)


@pytest.mark.slow
def test_the_spread_of_the_samples_is_that_of_the_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one item that everybody saw and no tastes, the item's bias is all there is to know of a new user.

    The posterior of a logit from n labels has a standard deviation of about 1 / sqrt(n p (1 - p)).
    """
    n, share = 400, 0.3
    liked = (np.arange(n) < share * n)[:, None]
    train, seen = sparse.csr_array(liked.astype(np.float32)), sparse.csr_array(np.ones((n, 1), np.float32))
    pairs = ShownPairs.merged(train, seen, np.zeros(0, np.float32), -CERTAIN)
    sampler = LangevinSampler(pairs, 1, seed=0)
    chain = sampler.chain
    monkeypatch.setattr(chain, "_update_precisions", lambda sums: None)
    # users without a taste or a bias of their own, and an item with a flat prior
    sampler.users[:], chain.table[:, 0] = 0.0, 0.0
    chain.prior = chain.prior._replace(
        users=np.full(2, 1e6, np.float32), items=np.array([1e6, 1e-3], dtype=np.float32)
    )
    logits = np.array([sample.items[0, -1] for sample in sampler.run(6_000, 500, 2_500)])
    assert_allclose(logits.mean(), np.log(share / (1 - share)), atol=0.03)
    assert_allclose(logits.std(), 1 / np.sqrt(n * share * (1 - share)), rtol=0.15)


@pytest.mark.slow
def test_the_moments_of_a_factor_are_those_of_quadrature(monkeypatch: pytest.MonkeyPatch) -> None:
    """One user with one factor, and items that are held: the posterior is one of two numbers, on a grid."""
    rng = np.random.default_rng(3)
    items, taken = rng.normal(size=40), np.arange(40) % 3 == 0
    train = sparse.csr_array(np.where(taken, 1.0, 0.0).astype(np.float32)[None])
    seen = sparse.csr_array(np.ones((1, 40), np.float32))
    pairs = ShownPairs.merged(train, seen, np.full(40, -1.0, np.float32), -CERTAIN)
    sampler = LangevinSampler(pairs, 1, seed=0, n_jobs=1)
    chain = sampler.chain
    monkeypatch.setattr(chain, "_update_precisions", lambda sums: None)
    monkeypatch.setattr(kernels, "move_items", lambda *given: None)
    chain.table[:, 0], chain.table[:, 1] = items, 0.0
    factors, biases = np.meshgrid(np.linspace(-4, 4, 201), np.linspace(-4, 4, 201), indexing="ij")
    p = 1 / (1 + np.exp(-(factors[..., None] * items + biases[..., None]))) / (1 + np.exp(-1.0))
    logs = np.log(np.where(taken, p, 1 - p)).sum(axis=-1) - factors**2 - biases**2  # a precision of 2
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    rows = np.array([sample.users[0] for sample in sampler.run(20_000, 500, 9_000)])
    for column, grid in enumerate((factors, biases)):
        mean = float((weights * grid).sum())
        assert_allclose(rows[:, column].mean(), mean, atol=0.05)
        assert_allclose(rows[:, column].std(), np.sqrt((weights * (grid - mean) ** 2).sum()), rtol=0.1)


@given(st.integers(1, 12), st.integers(1, 15), st.floats(0.05, 1.0), st.integers(0, 5))
def test_pairs_that_were_not_shown_are_drawn_among_them(
    n_users: int, n_items: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shown = rng.random((n_users, n_items)) < share
    shown[0, 0] = True
    csr = sparse.csr_array(shown.astype(np.float32))
    indptr, indices = csr.indptr.astype(np.int32), csr.indices.astype(np.int32)
    users, key = np.repeat(np.arange(n_users), np.diff(indptr)), np.uint64(seed)
    unlisted = (rng.random(len(indices)) < 0.2).astype(np.uint8)
    found = kernels.draw_others(indptr, indices, unlisted, n_items, key, 0, 2)
    assert ((found == -2) == (unlisted == 1)).all()
    drawn = found >= 0
    assert not shown[users[drawn], found[drawn]].any()
    assert not np.isin(users[drawn], np.flatnonzero(shown.all(axis=1))).any()
    if share < 0.5 and n_users * n_items > 100:
        assert drawn.sum() > 0.3 * len(indices)
    half = n_users // 2  # the same, wherever a user is
    rest = kernels.draw_others(
        indptr[half:] - indptr[half], indices[indptr[half] :], unlisted[indptr[half] :], n_items, key, half, 2
    )
    assert (rest == found[indptr[half] :]).all()
    everything = [each.ravel() for each in np.indices(shown.shape)]
    assert (kernels.are_listed(indptr, indices, *everything) == shown.ravel()).all()
