"""What an epoch costs with impressions: 1 million users, 100,000 items, 20 million interactions, 400 million shown.

    python benchmarks/impressions.py [--scale 0.05] [--blocks 8] [--directory DIRECTORY]

The world is made by hashes, and written as two block directories of one block each. Then a model is trained, each time
in a process of its own: `NBPO` without impressions for two epochs, and `ImpressionMF` for a few steps, each a pass over
all shown pairs, on 2 and on 1 thread, and from the block directory itself. With --blocks it is trained out of core on
so many blocks, too. Prints the seconds of an epoch or a step and those of the processor, the peak of memory and the
hash of the tables; and whether the limits hold: 12 GB, 2.5 times the epoch without impressions, one hash.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
from common import arguments, machine

import truelike as tl
from truelike.core import randomness
from truelike.core.sorting import sort
from truelike.data.blocks.blocks import Blocks
from truelike.data.blocks.format import block_bounds, writing
from truelike.data.dataset import Dataset

USERS, ITEMS, SHOWN, TASTES = 1_000_000, 100_000, 400, 8
SHARES = np.array([0.02, 0.26])  # of the shown items that are taken: of another taste, of the own
MOST_MEMORY, MOST_RATIO, EPOCHS = 12.0, 2.5, 2
STEPS, FACTORS = 2, 16
QUICK = 0.005  # the scale of --quick, which has fewer items, too
DIRECTORIES = ("taken", "shown")


@numba.njit(nogil=True)
def _mixed(x: Any) -> Any:
    """A random number in [0, 1) for each integer (splitmix64)."""
    z = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@numba.njit(nogil=True)
def _world(counts: Any, n_items: Any, permuted: Any, shares: Any) -> Any:
    """CSRs of what is shown and what is taken of it.

    Item k, before they are permuted, is shown in proportion to 1 / sqrt(k). Users and items have one of TASTES tastes.
    """
    n_users, total = len(counts), counts.sum()
    shown_indptr, taken_indptr = np.zeros(n_users + 1, np.int32), np.zeros(n_users + 1, np.int32)
    shown, taken = np.empty(total, np.int32), np.empty(total // 8 + 100, np.int32)
    n, m = 0, 0
    for user in range(n_users):
        first, last = n, -1
        for t in range(counts[user]):
            at = (t + _mixed(np.uint64(user) * np.uint64(1 << 20) + np.uint64(t))) / counts[user]
            item = min(n_items - 1, int(n_items * at * at))
            if item > last:
                shown[n] = permuted[item]
                n, last = n + 1, item
        sort(shown[first:n])
        taste = user % TASTES
        for k in range(first, n):
            pair = (np.uint64(user) << np.uint64(32)) + np.uint64(shown[k])
            if _mixed(pair) < shares[1 if shown[k] % TASTES == taste else 0] and m < len(taken):
                taken[m] = shown[k]
                m += 1
        shown_indptr[user + 1], taken_indptr[user + 1] = n, m
    return (taken_indptr, taken[:m].copy()), (shown_indptr, shown[:n].copy())


def make(directory: Path, scale: float, blocks: int) -> None:
    """Write the world: `taken` and `shown` with one block each, and with --blocks also with several."""
    n_users, n_items = int(USERS * scale), 2_000 if scale == QUICK else ITEMS
    counts = (SHOWN * (0.5 + randomness.uniform(randomness.key(0, "counts"), np.arange(n_users)))).astype(np.int64)
    permuted = np.argsort(randomness.bits(randomness.key(0, "items"), np.arange(n_items))).astype(np.int32)
    found = _world(counts, n_items, permuted, SHARES)
    items, kinds = pl.Series("item_id", np.arange(n_items)), {"user": "int", "item": "int"}
    for name, (indptr, indices) in zip(DIRECTORIES, found, strict=True):
        for n in dict.fromkeys((1, blocks)):
            bounds = block_bounds(np.diff(indptr), n)
            with writing(directory / f"{name}-{n}", items, kinds, name) as writer:  # type: ignore[arg-type]
                for first, stop in pairwise(bounds):
                    pointers = indptr[first : stop + 1] - indptr[first]
                    users = pl.Series("user_id", np.arange(first, stop))
                    writer.add(users, pointers, indices[indptr[first] : indptr[stop]])


def in_memory(directory: Path) -> Dataset:
    """A block directory of one block as a Dataset in memory."""
    return Blocks(directory, in_memory=True).to_dataset()


def peak_memory() -> int:
    """The most bytes of memory that this process has held. (That of getrusage may be its parent's.)"""
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def epochs_of_nbpo(source: Any, threads: int) -> tuple[Any, dict[str, float]]:
    """NBPO after two epochs, and what the second one took."""
    ends: list[float] = []
    model = tl.NBPO(epochs=EPOCHS, n_jobs=threads)
    model.fit(source, progress=False, callbacks=[lambda _: ends.append(time.process_time())])
    return model, {"seconds": model.history_["seconds"].to_list()[-1], "cpu": ends[-1] - ends[-2]}


def steps_of_impression_mf(source: Any, threads: int) -> tuple[Any, dict[str, float]]:
    """ImpressionMF after a few steps, and what a step takes, by the difference of two trainings."""
    took = {}
    for steps in (STEPS, 3 * STEPS):
        start = time.perf_counter(), time.process_time()
        model = tl.ImpressionMF(factors=FACTORS, steps=steps, samples=1, calibrate=False, n_jobs=threads)
        model.fit(source, progress=False)
        took[steps] = time.perf_counter() - start[0], time.process_time() - start[1]
    seconds, cpu = ((b - a) / (2 * STEPS) for a, b in zip(*took.values(), strict=True))
    return model, {"seconds": seconds, "cpu": cpu}


def train(directory: Path, data: str, impressions: str, threads: int) -> None:
    """Train for some epochs, and print seconds, memory and a hash as JSON."""
    source: Any = in_memory(directory / "taken-1") if data == "memory" else tl.blocks.open(directory / data)
    shown: Any = None
    if impressions != "none":
        shown = in_memory(directory / "shown-1") if data == "memory" else tl.blocks.open(directory / impressions)
    before = peak_memory()
    if shown is None:
        model, found = epochs_of_nbpo(source, threads)
    else:
        source = tl.read(source, impressions=shown) if data == "memory" else source.with_impressions(shown)
        model, found = steps_of_impression_mf(source, threads)
    digest = hashlib.sha256()
    for name, table in sorted(model._tables().arrays().items()):
        digest.update(name.encode() + np.ascontiguousarray(table).tobytes())
    print(json.dumps({**found, "peak": peak_memory(), "data": before, "hash": digest.hexdigest()[:12]}))


def measured(directory: Path, *what: Any) -> dict[str, Any]:
    """What `train` prints, in a process of its own."""
    command = [sys.executable, __file__, "--directory", str(directory), "--train", *map(str, what)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def report(directory: Path, blocks: int) -> None:
    """Train in all ways, and print a table and what holds."""
    taken, shown = (tl.blocks.open(directory / f"{name}-1") for name in DIRECTORIES)
    print(f"{machine()}\n{taken}\nimpressions: {shown.n_interactions:,}\n")
    runs = {
        "without impressions, 2 threads": ("memory", "none", 2),
        "without impressions, 1 thread": ("memory", "none", 1),
        "with impressions, 2 threads": ("memory", "shown-1", 2),
        "with impressions, 1 thread": ("memory", "shown-1", 1),
        "with impressions, from one block": ("taken-1", "shown-1", 2),
    }
    if blocks > 1:
        runs |= {
            f"without impressions, {blocks} blocks": (f"taken-{blocks}", "none", 2),
            f"with impressions, {blocks} blocks": (f"taken-{blocks}", f"shown-{blocks}", 2),
            f"with impressions, {blocks} blocks, 1 thread": (f"taken-{blocks}", f"shown-{blocks}", 1),
        }
    print("| model | second epoch, s | CPU, s | peak memory, GB | before fit, GB | hash |")
    print("|---|---:|---:|---:|---:|---|")
    found = {}
    for name, what in runs.items():
        found[name] = each = measured(directory, *what)
        sizes = f"{each['peak'] / 1e9:.2f} | {each['data'] / 1e9:.2f}"
        print(f"| {name} | {each['seconds']:.2f} | {each['cpu']:.2f} | {sizes} | {each['hash']} |", flush=True)
    rows = list(found.values())
    with_them = rows[2:5]
    ratios = [rows[k + 2]["seconds"] / rows[k]["seconds"] for k in (0, 1)]
    peak = max(each["peak"] for each in with_them) / 1e9
    same = len({each["hash"] for each in with_them}) == 1 and len({each["hash"] for each in rows[6:]}) <= 1
    print(f"\nratio on 2 threads {ratios[0]:.2f}, on 1 {ratios[1]:.2f}; peak {peak:.2f} GB; same bits: {same}")
    print(f"within {MOST_MEMORY:.0f} GB and {MOST_RATIO} times, one hash: {_holds(ratios, peak, same)}")


def _holds(ratios: list[float], peak: float, same: bool) -> bool:
    return max(ratios) <= MOST_RATIO and peak <= MOST_MEMORY and same


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of users")
    parser.add_argument("--blocks", type=int, default=1, help="train on so many blocks, too")
    parser.add_argument("--directory", type=Path, help="keep the world here, and use it again")
    parser.add_argument("--train", nargs=3, metavar=("DATA", "IMPRESSIONS", "THREADS"), help="one run, as JSON")
    given = parser.parse_args()
    if given.train:
        train(given.directory, *given.train[:2], int(given.train[2]))
        return
    with tempfile.TemporaryDirectory() as temporary:
        place = given.directory or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        if not (place / f"shown-{given.blocks}" / "blocks.json").is_file():
            make(place, QUICK if given.quick else given.scale, given.blocks)
        report(place, given.blocks)


if __name__ == "__main__":
    main()
