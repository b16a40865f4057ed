"""Tables of the runs, and TOML files of the tuned settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from truelike.core.files import replacing_file
from truelike.paper.experiments import MEASURES, VALUES, Results
from truelike.paper.figures import curve_points
from truelike.paper.protocol import BY_NAME, CONTENDERS, KS, METRIC, SEARCHES, SETTINGS, SOURCES, TITLES, UNTRAINED
from truelike.selection.trials import Record, Trial, settings, toml


def on_test(all_results: Sequence[Results]) -> pl.DataFrame:
    """Return a row per dataset, setting and model: seeds, mean and standard deviation of each test measure.

    A model that is not above ItemPop is marked "did not train".
    """
    rows = []
    for results in all_results:
        for setting, label in SETTINGS.items():
            for contender in CONTENDERS:
                found = results.found(results.finals(setting, contender.name))
                if found:
                    note = "" if results.trained(setting, contender.name) else UNTRAINED
                    about = (TITLES[results.plan.data], label, contender.name, len(found), note)
                    rows.append((*about, *_figures(found)))
    names = [name for measure in MEASURES for name in (measure, f"{measure} std")]
    kinds = {"data": pl.String, "settings": pl.String, "model": pl.String, "seeds": pl.Int64, "note": pl.String}
    return pl.DataFrame(rows, schema={**kinds, **dict.fromkeys(names, pl.Float64)}, orient="row")


def with_spread(on_test: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Return one metric of the table `on_test`, a column per list length, as "mean ± standard deviation"."""
    rows = on_test.select("data", "settings", "model", "seeds", "note")
    columns = [
        pl.Series(
            f"{metric}@{k}",
            [
                f"{mean:.4f}" + ("" if deviation is None else f" ± {deviation:.4f}")
                for mean, deviation in on_test.select(f"{metric}@{k}", f"{metric}@{k} std").iter_rows()
            ],
            dtype=pl.String,
        )
        for k in KS
    ]
    return rows.with_columns(columns)


def _figures(found: list[Record]) -> Iterator[float | None]:
    for measure in MEASURES:
        values = [record["test"][measure] for record in found]
        yield float(np.mean(values))
        yield float(np.std(values, ddof=1)) if len(values) > 1 else None


def curves(all_results: Sequence[Results]) -> pl.DataFrame:
    """Return a row per point of Figures 4, 5 and 8."""
    rows = []
    for results in all_results:
        for parameter in VALUES:
            for (name, value), seeds in curve_points(results, parameter).items():
                spread = float(np.std(seeds, ddof=1)) if len(seeds) > 1 else None
                rows.append(
                    (TITLES[results.plan.data], parameter, name, value, len(seeds), float(np.mean(seeds)), spread)
                )
    names = ["data", "parameter", "model", "value", "seeds", f"{METRIC} (validation)", "std"]
    kinds = [pl.String, pl.String, pl.String, pl.Int64, pl.Int64, pl.Float64, pl.Float64]
    return pl.DataFrame(rows, schema=dict(zip(names, kinds, strict=True)), orient="row")


def tuned(all_results: Sequence[Results]) -> pl.DataFrame:
    """Return the tuned parameters of each model and the metric they are tuned by, without empty columns."""
    shown = ("learning_rate", "regularization", "flip_regularization", "batch_size", "n_negatives", "factors")
    more = ("flip_factors", "flip_rate", "neighbors")
    rows = []
    for results, (setting, metric) in product(all_results, SEARCHES.items()):
        for name, found in results.searched.get(setting, {}).items():
            contender = BY_NAME[name]
            if contender.like is None and contender.model != "ItemPop":
                given = found["parameters"]
                values = [None if given.get(each) is None else f"{given[each]:g}" for each in (*shown, *more)]
                rows.append((TITLES[results.plan.data], name, metric, found[metric], *values))
    names = ["data", "model", "by", "validation", *shown, *more]
    kinds = {name: pl.Float64 if name == "validation" else pl.String for name in names}
    table = pl.DataFrame(rows, schema=kinds, orient="row")
    used = [name for name in (*shown, *more) if table[name].null_count() < len(table)]
    return table.select(*names[:4], *used)


def timings(all_results: Sequence[Results]) -> pl.DataFrame:
    """Return the number of runs and the hours of computation by dataset and model."""
    rows = [
        (TITLES[results.plan.data], _model_name(record), record["seconds"])
        for results in all_results
        for record in results.records.values()
    ]
    frame = pl.DataFrame(rows, schema={"data": pl.String, "model": pl.String, "s": pl.Float64}, orient="row")
    return (
        frame.group_by("data", "model", maintain_order=True)
        .agg(
            pl.len().alias("runs"),
            (pl.col("s").sum() / 3600).alias("hours"),
            pl.col("s").median().alias("median (s)"),
        )
        .sort("data", "model")
    )


def _model_name(record: Record) -> str:
    """Return the name of the preset, or of the objective of a model without a preset."""
    name = record["model"]
    return str(record["parameters"].get("objective", name) if name == "SampledMF" else name)


def write_settings(all_results: Sequence[Results], directory: Path) -> list[Path]:
    """Write a TOML file for each tuned model, for `truelike train --config`."""
    written = []
    for results in all_results:
        for contender in CONTENDERS:
            parameters = results.parameters("tuned", contender.name)
            if parameters is None or results.plan.data not in SOURCES:
                continue
            name = contender.name.lower().replace(", ", "-").replace(" ", "")
            path = directory / f"{results.plan.data}-{name}.toml"
            with replacing_file(path) as fresh:
                fresh.write_text(_settings(results, contender.name, contender.model, parameters), "utf-8")
            written.append(path)
    return written


def _settings(results: Results, name: str, model: str, parameters: dict[str, Any]) -> str:
    found = results.found(results.finals("tuned", name))
    seed = {"seed": 0} if BY_NAME[name].learns else {}
    about = [
        f"{name}, tuned on the validation part of {TITLES[results.plan.data]} with the paper's grids.",
        *(["A quick run: fewer epochs and smaller grids than those of the paper."] if results.plan.quick else []),
        f"Run it with: truelike train --config FILE [--set seed=1]. Recorded {METRIC} on validation:",
        *(f"  seed {r['parameters'].get('seed', 0)}: {r['validation'][METRIC]!r}" for r in found),
        "The means over seeds on the test part are in tables/test.csv.",
    ]
    complete = settings(Trial(model, {**parameters, **seed}).make())
    return toml(SOURCES[results.plan.data], model, complete, about)
