"""Figures 2 to 9 of the paper, drawn from our runs: the same axes, with error bars over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truelike.core.files import replacing_file
from truelike.paper.experiments import SCALED, Results
from truelike.paper.protocol import COMPARED, KS, METRIC, TITLES, Setting
from truelike.report.figures import COLOURS, new_figure
from truelike.selection.trials import score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# colour, marker and line style: lines also differ in black and white
STYLES = {
    "ItemPop": (COLOURS[5], "x", ":"),
    "ItemKNN": ("#8a5a2b", "v", "-."),
    "BPR": (COLOURS[1], "s", "--"),
    "WBPR": (COLOURS[2], "^", "--"),
    "ShiftMC": (COLOURS[3], "D", "-."),
    "BPO": (COLOURS[4], "P", "--"),
    "NBPO": (COLOURS[0], "o", "-"),
    "NBPO, L = 0": ("#7aa5ec", "o", ":"),
    "NBPO-o": (COLOURS[2], "^", "--"),
    "NBPO-s": (COLOURS[1], "s", "-."),
}
CAPTIONS = {
    2: "Figure 2: F1 and NDCG of the tuned models on the test set (RQ1); mean and standard deviation over seeds.",
    3: "Figure 3: F1@2 of NBPO on validation by learning rate and regularization (the same for both pairs of "
    "tables). In italics: stopped early by successive halving.",
    4: "Figure 4: F1@2 on validation by the number of factors K, all else as each model was tuned.",
    5: "Figure 5: F1@2 on validation by the number of negatives ρ. λ ~ ρ: the regularization grows with ρ and the "
    "learning rate shrinks, as the summed gradient grows. λ fixed: both as tuned, for another ρ.",
    6: "Figure 6: BPO against NBPO, F1 on the test set (RQ2).",
    7: "Figure 7: F1@2 of NBPO on validation by the regularization of the preference tables (λΘ) and of the flip "
    "tables (λΦ). In italics: stopped early by successive halving.",
    8: "Figure 8: F1@2 of NBPO on validation by the number of flip factors L; dashed: BPR with the same seeds.",
    9: "Figure 9: NBPO-o, NBPO-s and NBPO-ss, F1 on the test set (RQ3).",
}


WIDTH = 3.6  # of a panel
QUICK = "(Quick run: fewer seeds and epochs, smaller grids.)"  # ends each caption of a quick run


def caption(text: str, all_results: Sequence[Results]) -> str:
    """Return a caption that says so where runs are of a quick plan."""
    quick = any(results.plan.quick for results in all_results)
    return " ".join(part for part in (text, QUICK if quick else "") if part)


def _line(axes: Axes, name: str, at: Sequence[Any], values: Sequence[Sequence[float]], label: str) -> None:
    """Draw the means over seeds as a line, with standard deviations if there are several."""
    colour, marker, dash = STYLES[name]
    middle = [float(np.mean(each)) for each in values]
    spread = [float(np.std(each, ddof=1)) if len(each) > 1 else 0.0 for each in values]
    axes.errorbar(
        at, middle, spread if any(spread) else None, label=label, color=colour, marker=marker, linestyle=dash,
        markersize=4.5, linewidth=1.4, capsize=2.5, elinewidth=0.9,
    )  # fmt: skip


def _test_panel(axes: Axes, results: Results, metric: str, names: Sequence[str], setting: Setting) -> None:
    for name in names:
        found = results.found(results.finals(setting, name))
        if found:
            values = [[record["test"][f"{metric}@{k}"] for record in found] for k in KS]
            label = "NBPO-ss" if name == "NBPO" and "NBPO-s" in names else name
            _line(axes, name, range(len(KS)), values, label)
    axes.set_xticks(range(len(KS)), [str(k) for k in KS])
    axes.set_xlabel("k")
    axes.set_ylabel({"f1": "F1@k", "ndcg": "NDCG@k"}[metric])


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Draw one legend for all panels above them."""
    handles, labels = axes[0].get_legend_handles_labels()
    columns = min(len(labels), 3 * len(axes))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False, fontsize=8)


def on_test(all_results: Sequence[Results], metrics: Sequence[str], names: Sequence[str]) -> Figure:
    """Draw metrics on the test part by list length, a panel for each dataset and metric."""
    figure, axes = new_figure(len(all_results) * len(metrics), WIDTH, 3.0)
    place = iter(axes)
    for results in all_results:
        for metric in metrics:
            one = next(place)
            _test_panel(one, results, metric, names, "tuned")
            one.set_title(TITLES[results.plan.data], fontsize=9)
    _legend(figure, axes)
    return figure


