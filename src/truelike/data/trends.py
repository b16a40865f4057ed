"""What is popular now: the users of an item, of whom those of long ago count less."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike.data.ids import Codes
from truelike.data.moments import duration
from truelike.data.protocol import Interactions
from truelike.errors import DataError

USUAL_SHARE = 0.05  # of the time span of the data: the half-life by the rule


class Trend(NamedTuple):
    """The trend of each item, and the half-life in the units of the times."""

    scores: NDArray[np.float32]
    half_life: float


def trend(data: Interactions, half_life: str | float | None = None) -> Trend:
    """How popular each item is now: the sum over its users of 2^(-age / half_life).

    The age of an interaction is the time from it to the last one of all.

    Parameters
    ----------
    data
        The dataset, which must have times.
    half_life
        The age at which an interaction counts half: a time such as "7d" or "12h", or a number in the units of the
        times. None: a twentieth of the time span of the data.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea", 1, 10), ("bob", "tea", 1, 20), ("eve", "rum", 1, 30)])
    >>> trend(data, half_life=10).scores.tolist()  # of rum, tea
    [1.0, 0.75]
    """
    check_times(data.carries)
    first, last = (find([find(times) for _, times in _parts(data)]) for find in (np.min, np.max))
    usual = max(1.0, USUAL_SHARE * (float(last) - float(first)))
    length = usual if half_life is None else duration("half_life", half_life, np.array([first, last]))
    scores = np.zeros(len(data.items))
    for items, times in _parts(data):
        # as unsigned numbers, because a difference of int64 may exceed int64
        ages = (last.astype(np.uint64) - times.astype(np.uint64)).astype(np.float64)
        scores += np.bincount(items, weights=np.exp2(-ages / length), minlength=len(scores))
    return Trend(scores.astype(np.float32), length)


def _parts(data: Interactions) -> Iterator[tuple[Codes, NDArray[np.int64]]]:
    """The item and the time of each interaction, a part after the other."""
    for part in data.parts():
        assert part.times is not None
        yield part.csr.indices, part.times


def check_times(carries: frozenset[str]) -> None:
    """Raise an error if data has no times."""
    if "times" not in carries:
        raise DataError(
            "what is trending follows from times, and the training data has none. Name their column with "
            "tl.read(..., time=...), or use what is popular."
        )
