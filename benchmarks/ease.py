"""Speed of EASE's inverse beside LAPACK's Cholesky inverse (potrf and potri), in one run on as many threads.

    python benchmarks/ease.py [--items 15000] [--threads 1 2] [--precision float64 float32] [--rounds 2] [--quick]

Shown are the shortest wall-clock and processor seconds of each, and their ratio. On a machine that does other work, the
processor seconds of one thread are the reliable figure: threads of LAPACK that wait for each other are busy meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import arguments, machine
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits

from truelike.models.inversion import invert


def gram_matrix(n: int, precision: str) -> Any:
    """A positive definite matrix like X'X with a ridge."""
    rows = np.random.default_rng(0).random((n, 64)).astype(precision)
    matrix = rows @ rows.T
    matrix[np.diag_indices(n)] += 50
    return matrix


def by_lapack(matrix: Any) -> None:
    """In place, as `invert`: the lower triangle of rows is LAPACK's upper triangle of columns."""
    kind = "d" if matrix.dtype == np.float64 else "s"
    factor, failed = getattr(lapack, f"{kind}potrf")(matrix.T, lower=0, clean=0, overwrite_a=1)
    assert not failed
    inverse, failed = getattr(lapack, f"{kind}potri")(factor, lower=0, overwrite_c=1)
    assert not failed
    assert np.shares_memory(inverse, matrix)


def seconds(work: Callable[[Any], None], matrix: Any) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    work(matrix)
    return time.perf_counter() - wall, time.process_time() - processor


def measure(n: int, precision: str, threads: int, rounds: int) -> None:
    ways = {"LAPACK": by_lapack, "truelike": lambda matrix: invert(matrix, threads)}
    best = dict.fromkeys(ways, (float("inf"), float("inf")))
    shares = {}
    for _ in range(rounds):
        for name, work in ways.items():
            matrix = gram_matrix(n, precision)
            with threadpool_limits(threads, "blas"):
                found = seconds(work, matrix)
            best[name] = (min(best[name][0], found[0]), min(best[name][1], found[1]))
            shares[name] = np.tril(matrix[-100:, -100:])
            del matrix
    largest = np.abs(shares["LAPACK"]).max()
    difference = np.abs(shares["truelike"] - shares["LAPACK"]).max() / largest
    for name, (wall, processor) in best.items():
        print(
            f"{n:>7,} {precision:>9} {threads:>8} {name:>9} {wall:>9.2f} {processor:>10.2f}"
            f" {wall / best['LAPACK'][0]:>6.2f} {processor / best['LAPACK'][1]:>6.2f}",
            flush=True,
        )
    print(f"{'':>27} largest difference: {difference:.1e} of the largest value", flush=True)


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--items", type=int, nargs="+", default=[15_000])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--precision", nargs="+", default=["float64"], choices=["float64", "float32"])
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    print(machine())
    for kind in ("float64", "float32"):
        invert(np.eye(3, dtype=kind))  # compiled before it is measured
    heads = ("items", "precision", "threads", "", "seconds", "processor", "ratio", "ratio")
    print("{:>7} {:>9} {:>8} {:>9} {:>9} {:>10} {:>6} {:>6}".format(*heads))
    for n in [300] if args.quick else args.items:
        for precision in args.precision:
            for threads in args.threads:
                measure(n, precision, threads, args.rounds)
