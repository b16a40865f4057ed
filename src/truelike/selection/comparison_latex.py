"""Comparisons as LaTeX tables for papers."""

from __future__ import annotations

from truelike.evaluation.significance import LEVEL
from truelike.report.latex import bold, booktabs, escape, figure
from truelike.selection.comparison import ABOVE, BELOW, Comparison, ModelResult
from truelike.selection.comparisons import Comparisons

MARKS = {BELOW: r"$^\downarrow$", ABOVE: r"$^\uparrow$"}  # of a model against the best on validation
BEST = r"$^\ast$"


def latex(comparison: Comparison) -> str:
    """The table of one dataset: the metric with its deviation over seeds, and the other measures."""
    measures = comparison.measures
    tops = {each: max(result.of(each).mean() for result in comparison.ranked) for each in measures}
    rows = []
    for result in comparison.ranked:
        shown = [cell(comparison, result)]
        for measure in measures[1:]:
            value = result.of(measure).mean()
            shown.append(bold(figure(value, None)) if value == tops[measure] else figure(value, None))
        rows.append([escape(result.model), *shown])
    caption = f"Models on {escape(comparison.split.train.name)}, test part."
    return booktabs(["Model", *map(escape, measures)], rows, caption=caption, note=note([comparison]))


def latex_of_several(found: Comparisons) -> str:
    """The table of several datasets: the metric of each, and the mean rank."""
    rows = []
    for model in found.frame["model"]:
        row = [escape(model)]
        for each in found.values():
            result = next((result for result in each.ranked if result.model == model), None)
            row.append("--" if result is None else cell(each, result))
        rows.append([*row, _rank(found, model)])
    metric = escape(found.plan.metric)
    ranks = (
        f"Mean rank: over the {len(found)} datasets; {BEST}: best on validation."
        if found.rank_test is None
        else f"Mean rank: marks are by permutation of ranks over {len(found)} datasets, all pairs corrected."
    )
    return booktabs(
        ["Model", *map(escape, found), "Mean rank"],
        rows,
        caption=f"{metric} on the test part of {len(found)} datasets.",
        note=f"{note(list(found.values()))} {ranks}",
    )


def _rank(found: Comparisons, model: str) -> str:
    if model not in found.ranked:
        return "--"
    ranks = found.ranks_on_test.mean(axis=0)
    rank = ranks[found.ranked.index(model)]
    mark = BEST if model == found.reference else MARKS.get(found.against_best[model], "")
    return (bold(f"{rank:.2f}") if rank == ranks.min() else f"{rank:.2f}") + mark


def cell(comparison: Comparison, result: ModelResult) -> str:
    """The metric of a model on one dataset: bold if it is the highest, marked by how it compares with the best."""
    metric = comparison.metric
    value = result.of(metric).mean()
    shown = figure(value, result.deviation(metric))
    top = max(each.of(metric).mean() for each in comparison.ranked)
    mark = BEST if result.model == comparison.best else MARKS.get(comparison.against_best[result.model], "")
    return (bold(shown) if value == top else shown) + mark


def note(comparisons: list[Comparison]) -> str:
    """Explain the marks, in LaTeX."""
    most = max(len(result.records) for each in comparisons for result in each.ranked)
    seeds = rf" $\pm$: standard deviation over {most} seeds; none for a model without a seed." if most > 1 else ""
    return (
        f"Means over users{' and seeds' if most > 1 else ''}. Bold: the highest.{seeds} {BEST}: best on validation, "
        "which the others are tested against. "
        f"{MARKS[BELOW]} and {MARKS[ABOVE]}: below and above it with $p < {LEVEL:g}$, paired $t$-test over users, "
        "Holm's correction."
    )
