"""The logQ correction of sampled negatives (Bengio and Senecal, 2003; Yi et al., RecSys 2019).

If n negatives are drawn with probabilities q_j, each score is reduced by ln(n q_j). So the sum of exp(score) over the
sample estimates the sum over all unobserved items, whatever the sampling distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truelike.core.arrays import Codes, Floats
from truelike.data.dataset import Dataset
from truelike.errors import ParameterError
from truelike.negatives import Negatives


@dataclass(frozen=True)
class Correction:
    """ln(n q_uj) of users and items: the difference of two numbers.

    Attributes
    ----------
    items
        ln(n s_j), where s_j is the share of the item before a user's positives are excluded.
    users
        ln of the share of all items that are not positives of the user.
    """

    items: Floats
    users: Floats

    @classmethod
    def of(cls, train: Dataset, negatives: Negatives, n: int) -> Correction:
        """Return the correction of n negatives for each positive of a dataset."""
        check_known(negatives)
        shares = negatives.shares(train.popularity())
        matrix = train.csr
        observed = np.add.reduceat(np.append(shares[matrix.indices], 0.0), matrix.indptr[:-1])
        observed[np.diff(matrix.indptr) == 0] = 0.0
        return cls(_log(n * shares), _log(1 - observed))

    @classmethod
    def of_history(cls, probabilities: NDArray[np.float64], n: int) -> Correction:
        """Return that of one user with these probabilities of each item."""
        return cls(_log(n * probabilities), np.zeros(1, dtype=np.float32))

    def of_pairs(self, users: Codes, items: Codes) -> Floats:
        """Return ln(n q_uj) of rows of items, a row for each user."""
        return np.asarray(self.items[items] - self.users[users][:, None])


def check_known(negatives: Negatives) -> None:
    """Raise an error if the probability that a negative is drawn is not known."""
    if negatives.draws > 1:
        raise ParameterError(
            f"corrected is True, and negatives={negatives.name!r} chooses negatives by their scores, so the "
            "probability of a negative is not known. Use corrected=False, or a sampler that draws one item for each."
        )


def _log(values: NDArray[np.float64]) -> Floats:
    """The logarithm. An item of share 0 is drawn only if no other is left, so it counts as if it was certain."""
    return np.log(np.where(values > 1e-12, values, 1.0)).astype(np.float32)
