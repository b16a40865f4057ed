"""Alternating least squares: truelike beside Apache Spark, in one run, on MovieLens 1M and on 20 million interactions.

    pip install pyspark                       # and Java 17; truelike does not depend on either
    unshare --net sh -c 'ip link set lo up && exec python benchmarks/spark_als.py'
    ... python benchmarks/spark_als.py --data movielens            # or world, or both
    ... python benchmarks/spark_als.py --data world --iterations 5
    ... python benchmarks/spark_als.py --quick                     # small data, to check that the script runs

Spark looks for other addresses by itself, so the script runs only in a network namespace without any interface but
loopback; the second line makes one, as root. Load MovieLens 1M once outside it: `truelike.datasets.load("ml-1m")`.

`tl.IALS(factors=64)` and `pyspark.ml.recommendation.ALS(rank=64, implicitPrefs=True)` on `local[2]`, each in a
process of its own that reads the same Parquet file. Spark once at its defaults, once with the alpha and regParam of a
search on validation (of the world: on a tenth of the users) and as many blocks as cores. An iteration updates all
users' rows and all items' rows; its seconds are those of a fit of n iterations minus those of a fit of one, divided by
n - 1, after a warm-up. "Others' CPU" is the share of the processor time that other programs took meanwhile: seconds
count only where it is small. Memory is the peak of the processes, of the JVM too. The factors of both are ranked by
truelike, without the items of the training part; validation items stay candidates.

The world: 200,000 users who prefer 3 of 200 clusters of items, 20,000 items with Zipf's popularity, a skewed number of
distinct items per user, 100 on average, a tenth of which is the test part.
"""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import multiprocessing
import os
import shutil
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from common import EpochOfFit, arguments, load_split, machine, model_of, world

import truelike as tl

COMMAND = "unshare --net sh -c 'ip link set lo up && exec python benchmarks/spark_als.py'"
CORES, FACTORS = 2, 64
LADDER = {"alpha": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0), "regParam": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)}
START = {"alpha": 1.0, "regParam": 0.1}  # Spark's defaults
SEARCH_FITS, SEARCH_ITERATIONS = 9, 5
LEAST_SECONDS = 20  # of the measurements of a row: a short fit is repeated, and the shortest counts
session: Any = None  # of a process that runs Spark


# ---- the data


def write(data: tl.Dataset, path: Path) -> Path:
    """A Parquet file of the row numbers of users and items."""
    columns = {"user_id": data.user_of_entry, "item_id": data.matrix.indices}
    frame = pl.DataFrame({name: np.asarray(values, dtype=np.int32) for name, values in columns.items()})
    frame.with_columns(rating=pl.lit(1.0, dtype=pl.Float32)).write_parquet(path, row_group_size=2**20)
    return path


@dataclass
class Data:
    """A dataset to measure on, and the one of the search."""

    name: str
    split: tl.Split
    search: tl.Split


def movielens(quick: bool) -> Data:
    split = load_split("ml-1m-split", quick)
    return Data("MovieLens 1M", split, split)


def large(quick: bool) -> Data:
    split = tl.splits.by_user(world(*((2_000, 1_000) if quick else (200_000, 20_000))), validation=0.0, seed=0)
    train = split.train
    few = np.random.default_rng(1).random(train.n_users) < 0.1
    sample = tl.read(train.select(few[train.user_of_entry]).to_frame().select("user_id", "item_id"))
    return Data("world", split, tl.splits.by_user(sample, test=0.0, seed=0))


# ---- what runs in a process of its own: start, fit, peak


def start_spark(directory: Path, memory: str) -> None:
    global session
    warnings.simplefilter("ignore", FutureWarning)  # of Spark about pandas
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    os.environ["SPARK_LOCAL_DIRS"] = str(directory)
    builder = SparkSession.builder.master(f"local[{CORES}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")


def fit_spark(path: Path, iterations: int, out: Path, **parameters: Any) -> float:
    """Seconds of reading the file and fitting; the factors are written to a directory."""
    from pyspark.ml.recommendation import ALS

    started = time.perf_counter()
    als = ALS(
        rank=FACTORS, implicitPrefs=True, maxIter=iterations, userCol="user_id", itemCol="item_id", **parameters
    )
    model = als.setSeed(0).fit(session.read.parquet(str(path)))
    tables = {"users": model.userFactors, "items": model.itemFactors}
    for table in tables.values():
        table.count()
    seconds = time.perf_counter() - started
    for name, table in tables.items():
        table.write.mode("overwrite").parquet(str(out / name))
        table.unpersist()
    return seconds


