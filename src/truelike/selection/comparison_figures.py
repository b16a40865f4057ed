"""The plots of a comparison: quality against time, by list length, user and item, and the learning curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from truelike.evaluation.breakdown import THIRDS, activity_quarters
from truelike.report.figures import COLOURS, as_text, new_figure
from truelike.selection.comparison import Comparison, ModelResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

MORE_COLOURS = ("#8a5a2b", "#1a9aa8", "#c0392b", "#7f8c2a", "#d16ba5", "#94a3b8")
WIDTH = 9.8
MARKERS = "osD^vPXd*<>h"
DASHES = ("-", "--", "-.", ":")
# possible offsets of a label from its point, in points, with its alignment
SPOTS = [
    (7, 0, "left", "center"), (-7, 0, "right", "center"), (0, 8, "center", "bottom"), (0, -8, "center", "top"),
    (6, 7, "left", "bottom"), (6, -7, "left", "top"), (-6, 7, "right", "bottom"), (-6, -7, "right", "top"),
    (14, 15, "left", "bottom"), (14, -15, "left", "top"), (-14, 15, "right", "bottom"), (-14, -15, "right", "top"),
    (0, 22, "center", "bottom"), (0, -22, "center", "top"),
]  # fmt: skip


def _styled(comparison: Comparison) -> Iterator[tuple[ModelResult, dict[str, Any]]]:
    """Each model with its colour and marker, which are the same in all plots."""
    colours = (*COLOURS, *MORE_COLOURS)
    for n, each in enumerate(comparison.ranked):
        yield each, {"color": colours[n % len(colours)], "marker": MARKERS[n % len(MARKERS)]}


def _line_plot(
    comparison: Comparison, labels: Sequence[str], values: dict[str, list[float]], x: str, y: str
) -> Figure:
    """A line for each model over a few labelled places."""
    figure, [axes] = new_figure(width=WIDTH, height=3.8)
    for n, (each, style) in enumerate(_styled(comparison)):
        look = {"linestyle": DASHES[n // 2 % len(DASHES)], "markersize": 5, "linewidth": 1.5, **style}
        axes.plot(range(len(labels)), values[each.model], label=as_text(each.model), **look)
    axes.set_ylim(bottom=0.0)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    _legend(figure, axes)
    return figure


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=9)


def quality_against_time(comparison: Comparison) -> Figure:
    """The metric against the seconds of training: up and to the left is better."""
    figure, [axes] = new_figure(width=WIDTH, height=4.4)
    points, texts = [], []
    for each, style in _styled(comparison):
        low, high = (bound[0] for bound in comparison.intervals[each.model])
        x, y = max(each.seconds, 1e-3), each.of(comparison.metric).mean()
        axes.errorbar(x, y, [[y - low], [high - y]], capsize=3, elinewidth=1, markersize=7, **style)
        weight = "bold" if each.model == comparison.best else "normal"
        look = {"weight": weight, "color": style["color"]}
        texts.append(axes.annotate(as_text(each.model), (x, y), (0, 0), textcoords="offset points", **look))
        points.append((x, y, low, high))
    _logarithmic(axes)
    axes.margins(x=0.15, y=0.12)
    axes.set_xlabel("seconds of training, one thread")
    axes.set_ylabel(f"{comparison.metric} on the test part")
    _place_labels(figure, axes, texts, points)
    return figure


def _logarithmic(axes: Axes) -> None:
    """A logarithmic axis of seconds, labelled with plain numbers."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _place_labels(
    figure: Figure, axes: Axes, texts: Sequence[Annotation], points: Sequence[tuple[float, ...]]
) -> None:
    """Place each label where it covers the fewest points, error bars and other labels."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    frame, pixel = axes.get_window_extent(), figure.dpi / 72
    taken, ends = [], []
    for x, y, low, high in points:
        middle, bottom, top = (axes.transData.transform((x, height)) for height in (y, low, high))
        taken += [Bbox.from_extents(*(middle - 4 * pixel), *(middle + 4 * pixel))]
        taken += [Bbox.from_extents(bottom[0] - 2 * pixel, bottom[1], top[0] + 2 * pixel, top[1])]
        above, below = ((end[1] - middle[1]) / pixel for end in (top, bottom))
        ends.append([(0, above + 3, "center", "bottom"), (0, below - 3, "center", "top")])
    for text, at_ends in zip(texts, ends, strict=True):

        def cost(spot: tuple[float, float, str, str], text: Annotation = text) -> float:
            _move(text, spot)
            box = text.get_window_extent()
            covered = sum(_area(box, other) for other in taken)
            outside = box.width * box.height - _area(box, frame)
            return float(covered + 2 * outside + 0.01 * (abs(spot[0]) + abs(spot[1])))

        _move(text, min([*SPOTS, *at_ends], key=cost))
        taken.append(text.get_window_extent())


def _move(text: Annotation, spot: tuple[float, float, str, str]) -> None:
    text.xyann = spot[:2]
    text.set(ha=spot[2], va=spot[3])


def _area(one: Bbox, other: Bbox) -> float:
    """The area of the overlap of two boxes."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(max(width, 0.0) * max(height, 0.0))


