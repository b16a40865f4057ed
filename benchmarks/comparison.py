"""All models, tuned alike, on the Amazon split or on MovieLens 1M, with 10 seeds on test.

    python benchmarks/comparison.py amazon|movielens [--models SoftmaxMF,EASE] [--n-workers 2] [--quick]
    python benchmarks/comparison.py amazon|movielens --networks   # and matrix factorization: BPR, BPO and NBPO, 3 seeds

Writes the table (CSV; printed as Markdown) and a TOML file of each model's settings to results/comparison, of networks
to results/comparison/networks; `truelike train --config` runs such a file. The runs and the report are in its runs/,
which Git ignores. A finished run is not repeated. Networks have fewer candidates; on MovieLens all have 64 factors
then, and networks at most 20 epochs. Validation items stay candidates on test, as in the protocol of the paper's
authors; with --seen validation they are left out. The CSV files in results/comparison are without it.
"""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

import polars as pl
from common import arguments, load_split, output_directory

import truelike as tl

DATA = {"amazon": ("amazon-electronics-14core", 27), "movielens": ("ml-1m-split", 18)}
# of networks: candidates, parameters fixed for all, and those fixed for networks
OF_NETWORKS: dict[str, tuple[int, dict[str, Any], str]] = {
    "amazon": (6, {}, ""),
    "movielens": (4, {"factors": 64}, ":epochs=20"),
}
OBJECTIVES = ("BPR", "BPO", "NBPO")
NETWORKS = ("FM", "NeuMF", "ACF", "LightGCN", "DeepRecommender")


def markdown(result: Any) -> str:
    """The main columns of the table, one row a model."""
    table: pl.DataFrame = result.table
    best = table.filter(pl.col("model") == result.best)["ndcg@20"][0]
    epochs = {each.model: seconds_per_epoch(each) for each in result.ranked}
    lines = [
        "| model | NDCG@20 | 95 % interval | to the best | p (Holm) | NDCG@5 | F1@5 | training (s) | an epoch (s) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in table.iter_rows(named=True):
        p = "" if row["p_holm"] is None else "< .001" if row["p_holm"] < 0.001 else f"{row['p_holm']:.3f}"
        lines.append(
            f"| {row['model']} | {row['ndcg@20']:.4f} | {row['ndcg@20 low']:.4f} to {row['ndcg@20 high']:.4f} | "
            f"{100 * (row['ndcg@20'] / best - 1):+.1f} % | {p} | {row['ndcg@5']:.4f} | {row['f1@5']:.4f} | "
            f"{row['seconds']:.1f} | {epochs[row['model']]} |"
        )
    return "\n".join(lines) + "\n"


def seconds_per_epoch(result: Any) -> str:
    """The mean seconds per epoch of a run, without its evaluation; the median over the seeds."""
    curves = [record["curve"]["seconds"] for record in result.records if "curve" in record]
    return f"{statistics.median(seconds[-1] / len(seconds) for seconds in curves):.2f}" if curves else ""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--models", help="comma-separated; all if not given")
    parser.add_argument("--networks", action="store_true")
    parser.add_argument("--n-workers", type=int, default=-1)
    parser.add_argument("--seen", choices=("train", "validation"), default="train", help="left out on test")
    given = parser.parse_args()
    name, n_trials = DATA[given.data]
    seeds, fixed, of_networks, place = 10, {}, "", Path("results/comparison")
    models = given.models.split(",") if given.models else None
    if given.networks:
        seeds, place = 3, place / "networks"
        n_trials, fixed, of_networks = OF_NETWORKS[given.data]
        models = [
            f"{net}:objective={objective}{of_networks}" for net in models or NETWORKS for objective in OBJECTIVES
        ]
        models += OBJECTIVES
    if given.quick:
        n_trials, seeds, fixed = 1, 1, {"factors": 8, "epochs": 2} if given.networks else {}
    directory = output_directory(place, given.quick)
    runs = directory / "runs" / given.data
    result = tl.compare(
        load_split(name, given.quick), models, seen=given.seen, n_trials=n_trials, seeds=seeds, directory=runs,
        n_workers=given.n_workers, **fixed,
    )  # fmt: skip
    result.source = name
    result.write_config()
    result.table.write_csv(directory / f"{given.data}.csv")
    print(markdown(result))
    (directory / "settings").mkdir(exist_ok=True)
    for each in result.ranked:
        label = each.model.removesuffix(of_networks).replace(":objective=", "-")
        label = re.sub("[:=]", "-", label)  # a valid file name on every system
        path = directory / "settings" / f"{given.data}-{label}.toml"
        path.write_text(result.config(each.model), encoding="utf-8")
    result.write(runs / "report.html")
    print(result.sentence)


if __name__ == "__main__":
    main()
