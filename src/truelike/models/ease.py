"""EASE and EDLAE: linear autoencoders over items, in closed form (Steck, WWW 2019 and NeurIPS 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.memory import check_memory, readable
from truelike.core.parallel import for_each
from truelike.core.parameters import choice, jobs, number, preset, whole_number, with_inherited_parameters
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.engines.options import FitOptions
from truelike.engines.weights import counts_of_histories, interaction_weights
from truelike.errors import ParameterError
from truelike.models.base import Recommender
from truelike.models.item_scorer import ItemScorer, csr_arrays, saved_csr, sums_of_squares
from truelike.models.scorer import Floats

ROWS = 64  # rows of the Gram matrix that are computed together
BYTES_PER_PAIR = {"float64": 12, "float32": 4}  # of items, while fitting
DENSE = 20_000  # items up to which there is a weight for every pair, unless `neighbors` is given
NEIGHBORS = 200  # of an item, above
REGULARIZATION = 260.0  # of EASE where items share users by chance; see `usual_regularization`
INSTEAD = "SoftmaxMF or IALS, whose memory grows with users + items, or keep fewer items with tl.k_core."


@with_inherited_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class EDLAE(Recommender):
    """EASE with dropout in closed form: a ridge on each item in proportion to its popularity.

    Training to reconstruct interactions of which a share `dropout` is hidden equals a ridge of dropout /
    (1 - dropout) times the diagonal of X'X (Steck, NeurIPS 2020: "Autoencoders that don't overfit towards the
    identity", full rank): EASE with P = (X'X + dropout / (1 - dropout) diag(X'X) + regularization I)^-1.

    With `weighting`, X has how much each interaction counts in place of 1, with mean 1.

    Parameters
    ----------
    dropout : float, default 0.67
        Share of the interactions that is hidden; 0 is EASE.
    regularization : float or None, default None
        An additional ridge, the same for every item. None: sqrt(1 - dropout) times that of `EASE`.
    neighbors : int or None, default None
        Regress each item on this many others only, and keep a sparse B. None: on all others up to 20,000 items, on
        200 above. A number of at least n_items - 1 is all others.
    precision : {'float64', 'float32'}, default 'float64'
        Precision of the dense inversion. "float32" takes half the time and a third of the memory.

    Attributes
    ----------
    weights_
        B, items x items: row i is what an interaction with item i adds to the scores. A NumPy array, or, with
        neighbors, a CSR of SciPy: see the notes of `EASE`.
    regularization_
        The regularization that was used.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
    >>> tl.EDLAE(dropout=0.3, regularization=1.0).fit(data).recommend("eve", k=1)["item_id"].to_list()
    ['milk']
    """

    search_space: ClassVar[dict[str, Any]] = {"dropout": (0.1, 0.9), "regularization": (1.0, 2000.0)}

    neighbors: int | None = whole_number(None, low=1)
    precision: Literal["float64", "float32"] = choice("float64", "float32")
    n_jobs: int | None = jobs()
    dropout: float = number(0.67, low=0.0, high=0.99)
    regularization: float | None = number(None, low=1e-3)
    weighting: Literal["none", "log", "linear"] = choice("none", "log", "linear")

    def _ridge(self, train: Dataset, squares: NDArray[Any]) -> tuple[float, NDArray[np.float64]]:
        """The regularization, as it was given or by a rule, and what is added to `squares`, the diagonal of X'X."""
        regularization = self.regularization
        if regularization is None:
            regularization = usual_regularization(train, self.n_jobs) * float(np.sqrt(1.0 - self.dropout))
        ridge = np.full(train.n_items, float(regularization))
        ridge += self.dropout / (1.0 - self.dropout) * squares
        return float(regularization), ridge

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        neighbors = self._neighbors(train.n_items)
        counts = interaction_weights(train, self.weighting)
        regularization, ridge = self._ridge(train, sums_of_squares(train, counts))
        try:
            if neighbors is None:
                weights = self._dense(train, counts, ridge)
            else:
                weights = self._sparse(train, counts, ridge, neighbors)
        except np.linalg.LinAlgError:
            raise ParameterError(
                f"{self.name}: with this regularization, in {self.precision}, the Gram matrix has no inverse. "
                'Use more regularization, or precision="float64".'
            ) from None
        return {"weights_": weights, "regularization_": regularization}

    def _neighbors(self, n_items: int) -> int | None:
        """The number of neighbors of an item; None: all, and a dense matrix."""
        neighbors = self.neighbors
        if neighbors is None and n_items > DENSE:
            neighbors = NEIGHBORS
        return None if neighbors is None or neighbors >= n_items - 1 else neighbors

    def _dense(self, train: Dataset, counts: Floats | None, ridge: NDArray[np.float64]) -> Floats:
        from truelike.models.inversion import invert

        P = gram(train.csr, counts, np.dtype(self.precision), self.n_jobs)
        P[np.diag_indices_from(P)] += ridge
        invert(P, self.n_jobs)
        return self._weights(P)

    def _sparse(self, train: Dataset, counts: Floats | None, ridge: NDArray[np.float64], neighbors: int) -> Any:
        from truelike.models.local_ridge import local_weights

        def check(needed: int) -> None:
            what = f"{self.name} with {neighbors} neighbors for each of {train.n_items:,} items"
            check_memory(needed, what, f"Use fewer neighbors, {INSTEAD}")

        return local_weights(train.csr, ridge, neighbors, self.n_jobs, check, counts)

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

    def _check_data(self, train: Dataset) -> None:
        """Refuse a catalogue that does not fit into memory before anything is allocated."""
        n_items = train.n_items
        if self._neighbors(n_items) is not None:
            return
        needed = BYTES_PER_PAIR[self.precision] * n_items**2
        instead = f"Use neighbors={NEIGHBORS}, {INSTEAD}"
        if self.precision == "float64":
            instead += (
                f' With precision="float32" it would take {readable(BYTES_PER_PAIR["float32"] * n_items**2)}.'
            )
        check_memory(needed, f"{self.name} has a weight for every pair of items: {n_items:,} items", instead)

    def _expected_seconds(self, train: Dataset) -> float:
        neighbors = self._neighbors(train.n_items)
        if neighbors is None:
            return float(train.n_items**3 / (8.5e10 if self.precision == "float64" else 1.7e11))
        pairs = float(np.square(train.interactions_per_user(), dtype=np.float64).sum())
        return 8.5e-7 * train.n_items * neighbors + 3e-8 * pairs

    def _of_users(self, train: Dataset, users: Codes) -> Mapping[str, Any]:
        return {}  # users have their histories alone

    def _make_scorer(self) -> ItemScorer:
        return ItemScorer(self.train_, self.weights_, counting=counts_of_histories(self.train_, self.weighting))

    def _arrays(self) -> dict[str, NDArray[Any]]:
        weights, regularization = self.weights_, np.array([self.regularization_])
        if not sparse.issparse(weights):
            return {"weights": weights, "regularization": regularization}
        return {"regularization": regularization, **csr_arrays("weights", weights)}

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        n, regularization = train.n_items, arrays["regularization"]
        if regularization.shape != (1,) or regularization.dtype != np.float64 or not regularization[0] > 0:
            raise ValueError("the regularization is not a positive number")
        if self._neighbors(n) is not None:
            return {"weights_": saved_csr("weights", arrays, n), "regularization_": float(regularization[0])}
        weights = arrays["weights"]
        if weights.shape != (n, n) or weights.dtype != np.float32:
            raise ValueError(
                f"the weights are {weights.dtype} of shape {weights.shape}; expected float32, {n} x {n}"
            )
        return {"weights_": weights, "regularization_": float(regularization[0])}


