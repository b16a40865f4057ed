"""Does IALS rank better if recent interactions count more?

    python benchmarks/recency.py [--logs ml-100k,ciao-likes] [--split user] [--seeds 3] [--threads 2]

Each user's last tenth of interactions is the test part, the tenth before it the validation part. With --split global
it is the last tenth of all interactions: then nothing is trained on that is later, but few users can be tested.

A setting is trained on the training part, and its best epoch on validation is found. Then it is trained on the training
and the validation part for as many epochs, and evaluated on the test part. So validation and test both follow the
training data directly. Printed are NDCG@20 on both, as means over seeds, and the standard deviation of the test figure.
The model is trained on the validation items, so they are left out of its lists on test.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from logs import ciao, five_core

import truelike as tl
from truelike.datasets import cache_directory

SETTINGS: list[dict[str, Any]] = [
    {},
    *({"recency": "user", "half_life": half_life} for half_life in (2.0, 1.0, 0.5, 0.2, 0.1, 0.05)),
    {"weighting": "log"},
    *({"recency": "global", "half_life": half_life} for half_life in (2.0, 1.0, 0.5, 0.2)),
]


def movielens_100k() -> tl.Dataset:
    columns = {"has_header": False, "new_columns": ["user", "item", "rating", "time"], "separator": "\t"}
    return five_core(tl.read(pl.read_csv(cache_directory() / "ml-100k.tsv", **columns)))


LOGS: dict[str, Callable[[], tl.Dataset]] = {
    "ml-100k": movielens_100k,
    "ciao-likes": lambda: tl.read(ciao().filter(pl.col("rating") >= 4)),
    "ciao-5core": lambda: five_core(tl.read(ciao())),
    "ml-1m": lambda: tl.datasets.load("ml-1m", progress=False),
}
SPLITS: dict[str, Callable[[tl.Dataset], tl.Split]] = {
    "user": partial(tl.splits.by_user, by="time", seed=0),
    "global": tl.splits.temporal,
}


def measure(split: tl.Split, setting: dict[str, Any], seed: int, n_jobs: int) -> tuple[float, float]:
    """NDCG@20 on validation, and on test after training on the training and the validation part."""
    model = tl.IALS(**setting, seed=seed, n_jobs=n_jobs).fit(split, progress=False)
    found = model.history_["ndcg@20"]
    model = tl.clone(model, epochs=int(found.arg_max()) + 1)
    model.fit(split.train.merge(split.validation), progress=False)
    return float(found.max()), tl.evaluate(model, split.test, seen="train", metrics=["ndcg"], n_jobs=n_jobs)[
        "ndcg@20"
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", default=",".join(LOGS))
    parser.add_argument("--split", choices=SPLITS, default="user")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    print(f"{'log':12}{'recency':12}{'half-life':>10}{'validation':>12}{'test':>8}{'sd':>8}", flush=True)
    for name in asked.logs.split(","):
        split = SPLITS[asked.split](LOGS[name]())
        print(f"# {np.count_nonzero(split.test.interactions_per_user())} users are tested")
        for setting in SETTINGS:
            each = np.array([measure(split, setting, seed, asked.threads) for seed in range(asked.seeds)])
            (validation, test), sd = each.mean(axis=0), each[:, 1].std()
            what = setting.get("recency", f"weight {setting['weighting']}" if "weighting" in setting else "none")
            print(
                f"{name:12}{what:12}{setting.get('half_life', '')!s:>10}{validation:12.4f}{test:8.4f}{sd:8.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
