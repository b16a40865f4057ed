"""How much each interaction counts: by how often it was repeated, and by how long ago it was."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, final

import numpy as np
from scipy import sparse

from truelike.core.arrays import Counts, Doubles, Floats
from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.moments import in_units_of
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
    if weighting == recency == "none":
        return None
    if recency != "none":
        check_times(recency, train.times is not None)
    values = unscaled_weights(train.csr, train.times, weighting, recency, half_life)
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
    weights: sparse.csr_array,
    times: Counts | None,
    weighting: str,
    recency: str,
    half_life: float,
    span: tuple[int, int] | None = None,
) -> Doubles:
    """Return how much each interaction counts, up to a factor.

    `weights` is a CSR with a row for each user, `times` are those of its entries, and `span` the first and the last of
    all; None: those of these.
    """
    values = np.ones(weights.nnz)
    if weighting != "none":
        given = weights.data.astype(np.float64)
        values *= np.log1p(given) if weighting == "log" else given
    if recency != "none":
        assert times is not None
        age = _age_of_user(weights.indptr, times) if recency == "user" else _age(times, span)
        values *= np.exp2(-age / half_life)
    return values


class HistoryCounts(ABC):
    """How a model counts the interactions of a history, on the scale of its training data, where the mean is 1."""

    @abstractmethod
    def of(self, weights: sparse.csr_array, times: Counts | None = None) -> sparse.csr_array:
        """The histories of some users with how much each interaction counts.

        `weights` is a CSR with a row for each user, and `times` are those of its entries. Without times an interaction
        is as recent as one of the training data is on average.
        """


@final
@dataclass(frozen=True)
class TrainedCounts(HistoryCounts):
    """How interactions count by the parameters of `interaction_weights`.

    The history of a user of the training data counts as it did there.

    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea", 1, 2020), ("ann", "rum", 1, 2022), ("bob", "tea", 2, 2024)], weight=2)
    >>> TrainedCounts(data, "linear").of(data.csr[[1]]).data.tolist()
    [1.5]
    """

    train: Dataset | Blocks
    weighting: Weighting = "none"
    recency: Recency = "none"
    half_life: float = 0.5

    def of(self, weights: sparse.csr_array, times: Counts | None = None) -> sparse.csr_array:
        """See `HistoryCounts`."""
        scale, how = self._scale, (self.weighting, self.recency, self.half_life)
        if self.recency == "none" or times is None:
            values = unscaled_weights(weights, None, self.weighting, "none", self.half_life) / scale.without_times
        else:
            if scale.span is not None:
                times = in_units_of(times, np.array(scale.span))
            values = unscaled_weights(weights, times, *how, scale.span) / scale.mean
        return sparse.csr_array((values.astype(np.float32), weights.indices, weights.indptr), shape=weights.shape)

    @cached_property
    def _scale(self) -> _Scale:
        """The scale of the training data."""
        train, how, span = self.train, (self.weighting, self.recency, self.half_life), None
        if self.recency == "global":
            times = [part.times for part in train.parts() if part.times is not None and len(part.times)]
            ends = [(each.min(), each.max()) for each in times]
            span = int(min(first for first, _ in ends)), int(max(last for _, last in ends))
        total = plain = 0.0
        for part in train.parts():
            total += float(unscaled_weights(part.csr, part.times, *how, span).sum())
            plain += float(unscaled_weights(part.csr, None, self.weighting, "none", self.half_life).sum())
        n = max(1, train.n_interactions)
        return _Scale(span, total / n or 1.0, plain / n or 1.0)


class _Scale(NamedTuple):
    """The first and last time of the training data, and how much its interactions count on average, before scaling."""

    span: tuple[int, int] | None
    mean: float
    without_times: float


def counts_of_histories(
    train: Dataset | Blocks, weighting: Weighting, recency: Recency = "none", half_life: float = 0.5
) -> TrainedCounts | None:
    """Return how a model counts the interactions of a history; None: each counts 1."""
    if weighting == recency == "none":
        return None
    return TrainedCounts(train, weighting, recency, half_life)


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


def _age_of_user(indptr: Counts, times: Counts) -> Doubles:
    """For each interaction the share of its user's interactions that are later."""
    n_of_user, n = np.diff(indptr), len(times)
    users = np.repeat(np.arange(len(n_of_user), dtype=np.int32), n_of_user)
    order = np.lexsort((times, users))
    # interactions of one user at the same time are next to each other, and equally old
    last = np.ones(n, dtype=bool)
    last[:-1] = (users[order[1:]] != users[order[:-1]]) | (times[order[1:]] != times[order[:-1]])
    ends = np.flatnonzero(last) + 1
    end = np.empty(n, dtype=np.int64)
    end[order] = np.repeat(ends, np.diff(ends, prepend=0))
    later = indptr[users + 1] - end
    return np.asarray(later / n_of_user[users], dtype=np.float64)


def _age(times: Counts, span: tuple[int, int] | None) -> Doubles:
    """For each interaction the time to the last one, as a share of the whole time span; 0 for what is later."""
    if not len(times):
        return np.zeros(0)
    first, last = (int(times.min()), int(times.max())) if span is None else span
    # as unsigned numbers, because a difference of int64 may exceed int64
    known = np.minimum(times, np.int64(last))
    age = (np.int64(last).astype(np.uint64) - known.astype(np.uint64)).astype(np.float64)
    return np.asarray(age / max(float(last - first), 1.0), dtype=np.float64)
