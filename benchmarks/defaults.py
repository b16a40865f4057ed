"""What a user gets: every public model at its defaults, fitted by `fit(split)`, beside implicit's at its defaults.

    python benchmarks/defaults.py [--data ml-1m amazon-electronics-14core] [--models BPR IALS]
    python benchmarks/defaults.py --users 30 100 300 1000     # on samples of the users: which model for a small dataset

Prints test NDCG@20 and F1@20 and the seconds of the fit, one seed, all cores. Training and validation items of a user
are left out of the lists; with --seen train validation items stay candidates, as the paper's authors have it. Run it
twice: the first run of an installation compiles the loops.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # implicit asks for this; truelike sets it itself

import argparse
import time
from typing import Any

import numpy as np
from common import machine

import truelike as tl
from truelike.core import randomness
from truelike.models.registry import build, usual_models

LEFT_OUT = {"train": "training items", "validation": "training and validation items"}


class Peer:
    """The factors of another library's model, evaluated like ours."""

    def __init__(self, name: str, train: Any, users: Any, items: Any) -> None:
        self.name, self.train_, self._scorer = name, train, tl.DotProductScorer(train, users, items)

    @property
    def scorer(self) -> tl.Scorer:
        return self._scorer


def peers(train: Any) -> Any:
    """implicit's ALS and BPR at their own defaults (64 and 100 factors)."""
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking
    from scipy.sparse import csr_matrix

    matrix = csr_matrix(
        (np.ones(train.n_interactions, np.float32), train.matrix.indices.copy(), train.matrix.indptr.copy())
    )
    for name, model in (
        ("implicit ALS", AlternatingLeastSquares(random_state=0)),
        ("implicit BPR", BayesianPersonalizedRanking(random_state=0)),
    ):
        started = time.perf_counter()
        model.fit(matrix, show_progress=False)
        yield Peer(name, train, model.user_factors, model.item_factors), time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["amazon-electronics-14core", "ml-1m"])
    parser.add_argument("--models", nargs="+", default=["AutoRecommender", *usual_models()])
    parser.add_argument(
        "--users", nargs="+", type=int, help="numbers of users to draw, for fewer than 1,000 three times"
    )
    parser.add_argument("--seen", choices=("train", "validation"), default="validation")
    given = parser.parse_args()
    print(machine())
    for name in given.data:
        data = tl.datasets.load(name, progress=False)
        if given.users:
            samples(name, whole(data), given.users, given.models, given.seen)
            continue
        split = data if isinstance(data, tl.Split) else tl.splits.by_user(data, validation=0.1, test=0.1, seed=0)
        print(f"\n{name}: {split}, left out: {LEFT_OUT[given.seen]}")
        print(f"{'model':<18}{'ndcg@20':>9}{'f1@20':>9}{'seconds':>9}")
        for model in given.models:
            made, started = build(model, {}), time.perf_counter()
            made.fit(split, progress=False)
            show(model, made, split, given.seen, time.perf_counter() - started)
        for peer, seconds in peers(split.train):
            show(peer.name, peer, split, given.seen, seconds)


def show(name: str, model: Any, split: Any, seen: Any, seconds: float) -> None:
    found = tl.evaluate(model, split, seen=seen, ks=20, metrics=["ndcg", "f1"])
    print(f"{name:<18}{found['ndcg@20']:>9.4f}{found['f1@20']:>9.4f}{seconds:>9.1f}", flush=True)


def whole(data: Any) -> tl.Dataset:
    return data.train.merge(data.validation).merge(data.test) if isinstance(data, tl.Split) else data


def samples(name: str, data: tl.Dataset, sizes: list[int], models: list[str], seen: Any) -> None:
    """Print test NDCG@20 of the models for some users and the items that they have."""
    for n in sizes:
        figures = []
        for seed in range(3 if n < 1000 else 1):
            order = np.argsort(randomness.bits(randomness.key(seed, "s"), np.arange(data.n_users)))
            chosen = data.select(np.isin(data.user_of_entry, order[:n]))
            split = tl.splits.by_user(tl.read(chosen.to_frame().select("user_id", "item_id")), seed=0)
            made = [build(model, {}).fit(split, progress=False) for model in models]
            results = [tl.evaluate(each, split, seen=seen, metrics=["ndcg"], ks=(20,)) for each in made]
            figures.append([each["ndcg@20"] for each in results])
        cells = ", ".join(
            f"{model} {value:.4f}" for model, value in zip(models, np.mean(figures, axis=0), strict=True)
        )
        print(f"{name}, {n:,} users, {len(figures)} samples, left out: {LEFT_OUT[seen]}: {cells}", flush=True)


if __name__ == "__main__":
    main()