def by_length(comparison: Comparison) -> Figure:
    """The metric against the length of the list."""
    name = comparison.metric.partition("@")[0]
    ks = sorted(int(m.partition("@")[2]) for m in comparison.ranked[0].measures if m.startswith(f"{name}@"))
    values = {each.model: [float(each.of(f"{name}@{k}").mean()) for k in ks] for each in comparison.ranked}
    y = f"{name}@k on the test part"
    return _line_plot(comparison, [str(k) for k in ks], values, "k, the length of the list", y)


def by_activity(comparison: Comparison) -> Figure:
    """The metric for users with few and with many training interactions."""
    names, quarter = activity_quarters(comparison.activity)
    values = {
        each.model: [float(each.of(comparison.metric)[quarter == n].mean()) for n in range(len(names))]
        for each in comparison.ranked
    }
    counts = np.bincount(quarter, minlength=len(names))
    labels = [f"{name}\n({count:,} users)" for name, count in zip(names, counts, strict=True)]
    y = f"{comparison.metric} on the test part"
    return _line_plot(comparison, labels, values, "training interactions of the user", y)


def by_popularity(comparison: Comparison) -> Figure:
    """Recall of test interactions with popular and with rare items."""
    about = comparison.ranked[0].records[0]["popularity"]
    values = {}
    for each in comparison.ranked:
        recalls = zip(*(record["popularity"]["recall"] for record in each.records), strict=True)
        values[each.model] = [np.nan if third[0] is None else float(np.mean(third)) for third in recalls]
    labels = [f"{name}\n({count:,} items)" for name, count in zip(THIRDS, about["items"], strict=True)]
    x = "items by popularity, a third of the training interactions each"
    return _line_plot(comparison, labels, values, x, f"recall@{about['k']} of test interactions")


def learning_curves(comparison: Comparison) -> Figure | None:
    """The metric on validation by epoch and by seconds; None if no model is trained epoch by epoch."""
    learning = [(each, style) for each, style in _styled(comparison) if "curve" in each.records[0]]
    if not learning:
        return None
    figure, (left, right) = new_figure(2, WIDTH / 2, 3.8)
    for each, style in learning:
        curve = each.records[0]["curve"]
        epochs = range(1, len(curve["values"]) + 1)
        best = int(np.argmax(curve["values"]))
        look = {"linewidth": 1.5, "markersize": 6, "markevery": [best], "label": as_text(each.model), **style}
        left.plot(epochs, curve["values"], **look)
        right.plot(np.maximum(curve["seconds"], 1e-3), curve["values"], **look)
    left.set_xlabel("epoch")
    right.set_xlabel("seconds of training, one thread")
    _logarithmic(right)
    left.set_ylabel(f"{comparison.metric} on validation")
    _legend(figure, left)
    return figure
