"""A run that is stopped, or killed, goes on as if it had never been."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truelike as tl
from truelike.core.files import write_description
from truelike.errors import StorageError

EPOCHS = 9


class StoppedError(Exception):
    """Somebody pulled the plug."""


ROWS = """[
    (u, i) for u in range(120) for i in range(60)
    if u % 60 == i or (u * 7919 + i * 104729 + u * i * 31) % 101 < (25 if u % 4 == i % 4 else 3)
]"""
QUICK: dict[str, Any] = {
    "factors": 6, "flip_factors": 3, "epochs": EPOCHS, "batch_size": 100, "patience": None, "learning_rate": 0.05,
    "decay": 0.98, "regularization": 3.0, "flip_regularization": 2.0, "n_negatives": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def split() -> Any:
    return tl.splits.by_user(tl.read(eval(ROWS)), seed=0)


def model_of(**parameters: Any) -> Any:
    return tl.NBPO(**{**QUICK, "n_jobs": 1, **parameters})


def as_bytes(model: Any) -> tuple[Any, ...]:
    history = model.history_.drop("seconds")
    return model.tables_.users.tobytes(), model.tables_.items.tobytes(), history.rows()


def unplug(at: int) -> Any:
    """A callback that ends everything after epoch `at`, before that epoch's checkpoint."""

    def callback(state: Any) -> None:
        if state.epoch == at:
            raise StoppedError

    return callback


