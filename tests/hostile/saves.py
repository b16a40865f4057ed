"""One process saves two models in turn over one directory while others load it: no load is mixed, none fails.

    python tests/hostile/saves.py --loads 10000

The two models have the same shapes. In each, every id and every number tells which of the two it is of.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

SAVE = """
import sys, time
sys.path.insert(0, {folder!r})
from saves import models, splits
place, until = sys.argv[1], time.monotonic() + float(sys.argv[2])
n = 0
both, parts = models(), splits()
while time.monotonic() < until:
    both[n % 2].save(place + "/model")
    parts[n % 2].save(place + "/split")
    n += 1
print(n)
"""


def models() -> list[Any]:
    """Two models of the same shape: ids and popularity of each tell it from the other."""
    import truelike as tl

    return [tl.ItemPop().fit(split.train) for split in splits()]


def splits() -> list[Any]:
    """Two splits of the same shape."""
    import truelike as tl

    found = []
    for name, weight in (("a", 2.0), ("b", 3.0)):
        rows = {
            "user": [f"{name}{user}" for user in range(40) for _ in range(20)],
            "item": [f"{name}{(user * 7 + n) % 50:02}" for user in range(40) for n in range(20)],
            "weight": [weight] * 800,
        }
        import polars as pl

        found.append(tl.splits.by_user(tl.read(pl.DataFrame(rows), weight="weight"), seed=0))
    return found


def kind_of(dataset: Any) -> str:
    """The letter of a dataset; "mixed" if it is not one."""
    letters = {str(name)[0] for ids in (dataset.users, dataset.items) for name in ids}
    letters |= {{2.0: "a", 3.0: "b"}.get(float(weight), "?") for weight in set(dataset.matrix.data.tolist())}
    return letters.pop() if len(letters) == 1 else "mixed"


def saved_at(place: Path) -> int | None:
    """When the model was saved; None while it is being replaced."""
    with contextlib.suppress(FileNotFoundError):
        return (place / "model" / "model.json").stat().st_mtime_ns
    return None


def load_beside_saves(place: Path, loads: int, savers: int = 1) -> tuple[Counter[str], int]:
    """Load while other processes save; what was found, and how often they saved."""
    import warnings

    import truelike as tl

    warnings.simplefilter("ignore")
    both, parts = models(), splits()
    both[0].save(place / "model")
    parts[0].save(place / "split")
    code = SAVE.format(folder=str(Path(__file__).parent))
    command = [sys.executable, "-W", "ignore", "-c", code, str(place), "3600"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(savers)]
    found: Counter[str] = Counter()
    first = saved_at(place)
    while saved_at(place) in (None, first):
        time.sleep(0.01)  # until the first save
    seen = set()
    try:
        for n in range(loads):
            try:
                dataset = tl.load(place / "model").train_ if n % 2 else tl.Split.load(place / "split").train
                found[kind_of(dataset)] += 1
            except Exception as error:
                found[f"failed: {type(error).__name__}: {error}"] += 1
            seen.add(saved_at(place))
    finally:
        for process in running:
            failed = process.poll()
            process.kill()
            errors = process.communicate()[1].decode()
            if failed is not None:
                found[f"a saver ended: {errors[-500:]}"] += 1
    return found, len(seen - {None})


def main() -> None:
    """Load as often as asked, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=10_000)
    parser.add_argument("--savers", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found, saves = load_beside_saves(Path(place), arguments.loads, arguments.savers)
    print(dict(found), f"{saves} different saves seen")
    sys.exit(set(found) != {"a", "b"})


if __name__ == "__main__":
    main()
