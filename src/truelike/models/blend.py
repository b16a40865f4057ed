"""Blend: the weighted sum of the normalised scores of two models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.errors import ParameterError
from truelike.models.base import Floats, Recommender
from truelike.models.explanations import MAX_BYTES_AT_ONCE, Contributions
from truelike.parameters import jobs, number, special, whole_number
from truelike.training.options import FitOptions

PARTS = ("first", "second")


def _is_model(value: Any) -> bool:
    from truelike.models.registry import variant

    if not isinstance(value, str):
        return False
    try:
        kind, _ = variant(value)
    except ParameterError:
        return False
    return not kind.takes_features and kind is not Blend


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
    n_jobs : int or None, default -1
        Number of threads; -1: all cores. Never changes the result.

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

    first: str = special("ExactBPO", "the name of a model, e.g. 'ExactBPO:factors=64'", _is_model)
    second: str = special("EDLAE", "the name of a model, e.g. 'EDLAE:dropout=0.5'", _is_model)
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
                key: getattr(self, key) for key in ("seed", "n_jobs") if key in known and key not in model._given
            }
            if model.takes_features:
                raise ParameterError(
                    f"Blend: {name} is {model.name}, a model of features, which cannot be blended"
                )
            parts[name] = model.set_params(**own)
        return parts

    def _check_data(self, train: Dataset) -> None:
        for model in self._parts().values():
            model._check_data(train)

    def _expected_seconds(self, train: Dataset) -> float:
        return sum(model._expected_seconds(train) for model in self._parts().values())

    def _counts_weights(self) -> bool:
        return any(model._counts_weights() for model in self._parts().values())

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        fitted = {}
        for name, model in self._parts().items():
            own = options if model.iterative else replace(options, validation=None)
            fitted[f"{name}_"] = model._fitted(train, model._fit(train, own))
        return fitted

    def _update(
        self, train: Dataset, users: Codes, items: Codes, epochs: int, progress: bool
    ) -> Mapping[str, Any]:
        models = {f"{name}_": getattr(self, f"{name}_") for name in PARTS}
        for model in models.values():
            if not model.supports_partial_fit:
                raise ParameterError(f"Blend: {model.name} has no partial_fit: fit the blend again on all data")
        return {
            name: model._fitted(train, model._update(train, users, items, epochs, progress))
            for name, model in models.items()
        }

    def _state_with(self, train: Dataset) -> dict[str, Any]:
        state = super()._state_with(train)
        for name in PARTS:
            model: Recommender = state[f"{name}_"]
            state[f"{name}_"] = model._fitted(train, model._state_with(train))
        return state

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {
            f"{name}.{key}": array for name in PARTS for key, array in getattr(self, f"{name}_")._arrays().items()
        }

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        learned = {}
        for name, model in self._parts().items():
            prefix = f"{name}."
            own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            learned[f"{name}_"] = model._fitted(train, model._restore(own, train))
        return learned

    def _blended(self, first: Floats, second: Floats) -> Floats:
        for scores in (first, second):
            normalise(scores)
        first *= np.float32(1 - self.weight)
        second *= np.float32(self.weight)
        first += second
        return first

    def _score_block(self, users: Codes) -> Floats:
        return self._blended(self.first_._score_block(users), self.second_._score_block(users))

    def _score_histories(self, histories: Any) -> Floats:
        return self._blended(self.first_._score_histories(histories), self.second_._score_histories(histories))

    def _contributions(self, history: Codes, items: Codes, user: int | None) -> Contributions:
        """Those of two models whose score is a sum, scaled as the scores; otherwise what the score loses."""
        if not all(map(_is_a_sum, (self.first_, self.second_))):
            return super()._contributions(history, items, user)
        values = np.zeros((len(items), len(history)), dtype=np.float32)
        for model, weight in ((self.first_, 1 - self.weight), (self.second_, self.weight)):
            deviation = float(np.std(model._all_scores(history, user), dtype=np.float64))
            if deviation > 0:
                values += np.float32(weight / deviation) * model._contributions(history, items, user).values
        return Contributions(values, self._scores_of(history, items, user), "exact")

    def _left_out_scores(self, history: Codes, places: Codes, items: Codes) -> Floats:
        n_items = self.train_.n_items
        every, at_once = np.arange(n_items, dtype=np.int32), max(1, MAX_BYTES_AT_ONCE // (4 * n_items))
        blocks = []
        for start in range(0, len(places), at_once):
            block = places[start : start + at_once]
            first, second = (part._left_out_scores(history, block, every) for part in (self.first_, self.second_))
            blocks.append(self._blended(first, second)[:, items])
        return np.concatenate([blocks[0][:1], *(block[1:] for block in blocks)])

    def _similarity_block(self, items: Codes) -> Floats:
        return self._blended(self.first_._similarity_block(items), self.second_._similarity_block(items))


def _is_a_sum(model: Recommender) -> bool:
    """Whether the score of a model is a sum over the interactions."""
    return type(model)._contributions is not Recommender._contributions


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
