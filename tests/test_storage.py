"""A saved model is whole or not there; a damaged one is an error that names its place."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file

import truelike as tl
from truelike.core import files
from truelike.core.array_files import write_arrays
from truelike.errors import DataWarning, NotFittedError, StorageError
from truelike.storage import model_version, read_model

FILES = {"model.json", "arrays.safetensors", "users.parquet", "items.parquet"}
ROWS = [("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "rum"), ("eve", "gin"), ("eve", "tea")]


@pytest.fixture
def model() -> Any:
    return tl.ItemKNN(neighbors=7).fit(tl.read(ROWS))


@pytest.fixture
def place(model: Any, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


def edit(place: Path, **changes: Any) -> None:
    about = json.loads((place / "model.json").read_text())
    files.write_description(place / "model.json", {**about, **changes})  # as if it had been written so


def edit_arrays(place: Path, **changes: Any) -> None:
    arrays = load_file(place / "arrays.safetensors")
    arrays.update({name.replace("__", "."): array for name, array in changes.items()})
    edit(place, arrays=write_arrays(place / "arrays.safetensors", arrays))


def refused(place: Path, *words: str) -> None:
    with pytest.raises(StorageError) as error:
        tl.load(place)
    for word in (str(place), *words):
        assert word in str(error.value)


# --- the way there and back -----------------------------------------------------------------------


def test_a_directory_holds_exactly_four_files_and_no_pickle(place: Path) -> None:
    assert {path.name for path in place.iterdir()} == FILES
    assert not any(b"pickle" in path.read_bytes() for path in place.iterdir())
    assert (place / "users.parquet").read_bytes()[:4] == b"PAR1"
    json.loads((place / "model.json").read_text())


def test_the_file_says_what_it_is(model: Any, place: Path) -> None:
    model.save(place, metrics={"ndcg@20": np.float32(0.25)})
    about = json.loads((place / "model.json").read_text())
    assert about["format"] == 4
    assert about["class"] == "ItemKNN"
    assert about["parameters"] == {
        "neighbors": 7, "shrinkage": None, "min_support": 1, "weighting": "none", "n_jobs": -1,
    }  # fmt: skip
    assert about["metrics"] == {"ndcg@20": 0.25}
    assert about["library_version"] == tl.__version__
    assert about["data"]["ids"] == {"users": "str", "items": "str"}


def test_titles_and_ids_with_unusual_letters_come_back(tmp_path: Path) -> None:
    log = tl.read([("Zoë", "茶"), ("Zoë", "a/b"), ("Ωmega", "茶")]).with_titles({"茶": "Tea ☕"})
    tl.ItemPop().fit(log).save(tmp_path / "model")
    frame = tl.load(tmp_path / "model").recommend("Zoë", exclude_seen=False, titles=True)
    assert frame.rows() == [("Zoë", "茶", 2.0, 1, "Tea ☕"), ("Zoë", "a/b", 1.0, 2, "a/b")]


def test_the_training_data_comes_back_with_weights_and_times(tmp_path: Path) -> None:
    data = tl.read([("ann", "tea", 1, 5), ("ann", "gin", 1, -7), ("bob", "tea", 1, 2**62), ("ann", "tea", 1, 6)])
    with pytest.warns(DataWarning, match="do not count"):
        tl.ItemPop().fit(data).save(tmp_path / "model")
    found = tl.load(tmp_path / "model").train_
    assert found.to_frame().equals(data.to_frame())
    with pytest.raises(ValueError, match="read-only"):
        found.times[0] = 1


def test_parent_directories_are_made_and_an_older_model_is_replaced(model: Any, tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "model"
    model.save(target)
    tl.ItemPop().fit(tl.read(ROWS)).save(target)
    assert repr(tl.load(target)) == "ItemPop()"
    assert [path.name for path in target.parent.iterdir()] == ["model"]


def test_a_link_keeps_pointing_where_it_points(model: Any, place: Path, tmp_path: Path) -> None:
    link = tmp_path / "latest"
    link.symlink_to(place)
    for _ in range(3):
        tl.ItemPop().fit(tl.read(ROWS)).save(link)
    assert link.is_symlink()
    assert repr(tl.load(link)) == repr(tl.load(place)) == "ItemPop()"
    assert {path.name for path in tmp_path.iterdir()} == {"model", "latest"}


# --- what is never written ------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_with_a_value_that_is_not_finite_is_never_saved(model: Any, place: Path, value: float) -> None:
    model.similarity_.data[0] = value
    with pytest.raises(StorageError, match=r"similarity\.data. holds values that are not finite"):
        model.save(place)
    assert np.isfinite(tl.load(place).similarity_.data).all()


def test_an_unfitted_model_is_never_saved(place: Path) -> None:
    with pytest.raises(NotFittedError):
        tl.ItemPop().save(place)
    assert repr(tl.load(place)) == "ItemKNN(neighbors=7)"


def test_a_file_is_never_replaced_by_a_directory(model: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary")
    with pytest.raises(StorageError, match=r"notes\.txt' is a file"):
        model.save(tmp_path / "notes.txt")
    with pytest.raises(StorageError, match="cannot write"):
        model.save(tmp_path / "notes.txt" / "model")
    assert (tmp_path / "notes.txt").read_text() == "dear diary"


def test_a_directory_with_other_files_is_never_replaced(model: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("years of work")
    with pytest.raises(StorageError, match=r"holds other files.*thesis\.tex"):
        model.save(home)
    assert (home / "thesis.tex").read_text() == "years of work"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_an_empty_directory_may_be_filled(model: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    model.save(tmp_path / "empty")
    assert repr(tl.load(tmp_path / "empty")) == repr(model)


# --- damage ---------------------------------------------------------------------------------------


def test_no_model_at_all(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StorageError, match="there is no model in"):
            tl.load(place)


@pytest.mark.parametrize(("format", "version"), [(1, "0.1.0"), (99, "7.0")])
def test_a_model_of_another_format_names_the_version_that_wrote_it(place: Path, format: int, version: str) -> None:
    edit(place, format=format, library_version=version)
    refused(place, f"format {format}", version, "reads format 4", "Recreate it")


FILES_DESCRIBED = [None, 3, {}, {"arrays.safetensors": 7}]
WRONG_VALUES: dict[str, list[Any]] = {
    "class": ["os.system", "Recommender", "itemknn", 5],
    "parameters": [{"neighbors": 0}, {"neighbours": 5}, {"shrinkage": "much"}, [1], None],
    "files": FILES_DESCRIBED,
    "arrays": FILES_DESCRIBED,
    "data": [
        *({"ids": {"users": kind, "items": "str"}} for kind in ("int", "uuid", ["str"])),
        {"library": "pickle"},
    ],
    "history": [{"epoch": ["one"]}, {"epoch": [[1]]}, [1, 2], {"epoch": 3}],
}


@pytest.mark.parametrize("key", WRONG_VALUES)
def test_a_wrong_value_in_the_description_is_refused(place: Path, key: str) -> None:
    about = json.loads((place / "model.json").read_text())
    for value in WRONG_VALUES[key]:
        edit(place, **{key: about[key] | value if key == "data" else value})
        refused(place, "not one of truelike's own" if key == "class" else "damaged or incomplete")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "\x00\x01", '{"format": 4}', '{"class": "ItemPop"}'])
def test_garbage_in_model_json_is_damage(place: Path, text: str) -> None:
    (place / "model.json").write_text(text)
    refused(place, "damaged or incomplete")


@pytest.mark.parametrize("name", sorted(FILES - {"model.json"}))
@pytest.mark.parametrize("damage", ["cut", "missing", "empty", "garbage"])
def test_a_file_that_is_cut_off_or_gone_is_damage(place: Path, name: str, damage: str) -> None:
    path = place / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        new = {"cut": content[: len(content) // 2], "empty": b"", "garbage": b"garbage" * 50}
        path.write_bytes(new[damage])
    refused(place, "damaged or incomplete")


WRONG_NUMBERS = {
    "beyond": {"train__indices": np.array([99, 0, 1, 2, 0, 3], dtype=np.int32)},
    "negative": {"train__indices": np.array([-1, 0, 1, 2, 0, 3], dtype=np.int32)},
    "unsorted": {"train__indices": np.array([3, 1, 3, 2, 3, 0], dtype=np.int32)},
    "not rising": {"train__indptr": np.array([0, 5, 2, 6], dtype=np.int32)},
    "short": {"train__indptr": np.array([0, 6], dtype=np.int32)},
    "few times": {"train__times": np.zeros(5, dtype=np.int64)},
    "times not whole": {"train__times": np.zeros(6, dtype=np.float64)},
    "neighbour beyond": {"model__similarity__indices": np.full(8, 10**6, dtype=np.int32)},
    "neighbours short": {"model__similarity__indptr": np.array([0, 10**6], dtype=np.int64)},
}


@pytest.mark.parametrize("changes", WRONG_NUMBERS.values(), ids=WRONG_NUMBERS)
def test_numbers_that_would_lead_outside_an_array_are_damage(place: Path, changes: Any) -> None:
    edit_arrays(place, **changes)
    refused(place, "damaged or incomplete")


@pytest.mark.parametrize("popularity", [np.ones(2, np.float32), np.ones(4, np.float16)], ids=["shape", "type"])
def test_a_popularity_that_is_not_one_number_an_item_is_damage(tmp_path: Path, popularity: Any) -> None:
    place = tmp_path / "model"
    tl.ItemPop().fit(tl.read(ROWS)).save(place)
    edit_arrays(place, model__popularity=popularity)
    refused(place, f"popularity is {popularity.dtype} of shape {popularity.shape}")


def test_an_id_map_of_another_model_is_damage(place: Path) -> None:
    pl.DataFrame({"item_id": list("abcdefgh")}).write_parquet(place / "items.parquet")
    refused(place, "damaged or incomplete", "items.parquet", "cannot belong to model.json")


@pytest.mark.parametrize("name", sorted(FILES - {"model.json"}))
def test_a_file_of_another_model_of_the_same_shape_is_damage(place: Path, tmp_path: Path, name: str) -> None:
    rows = [(user.upper(), item.upper()) for user, item in ROWS]
    tl.ItemKNN(neighbors=7, shrinkage=1.0).fit(tl.read(rows)).save(tmp_path / "other")
    (place / name).write_bytes((tmp_path / "other" / name).read_bytes())
    refused(place, f"{name}", "cannot belong to model.json")


def test_arrays_with_the_same_checksums_of_another_model_are_damage(tmp_path: Path) -> None:
    for name, items in (("one", "abcd"), ("two", "cdab")):
        rows = [(f"user {n // 2}", item) for n, item in enumerate(items)]
        tl.ItemPop().fit(tl.read(rows)).save(tmp_path / name)
    (tmp_path / "one" / "arrays.safetensors").write_bytes((tmp_path / "two" / "arrays.safetensors").read_bytes())
    refused(tmp_path / "one", "arrays.safetensors cannot belong to model.json: it has another id")


def test_two_rows_in_each_other_s_place_are_damage(tmp_path: Path) -> None:
    model = tl.EASE().fit(tl.synthetic.World(n_users=80, n_items=40).dataset())
    model.save(tmp_path / "model")
    file = tmp_path / "model" / "arrays.safetensors"
    first, second = (np.asarray(row, dtype=np.float32).tobytes() for row in model.weights_[:2])
    before, rest = file.read_bytes().split(first + second)
    file.write_bytes(before + second + first + rest)
    refused(tmp_path / "model", "the arrays of arrays.safetensors cannot belong to model.json")


def test_the_working_directory_is_never_replaced(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for place in ("", ".", "..", tmp_path / "here"):
        with pytest.raises(StorageError, match="is the working directory, or holds it"):
            model.save(place)
    assert Path.cwd() == tmp_path / "here"


def test_a_file_that_is_much_too_large_is_not_read(place: Path) -> None:
    with (place / "users.parquet").open("r+b") as file:
        file.truncate(10**13)  # without using the disk
    refused(place, "users.parquet has 10,000,000,000,000 bytes")


@pytest.mark.parametrize("ids", [["rum", "gin", "milk", "tea"], ["gin", "gin", "milk", "tea"]])
def test_ids_that_are_not_sorted_or_repeated_are_damage(place: Path, ids: list[str]) -> None:
    pl.DataFrame({"item_id": ids}).write_parquet(place / "items.parquet")
    edit(place, files=files.describe_files(place, ["users.parquet", "items.parquet"]))
    refused(place, "the item ids are not sorted, or some are repeated")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("kind", ["pipe", "directory", "device"])
def test_what_is_not_a_regular_file_is_damage(place: Path, name: str, kind: str) -> None:
    (place / name).unlink()
    if kind == "pipe":
        os.mkfifo(place / name)  # opening one waits for a writer
    elif kind == "directory":
        (place / name).mkdir()
    else:
        (place / name).symlink_to("/dev/zero")
    refused(place, "is not a regular file")


def test_a_description_that_was_edited_by_hand_is_damage(place: Path) -> None:
    path = place / "model.json"
    path.write_text(path.read_text().replace('"neighbors": 7', '"neighbors": 8'))
    refused(place, "model.json is not as it was written")


# --- systems that fail ----------------------------------------------------------------------------

LOAD_WITH_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
import truelike as tl
import truelike.models.ease

pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + 2**24
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    tl.load(sys.argv[1])
except tl.errors.TooLargeError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory and /proc are those of Linux")
def test_too_little_memory_is_not_called_damage(tmp_path: Path) -> None:
    tl.EASE().fit(tl.read([(n % 30, n) for n in range(3_000)])).save(tmp_path / "model")  # 36 MB
    command = [sys.executable, "-c", LOAD_WITH_LITTLE_MEMORY, str(tmp_path / "model")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "not enough memory to read the model" in found
    assert "damaged" not in found


def test_an_error_of_the_system_is_not_called_damage(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdopen", fail)
    refused(place, "cannot be read now", "Input/output error")


# --- disks that fail, and crashes -----------------------------------------------------------------

# the arrays take 40 kB and the users, whose names do not compress, 100 kB: either can be what fails
REPLACE = """
import hashlib, sys
import truelike as tl
from truelike.errors import StorageError

