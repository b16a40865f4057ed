"""Probabilities are calibrated on shown pairs that the model was not trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.exposure import calibration
from truelike.exposure import shown_pairs as shown
from truelike.exposure.calibration import calibrated_fit
from truelike.exposure.shown_pairs import shown_pairs

WORLD = tl.synthetic.World(n_users=300, n_items=150, impressions_per_user=90, seed=3)
USERS, ITEMS = (np.asarray(list(ids)) for ids in (WORLD.dataset().users, WORLD.dataset().items))


def pairs_shown(train: Any, impressions: Any) -> Any:
    data = tl.read(train, impressions=impressions)
    assert data.shown is not None
    return shown_pairs(data, data.shown, 0.0)


@pytest.fixture(scope="module")
def data() -> Any:
    return WORLD.dataset()


@pytest.fixture(scope="module")
def known(data: Any) -> Any:
    return pairs_shown(data, WORLD.impressions().recode(data.users, data.items)[0])


class Recorder:
    """Stands for a training: it keeps what it was given, and scores pairs by a function of their numbers."""

    def __init__(self, shift: float = 0.0) -> None:
        self.calls: list[Any] = []
        self.asked: Any = None
        self.shift = shift

    def run(self, pairs: Any) -> int:
        self.calls.append(pairs)
        return len(self.calls)

    def scores(self, result: int, users: Any, items: Any) -> Any:
        self.asked = (result, users, items)
        likely = WORLD.like_probability(USERS[users], ITEMS[items])
        return np.log(likely) - np.log1p(-likely) + self.shift


def fitted(known: Any, recorder: Recorder, seed: int = 0) -> Any:
    return calibrated_fit(known, seed=seed, run=recorder.run, scores=recorder.scores)


def pairs_of(csr: Any) -> set[tuple[int, int]]:
    users = np.repeat(np.arange(len(csr.indptr) - 1), np.diff(csr.indptr))
    return set(zip(users.tolist(), csr.indices.tolist(), strict=True))


def test_the_pairs_it_is_calibrated_on_are_not_trained_on(known: Any) -> None:
    recorder = Recorder()
    found = fitted(known, recorder)
    first, second = recorder.calls
    held_out = set(zip(*(each.tolist() for each in recorder.asked[1:]), strict=True))
    assert recorder.asked[0] == 1
    assert 0.08 < len(held_out) / known.n_pairs < 0.12
    assert pairs_of(first) | held_out == pairs_of(known)
    assert not pairs_of(first) & held_out
    assert second is known
    assert found[0] == 2
    assert found[1].pairs == len(held_out)


def test_what_is_held_out_follows_from_the_seed(known: Any) -> None:
    asked = []
    for seed in (0, 0, 1):
        recorder = Recorder()
        fitted(known, recorder, seed)
        asked.append(recorder.asked[1].tolist())
    assert asked[0] == asked[1] != asked[2]


def test_a_wrong_level_is_corrected(known: Any) -> None:
    """The map takes back a shift of the scores, up to the noise of some thousand labels."""
    for shift in (-2.0, 2.0):
        found = fitted(known, Recorder(shift))[1]
        likely = np.array([0.05, 0.2, 0.5])
        again = found(np.log(likely) - np.log1p(-likely) + shift)
        assert np.abs(again - likely).max() < 0.08, found


def test_large_logs_are_trained_on_once(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A held-out share below REFIT is not worth a second training."""
    monkeypatch.setattr(shown, "MOST_HELD_OUT", 400)
    monkeypatch.setattr(calibration, "REFIT", 0.05)
    recorder = Recorder()
    found = fitted(known, recorder)
    assert len(recorder.calls) == 1
    assert found[0] == 1
    assert 250 < found[1].pairs < 550


def test_few_pairs_are_trained_on_without_a_map() -> None:
    tiny = tl.synthetic.World(n_users=20, n_items=15, impressions_per_user=8, seed=0)
    small = tiny.dataset()
    pairs = pairs_shown(small, tiny.impressions().recode(small.users, small.items)[0])
    recorder = Recorder()
    found = fitted(pairs, recorder)
    assert found[1] is None
    assert recorder.calls[0] is pairs
    assert len(recorder.calls) == 1


def test_the_probabilities_of_a_model_are_those_of_the_world(data: Any) -> None:
    shown = WORLD.impressions().recode(data.users, data.items)[0]
    model = tl.ImpressionMF(factors=8).fit(tl.read(data, impressions=shown), progress=False)
    users, items = np.divmod(np.arange(data.n_users * data.n_items), data.n_items)
    pairs = USERS[users], ITEMS[items]
    truth = WORLD.like_probability(*pairs)
    found = model.like_probability(*pairs)["probability"].to_numpy()
    assert abs(found.mean() - truth.mean()) < 0.02
    order = np.argsort(found)
    for part in np.array_split(order, 5):
        assert abs(found[part].mean() - truth[part].mean()) < 0.06
    assert model.calibration_.pairs > 1_000
    off = tl.clone(model, calibrate=False).fit(tl.read(data, impressions=shown), progress=False)
    assert off.calibration_ is None
