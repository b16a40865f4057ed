"""How much each interaction counts: by how often it was repeated, and by how long ago it was."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from truelike.core.arrays import Counts, Doubles, Floats
from truelike.data.dataset import Dataset
from truelike.errors import ParameterError

Weighting = Literal["none", "log", "linear"]
Recency = Literal["none", "user", "global"]
SHORTEST_HALF_LIFE = 1e-3


def interaction_weights(
    train: Dataset, weighting: Weighting = "none", recency: Recency = "none", half_life: float = 0.5
) -> Floats | None:
    """Return how much each interaction counts, in the order of `train.matrix`, with mean 1.

    Parameters
    ----------
    train
        The training data.
    weighting
        How the weight of a pair counts, which is the number of its rows or the sum of their weights: "none" not at
        all, "log" as log(1 + weight), "linear" as it is.
    recency
        Whether new interactions count more than old ones. The age of an interaction is for "user" the share of the
        user's interactions that are later, for "global" the time to the last interaction of all as a share of the
        whole time span. Neither depends on the unit of the times.
    half_life
        The age at which an interaction counts half.

    Returns
    -------
    array or None
        None if all interactions count the same.

    Examples
    --------
    >>> import truelike as tl
    >>> rows = [("ann", "tea", 1, 2020), ("ann", "rum", 1, 2022), ("bob", "tea", 1, 2024), ("bob", "tea", 1, 2023)]
    >>> data = tl.read(rows)
    >>> data.to_frame().rows()
    [('ann', 'rum', 1.0, 2022), ('ann', 'tea', 1.0, 2020), ('bob', 'tea', 2.0, 2024)]
    >>> interaction_weights(data, "linear").tolist()
    [0.75, 0.75, 1.5]
    >>> weights = interaction_weights(data, recency="user", half_life=0.5)  # half of ann's are after her first
    >>> (weights / weights.max()).tolist()
    [1.0, 0.5, 1.0]
    >>> weights = interaction_weights(data, recency="global", half_life=0.5)  # two years
    >>> (weights / weights.max()).tolist()
    [0.5, 0.25, 1.0]
    """
    if recency != "none":
        check_times(recency, train.times is not None)
    values = unscaled_weights(train, weighting, recency, half_life)
    if not len(values) or values.min() == values.max():
        return None
    return np.asarray(values / values.mean(), dtype=np.float32)


def check_times(recency: str, there: bool) -> None:
    """Raise if ages are asked for, and the training data has no times."""
    if not there:
        raise ParameterError(
            f"recency is {recency!r}, and the training data has no times. Name their column with "
            'tl.read(..., time=...), or use recency="none".'
        )


def unscaled_weights(
    train: Dataset, weighting: str, recency: str, half_life: float, span: tuple[int, int] | None = None
) -> Doubles:
    """Return how much each interaction counts, up to a factor. `span` are the first and the last time of all."""
    values = np.ones(train.n_interactions)
    if weighting != "none":
        given = train.csr.data.astype(np.float64)
        values *= np.log1p(given) if weighting == "log" else given
    if recency != "none":
        assert train.times is not None
        age = _age_of_user(train, train.times) if recency == "user" else _age(train.times, span)
        values *= np.exp2(-age / half_life)
    return values


def settings_to_try(train: Dataset) -> list[dict[str, Any]]:
    """Return settings of `weighting`, `recency` and `half_life` to compare on held-out interactions.

    The first one counts all interactions the same. The half-lives are among the best on some public dataset. Recency
    is judged on the latest interactions, e.g. those of ``hold_out(..., by="time")``. Where users interact in sessions,
    these are minutes later, and a short half-life that is best for them is not for interactions that are far ahead.

    >>> import truelike as tl
    >>> settings_to_try(tl.read([("ann", "tea"), ("bob", "tea"), ("bob", "tea")]))
    [{}, {'weighting': 'log'}]
    """
    found: list[dict[str, Any]] = [{}]
    if train.has_weights:
        found.append({"weighting": "log"})
    if train.times is not None:
        found += [{"recency": "user", "half_life": half_life} for half_life in (0.5, 0.2)]
        found.append({"recency": "global", "half_life": 0.5})
    return found


def _age_of_user(train: Dataset, times: Counts) -> Doubles:
    """For each interaction the share of its user's interactions that are later."""
    users, n = train.entry_users, len(times)
    order = np.lexsort((times, users))
    # interactions of one user at the same time are next to each other, and equally old
    last = np.ones(n, dtype=bool)
    last[:-1] = (users[order[1:]] != users[order[:-1]]) | (times[order[1:]] != times[order[:-1]])
    ends = np.flatnonzero(last) + 1
    end = np.empty(n, dtype=np.int64)
    end[order] = np.repeat(ends, np.diff(ends, prepend=0))
    later = train.csr.indptr[users + 1] - end
    return np.asarray(later / train.interactions_per_user()[users], dtype=np.float64)


def _age(times: Counts, span: tuple[int, int] | None) -> Doubles:
    """For each interaction the time to the last one, as a share of the whole time span."""
    if not len(times):
        return np.zeros(0)
    first, last = (int(times.min()), int(times.max())) if span is None else span
    # as unsigned numbers, because a difference of int64 may exceed int64
    age = (np.int64(last).astype(np.uint64) - times.astype(np.uint64)).astype(np.float64)
    return np.asarray(age / max(float(last - first), 1.0), dtype=np.float64)