@preset(dropout=0.0, without=("dropout",))
class EASE(EDLAE):
    """Embarrassingly shallow autoencoder: the scores of a user are X_u B, with weights B in closed form.

    B minimises ``|X - X B|^2 + regularization |B|^2`` with a diagonal of zero, so that no item predicts itself: with
    P = (X'X + regularization I)^-1 it is B_ij = -P_ij / P_jj (Steck, WWW 2019, Equation 8).

    With `weighting`, X has how much each interaction counts in place of 1, with mean 1: what a user interacted with
    often is to be reconstructed as such, and counts as much in the score.

    Parameters
    ----------
    regularization : float or None, default None
        Steck's lambda. None: 260 / lift^0.75, where the lift is how many times the squared numbers of common users of
        two items exceed what their popularity explains.

    Attributes
    ----------
    weights_
        B, items x items: row i is what an interaction with item i adds to the scores. A NumPy array, or, with
        neighbors, a CSR of SciPy.
    regularization_
        The lambda that was used.

    Notes
    -----
    The memory of a dense B grows with the square of the catalogue: 12 bytes for each pair of items while fitting (4 in
    float32), 4 afterwards. That of a sparse B grows with the pairs of items that share a user, 8 bytes for each while
    fitting, and the weights, 16 bytes for each afterwards. If this is more than the machine has, `fit` raises
    TooLargeError before it begins.

    With neighbors, B_ij is computed by the regressions of i and of j on their neighbors, and only positive weights are
    kept; the neighbors are those which alone would explain most. See `truelike.models.local_ridge`.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
    >>> tl.EASE(regularization=1.0).fit(data).recommend("eve", k=1)["item_id"].to_list()
    ['milk']
    """

    search_space: ClassVar[dict[str, Any]] = {"regularization": (1.0, 5000.0)}


