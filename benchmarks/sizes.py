"""Which model for a dataset with few users: samples of the users of MovieLens 1M and of Amazon, models at defaults.

    python benchmarks/sizes.py [--quick]

Prints test NDCG@20 of each model for 30, 100, 300 and 1,000 users: how models depend on the size of the data.
"""

from __future__ import annotations

import warnings

import numpy as np
from common import arguments, small_dataset

import truelike as tl
from truelike.core import randomness

MODELS = ("ItemPop", "ItemKNN", "EASE", "EDLAE", "IALS", "SoftmaxMF", "ExactBPO")


def sample(data: tl.Dataset, n: int, seed: int) -> tl.Dataset:
    """The interactions of n users. Items without an interaction of theirs are left out."""
    order = np.argsort(randomness.bits(randomness.key(seed, "s"), np.arange(data.n_users)))
    chosen = data.select(np.isin(data.user_of_entry, order[:n]))
    return tl.read(chosen.to_frame().select("user_id", "item_id"))


def main() -> None:
    given = arguments(__doc__).parse_args()
    warnings.simplefilter("ignore")  # about items of the test part that the sample's training part does not have
    if given.quick:
        datasets = {"small dataset": small_dataset()}
    else:
        amazon = tl.datasets.load("amazon-electronics-14core")
        datasets = {
            "MovieLens 1M": tl.datasets.load("ml-1m"),
            "Amazon": amazon.train.merge(amazon.validation).merge(amazon.test),
        }
    print(f"| dataset | users | items | samples | {' | '.join(MODELS)} |")
    print("|---|" + "---|" * (3 + len(MODELS)))
    for name, data in datasets.items():
        for n in (30,) if given.quick else (30, 100, 300, 1000):
            rows, n_items = [], []
            for seed in range(3 if n < 1000 else 1):
                split = tl.splits.by_user(sample(data, n, seed), seed=0)
                n_items.append(split.train.n_items)
                row = []
                for each in MODELS:
                    model = getattr(tl, each)().fit(split, progress=False)
                    row.append(tl.evaluate(model, split.test, metrics=["ndcg"], ks=(20,))["ndcg@20"])
                rows.append(row)
            cells = " | ".join(f"{value:.4f}" for value in np.mean(rows, axis=0))
            print(f"| {name} | {n:,} | {np.mean(n_items):,.0f} | {len(rows)} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
