"""Is one model better than another, or was it luck? Intervals and paired tests over users."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike import randomness
from truelike.data.frames import to_native
from truelike.errors import DataError, ParameterError, some

if TYPE_CHECKING:
    from truelike.evaluation.evaluate import Evaluation

Floats = NDArray[np.float64]


def bootstrap_means(values: Floats, *, resamples: int = 1_000, seed: int = 0) -> Floats:
    """The column means of `resamples` draws of as many rows with replacement: (resamples, columns)."""
    from truelike.evaluation.kernels import add_drawn_rows

    if resamples < 1:
        raise ParameterError(f"resamples is {resamples}; it is a whole number from 1 up")
    n = len(values)
    key = randomness.key(seed, "bootstrap")
    values = np.ascontiguousarray(values, dtype=np.float64)
    sums = np.zeros((resamples, values.shape[1]))
    for r in range(resamples):
        drawn = (randomness.uniform(key, np.arange(r * n, (r + 1) * n)) * n).astype(np.int64)
        add_drawn_rows(values, drawn, sums[r])
    return sums / n


def bootstrap_interval(
    values: Floats, *, confidence: float = 0.95, resamples: int = 1_000, seed: int = 0
) -> tuple[Floats, Floats]:
    """The percentile interval of each column's mean.

    >>> low, high = bootstrap_interval(np.arange(100.0)[:, None])
    >>> bool(low[0] < 49.5 < high[0])
    True
    """
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence is {confidence}; it is between 0 and 1, e.g. 0.95")
    means = bootstrap_means(values, resamples=resamples, seed=seed)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, (tail, 1 - tail), axis=0)
    return low, high


def paired_t(a: Floats, b: Floats) -> float:
    """The two-sided p-value of the paired t-test.

    >>> paired_t(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    1.0
    """
    from scipy.special import stdtr

    difference = a - b
    mean, error = difference.mean(), difference.std(ddof=1) / np.sqrt(len(difference))
    if error == 0:  # all users differ alike: t is infinite, or there is no difference at all
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(len(difference) - 1, -abs(mean / error)))


def wilcoxon(a: Floats, b: Floats) -> float:
    """The two-sided p-value of Wilcoxon's signed-rank test (zero differences split between the signs).

    >>> wilcoxon(np.zeros(5), np.zeros(5))
    1.0
    """
    from scipy import stats

    return 1.0 if np.array_equal(a, b) else float(stats.wilcoxon(a, b, zero_method="zsplit").pvalue)


def paired_bootstrap(a: Floats, b: Floats, *, resamples: int = 10_000, seed: int = 0) -> float:
    """The two-sided p-value of the paired bootstrap of the mean difference, shifted to no difference.

    >>> paired_bootstrap(np.zeros(5), np.zeros(5))
    1.0
    """
    difference = a - b
    observed = abs(difference.mean())
    centred = (difference - difference.mean())[:, None]
    null = np.abs(bootstrap_means(centred, resamples=resamples, seed=seed))
    return float((1 + (null >= observed * (1 - 1e-12)).sum()) / (1 + resamples))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction for many tests.

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
    """Compare models user by user on one measure, with Holm's correction over all the comparisons.

    Evaluations of the same name are told apart by a number: "ItemKNN", "ItemKNN (2)". Better names come
    from `evaluate(..., name=...)`.

    Parameters
    ----------
    evaluations
        Results of several models on the same test set.
    measure
        Such as "ndcg@20".
    test
        The paired t-test, Wilcoxon's signed-rank test or the paired bootstrap.
    against
        Compare each model with this one only; None: all pairs.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.split.by_user(tl.synthetic.World(n_users=300, n_items=100).log(), seed=0)
    >>> models = [tl.ItemPop().fit(split.train), tl.ItemKNN().fit(split.train)]
    >>> results = [tl.evaluate(model, split.test) for model in models]
    >>> tl.compare_means(results, "ndcg@20").columns
    ['model', 'other', 'measure', 'difference', 'relative', 'p', 'p_holm']
    """
    if test not in TESTS:
        raise ParameterError(f"test is {test!r}; it is one of {', '.join(TESTS)}")
    if len(evaluations) < 2:
        raise ParameterError(f"{len(evaluations)} evaluation was given; two or more are compared")
    by_name = _by_name(evaluations)
    if against is not None and against not in by_name:
        raise ParameterError(f"against is {against!r}; there are {', '.join(by_name)}")
    reference = evaluations[0].users
    if any(len(r.users) != len(reference) or r.users.to_list() != reference.to_list() for r in evaluations):
        raise DataError("the models were not judged on the same users: evaluate them on one test set")
    if len(reference) < 2:
        raise DataError("there is one user only: nothing can be said about luck")
    known = list(evaluations[0].values)
    lacking = [result.model for result in evaluations if measure not in result.values]
    if lacking:
        raise ParameterError(
            f"{measure!r} was not measured for each user by {some(lacking)}; the first has {', '.join(known)}"
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
    """The evaluations by their names; of those with one name, the later ones get a number."""
    found: dict[str, Evaluation] = {}
    for result in evaluations:
        name, number = result.model, 1
        while name in found:
            number += 1
            name = f"{result.model} ({number})"
        found[name] = result
    return found
