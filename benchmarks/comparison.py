"""All models, tuned alike, on the Amazon split or on MovieLens 1M, with 10 seeds on test.

    python benchmarks/comparison.py amazon|movielens [--models SoftmaxMF,EASE] [--n-workers 2] [--quick]

Writes the table (CSV; printed as Markdown) and a TOML file of each model's settings to results/comparison;
`truelike train --config` runs such a file. The runs and the report are in its runs/, which Git ignores. A finished
run is not repeated.
"""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
from common import arguments, load_split, output_directory

import truelike as tl

DATA = {"amazon": ("amazon-electronics-14core", 27), "movielens": ("ml-1m-split", 18)}


def markdown(table: pl.DataFrame) -> str:
    """The main columns of the table, one row a model."""
    best = table["ndcg@20"][0]
    lines = [
        "| model | NDCG@20 | 95 % interval | to the best | p (Holm) | NDCG@5 | F1@5 | training (s) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in table.iter_rows(named=True):
        p = "" if row["p_holm"] is None else "< .001" if row["p_holm"] < 0.001 else f"{row['p_holm']:.3f}"
        lines.append(
            f"| {row['model']} | {row['ndcg@20']:.4f} | {row['ndcg@20 low']:.4f} to {row['ndcg@20 high']:.4f} | "
            f"{100 * (row['ndcg@20'] / best - 1):+.1f} % | {p} | {row['ndcg@5']:.4f} | {row['f1@5']:.4f} | "
            f"{row['seconds']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--models", help="comma-separated; all if not given")
    parser.add_argument("--n-workers", type=int, default=-1)
    given = parser.parse_args()
    name, n_trials = DATA[given.data]
    directory = output_directory(Path("results/comparison"), given.quick)
    runs = directory / "runs" / given.data
    result = tl.compare(
        load_split(name, given.quick),
        given.models.split(",") if given.models else None,
        n_trials=1 if given.quick else n_trials,
        seeds=1 if given.quick else 10,
        directory=runs,
        n_workers=given.n_workers,
    )
    result.source = name
    result.write_config()
    result.table.write_csv(directory / f"{given.data}.csv")
    print(markdown(result.table))
    (directory / "settings").mkdir(exist_ok=True)
    for each in result.ranked:
        label = re.sub("[:=]", "-", each.model)  # a valid file name on every system
        path = directory / "settings" / f"{given.data}-{label}.toml"
        path.write_text(result.config(each.model), encoding="utf-8")
    result.write(runs / "report.html")
    print(result.sentence)


if __name__ == "__main__":
    main()
