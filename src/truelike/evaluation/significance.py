"""Confidence intervals, and paired tests of the difference between two models over users."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.core.compile_cache import cached_njit
from truelike.core.forks import check_not_forked
from truelike.data.frames import to_native
from truelike.errors import DataError, DataWarning, ParameterError, some, warn
from truelike.evaluation.metrics import Floats

if TYPE_CHECKING:
    from truelike.evaluation.result import Evaluation


LEVEL = 0.05  # of significance
ROUNDING = 1e-12  # relative differences below it are not real


def tail_of(confidence: float) -> float:
    """The probability on each side of a confidence interval."""
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence is {confidence}; it must be between 0 and 1, e.g. 0.95")
    return (1 - confidence) / 2


def mean_interval(values: Floats, *, confidence: float = 0.95) -> tuple[float, float]:
    """Return the confidence interval of a mean over users: low, high.

    A mean of values between 0 and 1 has the interval of Clopper and Pearson for the effective number of users: so many
    values of 0 or 1 would tell the mean as exactly (Korn and Graubard, Survey Methodology 1998). It is right with few
    users who have a hit, and not empty without one. Other values have the interval of Student's t.

    Examples
    --------
    >>> low, high = mean_interval(np.repeat([0.0, 1.0], [98, 2]))
    >>> round(low, 4), round(high, 4)
    (0.0024, 0.0704)
    >>> low, high = mean_interval(np.zeros(100))
    >>> low, round(high, 4)
    (0.0, 0.0362)
    """
    from scipy.special import betaincinv, stdtrit

    tail, n = tail_of(confidence), len(values)
    shares = np.clip(values, 0.0, 1.0)
    if np.abs(values - shares).max() > ROUNDING:
        mean = float(values.mean())
        margin = float(stdtrit(n - 1, 1 - tail) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else np.inf
        return mean - margin, mean + margin
    mean = float(shares.mean())
    if np.ptp(shares) == 0:
        margin = 1 - tail ** (1 / n)
        return max(0.0, mean - margin), min(1.0, mean + margin)
    size = n * mean * (1 - mean) / float(shares.var())
    ones = mean * size
    return float(betaincinv(ones, size - ones + 1, tail)), float(betaincinv(ones + 1, size - ones, 1 - tail))


def paired_t(a: Floats, b: Floats) -> float:
    """Return the two-sided p-value of the paired t-test.

    >>> paired_t(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    1.0
    """
    from scipy.special import stdtr

    difference = a - b
    mean, error = difference.mean(), difference.std(ddof=1) / np.sqrt(len(difference))
    if error == 0:  # the same difference for all users: t is infinite, or undefined if it is zero
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(len(difference) - 1, -abs(mean / error)))


def wilcoxon(a: Floats, b: Floats) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test.

    Most users often have the same value with both models. Zero differences take part in the ranking and are then left
    out (Pratt). Split between the signs, as `zsplit` does, they would make the test nearly blind.

    >>> wilcoxon(np.zeros(5), np.zeros(5))
    1.0
    """
    from scipy import stats

    return 1.0 if np.array_equal(a, b) else float(stats.wilcoxon(a, b, zero_method="pratt").pvalue)


@cached_njit(nogil=True)
def _add_drawn_rows(values: Floats, drawn: NDArray[np.int64], out: Floats) -> None:
    """Add the drawn rows to `out`, in order, so that the sum of a column does not depend on other columns."""
    for row in drawn:
        for column in range(values.shape[1]):
            out[column] += values[row, column]


def paired_bootstrap(a: Floats, b: Floats, *, resamples: int = 10_000, seed: int = 0) -> float:
    """Return the two-sided p-value of the paired bootstrap of the mean difference.

    The differences are centred, so that the samples are drawn under the null hypothesis.

    >>> paired_bootstrap(np.zeros(5), np.zeros(5))
    1.0
    """
    return float(bootstrap_p_values((a - b)[:, None], resamples=resamples, seed=seed)[0])


def bootstrap_p_values(differences: Floats, *, resamples: int = 10_000, seed: int = 0) -> Floats:
    """Return the p-value of each column of differences, which are users x columns.

    >>> bootstrap_p_values(np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 0.0]]), resamples=99)
    array([0.01, 1.  ])
    """
    n, means = differences.shape[0], differences.mean(axis=0)
    centred = np.ascontiguousarray(differences - means, dtype=np.float64)
    observed = np.abs(means) * (1 - ROUNDING)
    key = randomness.key(seed, "bootstrap")
    as_large = np.zeros(len(means), dtype=np.int64)
    for r in range(resamples):
        drawn = (randomness.uniform(key, np.arange(r * n, (r + 1) * n)) * n).astype(np.int64)
        sums = np.zeros(len(means))
        _add_drawn_rows(centred, drawn, sums)
        as_large += np.abs(sums / n) >= observed
    return np.asarray((1 + as_large) / (1 + resamples))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values with Holm's step-down correction for multiple tests.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    n = len(p_values)
    corrected = [0.0] * n
    running = 0.0
    for step, index in enumerate(sorted(range(n), key=lambda i: p_values[i])):
        running = max(running, min(1.0, (n - step) * p_values[index]))
        corrected[index] = running
    return corrected


TESTS = {"t": paired_t, "wilcoxon": wilcoxon, "bootstrap": paired_bootstrap}


def compare_means(
    evaluations: Sequence[Evaluation],
    measure: str,
    *,
    test: Literal["t", "wilcoxon", "bootstrap"] = "t",
    against: str | None = None,
) -> Any:
    """Compare models on one measure with paired tests over users.

    P-values are corrected for multiple tests by Holm's method. Evaluations with the same name get a number:
    "ItemKNN", "ItemKNN (2)". Set other names with `tl.evaluate(..., name=...)`.

    Parameters
    ----------
    evaluations
        The results of two or more models on the same test set.
    measure
        A metric at a list length, such as "ndcg@20".
    test
        "t": paired t-test; "wilcoxon": Wilcoxon's signed-rank test; "bootstrap": paired bootstrap.
    against
        Compare each model with this one only; None: all pairs.

    Returns
    -------
    frame
        A row per pair: model, other, measure, difference, relative (difference), p, p_holm.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=300, n_items=100).dataset(), seed=0)
    >>> models = [tl.ItemPop().fit(split.train), tl.ItemKNN().fit(split.train)]
    >>> results = [tl.evaluate(model, split) for model in models]
    >>> tl.compare_means(results, "ndcg@20").columns
    ['model', 'other', 'measure', 'difference', 'relative', 'p', 'p_holm']
    """
    check_not_forked()
    if test not in TESTS:
        raise ParameterError(f"test is {test!r}; it must be one of {', '.join(TESTS)}")
    if len(evaluations) < 2:
        raise ParameterError(f"compare_means takes two or more evaluations; {len(evaluations)} given")
    by_name = _by_name(evaluations)
    if against is not None and against not in by_name:
        raise ParameterError(f"against is {against!r}; it must be one of {', '.join(by_name)}")
    reference = evaluations[0].users
    if any(len(r.users) != len(reference) or r.users.to_list() != reference.to_list() for r in evaluations):
        raise DataError("the models were not evaluated on the same users; evaluate all of them on one test set")
    if len(reference) < 2:
        raise DataError("the evaluations have only one user; a paired test needs two or more")
    if len({frozenset(result.left_out) for result in evaluations}) > 1:
        parts = [f"{name}: {', '.join(result.left_out) or 'nothing'}" for name, result in by_name.items()]
        warn(
            f"not the same was left out of the lists ({some(parts)}), so the difference may be that of the protocol. "
            "Evaluate all models with the same seen=",
            DataWarning,
        )
    known = list(evaluations[0].values)
    lacking = [result.model for result in evaluations if measure not in result.values]
    if lacking:
        raise ParameterError(
            f"{measure!r} was not measured per user for {some(lacking)}; available: {', '.join(known)}"
        )
    pairs = [(a, b) for a, b in combinations(by_name, 2) if against is None or against in (a, b)]
    rows = []
    for first, second in pairs:
        a, b = (second, first) if against == first else (first, second)
        left, right = by_name[a].values[measure], by_name[b].values[measure]
        difference = float((left - right).mean())
        base = float(right.mean())
        relative = difference / base if base else float("nan")
        rows.append((a, b, measure, difference, relative, TESTS[test](left, right)))
    corrected = holm([row[-1] for row in rows])
    names = ["model", "other", "measure", "difference", "relative", "p", "p_holm"]
    table = [(*row, p) for row, p in zip(rows, corrected, strict=True)]
    return to_native(pl.DataFrame(table, schema=names, orient="row"), evaluations[0].library)


def _by_name(evaluations: Sequence[Evaluation]) -> dict[str, Evaluation]:
    """Return the evaluations by name; a name that is already taken gets a number."""
    found: dict[str, Evaluation] = {}
    for result in evaluations:
        name, number = result.model, 1
        while name in found:
            number += 1
            name = f"{result.model} ({number})"
        found[name] = result
    return found
