"""Networks and matrix factorization under the same objectives: BPR, BPO and NBPO.

    python benchmarks/networks.py amazon|movielens [--seeds 3] [--n-workers 2] [--only LightGCN,NeuMF] [--quick]

Each has the same number of candidates, chosen on validation. Writes the table (CSV; printed as Markdown) and a TOML
file of each model's settings to results/comparison/networks. The runs and the report are in its runs/, which Git
ignores. A finished run is not repeated. On MovieLens all have 64 factors, and networks at most 20 epochs.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import Any

from common import arguments, load_split, output_directory

import truelike as tl

# name, candidates, parameters fixed for all, and those fixed for networks
DATA: dict[str, tuple[str, int, dict[str, Any], str]] = {
    "amazon": ("amazon-electronics-14core", 6, {}, ""),
    "movielens": ("ml-1m-split", 4, {"factors": 64}, ":epochs=20"),
}
OBJECTIVES = ("BPR", "BPO", "NBPO")
NETWORKS = ("FM", "NeuMF", "ACF", "LightGCN", "DeepRecommender")
TITLES = {"DeepRecommender": "MF, network engine"}


def row_of(row: dict[str, object]) -> dict[str, object]:
    """A row of the table with the network and the objective in columns of their own."""
    name, _, rest = str(row["model"]).partition(":objective=")
    objective = rest.partition(":")[0]
    network = TITLES.get(name, name) if objective else "MF, sampled engine"
    return {"network": network, "objective": objective or name, **row}


def markdown(result: Any) -> str:
    lines = [
        "| network | objective | NDCG@20 | 95 % interval | to the best | p (Holm) | F1@5 | training (s) "
        "| an epoch (s) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    epochs = {each.model: seconds_per_epoch(each) for each in result.ranked}
    best = result.table["ndcg@20"][0]
    for row in map(row_of, result.table.iter_rows(named=True)):
        p = "" if row["p_holm"] is None else "< .001" if row["p_holm"] < 0.001 else f"{row['p_holm']:.3f}"
        lines.append(
            f"| {row['network']} | {row['objective']} | {row['ndcg@20']:.4f} | {row['ndcg@20 low']:.4f} to "
            f"{row['ndcg@20 high']:.4f} | {100 * (row['ndcg@20'] / best - 1):+.1f} % | {p} | "
            f"{row['f1@5']:.4f} | {row['seconds']:.0f} | {epochs[row['model']]:.2f} |"
        )
    return "\n".join(lines) + "\n"


def seconds_per_epoch(result: Any) -> float:
    """The mean seconds per epoch of a run, without its evaluation; the median over the seeds."""
    curves = [record["curve"]["seconds"] for record in result.records]
    return statistics.median(seconds[-1] / len(seconds) for seconds in curves)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--n-workers", type=int, default=-1)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--only", help="some of the networks, comma-separated; the table is only printed")
    given = parser.parse_args()
    os.nice(given.nice)
    name, n_trials, fixed, of_networks = DATA[given.data]
    if given.quick:
        n_trials, given.seeds, fixed, of_networks = 1, 1, {"factors": 8, "epochs": 2}, ""
    directory = output_directory(Path("results/comparison/networks"), given.quick)
    runs = directory / "runs" / given.data
    networks = given.only.split(",") if given.only else NETWORKS
    models = [f"{network}:objective={objective}{of_networks}" for network in networks for objective in OBJECTIVES]
    result = tl.compare(
        load_split(name, given.quick),
        [*models, *OBJECTIVES],
        n_trials=n_trials,
        seeds=given.seeds,
        directory=runs,
        n_workers=given.n_workers,
        **fixed,
    )
    print(markdown(result))
    if given.only:
        return
    result.source = name
    result.table.write_csv(directory / f"{given.data}.csv")
    (directory / "settings").mkdir(exist_ok=True)
    for each in result.ranked:
        label = each.model.removesuffix(of_networks).replace(":objective=", "-")
        path = directory / "settings" / f"{given.data}-{label}.toml"
        path.write_text(result.config(each.model), encoding="utf-8")
    result.write(runs / "report.html")
    print(result.sentence)


if __name__ == "__main__":
    main()
