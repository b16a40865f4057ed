"""How a claim is decided by the runs: a function for each kind of claim, which says what its verdicts mean."""

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
from truelike.paper.protocol import COMPARED, KS, METRIC, TITLES, Setting
from truelike.tuning.trials import METRICS, score

HOLDS, PART, NOT, MISSING = "holds", "holds in part", "does not hold", "not run"
LEVEL = 0.05
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """What was measured, and what follows; `p` is of the paired test over users, or over seeds."""

    verdict: str
    measured: str
    p: float | None = None


Decide = Callable[[Sequence[Results], Setting], Verdict]


# --- what is measured -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Gain:
    """How far one contender is above another on one measure, relative to the other."""

    data: str
    measure: str
    gain: float
    low: float
    high: float
    p: float

    def __str__(self) -> str:
        bounds = f" [{self.low:+.1%}, {self.high:+.1%}]" if not np.isnan(self.low) else ""
        return f"{TITLES[self.data]} {_upper(self.measure)} {self.gain:+.2%}{bounds}, p {_p(self.p)}"


def _upper(measure: str) -> str:
    return measure.replace("f1", "F1").replace("ndcg", "NDCG")


def _p(p: float) -> str:
    return "< .001" if p < 0.001 else f"{p:.3f}".replace("0.", ".")


def gains(results: Results, setting: Setting, a: str, b: str, metrics: Sequence[str] = METRICS) -> list[Gain]:
    """The gain at each k: interval over seeds (Student's), p over users (paired t, seeds averaged)."""
    ours, theirs = (results.found(results.finals(setting, name)) for name in (a, b))
    if not ours or not theirs:
        return []
    found = []
    for measure in (measure for measure in MEASURES if measure.partition("@")[0] in metrics):
        left, right = (np.array([record["test"][measure] for record in each]) for each in (ours, theirs))
        gain = left.mean() / right.mean() - 1
        width = _half_width(left, right)
        p = results.p_value(setting, a, b, measure)
        found.append(Gain(results.plan.data, measure, float(gain), gain - width, gain + width, p))
    return found


def _half_width(left: Floats, right: Floats) -> float:
    """Half of the 95 % interval of the ratio of two means over seeds, by the delta method."""
    from scipy.special import stdtrit

    if len(left) < 2 and len(right) < 2:
        return float("nan")
    variance = sum(float(np.var(x, ddof=1)) / len(x) / x.mean() ** 2 for x in (left, right) if len(x) > 1)
    freedom = max(len(left), len(right)) - 1
    return float(stdtrit(freedom, 0.975) * np.sqrt(variance) * left.mean() / right.mean())


# --- how claims are decided -----------------------------------------------------------------------


def _missing(all_results: Sequence[Results], setting: Setting, names: Sequence[str]) -> Verdict:
    failed = {name for results in all_results for name in results.diverged(setting) if name in names}
    return Verdict(MISSING, f"{', '.join(sorted(failed))} diverges at these settings" if failed else "")


def better(
    a: str, b: str, paper: float | None = None, *, metrics: Sequence[str] = METRICS, data: str = ""
) -> Decide:
    """A is above B, by `paper` at best.

    Holds: at its best measure A is above B beyond chance (p < .05 over users, Holm-corrected over the measures),
    and by as much as the paper says, or not less beyond the interval; where the paper has no number, A is so above
    B on most measures. In part: above beyond chance, but by less, or on fewer. Otherwise it does not hold.
    """

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        found = [g for r in all_results if data in ("", r.plan.data) for g in gains(r, setting, a, b, metrics)]
        if not found:
            return _missing(all_results, setting, (a, b))
        if any(np.isnan(g.p) for g in found):
            return Verdict(MISSING, "the users' figures are not here any more: run it again")
        found = [replace(g, p=p) for g, p in zip(found, holm([g.p for g in found]), strict=True)]
        best = max(found, key=lambda g: g.gain)
        above = sum(g.gain > 0 and g.p < LEVEL for g in found)
        below = sum(g.gain < 0 and g.p < LEVEL for g in found)
        text = f"at best {best}; above on {above}, below on {below} of {len(found)} measures (p < .05)"
        if not (best.gain > 0 and best.p < LEVEL):
            return Verdict(NOT, text, best.p)
        reached = above > len(found) / 2 if paper is None else best.high >= paper or best.gain >= paper
        return Verdict(HOLDS if reached and above > below else PART, text, best.p)

    return decide


def all_above(names: Sequence[str], floor: str) -> Decide:
    """Each of some contenders is above another on every measure; in part: on most."""

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        found = {name: [g for r in all_results for g in gains(r, setting, name, floor)] for name in names}
        found = {name: each for name, each in found.items() if each}
        if not found:
            return Verdict(MISSING, "")
        every = [(g, name) for name, each in found.items() for g in each]
        worst, name = min(every, key=lambda pair: pair[0].gain)
        good = [g.gain > 0 and g.p < LEVEL for each in found.values() for g in each]
        text = f"above on {sum(good)} of {len(good)} measures; the least is {name}: {worst}"
        return Verdict(HOLDS if all(good) else PART if np.mean(good) > 0.5 else NOT, text, worst.p)

    return decide


def in_order(*names: str, metrics: Sequence[str] = ("f1",)) -> Decide:
    """The contenders stand in this order, the best first, on all measures; in part: on most."""

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        steps = [(a, b, gains(r, setting, a, b, metrics)) for r in all_results for a, b in pairwise(names)]
        if not any(found for _, _, found in steps):
            return _missing(all_results, setting, names)
        good = [g.gain > 0 for _, _, found in steps for g in found]
        worst = max(g.p for _, _, found in steps for g in found)
        parts = [
            f"{TITLES[r.plan.data]} F1@2 "
            + " ".join(f"{name} {value:.4f}" for name in names if (value := r.mean(setting, name, "f1@2")))
            for r in all_results
        ]
        text = f"{sum(good)} of {len(good)} steps in that order; " + "; ".join(parts)
        return Verdict(HOLDS if all(good) else PART if np.mean(good) > 0.5 else NOT, text, worst)

    return decide


