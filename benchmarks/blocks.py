"""Block directories: a log of a billion interactions with text ids, from Parquet files to blocks, within 8 GB.

The log is generated in files of 25 million rows. Each user has a cluster; most of its items are drawn from those of its
cluster, by a power law, so a model can learn something. The build, and with --train two epochs of IALS, run in
processes of their own, whose peak memory is measured.

    python benchmarks/blocks.py --directory /data/billion [--interactions 1e9] [--memory 8GB] [--keep] [--quick]
    python benchmarks/blocks.py --train /data/billion/blocks       # on blocks that were kept

The log and the block directory are in DIRECTORY/log and DIRECTORY/blocks. Log files that are there already are used
again. With --keep neither is removed; with --keep-blocks only the log is.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import arguments, machine

ROWS_PER_FILE = 25_000_000
CLUSTERS, FROM_CLUSTER = 100, 0.8
USER_DIGITS, ITEM_DIGITS = 8, 7


@numba.njit(nogil=True)
def draw_rows(seed, n, n_users, n_items, user_text, item_text):
    """Fill the letters of n user and item ids. A user has a cluster; an item's rank in its cluster is skewed."""
    state = np.uint64(seed) << np.uint64(40)
    per_cluster = n_items // CLUSTERS
    for row in range(n):
        state, x = _random(state)
        state, y = _random(state)
        state, z = _random(state)
        user = int(n_users * x * np.sqrt(x))
        if z < FROM_CLUSTER:
            item = int(per_cluster * y * y * y) * CLUSTERS + user % CLUSTERS
        else:
            item = int(n_items * y * y * y)
        # the most active users and the most popular items are spread over the ids
        _write(user_text, row * (1 + USER_DIGITS), 117, user * 982_451_653 % n_users, USER_DIGITS)
        _write(item_text, row * (1 + ITEM_DIGITS), 105, item * 611_953 % n_items, ITEM_DIGITS)


