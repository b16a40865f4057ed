"""Figures of reports: one style, drawn by matplotlib without a display."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#2f6fdb", "#e08a1e", "#3a9a5b", "#b8457a", "#6b5bb5", "#4a5568")


def new_figure(panels: int = 1, width: float = 7.5, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """Return a new figure and the axes of its panels, which are side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * panels, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(color="#dde2ea", linewidth=0.8)
        one.set_axisbelow(True)
    return figure, axes


def as_text(name: str) -> str:
    r"""A name as matplotlib shows it as it is: text between two dollar signs would be a formula.

    >>> print(as_text("$5 and $10"), as_text("BPR"))
    \$5 and \$10 BPR
    """
    return name.replace("$", r"\$")


def grouped_bars(table: pl.DataFrame, label: str, measures: list[str]) -> Figure:
    """Draw bars of several measures side by side for each row of a table."""
    many = len(table) > 6
    figure, [axes] = new_figure(width=10.5, height=4.4) if many else new_figure()
    axes.grid(False, axis="x")
    at = np.arange(len(table))
    width = 0.8 / len(measures)
    for n, measure in enumerate(measures):
        offset = (n - (len(measures) - 1) / 2) * width
        bars = axes.bar(at + offset, table[measure], width * 0.94, label=measure, color=COLOURS[n])
        axes.bar_label(bars, fmt="%.3f", fontsize=6.5 if many else 8, padding=2)
    names = [as_text(name) for name in table[label]]
    if many:
        axes.set_xticks(at, names, rotation=30, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticks(at, names)
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(measures))
    return figure


def reliability_curves(panels: dict[str, dict[str, pl.DataFrame]], notes: dict[str, str] | None = None) -> Figure:
    """Draw the share of truly liked pairs by predicted probability, a panel for each group of models.

    The tables (predicted, liked) are given by the title of the panel and the name of the model. `notes` are added to
    the names of models in the legend.
    """
    figure, places = new_figure(len(panels), width=4.4, height=4.2)
    tables = [table for group in panels.values() for table in group.values()]
    top = 1.05 * max(0.1, *(float(table.select("predicted", "liked").to_numpy().max()) for table in tables))
    number = 0
    for axes, (title, group) in zip(places, panels.items(), strict=True):
        axes.plot([0, top], [0, top], color="#94a3b8", linewidth=1, linestyle="--", label="perfect calibration")
        for name, table in group.items():
            note = "" if not notes or name not in notes else f"\n{notes[name]}"
            axes.plot(
                table["predicted"], table["liked"], color=COLOURS[number % len(COLOURS)],
                marker="osD^vP"[number % 6], markersize=5, linewidth=1.5, label=as_text(name + note),
            )  # fmt: skip
            number += 1
        axes.set(title=title, xlim=(0, top), ylim=(0, top), xlabel="predicted probability of a hidden like")
        axes.set_ylabel("share of true likes")
        axes.legend(frameon=False, loc="upper left", fontsize=8.5)
    return figure
