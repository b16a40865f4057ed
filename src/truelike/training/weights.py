"""How much each interaction counts: by how often it was repeated, and by how long ago it was."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.errors import ParameterError

Weighting = Literal["none", "log", "linear"]
SHORTEST_HALF_LIFE = 1e-4  # a share of the time span


def interaction_weights(
    train: Dataset, weighting: Weighting = "none", half_life: float | None = None
) -> NDArray[np.float32] | None:
    """Return how much each interaction counts, in the order of `train.matrix`, with mean 1.

    Parameters
    ----------
    train
        The training data.
    weighting
        How the weight of a pair counts, which is the number of its rows or the sum of their weights: "none" not at
        all, "log" as log(1 + weight), "linear" as it is.
    half_life
        The time after which an interaction counts half, as a share of the time from the first to the last
        interaction. So it does not depend on the unit of the times. None: old interactions count as new ones.

    Returns
    -------
    array or None
        None if all interactions count the same.

    Examples
    --------
    >>> import truelike as tl
    >>> rows = [("ann", "tea", 1, 2020), ("ann", "rum", 1, 2022), ("bob", "tea", 1, 2024), ("bob", "tea", 1, 2023)]
    >>> data = tl.read(rows)
    >>> data.to_frame().select("user_id", "item_id", "weight", "time").rows()
    [('ann', 'rum', 1.0, 2022), ('ann', 'tea', 1.0, 2020), ('bob', 'tea', 2.0, 2024)]
    >>> interaction_weights(data, "linear").tolist()
    [0.75, 0.75, 1.5]
    >>> weights = interaction_weights(data, half_life=0.5)
    >>> (weights / weights.max()).tolist()
    [0.5, 0.25, 1.0]
    """
    if weighting not in ("none", "log", "linear"):
        raise ParameterError(f'weighting is {weighting!r}; expected "none", "log" or "linear"')
    if half_life is not None and train.times is None:
        raise ParameterError(
            f"half_life is {half_life:g}, and the training data has no times. Name their column with "
            "tl.read(..., time=...), or use half_life=None."
        )
    values = np.ones(train.n_interactions)
    if weighting != "none":
        given = train._csr.data.astype(np.float64)
        values *= np.log1p(given) if weighting == "log" else given
    if half_life is not None and train.times is not None:
        values *= recency(train.times, half_life)
    if not len(values) or values.min() == values.max():
        return None
    return np.asarray(values / values.mean(), dtype=np.float32)


def recency(times: NDArray[np.int64], half_life: float) -> NDArray[np.float64]:
    """Return 1 for the last time, 1/2 for one that is half_life x the time span before it, and so on.

    >>> recency(np.array([0, 50, 100]), 0.5).tolist()
    [0.25, 0.5, 1.0]
    """
    if not len(times):
        return np.ones(0)
    # as unsigned numbers, because a difference of int64 may exceed it
    age = (times.max().astype(np.uint64) - times.astype(np.uint64)).astype(np.float64)
    return np.exp2(-age / max(age.max(), 1.0) / half_life)
