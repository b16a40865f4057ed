"""Strong generalization, as in the Mult-VAE paper (Liang et al., WWW 2018): models at defaults on whole held-out users.

    python benchmarks/strong_generalization.py [--seed 0] [--only EASE,IALS] [--quick]

MovieLens 1M, ratings of 4 and 5, users with five or more of them. A tenth of the users is held out for validation, and
a tenth for test; 80 % of the interactions of each, drawn at random, are the history. Validation decides nothing here.
"""

from __future__ import annotations

import polars as pl
from common import arguments, small_dataset
from ratings_world import movielens_ratings

import truelike as tl

MODELS = {
    "ItemPop": tl.ItemPop,
    "ItemKNN": tl.ItemKNN,
    "EASE": tl.EASE,
    "EDLAE": tl.EDLAE,
    "IALS": tl.IALS,
    "SoftmaxMF": tl.SoftmaxMF,
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="some of the models, comma-separated")
    given = parser.parse_args()
    data = small_dataset()
    if not given.quick:
        data = tl.read(movielens_ratings().to_frame().rename({"weight": "rating"}), min_rating=4)
    data = tl.k_core(data, user=5, item=1).dataset
    split = tl.splits.new_users(data, validation=0.1, test=0.1, history=0.8, seed=given.seed)
    print(f"{data}\n{split}\n{split.info}")
    results = []
    for name in given.only.split(",") if given.only else MODELS:
        model = MODELS[name]().fit(split.train, progress=False)
        results.append(tl.evaluate_new_users(model, split, ks=(20, 50, 100), metrics=["capped_recall", "ndcg"]))
        print(results[-1], flush=True)
    with pl.Config(tbl_rows=-1):
        print(pl.concat(result.intervals() for result in results))


if __name__ == "__main__":
    main()
