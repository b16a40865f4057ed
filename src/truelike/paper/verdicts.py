"""Rules that decide claims by the runs: one function per kind of claim. Its docstring defines the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.evaluation.significance import holm
from truelike.paper.experiments import MEASURES, Results
from truelike.paper.figures import curve_points, grid_points
from truelike.paper.gains import Gain, gains
from truelike.paper.protocol import COMPARED, KS, METRIC, TITLES, Setting
from truelike.selection.trials import METRICS, score

HOLDS, PART, NOT, MISSING = "holds", "holds in part", "does not hold", "not run"
LEVEL = 0.05
ENOUGH = 5  # the least number of seeds for an interval to be used
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, what was measured, and the p-value of the test over users or over seeds."""

    verdict: str
    measured: str
    p: float | None = None


Decide = Callable[[Sequence[Results], Setting], Verdict]


# --- rules -----------------------------------------------------------------------


def _unknown(found: Sequence[Gain]) -> bool:
    return any(np.isnan(g.p) for g in found)


def _missing(
    all_results: Sequence[Results], setting: Setting, names: Sequence[str], found: Sequence[Gain]
) -> Verdict:
    failed = {name for results in all_results for name in results.diverged(setting) if name in names}
    if found:
        return Verdict(MISSING, "the metrics per user are not stored; run the experiments again")
    return Verdict(MISSING, f"{', '.join(sorted(failed))} diverges at these settings" if failed else "")


def better(
    a: str, b: str, paper: float | None = None, *, metrics: Sequence[str] = METRICS, data: str = ""
) -> Decide:
    """Decide that A is above B, by `paper` on the best measure.

    Significant means p < .05 over users, with Holm's correction over the measures.

    Holds: A is significantly above B on more measures than it is below, and its largest significant gain reaches
    `paper`, or the upper end of its interval over at least five seeds does. If the paper has no number: A is also
    significantly above B on more than half of the measures.
    Holds in part: A is significantly above B on some measure, but the rest fails. Or A is not significantly above
    B on any measure, but on more than half of them the interval over at least five seeds is above zero.
    Does not hold: otherwise.
    """

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        found = [g for r in all_results if data in ("", r.plan.data) for g in gains(r, setting, a, b, metrics)]
        if not found or _unknown(found):
            return _missing(all_results, setting, (a, b), found)
        found = [replace(g, p=p) for g, p in zip(found, holm([g.p for g in found]), strict=True)]
        above = [g for g in found if g.gain > 0 and g.p < LEVEL]
        below = [g for g in found if g.gain < 0 and g.p < LEVEL]
        best = max(above or found, key=lambda g: g.gain)
        text = (
            f"largest gain {best}; above on {len(above)}, below on {len(below)} of {len(found)} measures (p < .05)"
        )
        if not above:
            steady = sum(g.low > 0 and g.seeds >= ENOUGH for g in found)
            text += f"; the interval over seeds is above zero on {steady}"
            return Verdict(PART if steady > len(found) / 2 else NOT, text, best.p)
        if paper is None:
            reached = len(above) > len(found) / 2
        else:
            reached = best.gain >= paper or (best.seeds >= ENOUGH and best.high >= paper)
        return Verdict(HOLDS if reached and len(above) > len(below) else PART, text, best.p)

    return decide


def all_above(names: Sequence[str], floor: str, *, by: float = 0.0, most: bool = False) -> Decide:
    """Decide that each of some contenders is above `floor`.

    Holds: significantly (p < .05), and by more than `by`, on every measure; with `most`, on more than half.
    Holds in part: on more than half of the measures.
    """

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        every = [(g, name) for name in names for r in all_results for g in gains(r, setting, name, floor)]
        if not every or _unknown([g for g, _ in every]):
            return _missing(all_results, setting, (*names, floor), [g for g, _ in every])
        worst, name = min(every, key=lambda pair: pair[0].gain)
        good = [g.gain > by and g.p < LEVEL for g, _ in every]
        above = f"above by more than {by:.0%}" if by else "above"
        text = f"{above} on {sum(good)} of {len(good)} measures; smallest gain {name}: {worst}"
        share = float(np.mean(good))
        holds = share > 0.5 if most else share == 1.0
        return Verdict(HOLDS if holds else PART if share > 0.5 else NOT, text, worst.p)

    return decide


def in_order(*names: str) -> Decide:
    """Decide that the contenders are in this order, the best first.

    Holds: significantly (p < .05) for each step on all measures. Holds in part: for more than half of them.
    """

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        steps = [g for r in all_results for a, b in pairwise(names) for g in gains(r, setting, a, b)]
        if not steps or _unknown(steps):
            return _missing(all_results, setting, names, steps)
        good = [g.gain > 0 and g.p < LEVEL for g in steps]
        parts = [
            f"{TITLES[r.plan.data]} F1@2 "
            + " ".join(f"{name} {value:.4f}" for name in names if (value := r.mean(setting, name, "f1@2")))
            for r in all_results
        ]
        text = f"{sum(good)} of {len(good)} steps in that order (p < .05); " + "; ".join(parts)
        worst = max(g.p for g in steps)
        return Verdict(HOLDS if all(good) else PART if np.mean(good) > 0.5 else NOT, text, worst)

    return decide


