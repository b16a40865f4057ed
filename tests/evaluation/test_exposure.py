"""The note that held-out interactions mostly measure exposure: when it is there, and when it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import truelike as tl
from truelike.evaluation import exposure
from truelike.evaluation.exposure import ExposureSample


def split_of(skew: float, seed: int = 31) -> tuple[Any, Any]:
    world = tl.synthetic.World(
        n_users=1_500, n_items=600, impressions_per_user=180, taste=2.0, exposure_skew=skew, seed=seed
    )
    return world, tl.splits.by_user(world.dataset(), seed=0)


@pytest.fixture(scope="module")
def strong() -> Any:
    return split_of(2.4)


@pytest.fixture(scope="module")
def weak() -> Any:
    return split_of(0.3)


def test_a_note_says_that_a_log_under_strong_exposure_measures_popularity(strong: Any, weak: Any) -> None:
    for (_, split), expected in ((strong, 1), (weak, 0)):
        result = tl.evaluate(tl.IALS(factors=16).fit(split.train, progress=False), split.test, ks=20)
        assert len(result.notes) == expected
        assert ("Note: The held-out interactions mostly measure popularity" in repr(result)) == bool(expected)
        assert ("<p>Note: The held-out" in result._repr_html_()) == bool(expected)


def test_with_impressions_the_note_is_about_exposure(strong: Any, weak: Any) -> None:
    for (world, split), expected in ((strong, 1), (weak, 0)):
        model = tl.ImpressionMF(factors=8, steps=60)
        data = tl.read(world.dataset(), impressions=world.impressions())
        model.fit(tl.splits.by_user(data, seed=0).train, progress=False)
        notes = tl.evaluate(model, split.test, ks=20).notes
        assert len(notes) == expected
        assert all(
            note.startswith("The held-out interactions mostly measure exposure: how often") for note in notes
        )


def test_the_popularity_ranking_itself_and_few_interactions_get_no_note(strong: Any) -> None:
    _, split = strong
    assert tl.evaluate(tl.ItemPop().fit(split.train), split.test).notes == ()
    model = tl.IALS(factors=16).fit(split.train, progress=False)
    few = split.test.select(np.arange(split.test.n_interactions) < 50)
    assert tl.evaluate(model, few).notes == ()
    without, usual = tl.evaluate(model, split.test, notes=False), tl.evaluate(model, split.test)
    assert without.notes == ()
    assert without.means() == usual.means()


def test_the_sample_does_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposure, "USERS", 20)
    rng = np.random.default_rng(0)
    relevant = sparse.csr_array((rng.random((100, 30)) < 0.2).astype(np.float32))
    users, lists = np.arange(100, dtype=np.int32) * 3, (np.empty((0, 0), bool), np.empty((0, 0), np.int64))
    whole, parts = ExposureSample(), ExposureSample()
    whole.add(users, relevant, *lists)
    for start in range(0, 100, 17):
        parts.add(users[start : start + 17], relevant[start : start + 17], *lists)
    for a, b in zip(whole.pairs(), parts.pairs(), strict=True):
        assert a.tolist() == b.tolist()
    assert len(set(whole.pairs()[0])) <= 20
