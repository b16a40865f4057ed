"""Comparisons on several datasets as a page, as HTML for notebooks, and as a plot of ranks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from truelike.data.html import table
from truelike.evaluation.ranks import RankTest
from truelike.evaluation.significance import LEVEL
from truelike.report import Page, cell, machine
from truelike.report.figures import COLOURS, as_text, new_figure
from truelike.selection import comparison_page
from truelike.selection.comparison import BEST
from truelike.selection.comparisons import Comparisons

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = "osD^vP*X<>dh"


def page(found: Comparisons) -> Page:
    """Create the page: the answer first, then the table, the ranks, and each dataset."""
    metric = found.plan.metric
    made = Page(f"{len(found.plan.models)} models on {len(found)} datasets", machine()).answer(found.sentence)
    made.heading("Results on the test parts").table(
        shown(found),
        f"{metric}: mean over users and seeds ± standard deviation over seeds, which a model with one run does not "
        f"have; {BEST} is the best on validation of that dataset. rank: the mean rank over datasets.",
    )
    if len(found.ranked) > 1:
        made.heading("Ranks over datasets").figure(rank_plot(found), _about_plot(found.rank_test))
        made.table(_rounded(found.rank_frame), about_ranks(found), digits=2)
    for name, each in found.items():
        made.heading(name).text(f"{each.verdict}. Train it with:").code(each.command)
        made.table(comparison_page.shown(each), comparison_page.caption())
        if len(each.ranked) < len(each.results):
            made.table(comparison_page.not_trained(each), "Models that could not be trained.")
        made.text(comparison_page.protocol(each))
    return made


def shown(found: Comparisons) -> pl.DataFrame:
    """The table with rounded figures as text, as people read it."""
    columns: dict[str, list[str]] = {"model": found.frame["model"].to_list()}
    for name, each in found.items():
        means, deviations = found.frame[f"{name} {found.plan.metric}"], found.frame[f"{name} std"]
        columns[name] = [
            ("" if mean is None else f"{mean:.4f}")
            + ("" if deviation is None else f" ± {deviation:.4f}")
            + (f" ({BEST})" if model == each.best else "")
            for model, mean, deviation in zip(columns["model"], means, deviations, strict=True)
        ]
    columns["rank"] = [cell(value, 2) for value in found.frame["rank"]]
    return pl.DataFrame(columns)


def _rounded(ranks: pl.DataFrame) -> pl.DataFrame:
    texts = [None if p is None else comparison_page.p_text(p) for p in ranks["p"]]
    return ranks.with_columns(pl.Series("p", texts, dtype=pl.String))


def about_ranks(found: Comparisons) -> str:
    """Explain the ranks and their test."""
    start = (
        "1 is the highest value on a dataset; equal values share the mean of their ranks. The reference is "
        f"{found.reference}, the best mean rank on validation. "
    )
    test = found.rank_test
    if test is None:
        return f"{start}The ranks are not tested: {found.why_no_test}."
    return (
        f"{start}p: by permutation of the ranks of each dataset, corrected for all pairs (Nemenyi's test, exact for "
        f"few datasets). Friedman's test of all: {test.statistic:.2f}, p = {comparison_page.p_text(test.p)}. The "
        f"smallest p-value that two of {test.ranks.shape[1]} models can have with {len(found)} datasets is "
        f"{test.smallest_p:.2g}."
    )


def _about_plot(test: RankTest | None) -> str:
    start = "Mean rank over datasets, and the rank on each; left is better."
    if test is None:
        return start
    if test.critical_difference is None:
        return f"{start} No difference of mean ranks is large enough for p < {LEVEL:g}."
    return (
        f"{start} Models whose mean is outside of the band differ from the best on validation with p < {LEVEL:g}: by "
        f"the critical difference, {test.critical_difference:.2f}, or more."
    )


def rank_plot(found: Comparisons) -> Figure:
    """The mean rank of each model, its rank on each dataset, and the critical difference."""
    names, ranks = found.ranked, found.ranks_on_test
    figure, [axes] = new_figure(width=8.6, height=1.5 + 0.42 * len(names))
    places = np.arange(len(names))
    means = ranks.mean(axis=0)
    at = names.index(found.reference)
    test = found.rank_test
    if test is not None and test.critical_difference is not None:
        width = test.critical_difference - 0.25 / len(found)  # sums of ranks are whole or halves
        axes.axvspan(
            means[at] - width, means[at] + width, color=COLOURS[0], alpha=0.10, linewidth=0,
            label=f"means with p ≥ {LEVEL:g}",
        )  # fmt: skip
    offsets = (np.arange(len(found)) + 0.5) / len(found) - 0.5  # centred on the row, within a quarter of it
    for n, (name, each) in enumerate(zip(found, ranks, strict=True)):
        axes.plot(
            each, places + offsets[n] / 4, MARKERS[n % len(MARKERS)], color=COLOURS[1 + n % (len(COLOURS) - 1)],
            fillstyle="none", markersize=5, label=as_text(name),
        )  # fmt: skip
    axes.plot(means, places, "|", color=COLOURS[0], markersize=18, markeredgewidth=3, zorder=1.9, label="mean")
    axes.set_yticks(
        places, [as_text(f"{name} (best on validation)" if n == at else name) for n, name in enumerate(names)]
    )
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0.5, len(names) + 0.5)
    axes.set_xticks(range(1, len(names) + 1))
    axes.set_xlabel(f"rank by {found.plan.metric} on the test part; 1 is best")
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure


def html(found: Comparisons) -> str:
    """The answer and the tables as HTML, without anything that must be installed."""
    frames = [shown(found)]
    if len(found.ranked) > 1:
        ranks = _rounded(found.rank_frame)
        frames.append(
            ranks.select(pl.col(pl.Float64).round(2).cast(pl.String), pl.col(pl.String)).select(ranks.columns)
        )
    tables = "".join(
        table(([each or "" for each in row] for row in frame.iter_rows()), frame.columns) for frame in frames
    )
    return f"<div><p><strong>{escape(found.sentence)}.</strong></p>{tables}</div>"
