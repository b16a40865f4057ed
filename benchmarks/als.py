"""Alternating least squares: truelike beside implicit, in one script, on the same data, threads and steps.

Prints seconds of an iteration (all users' rows, then all items', three steps of conjugate gradients each) at 64
and 128 factors on one and on two threads, on the training part of MovieLens 1M. Then whole fits: after how many
iterations and seconds each passes a test NDCG@20.

    python benchmarks/als.py [--target 0.259]
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as implicit asks for

import argparse
import time
from collections.abc import Callable
from typing import Any

from common import machine
from scipy.sparse import csr_matrix

import truelike as tl
from truelike.training.alternating import AlternatingEngine, Weights
from truelike.training.tables import Tables

ROUNDS = 3
ITERATIONS = 5
PEER = {"regularization": 50.0, "alpha": 5.0}  # what was best for implicit on validation
SAME = Weights(unobserved=0.25, regularization=12.5, frequency_power=0.0)  # the same objective, by alpha - 1


def implicit_fit(matrix: Any, factors: int, iterations: int, threads: int) -> tuple[float, Any]:
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        factors=factors, iterations=iterations, num_threads=threads, random_state=0, **PEER
    )
    started = time.perf_counter()
    model.fit(matrix, show_progress=False)
    return time.perf_counter() - started, model


def implicit_iteration(matrix: Any, factors: int, threads: int) -> float:
    """The difference of two runs, so that what is not training cancels out."""
    longer = implicit_fit(matrix, factors, 1 + ITERATIONS, threads)[0]
    return (longer - implicit_fit(matrix, factors, 1, threads)[0]) / ITERATIONS


def our_iteration(log: Any, factors: int, threads: int) -> float:
    tables = Tables.zeros(log.n_users, log.n_items, factors, 0)
    tables.initialise("normal", 0.1 / factors**0.5, 0.0, 0)
    engine = AlternatingEngine(log, tables, SAME, solver="cg", cg_steps=3, n_jobs=threads)
    engine.epoch(0)
    started = time.perf_counter()
    for number in range(ITERATIONS):
        engine.epoch(number + 1)
    return (time.perf_counter() - started) / ITERATIONS


def iterations(log: Any, factors: tuple[int, ...]) -> None:
    """Both in turn, several times over, so that a noisy moment hits both; the best of each."""
    matrix = csr_matrix(log.matrix)
    print(f"{'an iteration':16}{'threads':>8}{'implicit s':>12}{'truelike s':>12}{'ratio':>8}")
    for width in factors:
        for threads in (1, 2):
            implicit_fit(matrix, width, 1, threads)
            rounds = [
                (implicit_iteration(matrix, width, threads), our_iteration(log, width, threads))
                for _ in range(ROUNDS)
            ]
            theirs, ours = (min(times) for times in zip(*rounds, strict=True))
            print(f"{width:3} factors{'':5}{threads:8}{theirs:12.4f}{ours:12.4f}{theirs / ours:8.2f}", flush=True)


def passes(name: str, target: float, test: Any, fit: Callable[[int], tuple[float, Any]]) -> None:
    """The fewest iterations whose whole fit is as good as the target on the test part."""
    for n in range(1, 21):
        seconds, model = fit(n)
        found = tl.evaluate(model, test, ks=(20,), metrics=("ndcg",)).means()["ndcg@20"]
        if found >= target:
            print(f"{name:44}{n:3} iterations{seconds:8.2f} s  NDCG@20 {found:.4f}", flush=True)
            return
    print(f"{name:44} 20 iterations{seconds:8.2f} s  NDCG@20 {found:.4f}: not reached", flush=True)


def time_to(split: Any, target: float) -> None:
    matrix = csr_matrix(split.train.matrix)
    room = tl.IALS(factors=64, epochs=0).fit(split.train)

    def peer(n: int) -> tuple[float, Any]:
        seconds, model = implicit_fit(matrix, 64, n, 2)
        room.user_factors_[:], room.item_factors_[:] = model.user_factors, model.item_factors
        return seconds, room

    def ours(**parameters: Any) -> Callable[[int], tuple[float, Any]]:
        def fit(n: int) -> tuple[float, Any]:
            model = tl.IALS(epochs=n, n_jobs=2, **parameters)
            started = time.perf_counter()
            model.fit(split.train)
            return time.perf_counter() - started, model

        return fit

    print(f"a whole fit that passes test NDCG@20 {target:g}, on 2 threads")
    passes("implicit, 64 factors", target, split.test, peer)
    for factors in (64, 128):
        passes(f"truelike, {factors} factors", target, split.test, ours(factors=factors))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--factors", type=int, nargs="*", default=[64, 128])
    arguments.add_argument("--target", type=float, default=0.259)
    chosen = arguments.parse_args()
    split = tl.datasets.load("ml-1m-split")
    print(machine())
    print(split.train)
    iterations(split.train, tuple(chosen.factors))
    time_to(split, chosen.target)


if __name__ == "__main__":
    main()
