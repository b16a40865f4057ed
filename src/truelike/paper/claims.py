"""The claims of the paper's Section 5, in our own words, and their verdicts. The claims are in `claims.csv`.

There are verdicts for two settings: "authors" (the settings of the release, or of the text where the release has
none) and "tuned" (all models tuned in the same way). Claims about the best parameters have the second only.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from truelike.paper.experiments import Results
from truelike.paper.protocol import SETTINGS
from truelike.paper.verdicts import RULES, Claim


def _claim(row: dict[str, str]) -> Claim:
    models, on, settings = (tuple(filter(None, row[name].split(";"))) for name in ("models", "on", "settings"))
    values = tuple(float(value) for value in row["values"].split(";") if value)
    chosen = tuple(setting for setting in SETTINGS if setting in settings)
    return Claim(row["where"], row["words"], row["paper"], chosen, row["rule"], models, row["data"], on, values)


with (Path(__file__).parent / "claims.csv").open(encoding="utf-8", newline="") as _table:
    CLAIMS = tuple(_claim(row) for row in csv.DictReader(_table))


def judge(all_results: Sequence[Results]) -> pl.DataFrame:
    """Return a row per claim and setting: where, claim, paper, settings, verdict, measured, p.

    If runs are of a quick plan, a first column `run` says so in each row.
    """
    rows = []
    for claim in CLAIMS:
        for setting in claim.settings:
            found = RULES[claim.rule](claim, all_results, setting)
            label = SETTINGS[setting]
            rows.append((claim.where, claim.words, claim.paper, label, found.verdict, found.measured, found.p))
    names = ["where", "claim", "paper", "settings", "verdict", "measured", "p"]
    table = pl.DataFrame(rows, schema=dict.fromkeys(names[:-1], pl.String) | {"p": pl.Float64}, orient="row")
    if any(results.plan.quick for results in all_results):
        return table.select(pl.lit("quick").alias("run"), pl.all())
    return table
