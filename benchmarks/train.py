"""Training speed: truelike beside implicit's and cornac's BPR, in one script, on the same data and threads.

Prints nanoseconds for each (positive, negative) pair, the ratio to each peer, peak extra memory, and a roofline:
the same gathers, dot products and additions of rows in a loop that does nothing else. A peer draws one negative
for each positive, truelike three. Times are of whole epochs, the best of a few.

    python benchmarks/train.py                    # MovieLens 1M
    python benchmarks/train.py --world 20000000   # a synthetic world of about so many votes
    python benchmarks/train.py --spread           # 20 times the users and items, the same interactions
    python benchmarks/train.py --large            # an epoch of 100 million interactions, and its memory
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from common import PeakMemory, machine
from scipy.sparse import csr_matrix

import truelike as tl
from truelike.negatives import Uniform
from truelike.objectives import BPR, NBPO
from truelike.training.sampled import SampledEngine
from truelike.training.samples import Recipe
from truelike.training.tables import Tables

NEGATIVES = 3
EPOCHS = 3


def recipe(batch_size: int, order: str) -> Recipe:
    return Recipe(
        learning_rate=0.01 * min(1.0, 5_000 / batch_size), decay=1.0, regularization=0.1, flip_regularization=0.1,
        prior="batch", shrink="all", n_negatives=NEGATIVES, batch_size=batch_size, order=order, positives="once",
    )  # type: ignore[arg-type]  # fmt: skip


def ours(
    log: Any, objective: Any, factors: int, flips: int, threads: int, batch: int, order: str = "file"
) -> float:
    """Seconds of an epoch."""
    tables = Tables.zeros(log.n_users, log.n_items, factors, flips)
    tables.initialise("normal", 0.1, -1.0, 0)
    engine = SampledEngine(log, tables, objective, Uniform(), recipe(batch, order), seed=0, n_jobs=threads)
    engine.epoch(0)
    return best(lambda n: engine.epoch(n + 1))


def best(epoch: Callable[[int], Any]) -> float:
    shortest = float("inf")
    for n in range(EPOCHS):
        started = time.perf_counter()
        epoch(n)
        shortest = min(shortest, time.perf_counter() - started)
    return shortest


def implicit_epoch(matrix: Any, factors: int, threads: int) -> float:
    """The difference of two runs, so that what is not training cancels out."""
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    def seconds(iterations: int) -> float:
        model = BayesianPersonalizedRanking(
            factors=factors, iterations=iterations, num_threads=threads, random_state=0
        )
        started = time.perf_counter()
        model.fit(matrix, show_progress=False)
        return time.perf_counter() - started

    return _an_epoch(seconds, matrix.nnz)


def _an_epoch(seconds: Callable[[int], float], interactions: int) -> float:
    """From whole runs: what a few epochs more take; of large data one more, measured once."""
    if interactions > 5_000_000:
        return seconds(2) - seconds(1)
    seconds(1)
    return min((seconds(5) - seconds(1)) / 4 for _ in range(2))


def cornac_epoch(data: Any, factors: int, threads: int) -> float:
    from cornac import models

    def seconds(iterations: int) -> float:
        # with a seed cornac runs on one thread only
        model = models.BPR(k=factors, max_iter=iterations, num_threads=threads, verbose=False)
        started = time.perf_counter()
        model.fit(data)
        return time.perf_counter() - started

    return _an_epoch(seconds, data.num_ratings)


@numba.njit(nogil=True, fastmath=True)
def roofline(users: Any, items: Any, u: Any, i: Any, width: Any) -> Any:
    """For each sample: gather an item row, one dot product, one addition to the user's gradient and one to the
    item's; nothing is drawn, stepped, shrunk, grouped or stored."""
    total = np.float32(0.0)
    mine = np.zeros(width, dtype=np.float32)
    for n in range(len(i)):
        row, own = np.uint64(i[n]) * np.uint64(width), np.uint64(u[n]) * np.uint64(width)
        r = np.float32(0.0)
        for k in range(np.uint64(width)):
            r += users[own + k] * items[row + k]
        step = r * np.float32(1e-6)
        for k in range(np.uint64(width)):
            mine[k] += step * items[row + k]
        for k in range(np.uint64(width)):
            items[row + k] += step * users[own + k]
        total += r
    return total + mine[0]


def roofline_epoch(log: Any, factors: int) -> float:
    rng = np.random.default_rng(0)
    users = rng.normal(0, 0.1, log.n_users * factors).astype(np.float32)
    items = rng.normal(0, 0.1, log.n_items * factors).astype(np.float32)
    n = log.n_interactions * (1 + NEGATIVES)
    u = np.repeat(log.user_of_entry, 1 + NEGATIVES)
    i = rng.integers(0, log.n_items, n).astype(np.int32)
    i[:: 1 + NEGATIVES] = log.matrix.indices
    roofline(users, items, u[:10], i[:10], factors)
    return best(lambda _: roofline(users, items, u, i, factors))


