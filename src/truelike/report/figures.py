"""Figures for reports: matplotlib without a screen, one look."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

COLOURS = ("#2f6fdb", "#e08a1e", "#3a9a5b", "#b8457a", "#6b5bb5", "#4a5568")


def new_figure(width: float = 7.5, height: float = 3.6) -> tuple[Any, Any]:
    """A figure and its axes, with quiet frames, drawn without touching a display."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dde2ea", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def grouped_bars(table: pl.DataFrame, label: str, measures: list[str]) -> Any:
    """Bars of several measures side by side for each row of a table."""
    figure, axes = new_figure()
    at = np.arange(len(table))
    width = 0.8 / len(measures)
    for n, measure in enumerate(measures):
        offset = (n - (len(measures) - 1) / 2) * width
        bars = axes.bar(at + offset, table[measure], width * 0.94, label=measure, color=COLOURS[n])
        axes.bar_label(bars, fmt="%.3f", fontsize=8, padding=2)
    axes.set_xticks(at, table[label].to_list())
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(measures))
    return figure
