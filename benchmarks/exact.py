"""Speed of the exact engine: an epoch on MovieLens 1M beside its matrix products alone.

    python benchmarks/exact.py [--factors 256] [--epochs 5] [--quick]

The products have the same shapes, the same tiles and the same number of threads. The rest of an epoch is the
objective, the optimizer and Python.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from common import arguments, load_split, machine, start

import truelike as tl
from truelike.parallel import one_blas_thread


def product_seconds(engine: Any, n_users: int, batch: int, factors: int, threads: int) -> float:
    """Seconds of the three products of an epoch: U V^T, S V and S^T U, for every batch and every tile."""
    rng = np.random.default_rng(0)
    tiles = [tile.stop - tile.start for tile in engine.tiles]
    items = [rng.normal(size=(n, factors)).astype(np.float32) for n in tiles]
    scores = [np.empty((batch, n), dtype=np.float32) for n in tiles]
    gradients = [np.empty((n, factors), dtype=np.float32) for n in tiles]
    users = rng.normal(size=(batch, factors)).astype(np.float32)

    def work(t: int) -> None:
        np.matmul(users, items[t].T, out=scores[t])
        np.matmul(scores[t], items[t])
        np.matmul(scores[t].T, users, out=gradients[t])

    started = time.perf_counter()
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        for _ in range(-(-n_users // batch)):
            list(pool.map(work, range(len(tiles))))
    return time.perf_counter() - started


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--factors", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=5)
    given = parser.parse_args()
    train = load_split("ml-1m-split", given.quick).train
    print(machine())
    print(f"{train.name}, {given.factors} factors, the median of {given.epochs} epochs")
    for name, model_class in (
        ("SoftmaxMF", tl.SoftmaxMF),
        ("ExactBPO", tl.ExactBPO),
        ("ExactNBPO, 32 flip factors", tl.ExactNBPO),
    ):
        for threads in (1, 2):
            model = model_class(factors=given.factors, n_jobs=threads)
            _, engine = start(model._training(None), train)
            engine.epoch(0)  # the first epoch compiles
            epochs, products = [], []
            for number in range(1, given.epochs + 1):
                started = time.perf_counter()
                engine.epoch(number)
                epochs.append(time.perf_counter() - started)
                products.append(product_seconds(engine, train.n_users, model.batch_size, given.factors, threads))
            epoch, product = float(np.median(epochs)), float(np.median(products))
            flops = 6 * train.n_users * train.n_items * given.factors / product / 1e9
            print(
                f"{name:26} {threads} thread{'s' if threads > 1 else ' '}  epoch {epoch:6.3f} s, products "
                f"{product:6.3f} s ({flops:5.1f} GFLOPS), {product / epoch:4.0%} of the epoch",
                flush=True,
            )


if __name__ == "__main__":
    main()
