"""Blend: the weighted sum of the normalised scores of two models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.parameters import jobs, number, special, whole_number, with_inherited_parameters
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.engines.options import FitOptions
from truelike.engines.weights import HistoryCounts
from truelike.errors import ParameterError
from truelike.models.base import Recommender
from truelike.models.scorer import LEFT_OUT_BYTES, Floats, Scorer

PARTS = ("first", "second")
COMPOSED = ("Blend", "AutoRecommender", "WeightedKinds")  # made of other models, and no parts themselves


def is_part(value: Any) -> bool:
    """Whether a value names a model that may be a part of another: one of interactions, not composed itself."""
    from truelike.models.registry import variant

    if not isinstance(value, str):
        return False
    try:
        kind, _ = variant(value)
    except ParameterError:
        return False
    return not kind.uses & {"user_features", "item_features"} and kind.__name__ not in COMPOSED


@with_inherited_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class Blend(Recommender):
    """The weighted sum of the scores of two models, each normalised for each user.

    The scores that a model gives a user are normalised to mean 0 and standard deviation 1 over all items. Models of
    different kinds make different errors, and their blend often ranks better than either.

    Parameters
    ----------
    first : str, default 'ExactBPO'
        A model, with parameters after colons: "IALS:factors=64:regularization=0.01". Not a model of features.
    second : str, default 'EDLAE'
        The other model.
    weight : float, default 0.5
        Weight of the second model, from 0 to 1.
    seed : int, default 0
        Seed of the models.

    Attributes
    ----------
    first_, second_
        The fitted models.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.synthetic.World(n_users=200, n_items=100).dataset()
    >>> model = tl.Blend(first="IALS:factors=8", second="ItemKNN").fit(data, progress=False)
    >>> model.recommend([0], k=3).height, model.first_
    (3, IALS(factors=8))
    """

    search_space: ClassVar[dict[str, Any]] = {"weight": (0.1, 0.9)}

    first: str = special("ExactBPO", "the name of a model, e.g. 'ExactBPO:factors=64'", is_part)
    second: str = special("EDLAE", "the name of a model, e.g. 'EDLAE:dropout=0.5'", is_part)
    weight: float = number(0.5, low=0.0, high=1.0)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def _parts(self) -> dict[str, Recommender]:
        """The two models, not fitted."""
        from truelike.models.registry import build

        parts = {}
        for name in PARTS:
            model = build(getattr(self, name), {})
            known = model.get_params()
            own = {
                key: getattr(self, key) for key in ("seed", "n_jobs") if key in known and key not in model.given
            }
            parts[name] = model.set_params(**own)
        return parts

    def _check_data(self, train: Dataset) -> None:
        for model in self._parts().values():
            model._check_data(train)

    def _expected_seconds(self, train: Dataset) -> float:
        return sum(model.expected_seconds(train) for model in self._parts().values())

    def _counts_weights(self) -> bool:
        return any(model._counts_weights() for model in self._parts().values())

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        fitted = {}
        for name, model in self._parts().items():
            own = options if model.iterative else replace(options, validation=None)
            fitted[f"{name}_"] = model.fit_with(train, own)
        return fitted

    def _update(
        self, train: Dataset, users: Codes, items: Codes, epochs: int, progress: bool
    ) -> Mapping[str, Any]:
        models: dict[str, Recommender] = {f"{name}_": getattr(self, f"{name}_") for name in PARTS}
        return {name: model.updated(train, users, items, epochs, progress) for name, model in models.items()}

    def _of_users(self, train: Dataset, users: Codes) -> Mapping[str, Any]:
        return {f"{name}_": getattr(self, f"{name}_").of_users(train, users) for name in PARTS}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {
            f"{name}.{key}": array for name in PARTS for key, array in getattr(self, f"{name}_")._arrays().items()
        }

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        learned = {}
        for name, model in self._parts().items():
            prefix = f"{name}."
            own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            learned[f"{name}_"] = model.with_learned(train, model._restore(own, train))
        return learned

    def _make_scorer(self) -> BlendScorer:
        return BlendScorer(self.first_.scorer, self.second_.scorer, self.weight)


@final
class PartCounts(HistoryCounts):
    """How two scorers count the interactions of a history, in one number.

    Two parts may count differently. So the data of a CSR are complex: the real part is what the first of them counts,
    the imaginary part what the second counts.
    """

    def __init__(self, first: Scorer, second: Scorer) -> None:
        self._parts = first, second

    def of(self, weights: sparse.csr_array, times: NDArray[np.int64] | None = None) -> sparse.csr_array:
        """See `HistoryCounts`."""
        first, second = (part.counted(weights, times).data for part in self._parts)
        both = (first + np.complex64(1j) * second).astype(np.complex64)
        return sparse.csr_array((both, weights.indices, weights.indptr), shape=weights.shape)

    @staticmethod
    def split(histories: sparse.csr_array) -> list[sparse.csr_array]:
        """What each scorer counts; the same for both if the data are no complex numbers.

        >>> histories = sparse.csr_array(np.array([[0, 1 + 3j]], dtype=np.complex64))
        >>> [each.toarray().tolist() for each in PartCounts.split(histories)]
        [[[0.0, 1.0]], [[0.0, 3.0]]]
        """
        if not np.iscomplexobj(histories.data):
            return [histories, histories]
        parts = (np.ascontiguousarray(part) for part in (histories.data.real, histories.data.imag))
        place = histories.indices, histories.indptr
        return [sparse.csr_array((part, *place), shape=histories.shape) for part in parts]


@final
class BlendScorer(Scorer):
    """The weighted sum of the normalised scores of two scorers of the same data; `weight` is that of the second."""

    def __init__(self, first: Scorer, second: Scorer, weight: float) -> None:
        differs = first.counting is not None or second.counting is not None
        super().__init__(first.train, PartCounts(first, second) if differs else None)
        self._parts, self._weight = (first, second), weight

    def _blended(self, ask: Callable[..., Floats], histories: sparse.csr_array | None = None) -> Floats:
        """The blend of what the parts answer, who are given the histories as they count them."""
        given: list[Any] = [()] * 2 if histories is None else [(each,) for each in PartCounts.split(histories)]
        first, second = (ask(part, *own) for part, own in zip(self._parts, given, strict=True))
        for scores in (first, second):
            normalise(scores)
        first *= np.float32(1 - self._weight)
        second *= np.float32(self._weight)
        first += second
        return first

    def score_users(self, users: Codes) -> Floats:
        """Blend the scores."""
        return self._blended(lambda part: part.score_users(users))

    def score_histories(self, histories: sparse.csr_array) -> Floats:
        """Blend the scores."""
        return self._blended(lambda part, own: part.score_histories(own), histories)

    def similarities(self, items: Codes) -> Floats:
        """Blend the similarities."""
        return self._blended(lambda part: part.similarities(items))

    def contributions(self, history: sparse.csr_array, items: Codes, user: int | None) -> Floats | None:
        """Those of two scores that are sums, scaled as the scores."""
        every = np.arange(self.train.n_items, dtype=np.int32)
        total = np.zeros((len(items), history.nnz), dtype=np.float32)
        weights = (1 - self._weight, self._weight)
        for part, weight, own in zip(self._parts, weights, PartCounts.split(history), strict=True):
            values = part.contributions(own, items, user)
            if values is None:
                return None
            deviation = float(np.std(part.score_items(own, every, user), dtype=np.float64))
            if deviation > 0:
                total += np.float32(weight / deviation) * values
        return total

    def left_out_scores(self, history: sparse.csr_array, places: Codes, items: Codes) -> Floats:
        """Blend the scores of all items, some places at a time."""
        n_items = self.train.n_items
        every, at_once = np.arange(n_items, dtype=np.int32), max(1, LEFT_OUT_BYTES // (4 * n_items))
        blocks = []
        for start in range(0, len(places), at_once):
            of_part = partial(_left_out, places=places[start : start + at_once], items=every)
            blocks.append(self._blended(of_part, history)[:, items])
        return np.concatenate([blocks[0][:1], *(block[1:] for block in blocks)])


def _left_out(part: Scorer, history: sparse.csr_array, places: Codes, items: Codes) -> Floats:
    return part.left_out_scores(history, places, items)


def normalise(scores: Floats) -> None:
    """Shift and scale each row to mean 0 and standard deviation 1, in place.

    -inf, the score of what is never listed, becomes the least finite score of the row. A row of equal scores
    becomes zeros.

    >>> scores = np.array([[1.0, 3.0, -np.inf], [2.0, 2.0, 2.0]], dtype=np.float32)
    >>> normalise(scores)
    >>> scores.round(2)
    array([[-0.71,  1.41, -0.71],
           [ 0.  ,  0.  ,  0.  ]], dtype=float32)
    """
    never = np.isneginf(scores)
    if never.any():
        least = np.where(never, np.inf, scores).min(axis=1, keepdims=True)
        np.copyto(scores, np.where(np.isfinite(least), least, 0.0), where=never)
    scores -= scores.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    deviation = np.sqrt(np.mean(np.square(scores, dtype=np.float64), axis=1, keepdims=True))
    scores /= np.where(deviation > 0, deviation, 1.0).astype(np.float32)
