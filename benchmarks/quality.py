"""Ranking quality against seconds of training, MovieLens 1M: truelike's models beside implicit's ALS, in one run.

    python benchmarks/quality.py [--output docs/comparison]

After each epoch training is paused and the test NDCG@20 is measured, which does not count. Seconds start with
`fit`: what a model computes before its first epoch (the spectrum of the log) is in them; reading and compiling are
not.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as implicit asks for

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from common import machine
from scipy.sparse import csr_matrix

import truelike as tl
from truelike.evaluation.evaluate import hit_matrix, relevant_items
from truelike.evaluation.metrics import METRICS
from truelike.evaluation.topk import top_k_by_factors

TARGETS = (0.259, 0.265)


def judge(split: Any) -> Callable[..., float]:
    relevant = relevant_items(split.train, split.test)
    counts = np.diff(relevant.indptr)
    users = np.flatnonzero(counts).astype(np.int32)

    def ndcg(U: Any, V: Any, bias: Any = None) -> float:
        best = top_k_by_factors(U, V, users, 20, item_bias=bias, seen=split.train.matrix).items
        return float(METRICS["ndcg"](hit_matrix(best, users, relevant), counts[users].astype(float), 20).mean())

    return ndcg


def ours(model: Any, split: Any, ndcg: Any) -> list[tuple[float, float]]:
    started = time.perf_counter()
    tables = model._start(split.train)
    engine = model._engine(split.train, tables)
    seconds, curve = time.perf_counter() - started, []
    for number in range(model.epochs):
        started = time.perf_counter()
        engine.epoch(number)
        seconds += time.perf_counter() - started
        curve.append((seconds, ndcg(tables.user_factors, tables.item_factors, tables.item_bias)))
    return curve


def peer(split: Any, ndcg: Any, iterations: int = 15) -> list[tuple[float, float]]:
    """implicit's ALS, as it is best on validation; its own callback tells the time of each iteration."""
    from implicit.cpu.als import AlternatingLeastSquares

    matrix = csr_matrix(split.train.matrix)
    matrix.data[:] = 1
    found = []
    for n in range(1, iterations + 1):
        model = AlternatingLeastSquares(factors=64, regularization=50.0, alpha=5.0, iterations=n, random_state=0)
        started = time.perf_counter()
        model.fit(matrix, show_progress=False)
        found.append((time.perf_counter() - started, ndcg(model.user_factors, model.item_factors)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    split = tl.datasets.load("ml-1m-split")
    ndcg = judge(split)
    runs: dict[str, Callable[[], list[tuple[float, float]]]] = {
        "SoftmaxMF (the default)": lambda: ours(tl.SoftmaxMF(epochs=50), split, ndcg),
        "ExactBPO": lambda: ours(tl.ExactBPO(epochs=50), split, ndcg),
        "IALS, 64 factors": lambda: ours(tl.IALS(factors=64), split, ndcg),
        "IALS, 128 factors": lambda: ours(tl.IALS(), split, ndcg),
        "BPR": lambda: ours(tl.BPR(epochs=60), split, ndcg),
        "NBPO": lambda: ours(tl.NBPO(epochs=60), split, ndcg),
        "implicit's ALS, 64 factors": lambda: peer(split, ndcg),
    }
    print(machine())
    warm = tl.synthetic.World(n_users=60, n_items=40).log()
    for model in (tl.SoftmaxMF, tl.ExactBPO, tl.IALS, tl.BPR, tl.NBPO):
        model(epochs=1).fit(warm, progress=False)
    rows = []
    for name, run in runs.items():
        curve = run()
        rows += [{"model": name, "seconds": s, "ndcg@20": value} for s, value in curve]
        passed = [next((f"{s:.1f} s" for s, v in curve if v >= target), "never") for target in TARGETS]
        best = max(value for _, value in curve)
        words = ", ".join(f"{target} after {when}" for target, when in zip(TARGETS, passed, strict=True))
        print(f"{name:28} {words}; at best {best:.4f} in {curve[-1][0]:.1f} s", flush=True)
    if given.output:
        given.output.mkdir(parents=True, exist_ok=True)
        frame = pl.DataFrame(rows)
        frame.write_csv(given.output / "quality-by-time.csv")
        plot(frame).savefig(given.output / "quality-by-time.svg", bbox_inches="tight")
        plot(frame).savefig(given.output / "quality-by-time.png", bbox_inches="tight", dpi=150)


def plot(frame: pl.DataFrame) -> Any:
    from truelike.report.figures import COLOURS, new_figure

    figure, axes = new_figure(7.5, 4.2)
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