def tuned_to(name: str, data: str, **paper: float) -> Decide:
    """Decide that the search finds the paper's values. Holds in part: each within a factor of two."""

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        for results in all_results:
            if results.plan.data == data and name in results.tuned:
                found = {each: results.tuned[name]["parameters"][each] for each in paper}
                text = ", ".join(f"{each} {value:g}" for each, value in found.items())
                ratios = [found[each] / value for each, value in paper.items()]
                near = all(0.5 <= ratio <= 2.0 for ratio in ratios)
                return Verdict(HOLDS if set(ratios) == {1.0} else PART if near else NOT, text)
        return Verdict(MISSING, "")

    return decide


def best_value(parameter: str, name: str, data: str, paper: float) -> Decide:
    """Decide that the best value of a parameter is the paper's. A curve that is not finished decides nothing.

    Holds: it is. Holds in part: another value is better, but not significantly over seeds (Welch's t, p >= .05),
    or, with one seed, by less than 2 %.
    """

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        for results in all_results:
            points = _curve(results, parameter, name) if results.plan.data == data else {}
            if points:
                return _best_of({value: np.array(seeds) for value, seeds in points.items()}, paper)
        return Verdict(MISSING, "")

    return decide


def _curve(results: Results, parameter: str, name: str) -> dict[Any, list[float]]:
    """Return the points of a curve if all planned trials are finished. A diverged trial is no point."""
    planned = [
        (value, trial)
        for seed in range(results.plan.curve_seeds)
        for other, value, trial in results.curve(parameter, seed)
        if other == name
    ]
    if not planned or any(trial.key not in results.records for _, trial in planned):
        return {}
    return {value: seeds for (n, value), seeds in curve_points(results, parameter).items() if n == name}


def _best_of(points: dict[Any, Floats], paper: float) -> Verdict:
    from scipy import stats

    best = max(points, key=lambda value: points[value].mean())
    text = f"best at {best:g} (F1@2 {points[best].mean():.4f})"
    if best == paper:
        return Verdict(HOLDS, text)
    if paper not in points:
        return Verdict(NOT, text + f"; {paper:g} diverged")
    text += f"; at {paper:g} {points[paper].mean():.4f}"
    if min(len(points[best]), len(points[paper])) < 2:
        near = points[paper].mean() >= 0.98 * points[best].mean()
        return Verdict(PART if near else NOT, text + " (one seed)")
    p = float(stats.ttest_ind(points[best], points[paper], equal_var=False).pvalue)
    return Verdict(PART if p >= LEVEL else NOT, text, p)


def best_pair(stage: str, across: str, down: str, data: str, paper: tuple[float, float]) -> Decide:
    """Decide that the best point of a grid is the paper's. Holds in part: the paper's is within 2 % of the best.

    In a grid with successive halving, the best point is one that ran for all epochs. The paper's point is compared
    with it after an equal number of epochs.
    """

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        for results in all_results:
            points = grid_points(results, "NBPO", stage, across, down) if results.plan.data == data else {}
            if not points:
                continue
            longest = max(record["settings"]["epochs"] for record in points.values())
            values = {at: score(record, METRIC) for at, record in points.items()}
            full = {at: v for at, v in values.items() if points[at]["settings"]["epochs"] == longest}
            best = max(full, key=full.__getitem__)
            text = f"best at {best[0]:g}, {best[1]:g} (F1@2 {values[best]:.4f})"
            if best == paper:
                return Verdict(HOLDS, text)
            if paper not in values:
                return Verdict(NOT, f"{text}; the fine grid does not reach {paper[0]:g}, {paper[1]:g}")
            even = grid_points(results, "NBPO", stage, across, down, even=True)
            level = {at: score(even[at], METRIC) for at in (paper, best)}
            epochs = even[paper].get("epochs", 0)
            text += (
                f"; at {paper[0]:g}, {paper[1]:g} {level[paper]:.4f} to {level[best]:.4f} after {epochs} epochs"
            )
            return Verdict(PART if level[paper] >= 0.98 * level[best] else NOT, text)
        return Verdict(MISSING, "")

    return decide


def more_sensitive(data: str) -> Decide:
    """Decide that F1@2 varies more along lambda of Theta than along lambda of Phi.

    Compares the mean range over the lines of the grid, after an equal number of epochs, without diverged trials.
    """

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        for results in all_results:
            points = grid_points(results, "NBPO", "priors", "regularization", "flip_regularization", even=True)
            values = {at: score(r, METRIC) for at, r in points.items() if "error" not in r}
            if results.plan.data != data or not values:
                continue
            ranges = []
            for side in (0, 1):
                lines: dict[float, list[float]] = {}
                for at, value in values.items():
                    lines.setdefault(at[1 - side], []).append(value)
                ranges.append(float(np.mean([max(line) - min(line) for line in lines.values()])))
            text = f"mean range along λΘ {ranges[0]:.4f}, along λΦ {ranges[1]:.4f}"
            return Verdict(HOLDS if ranges[0] > ranges[1] else NOT, text)
        return Verdict(MISSING, "")

    return decide


