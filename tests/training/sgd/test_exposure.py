"""The sampled engine with what is known of exposure, against a dense reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import truelike as tl
from truelike.negatives import parse
from truelike.objectives import BPO, BPR, UBPR, UPL, NBPOo, RelMF
from truelike.training.exposure.rates import ExposureRates
from truelike.training.sgd.engine import SampledEngine
from truelike.training.sgd.exposure import KnownExposure
from truelike.training.sgd.samples import SGDSettings
from truelike.training.shown_pairs import CERTAIN, ShownPairs
from truelike.training.tables import Tables

SETTINGS = SGDSettings(
    learning_rate=0.1, decay=0.9, regularization=0.4, flip_regularization=0.9, l2_schedule="batch", l2_rows="all",
    n_negatives=0, batch_size=40, order="file", positive_weight="once",
)  # fmt: skip


def make_pairs(n_users: int = 30, n_items: int = 25, *, repeated: bool = False) -> tuple[Any, ShownPairs]:
    rng = np.random.default_rng(0)
    shown = rng.random((n_users, n_items)) < 0.4
    liked = shown & (rng.random((n_users, n_items)) < 0.3)
    liked[np.arange(n_users), np.arange(n_users) % n_items] = True
    train = tl.read(sparse.csr_array(liked.astype(np.float32)))
    impressions = sparse.csr_array(shown.astype(np.float32))
    logits = rng.normal(size=impressions.nnz).astype(np.float32) if repeated else np.zeros(0, np.float32)
    return train, ShownPairs.merged(train._csr, impressions, logits, -CERTAIN)


def engine_on(
    pairs: ShownPairs, objective: Any, settings: SGDSettings, n_jobs: int = 1
) -> tuple[SampledEngine, Tables]:
    tables = Tables.zeros(*pairs.shape, 5, 0, bias_in_rows=True)
    tables.initialise("normal", 0.5, 0.0, 3)
    exposure = KnownExposure(taken=pairs.taken, logits=pairs.logits, logit=pairs.logit, offset=-1.0)
    engine = SampledEngine(
        pairs.entries(), tables, objective, parse("uniform"), settings, seed=7, n_jobs=n_jobs, exposure=exposure
    )
    return engine, tables


def reference(pairs: ShownPairs, objective: Any, settings: SGDSettings, epochs: int) -> tuple[Any, Any, Any]:
    """The same training, dense, in float64; every batch is a single step of each row."""
    _, tables = engine_on(pairs, objective, settings)
    U, V = tables.user_factors.astype(float), tables.item_factors.astype(float)
    b = np.zeros(pairs.n_items)
    user_of = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
    for epoch in range(epochs):
        rate = settings.rate(epoch)
        for start in range(0, pairs.n_pairs, settings.batch_size):
            dU, dV, db = np.zeros_like(U), np.zeros_like(V), np.zeros_like(b)
            for entry in range(start, min(start + settings.batch_size, pairs.n_pairs)):
                u, i = user_of[entry], pairs.indices[entry]
                r, g = U[u] @ V[i] + b[i] - 1.0, float(pairs.all_logits()[entry])
                step = (objective.positive if pairs.taken[entry] else objective.negative)(r, g)[0]
                dU[u] += step * V[i]
                dV[i] += step * U[u]
                db[i] += step
            U, V = (
                (1 - rate * settings.regularization) * U + rate * dU,
                (1 - rate * settings.regularization) * V + rate * dV,
            )
            b = (1 - rate * settings.flip_regularization) * b + rate * db
    return U, V, b


@pytest.mark.parametrize("objective", [BPO, NBPOo], ids=lambda o: o.name)
@pytest.mark.parametrize("repeated", [False, True])
def test_shown_pairs_are_trained_on_once_each_with_their_label_and_flip(objective: Any, repeated: bool) -> None:
    _, pairs = make_pairs(repeated=repeated)
    engine, tables = engine_on(pairs, objective, SETTINGS)
    for epoch in range(2):
        engine.epoch(epoch)
    U, V, b = reference(pairs, objective, SETTINGS, 2)
    assert_allclose(tables.user_factors, U, atol=2e-5)
    assert_allclose(tables.item_factors, V, atol=2e-5)
    assert tables.item_bias is not None
    assert_allclose(tables.item_bias, b, atol=2e-5)
    assert (tables.users[:, tables.width] == 1).all()
    assert np.isfinite(engine.loss())


@pytest.mark.parametrize("order", ["blocks", "shuffled"])
def test_shown_pairs_give_the_same_bits_on_any_number_of_threads(order: Any) -> None:
    _, pairs = make_pairs(repeated=True)
    found = []
    for n_jobs in (1, 2, 3):
        engine, tables = engine_on(pairs, NBPOo, replace(SETTINGS, order=order), n_jobs)
        engine.epoch(0)
        found.append((tables.users.tobytes(), tables.items.tobytes()))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_negatives_of_pairs_are_drawn_from_what_was_skipped_in_the_declared_share(share: float) -> None:
    """A batch moves each item's row by -rate / 2 x U for each time it is drawn, if U is fixed and all scores are 0."""
    train, pairs = make_pairs()
    settings = replace(SETTINGS, n_negatives=50, batch_size=10**6, regularization=0.0)
    tables = Tables.zeros(*pairs.shape, 1, 0)
    tables.user_factors[:] = 1.0
    indptr, items = pairs.skipped()
    exposure = KnownExposure(skipped_indptr=indptr, skipped_items=items, skipped_share=share)
    counts = np.zeros(pairs.shape)
    for user in range(8):
        own = np.flatnonzero(train.matrix[[user]].toarray()[0])
        only = tl.Dataset.from_pairs(
            train.users, train.items, np.full(len(own), user, np.int32), own.astype(np.int32)
        )
        tables.item_factors[:] = 0.0
        tables.user_factors[:] = 1.0
        SampledEngine(only, tables, BPR, parse("uniform"), settings, seed=1, exposure=exposure, n_jobs=1).epoch(0)
        counts[user] = -tables.item_factors[:, 0] / (0.5 * settings.rate(0))
        counts[user, own] = 0
        drawn, skipped = counts[user], items[indptr[user] : indptr[user + 1]]
        never = np.setdiff1d(np.arange(pairs.n_items), np.union1d(own, skipped))
        assert_allclose(drawn.sum(), 50 * len(own), rtol=1e-4)
        assert abs(drawn[skipped].sum() / drawn.sum() - share) < 4 * np.sqrt(0.25 / drawn.sum())
        if share < 1:
            each = drawn[never] / drawn[never].sum()
            assert np.abs(each - 1 / len(never)).max() < 5 * np.sqrt(1 / len(never) / drawn[never].sum())


