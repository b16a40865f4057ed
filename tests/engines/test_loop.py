"""The epoch loop keeps the best epoch, stops early, and refuses diverged parameters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.engines.callbacks import KeepBest
from truelike.engines.engine import State
from truelike.engines.loop import run_epochs
from truelike.engines.tables import Tables
from truelike.errors import DivergedError, NotFittedError, ParameterError, TrainingWarning


class FakeEngine:
    """An engine whose whole state is the list of the epochs that it did."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def epoch(self, number: int, progress: Any = None) -> None:
        self.done.append(number)
        if progress is not None:
            progress(10)

    def loss(self) -> float:
        return 1.0 / len(self.done)


def run(
    values: list[float], patience: int | None, callbacks: Any = (), floor: float = 0.0
) -> tuple[FakeEngine, KeepBest, State]:
    """Train for as long as there are values of the metric "m@1"."""
    engine = FakeEngine()
    best = KeepBest("m@1", lambda: list(engine.done), patience, floor)
    state = run_epochs(
        engine,
        len(values),
        callbacks=[best, *callbacks],
        measure=lambda: {"m@1": values[len(engine.done) - 1]},
    )
    return engine, best, state


# --- the best epoch -------------------------------------------------------------------------------


def test_the_best_epoch_is_kept_not_the_last() -> None:
    _, best, state = run([0.1, 0.3, 0.2, 0.25], patience=None)
    assert (best.best_epoch, best.best_value, best.best) == (1, 0.3, [0, 1])
    assert state.epoch == 3


@pytest.mark.parametrize(("patience", "done"), [(1, 3), (2, 4), (3, 7), (None, 7)])
def test_training_stops_after_so_many_epochs_without_a_better_one(patience: int | None, done: int) -> None:
    engine, best, state = run([0.1, 0.3, 0.2, 0.25, 0.31, 0.1, 0.1], patience)
    assert len(engine.done) == done == len(state.rows)
    assert best.best_epoch == (4 if done == 7 else 1)
    assert state.stop == (patience in (1, 2))


def test_training_does_not_stop_below_the_floor() -> None:
    """The floor is the value of the popularity ranking: many models begin with a plateau below it."""
    values = [0.10, 0.11, 0.10, 0.10, 0.10, 0.3, 0.2, 0.2]
    assert len(run(values, patience=2)[0].done) == 4
    engine, best, _ = run(values, patience=2, floor=0.2)
    assert len(engine.done) == 8
    assert best.best_value == 0.3


def test_of_equal_epochs_the_first_is_kept_and_an_equal_one_is_no_better() -> None:
    engine, best, _ = run([0.3, 0.3, 0.3, 0.3, 0.3], patience=2)
    assert best.best_epoch == 0
    assert len(engine.done) == 3


def test_a_metric_that_is_not_a_number_is_never_the_best() -> None:
    _, best, _ = run([0.1, float("nan"), 0.05], patience=None)
    assert best.best_epoch == 0


def test_a_metric_that_is_not_measured_is_an_error_that_lists_those_that_are() -> None:
    with pytest.raises(ParameterError, match=r"metric is 'ndcg@7'; there are epoch, seconds, loss, m@1"):
        run_epochs(FakeEngine(), 3, callbacks=[KeepBest("ndcg@7", dict, None)], measure=lambda: {"m@1": 1.0})


# --- callbacks and history ------------------------------------------------------------------------


def test_callbacks_are_called_after_every_epoch_in_their_order_and_can_stop() -> None:
    seen: list[tuple[str, int]] = []

    def first(state: State) -> None:
        seen.append(("first", state.epoch))
        state.stop = state.epoch == 2

    state = run_epochs(FakeEngine(), 10, callbacks=[first, lambda s: seen.append(("second", s.epoch))])
    assert seen == [(name, epoch) for epoch in range(3) for name in ("first", "second")]
    assert state.epoch == 2


