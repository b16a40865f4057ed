"""WeightedKinds: a model that learns from several kinds of feedback, each with a weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.parameters import Rule, jobs, special, whole_number, with_inherited_parameters
from truelike.data.dataset import Dataset
from truelike.data.feedback import Feedback
from truelike.data.ids import Codes
from truelike.data.matrix import checked_csr
from truelike.engines.options import FitOptions
from truelike.engines.weights import unscaled_weights
from truelike.errors import DataError, some
from truelike.models.base import Recommender
from truelike.models.blend import is_part
from truelike.models.dot_product import RegressionFoldIn
from truelike.models.scorer import DotProduct, Floats, Scorer

Kinds = Mapping[str, Feedback]
Weights = Mapping[str, float]
WEIGHTS = "a number for each kind by its name, e.g. {'cart': 0.5, 'dislike': -0.3}, or None"


def _are_weights(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, Mapping) and all(
        isinstance(name, str)
        and isinstance(weight, Real)
        and not isinstance(weight, bool)
        and np.isfinite(float(weight))
        for name, weight in value.items()
    )


def _read_weights(text: str) -> Any:
    """Weights in a text, as "cart=0.5,dislike=-0.3".

    >>> _read_weights("cart=0.5, dislike=-0.3"), _read_weights("none"), _read_weights("cart")
    ({'cart': 0.5, 'dislike': -0.3}, None, 'cart')
    """
    if text.strip().lower() == "none":
        return None
    try:
        return {
            name.strip(): float(weight) for name, _, weight in (each.partition("=") for each in text.split(","))
        }
    except ValueError:
        return text


@with_inherited_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class WeightedKinds(Recommender):
    """A model of interactions that also learns from other kinds of feedback, each with a weight of its own.

    The interactions are the target: what is recommended. They count 1 on average. A pair of a kind with a positive
    weight is added to the training data of the model and counts its weight; if the user interacted with the item, too,
    both weights are added. Repeated rows count as log(1 + n), so a kind counts its weight on average.

    A kind with a negative weight counts against the items that are similar to its own: its weight times the scores
    that a user with these items as history would have is added to the scores of the user. Where the score is a dot
    product this changes the vector of the user, and the history's vector is predicted by the linear regression of
    `DotProductScorer`.

    A list leaves out the items of the target alone, so an item in the cart is recommended. A new user's history are
    interactions of the target.

    Parameters
    ----------
    model : str, default 'IALS'
        The model, with parameters after colons: "IALS:factors=64:regularization=0.01". Not a model of features. Its
        `weighting` is "linear" over all kinds; if it is given, it decides how repeated interactions count. A model
        without `weighting` counts each pair of a positive weight as an interaction.
    weights : mapping or None, default None
        The weight of each kind by its name, e.g. {"cart": 0.5, "dislike": -0.3}; kinds that are not named are left
        out. None: the weights of the data, divided by that of the interactions. On the command line:
        "cart=0.5,dislike=-0.3".
    seed : int, default 0
        Seed of the model.

    Attributes
    ----------
    model_
        The fitted model. Its training data are the interactions and the kinds of positive weights.
    weights_
        The weights that were used.

    Examples
    --------
    Ann bought ale, and rum is in her cart; those who bought rum bought gin:

    >>> import truelike as tl
    >>> baskets = {"ann": ["ale"], "kim": ["ale", "tea"], "bob": ["rum", "gin"], "eve": ["rum", "gin"]}
    >>> log = [{"user": user, "item": item, "event": "buy"} for user, basket in baskets.items() for item in basket]
    >>> log.append({"user": "ann", "item": "rum", "event": "cart"})
    >>> data = tl.read(log, kind="event", kinds={"buy": 1, "cart": 0.3}, target="buy")
    >>> tl.ItemKNN().fit(data).recommend("ann", k=1)["item_id"].to_list()
    ['tea']
    >>> model = tl.WeightedKinds(model="ItemKNN", weights={"cart": 0.5}).fit(data)
    >>> model.recommend("ann", k=1)["item_id"].to_list()
    ['gin']
    """

    uses: ClassVar[frozenset[str]] = frozenset({"kinds", "times"})
    scores_by_vectors: ClassVar[bool] = True

    model: str = special("IALS", "the name of a model, e.g. 'IALS:factors=64'", is_part)
    weights: Mapping[str, float] | None = Rule(_are_weights, WEIGHTS, _read_weights).field(
        None, accepts=_are_weights, expected=WEIGHTS
    )
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def _inner(self) -> Recommender:
        """The model as it was asked for, not fitted."""
        from truelike.models.registry import build

        model = build(self.model, {})
        known = model.get_params()
        own = {
            each: getattr(self, each) for each in ("seed", "n_jobs") if each in known and each not in model.given
        }
        return model.set_params(**own)

    def _combined(self, train: Dataset, kinds: Kinds, weights: Weights) -> tuple[Recommender, Dataset]:
        """The model that is trained, and its data: the interactions, and the kinds with a positive weight."""
        model = self._inner()
        positive = {name: kinds[name] for name, weight in weights.items() if weight > 0 and name in kinds}
        if not positive:
            return model, train.with_parts(kinds={})
        values = unscaled_weights(train, getattr(model, "weighting", "none"), "none", 1.0)
        found = _counting(Feedback(train.csr, train.times), values / values.mean())
        for name, kind in positive.items():
            found = found.merge(_counting(kind, weights[name] * repetitions(kind)))
        if "weighting" in model.get_params():
            model.set_params(weighting="linear")
        return model, train.with_parts(csr=found.csr, times=found.times, kinds={})

    def _weights_for(self, train: Dataset) -> dict[str, float]:
        """The weight of each kind that the data has, or is to have."""
        if self.weights is not None:
            return {name: float(weight) for name, weight in self.weights.items()}
        of_target = float(train.csr.data.mean(dtype=np.float64)) if train.n_interactions else 1.0
        return {
            name: float(kind.csr.data.mean(dtype=np.float64)) / of_target
            for name, kind in train.kinds.items()
            if kind.csr.nnz
        }

    def _saved_parameters(self) -> dict[str, Any]:
        weights = None if self.weights is None else {name: float(each) for name, each in self.weights.items()}
        return {**self.get_params(), "weights": weights}

    def _check_data(self, train: Dataset) -> None:
        own = self.kinds_ if self._is_fitted else {}  # a loaded model has them, and not its training data
        unknown = [name for name in self.weights or {} if name not in {**train.kinds, **own}]
        if unknown:
            there = f"the kinds {some(map(repr, train.kinds))}" if train.kinds else "no kinds"
            raise DataError(
                f"weights has {some(map(repr, unknown))}; the data has {there} beside the interactions. Leave out of "
                "weights what is not there, or read it with tl.read(..., kind=..., kinds=..., target=...)."
            )
        model, combined = self._combined(train, train.kinds, self._weights_for(train))
        model._check_data(combined)

    def _expected_seconds(self, train: Dataset) -> float:
        model, combined = self._combined(train, train.kinds, self._weights_for(train))
        return model.expected_seconds(combined)

    def _counts_weights(self) -> bool:
        return self._inner()._counts_weights()

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        return self._fitted(train, train.kinds, options.without("validation"))

    def _fitted(self, train: Dataset, kinds: Kinds, options: FitOptions) -> Mapping[str, Any]:
        weights = self._weights_for(train.with_parts(kinds=kinds))
        model, combined = self._combined(train, kinds, weights)
        return _learned(model.fit_with(combined, options), kinds, weights)

    def around(self, model: Recommender, train: Dataset) -> Self:
        """A copy around its model, which is fitted already: what `fit` gives where no weight is above 0."""
        weights = self._weights_for(train)
        inner = model.with_train(self._combined(train, train.kinds, weights)[1])
        return self.with_learned(train, _learned(inner, train.kinds, weights))

    def _update(
        self, train: Dataset, users: Codes, items: Codes, epochs: int, progress: bool
    ) -> Mapping[str, Any]:
        kinds, before = dict(train.kinds), self.train_
        if not before.kinds:  # of a loaded model, whose training data are interactions alone
            old = {name: kind.recode(users, items, train.csr.shape) for name, kind in self.kinds_.items()}
            kinds |= {name: kind.merge(kinds[name]) if name in kinds else kind for name, kind in old.items()}
        return self._fitted(train, kinds, FitOptions(progress=progress))

    def _part_train(self, train: Dataset) -> Dataset:
        return self._combined(train, self.kinds_, self.weights_)[1]

    def _arrays(self) -> dict[str, NDArray[Any]]:
        model: Recommender = self.model_
        found = {f"model.{key}": array for key, array in model._arrays().items()}
        for name, kind in self.kinds_.items():
            csr, times = kind.csr, {} if kind.times is None else {"times": kind.times}
            parts = {"weight": np.array([self.weights_[name]]), "indptr": csr.indptr, "indices": csr.indices}
            found |= {f"kind.{name}.{key}": array for key, array in {**parts, "data": csr.data, **times}.items()}
        return found

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        names = [key.removeprefix("kind.").removesuffix(".weight") for key in arrays if _is_weight(key)]
        kinds, weights = {}, {}
        for name in names:
            own = {
                key: arrays.get(f"kind.{name}.{key}") for key in ("weight", "data", "indices", "indptr", "times")
            }
            kinds[name] = _saved_feedback(name, own, train)
            weights[name] = float(own["weight"][0])  # type: ignore[index]
        model, combined = self._combined(train, kinds, weights)
        of_model = {key.removeprefix("model."): array for key, array in arrays.items() if key.startswith("model.")}
        return _learned(model.with_learned(combined, model._restore(of_model, combined)), kinds, weights)

    def _make_scorer(self) -> KindsScorer:
        negative = {name: weight for name, weight in self.weights_.items() if weight < 0}
        against = [(self.kinds_[name].csr, weight) for name, weight in negative.items()]
        has_more = sparse.csr_array(self.train_.csr.shape, dtype=np.float32)
        for kind in self.kinds_.values():
            has_more = has_more + abs(kind.csr)
        return KindsScorer(
            self.train_, self.model_.scorer, against, np.diff(sparse.csr_array(has_more).indptr) > 0
        )


def _learned(model: Recommender, kinds: Kinds, weights: Weights) -> dict[str, Any]:
    """The learned attributes: the kinds that count, and no others."""
    counting = {name: weight for name, weight in weights.items() if weight and name in kinds}
    return {"model_": model, "kinds_": {name: kinds[name] for name in counting}, "weights_": counting}


def repetitions(kind: Feedback) -> NDArray[np.float64]:
    """How much each pair of a kind counts for its repeated rows: log(1 + |weight|), with mean 1.

    >>> import truelike as tl
    >>> log = [{"user": "ann", "item": item, "event": event} for item, event in [("tea", "buy"), ("rum", "view")]]
    >>> views = tl.read(log, kind="event", kinds={"buy": 1, "view": 0.2}, target="buy").kinds["view"]
    >>> repetitions(views).tolist()
    [1.0]
    """
    values: NDArray[np.float64] = np.log1p(np.abs(kind.csr.data.astype(np.float64)))
    if len(values):
        values /= values.mean()
    return values


def _counting(kind: Feedback, values: NDArray[np.float64]) -> Feedback:
    """The same pairs with other weights."""
    csr = kind.csr
    parts = (values.astype(np.float32), csr.indices, csr.indptr)
    return Feedback(sparse.csr_array(parts, shape=csr.shape), kind.times)


def _is_weight(key: str) -> bool:
    return key.startswith("kind.") and key.endswith(".weight")


def _saved_feedback(name: str, own: Mapping[str, NDArray[Any] | None], train: Dataset) -> Feedback:
    """A kind from its arrays, checked."""
    weight, data, indices, indptr, times = (own[key] for key in ("weight", "data", "indices", "indptr", "times"))
    if weight is None or data is None or indices is None or indptr is None or weight.shape != (1,):
        raise ValueError(f"the kind {name!r} has no weight, or no pairs")
    if [part.dtype for part in (weight, data, indices, indptr)] != [np.float64, np.float32, np.int32, np.int32]:
        raise ValueError(f"the kind {name!r} is not a matrix of float32 with int32 indices")
    csr = checked_csr((data, indices, indptr), train.csr.shape)
    if times is not None and (times.dtype != np.int64 or times.shape != (csr.nnz,)):
        raise ValueError(f"the times of the kind {name!r} are not one int64 for each pair")
    return Feedback(csr, times)


@final
class KindsScorer(Scorer):
    """The scores of a model, and what some kinds count against them.

    Parameters
    ----------
    train
        The training data: what lists leave out are its interactions.
    model
        The scorer of a model with the same users and items.
    against
        Pairs (users x items) and a weight, below 0: it times the scores of a user with these pairs is added.
    has_more
        For each user, whether the model was trained on more of the user than the interactions, or there is something
        against some items.
    """

    def __init__(
        self,
        train: Dataset,
        model: Scorer,
        against: Iterable[tuple[sparse.csr_array, float]],
        has_more: NDArray[np.bool_],
    ) -> None:
        super().__init__(train)
        self._model, self._against, self._has_more = model, list(against), has_more

    @cached_property
    def vectors(self) -> DotProduct | None:
        """Those of the model, with the vectors of users moved away from what counts against their items."""
        found = self._model.vectors
        if found is None or not self._against:
            return found
        fold_in, users = RegressionFoldIn(self._model.train, found), found.users.copy()
        for pairs, weight in self._against:
            users += np.float32(weight) * fold_in.rows(pairs)
        return found._replace(users=users)

    @property
    def similarity_vectors(self) -> Floats | None:
        """Those of the model."""
        return self._model.similarity_vectors

    def history_vectors(self, histories: sparse.csr_array) -> Floats | None:
        """Those of the model."""
        return self._model.history_vectors(histories)

    def score_users(self, users: Codes) -> Floats:
        """The scores of the model, less what counts against them."""
        vectors = self.vectors
        if vectors is not None:
            return vectors.scores(users)
        scores = self._model.score_users(users)
        for pairs, weight in self._against:
            mine = sparse.csr_array(pairs[users])
            some_rows = np.flatnonzero(np.diff(mine.indptr))
            if len(some_rows):
                histories = sparse.csr_array(mine[some_rows])
                histories.data = np.ones(histories.nnz, dtype=np.float32)
                scores[some_rows] += np.float32(weight) * self._model.score_histories(histories)
        return scores

    def score_histories(self, histories: sparse.csr_array) -> Floats:
        """Those of the model: the histories are interactions of the target."""
        return self._model.score_histories(histories)

    def similarities(self, items: Codes) -> Floats:
        """Those of the model."""
        return self._model.similarities(items)

    def contributions(self, history: Codes, items: Codes, user: int | None) -> Floats | None:
        """Those of the model; None for a user of whom it knows more than the history."""
        if user is not None and self._has_more[user]:
            return None
        return self._model.contributions(history, items, user)

    def left_out_scores(self, history: Codes, places: Codes, items: Codes) -> Floats:
        """Those of the model."""
        return self._model.left_out_scores(history, places, items)
