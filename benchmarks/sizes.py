"""Which model for a log of few users: samples of the users of MovieLens 1M and of Amazon, models as they are.

    python benchmarks/sizes.py

Prints test NDCG@20 of each model for 30, 100, 300 and 1,000 users: the evidence for `tl.recommender`'s choice.
"""

from __future__ import annotations

import warnings

import numpy as np

import truelike as tl
from truelike import randomness

MODELS = ("ItemPop", "ItemKNN", "EASE", "EDLAE", "IALS", "SoftmaxMF", "ExactBPO")


def sample(log: tl.Dataset, n: int, seed: int) -> tl.Dataset:
    """The log of n users; items that nobody of them voted for are gone."""
    order = np.argsort(randomness.bits(randomness.key(seed, "s"), np.arange(log.n_users)))
    mine = log.select(np.isin(log.user_of_entry, order[:n]))
    return tl.read(mine.to_frame().select("user_id", "item_id"))


def main() -> None:
    warnings.simplefilter("ignore")  # items of the test part that the sample's training part lacks
    amazon = tl.datasets.load("amazon-electronics-14core")
    logs = {
        "MovieLens 1M": tl.datasets.load("ml-1m"),
        "Amazon": amazon.train.merge(amazon.validation).merge(amazon.test),
    }
    print(f"| log | users | items | samples | {' | '.join(MODELS)} |")
    print("|---|" + "---|" * (3 + len(MODELS)))
    for name, log in logs.items():
        for n in (30, 100, 300, 1000):
            figures, items = [], []
            for seed in range(3 if n < 1000 else 1):
                split = tl.split.by_user(sample(log, n, seed), seed=0)
                items.append(split.train.n_items)
                row = []
                for kind in MODELS:
                    model = getattr(tl, kind)().fit(split.train, validation=split.validation)
                    row.append(tl.evaluate(model, split.test, metrics=["ndcg"], ks=(20,))["ndcg@20"])
                figures.append(row)
            cells = " | ".join(f"{value:.4f}" for value in np.mean(figures, axis=0))
            print(f"| {name} | {n:,} | {np.mean(items):,.0f} | {len(figures)} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
