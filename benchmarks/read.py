"""Speed of reading: 10 million CSV rows into a Dataset, seconds and peak memory, with integer and with text ids.

Each file is read in a process of its own, so that the peak is that of reading alone.

    python benchmarks/read.py [--quick]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from common import arguments, machine

import truelike as tl

ROWS, USERS, ITEMS = 10_000_000, 1_000_000, 200_000


def write_rows(path: Path, n: int, text_ids: bool) -> None:
    rng = np.random.default_rng(0)
    users = rng.integers(0, USERS, n)
    items = rng.zipf(1.2, n) % ITEMS
    frame = pl.DataFrame({"user_id": users, "item_id": items, "timestamp": rng.integers(1e9, 2e9, n)})
    if text_ids:
        frame = frame.with_columns(
            pl.col("user_id").hash().cast(pl.String) + "-user", "B" + pl.col("item_id").cast(pl.String)
        )
    frame.write_csv(path)


def measure(path: Path) -> None:
    started = time.perf_counter()
    data = tl.read(path)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{path.stem:14}{seconds:6.1f} s {peak:6.2f} GB   {data}", flush=True)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--measure", type=Path, help="read this file and print the figures; used by the script itself"
    )
    given = parser.parse_args()
    if given.measure:
        measure(given.measure)
        return
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as directory:
        for name, text_ids in (("integer ids", False), ("text ids", True)):
            path = Path(directory) / f"{name}.csv"
            write_rows(path, ROWS // 100 if given.quick else ROWS, text_ids)
            subprocess.run([sys.executable, __file__, "--measure", str(path)], check=True)
            path.unlink()


if __name__ == "__main__":
    main()
