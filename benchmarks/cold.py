"""Items without interactions: FM with genres and decade on MovieLens 1M, with a tenth of the films held out.

    python benchmarks/cold.py [--epochs 6] [--id-dropout 0,0.1,0.3] [--objectives BPR,BPO,NBPO] [--quick]

For each user the held-out films are ranked among themselves. AUC is the probability that a film that the user
interacted with ranks above one that the user did not (0.5: random order). Beside AUC and NDCG@20 of FM are those of
a random order, and those of the later popularity of the films, which was not known beforehand.
"""

from __future__ import annotations

import itertools

import numpy as np
from common import arguments, machine

import truelike as tl
from truelike.core import randomness


def measures(scores: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """AUC and NDCG@20, the means over the users with a held-out positive."""
    areas, gains = [], []
    discount = 1 / np.log2(np.arange(2, 22))
    for row, own in zip(scores, positive, strict=True):
        if own.any():
            positives, others = row[own][:, None], row[~own]
            areas.append(((positives > others).mean() + (positives >= others).mean()) / 2)
            first = np.argsort(-row, kind="stable")[:20]
            gains.append((own[first] * discount).sum() / discount[: own.sum()].sum())
    return float(np.mean(areas)), float(np.mean(gains))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--id-dropout", default="0,0.1,0.3")
    parser.add_argument("--objectives", default="BPR,BPO,NBPO")
    given = parser.parse_args()
    if given.quick:
        given.epochs, given.id_dropout, given.objectives = 1, "0.1", "BPR"
        world = tl.synthetic.World(n_users=400, n_items=200)
        data = world.dataset()
        features = {"user_features": world.user_features(), "item_features": world.item_features()}
    else:
        data, features = tl.datasets.load("ml-1m"), tl.datasets.movielens_features()
    held_out = randomness.uniform(randomness.key(0, "cold"), np.arange(data.n_items)) < 0.1
    is_cold = held_out[data.matrix.indices]
    train = data.select(~is_cold)
    cold = np.flatnonzero(held_out & (data.popularity() > 0)).astype(np.int32)
    positive = data.matrix[:, cold].toarray() > 0
    item_features = features["item_features"]
    item_features = item_features.filter(item_features["item_id"].is_in(data.items.to_series().implode()))
    print(machine())
    print(f"{len(cold)} of {data.n_items} films held out, {int(is_cold.sum()):,} interactions with them")
    chance = randomness.uniform(randomness.key(0, "chance"), np.arange(positive.size))
    scores = {
        "random order": chance.reshape(positive.shape),
        "later popularity": np.broadcast_to(data.popularity()[cold], positive.shape),
    }
    for objective, dropout in itertools.product(
        given.objectives.split(","), map(float, given.id_dropout.split(","))
    ):
        model = tl.FM(objective=objective, epochs=given.epochs, id_dropout=dropout)
        model.fit(tl.read(train, users=features["user_features"], items=item_features), progress=False)
        items = model.train_.items.known(data.items.take(cold))
        users = np.arange(data.n_users, dtype=np.int32)
        scores[f"FM, {objective}, id_dropout {dropout:g}"] = np.concatenate(
            [model.scorer.score_users(part)[:, items] for part in np.array_split(users, 40)]
        )
    for name, of_model in scores.items():
        auc, ndcg = measures(of_model, positive)
        print(f"{name:<34} AUC {auc:.3f}  NDCG@20 {ndcg:.3f}")


if __name__ == "__main__":
    main()
