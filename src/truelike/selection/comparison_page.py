"""A comparison as a page, as HTML for notebooks, and as the table that people read."""

from __future__ import annotations

from html import escape

import polars as pl

from truelike.data.html import table
from truelike.evaluation.significance import LEVEL
from truelike.report import Page, cell, machine
from truelike.selection import comparison_figures as figures
from truelike.selection import references
from truelike.selection.comparison import Comparison, ModelResult
from truelike.selection.search import RUNGS
from truelike.selection.variants import NOT_FIXED


def page(comparison: Comparison) -> Page:
    """Create the page: the answer first, then the table, the plots and the settings."""
    metric = comparison.metric
    made = Page(f"Which model for {comparison.split.train.name}", machine())
    made.answer(f"{comparison.verdict}. Train it with:").code(comparison.command)
    made.heading("Results on the test part")
    made.table(shown(comparison), caption=caption())
    if len(comparison.ranked) < len(comparison.results):
        made.heading("Models that could not be trained").table(not_trained(comparison))
    made.heading("Quality against time")
    made.figure(
        figures.quality_against_time(comparison),
        f"{metric} with its 95 % interval over users against the seconds of training. Up and left is better.",
    )
    made.heading("By list length")
    made.figure(figures.by_length(comparison), "Test part, mean over users and seeds.")
    made.heading("By user activity")
    made.figure(figures.by_activity(comparison), "Quarters of the users by their number of training interactions.")
    made.heading("By item popularity")
    made.figure(
        figures.by_popularity(comparison),
        "The share of the test interactions with popular and with rare items that is in the lists of their users.",
    )
    curves = figures.learning_curves(comparison)
    if curves is not None:
        made.heading("Learning curves").figure(
            curves,
            f"{metric} on validation after each epoch of the tuned setting, first seed. The mark is the epoch "
            "that is kept. The seconds do not include evaluation.",
        )
    made.heading("Other measures").table(further(comparison))
    made.heading("Tuned settings").table(tuned(comparison))
    made.heading("How the models were compared").text(protocol(comparison))
    return made


def protocol(comparison: Comparison) -> str:
    """Describe the data, the search and the final runs."""
    split = comparison.split
    train, validation, test = (f"{part.n_interactions:,}" for part in split.parts)
    steps = " and ".join(f"1/{round(1 / rung)}" for rung in RUNGS if rung < 1)
    return (
        f"The dataset has {split.train.n_users:,} users and {split.train.n_items:,} items, with {train} "
        f"interactions in the training part, {validation} in validation and {test} in test. "
        f"{split_used(comparison)} The budget of each model was {comparison.plan.n_trials} candidates, compared by "
        f"{comparison.metric} on validation: candidates run for {steps} of the epochs, and the best third goes on "
        "each time. The first candidate is the defaults, which run for all epochs; a model with nothing to search "
        "has no other. The test part was used once, for the final runs of the settings that were found: "
        f"{_seeds(comparison)}."
    )


def split_used(comparison: Comparison) -> str:
    """How the data was split, and what was left out, in a sentence or two."""
    info = comparison.split.info
    if not comparison.from_dataset:
        how = "The split was given."
    elif info["by"] == "time":
        how = (
            "The last tenth of each user's interactions is the test part, the tenth before it the validation part."
        )
    else:
        how = (
            "A tenth of each user's interactions, drawn at random, is the test part, another the validation part."
        )
    parts = comparison.ranked[0].records[0]["left_out"]
    how += f" Lists on the test part are without the {' and '.join(parts)} items of a user."
    dropped = info.get("dropped", {})
    if not any(dropped.values()):
        return how
    return (
        f"{how} {dropped['users']:,} users and {dropped['items']:,} items have no interaction in the training part, so "
        f"{dropped['validation_rows']:,} validation and {dropped['test_rows']:,} test interactions with them were "
        "left out."
    )


def _seeds(comparison: Comparison) -> str:
    most = max(len(each.records) for each in comparison.ranked)
    return "one for each model" if most == 1 else f"{most} seeds for each model, one for a model without a seed"


