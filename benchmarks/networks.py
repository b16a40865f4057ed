"""Networks under BPR, BPO and NBPO beside matrix factorization under the same: the tables of docs/deep.md.

    python benchmarks/networks.py amazon|movielens [--seeds 3] [--jobs 2] [--only LightGCN,NeuMF]

The same number of candidates for each, chosen on validation; goes on from docs/comparison/networks: nothing
that is finished is run again. On MovieLens all have 64 factors, and networks at most 20 epochs.
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path
from typing import Any

import truelike as tl

PLACE = Path("docs/comparison/networks")
# name, candidates, what is fixed for all, and what for networks beside
DATA: dict[str, tuple[str, int, dict[str, Any], str]] = {
    "amazon": ("amazon-electronics-14core", 6, {}, ""),
    "movielens": ("ml-1m-split", 4, {"factors": 64}, ":epochs=20"),
}
OBJECTIVES = ("BPR", "BPO", "NBPO")
NETWORKS = ("FM", "NeuMF", "ACF", "LightGCN", "DeepRecommender")
TITLES = {"DeepRecommender": "MF, by Adam"}


def row_of(row: dict[str, object]) -> dict[str, object]:
    """A row for people: which network, which objective."""
    name, _, how = str(row["model"]).partition(":objective=")
    objective = how.partition(":")[0]
    network = TITLES.get(name, name) if objective else "MF, compiled engine"
    return {"network": network, "objective": objective or name, **row}


def markdown(found: Any) -> str:
    lines = [
        "| network | objective | NDCG@20 | 95 % interval | to the best | p (Holm) | F1@5 | training (s) "
        "| an epoch (s) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    epochs = {each.model: seconds_of_an_epoch(each) for each in found.ranked}
    best = found.table["ndcg@20"][0]
    for row in map(row_of, found.table.iter_rows(named=True)):
        p = "" if row["p_holm"] is None else "< .001" if row["p_holm"] < 0.001 else f"{row['p_holm']:.3f}"
        lines.append(
            f"| {row['network']} | {row['objective']} | {row['ndcg@20']:.4f} | {row['ndcg@20 low']:.4f} to "
            f"{row['ndcg@20 high']:.4f} | {100 * (row['ndcg@20'] / best - 1):+.1f} % | {p} | "
            f"{row['f1@5']:.4f} | {row['seconds']:.0f} | {epochs[row['model']]:.2f} |"
        )
    return "\n".join(lines) + "\n"


def seconds_of_an_epoch(contender: Any) -> float:
    """The mean of a run, without its evaluation; the middle one of the seeds."""
    curves = [record["curve"]["seconds"] for record in contender.records]
    return statistics.median(seconds[-1] / len(seconds) for seconds in curves)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--only", help="Some of the networks.")
    given = parser.parse_args()
    os.nice(given.nice)
    name, candidates, fixed, of_networks = DATA[given.data]
    networks = given.only.split(",") if given.only else NETWORKS
    models = [f"{network}:objective={objective}{of_networks}" for network in networks for objective in OBJECTIVES]
    found = tl.compare(
        tl.datasets.load(name),
        [*models, *OBJECTIVES],
        n_trials=candidates,
        seeds=given.seeds,
        directory=PLACE / "runs" / given.data,
        jobs=given.jobs,
        **fixed,
    )
    if given.only:
        print(markdown(found))
        return
    found.source = name
    found.table.write_csv(PLACE / f"{given.data}.csv")
    (PLACE / f"{given.data}.md").write_text(markdown(found), encoding="utf-8")
    (PLACE / "settings").mkdir(exist_ok=True)
    for contender in found.ranked:
        label = contender.model.removesuffix(of_networks).replace(":objective=", "-")
        path = PLACE / "settings" / f"{given.data}-{label}.toml"
        path.write_text(found.config(contender.model), encoding="utf-8")
    found.write(PLACE / f"{given.data}.html")
    print(found.sentence)


if __name__ == "__main__":
    main()
