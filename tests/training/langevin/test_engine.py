"""The Langevin engine samples the posterior: gradients, bits, and a posterior that is known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.testing import assert_allclose
from scipy import sparse

from truelike.parallel import Team
from truelike.training.langevin.engine import LangevinSampler
from truelike.training.shown_pairs import CERTAIN, ShownPairs


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