def by_parameter(
    all_results: Sequence[Results], labels: dict[str, str], *, reference: str | None = None
) -> Figure:
    """Draw F1@2 on validation along parameters with these labels, a panel for each dataset and parameter."""
    figure, axes = new_figure(len(all_results) * len(labels), WIDTH, 3.0)
    for one, (results, parameter) in zip(axes, product(all_results, labels), strict=True):
        points = curve_points(results, parameter)
        values: list[Any] = sorted({value for _, value in points})
        for name in COMPARED:
            at = [n for n, value in enumerate(values) if (name, value) in points]
            if at:
                _line(one, name, at, [points[name, values[n]] for n in at], name)
        if reference is not None:
            base = results.parameters("tuned", reference) or {}
            same = curve_points(results, "factors").get((reference, base.get("factors", 50)), [])
            if same:  # the value of the same seeds as those of the curve
                level = float(np.mean(same))
                one.axhline(level, color=STYLES[reference][0], linestyle="--", linewidth=1.2, label=reference)
        one.set_xticks(range(len(values)), [str(value) for value in values], fontsize=9 if len(values) < 8 else 7)
        one.set_xlabel(labels[parameter])
        one.set_ylabel("F1@2 (validation)")
        one.set_title(TITLES[results.plan.data], fontsize=9)
    _legend(figure, axes)
    return figure


def curve_points(results: Results, parameter: str) -> dict[tuple[str, Any], list[float]]:
    """Return F1@2 on validation by contender and value, one number per finished seed."""
    points: dict[tuple[str, Any], list[float]] = {}
    for seed in range(results.plan.curve_seeds):
        for name, value, trial in results.curve(parameter, seed):
            for record in results.found([trial]):
                points.setdefault((name, value), []).append(score(record, METRIC))
    return points


def grid_points(
    results: Results, name: str, stage: str, across: str, down: str, *, even: bool = False
) -> dict[tuple[float, float], Any]:
    """Return the records of a grid of the search by the values of its two parameters.

    For each point it is the record of the longest run; with `even`, of the longest run that all points have.
    """
    stages = [each for each in results.tuned.get(name, {}).get("stages", []) if each["stage"] == stage]
    which = "even" if even else "candidates"
    records = [results.records[key] for each in stages for key in each[which] if key in results.records]
    return {(r["settings"][across], r["settings"][down]): r for r in records}


def heat(all_results: Sequence[Results], stage: str, across: str, down: str, labels: tuple[str, str]) -> Figure:
    """Draw F1@2 on validation by two parameters. Cells in italics were stopped early by successive halving."""
    figure, axes = new_figure(len(all_results), 4.0, 3.3)
    for one, results in zip(axes, all_results, strict=True):
        one.set_title(TITLES[results.plan.data], fontsize=9)
        one.grid(False)
        points = grid_points(results, "NBPO", stage, across, down)
        if not points:
            one.text(0.5, 0.5, "not run yet", ha="center", transform=one.transAxes)
            continue
        columns, rows = sorted({x for x, _ in points}), sorted({y for _, y in points})
        values = np.full((len(rows), len(columns)), np.nan)
        longest = max(record["settings"]["epochs"] for record in points.values())
        for (x, y), record in points.items():
            values[rows.index(y), columns.index(x)] = score(record, METRIC) if "error" not in record else np.nan
        one.imshow(values, cmap="Blues", origin="lower", aspect="auto")
        middle = np.nanmean([np.nanmin(values), np.nanmax(values)])
        for (x, y), record in points.items():
            value = values[rows.index(y), columns.index(x)]
            early = record["settings"]["epochs"] < longest
            text = "diverged" if np.isnan(value) else f"{value:.4f}"
            one.text(
                columns.index(x), rows.index(y), text, ha="center", va="center", fontsize=7,
                color="white" if value > middle else "#1d2733", style="italic" if early else "normal",
            )  # fmt: skip
        one.set_xticks(range(len(columns)), [f"{x:g}" for x in columns])
        one.set_yticks(range(len(rows)), [f"{y:g}" for y in rows])
        one.set_xlabel(labels[0])
        one.set_ylabel(labels[1])
    return figure


FIGURES: dict[int, Callable[[Sequence[Results]], Figure]] = {
    2: lambda r: on_test(r, ("f1", "ndcg"), ("ItemPop", "ItemKNN", "BPR", "WBPR", "ShiftMC", "NBPO")),
    3: lambda r: heat(r, "fine", "learning_rate", "regularization", ("η", "λΘ = λΦ")),
    4: lambda r: by_parameter(r, {"factors": "K"}),
    5: lambda r: by_parameter(r, {SCALED: "ρ, λ ~ ρ", "n_negatives": "ρ, λ fixed"}),
    6: lambda r: on_test(r, ("f1",), ("BPO", "NBPO")),
    7: lambda r: heat(r, "priors", "flip_regularization", "regularization", ("λΦ", "λΘ")),
    8: lambda r: by_parameter(r, {"flip_factors": "L"}, reference="BPR"),
    9: lambda r: on_test(r, ("f1",), ("NBPO-o", "NBPO-s", "NBPO")),
}


def write(all_results: Sequence[Results], directory: Path) -> list[Path]:
    """Write each figure as SVG and as PNG."""
    from truelike.report import require_report_extra

    require_report_extra()
    written = []
    for number, draw in FIGURES.items():
        figure = draw(all_results)
        for kind in ("svg", "png"):
            path = directory / f"figure-{number}.{kind}"
            with replacing_file(path) as fresh:
                figure.savefig(fresh, format=kind, dpi=200, metadata={"Date": None} if kind == "svg" else None)
            written.append(path)
    return written