@numba.njit(nogil=True)
def _random(state):
    """The next state and a number from 0 to 1, by SplitMix64."""
    state += np.uint64(0x9E3779B97F4A7C15)
    x = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, ((x ^ (x >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0


@numba.njit(nogil=True)
def _write(text, place, letter, number, digits):
    text[place] = letter
    for digit in range(digits):
        text[place + digits - digit] = 48 + number % 10
        number //= 10


def texts(letters: np.ndarray, width: int) -> pa.Array:
    n = len(letters) // width
    offsets = np.arange(0, n * width + 1, width, dtype=np.int32)
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(letters))


def write_log(place: Path, rows: int, n_users: int, n_items: int) -> None:
    place.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        numbers = range(-(-rows // ROWS_PER_FILE))
        list(pool.map(lambda number: write_file(place, number, rows, n_users, n_items), numbers))


def write_file(place: Path, number: int, rows: int, n_users: int, n_items: int) -> None:
    path, n = place / f"part-{number:04}.parquet", min(ROWS_PER_FILE, rows - number * ROWS_PER_FILE)
    if path.exists():
        return
    users = np.empty(n * (1 + USER_DIGITS), dtype=np.uint8)
    items = np.empty(n * (1 + ITEM_DIGITS), dtype=np.uint8)
    draw_rows(number, n, n_users, n_items, users, items)
    table = pa.table({"user_id": texts(users, 1 + USER_DIGITS), "item_id": texts(items, 1 + ITEM_DIGITS)})
    fresh = path.with_suffix(".tmp")
    pq.write_table(table, fresh, compression="lz4", use_dictionary=False, row_group_size=2_000_000)
    fresh.rename(path)


def size(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def build(log: Path, output: Path, blocks: int | None, memory: str) -> None:
    """In a process of its own: build, and print what was built and the peak of memory as JSON."""
    import logging
    from dataclasses import asdict

    from truelike.data.blocks.build import build

    logging.basicConfig(level="INFO", format="%(asctime)s %(message)s", stream=sys.stderr)
    report = build(log, output, blocks=blocks, memory=memory).report
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime
    logging.getLogger("truelike").info(f"{cpu:,.0f} s of processor time")
    print(json.dumps({**asdict(report), "peak": used.ru_maxrss * 1024, "cpu": cpu}))


def train(directory: Path, epochs: int, factors: int) -> None:
    """Train IALS out of core; print the seconds of each epoch, processor time and the peak of memory."""
    import truelike as tl

    blocks = tl.blocks.open(directory)
    print(f"{blocks}\n{machine()}", flush=True)
    started = time.perf_counter()
    history = tl.IALS(factors=factors, epochs=epochs, n_jobs=-1).fit(blocks, progress=False).history_
    used = resource.getrusage(resource.RUSAGE_SELF)
    times = ", ".join(f"{seconds:,.0f}" for seconds in history["seconds"])
    print(
        f"IALS with {factors} factors: epochs of {times} s (the first starts at the spectrum), "
        f"{time.perf_counter() - started:,.0f} s in all, {used.ru_utime + used.ru_stime:,.0f} s of processor time, "
        f"peak memory {used.ru_maxrss * 1024 / 1e9:.1f} GB"
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--interactions", type=lambda text: int(float(text)), default=1_000_000_000)
    parser.add_argument("--users", type=lambda text: int(float(text)), default=20_000_000)
    parser.add_argument("--items", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--blocks", type=int, help="default: blocks of about 20 million interactions")
    parser.add_argument("--memory", default="8GB")
    parser.add_argument("--directory", type=Path, help="where the log and the blocks are written")
    parser.add_argument("--keep", action="store_true", help="remove neither the log nor the blocks")
    parser.add_argument("--keep-blocks", action="store_true", help="remove the log only")
    parser.add_argument("--train", type=Path, metavar="BLOCKS", help="train IALS on a block directory")
    parser.add_argument("--epochs", type=int, default=2, help="of --train")
    parser.add_argument("--factors", type=int, default=64, help="of --train")
    parser.add_argument("--build", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.build:
        build(*given.build, given.blocks, given.memory)
        return
    if given.train:
        train(given.train, given.epochs, given.factors)
        return
    if given.quick:
        given.interactions, given.users, given.items = 200_000, 4_000, 1_000
    print(machine(), flush=True)
    root = given.directory or Path(tempfile.mkdtemp(prefix="truelike-blocks-"))
    log, output = root / "log", root / "blocks"
    try:
        started = time.perf_counter()
        write_log(log, given.interactions, given.users, given.items)
        seconds = time.perf_counter() - started
        rate = given.interactions / seconds / 1e6
        print(f"log      {seconds:8.1f} s  {size(log) / 1e9:6.1f} GB  {rate:.1f} million rows/s", flush=True)
        options = ["--memory", given.memory, *(["--blocks", str(given.blocks)] if given.blocks else [])]
        command = [sys.executable, __file__, *options, "--build", str(log), str(output)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        about = json.loads(done.stdout)
        rate = about["rows"] / about["seconds"] / 1e6
        print(
            f"build    {about['seconds']:8.1f} s  {size(output) / 1e9:6.1f} GB  {rate:.1f} million rows/s, "
            f"{about['cpu']:.1f} s of processor time, peak memory {about['peak'] / 1e9:.2f} GB of {given.memory}"
        )
        print(
            f"{about['rows']:,} rows: {about['interactions']:,} interactions, {about['users']:,} users, "
            f"{about['items']:,} items in {about['blocks']} blocks"
        )
    finally:
        if not given.keep:
            shutil.rmtree(log, ignore_errors=True)
        if not (given.keep or given.keep_blocks):
            shutil.rmtree(output, ignore_errors=True)
        if not any(root.iterdir()):
            root.rmdir()


if __name__ == "__main__":
    main()
