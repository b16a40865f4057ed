"""Statistics of the data from which the default regularization follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import truelike as tl
from truelike.engines import regularization
from truelike.engines.regularization import lift


def dataset(observed: Any) -> Any:
    return tl.read(sparse.csr_array(observed.astype(np.float32)))


def random_data(shares: Any, n_users: int = 400, seed: int = 0) -> Any:
    """Each user has each item with the item's share, independently of everything else."""
    return np.random.default_rng(seed).random((n_users, len(shares))) < shares


def exact_lift(observed: Any) -> float:
    """The mean over all draws, instead of a sample of them."""
    X = observed.astype(float)
    n, per_user, per_item = X.sum(), X.sum(1), X.sum(0)
    found = expected = 0.0
    for u, i in np.argwhere(observed):
        for k in np.flatnonzero(observed[u]):
            for w in np.flatnonzero(observed[:, i]):
                if k != i and w != u:
                    weight = 1 / (per_user[u] * per_item[i])
                    found += weight * X[w, k]
                    expected += weight * min((per_user[w] - 1) * (per_item[k] - 1) / n, 1.0)
    return float(found / expected)


def test_it_is_one_where_items_are_independent_also_of_unequal_popularity() -> None:
    assert lift(dataset(random_data(np.linspace(0.02, 0.3, 100)))) == pytest.approx(1.0, abs=0.1)


def test_it_equals_the_mean_over_all_draws() -> None:
    taste = np.arange(40)[:, None] % 4 == np.arange(24)[None, :] % 4
    observed = np.random.default_rng(1).random((40, 24)) < np.where(taste, 0.6, 0.08)
    assert exact_lift(observed) > 1.5
    assert lift(dataset(observed)) == pytest.approx(exact_lift(observed), rel=0.02)


def test_some_users_of_a_large_dataset_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    same = np.arange(600)[:, None] % 5 == np.arange(100)[None, :] % 5
    data = dataset(random_data(np.full(100, 0.5), 600) & same)
    whole = lift(data)
    monkeypatch.setattr(regularization, "LIFT_INTERACTIONS", data.n_interactions // 3)
    assert lift(data) == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize(
    "observed", [np.eye(5), np.ones((1, 4)), np.ones((4, 1)), np.ones((3, 3))], ids=lambda x: str(x.shape)
)
def test_without_two_users_who_could_share_two_items_it_is_one(observed: Any) -> None:
    assert lift(dataset(observed)) >= 1.0
    if observed.shape != (3, 3):
        assert lift(dataset(observed)) == 1.0
