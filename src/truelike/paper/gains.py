"""The difference between two contenders on the test part: interval over seeds, test over users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truelike.paper.experiments import MEASURES, Results
from truelike.paper.protocol import TITLES, Setting
from truelike.selection.trials import METRICS

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Gain:
    """The relative difference of one contender to another on one measure, with its 95 % interval over seeds."""

    data: str
    measure: str
    gain: float
    low: float
    high: float
    p: float
    seeds: int = 1

    def __str__(self) -> str:
        bounds = f" [{self.low:+.1%}, {self.high:+.1%}]" if not np.isnan(self.low) else ""
        return (
            f"{TITLES.get(self.data, self.data)} {_label(self.measure)} {self.gain:+.2%}{bounds}, p {_p(self.p)}"
        )


def _label(measure: str) -> str:
    return measure.replace("f1", "F1").replace("ndcg", "NDCG")


def _p(p: float) -> str:
    return "< .001" if p < 0.001 else f"{p:.3f}".replace("0.", ".")


def gains(
    results: Results,
    setting: Setting,
    a: str,
    b: str,
    metrics: Sequence[str] = METRICS,
    *,
    against: Setting | None = None,
) -> list[Gain]:
    """Return the gain of contender `a` over `b` for each measure. `against` is the setting of `b`; None: the same.

    A contender that did not train has no gains: its order says nothing. The interval is Student's over seeds. p is
    that of the paired t-test over users, averaged over seeds first.
    """
    sides = (setting, a), (against or setting, b)
    records_a, records_b = (results.found(results.finals(*side)) for side in sides)
    if not records_a or not records_b or not all(results.trained(*side) for side in sides):
        return []
    found = []
    for measure in (m for m in MEASURES if m in metrics or m.partition("@")[0] in metrics):
        left, right = (np.array([record["test"][measure] for record in each]) for each in (records_a, records_b))
        found.append(gain_over(results.plan.data, measure, left, right, results.p_value(*sides, measure)))
    return found


def gain_over(data: str, measure: str, left: Floats, right: Floats, p: float) -> Gain:
    """Return the gain of one contender over another by a measure of each seed; p is that of the test over users.

    >>> print(gain_over("amazon", "f1@2", np.array([0.22, 0.22]), np.array([0.2, 0.2]), 0.01))
    Amazon F1@2 +10.00% [+10.0%, +10.0%], p .010
    """
    gain, width = float(left.mean() / right.mean() - 1), half_width(left, right)
    return Gain(data, measure, gain, gain - width, gain + width, p, min(len(left), len(right)))


def half_width(left: Floats, right: Floats) -> float:
    """Return half the width of the 95 % interval of the ratio of two means over seeds, by the delta method."""
    from scipy.special import stdtrit

    if len(left) < 2 and len(right) < 2:
        return float("nan")
    variance = sum(float(np.var(x, ddof=1)) / len(x) / x.mean() ** 2 for x in (left, right) if len(x) > 1)
    freedom = max(len(left), len(right)) - 1
    return float(stdtrit(freedom, 0.975) * np.sqrt(variance) * left.mean() / right.mean())