@pytest.mark.parametrize("objective", [RelMF, UBPR, UPL, NBPOo], ids=lambda o: o.name)
def test_estimated_exposure_is_used_in_the_steps(objective: Any) -> None:
    """One positive and one negative: the user's row moves by the steps at the flip logits of the two pairs."""
    rng = np.random.default_rng(0)
    train = tl.Dataset.from_pairs(
        tl.read([(0, i) for i in range(2)]).users, tl.read([(0, i) for i in range(2)]).items,
        np.zeros(1, np.int32), np.zeros(1, np.int32),
    )  # fmt: skip
    rates = ExposureRates(np.array([0.7]), np.array([0.9, 0.4]), "assumed: a test")
    tables = Tables.zeros(1, 2, 3, 0)
    tables.user_factors[:], tables.item_factors[:] = rng.normal(size=(1, 3)), rng.normal(size=(2, 3))
    U, V = tables.user_factors[0].astype(float), tables.item_factors.astype(float)
    settings = replace(SETTINGS, n_negatives=1, regularization=0.0)
    SampledEngine(
        train, tables, objective, parse("uniform"), settings, seed=1, n_jobs=1, exposure=KnownExposure(rates=rates)
    ).epoch(0)
    r, g = V @ U, rates.flip_logits([0])[0].astype(float)
    if objective in (UBPR, UPL):
        up, down = objective.pair(r[0], r[1], g[0], g[1])
    else:
        up, down = objective.positive(r[0], g[0])[0], objective.negative(r[1], g[1])[0]
    assert_allclose(tables.user_factors[0], U + settings.rate(0) * (up * V[0] + down * V[1]), rtol=1e-4)
    assert_allclose(tables.item_factors, V + settings.rate(0) * np.outer([up, down], U), rtol=1e-4)