def test_the_epochs_to_come_and_the_samples_within_one_are_told() -> None:
    told: list[tuple[int, int]] = []
    planned: list[int] = []
    run_epochs(
        FakeEngine(),
        3,
        callbacks=[lambda s: planned.append(s.epochs)],
        within_epoch=lambda epoch, done: told.append((epoch, done)),
    )
    assert told == [(0, 10), (1, 10), (2, 10)]
    assert planned == [3, 3, 3]


def test_the_history_of_no_epoch_has_its_columns_too() -> None:
    assert run_epochs(FakeEngine(), 0).history().columns == ["epoch", "seconds", "loss"]


# --- through a model ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def split() -> Any:
    """160 users and 80 items of four tastes."""
    rng = np.random.default_rng(0)
    users, items = np.arange(160)[:, None], np.arange(80)[None, :]
    observed = (rng.random((160, 80)) < np.where(users % 4 == items % 4, 0.3, 0.04)) | (users % 80 == items)
    return tl.splits.by_user(tl.read([(int(u), int(i)) for u, i in np.argwhere(observed)]), seed=0)


def model_of(**parameters: Any) -> Any:
    quick = {"factors": 6, "epochs": 12, "batch_size": 200, "n_jobs": 1, "learning_rate": 0.05, "decay": 0.98}
    return tl.BPO(**{**quick, "regularization": 3.0, "n_negatives": 5, **parameters})


def test_a_model_s_tables_are_those_of_its_best_epoch(split: Any) -> None:
    model = model_of(patience=None, learning_rate=0.15, epochs=60).fit(split.train, validation=split.validation)
    history = model.history_
    assert history.columns[:3] == ["epoch", "seconds", "loss"]
    assert {"ndcg@20", "f1@2", "ndcg@5"} <= set(history.columns)
    best = int(history["ndcg@20"].arg_max())
    assert best < 59, "the last epoch is the best one: the test shows nothing"
    found = tl.evaluate(model, split.validation, ks=(20,), metrics=["ndcg"])["ndcg@20"]
    assert found == pytest.approx(history["ndcg@20"].max(), abs=1e-12)
    short = model_of(epochs=best + 1, learning_rate=0.15).fit(split.train)
    assert short.tables_.users.tobytes() == model.tables_.users.tobytes()


def test_a_model_that_ranks_no_better_than_popularity_says_so(split: Any) -> None:
    with pytest.warns(TrainingWarning, match=r"BPO ranks no better than item popularity on validation: ndcg@20"):
        model_of(learning_rate=1e-6, epochs=2).fit(split.train, validation=split.validation)


def test_any_metric_at_any_length_can_be_watched(split: Any) -> None:
    model = model_of(metric="recall@7", epochs=3).fit(split.train, validation=split.validation)
    found = tl.evaluate(model, split.validation, ks=(7,), metrics=["recall"])["recall@7"]
    assert found == pytest.approx(model.history_["recall@7"].max(), abs=1e-12)


def test_a_run_without_bounds_stops_with_a_rate_to_try_and_leaves_nothing(split: Any, tmp_path: Path) -> None:
    for rate in (50.0, 1e6):
        model = model_of(learning_rate=rate, regularization=0.0)
        with pytest.raises(DivergedError, match=rf"BPO diverged.*={re.escape(f'{rate:g}')} .*Try learning_rate="):
            model.fit(split.train, checkpoint=tmp_path / "state", checkpoint_epochs=1)
        assert not (tmp_path / "state").exists()
        with pytest.raises(NotFittedError):
            model.save(tmp_path / "model")
        assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("where", ["users", "items"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e9])
def test_the_largest_number_is_found_wherever_it_is(where: str, value: float) -> None:
    tables = Tables.zeros(3, 4, 5, 2)
    getattr(tables, where)[1, 2] = value
    assert not tables.largest() < 1e8
    assert np.isnan(tables.largest()) == np.isnan(value)
