"""The engine of shown pairs, against a dense reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import truelike as tl
from truelike.engines.shown.engine import ShownEngine, ShownSettings
from truelike.engines.tables import Tables
from truelike.exposure.shown_pairs import CERTAIN, ShownPairs
from truelike.objectives import NBPOo

SETTINGS = ShownSettings(
    learning_rate=0.1, decay=0.9, regularization=0.4, bias_regularization=0.9, batch_size=10**6
)


def make_pairs(n_users: int = 30, n_items: int = 25, *, repeated: bool = False) -> tuple[Any, ShownPairs]:
    rng = np.random.default_rng(0)
    shown = rng.random((n_users, n_items)) < 0.4
    liked = shown & (rng.random((n_users, n_items)) < 0.3)
    liked[np.arange(n_users), np.arange(n_users) % n_items] = True
    train = tl.read(sparse.csr_array(liked.astype(np.float32)))
    impressions = sparse.csr_array(shown.astype(np.float32))
    logits = rng.normal(size=impressions.nnz).astype(np.float32) if repeated else np.zeros(0, np.float32)
    return train, ShownPairs.merged(train.csr, impressions, logits, -CERTAIN)


def engine_on(pairs: ShownPairs, settings: ShownSettings, n_jobs: int = 1) -> tuple[ShownEngine, Tables]:
    tables = Tables.zeros(*pairs.shape, 5, 0, bias_in_rows=True)
    tables.initialise("normal", 0.5, 0.0, 3)
    return ShownEngine(pairs, tables, settings, offset=-1.0, seed=7, n_jobs=n_jobs), tables


def reference(pairs: ShownPairs, epochs: int) -> tuple[Any, Any, Any]:
    """The same training, dense, in float64: an epoch is a single step of each row."""
    _, tables = engine_on(pairs, SETTINGS)
    U, V = tables.user_factors.astype(float), tables.item_factors.astype(float)
    b = np.zeros(pairs.n_items)
    users = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
    for epoch in range(epochs):
        rate, g = SETTINGS.rate(epoch), pairs.all_logits().astype(float)
        r = np.einsum("nk,nk->n", U[users], V[pairs.indices]) + b[pairs.indices] - 1.0
        step = np.where(pairs.taken == 1, NBPOo.positive(r, g)[0], NBPOo.negative(r, g)[0])
        steps = sparse.csr_array((step, (users, pairs.indices)), shape=pairs.shape)
        shrink = 1 - rate * SETTINGS.regularization
        U, V = shrink * U + rate * steps @ V, shrink * V + rate * steps.T @ U
        b = (1 - rate * SETTINGS.bias_regularization) * b + rate * np.asarray(steps.sum(axis=0)).ravel()
    return U, V, b


@pytest.mark.parametrize("repeated", [False, True])
def test_shown_pairs_are_trained_on_once_each_with_their_label_and_flip(repeated: bool) -> None:
    _, pairs = make_pairs(repeated=repeated)
    engine, tables = engine_on(pairs, SETTINGS)
    for epoch in range(2):
        engine.epoch(epoch)
    U, V, b = reference(pairs, 2)
    assert_allclose(tables.user_factors, U, atol=2e-5)
    assert_allclose(tables.item_factors, V, atol=2e-5)
    assert tables.item_bias is not None
    assert_allclose(tables.item_bias, b, atol=2e-5)
    assert (tables.users[:, tables.width] == 1).all()
    assert np.isfinite(engine.loss())


def test_the_number_of_threads_does_not_change_the_bits() -> None:
    _, pairs = make_pairs(repeated=True)
    found = []
    for n_jobs in (1, 2, 3):
        engine, tables = engine_on(pairs, replace(SETTINGS, batch_size=40), n_jobs)
        engine.epoch(0)
        found.append((tables.users.tobytes(), tables.items.tobytes()))
    assert found[0] == found[1] == found[2]
