"""Lists of a whole user base: seconds and peak memory of `truelike recommend MODEL --all`, and a resume after kill -9.

Makes an IALS model of 1,000,000 users x 100,000 items with 64 factors and 20 interactions a user, from random
factors, and writes the 20 best items of every user to a Parquet file: once undisturbed, and once with a kill -9 in the
middle and the same command again. The two files must be equal.

    python benchmarks/batch.py [--quick] [--users N] [--items N] [--factors N] [-k N] [--directory DIR]
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import psutil
from common import arguments, machine
from scipy import sparse

import truelike as tl
from truelike.data.dataset import Dataset
from truelike.data.ids import Ids
from truelike.engines.tables import Tables
from truelike.storage import write_model

INTERACTIONS = 20  # of a user
CENTERS = 200  # tastes that users and items gather around


class Run(NamedTuple):
    seconds: float
    peak_mb: float
    code: int
    said: str


def make_model(place: Path, n_users: int, n_items: int, factors: int) -> None:
    """Write a model: users and items around common tastes, popular items longer, interactions by popularity."""
    rng = np.random.default_rng(0)
    tables = Tables.zeros(n_users, n_items, factors, 0)
    centers = rng.normal(size=(CENTERS, factors)).astype(np.float32)
    popularity = 1 / np.arange(1, n_items + 1) ** 0.8
    rng.shuffle(popularity)
    for table in (tables.users, tables.items):
        for start in range(0, len(table), 50_000):
            block = table[start : start + 50_000, :factors]
            block[:] = centers[rng.integers(0, CENTERS, len(block))]
            block += rng.normal(scale=0.7, size=block.shape).astype(np.float32)
            block *= 0.3 / np.sqrt(factors)
    tables.items *= (1 + 0.3 * np.log(popularity / popularity.mean()).clip(-2, 3)).astype(np.float32)[:, None]
    cumulative = np.cumsum(popularity / popularity.sum())
    drawn = np.searchsorted(cumulative, rng.random((n_users, INTERACTIONS))).astype(np.int32).clip(0, n_items - 1)
    drawn.sort(axis=1)
    fresh = np.ones(drawn.shape, dtype=bool)
    fresh[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
    indptr = np.concatenate([[0], np.cumsum(fresh.sum(axis=1))]).astype(np.int32)
    parts = (np.ones(indptr[-1], dtype=np.float32), drawn[fresh], indptr)
    matrix = sparse.csr_array(parts, shape=(n_users, n_items))
    users, items = Ids.range(n_users, "user"), Ids.range(n_items, "item")
    train = Dataset.unchecked(users, items, matrix, name="synthetic")
    model = tl.IALS(factors=factors)
    about = {"class": "IALS", "parameters": model.get_params()}
    write_model(place, about, tables.arrays(), train, {})


def command(model: Path, output: Path, k: int) -> list[str]:
    call = ["-m", "truelike", "recommend", str(model), "--all", "-k", str(k), "-o", str(output)]
    return [sys.executable, *call]


def run(call: list[str], kill_at: float | None = None, parts: Path | None = None) -> Run:
    """Run a command; `kill_at`: kill -9 it when there are as many parts. The peak is that of its resident memory."""
    started = time.perf_counter()
    process = subprocess.Popen(call, stderr=subprocess.PIPE, text=True)
    watched, peak = psutil.Process(process.pid), 0.0
    while process.poll() is None:
        try:
            with open(f"/proc/{watched.pid}/status") as handle:
                lines = dict(line.split(":", 1) for line in handle)
            peak = max(peak, int(lines.get("VmHWM", "0 kB").split()[0]) / 1e3)
        except (OSError, ValueError):
            pass
        if kill_at is not None and parts is not None and len(list(parts.glob("*.parquet"))) >= kill_at:
            os.kill(process.pid, signal.SIGKILL)
            kill_at = None
        time.sleep(0.02)
    said = "" if process.stderr is None else process.stderr.read()
    return Run(time.perf_counter() - started, peak, process.returncode, said)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("-k", type=int, default=20)
    parser.add_argument("--directory", type=Path, help="keep the model here; default: a temporary directory")
    given = parser.parse_args()
    if given.quick:
        given.users, given.items, given.factors = 200_000, 500, 8
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        place = given.directory or Path(temporary)
        model = place / f"model-{given.users}-{given.items}-{given.factors}"
        if not (model / "model.json").exists():
            make_model(model, given.users, given.items, given.factors)
        for name in ("undisturbed", "killed"):
            (place / f"{name}.parquet").unlink(missing_ok=True)
        sizes = f"{given.users:,} users x top {given.k} over {given.items:,} items, {given.factors} factors"
        print(f"{sizes}: {' '.join(command(Path('MODEL'), Path('recs.parquet'), given.k)[1:])}", flush=True)
        whole = run(command(model, place / "undisturbed.parquet", given.k))
        assert whole.code == 0, whole.said
        speed = given.users / whole.seconds
        print(
            f"undisturbed: {whole.seconds:.1f} s, {speed:,.0f} users a second, peak {whole.peak_mb:,.0f} MB",
            flush=True,
        )
        output = place / "killed.parquet"
        half = given.users * given.k // 500_000 // 2
        killed = run(command(model, output, given.k), half, place / f".{output.name}.parts")
        assert killed.code == -signal.SIGKILL, killed.said
        assert not output.exists()
        print(f"kill -9 after {killed.seconds:.1f} s", flush=True)
        rest = run(command(model, output, given.k))
        assert rest.code == 0, rest.said
        said = next(line for line in rest.said.splitlines() if line.startswith("continuing"))
        print(f"the same command: {said}; {rest.seconds:.1f} s, peak {rest.peak_mb:,.0f} MB")
        same = digest(output) == digest(place / "undisturbed.parquet")
        rows = pl.scan_parquet(output).select(pl.len()).collect().item()
        print(
            f"{rows:,} rows, {output.stat().st_size / 1e6:.0f} MB; the two files are {'equal' if same else 'DIFFERENT'}"
        )
        left = [each.name for each in place.iterdir() if each.name.startswith(".")]
        assert same
        assert not left, left


if __name__ == "__main__":
    main()
