"""What is bought together: do baskets tell more than all that a user ever took?

    python benchmarks/baskets.py

A basket of Ciao is what a user rated on one day. The last tenth of the days with baskets of two items or more is the
test part. Of each test basket one item is given, drawn at random, and the others are to be found: NDCG@10 and
recall@10. `ItemKNN` is trained on the baskets before, or on the users before.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from logs import ciao

import truelike as tl


def parts(seed: int) -> tuple[pl.DataFrame, tl.NewUsers]:
    """The log before the test days, and a given item and the others of each test basket."""
    log = ciao().with_columns(pl.format("{}/{}", "user", "time").alias("basket"))
    log = log.with_columns(pl.len().over("basket").alias("size"))
    days = log.filter(pl.col("size") > 1)["time"]
    begins = days.unique().sort()[round(0.9 * days.n_unique())]
    before = log.filter(pl.col("time") < begins)
    known = log.filter((pl.col("time") >= begins) & pl.col("item").is_in(before["item"].unique().implode()))
    known = known.filter(pl.len().over("basket") > 1).unique(["basket", "item"]).sort("basket", "item")
    drawn = pl.Series("drawn", np.random.default_rng(seed).random(len(known)))
    first = pl.col("drawn") == pl.col("drawn").min().over("basket")
    known = known.with_columns(drawn)
    history, targets = (
        tl.read(known.filter(which).select(pl.col("basket").alias("user"), "item")) for which in (first, ~first)
    )
    items = history.items.union(targets.items)
    return before, tl.NewUsers(history.recode(history.users, items)[0], targets.recode(history.users, items)[0])


def main() -> None:
    """Print a row for each model."""
    for seed in range(3):
        before, test = parts(seed)
        baskets = tl.read(before, user="basket", item="item")
        users = tl.read(before, user="user", item="item")
        print(f"seed {seed}: {baskets}, {test.history.n_users:,} test baskets")
        for name, data, model in (
            ("ItemPop", baskets, tl.ItemPop()),
            ("users", users, tl.ItemKNN()),
            ("users, no shrinkage", users, tl.ItemKNN(shrinkage=0)),
            *((f"baskets, min_support={n}", baskets, tl.ItemKNN(min_support=n)) for n in (1, 2, 3)),
            *((f"baskets, no shrinkage, {n}", baskets, tl.ItemKNN(shrinkage=0, min_support=n)) for n in (1, 2, 3)),
        ):
            found = tl.evaluate_new_users(model.fit(data, progress=False), test, ks=10, metrics=["ndcg", "recall"])
            print(f"{name:30} {found['ndcg@10']:.4f} {found['recall@10']:.4f}", flush=True)


if __name__ == "__main__":
    main()