def start_truelike(directory: Path, memory: str) -> None:
    warnings.simplefilter("ignore", tl.errors.TrainingWarning)  # a model of one epoch ranks badly


def fit_truelike(path: Path, iterations: int, out: Path, **parameters: Any) -> float:
    """The same of truelike."""
    started = time.perf_counter()
    train = tl.read(path, user="user_id", item="item_id", rating=None)
    model = tl.IALS(factors=FACTORS, epochs=iterations, n_jobs=CORES, **parameters).fit(train, progress=False)
    seconds = time.perf_counter() - started
    for name, ids, table in (
        ("users", train.users, model.user_factors_),
        ("items", train.items, model.item_factors_),
    ):
        (out / name).mkdir(parents=True, exist_ok=True)
        values = np.asarray(ids.values, dtype=np.int32)
        pl.DataFrame({"id": values, "features": np.array(table)}).write_parquet(out / name / "0.parquet")
    return seconds


def stop_spark() -> None:
    session.stop()


def peak() -> float:
    """The sum of the peak resident memory of this process and of those that it started, in GB."""
    import psutil

    total = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        status = Path(f"/proc/{process.pid}/status").read_text()
        if "VmHWM:" in status:  # not of a process that has ended
            total += int(status.split("VmHWM:")[1].split()[0])
    return total * 1024 / 1e9


# ---- the measurements


class Others:
    """The share of the machine's processor time that processes other than this one and its children took."""

    def __init__(self) -> None:
        self.first = self._now()

    def _now(self) -> tuple[float, float, float]:
        import psutil

        machine, own = psutil.cpu_times(), 0.0
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            times = process.cpu_times()
            own += times.user + times.system
        return sum(machine[:8]), machine.idle + machine.iowait, own

    def __call__(self) -> float:
        every, idle, own = (now - before for now, before in zip(self._now(), self.first, strict=True))
        return max(0.0, (every - idle - own) / every)


def factors_of(out: Path, train: tl.Dataset) -> tl.IALS:
    """A model with the factors that a process wrote. Users and items without interactions have zeros."""
    tables = []
    for name, n in (("users", train.n_users), ("items", train.n_items)):
        frame = pl.read_parquet(out / name / "*.parquet")
        table = np.zeros((n, FACTORS), dtype=np.float32)
        table[frame["id"].to_numpy()] = frame["features"].explode().to_numpy().reshape(-1, FACTORS)
        tables.append(table)
    return model_of(train, *tables)


def ndcg(out: Path, split: tl.Split, part: tl.Dataset) -> float:
    return tl.evaluate(factors_of(out, split.train), part, ks=(20,), metrics=("ndcg",))["ndcg@20"]


@dataclass
class Runner:
    """A process that fits one library's models."""

    start: Callable[[Path, str], None]
    fit: Callable[..., float]
    stop: Callable[[], None] | None
    directory: Path
    memory: str

    def __enter__(self) -> Runner:
        self.out = Path(tempfile.mkdtemp(dir=self.directory))
        self.pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        self(self.start, self.out, self.memory)
        return self

    def __call__(self, function: Callable[..., Any], *values: Any, **parameters: Any) -> Any:
        return self.pool.submit(function, *values, **parameters).result()

    def seconds(self, path: Path, iterations: int, **parameters: Any) -> float:
        return self(self.fit, path, iterations, self.out, **parameters)

    def __exit__(self, *_: Any) -> None:
        if self.stop is not None:
            self(self.stop)
        self.pool.shutdown()
        shutil.rmtree(self.out, ignore_errors=True)


def best_on_validation(spark: Runner, path: Path, split: tl.Split, fits: int) -> dict[str, float]:
    """The best alpha and regParam of a walk over the ladder: a neighbour that is better is the next place."""
    tried: dict[tuple[float, ...], float] = {}

    def value(at: dict[str, float]) -> float:
        key = tuple(at.values())
        if key not in tried:
            if len(tried) >= fits:
                return -1.0
            seconds = spark.seconds(path, SEARCH_ITERATIONS, **at)
            tried[key] = ndcg(spark.out, split, split.validation)
            print(f"  search: {at}, {seconds:.1f} s, validation NDCG@20 {tried[key]:.4f}", flush=True)
        return tried[key]

    best, moved = dict(START), True
    while moved:
        moved = False
        for name, steps in LADDER.items():
            for direction in (1, -1):
                place = steps.index(best[name]) + direction
                while 0 <= place < len(steps) and value({**best, name: steps[place]}) > value(best):
                    best, moved = {**best, name: steps[place]}, True
                    place += direction
    return best


