"""New users: how well each model recommends from a history alone, as `recommend_from_items` does.

    python benchmarks/new_users.py [--seeds 3] [--users 400] [--only "BPR,MF by BPR"] [--quick]

The Amazon split. Some users are left out of training, and their training interactions are given as histories. The
same users are also evaluated as part of the training. NDCG@20 on their test interactions, models at defaults.
Validation items stay candidates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import arguments, load_split, machine

import truelike as tl
from truelike.core import randomness
from truelike.ranking.top_k import top_k_by_scores

MODELS: dict[str, tuple[type[Any], dict[str, str]]] = {
    "BPR": (tl.BPR, {}),
    "NBPO": (tl.NBPO, {}),
    "MF by BPR": (tl.DeepRecommender, {"objective": "BPR"}),
    "MF by NBPO": (tl.DeepRecommender, {"objective": "NBPO"}),
    "FM by BPR": (tl.FM, {"objective": "BPR"}),
    "FM by NBPO": (tl.FM, {"objective": "NBPO"}),
    "NeuMF by BPO": (tl.NeuMF, {"objective": "BPO"}),
    "NeuMF by NBPO": (tl.NeuMF, {"objective": "NBPO"}),
    "ACF by BPR": (tl.ACF, {"objective": "BPR"}),
    "LightGCN by BPR": (tl.LightGCN, {"objective": "BPR"}),
}


def mean_ndcg(best: np.ndarray, relevant: Any) -> float:
    """NDCG@20, the mean over users with a test interaction."""
    discount = 1 / np.log2(np.arange(2, 22))
    values = [
        (np.isin(row, own.indices) * discount).sum() / discount[: own.nnz].sum()
        for row, own in zip(best, relevant, strict=True)
        if own.nnz
    ]
    return float(np.mean(values))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--users", type=int, default=400)
    parser.add_argument("--only", help="some of the models, comma-separated")
    given = parser.parse_args()
    epochs = {}
    if given.quick:
        given.seeds, given.users, epochs = 1, 20, {"epochs": 1, "factors": 8}
    split = load_split("amazon-electronics-14core", given.quick)
    train = split.train
    # the name of the random stream decides which users are left out: another name gives other figures
    order = randomness.uniform(randomness.key(0, "strangers"), np.arange(train.n_users)).argsort()
    new = np.sort(order[: given.users]).astype(np.int32)
    others = train.select(~np.isin(train.user_of_entry, new))
    validation = split.validation.select(~np.isin(split.validation.user_of_entry, new))
    histories = train.matrix[new]
    relevant = split.test.recode(train.users, train.items)[0].matrix[new]
    print(machine())
    print(f"{given.users} users, {given.seeds} seeds, test NDCG@20")
    print(f"  {'':<16} {'trained on':>10} {'new':>10}")
    for name, (model_class, parameters) in MODELS.items():
        if given.only and name not in given.only.split(","):
            continue
        as_known, as_new = [], []
        for seed in range(given.seeds):
            model = model_class(seed=seed, **parameters, **epochs).fit(split, progress=False)
            as_known.append(mean_ndcg(model.scorer.top_k(new, 20).items, relevant))
            model = tl.clone(model).fit(others, validation=validation, progress=False)
            best = top_k_by_scores(
                lambda rows, model=model: model.scorer.score_histories(histories[rows]),
                np.arange(len(new), dtype=np.int32),
                20,
                n_items=train.n_items,
                seen=histories,
                n_jobs=1,
            )
            as_new.append(mean_ndcg(best.items, relevant))
        print(f"  {name:<16} {np.mean(as_known):10.4f} {np.mean(as_new):10.4f}", flush=True)


if __name__ == "__main__":
    main()
