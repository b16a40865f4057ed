"""Fuzzers of the directories of models, splits and checkpoints. A case mutates a saved one and reads it again.

It must be refused by an error of truelike, or be what was saved. With some mutations the checksums are written again, as
by somebody who edits files on purpose; then what is read need not be what was saved, but it must rank as its numbers say.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import truelike as tl
from truelike.core import files
from truelike.core.array_files import checksum, read_arrays
from truelike.errors import TruelikeError

ODD: list[Any] = [
    None, True, 0, -1, 1, 2, 1e308, -(10**30), 10**30, 0.5, "", "x", "ItemPop", [], [1], {}, {"a": 1}, [[]], "\x00",
    float("nan"), float("inf"), "none", "uuid", "int", "str", 3.0, "pandas", "NBPO", "é" * 50,
]  # fmt: skip
USERS = [0, 3, 7]


@lru_cache(maxsize=1)
def data() -> Any:
    return tl.synthetic.World(n_users=30, n_items=20, seed=1).dataset()


@lru_cache(maxsize=1)
def split() -> Any:
    return tl.splits.by_user(data().with_titles({0: "Tea"}), seed=0)


def quick(**more: Any) -> Any:
    return tl.NBPO(factors=3, flip_factors=2, epochs=3, n_jobs=1, **more)


@lru_cache(maxsize=1)
def saved() -> Path:
    """A directory with one saved model of each kind, a split and a checkpoint."""
    place = Path(tempfile.mkdtemp(prefix="truelike-fuzz-"))
    with quiet():
        models = [
            tl.ItemPop(), tl.ItemKNN(neighbors=5), tl.EASE(), tl.IALS(factors=3, epochs=2), quick(),
            tl.SoftmaxMF(factors=3, epochs=2), tl.ExactNBPO(factors=3, flip_factors=2, epochs=2),
            tl.AutoRecommender(n_trials=3), tl.Blend(first="IALS:factors=3:epochs=2", second="ItemKNN:neighbors=5"),
        ]  # fmt: skip
        for number, model in enumerate(models):
            model.fit(split().train, progress=False).save(place / f"model-{number}")
        split().save(place / "split")
        quick().fit(
            split(), checkpoint=place / "checkpoint", checkpoint_epochs=2, progress=False, callbacks=[_stop]
        )
    return place


def _stop(state: Any) -> None:
    state.stop = state.epoch == 1


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


# --- mutations ------------------------------------------------------------------------------------


def mutate_bytes(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        at = draw.randrange(len(content)) if content else 0
        kind = draw.randrange(5)
        if kind == 0 and content:
            content[at] ^= 1 << draw.randrange(8)
        elif kind == 1 and content:
            content[at] = draw.randrange(256)
        elif kind == 2:
            del content[at : at + draw.choice((1, 4, 8, 100))]
        elif kind == 3:
            content[at:at] = draw.randbytes(draw.choice((1, 4, 8)))
        else:
            del content[at:]
    path.write_bytes(content)


def mutate_json(path: Path, draw: random.Random) -> None:
    """Replace, remove or add one value somewhere in a JSON file."""
    about = json.loads(path.read_text())
    node: Any = about
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = draw.choice(keys)
        if isinstance(node[key], (dict, list)) and node[key] and draw.random() < 0.7:
            node = node[key]
            continue
        kind = draw.randrange(4)
        if kind == 0:
            del node[key]
        elif kind == 1 and isinstance(node, dict):
            node[draw.choice(("x", "", "format", "epochs", "class"))] = draw.choice(ODD)
        else:
            node[key] = draw.choice(ODD)
        path.write_text(json.dumps(about))
        return


def replace_file(path: Path, draw: random.Random) -> None:
    """Remove a file, or put something else in its place."""
    kind = draw.choice(("missing", "directory", "pipe", "device", "loop", "other"))
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to(draw.choice(("/dev/zero", "/dev/null", "/dev/random")))
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "other":
        others = [each for each in saved().rglob(path.name) if each.is_file()]
        shutil.copy(draw.choice(others), path)


def mutate(place: Path, draw: random.Random) -> tuple[Path, bool]:
    """Mutate one file of a directory; the file, and whether the checksums were written again."""
    path = draw.choice(sorted(place.iterdir()))
    kinds = [mutate_bytes, mutate_bytes, replace_file]
    if path.suffix == ".json":
        kinds += [mutate_json] * 5
    draw.choice(kinds)(path, draw)
    anew = draw.random() < 0.5
    if anew:
        with contextlib.suppress(Exception):
            describe_again(place)
    return path, anew


def describe_again(place: Path) -> None:
    """Write the checksums of files and arrays as they are now."""
    [description] = [path for path in place.iterdir() if path.suffix == ".json" and path.is_file()]
    about = json.loads(description.read_text())
    for name in about.get("files", {}):
        if (place / name).is_file() and not (place / name).is_symlink():
            about["files"][name] = files.describe_files(place, [name])[name]
    if "arrays" in about:
        descriptor = os.open(place / "arrays.safetensors", os.O_RDONLY | os.O_NONBLOCK)
        try:
            identity, arrays = read_arrays(descriptor)
            about["arrays"] = {
                "id": identity,
                "checksums": {name: checksum(array) for name, array in arrays.items()},
            }
        finally:
            os.close(descriptor)
    files.write_description(description, about)


# --- cases ----------------------------------------------------------------------------------------


def check_copy(seed: int, names: list[str], read: Callable[[Path], Any], expected: Callable[[str], Any]) -> None:
    """Mutate a copy of a saved directory and read it: an error of truelike, or what was saved."""
    draw = random.Random(seed)
    name = draw.choice(names)
    with tempfile.TemporaryDirectory() as folder, quiet():
        place = Path(shutil.copytree(saved() / name, Path(folder) / "copy"))
        path, anew = mutate(place, draw)
        try:
            found = read(place)
        except (TruelikeError, MemoryError):
            return
        assert anew or found == expected(name), f"{path.name} was changed, and nothing noticed it"


def read_model(place: Path) -> Any:
    """What a model answers; the lists are compared with its own scores."""
    model: Any = tl.load(place)
    users = [user for user in USERS if user in model.train_.users] or [model.train_.users[0]]
    rows = model.recommend(users, k=5, exclude_seen=False, on_unknown="skip", n_jobs=1)
    rows = list(rows.iter_rows()) if hasattr(rows, "iter_rows") else rows
    for row in rows if isinstance(rows, list) else []:
        found = float(model.score([row[0]], [row[1]])[0])
        assert np.float32(found) == np.float32(row[2]), (row, found)
    return rows, list(model.train_.users), list(model.train_.items), model.train_.n_interactions


@lru_cache(maxsize=64)
def saved_model(name: str) -> Any:
    return read_model(saved() / name)


def model_case(seed: int) -> None:
    check_copy(seed, [path.name for path in sorted(saved().glob("model-*"))], read_model, saved_model)


def content(of: Any) -> Any:
    return [(list(part.users), list(part.items), part.matrix.toarray().tolist()) for part in of.parts]


def read_split(place: Path) -> Any:
    found = tl.Split.load(place)
    for part in found.parts:
        part.matrix.check_format(full_check=True)
        assert (part.matrix.data > 0).all()
        assert np.isfinite(part.matrix.data).all()
    if found.train.n_interactions > 1:
        tl.ItemKNN().fit(found.train).recommend(k=3, n_jobs=1)
    return content(found)


def split_case(seed: int) -> None:
    check_copy(seed, ["split"], read_split, lambda _: content(split()))


@lru_cache(maxsize=1)
def uninterrupted() -> bytes:
    return bytes(quick().fit(split(), progress=False).user_factors_.tobytes())


def read_checkpoint(place: Path) -> bytes:
    model = quick().fit(split(), checkpoint=place, resume=True, progress=False)
    model.recommend(USERS, k=3, n_jobs=1)
    return bytes(model.user_factors_.tobytes())


def checkpoint_case(seed: int) -> None:
    check_copy(seed, ["checkpoint"], read_checkpoint, lambda _: uninterrupted())


FUZZERS: dict[str, Callable[[int], None]] = {
    "models": model_case,
    "splits": split_case,
    "checkpoints": checkpoint_case,
}
