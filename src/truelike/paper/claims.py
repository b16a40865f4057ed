"""The claims of the paper's Section 5, in our own words, and their verdicts. The claims are in `claims.csv`.

There are verdicts for the settings of the release, for the best settings that the text names, and for settings tuned in
the same way for all models. Claims about the best parameters have the last only.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

import polars as pl

from truelike.paper.experiments import Results
from truelike.paper.protocol import SETTINGS
from truelike.paper.verdicts import Claim, decide


def _claim(row: dict[str, str]) -> Claim:
    models, on, settings = (tuple(filter(None, row[name].split(";"))) for name in ("models", "on", "settings"))
    values = tuple(float(value) for value in row["values"].split(";") if value)
    chosen = tuple(setting for setting in SETTINGS if setting in settings)
    return Claim(row["where"], row["words"], row["paper"], chosen, row["rule"], models, row["data"], on, values)


with (Path(__file__).parent / "claims.csv").open(encoding="utf-8", newline="") as _table:
    CLAIMS = tuple(_claim(row) for row in csv.DictReader(_table))


def judge(all_results: Sequence[Results]) -> pl.DataFrame:
    """Return a row per claim and setting: where, claim, paper, settings, verdict, measured, p, runs.

    If runs are of a quick plan, a first column `run` says so in each row.
    """
    rows = []
    for claim in CLAIMS:
        for setting in claim.settings:
            found = decide(claim, all_results, setting)
            rows.append((claim.where, claim.words, claim.paper, SETTINGS[setting], *astuple(found)))
    names = ["where", "claim", "paper", "settings", "verdict", "measured", "p", "runs"]
    table = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String) | {"p": pl.Float64}, orient="row")
    if any(results.plan.quick for results in all_results):
        return table.select(pl.lit("quick").alias("run"), pl.all())
    return table
