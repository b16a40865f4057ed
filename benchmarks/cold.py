"""Films that nobody has voted for: FM by genres and decade on MovieLens 1M, a tenth of the films held out.

    python benchmarks/cold.py [--epochs 6] [--id-dropout 0,0.1,0.3] [--objectives BPR,BPO,NBPO]

For each user the held-out films are ranked among themselves: the chance that one they voted for stands above one
they did not (AUC, 0.5 is chance), and NDCG@20. Beside FM: chance, and the popularity that the films came to have,
which nobody could know beforehand.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
from common import machine

import truelike as tl
from truelike import randomness


def judged(scores: np.ndarray, voted: np.ndarray) -> tuple[float, float]:
    """AUC and NDCG@20, each the mean over the users who voted for a held-out film."""
    areas, gains = [], []
    discount = 1 / np.log2(np.arange(2, 22))
    for row, mine in zip(scores, voted, strict=True):
        if mine.any():
            ours, others = row[mine][:, None], row[~mine]
            areas.append(((ours > others).mean() + (ours >= others).mean()) / 2)
            first = np.argsort(-row, kind="stable")[:20]
            gains.append((mine[first] * discount).sum() / discount[: mine.sum()].sum())
    return float(np.mean(areas)), float(np.mean(gains))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--id-dropout", default="0,0.1,0.3")
    parser.add_argument("--objectives", default="BPR,BPO,NBPO")
    given = parser.parse_args()
    log, features = tl.datasets.load("ml-1m"), tl.datasets.movielens_features()
    held_out = randomness.uniform(randomness.key(0, "cold"), np.arange(log.n_items)) < 0.1
    is_new = held_out[log.matrix.indices]
    train = log.select(~is_new)
    new = np.flatnonzero(held_out & (log.popularity() > 0)).astype(np.int32)
    voted = log.matrix[:, new].toarray() > 0
    known = features["item_features"].filter(
        features["item_features"]["item_id"].is_in(log.items.values.implode())
    )
    print(f"{machine()}; {len(new)} films held out of {log.n_items}, {int(is_new.sum()):,} votes for them")
    rivals = {
        "chance": randomness.uniform(randomness.key(0, "chance"), np.arange(voted.size)).reshape(voted.shape),
        "the popularity they came to have": np.broadcast_to(log.popularity()[new], voted.shape),
    }
    ways = itertools.product(given.objectives.split(","), map(float, given.id_dropout.split(",")))
    for objective, dropout in ways:
        model = tl.FM(objective=objective, epochs=given.epochs, id_dropout=dropout)
        model.fit(train, user_features=features["user_features"], item_features=known, progress=False)
        items = model.train_.items.known(log.items.take(new))
        users = np.arange(log.n_users, dtype=np.int32)
        rivals[f"FM, {objective}, id_dropout {dropout:g}"] = np.concatenate(
            [model._score_block(part)[:, items] for part in np.split(users, 40)]
        )
    for name, scores in rivals.items():
        print(f"{name:<34} AUC {judged(scores, voted)[0]:.3f}  NDCG@20 {judged(scores, voted)[1]:.3f}")


if __name__ == "__main__":
    main()
