"""All models tuned alike on the Amazon split or MovieLens 1M, 10 seeds on test: the tables of docs/comparison.md.

    python benchmarks/comparison.py amazon|movielens [--models SoftmaxMF,EASE] [--jobs 2]

Goes on from the runs in docs/comparison/runs, so that nothing that is finished is run again, and writes the table
(CSV and Markdown), a TOML file of each model's settings that `truelike train --config` runs, and the page.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import polars as pl

import truelike as tl

PLACE = Path("docs/comparison")
DATA = {"amazon": ("amazon-electronics-14core", 27), "movielens": ("ml-1m-split", 18)}


def markdown(table: pl.DataFrame) -> str:
    """What a reader wants of the table, a row a model."""
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--models", help="All where not given.")
    parser.add_argument("--jobs", type=int)
    given = parser.parse_args()
    name, candidates = DATA[given.data]
    found = tl.compare(
        tl.datasets.load(name),
        given.models.split(",") if given.models else None,
        n_trials=candidates,
        seeds=10,
        directory=PLACE / "runs" / given.data,
        jobs=given.jobs,
    )
    found.source = name
    found.write_config()
    found.table.write_csv(PLACE / f"{given.data}.csv")
    (PLACE / f"{given.data}.md").write_text(markdown(found.table), encoding="utf-8")
    (PLACE / "settings").mkdir(exist_ok=True)
    for contender in found.ranked:
        label = re.sub("[:=]", "-", contender.model)  # a name that is one on every system
        path = PLACE / "settings" / f"{given.data}-{label}.toml"
        path.write_text(found.config(contender.model), encoding="utf-8")
    found.write(PLACE / f"{given.data}.html")
    print(found.sentence)


if __name__ == "__main__":
    main()