def usual_regularization(train: Dataset, n_jobs: int | None) -> float:
    """A good regularization of EASE: 260 / lift^0.75.

    c_ij users interacted with both i and j, and p_i is the share of the interactions that item i has. Would pairs of
    items come together by their popularity alone, c_ij would be about T p_i p_j, where T is the sum of c_ij over all
    pairs. The lift is the sum of c_ij^2, divided by that of (T p_i p_j)^2; 1 if no user has two items. The higher it
    is, the more common users say, and the less regularization is needed.

    >>> import truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
    >>> round(usual_regularization(data, 1))
    164
    """
    from truelike.models.kernels import sum_squares_of_common_users

    by_user, by_item = train.csr, sparse.csc_array(train.csr)

    def rows(start: int) -> int:
        stop = min(start + ROWS, train.n_items)
        return int(
            sum_squares_of_common_users(
                start, stop, by_user.indptr, by_user.indices, by_item.indptr, by_item.indices
            )
        )

    squares = 2 * sum(for_each(rows, range(0, train.n_items, ROWS), n_jobs))
    lengths = np.diff(by_user.indptr).astype(np.float64)
    pairs = float((lengths * (lengths - 1.0)).sum())
    share = train.popularity() / train.n_interactions
    exceeds = squares / (pairs * float((share**2).sum())) ** 2 if pairs else 1.0
    return max(1e-3, float(REGULARIZATION / exceeds**0.75))


def gram(by_user: Any, counts: Floats | None, dtype: np.dtype[Any], n_jobs: int | None) -> NDArray[Any]:
    """The lower triangle of X'X: the number of users that two items share, or the sum of what they count."""
    from truelike.models.kernels import add_common_users, count_common_users

    if counts is not None:
        by_user = sparse.csr_array((counts, by_user.indices, by_user.indptr), shape=by_user.shape)
    by_item = sparse.csc_array(by_user)
    found = np.zeros((by_user.shape[1], by_user.shape[1]), dtype=dtype)
    places = (by_user.indptr, by_user.indices, by_item.indptr, by_item.indices)

    def rows(start: int) -> None:
        block = found[start : start + ROWS]
        if counts is None:
            count_common_users(start, *places, block)
        else:
            add_common_users(start, *places, by_user.data, by_item.data, block)

    for_each(rows, range(0, by_user.shape[1], ROWS), n_jobs)
    return found
