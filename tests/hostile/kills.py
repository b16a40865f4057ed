"""kill -9 at random moments: a model is whole or not there, and work goes on to the same result.

    python tests/hostile/kills.py --kills 100

Each kind of work is killed several times in a row, in the same places, and then run to its end. Its result must equal
that of a run that nobody killed.
"""

from __future__ import annotations

import argparse
import csv
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SAVE = """
import sys, truelike as tl
model = tl.load(sys.argv[1])
for _ in range(int(sys.argv[3])):
    model.save(sys.argv[2])
"""
WORK: dict[str, list[str]] = {
    "save": ["-c", SAVE, "{place}/source", "{out}/model", "{times}"],
    "train": [
        "-m", "truelike", "train", "{place}/log.csv", "-m", "NBPO", "-s", "factors=8", "-s", "epochs=400",
        "--checkpoint", "{out}/checkpoint", "--resume", "-o", "{out}/model",
    ],
    "tune": [
        "-m", "truelike", "tune", "{place}/log.csv", "-m", "IALS", "--trials", "12", "-s", "factors=8",
        "-d", "{out}/tune", "-o", "{out}/trials.csv",
    ],
    "compare": [
        "-m", "truelike", "compare", "{place}/log.csv", "--models", "ItemPop,ItemKNN", "-d", "{out}/comparison",
        "--table", "{out}/table.csv",
    ],
    "recommend": [
        "-m", "truelike", "recommend", "{place}/source", "--all", "--block-size", "1", "-o", "{out}/lists.parquet",
    ],
}  # fmt: skip
PAUSES = {
    "save": (0.3, 1.2),
    "train": (0.6, 2.0),
    "tune": (0.6, 2.5),
    "compare": (0.6, 3.0),
    "recommend": (0.4, 1.2),
}
SHARES = {"save": 0.35, "train": 0.25, "tune": 0.1, "compare": 0.1, "recommend": 0.2}
MEASURED = {"seconds", "fit", "MB", "mb", "s"}  # columns that differ from run to run
TIMES = 10_000  # saves of a run that is to be killed


def prepare(place: Path) -> None:
    """A log, and a model to save."""
    import truelike as tl

    data = tl.synthetic.World(n_users=150, n_items=80).dataset()
    data.to_frame().select("user_id", "item_id").write_csv(place / "log.csv")
    tl.ItemKNN().fit(data).save(place / "source")


def command(kind: str, place: Path, out: Path, times: int) -> list[str]:
    """The command of a kind of work."""
    return [sys.executable, *(part.format(place=place, out=out, times=times) for part in WORK[kind])]


def result(kind: str, out: Path) -> Any:
    """What must not depend on kills: bits of models, scores of trials, tables."""
    import truelike as tl

    if kind in ("save", "train"):
        model: Any = tl.load(out / "model")
        return {name: array.tobytes() for name, array in model._arrays().items()}
    if kind == "recommend":
        return (out / "lists.parquet").read_bytes()
    with (out / ("trials.csv" if kind == "tune" else "table.csv")).open() as file:
        rows = list(csv.DictReader(file))
    return [{name: value for name, value in row.items() if not set(name.split()) & MEASURED} for row in rows]


def run_to_the_end(kind: str, place: Path, out: Path) -> Any:
    """Run without a kill, and return the result."""
    done = subprocess.run(command(kind, place, out, 1), capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise AssertionError(f"{kind} after kills: exit code {done.returncode}: {done.stderr[-1500:]}")
    return result(kind, out)


def kill(kind: str, place: Path, times: int, draw: random.Random) -> int:
    """Kill a kind of work some times, then let it end; the number of kills. Raises where the result differs."""
    import truelike as tl

    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as killed:
        expected = run_to_the_end(kind, place, Path(whole))
        done = 0
        for _ in range(times):
            process = subprocess.Popen(
                command(kind, place, Path(killed), TIMES), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            try:
                time.sleep(draw.uniform(*PAUSES[kind]))
            finally:
                ended = process.poll()
                process.kill()
                errors = process.communicate()[1].decode()
            if ended:
                raise AssertionError(f"{kind} between kills: exit code {ended}: {errors[-1500:]}")
            done += ended is None
            if kind in ("save", "train") and any(Path(killed).glob("*model*")):
                try:
                    tl.load(Path(killed) / "model")
                except tl.errors.StorageError as error:
                    if "there is no model" not in str(error):
                        raise
        if run_to_the_end(kind, place, Path(killed)) != expected:
            raise AssertionError(f"{kind}: the result after {done} kills is another")
        left = [path.name for path in Path(killed).iterdir() if path.name.startswith(".")]
        if left:
            raise AssertionError(f"{kind}: kills left {left} behind")
    return done


def main() -> None:
    """Kill as often as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as place:
        prepare(Path(place))
        for kind, share in SHARES.items():
            times, kills = round(share * arguments.kills), 0
            while kills < times:  # work that has ended cannot be killed
                kills += kill(kind, Path(place), min(5, times - kills), draw)
            print(f"{kind}: {kills} kills, the same result", flush=True)


if __name__ == "__main__":
    main()
