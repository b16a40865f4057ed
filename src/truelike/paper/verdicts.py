"""Rules that decide claims by the runs: one function per kind of claim. Its docstring defines the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.evaluation.significance import LEVEL, holm, paired_t
from truelike.paper import hidden
from truelike.paper.experiments import MEASURES, Results
from truelike.paper.figures import curve_points, grid_points
from truelike.paper.gains import Gain, gains
from truelike.paper.protocol import BY_NAME, COMPARED, KS, METRIC, SETTINGS, TITLES, UNTRAINED, Setting
from truelike.selection.trials import METRICS, Record, score

HOLDS, PART, NOT, MISSING = "holds", "holds in part", "does not hold", "not run"
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
    """The verdict on a claim, what was measured, the p-value over users or over seeds, and the runs that it is of."""

    verdict: str
    measured: str = ""
    p: float | None = None
    runs: str = ""


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


def _trained(claim: Claim, results: Results, setting: Setting) -> list[str]:
    return [name for name in claim.models if results.trained(setting, name)]


def _by_share(agree: Sequence[bool], measured: str, p: float | None = None, more_than: float = 0.5) -> Verdict:
    """Holds if all agree; in part if more than a share does."""
    if not agree:
        return Verdict(MISSING)
    return Verdict(HOLDS if all(agree) else PART if np.mean(agree) > more_than else NOT, measured, p)


# --- by the gains of contenders over others -------------------------------------------------------


def better(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that the first model is above the second, by the paper's number on the best measure: see `above`."""
    a, b = claim.models
    found = [g for r in _of_data(claim, all_results) for g in gains(r, setting, a, b, claim.on or METRICS)]
    return _missing(claim, all_results, setting, found) if _unknown(found) else above(found, *claim.values)


def above(found: Sequence[Gain], paper: float | None = None) -> Verdict:
    """Decide that A is above B by its gains over B, one for each measure and dataset.

    Significant means p < .05 over users, with Holm's correction over the measures.

    Holds: A is significantly above B on more measures than it is below, and its largest significant gain reaches the
    paper's, or the upper end of its interval over at least five seeds does. If the paper has no number: A is also
    significantly above B on more than half of the measures.
    Holds in part: A is significantly above B on some measure, but the rest fails. Or A is not significantly above
    B on any measure, but on more than half of them the interval over at least five seeds is above zero.
    Does not hold: otherwise.
    """
    found = [replace(g, p=p) for g, p in zip(found, holm([g.p for g in found]), strict=True)]
    higher = [g for g in found if g.gain > 0 and g.p < LEVEL]
    lower = [g for g in found if g.gain < 0 and g.p < LEVEL]
    best = max(higher or found, key=lambda g: g.gain)
    text = f"largest gain {best}; above on {len(higher)}, below on {len(lower)} of {len(found)} measures (p < .05)"
    if not higher:
        steady = sum(g.low > 0 and g.seeds >= ENOUGH for g in found)
        text += f"; the interval over seeds is above zero on {steady}"
        return Verdict(PART if steady > len(found) / 2 else NOT, text, best.p)
    if paper is not None:
        reached = best.gain >= paper or (best.seeds >= ENOUGH and best.high >= paper)
    else:
        reached = len(higher) > len(found) / 2
    return Verdict(HOLDS if reached and len(higher) > len(lower) else PART, text, best.p)


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


