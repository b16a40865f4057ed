"""An epoch of the exact engine beside its bare matrix products, on MovieLens 1M.

    python benchmarks/exact.py [--factors 256] [--epochs 5]

The products are those of the same shapes, in the same pieces, on as many threads, and nothing else: what an epoch
takes beyond them is the objective, the moving of the rows, and the work of Python.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from common import machine

import truelike as tl
from truelike.parallel import one_blas_thread


def products(engine: object, n_users: int, batch: int, factors: int, threads: int) -> float:
    """Seconds of the three products of an epoch: U V^T, S V and S^T U, for every batch and every tile."""
    rng = np.random.default_rng(0)
    tiles = [tile.stop - tile.start for tile in engine.tiles]  # type: ignore[attr-defined]
    items = [rng.normal(size=(n, factors)).astype(np.float32) for n in tiles]
    rooms = [np.empty((batch, n), dtype=np.float32) for n in tiles]
    down = [np.empty((n, factors), dtype=np.float32) for n in tiles]
    rows = rng.normal(size=(batch, factors)).astype(np.float32)

    def work(t: int) -> None:
        np.matmul(rows, items[t].T, out=rooms[t])
        np.matmul(rooms[t], items[t])
        np.matmul(rooms[t].T, rows, out=down[t])

    started = time.perf_counter()
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        for _ in range(-(-n_users // batch)):
            list(pool.map(work, range(len(tiles))))
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--factors", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=5)
    given = parser.parse_args()
    train = tl.datasets.load("ml-1m-split").train
    print(machine())
    print(f"MovieLens 1M, {given.factors} factors, the middle of {given.epochs} epochs")
    for name, model in (
        ("softmax", tl.SoftmaxMF(factors=given.factors)),
        ("BPO", tl.ExactBPO(factors=given.factors)),
        ("NBPO-o, 32 flip factors", tl.ExactNBPO(factors=given.factors)),
    ):
        for threads in (1, 2):
            model.n_jobs = threads
            tables = model._start(train)
            engine = model._engine(train, tables)
            engine.epoch(0)
            epochs, bare = [], []
            for number in range(1, given.epochs + 1):
                started = time.perf_counter()
                engine.epoch(number)
                epochs.append(time.perf_counter() - started)
                bare.append(products(engine, train.n_users, model.batch_size, given.factors, threads))
            epoch, product = float(np.median(epochs)), float(np.median(bare))
            flops = 6 * train.n_users * train.n_items * given.factors / product / 1e9
            print(
                f"{name:24} {threads} thread{'s' if threads > 1 else ' '}  epoch {epoch:6.3f} s, its products "
                f"{product:6.3f} s ({flops:5.1f} GFLOPS), {product / epoch:4.0%} of the epoch"
            )


if __name__ == "__main__":
    main()
