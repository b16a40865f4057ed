"""What is known of exposure, as the compiled loops of the sampled engine take it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.training.exposure.rates import ExposureRates

Floats = NDArray[np.float32]


def _no_floats() -> Floats:
    return np.zeros(0, dtype=np.float32)


def _no_items() -> NDArray[np.int32]:
    return np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class KnownExposure:
    """What is known of exposure. An array that is not used is empty; by default nothing is known.

    Attributes
    ----------
    taken
        For training data whose entries are shown pairs: whether each was taken (1 or 0). What was shown and not taken
        are the negatives then, and none are drawn.
    logits, logit
        The flip logit of each entry, or of all.
    skipped_indptr, skipped_items, skipped_share
        CSR of what was shown to each user and not taken, and the probability that a drawn negative is one of these.
        The others are drawn from what was never shown.
    rates
        Estimated exposure, from which the flip logits of all samples are computed; None: none.
    offset
        What is added to all scores, where items have biases, in the flip tables; None: there are no biases.
    """

    taken: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    logits: Floats = field(default_factory=_no_floats)
    logit: float = 0.0
    skipped_indptr: NDArray[np.int32] = field(default_factory=_no_items)
    skipped_items: NDArray[np.int32] = field(default_factory=_no_items)
    skipped_share: float = 0.0
    rates: ExposureRates | None = None
    offset: float | None = None

    @property
    def labelled(self) -> bool:
        """Whether the entries of the training data are shown pairs, taken or not."""
        return len(self.taken) > 0

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of the compiled loops."""
        rates = self.rates
        return (
            self.skipped_indptr,
            self.skipped_items,
            np.float32(self.skipped_share),
            self.taken,
            self.logits,
            np.float32(self.logit),
            _no_floats() if rates is None else rates.user,
            _no_floats() if rates is None else rates.item,
            np.float32(0.0 if rates is None else rates.least_rate),
            self.offset is not None,
            np.float32(self.offset or 0.0),
        )
