"""Ranking all items for all users of MovieLens 1M: truelike beside implicit, in one run.

Same factors (64), same test rows, same threads. truelike computes all its metrics at k = 20; implicit's
`ranking_metrics_at_k` computes its four.

    python benchmarks/evaluate.py
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # implicit asks for this; both get their own threads

import implicit
import numpy as np
from common import PeakMemory, best_of, machine
from implicit.evaluation import ranking_metrics_at_k

import truelike as tl
from truelike.evaluation.evaluate import evaluate
from truelike.evaluation.topk import top_k_by_factors
from truelike.models.popularity import ItemPop

RUNS = 7


class Factors(ItemPop):
    """implicit's factors under truelike's contract, so that both rank the very same scores."""

    def use(self, users: np.ndarray, items: np.ndarray) -> Factors:
        self.U, self.V = users, items
        return self

    def top_k(self, users, k, *, exclude_seen=True, allowed=None, n_jobs=None):  # type: ignore[no-untyped-def]
        seen = self.train_.matrix if exclude_seen else None
        return top_k_by_factors(self.U, self.V, users, k, seen=seen, allowed=allowed, n_jobs=n_jobs)


def main() -> None:
    split = tl.split.by_user(tl.datasets.load("ml-1m"), seed=0)
    train, test = split.train.matrix, split.test.matrix
    print(machine())
    print(f"MovieLens 1M, {split.train.n_users:,} users, {split.train.n_items:,} items, 64 factors, k = 20")
    from scipy.sparse import csr_matrix

    train_matrix, test_matrix = csr_matrix(train), csr_matrix(test)
    peer = implicit.als.AlternatingLeastSquares(factors=64, iterations=5, random_state=0, use_gpu=False)
    peer.fit(train_matrix, show_progress=False)
    ours = Factors().fit(split.train).use(peer.user_factors, peer.item_factors)
    evaluate(ours, split.test, ks=(20,))  # compile
    print(f"{'':10}{'threads':>8}{'ms':>9}{'extra MB':>10}{'NDCG@20':>9}")
    for threads in (1, 2):
        with PeakMemory() as their_memory:
            theirs, measured = best_of(
                RUNS,
                lambda n=threads: ranking_metrics_at_k(
                    peer, train_matrix, test_matrix, K=20, show_progress=False, num_threads=n
                ),
            )
        with PeakMemory() as our_memory:
            mine, result = best_of(RUNS, lambda n=threads: evaluate(ours, split.test, ks=(20,), n_jobs=n))
        for who, seconds, memory, ndcg in (
            ("implicit", theirs, their_memory, measured["ndcg"]),
            ("truelike", mine, our_memory, result["ndcg@20"]),
        ):
            print(f"{who:10}{threads:8}{seconds * 1e3:9.1f}{memory.extra_mb:10.1f}{ndcg:9.4f}")
        print(f"{'':10}{theirs / mine:.1f} times as fast")


if __name__ == "__main__":
    main()
