"""Speed of two checkouts side by side: did a change make training or evaluation slower?

    python benchmarks/before_after.py OLD_SRC NEW_SRC [--only train,als] [--threads 2] [--rounds 7] [--quick]

OLD_SRC and NEW_SRC are the `src` directories of two checkouts. Each measurement runs in a process of its own, with
PYTHONPATH set to one of them: old, new, old, new, ... The median of the rounds is printed, and the ratio
new / old. Both run the same code through the public classes, on MovieLens 1M, so the versions may have other
internals. The seconds of epochs come from `history_`, from the second epoch on; the first one compiles.

The exit status is 1 if a measurement of the new checkout is more than --tolerance slower.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

# This file must not import truelike or `common` at its top: the parent process has no checkout of its own.

MINUTES = 5.0  # the longest that one process may take
EPOCHS = 5
CALLS = 7  # of an evaluation


def epoch_seconds(model: Any, train: Any) -> float:
    """Seconds of the shortest epoch after the first."""
    return float(model.fit(train, progress=False).history_["seconds"][1:].min())


def measure_train(tl: Any, split: Any, n_jobs: int) -> dict[str, float]:
    """An epoch of the sampled engine: at the defaults, and large batches in the order of the file."""
    # in file order, at 5,000 positives a batch, the default learning rate of BPR diverges
    in_file_order = {"batch_size": 5_000, "order": "file", "learning_rate": 0.01}
    same = {"factors": 64, "epochs": EPOCHS, "n_jobs": n_jobs}
    return {
        f"{name}, 64 factors, {how}": epoch_seconds(getattr(tl, name)(**same, **parameters), split.train)
        for name in ("BPR", "NBPO")
        for how, parameters in (("defaults", {}), ("5,000 file order", in_file_order))
    }


def measure_als(tl: Any, split: Any, n_jobs: int) -> dict[str, float]:
    """An iteration of alternating least squares."""
    return {
        f"IALS, {factors} factors": epoch_seconds(
            tl.IALS(factors=factors, epochs=2 * EPOCHS, n_jobs=n_jobs), split.train
        )
        for factors in (64, 128)
    }


def measure_exact(tl: Any, split: Any, n_jobs: int) -> dict[str, float]:
    """An epoch of the exact engine."""
    return {
        f"{name}, 256 factors": epoch_seconds(
            getattr(tl, name)(factors=256, epochs=EPOCHS, n_jobs=n_jobs), split.train
        )
        for name in ("SoftmaxMF", "ExactBPO")
    }


def measure_evaluate(tl: Any, split: Any, n_jobs: int) -> dict[str, float]:
    """All metrics at 20 for all users."""
    model = tl.IALS(factors=64, epochs=2, n_jobs=n_jobs).fit(split.train, progress=False)
    seconds = []
    for _ in range(1 + CALLS):
        started = time.perf_counter()
        tl.evaluate(model, split.test, ks=(20,), n_jobs=n_jobs)
        seconds.append(time.perf_counter() - started)
    return {"evaluate, all metrics at 20": min(seconds[1:])}


def measure_serve(tl: Any, split: Any, n_jobs: int) -> dict[str, float]:
    """Saving, loading and ranking with a saved model."""
    found, users = {}, list(split.train.users)[:1000]
    with tempfile.TemporaryDirectory() as place:
        for model in (tl.IALS(factors=64, epochs=1, n_jobs=n_jobs), tl.EASE(n_jobs=n_jobs)):
            model.fit(split.train, progress=False).save(f"{place}/model")
            loaded = tl.load(f"{place}/model")
            calls: dict[str, Callable[[], Any]] = {
                "load": lambda: tl.load(f"{place}/model"),
                "recommend 1 user": partial(loaded.recommend, users[0], n_jobs=n_jobs),
                "recommend 1,000 users": partial(loaded.recommend, users, n_jobs=n_jobs),
            }
            for name, call in calls.items():
                found[f"{model.name}, {name}"] = min(seconds_of(call) for _ in range(8 * CALLS))
    return found


def seconds_of(call: Callable[[], Any]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


TASKS: dict[str, Callable[[Any, Any, int], dict[str, float]]] = {
    "train": measure_train,
    "als": measure_als,
    "exact": measure_exact,
    "evaluate": measure_evaluate,
    "serve": measure_serve,
}


def child(task: str, n_jobs: int, quick: bool) -> None:
    """Measure one task with the truelike of PYTHONPATH; print the results as JSON."""
    import truelike as tl

    if quick:
        rng = np.random.default_rng(0)
        rows = pl.DataFrame({"user_id": rng.integers(0, 300, 6_000), "item_id": rng.integers(0, 200, 6_000)})
        splits = tl.splits if hasattr(tl, "splits") else tl.split  # its name before the redesign
        split = splits.by_user(tl.read(rows.unique(maintain_order=True)), seed=0)
    else:
        split = tl.datasets.load("ml-1m-split")
    print(json.dumps({"file": tl.__file__, "seconds": TASKS[task](tl, split, n_jobs)}))


def run(source: Path, task: str, threads: int, quick: bool) -> dict[str, float]:
    """The seconds of a task, measured in a process with this checkout."""
    command = [
        sys.executable,
        __file__,
        "--child",
        task,
        "--threads",
        str(threads),
        *(["--quick"] if quick else []),
    ]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60 * MINUTES, check=False
    )
    if done.returncode:
        sys.exit(f"{task} failed with {source}:\n{done.stderr}")
    answer = json.loads(done.stdout.splitlines()[-1])
    if not Path(answer["file"]).resolve().is_relative_to(source.resolve()):
        sys.exit(f"{answer['file']} was imported instead of {source}: give the `src` directory of a checkout")
    return dict(answer["seconds"])


def compare(sources: dict[str, Path], task: str, threads: int, rounds: int, quick: bool) -> dict[str, list[float]]:
    """For each measurement of a task, the median of the rounds of the old and of the new checkout."""
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds):
        for name, source in sources.items():
            for what, seconds in run(source, task, threads, quick).items():
                found.setdefault(what, {}).setdefault(name, []).append(seconds)
        if sys.stderr.isatty():
            end = "\r" if number + 1 < rounds else "\r\033[K"  # the last one clears the line
            print(f"{task}: round {number + 1} of {rounds}", end=end, file=sys.stderr, flush=True)
    return {what: [float(np.median(each[name])) for name in sources] for what, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, nargs="?", help="the src directory of the old checkout")
    parser.add_argument("new", type=Path, nargs="?", help="the src directory of the new checkout")
    parser.add_argument(
        "--only", default=",".join(TASKS), help="comma-separated: train, als, exact, evaluate, serve"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--quick", action="store_true", help="small data and 1 round; the figures mean nothing")
    parser.add_argument("--child", choices=TASKS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.threads, given.quick)
        return
    if given.old is None or given.new is None:
        parser.error("give the src directories of the old and of the new checkout")
    sources = {"old": given.old.resolve(), "new": given.new.resolve()}
    for source in sources.values():
        if not (source / "truelike").is_dir():
            parser.error(f"{source} has no truelike package: give the src directory of a checkout")
    tasks = given.only.split(",")
    if not set(tasks) <= set(TASKS):
        parser.error(f"--only is {given.only!r}; it must be some of {', '.join(TASKS)}")
    rounds = 1 if given.quick else given.rounds
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}")
    print(f"{f'seconds, n_jobs={given.threads}':36}{'old':>10}{'new':>10}{'new / old':>11}")
    slower = []
    for task in tasks:
        for what, (old, new) in compare(sources, task, given.threads, rounds, given.quick).items():
            mark = "  slower" if new / old > 1 + given.tolerance else ""
            if mark:
                slower.append(what)
            print(f"{what:36}{old:10.4f}{new:10.4f}{new / old:11.3f}{mark}", flush=True)
    if slower:
        sys.exit(f"more than {given.tolerance:.0%} slower: {'; '.join(slower)}")


if __name__ == "__main__":
    main()
