"""A sample of the items has the expected gradient of all items."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from tests.engines.data import make_dataset
from tests.engines.exact.test_engine import SETTINGS, assert_like_reference, trained

from truelike.engines.exact.items import SampledItems, _none_of
from truelike.objectives import BPO, NBPO, NBPOo, Softmax, shift_mc

NEARLY_ALL = 1 - 1e-9  # every item is drawn, and its weight is 1 to rounding


def test_the_probability_of_none_is_the_hypergeometric_one() -> None:
    marked = np.arange(0, 31)
    for n, drawn in ((30, 1), (30, 7), (30, 30), (1000, 128)):
        expected = stats.hypergeom(n, marked, drawn).pmf(0)
        assert_allclose(_none_of(marked, n, drawn), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("objective", [BPO, NBPO, NBPOo, shift_mc(0.3), Softmax], ids=lambda o: o.name)
def test_a_sample_of_all_items_trains_as_all_items(objective: Any) -> None:
    assert_like_reference(make_dataset(), objective, replace(SETTINGS, item_share=NEARLY_ALL))


def test_a_batch_has_the_positives_of_its_users_and_its_rows_are_those_of_all_items() -> None:
    train = make_dataset(60, 200)
    items = SampledItems(train, 8, 0.1, seed=3).batch(np.array([4, 9, 33], dtype=np.int32), 0, 0)
    assert items.rows is not None
    assert (np.diff(items.rows) > 0).all()
    for n, user in enumerate((4, 9, 33)):
        place = items.positives.users[n]
        mine = items.positives.indices[items.positives.indptr[place] : items.positives.indptr[place + 1]]
        assert items.rows[mine].tolist() == train.matrix[[user]].indices.tolist()


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_the_weights_make_up_for_the_items_left_out(share: float) -> None:
    """Over many epochs, each unobserved pair and the L2 of each item count as often as with all items."""
    train, size, epochs = make_dataset(60, 80), 7, 600
    observed = train.matrix.toarray() > 0
    choice = SampledItems(train, size, share, seed=5)
    rng, pairs, l2 = np.random.default_rng(0), np.zeros(observed.shape), np.zeros(train.n_items)
    for epoch in range(epochs):
        order = rng.permutation(train.n_users).astype(np.int32)
        for number, start in enumerate(range(0, train.n_users, size)):
            users = np.sort(order[start : start + size])
            items = choice.batch(users, epoch, number)
            pairs[np.ix_(users, items.rows)] += items.weights
            l2[items.rows] += items.l2_part
    mean = np.where(observed, np.nan, pairs / epochs)
    assert np.nanmean(mean) == pytest.approx(1.0, abs=0.01)
    assert_allclose(np.nanmean(mean, axis=0), 1.0, atol=0.12)  # of each item
    assert_allclose(l2 / epochs, 1.0, atol=0.12)


@pytest.mark.parametrize("objective", [BPO, NBPOo, Softmax], ids=lambda o: o.name)
def test_the_number_of_threads_does_not_change_the_result_of_a_sample(
    objective: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("truelike.engines.exact.engine.MIN_TILE", 64)
    train, settings = make_dataset(80, 500), replace(SETTINGS, batch_size=32, item_share=0.3)
    one, *others = (trained(train, objective, settings, n_jobs=n, factors=24).arrays() for n in (1, 2, 8))
    for other in others:
        assert all(other[name].tobytes() == table.tobytes() for name, table in one.items())
