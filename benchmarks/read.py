"""10 million CSV rows into a Dataset: seconds and peak memory, for integer and for text ids.

Each log is read in a process of its own, so that the peak is that of reading alone.

    python benchmarks/read.py
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
from common import machine

ROWS, USERS, ITEMS = 10_000_000, 1_000_000, 200_000


def write_log(path: Path, text: bool) -> None:
    rng = np.random.default_rng(0)
    users = rng.integers(0, USERS, ROWS)
    items = rng.zipf(1.2, ROWS) % ITEMS
    columns = {"user_id": users, "item_id": items, "timestamp": rng.integers(1e9, 2e9, ROWS)}
    frame = pl.DataFrame(columns)
    if text:
        frame = frame.with_columns(
            pl.col("user_id").hash().cast(pl.String) + "-user", "B" + pl.col("item_id").cast(pl.String)
        )
    frame.write_csv(path)


def measure(path: str) -> None:
    import truelike as tl

    started = time.perf_counter()
    log = tl.read(path)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{Path(path).stem:14}{seconds:6.1f} s {peak:6.2f} GB   {log}")


def main() -> None:
    print(machine())
    with tempfile.TemporaryDirectory() as place:
        for name, text in (("integer ids", False), ("text ids", True)):
            path = Path(place) / f"{name}.csv"
            write_log(path, text)
            subprocess.run([sys.executable, __file__, str(path)], check=True)
            path.unlink()


if __name__ == "__main__":
    measure(sys.argv[1]) if len(sys.argv) > 1 else main()
