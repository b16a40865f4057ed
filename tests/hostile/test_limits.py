"""What the system refuses, and directories that are crafted: an error that says so, and never damage that is none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.core.array_files import read_arrays, write_arrays
from truelike.core.files import write_description
from truelike.errors import StorageError, TruelikeError

pytestmark = pytest.mark.slow
SAVE_AND_LOAD = """
import sys, time
import truelike as tl

place, seconds = sys.argv[1], float(sys.argv[2])
model = tl.ItemPop().fit(tl.synthetic.World(n_users=60, n_items=40).dataset())
model.save(place)
done, until = 0, time.monotonic() + seconds
while time.monotonic() < until:
    model.save(place)
    assert tl.load(place).name == "ItemPop"
    done += 1
print(done)
"""
FULL_DISK = """
import sys
from pathlib import Path
import truelike as tl
from truelike.errors import StorageError

place = Path(sys.argv[1])
data = tl.synthetic.World(n_users=100, n_items=60).dataset()
tl.ItemPop().fit(data).save(place / "model")
rest = place / "rest"
with rest.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(1000))
    except OSError:
        pass
for free in range(0, 200_000, 20_000):
    with rest.open("r+b") as file:
        file.truncate(rest.stat().st_size - 20_000)
    try:
        tl.EDLAE().fit(data).save(place / "model")
    except StorageError as error:
        assert "No space left" in str(error), error
        assert "damaged" not in str(error)
        assert tl.load(place / "model").name == "ItemPop"
        print("full")
    else:
        assert tl.load(place / "model").name == "EDLAE"
        print("saved")
        break
    assert sorted(path.name for path in place.iterdir()) == ["model", "rest"]
"""
FEW_DESCRIPTORS = """
import os, resource, sys
import truelike as tl
from truelike.errors import StorageError

place = sys.argv[1]
calls = {
    "model": lambda: tl.load(place + "/model").recommend(k=2),
    "split": lambda: tl.Split.load(place + "/split"),
    "blocks": lambda: tl.blocks.open(place + "/blocks").to_dataset(),
}
for call in calls.values():
    call()  # imports what it needs
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for name, call in calls.items():
    failed = 0
    for free in range(12):
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        for _ in range(free):
            os.close(held.pop())
        try:
            call()
        except StorageError as error:
            failed += 1
            assert "Too many open files" in str(error), error
            assert "damaged" not in str(error), error
        finally:
            while held:
                os.close(held.pop())
        call()
    print(name, failed)
