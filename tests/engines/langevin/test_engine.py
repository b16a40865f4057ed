"""The Langevin engine samples the posterior: gradients, bits, and a posterior that is known."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from truelike.core.parallel import Team
from truelike.engines.langevin.engine import LangevinSampler, shown_or_not
from truelike.exposure.shown_pairs import CERTAIN, ShownPairs


def make_pairs(n_users: int = 30, n_items: int = 20, *, repeated: bool = False) -> ShownPairs:
    rng = np.random.default_rng(0)
    shown = rng.random((n_users, n_items)) < 0.5
    liked = shown & (rng.random((n_users, n_items)) < 0.3)
    train, seen = (sparse.csr_array(each.astype(np.float32)) for each in (liked, shown))
    logits = rng.normal(size=seen.nnz).astype(np.float32) if repeated else np.zeros(0, np.float32)
    return ShownPairs.merged(train, seen, logits, -CERTAIN)


def log_likelihood(pairs: ShownPairs, users: Any, items: Any) -> float:
    row = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
    u, i = users[row], items[pairs.indices]
    r = (u[:, :-1] * i[:, :-1]).sum(axis=1) + u[:, -1] + i[:, -1]
    q = 1 / (1 + np.exp(pairs.all_logits().astype(float)))
    p = q / (1 + np.exp(-r))
    return float(np.where(pairs.taken == 1, np.log(p), np.log1p(-p)).sum())


def test_the_gradients_are_those_of_the_log_likelihood() -> None:
    pairs = make_pairs(repeated=True)
    sampler = LangevinSampler(pairs, 3, seed=0, n_jobs=2)
    with Team(2) as team:
        sampler._gradients(team)
    users, items = sampler.users.rows.astype(float), sampler.items.rows.astype(float)
    for side, rows in (("users", users), ("items", items)):
        for at in ((0, 0), (7, 2), (19, 3)):
            ends = []
            for move in (1e-5, -1e-5):
                rows[at] += move
                ends.append(log_likelihood(pairs, users, items))
                rows[at] -= move
            expected = (ends[0] - ends[1]) / 2e-5
            assert_allclose(getattr(sampler, side).gradient[at], expected, rtol=1e-3, atol=1e-3)


def test_the_number_of_threads_does_not_change_the_samples() -> None:
    pairs = make_pairs()
    found = [LangevinSampler(pairs, 3, seed=1, n_jobs=n).run(60, 20, 4) for n in (1, 2, 3)]
    assert len(found[0]) == 4
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert a.users.tobytes() == b.users.tobytes()
            assert a.items.tobytes() == b.items.tobytes()


def test_the_spread_of_the_samples_is_that_of_the_posterior() -> None:
    """With one item that everybody saw and no tastes, the item's bias is all there is to know of a new user.

    The posterior of a logit from n labels has a standard deviation of about 1 / sqrt(n p (1 - p)).
    """
    n, share = 400, 0.3
    liked = (np.arange(n) < share * n)[:, None]
    train, seen = sparse.csr_array(liked.astype(np.float32)), sparse.csr_array(np.ones((n, 1), np.float32))
    pairs = ShownPairs.merged(train, seen, np.zeros(0, np.float32), -CERTAIN)
    sampler = LangevinSampler(pairs, 1, seed=0)
    # users without a taste or a bias of their own, and an item with a flat prior
    for side, precision in ((sampler.users, 1e6), (sampler.items, 1e-3)):
        side.rows[:, :-1] = 0.0
        side.precision[:] = precision
        side.update_prior = lambda **_: None  # type: ignore[method-assign]
    sampler.users.rows[:] = 0.0
    samples = sampler.run(6_000, 500, 2_500)
    logits = np.array([sample.items[0, -1] for sample in samples])
    assert_allclose(logits.mean(), np.log(share / (1 - share)), atol=0.03)
    assert_allclose(logits.std(), 1 / np.sqrt(n * share * (1 - share)), rtol=0.15)


# --- exposure --------------------------------------------------------------------------------------------------


def exposure_likelihood(sampler: LangevinSampler, users: Any, items: Any, weight: float) -> float:
    pairs = sampler._exposure
    assert pairs is not None
    u, i, k = users[pairs.user_of_entry], items[pairs.indices], sampler.factors
    products = u * i
    e = u[:, -2] + i[:, -2] + weight * products[:, :k].sum(axis=1) + products[:, k:-2].sum(axis=1)
    return float(-np.log1p(np.exp(np.where(pairs.labels == 1, -e, e))).sum())


def test_the_gradients_of_the_exposure_are_those_of_its_log_likelihood() -> None:
    pairs = make_pairs(repeated=True)
    sampler = LangevinSampler(pairs, 3, seed=0, n_jobs=2, shown=pairs)
    sampler.weight = 0.7
    for side in (sampler.users, sampler.items):
        side.rows[:, -2] = np.linspace(-1, 1, len(side.rows))
    with Team(2) as team:
        sampler._gradients(team)
    users, items = sampler.users.rows.astype(float), sampler.items.rows.astype(float)

    def total(weight: float = 0.7) -> float:
        return log_likelihood(pairs, users[:, [0, 1, 2, -1]], items[:, [0, 1, 2, -1]]) + exposure_likelihood(
            sampler, users, items, weight
        )

    for side, rows in (("users", users), ("items", items)):
        for at in ((0, 0), (7, 2), (19, 3), (5, 10), (3, 11), (4, 12)):
            ends = []
            for move in (1e-5, -1e-5):
                rows[at] += move
                ends.append(total())
                rows[at] -= move
            expected = (ends[0] - ends[1]) / 2e-5
            assert_allclose(getattr(sampler, side).gradient[at], expected, rtol=1e-3, atol=2e-3)
    expected = (total(0.7 + 1e-5) - total(0.7 - 1e-5)) / 2e-5
    assert_allclose(sampler._sums[:, 0].sum(), expected, rtol=1e-3)


def test_threads_do_not_change_samples_with_exposure() -> None:
    pairs = make_pairs()
    found = [LangevinSampler(pairs, 3, seed=1, n_jobs=n, shown=pairs).run(60, 20, 4) for n in (1, 2, 3)]
    assert found[0][-1].weight > 0
    assert found[0][0].users.shape == (30, 4)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert a.users.tobytes() == b.users.tobytes()
            assert a.items.tobytes() == b.items.tobytes()
            assert a.weight == b.weight


@given(st.integers(1, 12), st.integers(1, 15), st.floats(0.05, 1.0), st.integers(0, 5))
def test_pairs_that_were_not_shown_are_drawn_among_them(
    n_users: int, n_items: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shown = rng.random((n_users, n_items)) < share
    shown[0, 0] = True
    seen = sparse.csr_array(shown.astype(np.float32))
    pairs = ShownPairs.merged(seen, seen, np.zeros(0, np.float32), -CERTAIN)
    indptr, indices, labels = shown_or_not(pairs, seed)
    users = np.repeat(np.arange(n_users), np.diff(indptr))
    assert_array_equal(shown[users, indices], labels == 1)
    assert sorted(zip(users[labels == 1], indices[labels == 1], strict=True)) == sorted(
        zip(*np.nonzero(shown), strict=True)
    )
    assert (labels == 0).sum() <= (labels == 1).sum()
    full = shown.all(axis=1)
    assert not np.isin(users[labels == 0], np.flatnonzero(full)).any()
    if share < 0.5 and n_users * n_items > 100:
        assert (labels == 0).sum() > 0.4 * (labels == 1).sum()
