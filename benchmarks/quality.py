"""Ranking quality against seconds of training on MovieLens 1M, in one run beside implicit's ALS and irspack's iALS.

    python benchmarks/quality.py [--output results/comparison] [--quick]

truelike's models are at their defaults, but for the factors that are given. implicit and irspack have their best
settings on validation (irspack: of 25 trials), and each number of iterations is a fit from the start. irspack is
left out if it is not installed (pip install irspack). After each epoch the test NDCG@20 is measured; the time of the
measurement does not count. Seconds include what a model computes before its first epoch (such as the spectral
initialization), and neither reading nor compiling. Validation items stay candidates on test.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # implicit asks for this; truelike sets it itself

import time
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from common import arguments, load_split, machine, output_directory, start
from scipy.sparse import csr_matrix

import truelike as tl
from truelike.evaluation.metrics import METRICS
from truelike.evaluation.pairs import hits_of, relevant_items
from truelike.ranking.factor_ranker import top_k_by_factors

TARGETS = (0.259, 0.265, 0.273)
ITERATIONS = 16  # of the peers
IRSPACK = {64: {"alpha0": 0.614, "reg": 0.00458}, 128: {"alpha0": 0.288, "reg": 0.0086}}  # by factors
Curve = list[tuple[float, float]]  # seconds and NDCG@20 after each epoch


def ndcg_on_test(split: tl.Split) -> Callable[..., float]:
    """A function that returns the test NDCG@20 of factors."""
    relevant = relevant_items(split.train, split.test)
    counts = np.diff(relevant.indptr)
    users = np.flatnonzero(counts).astype(np.int32)
    relevant = relevant[users]

    def ndcg(user_factors: Any, item_factors: Any, bias: Any = None) -> float:
        best = top_k_by_factors(user_factors, item_factors, users, 20, item_bias=bias, seen=split.train.matrix)
        hits = hits_of(best.items, relevant)[0].astype(float)
        return float(METRICS["ndcg"](hits, counts[users].astype(float), 20).mean())

    return ndcg


def truelike_curve(model: Any, split: tl.Split, ndcg: Callable[..., float]) -> Curve:
    started = time.perf_counter()
    trainer = model._trainer()
    tables, engine = start(trainer, split.train)
    seconds, curve = time.perf_counter() - started, []
    for number in range(model.epochs):
        started = time.perf_counter()
        engine.epoch(number)
        seconds += time.perf_counter() - started
        curve.append((seconds, ndcg(tables.user_factors, tables.item_factors, tables.item_bias)))
    return curve


def implicit_curve(split: tl.Split, ndcg: Callable[..., float], iterations: int) -> Curve:
    """implicit's ALS at its best settings on validation; a fit from the start for each number of iterations."""
    from implicit.cpu.als import AlternatingLeastSquares

    matrix = csr_matrix(split.train.matrix, copy=True)
    matrix.data[:] = 1
    curve = []
    for n in range(1, iterations + 1):
        model = AlternatingLeastSquares(factors=64, regularization=50.0, alpha=5.0, iterations=n, random_state=0)
        started = time.perf_counter()
        model.fit(matrix, show_progress=False)
        curve.append((time.perf_counter() - started, ndcg(model.user_factors, model.item_factors)))
    return curve


def irspack_curve(split: tl.Split, ndcg: Callable[..., float], factors: int, iterations: int) -> Curve:
    """irspack's iALS at its best settings on validation; a fit from the start for each number of iterations."""
    from irspack import IALSRecommender

    matrix = csr_matrix(split.train.matrix, dtype=np.float64)
    matrix.data[:] = 1
    curve = []
    for n in range(1, iterations + 1):
        model = IALSRecommender(
            matrix, n_components=factors, train_epochs=n, n_threads=2, random_seed=0, **IRSPACK[factors]
        )
        started = time.perf_counter()
        with redirect_stdout(StringIO()):  # its progress bar
            model.learn()
        seconds = time.perf_counter() - started
        factors_of = [
            np.asarray(each, dtype=np.float32) for each in (model.get_user_embedding(), model.get_item_embedding())
        ]
        curve.append((seconds, ndcg(*factors_of)))
    return curve


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    split = load_split("ml-1m-split", given.quick)
    ndcg = ndcg_on_test(split)

    def epochs(n: int) -> int:
        return 2 if given.quick else n

    models = {
        "IALS, 64 factors": tl.IALS(factors=64),
        "IALS, 128 factors": tl.IALS(),
        "SoftmaxMF": tl.SoftmaxMF(),
        "ExactBPO": tl.ExactBPO(),
        "ExactBPO, 320 factors": tl.ExactBPO(factors=320),
        "ExactBPO, 64 factors": tl.ExactBPO(factors=64),
        "BPR": tl.BPR(),
        "NBPO": tl.NBPO(),
    }
    models = {name: tl.clone(model, epochs=epochs(model.epochs)) for name, model in models.items()}
    print(machine())
    small = tl.synthetic.World(n_users=60, n_items=40).dataset()
    for model in models.values():
        tl.clone(model, epochs=1).fit(small, progress=False)  # compiles
    runs: dict[str, Callable[[], Curve]] = {
        name: lambda model=model: truelike_curve(model, split, ndcg) for name, model in models.items()
    }
    runs["implicit's ALS, 64 factors"] = lambda: implicit_curve(split, ndcg, epochs(ITERATIONS))
    for factors in IRSPACK if find_spec("irspack") else ():
        runs[f"irspack's iALS, {factors} factors"] = lambda n=factors: irspack_curve(
            split, ndcg, n, epochs(ITERATIONS)
        )
    rows = []
    for name, run in runs.items():
        curve = run()
        rows += [{"model": name, "seconds": s, "ndcg@20": value} for s, value in curve]
        reached = [next((f"{s:.2f} s" for s, v in curve if v >= target), "never") for target in TARGETS]
        best = max(value for _, value in curve)
        words = ", ".join(f"{target} after {when}" for target, when in zip(TARGETS, reached, strict=True))
        print(f"{name:28} {words}; best {best:.4f}; {curve[-1][0]:.1f} s in all", flush=True)
    if given.output or given.quick:
        directory = output_directory(given.output, given.quick)
        frame = pl.DataFrame(rows)
        frame.write_csv(directory / "quality-by-time.csv")
        plot(frame).savefig(directory / "quality-by-time.svg", bbox_inches="tight", metadata={"Date": None})


def plot(frame: pl.DataFrame) -> Any:
    from truelike.report.figures import COLOURS, new_figure

    figure, [axes] = new_figure(height=4.2)
    for n, (name, curve) in enumerate(frame.group_by("model", maintain_order=True)):
        style = {"color": COLOURS[n % len(COLOURS)], "linestyle": "-" if n < len(COLOURS) else "--"}
        axes.plot(curve["seconds"], curve["ndcg@20"], label=name[0], marker=".", **style)
    for target in TARGETS:
        axes.axhline(target, color="#9aa5b5", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_ylim(0.15, 0.28)
    axes.set_xlabel("seconds of training, 2 threads")
    axes.set_ylabel("test NDCG@20, MovieLens 1M")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


if __name__ == "__main__":
    main()