"""


def namespace(*flags: str) -> list[str]:
    """A command that runs another one in namespaces of its own; skips the test where that is not allowed."""
    command = ["unshare", *flags]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"namespaces are not allowed: {tried.stderr.strip()}")
    return command


def run(command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_two_containers_with_one_host_name_save_and_load_one_directory(tmp_path: Path) -> None:
    # other processes before it: to one with the same number, the other container's process would seem to live
    script = 'for _ in $(seq "$1"); do true & done; wait; shift; "$@"'
    shell = [*namespace("--pid", "--fork", "--mount-proc"), "sh", "-c", script, "sh"]
    command = [sys.executable, "-W", "ignore", "-c", SAVE_AND_LOAD, str(tmp_path / "model"), "4"]
    both = [
        subprocess.Popen([*shell, others, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for others in ("20", "40")
    ]
    for process in both:
        output, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
        assert int(output) > 3
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_full_disk_leaves_the_old_model_and_nothing_else(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=2m none "$1" && exec "$2" -W ignore -c "$3" "$1"'
    command = [*namespace("--mount"), "sh", "-c", script, "sh", str(tmp_path), sys.executable, FULL_DISK]
    if subprocess.run(
        [*namespace("--mount"), "mount", "-t", "tmpfs", "none", str(tmp_path)], check=False
    ).returncode:
        pytest.skip("a tmpfs cannot be mounted")
    found = run(command)
    assert found[0] == "full"
    assert found[-1] == "saved"


@pytest.mark.skipif(sys.platform != "linux", reason="limits of descriptors")
def test_a_process_without_descriptors_calls_nothing_damaged(tmp_path: Path) -> None:
    data = tl.synthetic.World(n_users=100, n_items=60).dataset()
    tl.ItemPop().fit(data).save(tmp_path / "model")
    tl.splits.by_user(data).save(tmp_path / "split")
    tl.blocks.build(data, tmp_path / "blocks", blocks=2, progress=False)
    found = run([sys.executable, "-W", "ignore", "-c", FEW_DESCRIPTORS, str(tmp_path)])
    assert found[::2] == ["model", "split", "blocks"]
    assert all(int(failed) > 0 for failed in found[1::2])


# --- directories that are crafted, with right checksums --------------------------------------------


def halved(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(np.float16) if array.dtype.kind == "f" else array.astype(np.int16)


CRAFTS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "narrow": halved,
    "wide": lambda array: array.astype(np.float64 if array.dtype.kind == "f" else np.int64),
    "shorter": lambda array: array[:-1],
    "longer": lambda array: np.concatenate([array, array[:1]]),
    "empty": lambda array: array[:0],
    "one more axis": lambda array: array[None],
    "flat": lambda array: array.reshape(-1),
    "negative": lambda array: (-array.astype(np.int64) - 1).astype(array.dtype),
    "huge": lambda array: np.full_like(array, np.iinfo(np.int32).max if array.dtype.kind in "iu" else 1e30),
}
MODELS = {
    "ItemPop": lambda: tl.ItemPop(),
    "ItemKNN": lambda: tl.ItemKNN(neighbors=5),
    "EASE": lambda: tl.EASE(),
    "EASE of neighbors": lambda: tl.EASE(neighbors=5),
    "IALS": lambda: tl.IALS(factors=4, epochs=1),
    "BPR": lambda: tl.BPR(factors=4, epochs=1),
    "ShiftMC": lambda: tl.ShiftMC(factors=4, epochs=1),
}


def crafted(place: Path, change: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> Iterator[str]:
    """Change one array of a model after another, with right checksums."""
    file, about = place / "arrays.safetensors", json.loads((place / "model.json").read_text())
    with file.open("rb") as opened:
        arrays = read_arrays(opened.fileno())[1]
    for name, array in arrays.items():
        if array.size:
            about["arrays"] = write_arrays(file, {**arrays, name: change(array)})
            write_description(place / "model.json", about)
            yield name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("craft", CRAFTS)
@pytest.mark.parametrize("model", MODELS)
def test_a_crafted_model_is_refused_or_answers(model: str, craft: str, tmp_path: Path) -> None:
    data = tl.synthetic.World(n_users=60, n_items=40).dataset()
    MODELS[model]().fit(data).save(tmp_path / "model")
    for name in crafted(tmp_path / "model", CRAFTS[craft]):
        try:
            found = tl.load(tmp_path / "model")
            assert len(found.recommend(k=3)) <= 3 * 60, name
            found.recommend_from_items(list(data.items)[:2], k=3)
            found.similar_items(list(data.items)[:2], k=3)
        except TruelikeError:
            pass


def test_exchanged_rows_are_found(tmp_path: Path) -> None:
    data = tl.synthetic.World(n_users=60, n_items=40).dataset()
    tl.IALS(factors=8, epochs=1).fit(data).save(tmp_path / "model")
    file = tmp_path / "model" / "arrays.safetensors"
    with file.open("rb") as opened:
        first, second = (row.tobytes() for row in read_arrays(opened.fileno())[1]["model.items"][:2])
    content = file.read_bytes()
    assert first != second
    assert content.count(first + second) == 1
    file.write_bytes(content.replace(first + second, second + first))
    with pytest.raises(StorageError, match="damaged"):
        tl.load(tmp_path / "model")