@pytest.mark.parametrize("validated", [False, True], ids=["alone", "validated"])
@pytest.mark.parametrize("every", [1, 3])
def test_stopped_at_any_epoch_it_ends_with_the_same_bits(
    validated: bool, every: int, split: Any, tmp_path: Path
) -> None:
    validation = split.validation if validated else None
    whole = as_bytes(model_of().fit(split.train, validation=validation))
    for at in range(EPOCHS):
        place = tmp_path / f"{at}"
        how = {"validation": validation, "checkpoint": place, "checkpoint_epochs": every}
        with pytest.raises(StoppedError):
            model_of().fit(split.train, callbacks=[unplug(at)], **how)
        assert place.exists() == (at >= every)
        done: list[int] = []
        again = model_of().fit(split.train, resume=True, callbacks=[lambda s, d=done: d.append(s.epoch)], **how)
        assert done == list(range(at // every * every, EPOCHS))
        assert as_bytes(again) == whole


@pytest.mark.parametrize("at", [0, 1, 3, 4])
def test_early_stopping_counts_on_over_a_stop(at: int, split: Any, tmp_path: Path) -> None:
    def fresh() -> Any:
        return model_of(epochs=80, patience=6)

    whole = fresh().fit(split.train, validation=split.validation)
    assert at + 1 < len(whole.history_) < 80
    how = {"validation": split.validation, "checkpoint": tmp_path / "state", "checkpoint_epochs": 1}
    with pytest.raises(StoppedError):
        fresh().fit(split.train, callbacks=[unplug(at)], **how)
    again = fresh().fit(split.train, resume=True, **how)
    assert as_bytes(again) == as_bytes(whole)
    # and a run that had come to its end is only read
    done: list[int] = []
    third = fresh().fit(split.train, resume=True, callbacks=[lambda s: done.append(s.epoch)], **how)
    assert done == []
    assert as_bytes(third) == as_bytes(whole)


def test_a_resumed_run_may_have_more_patience_but_not_fewer_epochs(split: Any, tmp_path: Path) -> None:
    how = {"validation": split.validation, "checkpoint": tmp_path / "state", "progress": False}
    whole = model_of(epochs=60, patience=None).fit(split.train, validation=split.validation)
    short = model_of(epochs=60, patience=2).fit(split.train, **how)
    assert len(short.history_) < 60
    again = model_of(epochs=60, patience=None).fit(split.train, resume=True, **how)
    assert as_bytes(again) == as_bytes(whole)
    with pytest.raises(StorageError, match="is after epoch 60, and epochs is 5"):
        model_of(epochs=5).fit(split.train, resume=True, **how)


def test_the_threads_and_the_number_of_epochs_may_change_between(split: Any, tmp_path: Path) -> None:
    whole = as_bytes(model_of().fit(split.train))
    model_of(epochs=4, n_jobs=2).fit(split.train, checkpoint=tmp_path / "state")
    again = model_of(n_jobs=3).fit(split.train, checkpoint=tmp_path / "state", resume=True)
    assert as_bytes(again) == whole


def test_without_resume_a_run_starts_afresh_and_without_a_checkpoint_so_does_resume(
    split: Any, tmp_path: Path
) -> None:
    whole = as_bytes(model_of().fit(split.train))
    place = tmp_path / "deep" / "state"
    for resume in (True, False):
        done: list[int] = []
        model = model_of().fit(
            split.train, checkpoint=place, resume=resume, callbacks=[lambda s, d=done: d.append(s.epoch)]
        )
        assert done == list(range(EPOCHS))
        assert as_bytes(model) == whole
    assert sorted(path.name for path in place.iterdir()) == ["arrays.safetensors", "checkpoint.json"]
    assert [path.name for path in place.parent.iterdir()] == ["state"]


def test_a_checkpoint_is_written_by_the_clock_too(split: Any, tmp_path: Path) -> None:
    how = {"checkpoint": tmp_path / "state", "checkpoint_epochs": 1_000}
    with pytest.raises(StoppedError):
        model_of().fit(split.train, callbacks=[unplug(5)], checkpoint_minutes=5.0, **how)
    assert not (tmp_path / "state").exists()
    with pytest.raises(StoppedError):
        model_of().fit(split.train, callbacks=[unplug(5)], checkpoint_minutes=0.0, **how)
    assert json.loads((tmp_path / "state" / "checkpoint.json").read_text())["epoch"] == 4


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [{"seed": 1}, {"factors": 7}, {"learning_rate": 0.01}, {"negatives": "popularity"}, {"order": "file"}],
    ids=str,
)
def test_a_checkpoint_of_other_parameters_is_refused(other: Any, split: Any, tmp_path: Path) -> None:
    model_of(epochs=2).fit(split.train, checkpoint=tmp_path / "state")
    with pytest.raises(StorageError, match=r"other data or other parameters\. Delete it"):
        model_of(**other).fit(split.train, checkpoint=tmp_path / "state", resume=True)


def test_a_checkpoint_of_other_data_or_another_model_is_refused(split: Any, tmp_path: Path) -> None:
    model_of(epochs=2).fit(split.train, checkpoint=tmp_path / "state")
    with pytest.raises(StorageError, match="other data"):
        model_of().fit(split.test, checkpoint=tmp_path / "state", resume=True)
    with pytest.raises(StorageError, match="other data"):  # its best epoch was chosen on nothing
        model_of().fit(split.train, validation=split.validation, checkpoint=tmp_path / "state", resume=True)
    other = tl.SampledMF(**model_of().get_params())
    with pytest.raises(StorageError, match="other data"):
        other.fit(split.train, checkpoint=tmp_path / "state", resume=True)


def test_a_checkpoint_of_other_times_or_weights_is_refused(tmp_path: Path) -> None:
    rows = [(user, item, 1, user + item) for user in range(5) for item in range(4)]
    model = tl.IALS(factors=2, epochs=2, recency="user", weighting="log")
    model.fit(tl.read(rows), checkpoint=tmp_path / "state")
    for other in ([*rows, (0, 0, 1, 0)], [(user, item, 1, -at) for user, item, _, at in rows]):
        with pytest.raises(StorageError, match="other data"):
            model.fit(tl.read(other), checkpoint=tmp_path / "state", resume=True)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("name", ["arrays.safetensors", "checkpoint.json"])
@pytest.mark.parametrize(
    "damage", [cut, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"[1]")]
)
def test_a_damaged_checkpoint_is_an_error_that_names_it(
    damage: Any, name: str, split: Any, tmp_path: Path
) -> None:
    model_of(epochs=2).fit(split.train, checkpoint=tmp_path / "state")
    damage(tmp_path / "state" / name)
    with pytest.raises(StorageError, match=r"checkpoint in .*state.* damaged or incomplete"):
        model_of().fit(split.train, checkpoint=tmp_path / "state", resume=True)