def compare(log: Any, factors: tuple[int, ...], peers: bool, cornac: bool) -> None:
    pairs = log.n_interactions * NEGATIVES
    matrix = csr_matrix(log.matrix)
    data = None
    if cornac:
        from cornac.data import Dataset

        data = Dataset.from_uir(zip(log.user_of_entry, log.matrix.indices, log.matrix.data, strict=True))
    print(f"{'':34}{'threads':>8}{'ns/pair':>9}{'ratio':>8}{'extra MB':>10}")

    def line(name: str, threads: int, ns: float, base: float | None, memory: PeakMemory | None) -> None:
        ratio = "" if base is None else f"{base / ns:8.2f}"
        extra = "" if memory is None else f"{memory.extra_mb:10.0f}"
        print(f"{name:34}{threads:8}{ns:9.0f}{ratio:>8}{extra:>10}", flush=True)

    for width in factors:
        bare = roofline_epoch(log, width) / pairs * 1e9
        line(f"roofline {width}", 1, bare, None, None)
        for threads in (1, 2):
            base = None
            if peers:
                with PeakMemory() as memory:
                    base = implicit_epoch(matrix, width, threads) / log.n_interactions * 1e9
                line(f"implicit BPR {width}", threads, base, base, memory)
            if data is not None:
                with PeakMemory() as memory:
                    other = cornac_epoch(data, width, threads) / log.n_interactions * 1e9
                line(f"cornac BPR {width}", threads, other, base, memory)
            for objective, flips in ((BPR, 0), (NBPO, width)):
                for batch in (5_000, 50_000):
                    with PeakMemory() as memory:
                        ns = ours(log, objective, width, flips, threads, batch) / pairs * 1e9
                    name = f"truelike {objective.name} {width}{f'+{flips}' * bool(flips)} batch {batch:,}"
                    line(name, threads, ns, base, memory)
                    if objective is BPR and threads == 1 and batch == 5_000:
                        print(f"{'':34}{bare / ns:.0%} of the roofline")


def spread(log: Any) -> None:
    """The same interactions over 20 times the users and items: tables far beyond the caches."""
    rng = np.random.default_rng(0)
    wide = tl.Dataset.from_pairs(
        _range(20 * log.n_users, "user"),
        _range(20 * log.n_items, "item"),
        (log.user_of_entry * 20 + rng.integers(0, 20, log.n_interactions)).astype(np.int32),
        (log.matrix.indices * 20 + rng.integers(0, 20, log.n_interactions)).astype(np.int32),
    )
    for name, data in (("as it is", log), ("20 times users and items", wide)):
        seconds = ours(data, BPR, 64, 0, 1, 5_000)
        print(f"{name:28}{data.n_users:>10,} x {data.n_items:<10,}{seconds:8.2f} s an epoch", flush=True)


def large(n_users: int = 1_000_000, n_items: int = 200_000, votes: int = 107) -> None:
    """An epoch of about 100 million interactions in the default, shuffled order; items by Zipf's law."""
    rng = np.random.default_rng(0)
    law = np.cumsum(1.0 / np.arange(10, n_items + 10))
    blocks = []
    for first in range(0, n_users, 50_000):
        users = np.repeat(np.arange(first, min(first + 50_000, n_users)), votes)
        items = np.searchsorted(law, rng.random(len(users)) * law[-1])
        blocks.append(np.unique(users * n_items + items))
    pairs = np.concatenate(blocks)
    codes = (pairs // n_items).astype(np.int32), (pairs % n_items).astype(np.int32)
    del blocks, pairs
    log = tl.Dataset.from_pairs(_range(n_users, "user"), _range(n_items, "item"), *codes)
    print(log, flush=True)
    del codes
    for objective, flips in ((BPR, 0), (NBPO, 64)):
        tables = Tables.zeros(log.n_users, log.n_items, 64, flips)
        tables.initialise("normal", 0.1, -1.0, 0)
        settings = recipe(50_000, "shuffled")
        engine = SampledEngine(log, tables, objective, Uniform(), settings, seed=0, n_jobs=None)
        started = time.perf_counter()
        engine.epoch(0)
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        name, pairs = f"{objective.name} 64{f'+{flips}' * bool(flips)}", log.n_interactions * NEGATIVES
        speed = f"{seconds:.0f} s an epoch on {engine.threads} threads, {seconds / pairs * 1e9:.0f} ns/pair"
        print(f"{name}: {speed}, peak memory of the process {peak:.1f} GB", flush=True)


def _range(n: int, what: str) -> Any:
    from truelike.data.ids import Ids

    return Ids.range(n, what)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--world", type=int, help="votes of a synthetic world, instead of MovieLens 1M")
    arguments.add_argument("--spread", action="store_true", help="20 times the users and items")
    arguments.add_argument("--large", action="store_true", help="100 million interactions")
    arguments.add_argument("--factors", type=int, nargs="*", default=[64, 200])
    arguments.add_argument("--no-peers", action="store_true")
    chosen = arguments.parse_args()
    print(machine())
    if chosen.large:
        large()
        return
    if chosen.world:
        users = max(1_000, chosen.world // 100)
        world = tl.synthetic.World(n_users=users, n_items=max(500, users // 5), impressions=1_020.0)
        log = world.log()
    else:
        log = tl.datasets.load("ml-1m")
    print(log)
    if chosen.spread:
        spread(log)
    else:
        small = log.n_interactions < 5_000_000
        compare(log, tuple(chosen.factors), not chosen.no_peers, small and not chosen.no_peers)


if __name__ == "__main__":
    main()