def grows(parameter: str, data: str) -> Decide:
    """Decide that F1@2 grows by more than 5 % from the least to the greatest value. In part: for most models."""
    return _along(parameter, data, lambda curve: curve[-1] / curve[0] - 1, lambda change: change > 0.05)


def is_flat(parameter: str, data: str) -> Decide:
    """Decide that the best and the worst value differ by less than 10 %. Holds in part: for most models."""
    return _along(parameter, data, lambda curve: max(curve) / min(curve) - 1, lambda change: change < 0.10)


def _along(
    parameter: str, data: str, change: Callable[[list[float]], float], agrees: Callable[[float], bool]
) -> Decide:
    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        for results in all_results:
            curves = {name: _curve(results, parameter, name) for name in COMPARED}
            if results.plan.data != data or not all(curves.values()):
                continue
            changes = {
                name: change([float(np.mean(points[value])) for value in sorted(points)])
                for name, points in curves.items()
            }
            text = ", ".join(f"{name} {value:+.1%}" for name, value in changes.items())
            agree = [agrees(value) for value in changes.values()]
            return Verdict(HOLDS if all(agree) else PART if np.mean(agree) > 0.5 else NOT, text)
        return Verdict(MISSING, "")

    return decide


def gains_most_by(parameter: str, name: str) -> Decide:
    """Decide that one model gains most from tuning a parameter: its best value against the value 1."""

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        parts, agree = [], []
        for results in all_results:
            tuning_gain = {}
            for other in COMPARED:
                points = _curve(results, parameter, other)
                if 1 in points:
                    means = {value: float(np.mean(seeds)) for value, seeds in points.items()}
                    tuning_gain[other] = max(means.values()) / means[1] - 1
            if len(tuning_gain) == len(COMPARED):
                agree.append(max(tuning_gain, key=tuning_gain.__getitem__) == name)
                listed = ", ".join(f"{other} {value:+.1%}" for other, value in tuning_gain.items())
                parts.append(f"{TITLES[results.plan.data]}: {listed}")
        if not agree:
            return Verdict(MISSING, "")
        return Verdict(HOLDS if all(agree) else PART if any(agree) else NOT, "; ".join(parts))

    return decide


def peaks_at(names: Sequence[str], k: int, data: str) -> Decide:
    """Decide that F1@k is highest at this k for all of some models. Holds in part: for most."""

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        for results in all_results:
            if results.plan.data != data:
                continue
            tops = {}
            for name in names:
                means = {each: results.mean(setting, name, f"f1@{each}") for each in KS}
                known = {each: value for each, value in means.items() if value is not None}
                if known:
                    tops[name] = max(known, key=known.__getitem__)
            if not tops:
                continue
            agree = [top == k for top in tops.values()]
            text = ", ".join(f"{name} at {top}" for name, top in tops.items())
            return Verdict(HOLDS if all(agree) else PART if np.mean(agree) > 0.5 else NOT, text)
        return Verdict(MISSING, "")

    return decide


def gaps_shrink(names: Sequence[str]) -> Decide:
    """Decide that the relative gap between the best and the worst model is smaller at k = 20 than at k = 2."""

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        parts, agree = [], []
        for results in all_results:
            spread = []
            for k in (2, 20):
                means = [results.mean(setting, name, f"f1@{k}") for name in names]
                known = [value for value in means if value is not None]
                spread.append(max(known) / min(known) - 1 if len(known) > 1 else float("nan"))
            if not np.isnan(spread).any():
                agree.append(spread[1] < spread[0])
                parts.append(f"{TITLES[results.plan.data]}: {spread[0]:.1%} at 2, {spread[1]:.1%} at 20")
        if not agree:
            return Verdict(MISSING, "")
        return Verdict(HOLDS if all(agree) else PART if any(agree) else NOT, "; ".join(parts))

    return decide


def sparser_is_lower() -> Decide:
    """Decide that all metrics are lower on Amazon, the sparser dataset, than on MovieLens. In part: most are."""

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        by_data = {results.plan.data: results for results in all_results}
        if not {"amazon", "movielens"} <= set(by_data):
            return Verdict(MISSING, "")
        agree, parts = [], []
        for name in ("ItemKNN", "BPR", "WBPR", "ShiftMC", "NBPO"):
            for measure in MEASURES:
                here, there = (by_data[data].mean(setting, name, measure) for data in ("amazon", "movielens"))
                if here is not None and there is not None:
                    agree.append(here < there)
                    parts += [f"{name} F1@2 {here:.3f} and {there:.3f}"] if measure == "f1@2" else []
        if not agree:
            return Verdict(MISSING, "")
        text = f"lower on {sum(agree)} of {len(agree)}; {', '.join(parts)}"
        return Verdict(HOLDS if all(agree) else PART if np.mean(agree) > 0.5 else NOT, text)

    return decide