def test_a_checkpoint_without_its_arrays_or_of_a_later_format_is_an_error(split: Any, tmp_path: Path) -> None:
    model_of(epochs=2).fit(split.train, checkpoint=tmp_path / "state")
    about = tmp_path / "state" / "checkpoint.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "format": 99}))
    with pytest.raises(StorageError, match="format 99; this version reads format 4"):
        model_of().fit(split.train, checkpoint=tmp_path / "state", resume=True)
    (tmp_path / "state" / "arrays.safetensors").unlink()
    with pytest.raises(StorageError, match="state"):
        model_of().fit(split.train, checkpoint=tmp_path / "state", resume=True)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1}, {"epoch": -(10**30)}, {"epoch": 10**30}, {"epoch": 0}, {"epoch": "1"}, {"epoch": None},
        {"epoch": True}, {"epoch": 1.0}, {"rows": None}, {"rows": []}, {"rows": [3, 4]}, {"rows": [{}, {}]},
        {"rows": [{"epoch": 0, "seconds": 1, "loss": "x"}, {"epoch": 1, "seconds": 1, "loss": 1}]},
        {"rows": [{"epoch": 1, "seconds": 1, "loss": 1}, {"epoch": 0, "seconds": 1, "loss": 1}]},
        {"best": None}, {"best": {}}, {"best": {"value": "x", "epoch": 0}}, {"best": {"value": 0.5, "epoch": 7}},
        {"best": {"value": 0.5, "epoch": 10**30}}, {"arrays": None}, {"arrays": {}}, {"fingerprint": None},
    ],
    ids=str,
)  # fmt: skip
def test_an_edited_checkpoint_is_an_error_that_names_it(change: Any, split: Any, tmp_path: Path) -> None:
    how: Any = {"validation": split.validation, "checkpoint": tmp_path / "state"}
    model_of(epochs=2).fit(split.train, **how)
    about = tmp_path / "state" / "checkpoint.json"
    original = json.loads(about.read_text())
    about.write_text(json.dumps({**original, **change}))
    with pytest.raises(StorageError, match=r"checkpoint in .*state.*is not as it was written"):
        model_of().fit(split.train, **how, resume=True)
    write_description(about, {**original, **change})  # as if it had been written so
    with pytest.raises(StorageError, match=r"checkpoint in .*state"):
        model_of().fit(split.train, **how, resume=True)


def test_a_checkpoint_that_cannot_be_written_is_an_error_before_training(split: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    seen: list[int] = []
    with pytest.raises(StorageError, match=r"file.* is a file"):
        model_of().fit(split.train, checkpoint=tmp_path / "file", callbacks=[lambda s: seen.append(s.epoch)])
    assert not seen


def test_somebody_s_other_files_are_never_deleted(split: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("ten years")
    with pytest.raises(StorageError, match=r"other files.*thesis\.txt"):
        model_of().fit(split.train, checkpoint=tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "ten years"


# --- kill -9 --------------------------------------------------------------------------------------


def test_a_crash_between_the_two_renames_loses_nothing(split: Any, tmp_path: Path) -> None:
    model_of(epochs=4).fit(split.train, checkpoint=tmp_path / "state")
    (tmp_path / "state").rename(tmp_path / ".state.previous")
    done: list[int] = []
    how = {"checkpoint": tmp_path / "state", "resume": True}
    again = model_of().fit(split.train, callbacks=[lambda s: done.append(s.epoch)], **how)
    assert done == list(range(4, EPOCHS))
    assert as_bytes(again) == as_bytes(model_of().fit(split.train))
