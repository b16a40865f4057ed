"""A comparison as a page, and its table as people read it."""

from __future__ import annotations

import polars as pl

from truelike.comparison import figures
from truelike.comparison.result import LEVEL, Comparison, Contender
from truelike.report import Page
from truelike.report.machine import machine
from truelike.tuning.search import RUNGS
from truelike.tuning.trials import Trial


def page(comparison: Comparison) -> Page:
    """The table, the plots, the settings, and at the end the sentence."""
    split, metric = comparison.split, comparison.metric
    made = Page(f"Which model for {split.train.name}", machine())
    made.text(in_words(comparison))
    made.heading("On the test part")
    made.table(shown(comparison), caption=caption())
    made.heading("Further measures").table(further(comparison))
    made.heading("Quality against time")
    made.figure(
        figures.quality_against_time(comparison),
        f"{metric} with its 95 % interval over users, by the seconds of training. Up and to the left is better.",
    )
    made.heading("By the length of the list")
    made.figure(figures.by_length(comparison), "Test part, mean over users and seeds.")
    made.heading("By the activity of the user")
    made.figure(figures.by_activity(comparison), "Users in four parts by their number of training votes.")
    made.heading("By the popularity of the item")
    made.figure(
        figures.by_popularity(comparison),
        "Of the test votes for popular and for rare items, the share that is in the lists of their users.",
    )
    curves = figures.learning_curves(comparison)
    if curves is not None:
        made.heading("How the models learn").figure(
            curves,
            f"{metric} on validation after each epoch of the tuned setting, first seed; the mark is the epoch "
            "that is kept. The seconds are of the epochs alone, without the looks at validation.",
        )
    made.heading("Tuned settings").table(tuned(comparison))
    made.heading("Which model to use").text(f"{comparison.verdict}; train {comparison.best} with:").code(
        comparison.command
    )
    return made


def in_words(comparison: Comparison) -> str:
    """What was done."""
    split = comparison.split
    rows = " / ".join(f"{part.n_interactions:,}" for part in split.parts)
    how = "split by user for this" if comparison.whole else "split as it was given"
    steps = " and ".join(f"1/{round(1 / rung)}" for rung in RUNGS if rung < 1)
    return (
        f"{split.train.n_users:,} users, {split.train.n_items:,} items; {rows} votes to train on, to choose by, "
        f"to test on, {how}. Each model had {comparison.budget} to find its parameters, by {comparison.metric} on "
        f"validation: candidates run for {steps} of the epochs, the best third goes on each time, the last to the "
        "end; a model without anything to search is run as it is. The test part was looked at once, by the final "
        f"runs of the settings found: {_seeds(comparison)}."
    )


def _seeds(comparison: Comparison) -> str:
    most = max(len(each.records) for each in comparison.ranked)
    return "one each" if most == 1 else f"{most} seeds each, one for models that have none"


def caption() -> str:
    """How to read the table."""
    return (
        "Means over users and seeds; in brackets 95 % bootstrap intervals over users. = marks the best, and all "
        f"that are not worse beyond chance (p ≥ {LEVEL:g}); p: paired t-test over users against the best, after "
        "Holm's correction. Seconds: of one fit on one thread, looks at validation included, the middle one of "
        "the seeds. MB: the peak memory of its process, with Python, libraries and the log in it. Coverage: the "
        "share of all items that anybody is recommended."
    )


def shown(comparison: Comparison) -> pl.DataFrame:
    """The table in words and rounded figures; further measures have one of their own."""
    ran = [each for each in comparison.contenders if each.records]
    failed = [each for each in comparison.contenders if not each.records]
    coverage = [sum(r["popularity"]["coverage"] for r in each.records) / len(each.records) for each in ran]
    columns: dict[str, list[str]] = {
        "model": [each.model for each in ran],
        "=": ["=" if each.model in comparison.as_good else "" for each in ran],
        comparison.metric: [_figure(comparison, each, 0) for each in ran],
        "p": [_p(comparison.p_values.get(each.model)) for each in ran],
        "seconds": [f"{each.seconds:.2f}" for each in ran],
        "MB": ["" if each.megabytes is None else f"{each.megabytes:,.0f}" for each in ran],
        f"coverage@{comparison.metric.partition('@')[2]}": [f"{value:.3f}" for value in coverage],
    }
    if failed:
        for name, cells in columns.items():
            cells += [each.model if name == "model" else "" for each in failed]
        columns["not run"] = [""] * len(ran) + [each.reason for each in failed]
    return pl.DataFrame(columns)


def further(comparison: Comparison) -> pl.DataFrame:
    """The other measures, with their intervals."""
    measures = comparison.measures[1:]
    columns = {m: [_figure(comparison, each, n) for each in comparison.ranked] for n, m in enumerate(measures, 1)}
    return pl.DataFrame({"model": [each.model for each in comparison.ranked], **columns})


def _figure(comparison: Comparison, contender: Contender, n: int) -> str:
    low, high = (bound[n] for bound in comparison.intervals[contender.model])
    return f"{contender.of(comparison.measures[n]).mean():.4f} ({low:.4f}–{high:.4f})"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value >= 0.001 else "< 0.001"


def tuned(comparison: Comparison) -> pl.DataFrame:
    """What the search found for each model."""
    rows = []
    for each in comparison.ranked:
        epoch = [record["best_epoch"] for record in each.records if record.get("best_epoch")]
        rows.append(
            {
                "model": each.model,
                f"{comparison.metric} on validation": each.score,
                "candidates": each.candidates,
                "search (s)": each.search_seconds,
                "best epochs": ", ".join(map(str, epoch)),
                "parameters that differ from the defaults": _differing(each),
            }
        )
    return pl.DataFrame(rows)


def _differing(contender: Contender) -> str:
    hidden = ("monitor", "seed")
    plain = Trial(contender.model).make().get_params()
    own = {name: value for name, value in contender.parameters.items() if plain.get(name) != value}
    return ", ".join(f"{name}={value}" for name, value in own.items() if name not in hidden) or "none"