def higher_retuned(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that models tuned by a metric are above themselves tuned by F1@2, on this metric.

    Holds: significantly (p < .05) for all models. Holds in part: for some.
    """
    found = {
        name: gain
        for results in _of_data(claim, all_results)
        for name in claim.models
        for gain in gains(results, setting, name, name, claim.on, against="tuned")
    }
    if _unknown([*found.values()]):
        return _missing(claim, all_results, setting, [*found.values()])
    text = "; ".join(f"{name}: {gain}" for name, gain in found.items())
    agree = [gain.gain > 0 and gain.p < LEVEL for gain in found.values()]
    return _by_share(agree, text, max(gain.p for gain in found.values()), more_than=0.0)


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

    Holds: it is. Holds in part: another value is better, but not significantly over seeds (Welch's t with Holm's
    correction over the other values, p >= .05), or, with one seed, by less than 2 %. Did not train: the paper's value
    is at or below ItemPop.
    """
    for results in _of_data(claim, all_results):
        points = _curve(results, claim.on[0], claim.models[0])
        if points:
            [paper] = claim.values
            found = best_of({value: np.array(seeds) for value, seeds in points.items()}, paper)
            trained = paper not in points or np.mean(points[paper]) > results.floor()
            return found if trained else replace(found, verdict=UNTRAINED)
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
    others = [value for value, seeds in points.items() if value != paper and len(seeds) > 1]
    each = [float(stats.ttest_ind(points[value], points[paper], equal_var=False).pvalue) for value in others]
    p = holm(each)[others.index(best)]
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
    """Return the means over seeds of a curve, without the points that did not train."""
    means = {value: float(np.mean(seeds)) for value, seeds in sorted(_curve(results, parameter, name).items())}
    return {value: mean for value, mean in means.items() if mean > results.floor()}


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
    """Decide that a model gains most from tuning a parameter: its best value against the value 1.

    It must gain something: by the rule of `best_value`, the best value is significantly above 1. In part: on some data.
    """
    parts, agree = [], []
    for results in all_results:
        curves = {name: _means(results, claim.on[0], name) for name in COMPARED}
        if all(1 in means for means in curves.values()):
            tuning_gain = {name: max(means.values()) / means[1] - 1 for name, means in curves.items()}
            [name] = claim.models
            points = {value: np.array(seeds) for value, seeds in _curve(results, claim.on[0], name).items()}
            gains_at_all = best_of(points, 1).verdict == NOT
            agree.append(gains_at_all and max(tuning_gain, key=tuning_gain.__getitem__) == name)
            listed = ", ".join(f"{name} {value:+.1%}" for name, value in tuning_gain.items())
            parts.append(f"{TITLES[results.plan.data]}: {listed}")
    return _by_share(agree, "; ".join(parts), more_than=0.0)


# --- by the metrics on the test part --------------------------------------------------------------


def peaks_at(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that F1@k is highest at this k for all of some models. Holds in part: for most."""
    for results in _of_data(claim, all_results):
        tops = {}
        for name in _trained(claim, results, setting):
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
            means = [results.mean(setting, name, f"f1@{k}") for name in _trained(claim, results, setting)]
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
        if not all(by_data[data].trained(setting, name) for data in ("amazon", "movielens")):
            continue
        for measure in MEASURES:
            here, there = (by_data[data].mean(setting, name, measure) for data in ("amazon", "movielens"))
            if here is not None and there is not None:
                agree.append(here < there)
                parts += [f"{name} F1@2 {here:.3f} and {there:.3f}"] if measure == "f1@2" else []
    return _by_share(agree, f"lower on {sum(agree)} of {len(agree)}; {', '.join(parts)}")


# --- where the truth is known ---------------------------------------------------------------------


def finds_hidden_likes(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide that NBPO's posterior of a hidden like orders unobserved items better than its score alone does.

    Holds: the AUC against true likes is higher on all datasets with a known truth, significantly over seeds (p < .05).
    Holds in part: on some.
    """
    agree, parts, ps, runs = [], [], [], []
    for data, found in _known_truth(all_results, setting):
        posterior, alone = found["posterior"].to_numpy(), found["score"].to_numpy()
        p = paired_t(posterior, alone)
        agree.append(posterior.mean() > alone.mean() and p < LEVEL)
        parts.append(
            f"{hidden.KNOWN[data]}: AUC of the posterior {posterior.mean():.3f}, of the score {alone.mean():.3f}"
        )
        ps.append(p)
        runs.append(f"{hidden.KNOWN[data]}, {len(found)} seeds")
    if not agree:
        return Verdict(MISSING)
    return replace(_by_share(agree, "; ".join(parts), max(ps), more_than=0.0), runs="; ".join(runs))


def _known_truth(all_results: Sequence[Results], setting: Setting) -> list[tuple[str, pl.DataFrame]]:
    places = {results.directory.parent for results in all_results if results.directory is not None}
    rows = [found for place in sorted(places) if not (found := hidden.read(place)).is_empty()]
    return [
        (data, found)
        for table in rows
        for data in hidden.KNOWN
        if len(found := table.filter(data=data, settings=SETTINGS[setting])) > 1
    ]


# --- all of them ----------------------------------------------------------------------------------

BY_FINALS: tuple[Rule, ...] = (
    better, all_above, in_order, peaks_at, gaps_shrink, sparser_is_lower, higher_retuned,
)  # fmt: skip
BY_CURVES: tuple[Rule, ...] = (best_value, grows, is_flat, gains_most_by)
BY_SEARCH: tuple[Rule, ...] = (tuned_to, best_pair, more_sensitive)
RULES: dict[str, Rule] = {rule.__name__: rule for rule in (*BY_FINALS, *BY_CURVES, *BY_SEARCH, finds_hidden_likes)}


def decide(claim: Claim, all_results: Sequence[Results], setting: Setting) -> Verdict:
    """Decide a claim by its rule. Contenders that did not train are named; without others there is no verdict."""
    rule = RULES[claim.rule]
    found = rule(claim, all_results, setting)
    if rule in BY_FINALS:
        left_out = [
            f"{name} on {TITLES[results.plan.data]}"
            for results in _of_data(claim, all_results)
            for name in claim.models
            if not results.trained(setting, name)
        ]
        if left_out:
            text = "; ".join(filter(None, (found.measured, f"did not train, not counted: {', '.join(left_out)}")))
            verdict = UNTRAINED if found.verdict == MISSING else found.verdict
            found = replace(found, measured=text, verdict=verdict)
    return found if found.runs else replace(found, runs=_runs_of(claim, all_results, setting))


def _runs_of(claim: Claim, all_results: Sequence[Results], setting: Setting) -> str:
    """Name the runs of a verdict: of each dataset the least number of seeds of a model, or of trials of a search."""
    rule, parts, versions = RULES[claim.rule], [], set()
    for results in _of_data(claim, all_results):
        groups = _evidence(rule, claim, results, setting)
        sizes = [len(group) for group in groups if group]
        if not sizes:
            continue
        versions |= {record.get("version", "?") for group in groups for record in group}
        unit = "trials" if rule in BY_SEARCH else "seed" if max(sizes) == 1 else "seeds"
        counts = f"{min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else f"{max(sizes)}"
        parts.append(f"{TITLES[results.plan.data]} {counts} {unit}")
    what = "search: " if rule in BY_SEARCH else "validation: " if rule in BY_CURVES else "test: "
    return f"{what}{', '.join(parts)} (truelike {', '.join(sorted(versions))})" if parts else ""


def _evidence(rule: Rule, claim: Claim, results: Results, setting: Setting) -> list[list[Record]]:
    """Return the records of a verdict, by model."""
    names = claim.models if rule is not gains_most_by else COMPARED
    if rule in BY_CURVES:
        by_seed = [[*results.curve(claim.on[0], seed)] for seed in range(results.plan.curve_seeds)]
        return [
            results.found([trial for points in by_seed for trial in [t for n, _, t in points if n == name][:1]])
            for name in names
        ]
    if rule in BY_SEARCH:
        keys = {
            key
            for name in names
            for stage in results.tuned.get(name, {}).get("stages", [])
            for key in stage["candidates"]
        }
        return [[results.records[key] for key in keys if key in results.records]]
    settings: tuple[Setting, ...] = (setting, "tuned") if rule is higher_retuned else (setting,)
    found = [(name, results.found(results.finals(each, name))) for each in settings for name in names]
    learned = [records for name, records in found if records and BY_NAME[name].learns]
    return learned or [records for _, records in found]
