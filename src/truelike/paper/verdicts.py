"""Rules that decide claims by the runs: one function per kind of claim. Its docstring defines the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

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
class Claim:
    """A claim of the paper: its section and figure, our words, the paper's number as text, and how it is decided.

    Attributes
    ----------
    settings
        The settings that it is decided for.
    rule
        The name of the rule. The other attributes are what the rule decides it with.
    models
        Names of contenders.
    data
        The dataset; empty: all.
    on
        A metric, or parameters, or a stage of the search and two parameters.
    values
        The paper's numbers.
    """

    where: str = ""
    words: str = ""
    paper: str = ""
    settings: tuple[Setting, ...] = ()
    rule: str = ""
    models: tuple[str, ...] = ()
    data: str = ""
    on: tuple[str, ...] = ()
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, what was measured, and the p-value of the test over users or over seeds."""

    verdict: str
    measured: str = ""
    p: float | None = None


Rule = Callable[[Claim, Sequence[Results], Setting], Verdict]


def _missing(claim: Claim, all_results: Sequence[Results], setting: Setting, found: Sequence[Gain]) -> Verdict:
    failed = {name for results in all_results for name in results.diverged(setting) if name in claim.models}
    if found:
        return Verdict(MISSING, "the metrics per user are not stored; run the experiments again")
    return Verdict(MISSING, f"{', '.join(sorted(failed))} diverges at these settings" if failed else "")


def _unknown(found: Sequence[Gain]) -> bool:
    return not found or any(np.isnan(g.p) for g in found)


def _of_data(claim: Claim, all_results: Sequence[Results]) -> list[Results]:
    return [results for results in all_results if claim.data in ("", results.plan.data)]


def _by_share(agree: Sequence[bool], measured: str, p: float | None = None, more_than: float = 0.5) -> Verdict:
    """Holds if all agree; in part if more than a share does."""
    if not agree:
        return Verdict(MISSING)
    return Verdict(HOLDS if all(agree) else PART if np.mean(agree) > more_than else NOT, measured, p)


# --- by the gains of contenders over others -------------------------------------------------------


