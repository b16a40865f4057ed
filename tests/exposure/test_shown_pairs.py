"""Interactions and impressions are merged into pairs with labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import truelike as tl
from truelike.exposure.shown_pairs import CERTAIN, ShownPairs


@given(st.integers(0, 10**6), st.booleans())
def test_the_merged_pairs_are_the_union_with_its_labels(seed: int, repeated: bool) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 9, 2))
    liked, shown = rng.random(shape) < 0.4, rng.random(shape) < 0.5
    train, seen = (sparse.csr_array(each.astype(np.float32)) for each in (liked, shown))
    logits = np.arange(1, seen.nnz + 1, dtype=np.float32) if repeated else np.zeros(0, np.float32)
    pairs = ShownPairs.merged(train, seen, logits, -CERTAIN)
    dense, labels = np.zeros(shape, bool), np.zeros(shape, bool)
    users = np.repeat(np.arange(shape[0]), np.diff(pairs.indptr))
    dense[users, pairs.indices] = True
    labels[users, pairs.indices] = pairs.taken == 1
    assert (dense == (liked | shown)).all()
    assert (labels == liked).all()
    assert pairs.added == (liked & ~shown).sum()
    expected = np.full(shape, CERTAIN)
    expected[liked | shown] = -CERTAIN
    if repeated and seen.nnz:
        expected[seen.nonzero()] = logits
    assert_allclose(pairs.dense_logits(np.arange(shape[0], dtype=np.int32)), expected)


def test_pairs_are_saved_and_restored() -> None:
    world = tl.synthetic.World(n_users=40, n_items=30)
    train, shown = world.dataset(), world.impressions()
    for logits in (np.zeros(0, np.float32), np.linspace(-3, 3, shown.n_interactions).astype(np.float32)):
        pairs = ShownPairs.merged(train.csr, shown.csr, logits, -CERTAIN)
        again = ShownPairs.restored(pairs.arrays(), train)
        assert again is not None
        assert_array_equal(again.logits, pairs.logits)


SPOILED = {
    "a row too few": ("indptr", lambda array: array[:-1]),
    "rows that go back": ("indptr", lambda array: array[::-1].copy()),
    "an item too many": ("indices", lambda array: array + np.int32(1)),
    "items that are not sorted": ("indices", lambda array: array[::-1].copy()),
    "items in two dimensions": ("indices", lambda array: array[None]),
    "other interactions": ("taken", lambda array: 1 - array),
    "a label too few": ("taken", lambda array: array[:-1]),
    "a logit too few": ("logits", lambda array: array[:-1]),
    "a logit that is no number": ("logits", lambda array: array * np.float32(np.nan)),
}


@pytest.mark.parametrize("what", SPOILED)
def test_pairs_of_a_spoiled_file_are_refused(what: str) -> None:
    world = tl.synthetic.World(n_users=40, n_items=30)
    train, shown = world.dataset(), world.impressions()
    logits = np.linspace(-3, 3, shown.n_interactions).astype(np.float32)
    good = ShownPairs.merged(train.csr, shown.csr, logits, -CERTAIN).arrays()
    name, spoil = SPOILED[what]
    with pytest.raises(ValueError, match="not those of the interactions"):
        ShownPairs.restored({**good, f"shown.{name}": spoil(good[f"shown.{name}"])}, train)
