"""Functions that several benchmarks use."""

from __future__ import annotations

import argparse
import gc
import os
import platform
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import truelike as tl

QUICK = "small data and few epochs: checks that the script runs; the figures mean nothing"


def arguments(doc: str) -> argparse.ArgumentParser:
    """A parser that shows a script's docstring and has the option --quick."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=QUICK)
    return parser


def small_dataset() -> tl.Dataset:
    """The synthetic dataset of --quick."""
    return tl.synthetic.World(n_users=400, n_items=200).dataset()


def world(n_users: int, n_items: int, mean: float = 100.0, n_clusters: int = 200, seed: int = 0) -> tl.Dataset:
    """Users in clusters, Zipf popularity, distinct pairs."""
    rng = np.random.default_rng(seed)
    size = n_items // 20
    popularity = -0.5 * np.log(np.arange(1, n_items + 1))
    items = np.empty((n_clusters + 1, n_items), dtype=np.int32)
    items[0] = np.arange(n_items)  # all items; the others: a choice, popular items first and in more clusters
    for cluster in range(1, n_clusters + 1):
        items[cluster] = np.argsort(-(popularity + rng.gumbel(size=n_items)))
    of_all, of_cluster = (np.cumsum(np.arange(1, n + 1) ** -0.8) for n in (n_items, size))
    of_all, of_cluster = of_all / of_all[-1], of_cluster / of_cluster[-1]
    own = rng.integers(1, n_clusters + 1, size=(n_users, 3))
    own = np.column_stack((np.zeros(n_users, dtype=own.dtype), own)).astype(np.int32)
    shares = np.cumsum([0.1, 0.5, 0.3, 0.1])

    sigma = 0.8
    wanted = rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, n_users)
    wanted = np.rint(np.clip(wanted * mean / wanted.mean(), 10, n_items // 8)).astype(np.int64)
    pairs = np.empty(0, dtype=np.int64)
    missing = wanted
    for _ in range(8):
        users = np.repeat(np.arange(n_users), missing)
        which = np.searchsorted(shares[:-1], rng.random(len(users)))
        draws = rng.random(len(users))
        position = np.where(which == 0, np.searchsorted(of_all, draws), np.searchsorted(of_cluster, draws))
        drawn = items[own[users, which], np.minimum(position, n_items - 1)]
        pairs = np.sort(np.concatenate((pairs, users * n_items + drawn)))
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        missing = wanted - np.bincount(pairs // n_items, minlength=n_users)
        if missing.sum() < 0.001 * len(pairs):
            break
    columns = {"user_id": pairs // n_items, "item_id": pairs % n_items}
    return tl.read(pl.DataFrame({name: values.astype(np.int32) for name, values in columns.items()}))


def load_split(name: str, quick: bool = False) -> tl.Split:
    """A split of `tl.datasets`; with `quick`, one of a small synthetic dataset."""
    if not quick:
        return tl.datasets.load(name)
    warnings.simplefilter("ignore", tl.errors.TrainingWarning)  # a model of one epoch ranks badly
    return tl.splits.by_user(small_dataset(), seed=0)


def output_directory(given: Path, quick: bool) -> Path:
    """Where results are written. The results of --quick go to a temporary directory."""
    directory = Path(tempfile.mkdtemp(prefix="truelike-quick-")) if quick else given
    print(f"results are written to {directory}", flush=True)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def start(trainer: Any, train: tl.Dataset) -> tuple[Any, Any]:
    """The initial parameters and the engine of a model's `_trainer()`: what `fit` does before the first epoch."""
    trained = trainer.initial(train)
    engine = trainer.engine(train, trained)
    if hasattr(trainer, "prepare"):
        trainer.prepare(train, trained)
    return trained, engine


def model_of(train: tl.Dataset, user_factors: Any, item_factors: Any) -> tl.IALS:
    """A fitted model with the given factors, so that those of a peer can be evaluated by `tl.evaluate`."""
    model = tl.IALS(factors=user_factors.shape[1], epochs=0).fit(train, progress=False)
    model.user_factors_[:], model.item_factors_[:] = user_factors, item_factors
    return model


def resident() -> int:
    """Bytes of memory that this process holds now."""
    with open("/proc/self/statm") as handle:
        return int(handle.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class PeakMemory:
    """A context that measures the peak memory of the process above that at its start, every 2 milliseconds."""

    def __enter__(self) -> PeakMemory:
        gc.collect()
        self.start = self.peak = resident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)
        self._thread.start()
        return self

    def _measure(self) -> None:
        while not self._stop.wait(0.002):
            self.peak = max(self.peak, resident())

    def __exit__(self, *_: Any) -> None:
        self.peak = max(self.peak, resident())
        self._stop.set()
        self._thread.join()

    @property
    def extra_mb(self) -> float:
        return (self.peak - self.start) / 2**20


def best_of(runs: int, work: Callable[[], Any]) -> tuple[float, Any]:
    """The shortest time of several runs, and the result of the last one."""
    shortest, result = float("inf"), None
    for _ in range(runs):
        started = time.perf_counter()
        result = work()
        shortest = min(shortest, time.perf_counter() - started)
    return shortest, result


class EpochOfFit:
    """Seconds per epoch of a library that does not report them, from the seconds of fits of 1 and of n epochs.

    The difference of the shortest fits is taken, so that the rest of a fit cancels out.

    Parameters
    ----------
    seconds
        A function that returns the seconds of a fit of some epochs.
    epochs
        Epochs of the longer fit.
    """

    def __init__(self, seconds: Callable[[int], float], epochs: int = 6) -> None:
        self.seconds, self.epochs = seconds, epochs
        self.short = self.long = float("inf")

    def __call__(self) -> float:
        """Measure once more and return the seconds per epoch by all measurements so far."""
        self.short = min(self.short, self.seconds(1))
        self.long = min(self.long, self.seconds(self.epochs))
        return (self.long - self.short) / (self.epochs - 1)


def machine() -> str:
    """The processor and the versions, in one line."""
    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as handle:
        model = next((line.split(":")[1].strip() for line in handle if "model name" in line), model)
    load = os.getloadavg()[0]
    python = platform.python_version()
    return f"{model}, {os.cpu_count()} cores, load {load:.1f}, Python {python}, truelike {tl.__version__}"