def best_value(parameter: str, name: str, data: str, paper: float) -> Decide:
    """The best value of a parameter is the paper's.

    Holds: it is. In part: another is better, but not beyond the spread of the seeds (Welch's t, p >= .05).
    """

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        for results in all_results:
            points = {v: seeds for (n, v), seeds in curve_points(results, parameter).items() if n == name}
            if results.plan.data == data and points:
                return _best_of({value: np.array(seeds) for value, seeds in points.items()}, paper)
        return Verdict(MISSING, "")

    return decide


def _best_of(points: dict[Any, Floats], paper: float) -> Verdict:
    from scipy import stats

    best = max(points, key=lambda value: points[value].mean())
    text = f"best at {best:g} (F1@2 {points[best].mean():.4f})"
    if best == paper:
        return Verdict(HOLDS, text)
    if paper not in points:
        return Verdict(NOT, text + f"; {paper:g} was not run")
    text += f"; at {paper:g} {points[paper].mean():.4f}"
    if len(points[best]) < 2:
        return Verdict(NOT, text + "; one seed")
    p = float(stats.ttest_ind(points[best], points[paper], equal_var=False).pvalue)
    return Verdict(PART if p >= LEVEL else NOT, text, p)


def best_pair(stage: str, across: str, down: str, data: str, paper: tuple[float, float]) -> Decide:
    """The best point of a grid is the paper's; in part: the paper's point is within 2 % of the best."""

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        for results in all_results:
            points = grid_points(results, "NBPO", stage, across, down) if results.plan.data == data else {}
            if not points:
                continue
            values = {at: score(record, METRIC) for at, record in points.items()}
            best = max(values, key=values.__getitem__)
            text = f"best at {best[0]:g}, {best[1]:g} (F1@2 {values[best]:.4f})"
            if best == paper:
                return Verdict(HOLDS, text)
            if paper not in values:
                return Verdict(NOT, f"{text}; the fine grid does not reach {paper[0]:g}, {paper[1]:g}")
            text += f"; at {paper[0]:g}, {paper[1]:g} {values[paper]:.4f}"
            return Verdict(PART if values[paper] >= 0.98 * values[best] else NOT, text)
        return Verdict(MISSING, "")

    return decide


def more_sensitive(data: str) -> Decide:
    """F1@2 varies more along lambda of Theta than along lambda of Phi (mean range over the grid)."""

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        for results in all_results:
            points = grid_points(results, "NBPO", "priors", "regularization", "flip_regularization")
            if results.plan.data != data or not points:
                continue
            values = {at: max(score(record, METRIC), 0.0) for at, record in points.items()}
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


def grows(parameter: str, data: str, *, expected: bool) -> Decide:
    """From the least to the greatest value F1@2 grows by more than 5 % for most models, or (not) stays within."""

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        for results in all_results:
            if results.plan.data != data:
                continue
            points = curve_points(results, parameter)
            changes = {}
            for name in COMPARED:
                mine = {value: float(np.mean(seeds)) for (n, value), seeds in points.items() if n == name}
                if mine:
                    changes[name] = mine[max(mine)] / mine[min(mine)] - 1
            if not changes:
                continue
            text = ", ".join(f"{name} {change:+.1%}" for name, change in changes.items())
            agree = [(change > 0.05) == expected for change in changes.values()]
            return Verdict(HOLDS if all(agree) else PART if np.mean(agree) > 0.5 else NOT, text)
        return Verdict(MISSING, "")

    return decide


def gains_most_by(parameter: str, name: str) -> Decide:
    """Tuning a parameter (best over the value 1) brings one model more than each of the others."""

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        parts, agree = [], []
        for results in all_results:
            points = curve_points(results, parameter)
            brought = {}
            for other in COMPARED:
                mine = {value: float(np.mean(seeds)) for (n, value), seeds in points.items() if n == other}
                if 1 in mine:
                    brought[other] = max(mine.values()) / mine[1] - 1
            if name in brought:
                agree.append(max(brought, key=brought.__getitem__) == name)
                told = ", ".join(f"{other} {value:+.1%}" for other, value in brought.items())
                parts.append(f"{TITLES[results.plan.data]}: {told}")
        if not agree:
            return Verdict(MISSING, "")
        return Verdict(HOLDS if all(agree) else PART if any(agree) else NOT, "; ".join(parts))

    return decide


def peaks_at(names: Sequence[str], k: int, data: str) -> Decide:
    """F1@k is highest at this k for all of some models; in part: for most."""

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
    """The relative distance of the best to the worst of some models is less at k = 20 than at k = 2."""

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
    """Every model's figures are lower on Amazon, the sparser data, than on MovieLens."""

    def decide(all_results: Sequence[Results], setting: Setting) -> Verdict:
        by_data = {results.plan.data: results for results in all_results}
        if not {"amazon", "movielens"} <= set(by_data):
            return Verdict(MISSING, "")
        agree, parts = [], []
        for name in ("BPR", "WBPR", "ShiftMC", "NBPO"):
            here, there = (by_data[data].mean(setting, name, "f1@2") for data in ("amazon", "movielens"))
            if here is not None and there is not None:
                agree.append(here < there)
                parts.append(f"{name} {here:.3f} and {there:.3f}")
        if not agree:
            return Verdict(MISSING, "")
        return Verdict(HOLDS if all(agree) else NOT, "F1@2 " + ", ".join(parts))

    return decide
