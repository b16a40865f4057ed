"""EASE and EDLAE: linear autoencoders over items, in closed form (Steck, WWW 2019 and NeurIPS 2020)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.errors import ParameterError
from truelike.memory import check_memory, readable
from truelike.models.base import Floats, Recommender
from truelike.parallel import for_each
from truelike.parameters import choice, jobs, number
from truelike.training.options import FitOptions

ROWS = 64  # rows of the Gram matrix that are computed together
BYTES_PER_PAIR = {"float64": 12, "float32": 4}  # of items, while fitting
INSTEAD = "Use SoftmaxMF or IALS, whose memory grows with users + items, or keep fewer items with tl.k_core."


@dataclass(kw_only=True, eq=False, repr=False)
class LinearAutoencoder(Recommender):
    """Base class of models whose scores are X_u B, with B = -P / diag(P) and P = (X'X + ridge)^-1 in closed form."""

    precision: Literal["float64", "float32"] = choice("float64", "float32")
    n_jobs: int | None = jobs()

    @abstractmethod
    def _ridge(self, popularity: NDArray[np.int64]) -> Any:
        """What is added to the diagonal of X'X."""

    @final
    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        from truelike.models.inversion import invert

        self._check_size(train.n_items)
        P = gram(train._csr, np.dtype(self.precision), self.n_jobs)
        P[np.diag_indices_from(P)] += self._ridge(train.popularity())
        try:
            invert(P, self.n_jobs)
        except np.linalg.LinAlgError:
            raise ParameterError(
                f"{self.name}: with this regularization, in {self.precision}, the Gram matrix has no inverse. "
                'Use more regularization, or precision="float64".'
            ) from None
        return {"weights_": self._weights(P)}

    def _weights(self, P: NDArray[Any]) -> Floats:
        """B_ij = -P_ij / P_jj off the diagonal; a float32 P is overwritten."""
        B: Floats = P if P.dtype == np.float32 else np.empty(P.shape, dtype=np.float32)
        scale = -1.0 / P.diagonal()

        def rows(start: int) -> None:
            block = slice(start, start + ROWS)
            np.multiply(P[block], scale, out=B[block], casting="same_kind")

        for_each(rows, range(0, len(P), ROWS), self.n_jobs)
        np.fill_diagonal(B, 0.0)
        return B

    def _check_size(self, n_items: int) -> None:
        """Refuse a catalogue that does not fit into memory before anything is allocated."""
        needed = BYTES_PER_PAIR[self.precision] * n_items**2
        instead = INSTEAD
        if self.precision == "float64":
            instead += (
                f' With precision="float32" it would take {readable(BYTES_PER_PAIR["float32"] * n_items**2)}.'
            )
        check_memory(needed, f"{self.name} has a weight for every pair of items: {n_items:,} items", instead)

    @final
    def _expected_seconds(self, train: Dataset) -> float:
        return float(train.n_items**3 / (4e10 if self.precision == "float64" else 8e10))

    @final
    def _score_block(self, users: Codes) -> Floats:
        return self._score_histories(self.train_._csr[users])

    @final
    def _score_histories(self, histories: Any) -> Floats:
        from truelike.models.kernels import add_dense_rows

        scores = np.zeros(histories.shape, dtype=np.float32)
        add_dense_rows(histories.indptr, histories.indices, self.weights_, scores)
        return scores

    @final
    def _similarity_block(self, items: Codes) -> Floats:
        """By the columns of B: the items with the largest weights for an item."""
        return np.ascontiguousarray(self.weights_[:, items].T)

    @final
    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        weights, n = arrays["weights"], train.n_items
        if weights.shape != (n, n) or weights.dtype != np.float32:
            raise ValueError(
                f"the weights are {weights.dtype} of shape {weights.shape}; expected float32, {n} x {n}"
            )
        return {"weights_": weights}


@dataclass(kw_only=True, eq=False, repr=False)
class EASE(LinearAutoencoder):
    """Embarrassingly shallow autoencoder: the scores of a user are X_u B, with weights B in closed form.

    B minimises ``|X - X B|^2 + regularization |B|^2`` with a diagonal of zero, so that no item predicts itself: with
    P = (X'X + regularization I)^-1 it is B_ij = -P_ij / P_jj (Steck, WWW 2019, Equation 8).

    Parameters
    ----------
    regularization : float, default 400.0
        Steck's lambda.
    precision : {'float64', 'float32'}, default 'float64'
        Precision of the inversion. "float32" takes half the time and a third of the memory.
    n_jobs : int or None, default -1
        Number of threads; -1: all cores. Never changes the result.

    Attributes
    ----------
    weights_
        B, items x items: row i is what an interaction with item i adds to the scores.

    Notes
    -----
    Memory grows with the square of the catalogue: 12 bytes for each pair of items while fitting (4 in float32), 4
    afterwards. If this is more than the machine has, `fit` raises TooLargeError before it begins.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
    >>> tl.EASE(regularization=1.0).fit(data).recommend("eve", k=1)["item_id"].to_list()
    ['milk']
    """

    search_space: ClassVar[dict[str, Any]] = {"regularization": (1.0, 5000.0)}

    regularization: float = number(400.0, low=1e-3)

    def _ridge(self, popularity: NDArray[np.int64]) -> Any:
        return self.regularization


@dataclass(kw_only=True, eq=False, repr=False)
class EDLAE(LinearAutoencoder):
    """EASE with dropout in closed form: a ridge on each item in proportion to its popularity.

    Training to reconstruct interactions of which a share `dropout` is hidden equals a ridge of dropout /
    (1 - dropout) times the diagonal of X'X (Steck, NeurIPS 2020: "Autoencoders that don't overfit towards the
    identity", full rank): EASE with P = (X'X + dropout / (1 - dropout) diag(X'X) + regularization I)^-1.

    Parameters
    ----------
    dropout : float, default 0.67
        Share of the interactions that is hidden; 0 is EASE.
    regularization : float, default 200.0
        An additional ridge, the same for every item.
    precision : {'float64', 'float32'}, default 'float64'
        Precision of the inversion. "float32" takes half the time and a third of the memory.
    n_jobs : int or None, default -1
        Number of threads; -1: all cores. Never changes the result.

    Attributes
    ----------
    weights_
        B, items x items: row i is what an interaction with item i adds to the scores.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
    >>> tl.EDLAE(dropout=0.3, regularization=1.0).fit(data).recommend("eve", k=1)["item_id"].to_list()
    ['milk']
    """

    search_space: ClassVar[dict[str, Any]] = {"dropout": (0.1, 0.9), "regularization": (1.0, 2000.0)}

    dropout: float = number(0.67, low=0.0, high=0.99)
    regularization: float = number(200.0, low=1e-3)

    def _ridge(self, popularity: NDArray[np.int64]) -> Any:
        return self.dropout / (1.0 - self.dropout) * popularity + self.regularization


def gram(by_user: Any, dtype: np.dtype[Any], n_jobs: int | None) -> NDArray[Any]:
    """The lower triangle of X'X: the number of users that two items share."""
    from truelike.models.kernels import count_common_users

    by_item = sparse.csc_array(by_user)
    counts = np.zeros((by_user.shape[1], by_user.shape[1]), dtype=dtype)

    def rows(start: int) -> None:
        count_common_users(
            start, by_user.indptr, by_user.indices, by_item.indptr, by_item.indices, counts[start : start + ROWS]
        )

    for_each(rows, range(0, by_user.shape[1], ROWS), n_jobs)
    return counts