def row(data: Data, name: str, runner: Runner, files: list[Path], n: int, **parameters: Any) -> str:
    """A row of the table: fits of 1 and of n iterations until the measurements took some time."""
    train, few = files
    least = LEAST_SECONDS if data.split.train.n_interactions > 500_000 else 0  # not of --quick
    with runner:
        runner.seconds(few, 2, **parameters)  # compiles
        each = EpochOfFit(lambda count: runner.seconds(train, count, **parameters), epochs=n)
        others, started, per = Others(), time.perf_counter(), each()
        while time.perf_counter() - started < least:
            per = each()
        busy = others()
        memory, quality = runner(peak), ndcg(runner.out, data.split, data.split.test)
    line = (
        f"| {data.name} | {name} | {n} | {per:.3f} | {each.long:.1f} | {busy:.0%} | {memory:.2f} | {quality:.4f} |"
    )
    print(line, flush=True)
    return line


def measure(data: Data, iterations: int, memory: str, quick: bool, directory: Path) -> list[str]:
    """The rows of the table."""
    print(data.name, data.split.train, f"{data.split.test.n_interactions:,} to test", flush=True)
    files = [write(data.split.train, directory / "train.parquet")]
    files.append(write(data.search.train, directory / "search.parquet"))
    spark = Runner(start_spark, fit_spark, stop_spark, directory, memory)
    ours = Runner(start_truelike, fit_truelike, None, directory, memory)
    rows = [
        row(data, f"truelike, {name}", ours, files, n)
        for name, n in dict.fromkeys((("defaults", tl.IALS().epochs), ("otherwise defaults", iterations)))
        if name == "defaults" or n != tl.IALS().epochs
    ]
    rows.append(row(data, "Spark, defaults", spark, files, iterations))
    with spark:
        best = best_on_validation(spark, files[1], data.search, 2 if quick else SEARCH_FITS)
    name = f"Spark, alpha={best['alpha']:g}, regParam={best['regParam']:g}, {CORES} blocks"
    rows.append(row(data, name, spark, files, iterations, numUserBlocks=CORES, numItemBlocks=CORES, **best))
    return rows


def why_not() -> str | None:
    """Why Spark cannot run here."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: pip install pyspark"
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "Java is not installed, which Spark needs"
    return None


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", choices=("movielens", "world", "both"), default="both")
    parser.add_argument("--iterations", type=int, default=10, help="of Spark, whose default is 10; at least 2")
    parser.add_argument("--memory", default="8g", help="spark.driver.memory: the most that Java's heap may take")
    given = parser.parse_args()
    if given.iterations < 2:
        parser.error("--iterations is at least 2")
    reason = why_not()
    if reason is not None:
        print(f"skipped: {reason}")
        return
    # /sys/class/net shows the interfaces of the namespace that mounted it, not of this process
    others = [name for _, name in socket.if_nameindex() if name != "lo"]
    if others:
        sys.exit(
            f"not started: there are network interfaces besides loopback ({', '.join(others)}). Run\n  {COMMAND}"
        )
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    print(machine())
    blas = ctypes.util.find_library("blas") or "none, so Java's"
    version = importlib.metadata.version("pyspark")
    print(f"pyspark {version}, local[{CORES}], heap up to {given.memory}, native BLAS: {blas}", flush=True)
    iterations = 2 if given.quick else given.iterations
    rows = []
    for name, load in (("movielens", movielens), ("world", large)):
        if given.data in (name, "both"):
            with tempfile.TemporaryDirectory(prefix="truelike-spark-") as directory:
                rows += measure(load(given.quick), iterations, given.memory, given.quick, Path(directory))
    print(
        "\n| data | | iterations | s/iteration | read and fit s | others' CPU | peak GB | test NDCG@20 |\n|---|---|"
        + "---:|" * 5
    )
    print("\n".join(rows))


if __name__ == "__main__":
    main()