def caption() -> str:
    """Explain the table."""
    return (
        "Means over users and seeds; in brackets 95 % intervals over users. The standard deviation "
        "over seeds is of these means; empty for a model with one run. The best model is the best on "
        "validation, which is known before the test part is used; the others are tested against it on the test part. "
        f"p: paired t-test over users, after Holm's correction; above and below: p < {LEVEL:g}. Seconds: one fit on "
        "one thread, evaluation on validation included, median over seeds. MB: peak memory of the process, including "
        "Python, libraries and the dataset; empty for a model that was not run in a process of its own. Coverage: "
        "the share of all items that is recommended to at least one user."
    )


def shown(comparison: Comparison) -> pl.DataFrame:
    """The table of the models that were trained, with rounded figures as text."""
    ran = comparison.ranked
    coverage = [sum(r["popularity"]["coverage"] for r in each.records) / len(each.records) for each in ran]
    columns = {
        "model": [each.model for each in ran],
        comparison.metric: [_figure(comparison, each, 0) for each in ran],
        "std over seeds": [cell(each.deviation(comparison.metric)) for each in ran],
        "validation": [f"{each.score:.4f}" for each in ran],
        "against the best": [comparison.against_best[each.model] for each in ran],
        "p": [p_text(comparison.p_values.get(each.model)) for each in ran],
        "seconds": [f"{each.seconds:.2f}" for each in ran],
        "MB": ["" if each.megabytes is None else f"{each.megabytes:,.0f}" for each in ran],
        f"coverage@{comparison.metric.partition('@')[2]}": [f"{value:.3f}" for value in coverage],
    }
    return pl.DataFrame(columns)


def not_trained(comparison: Comparison) -> pl.DataFrame:
    """The models that could not be trained, and why."""
    failed = [each for each in comparison.results if each.values is None]
    return pl.DataFrame({"model": [each.model for each in failed], "reason": [each.reason for each in failed]})


def further(comparison: Comparison) -> pl.DataFrame:
    """The other measures, with their intervals."""
    measures = comparison.measures[1:]
    columns = {m: [_figure(comparison, each, n) for each in comparison.ranked] for n, m in enumerate(measures, 1)}
    return pl.DataFrame({"model": [each.model for each in comparison.ranked], **columns})


def _figure(comparison: Comparison, result: ModelResult, n: int) -> str:
    low, high = (bound[n] for bound in comparison.intervals[result.model])
    return f"{result.of(comparison.measures[n]).mean():.4f} ({low:.4f}–{high:.4f})"


def p_text(value: float | None) -> str:
    """A p-value as people read it; empty for None."""
    return "" if value is None else f"{value:.3f}" if value >= 0.001 else "< 0.001"


def tuned(comparison: Comparison) -> pl.DataFrame:
    """The tuned settings of each model."""
    rows = []
    for each in comparison.ranked:
        epochs = [record["best_epoch"] for record in each.records if record.get("best_epoch")]
        rows.append(
            {
                "model": each.model,
                f"{comparison.metric} on validation": each.score,
                "candidates": each.candidates,
                "search (s)": each.search_seconds,
                "best epochs": ", ".join(map(str, epochs)),
                "parameters that differ from the defaults": _differing(each),
            }
        )
    return pl.DataFrame(rows)


def _differing(result: ModelResult) -> str:
    defaults = result.variant.make({}).get_params()
    changed = {name: value for name, value in result.parameters.items() if defaults.get(name) != value}
    shown = (f"{name}={references.plain(value)}" for name, value in changed.items() if name not in NOT_FIXED)
    return ", ".join(shown) or "none"


def html(comparison: Comparison) -> str:
    """The answer and the table as HTML, without anything that must be installed."""
    frames = [frame for frame in (shown(comparison), not_trained(comparison)) if len(frame)]
    return (
        f"<div><p><strong>{escape(comparison.verdict)}.</strong> Train it with: "
        f"<code>{escape(comparison.command)}</code></p>"
        f"{''.join(table(frame.iter_rows(), frame.columns) for frame in frames)}</div>"
    )
