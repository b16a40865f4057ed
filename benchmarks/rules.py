"""What rules cost: seconds of processor time for a list of 20, by one thread, for each rule alone.

python benchmarks/rules.py
"""

from __future__ import annotations

import time
from typing import Any

import polars as pl

import truelike as tl

N_USERS, N_ITEMS, ASKED, ROUNDS = 20_000, 20_000, 1_000, 5
RULES: dict[str, dict[str, Any]] = {
    "filter": {"filter": "shelf < 6"},
    "pins": {"pins": {1: 1}},
    "boosts": {"boosts": [{"filter": "shelf = 1", "add": 0.5}]},
    "at_most": {"at_most": {"brand": 2}},
    "min_new": {"min_new": 0.2, "new": "shelf = 0"},
    "diversity": {"diversity": 0.2},
}


def main() -> None:
    """Time lists without rules and with each, one after the other, several times."""
    data = tl.synthetic.World(n_users=N_USERS, n_items=N_ITEMS, seed=3).dataset()
    model = tl.IALS(factors=64, epochs=1, seed=0).fit(data, progress=False)
    users, items = data.users[:ASKED], list(data.items)
    numbers = range(len(items))
    table = pl.DataFrame({"item": items, "brand": [n % 500 for n in numbers], "shelf": [n % 7 for n in numbers]})
    rules = {"none": None, **{name: tl.Rules(**each, items=table) for name, each in RULES.items()}}
    best = dict.fromkeys(rules, float("inf"))
    for _ in range(ROUNDS):
        for name, each in rules.items():
            started = time.process_time()
            model.recommend(users, 20, rules=each, n_jobs=1)
            best[name] = min(best[name], time.process_time() - started)
    for name, seconds in best.items():
        print(f"{name:10} {1_000 * seconds / ASKED:.3f} ms")


if __name__ == "__main__":
    main()