def better(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that the first model is above the second, by the paper's number on the best measure.

    Significant means p < .05 over users, with Holm's correction over the measures.

    Holds: A is significantly above B on more measures than it is below, and its largest significant gain reaches the
    paper's, or the upper end of its interval over at least five seeds does. If the paper has no number: A is also
    significantly above B on more than half of the measures.
    Holds in part: A is significantly above B on some measure, but the rest fails. Or A is not significantly above
    B on any measure, but on more than half of them the interval over at least five seeds is above zero.
    Does not hold: otherwise.
    """
    a, b = claim.models
    found = [g for r in _of_data(claim, all_results) for g in gains(r, setting, a, b, claim.on or METRICS)]
    if _unknown(found):
        return _missing(claim, all_results, setting, found)
    found = [replace(g, p=p) for g, p in zip(found, holm([g.p for g in found]), strict=True)]
    above = [g for g in found if g.gain > 0 and g.p < LEVEL]
    below = [g for g in found if g.gain < 0 and g.p < LEVEL]
    best = max(above or found, key=lambda g: g.gain)
    text = f"largest gain {best}; above on {len(above)}, below on {len(below)} of {len(found)} measures (p < .05)"
    if not above:
        steady = sum(g.low > 0 and g.seeds >= ENOUGH for g in found)
        text += f"; the interval over seeds is above zero on {steady}"
        return Verdict(PART if steady > len(found) / 2 else NOT, text, best.p)
    if claim.values:
        [paper] = claim.values
        reached = best.gain >= paper or (best.seeds >= ENOUGH and best.high >= paper)
    else:
        reached = len(above) > len(found) / 2
    return Verdict(HOLDS if reached and len(above) > len(below) else PART, text, best.p)


def all_above(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that all models are above the last one.

    Holds: significantly (p < .05), and by more than the paper's number, on every measure; on "most": on more than
    half. Holds in part: on more than half of the measures.
    """
    *names, floor = claim.models
    by = claim.values[0] if claim.values else 0.0
    every = [(g, name) for name in names for r in all_results for g in gains(r, setting, name, floor)]
    if _unknown([g for g, _ in every]):
        return _missing(claim, all_results, setting, [g for g, _ in every])
    worst, name = min(every, key=lambda pair: pair[0].gain)
    good = [g.gain > by and g.p < LEVEL for g, _ in every]
    above = f"above by more than {by:.0%}" if by else "above"
    text = f"{above} on {sum(good)} of {len(good)} measures; smallest gain {name}: {worst}"
    holds = float(np.mean(good)) > 0.5 and claim.on == ("most",)
    return Verdict(HOLDS, text, worst.p) if holds else _by_share(good, text, worst.p)


def in_order(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that the models are in this order, the best first.

    Holds: significantly (p < .05) for each step on all measures. Holds in part: for more than half of them.
    """
    steps = [g for r in all_results for a, b in pairwise(claim.models) for g in gains(r, setting, a, b)]
    if _unknown(steps):
        return _missing(claim, all_results, setting, steps)
    good = [g.gain > 0 and g.p < LEVEL for g in steps]
    parts = [
        f"{TITLES[r.plan.data]} F1@2 "
        + " ".join(f"{name} {value:.4f}" for name in claim.models if (value := r.mean(setting, name, "f1@2")))
        for r in all_results
    ]
    text = f"{sum(good)} of {len(good)} steps in that order (p < .05); " + "; ".join(parts)
    return _by_share(good, text, max(g.p for g in steps))


# --- by the search and its curves -----------------------------------------------------------------


def tuned_to(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that the search finds the paper's values. Holds in part: each within a factor of two."""
    for results in _of_data(claim, all_results):
        if claim.models[0] in results.tuned:
            parameters = results.tuned[claim.models[0]]["parameters"]
            text = ", ".join(f"{each} {parameters[each]:g}" for each in claim.on)
            ratios = [parameters[each] / value for each, value in zip(claim.on, claim.values, strict=True)]
            near = all(0.5 <= ratio <= 2.0 for ratio in ratios)
            return Verdict(HOLDS if set(ratios) == {1.0} else PART if near else NOT, text)
    return Verdict(MISSING)


def best_value(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that the best value of a parameter is the paper's. A curve that is not finished decides nothing.

    Holds: it is. Holds in part: another value is better, but not significantly over seeds (Welch's t, p >= .05),
    or, with one seed, by less than 2 %.
    """
    for results in _of_data(claim, all_results):
        points = _curve(results, claim.on[0], claim.models[0])
        if points:
            return best_of({value: np.array(seeds) for value, seeds in points.items()}, claim.values[0])
    return Verdict(MISSING)


def best_of(points: dict[float, Floats], paper: float) -> Verdict:
    """Decide whether the best of some values, each with a figure per seed, is the paper's."""
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


def _curve(results: Results, parameter: str, name: str) -> dict[float, list[float]]:
    """Return the points of a curve if all planned trials are finished. A diverged trial is no point."""
    planned = [
        trial
        for seed in range(results.plan.curve_seeds)
        for other, _, trial in results.curve(parameter, seed)
        if other == name
    ]
    if not planned or any(trial.key not in results.records for trial in planned):
        return {}
    return {value: seeds for (n, value), seeds in curve_points(results, parameter).items() if n == name}


def _means(results: Results, parameter: str, name: str) -> dict[float, float]:
    return {value: float(np.mean(seeds)) for value, seeds in sorted(_curve(results, parameter, name).items())}


def best_pair(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that the best point of a grid is the paper's. Holds in part: the paper's is within 2 % of the best.

    In a grid with successive halving, the best point is one that ran for all epochs. The paper's point is compared
    with it after an equal number of epochs.
    """
    x, y = claim.values
    for results in _of_data(claim, all_results):
        points = grid_points(results, claim.models[0], *claim.on)
        if not points:
            continue
        longest = max(record["settings"]["epochs"] for record in points.values())
        values = {at: score(record, METRIC) for at, record in points.items()}
        full = {at: v for at, v in values.items() if points[at]["settings"]["epochs"] == longest}
        best = max(full, key=full.__getitem__)
        text = f"best at {best[0]:g}, {best[1]:g} (F1@2 {values[best]:.4f})"
        if best == (x, y):
            return Verdict(HOLDS, text)
        if (x, y) not in values:
            return Verdict(NOT, f"{text}; the fine grid does not reach {x:g}, {y:g}")
        even = grid_points(results, claim.models[0], *claim.on, even=True)
        there, top = (score(even[at], METRIC) for at in ((x, y), best))
        text += f"; at {x:g}, {y:g} {there:.4f} to {top:.4f} after {even[x, y].get('epochs', 0)} epochs"
        return Verdict(PART if there >= 0.98 * top else NOT, text)
    return Verdict(MISSING)


def more_sensitive(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that F1@2 varies more along lambda of Theta than along lambda of Phi.

    Compares the mean range over the lines of the grid, after an equal number of epochs, without diverged trials.
    """
    for results in _of_data(claim, all_results):
        points = grid_points(results, claim.models[0], *claim.on, even=True)
        values = {at: score(r, METRIC) for at, r in points.items() if "error" not in r}
        if not values:
            continue
        ranges = []
        for side in (0, 1):
            lines: dict[float, list[float]] = {}
            for at, value in values.items():
                lines.setdefault(at[1 - side], []).append(value)
            ranges.append(float(np.mean([max(line) - min(line) for line in lines.values()])))
        text = f"mean range along λΘ {ranges[0]:.4f}, along λΦ {ranges[1]:.4f}"
        return Verdict(HOLDS if ranges[0] > ranges[1] else NOT, text)
    return Verdict(MISSING)


def grows(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that F1@2 grows by more than 5 % from the least to the greatest value. In part: for most models."""
    return _along(claim, all_results, lambda curve: curve[-1] / curve[0] - 1, lambda change: change > 0.05)


def is_flat(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that the best and the worst value differ by less than 10 %. Holds in part: for most models."""
    return _along(claim, all_results, lambda curve: max(curve) / min(curve) - 1, lambda change: change < 0.10)


def _along(
    claim: Claim,
    all_results: Sequence[Results],
    change: Callable[[list[float]], float],
    agrees: Callable[[float], bool],
) -> Verdict:
    for results in _of_data(claim, all_results):
        curves = {name: [*_means(results, claim.on[0], name).values()] for name in claim.models}
        if all(curves.values()):
            changes = {name: change(curve) for name, curve in curves.items()}
            text = ", ".join(f"{name} {value:+.1%}" for name, value in changes.items())
            return _by_share([agrees(value) for value in changes.values()], text)
    return Verdict(MISSING)


def gains_most_by(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that a model gains most from tuning a parameter: its best value against the value 1. In part: on some."""
    parts, agree = [], []
    for results in all_results:
        curves = {name: _means(results, claim.on[0], name) for name in COMPARED}
        if all(1 in means for means in curves.values()):
            tuning_gain = {name: max(means.values()) / means[1] - 1 for name, means in curves.items()}
            agree.append(max(tuning_gain, key=tuning_gain.__getitem__) == claim.models[0])
            listed = ", ".join(f"{name} {value:+.1%}" for name, value in tuning_gain.items())
            parts.append(f"{TITLES[results.plan.data]}: {listed}")
    return _by_share(agree, "; ".join(parts), more_than=0.0)


# --- by the metrics on the test part --------------------------------------------------------------


def peaks_at(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that F1@k is highest at this k for all of some models. Holds in part: for most."""
    for results in _of_data(claim, all_results):
        tops = {}
        for name in claim.models:
            means = {k: results.mean(setting, name, f"f1@{k}") for k in KS}
            known = {k: value for k, value in means.items() if value is not None}
            if known:
                tops[name] = max(known, key=known.__getitem__)
        if tops:
            text = ", ".join(f"{name} at {top}" for name, top in tops.items())
            return _by_share([top == claim.values[0] for top in tops.values()], text)
    return Verdict(MISSING)


def gaps_shrink(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that the relative gap of the best to the worst model is smaller at k = 20 than at k = 2.

    Holds in part: on one of the datasets.
    """
    parts, agree = [], []
    for results in all_results:
        spread = []
        for k in (2, 20):
            means = [results.mean(setting, name, f"f1@{k}") for name in claim.models]
            known = [value for value in means if value is not None]
            spread.append(max(known) / min(known) - 1 if len(known) > 1 else float("nan"))
        if not np.isnan(spread).any():
            agree.append(spread[1] < spread[0])
            parts.append(f"{TITLES[results.plan.data]}: {spread[0]:.1%} at 2, {spread[1]:.1%} at 20")
    return _by_share(agree, "; ".join(parts), more_than=0.0)


def sparser_is_lower(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that all metrics are lower on Amazon, the sparser dataset, than on MovieLens. In part: most are."""
    by_data = {results.plan.data: results for results in all_results}
    if not {"amazon", "movielens"} <= set(by_data):
        return Verdict(MISSING)
    agree, parts = [], []
    for name in claim.models:
        for measure in MEASURES:
            here, there = (by_data[data].mean(setting, name, measure) for data in ("amazon", "movielens"))
            if here is not None and there is not None:
                agree.append(here < there)
                parts += [f"{name} F1@2 {here:.3f} and {there:.3f}"] if measure == "f1@2" else []
    return _by_share(agree, f"lower on {sum(agree)} of {len(agree)}; {', '.join(parts)}")


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        better, all_above, in_order, tuned_to, best_value, best_pair, more_sensitive, grows, is_flat, gains_most_by,
        peaks_at, gaps_shrink, sparser_is_lower,
    )
}  # fmt: skip
