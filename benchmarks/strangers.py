"""Somebody never seen before: how well each model recommends from a history alone (`recommend_from_items`).

    python benchmarks/strangers.py [--seeds 3] [--users 400]

The Amazon split. Some users are left out of training altogether and then asked for by the votes they would have
had in it; beside that, the same users as part of the training. NDCG@20 of their test votes, models as they are.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from common import machine

import truelike as tl
from truelike import randomness
from truelike.evaluation.topk import top_k_by_scores

MODELS: dict[str, Any] = {
    "BPR": tl.BPR,
    "NBPO": tl.NBPO,
    "MF by BPR": ("MF", "BPR"),
    "MF by NBPO": ("MF", "NBPO"),
    "FM by BPR": ("FM", "BPR"),
    "FM by NBPO": ("FM", "NBPO"),
    "NeuMF by BPO": ("NeuMF", "BPO"),
    "NeuMF by NBPO": ("NeuMF", "NBPO"),
    "ACF by BPR": ("ACF", "BPR"),
    "LightGCN by BPR": ("LightGCN", "BPR"),
}


def make(what: Any, seed: int) -> Any:
    if not isinstance(what, tuple):
        return what(seed=seed)
    name, objective = what
    kind = tl.DeepRecommender if name == "MF" else getattr(tl, name)
    return kind(objective=objective, seed=seed)


def gain(best: np.ndarray, liked: Any) -> float:
    """NDCG@20, the mean over users with a test vote."""
    discount = 1 / np.log2(np.arange(2, 22))
    found = [
        (np.isin(row, mine.indices) * discount).sum() / discount[: mine.nnz].sum()
        for row, mine in zip(best, liked, strict=True)
        if mine.nnz
    ]
    return float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--users", type=int, default=400)
    parser.add_argument("--only")
    given = parser.parse_args()
    split = tl.datasets.load("amazon-electronics-14core")
    train = split.train
    order = randomness.uniform(randomness.key(0, "strangers"), np.arange(train.n_users)).argsort()
    out = np.sort(order[: given.users]).astype(np.int32)
    others = train.select(~np.isin(train.user_of_entry, out))
    validation = split.validation.select(~np.isin(split.validation.user_of_entry, out))
    histories = train.matrix[out]
    liked = split.test.recode(train.users, train.items)[0].matrix[out]
    print(machine())
    print(f"{given.users} users, {given.seeds} seeds; test NDCG@20 as one of the users, and as a stranger")
    for name, what in MODELS.items():
        if given.only and name not in given.only.split(","):
            continue
        known, stranger = [], []
        for seed in range(given.seeds):
            model = make(what, seed).fit(train, validation=split.validation, progress=False)
            known.append(gain(model.top_k(out, 20).items, liked))
            model = make(what, seed).fit(others, validation=validation, progress=False)
            best = top_k_by_scores(
                lambda rows, model=model: model._score_histories(histories[rows]),
                np.arange(len(out), dtype=np.int32),
                20,
                n_items=train.n_items,
                seen=histories,
                n_jobs=1,
            )
            stranger.append(gain(best.items, liked))
        print(f"  {name:<16} {np.mean(known):.4f} {np.mean(stranger):.4f}", flush=True)


if __name__ == "__main__":
    main()
