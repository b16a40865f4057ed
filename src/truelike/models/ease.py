"""EASE and EDLAE: linear autoencoders over items, in closed form (Steck, WWW 2019 and NeurIPS 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.errors import ParameterError
from truelike.memory import check_memory, readable
from truelike.models.recommender import Floats, HeldOut, Recommender
from truelike.parallel import for_each
from truelike.parameters import choice, number, whole_number

ROWS = 64  # items whose row of the Gram matrix is one piece of work
BYTES_A_PAIR = {"float64": 12, "float32": 4}  # of items, while fitting
INSTEAD = "Use SoftmaxMF or IALS, whose memory grows with users + items, or keep fewer items with tl.k_core."


@dataclass(kw_only=True, eq=False, repr=False)
class EASE(Recommender):
    """Embarrassingly shallow autoencoder: a user's scores are X_u B, the weights B in closed form.

    B minimises |X - X B|^2 + regularization |B|^2 with a diagonal of zero, so that no item explains itself:
    with P = (X'X + regularization I)^-1 it is B_ij = -P_ij / P_jj (Steck, WWW 2019, Equation 8).

    Parameters
    ----------
    regularization
        Steck's lambda: how many users' worth of votes it takes to believe in a weight.
    precision
        Of the inversion. "float64", or "float32" for twice the speed and a third of the memory.
    n_jobs
        Threads; None: all cores. Never changes the result.

    Attributes
    ----------
    weights_
        B, items x items: row i is what a vote for i adds to the scores.

    Notes
    -----
    Memory grows with the square of the catalogue: 12 bytes for each pair of items while fitting (4 in float32), 4
    afterwards. Where that is more than the machine has, `fit` says so before it begins.

    Examples
    --------
    >>> import truelike as tl
    >>> log = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
    >>> tl.EASE(regularization=1.0).fit(log).recommend("eve", k=1)["item_id"].to_list()
    ['milk']
    """

    space: ClassVar[dict[str, Any]] = {"regularization": (1.0, 5000.0)}

    regularization: float = number(400.0, low=1e-3)
    precision: str = choice("float64", "float32")
    n_jobs: int | None = whole_number(None, low=1)

    def _learn(self, train: Dataset, validation: HeldOut) -> None:
        from truelike.models.inversion import invert

        self._check_size(train.n_items)
        P = gram(train.matrix, np.dtype(self.precision), self.n_jobs)
        P[np.diag_indices_from(P)] += self._ridge(train.popularity())
        try:
            invert(P, self.n_jobs)
        except np.linalg.LinAlgError:
            raise ParameterError(
                f"{self.name}: at regularization={self.regularization:g}, in {self.precision}, there is no "
                'inverse. Use more regularization, or precision="float64".'
            ) from None
        self.weights_ = self._weights(P)

    def _ridge(self, popularity: NDArray[np.int64]) -> Any:
        """What is added to the diagonal of X'X."""
        return self.regularization

    def _weights(self, P: NDArray[Any]) -> Floats:
        """B_ij = -P_ij / P_jj, off the diagonal; a float32 P is used up."""
        B: Floats = P if P.dtype == np.float32 else np.empty(P.shape, dtype=np.float32)
        scale = -1.0 / P.diagonal()

        def rows(start: int) -> None:
            block = slice(start, start + ROWS)
            np.multiply(P[block], scale, out=B[block], casting="same_kind")

        for_each(rows, range(0, len(P), ROWS), self.n_jobs)
        np.fill_diagonal(B, 0.0)
        return B

    def _check_size(self, n_items: int) -> None:
        """Refuse a catalogue that memory has no room for, before anything is allocated."""
        needed = BYTES_A_PAIR[self.precision] * n_items**2
        instead = INSTEAD
        if self.precision == "float64":
            instead += f' With precision="float32" it would be {readable(BYTES_A_PAIR["float32"] * n_items**2)}.'
        check_memory(needed, f"{self.name} weighs every item against every other: {n_items:,} items", instead)

    def _score_block(self, users: Codes) -> Floats:
        return self._score_histories(self.train_.matrix[users])

    def _score_histories(self, histories: Any) -> Floats:
        from truelike.models.kernels import add_dense_rows

        scores = np.zeros(histories.shape, dtype=np.float32)
        add_dense_rows(histories.indptr, histories.indices, self.weights_, scores)
        return scores

    def _similarity_block(self, items: Codes) -> Floats:
        """By B's columns: the items whose votes speak most for an item."""
        return np.ascontiguousarray(self.weights_[:, items].T)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"weights": self.weights_}

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        weights, n = arrays["weights"], self.train_.n_items
        if weights.shape != (n, n) or weights.dtype != np.float32:
            raise ValueError(f"the weights have the shape {weights.shape}, not {n} x {n}, or are not float32")
        self.weights_ = weights


@dataclass(kw_only=True, eq=False, repr=False)
class EDLAE(EASE):
    """EASE with dropout in closed form: a ridge on each item in proportion to its votes.

    Training to restore votes of which a share `dropout` is hidden equals a ridge of dropout / (1 - dropout) times
    the diagonal of X'X (Steck, NeurIPS 2020: "Autoencoders that don't overfit towards the identity", full rank):
    EASE with P = (X'X + dropout / (1 - dropout) diag(X'X) + regularization I)^-1.

    Parameters
    ----------
    dropout
        The share of the votes that is hidden; 0 is EASE.
    regularization
        A ridge on top, the same for every item.
    precision, n_jobs
        As in `EASE`.

    Examples
    --------
    >>> import truelike as tl
    >>> log = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
    >>> tl.EDLAE(dropout=0.3, regularization=1.0).fit(log).recommend("eve", k=1)["item_id"].to_list()
    ['milk']
    """

    space: ClassVar[dict[str, Any]] = {"dropout": (0.1, 0.9), "regularization": (1.0, 2000.0)}

    dropout: float = number(0.67, low=0.0, high=0.99)
    regularization: float = number(200.0, low=1e-3)

    def _ridge(self, popularity: NDArray[np.int64]) -> Any:
        return self.dropout / (1.0 - self.dropout) * popularity + self.regularization


def gram(votes: Any, dtype: np.dtype[Any], n_jobs: int | None) -> NDArray[Any]:
    """The lower triangle of X'X, X_ui being 1 where u voted for i: how many users two items share."""
    from truelike.models.kernels import count_together

    voters = sparse.csc_array(votes)
    counts = np.zeros((votes.shape[1], votes.shape[1]), dtype=dtype)

    def rows(start: int) -> None:
        count_together(
            start, votes.indptr, votes.indices, voters.indptr, voters.indices, counts[start : start + ROWS]
        )

    for_each(rows, range(0, votes.shape[1], ROWS), n_jobs)
    return counts
