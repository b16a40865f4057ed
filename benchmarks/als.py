"""Alternating least squares: truelike beside implicit, in one run, on MovieLens 1M.

    python benchmarks/als.py                  # the same objective, seconds per iteration; time to a test NDCG@20
    python benchmarks/als.py --defaults       # both as a user calls them: seconds per iteration, test NDCG@20
    python benchmarks/als.py --quick          # small data, to check that the script runs

Without --defaults, both minimise the same objective by three steps of conjugate gradients, at 64 and 128 factors on
one and two threads. Then it prints after how many iterations and seconds a fit reaches the target.

With --defaults, `tl.IALS(factors=64)` and `AlternatingLeastSquares(factors=64)` run at their own defaults. The split
is `tl.splits.by_user(data, seed=0)`. An iteration updates all users' rows, then all items' rows.
Validation items stay candidates on test (`seen="train"`).
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # implicit asks for this; truelike sets it itself

import time
from collections.abc import Callable
from typing import Any

from common import EpochOfFit, arguments, load_split, machine, model_of
from scipy.sparse import csr_matrix

import truelike as tl
from truelike.engines.als.engine import AlternatingEngine, Solver, Weights
from truelike.engines.tables import Tables

ROUNDS = 3
ITERATIONS = 5
PEER = {"regularization": 50.0, "alpha": 5.0}  # the best of implicit on validation
SAME = Weights(
    unobserved=0.25, regularization=12.5, frequency_power=0.0
)  # the same objective, divided by alpha - 1


def implicit_fit(matrix: Any, threads: int, **parameters: Any) -> tuple[float, Any]:
    """Seconds of a fit, and the model."""
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(num_threads=threads, random_state=0, **parameters)
    started = time.perf_counter()
    model.fit(matrix, show_progress=False)
    return time.perf_counter() - started, model


def implicit_iteration(matrix: Any, threads: int, **parameters: Any) -> EpochOfFit:
    """A function that measures the seconds per iteration."""
    return EpochOfFit(
        lambda n: implicit_fit(matrix, threads, iterations=n, **parameters)[0], epochs=1 + ITERATIONS
    )


def engine_iteration(data: tl.Dataset, factors: int, threads: int) -> float:
    """Seconds per iteration of the engine, on implicit's objective."""
    tables = Tables.zeros(data.n_users, data.n_items, factors, 0)
    tables.initialise("normal", 0.1 / factors**0.5, 0.0, 0)
    engine = AlternatingEngine(data, tables, SAME, solver=Solver("cg", 3), n_jobs=threads)
    engine.epoch(0)
    started = time.perf_counter()
    for number in range(ITERATIONS):
        engine.epoch(number + 1)
    return (time.perf_counter() - started) / ITERATIONS


def in_turn(theirs: EpochOfFit, ours: Callable[[], float]) -> tuple[float, float]:
    """The best of each over several rounds. They alternate, so that a slow phase of the machine affects both."""
    rounds = [(theirs(), ours()) for _ in range(ROUNDS)]
    return rounds[-1][0], min(seconds for _, seconds in rounds)


def same_objective(data: tl.Dataset, factors: list[int]) -> None:
    matrix = csr_matrix(data.matrix, copy=True)
    print(f"{'an iteration':16}{'threads':>8}{'implicit s':>12}{'truelike s':>12}{'ratio':>8}")
    for width in factors:
        for threads in (1, 2):
            implicit_fit(matrix, threads, factors=width, iterations=1, **PEER)
            theirs, ours = in_turn(
                implicit_iteration(matrix, threads, factors=width, **PEER),
                lambda w=width, n=threads: engine_iteration(data, w, n),
            )
            print(f"{width:3} factors{'':5}{threads:8}{theirs:12.4f}{ours:12.4f}{theirs / ours:8.2f}", flush=True)


def time_to_target(split: tl.Split, target: float, most: int) -> None:
    """The fewest iterations of a whole fit that reaches the target on the test part."""
    matrix = csr_matrix(split.train.matrix, copy=True)

    def peer(n: int) -> tuple[float, Any]:
        seconds, model = implicit_fit(matrix, 2, factors=64, iterations=n, **PEER)
        return seconds, model_of(split.train, model.user_factors, model.item_factors)

    def ours(factors: int) -> Callable[[int], tuple[float, Any]]:
        return lambda n: truelike_fit(split.train, factors=factors, epochs=n, n_jobs=2)

    print(f"a fit that reaches test NDCG@20 {target:g}, on 2 threads")
    fits = {"implicit, 64 factors": peer, **{f"truelike, {k} factors": ours(k) for k in (64, 128)}}
    for name, fit in fits.items():
        for n in range(1, most + 1):
            seconds, model = fit(n)
            ndcg = test_ndcg(model, split)
            if ndcg >= target:
                break
        not_reached = "" if ndcg >= target else " (not reached)"
        print(f"{name:44}{n:3} iterations{seconds:8.2f} s  NDCG@20 {ndcg:.4f}{not_reached}", flush=True)


def truelike_fit(train: tl.Dataset, **parameters: Any) -> tuple[float, tl.IALS]:
    model = tl.IALS(**parameters)
    started = time.perf_counter()
    model.fit(train, progress=False)
    return time.perf_counter() - started, model


def test_ndcg(model: Any, split: tl.Split) -> float:
    return tl.evaluate(model, split, seen="train", ks=(20,), metrics=("ndcg",))["ndcg@20"]


def defaults(split: tl.Split) -> None:
    """Both libraries as a user calls them, with 64 factors and otherwise their defaults."""
    matrix = csr_matrix(split.train.matrix, copy=True)
    truelike_fit(split.train, factors=64, epochs=1)  # compiles
    names = ("implicit AlternatingLeastSquares(factors=64)", "truelike IALS(factors=64)")
    print(f"{'':46}{'threads':>8}{'s/iteration':>13}{'iterations':>12}{'fit s':>8}{'NDCG@20':>9}{'ratio':>7}")
    for threads in (1, 2):

        def our_iteration(n: int = threads) -> float:
            model = truelike_fit(split.train, factors=64, epochs=1 + ITERATIONS, n_jobs=n)[1]
            return float(model.history_["seconds"][1:].mean())

        theirs, ours = in_turn(implicit_iteration(matrix, threads, factors=64), our_iteration)
        their_seconds, peer = implicit_fit(matrix, threads, factors=64)
        our_seconds, model = truelike_fit(split.train, factors=64, n_jobs=threads)
        their_ndcg = test_ndcg(model_of(split.train, peer.user_factors, peer.item_factors), split)
        for name, each, iterations, seconds, ndcg in (
            (names[0], theirs, peer.iterations, their_seconds, their_ndcg),
            (names[1], ours, model.epochs, our_seconds, test_ndcg(model, split)),
        ):
            print(
                f"{name:46}{threads:8}{each:13.4f}{iterations:12}{seconds:8.2f}{ndcg:9.4f}{theirs / each:7.2f}",
                flush=True,
            )
    print("ratio: implicit's seconds per iteration divided by these")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--defaults", action="store_true", help="the public classes at their defaults")
    parser.add_argument("--factors", type=int, nargs="*", default=[64, 128])
    parser.add_argument("--target", type=float, default=0.259)
    given = parser.parse_args()
    split = load_split("ml-1m-split", given.quick)  # tl.splits.by_user(tl.datasets.load("ml-1m"), seed=0)
    print(machine())
    print(split.train)
    if given.defaults:
        defaults(split)
        return
    same_objective(split.train, given.factors)
    time_to_target(split, given.target, 2 if given.quick else 20)


if __name__ == "__main__":
    main()
