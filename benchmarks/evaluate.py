"""Speed of evaluation: all items ranked for all users of MovieLens 1M, truelike beside implicit, in one run.

Both rank the same scores of the same 64 factors for the same test users, on the same number of threads. truelike
computes all its metrics at k = 20; implicit's `ranking_metrics_at_k` computes its four.
Only training items are left out of the lists, by both.

    python benchmarks/evaluate.py [--quick]
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # implicit asks for this; truelike sets it itself

import implicit
from common import PeakMemory, arguments, best_of, load_split, machine, model_of
from implicit.evaluation import ranking_metrics_at_k
from scipy.sparse import csr_matrix

import truelike as tl

RUNS = 7


def main() -> None:
    given = arguments(__doc__).parse_args()
    split = load_split("ml-1m-split", given.quick)
    print(machine())
    print(f"{split.train.name}, {split.train.n_users:,} users, {split.train.n_items:,} items")
    train, test = csr_matrix(split.train.matrix, copy=True), csr_matrix(split.test.matrix, copy=True)
    peer = implicit.als.AlternatingLeastSquares(factors=64, iterations=5, random_state=0, use_gpu=False)
    peer.fit(train, show_progress=False)
    model = model_of(split.train, peer.user_factors, peer.item_factors)
    tl.evaluate(model, split, seen="train", ks=(20,))  # the first call compiles
    print(f"{'':10}{'threads':>8}{'ms':>9}{'extra MB':>10}{'NDCG@20':>9}")
    for threads in (1, 2):
        with PeakMemory() as their_memory:
            theirs, measured = best_of(
                RUNS,
                lambda n=threads: ranking_metrics_at_k(
                    peer, train, test, K=20, show_progress=False, num_threads=n
                ),
            )
        with PeakMemory() as our_memory:
            ours, result = best_of(
                RUNS, lambda n=threads: tl.evaluate(model, split, seen="train", ks=(20,), n_jobs=n)
            )
        for name, seconds, memory, ndcg in (
            ("implicit", theirs, their_memory, measured["ndcg"]),
            ("truelike", ours, our_memory, result["ndcg@20"]),
        ):
            print(f"{name:10}{threads:8}{seconds * 1e3:9.1f}{memory.extra_mb:10.1f}{ndcg:9.4f}")
        print(f"{'':10}ratio implicit / truelike: {theirs / ours:.1f}")


if __name__ == "__main__":
    main()