place, limit = sys.argv[1], int(sys.argv[2])
rows = [(hashlib.sha256(str(n).encode()).hexdigest(), n % 100) for n in range(3000)]
model = tl.ItemPop().fit(tl.read(rows))
if limit:
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    model.save(place)
except StorageError as error:
    print(error)
    sys.exit(3)
"""


def replace_in_subprocess(place: Path, limit: int) -> str:
    command = [sys.executable, "-c", REPLACE, str(place), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of files")
@pytest.mark.parametrize("limit", [100, 20_000, 60_000])
def test_when_the_disk_fails_the_old_model_stays_and_nothing_is_left_behind(place: Path, limit: int) -> None:
    message = replace_in_subprocess(place, limit)
    assert str(place) in message
    assert "what was there before is untouched" in message
    assert repr(tl.load(place)) == "ItemKNN(neighbors=7)"
    assert [path.name for path in place.parent.iterdir()] == ["model"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of files")
def test_when_the_disk_fails_a_first_model_leaves_nothing_behind(tmp_path: Path) -> None:
    assert "nothing was written" in replace_in_subprocess(tmp_path / "model", 2_000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", ["40k", "100k"])
def test_when_the_disk_is_full_the_old_model_stays(model: Any, tmp_path: Path, size: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    if os.name != "posix" or os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root, where it may mount, can make a small disk")
    try:
        model.save(disk / "model")
        assert "No space left" in replace_in_subprocess(disk / "model", 0)
        assert repr(tl.load(disk / "model")) == "ItemKNN(neighbors=7)"
        assert [path.name for path in disk.iterdir()] == ["model"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_after_a_crash_between_the_two_renames_the_old_model_is_found(model: Any, place: Path) -> None:
    place.rename(place.with_name(".model.previous"))
    again = tl.load(place)
    assert repr(again) == repr(model)
    tl.ItemPop().fit(tl.read(ROWS)).save(place)
    assert repr(tl.load(place)) == "ItemPop()"
    assert [path.name for path in place.parent.iterdir()] == ["model"]


def test_a_predecessor_that_was_left_behind_does_not_hide_the_new_model(place: Path) -> None:
    tl.ItemPop().fit(tl.read(ROWS)).save(place.with_name(".model.previous"))
    assert repr(tl.load(place)) == "ItemKNN(neighbors=7)"


# --- places, rights and leftovers -----------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="Windows has no umask")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_saved_directory_follows_the_umask(model: Any, tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        model.save(tmp_path / "model")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()}
    assert modes == dict.fromkeys(FILES, 0o666 & ~mask)
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o777 & ~mask


def test_a_directory_with_the_name_of_a_file_of_a_model_is_not_deleted(model: Any, tmp_path: Path) -> None:
    (tmp_path / "model" / "model.json").mkdir(parents=True)
    (tmp_path / "model" / "model.json" / "thesis.txt").write_text("years of work")
    with pytest.raises(StorageError, match=r"holds other files, which would be lost: model\.json/"):
        model.save(tmp_path / "model")
    assert (tmp_path / "model" / "model.json" / "thesis.txt").read_text() == "years of work"


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such locks")
def test_what_a_killed_save_left_is_swept_by_the_next_and_nothing_else_is(model: Any, tmp_path: Path) -> None:
    left = [tmp_path / f".model.0123abc{n}.tmp" for n in range(2)]
    kept = [tmp_path / name for name in (".other.0123abcd.tmp", ".model.notes", ".model.0123abcd")]
    for place in (*left, *kept):
        place.mkdir()
        (place / "arrays.safetensors").write_text("half")
    hold = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print(); input()"
    command = [sys.executable, "-c", hold, str(left[1] / files.LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        model.save(tmp_path / "model")
        assert [place.exists() for place in (*left, *kept)] == [False, True, True, True, True]
        writer.kill()
    model.save(tmp_path / "model")
    assert [place.exists() for place in (*left, *kept)] == [False, False, True, True, True]
    assert {path.name for path in tmp_path.iterdir()} == {"model", *(place.name for place in kept)}


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become somebody else")
def test_a_model_in_a_directory_that_may_not_be_looked_into_is_an_error(place: Path) -> None:
    place.parent.chmod(0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(StorageError, match="cannot be read: Permission denied"):
            tl.load(place)
    finally:
        os.seteuid(0)


def test_a_file_under_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StorageError, match=r"cannot write .*nothing was written"),
        files.replacing_file(tmp_path / "file" / "table.csv"),
    ):
        pass


def test_a_place_where_nothing_could_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "model"):
        with pytest.raises(StorageError, match="is a file"):
            files.check_place(place)
    with pytest.raises(StorageError, match="holds other files"):
        files.check_place(tmp_path / "home", FILES)
    files.check_place(tmp_path / "new" / "model", FILES)
    assert not (tmp_path / "new").exists()


def test_the_history_of_the_training_is_saved_and_comes_back(tmp_path: Path) -> None:
    model = tl.IALS(factors=2, epochs=3).fit(tl.read(ROWS), progress=False)
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    assert again.history_.equals(model.history_)
    again.save(tmp_path / "again")
    assert tl.load(tmp_path / "again").history_.equals(model.history_)


def test_the_version_stands_for_the_content(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "one")
    tl.load(tmp_path / "one").save(tmp_path / "two", metrics={"ndcg@20": 0.5})
    tl.ItemKNN(neighbors=7).fit(tl.read(ROWS[:-1])).save(tmp_path / "other")
    one, two, other = (model_version(read_model(tmp_path / name)[0]) for name in ("one", "two", "other"))
    assert one == two != other
