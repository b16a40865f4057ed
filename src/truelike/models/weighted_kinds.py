"""WeightedKinds: a model that learns from several kinds of feedback, each with a weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.parameters import Rule, jobs, special, whole_number, with_inherited_parameters
from truelike.data.dataset import Dataset
from truelike.data.entries import select
from truelike.data.feedback import Feedback
from truelike.data.ids import Codes
from truelike.data.matrix import checked_csr
from truelike.engines.options import FitOptions
from truelike.engines.weights import HistoryCounts, Weighting, unscaled_weights
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
        The model, with parameters after colons: "IALS:factors=64:regularization=0.01". Not a model of features. A
        factorization counts pairs by their weights: its `weighting` is "linear" over all kinds, and if it is given, it
        decides how repeated interactions count. A model of items counts each pair of a positive weight as an
        interaction, unless `weighting` is given.
    weights : mapping or None, default None
        The weight of each kind by its name, e.g. {"cart": 0.5, "dislike": -0.3}; kinds that are not named are left
        out. None: the weights of the data, divided by that of the interactions, of all kinds but such that cancel
        others. On the command line: "cart=0.5,dislike=-0.3".
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
        values = unscaled_weights(train.csr, None, self._inner_weighting(), "none", 1.0)
        found = _counting(Feedback(train.csr, train.times), values / values.mean())
        for name, kind in positive.items():
            found = found.merge(_counting(kind, weights[name] * repetitions(kind)))
        if counts_pairs_by_weight(model):
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
            if kind.csr.nnz and (train.schema is None or name not in train.schema.names("cancels"))
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
        weights = self._weights_for(train)
        model, combined = self._combined(train, train.kinds, weights)
        return _learned(model.fit_with(combined, options.without("validation")), train.kinds, weights)

    def around(self, model: Recommender, train: Dataset) -> Self:
        """A copy around its model, which is fitted already: what `fit` gives where no weight is above 0."""
        weights = self._weights_for(train)
        inner = model.with_train(self._combined(train, train.kinds, weights)[1])
        return self.with_learned(train, _learned(inner, train.kinds, weights))

    def _known_data(self) -> Dataset:
        return self.train_.with_parts(kinds={**self.train_.kinds, **self.kinds_})

    def _of_users(self, train: Dataset, users: Codes) -> Mapping[str, Any]:
        row = np.full(self.train_.n_users, -1, dtype=np.int32)
        row[users] = np.arange(len(users), dtype=np.int32)
        items = np.arange(train.n_items, dtype=np.int32)
        kinds = {name: kind.recode(row, items, train.csr.shape) for name, kind in self.kinds_.items()}
        model = self.model_.of_users(self._combined(train, kinds, self.weights_)[1], users)
        return _learned(model, kinds, self.weights_)

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
        return KindsScorer(self.train_, self.model_.scorer, self.kinds_, self.weights_, self._inner_weighting())

    def _inner_weighting(self) -> Weighting:
        found: Weighting = getattr(self._inner(), "weighting", "none")
        return found


def counts_pairs_by_weight(model: Recommender) -> bool:
    """Whether a model of several kinds counts a pair by its weight; if not, each pair counts the same.

    In a factorization a weight is the confidence in a pair. In a model of items it is a value, and weights of kinds
    made the lists of `ItemKNN` worse on held-out purchases (docs/explanation/kinds.md). So there they are asked for.

    >>> import truelike as tl
    >>> [counts_pairs_by_weight(model) for model in (tl.IALS(), tl.ItemKNN(), tl.ItemKNN(weighting="linear"))]
    [True, False, True]
    """
    return "weighting" in model.get_params() and (model.scores_by_vectors or "weighting" in model.given)


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
    """The scores of a model of several kinds of feedback, and what some kinds count against them.

    Parameters
    ----------
    train
        The training data: what lists leave out are its interactions.
    model
        The scorer of a model with the same users and items, that was trained on the kinds of positive weights, too.
    kinds, weights
        The kinds, and how much each counts. A weight below 0 times the scores of a user with these pairs is added.
    weighting
        How repeated interactions count.
    """

    def __init__(
        self, train: Dataset, model: Scorer, kinds: Kinds, weights: Weights, weighting: Weighting
    ) -> None:
        counting = None
        if model.counting is not None:
            counting = _TargetCounts(model.counting, weighting, train)
        super().__init__(train, counting)
        self._model, self._kinds, self._weights = model, kinds, weights
        self._against = [(kinds[name].csr, weight) for name, weight in weights.items() if weight < 0]

    @property
    def kinds(self) -> Kinds:
        """Those that count."""
        return self._kinds

    @cached_property
    def _has_more(self) -> NDArray[np.bool_]:
        """For each user, whether anything but interactions is known."""
        found = np.zeros(self.train.n_users, dtype=bool)
        for kind in self._kinds.values():
            found |= np.diff(kind.csr.indptr) > 0
        return found

    def counted_kinds(
        self, weights: sparse.csr_array, times: NDArray[np.int64] | None, kinds: Mapping[str, sparse.csr_array]
    ) -> sparse.csr_array:
        """The kinds of positive weights are added to the history; what counts against an item is below 0."""
        found = sparse.csr_array(weights, copy=True)
        if isinstance(self.counting, _TargetCounts):
            found.data = self.counting.of_target(weights).astype(np.float32)
        against = sparse.csr_array(found.shape, dtype=np.float32)
        for name, csr in kinds.items():
            weight = self._weights.get(name, 0.0)
            values = np.log1p(np.abs(csr.data.astype(np.float64))) * (abs(weight) / self._mean_of(name))
            if weight > 0:
                found = found + sparse.csr_array((values, csr.indices, csr.indptr), shape=csr.shape)
            elif weight < 0:
                ones = np.full(csr.nnz, weight)
                against = against + sparse.csr_array((ones, csr.indices, csr.indptr), shape=csr.shape)
        found = self._model.counted(_sorted(found))
        taken = against.multiply(found != 0)  # of an item that the user also likes
        return _sorted(found + against - sparse.csr_array(taken))

    def _mean_of(self, name: str) -> float:
        """What the mean pair of a kind counts before its weight."""
        values = np.log1p(np.abs(self._kinds[name].csr.data.astype(np.float64)))
        return float(values.mean()) if len(values) else 1.0

    @cached_property
    def _fold_in(self) -> RegressionFoldIn | None:
        """Predicts the vectors of what counts against items; None if scores are no dot products."""
        found = self._model.vectors
        return None if found is None else RegressionFoldIn(self._model.train, found)

    @cached_property
    def vectors(self) -> DotProduct | None:
        """Those of the model, with the vectors of users moved away from what counts against their items."""
        found, fold_in = self._model.vectors, self._fold_in
        if found is None or fold_in is None or not self._against:
            return found
        users = found.users.copy()
        for pairs, weight in self._against:
            users += np.float32(weight) * fold_in.rows(pairs)
        return found._replace(users=users)

    @property
    def similarity_vectors(self) -> Floats | None:
        """Those of the model."""
        return self._model.similarity_vectors

    def history_vectors(self, histories: sparse.csr_array) -> Floats | None:
        """Those of the model, moved away from what counts against items."""
        liked, against = _by_sign(histories)
        found, fold_in = self._model.history_vectors(liked), self._fold_in
        if found is None or fold_in is None or not against:
            return found
        found = found.copy()
        for weight, pairs in against.items():
            found += np.float32(weight) * fold_in.rows(pairs)
        return found

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
                histories = _ones(sparse.csr_array(mine[some_rows]))
                scores[some_rows] += np.float32(weight) * self._model.score_histories(histories)
        return scores

    def score_histories(self, histories: sparse.csr_array) -> Floats:
        """Those of the model, less what counts against them."""
        liked, against = _by_sign(histories)
        if against and (vectors := self.history_vectors(histories)) is not None and self.vectors is not None:
            return self.vectors.of_vectors(vectors)
        scores = self._model.score_histories(liked)
        for weight, pairs in against.items():
            rows = np.flatnonzero(np.diff(pairs.indptr))
            scores[rows] += np.float32(weight) * self._model.score_histories(_ones(sparse.csr_array(pairs[rows])))
        return scores

    def similarities(self, items: Codes) -> Floats:
        """Those of the model."""
        return self._model.similarities(items)

    def contributions(self, history: sparse.csr_array, items: Codes, user: int | None) -> Floats | None:
        """Those of the model; None for a user of whom it knows more than the history."""
        if (user is not None and self._has_more[user]) or (history.data < 0).any():
            return None
        return self._model.contributions(history, items, user)

    def left_out_scores(self, history: sparse.csr_array, places: Codes, items: Codes) -> Floats:
        """Those of the model, where nothing counts against items."""
        if (history.data < 0).any():
            return super().left_out_scores(history, places, items)
        return self._model.left_out_scores(history, places, items)


@final
@dataclass(frozen=True)
class _TargetCounts(HistoryCounts):
    """How the model counts interactions of the target, on the scale of all kinds."""

    of_all: HistoryCounts
    weighting: Weighting
    train: Dataset

    def of(self, weights: sparse.csr_array, times: NDArray[np.int64] | None = None) -> sparse.csr_array:
        """See `HistoryCounts`."""
        values = self.of_target(weights).astype(np.float32)
        return self.of_all.of(
            sparse.csr_array((values, weights.indices, weights.indptr), shape=weights.shape), times
        )

    def of_target(self, weights: sparse.csr_array) -> NDArray[np.float64]:
        """How much interactions count beside other kinds: 1 on average."""
        return unscaled_weights(weights, None, self.weighting, "none", 1.0) / self._mean

    @cached_property
    def _mean(self) -> float:
        return float(unscaled_weights(self.train.csr, None, self.weighting, "none", 1.0).mean())


def _by_sign(histories: sparse.csr_array) -> tuple[sparse.csr_array, dict[float, sparse.csr_array]]:
    """What is liked, and what counts against items: pairs by their weight, below 0."""
    below = histories.data < 0
    if not below.any():
        return histories, {}
    against = {
        float(weight): select(histories, histories.data == weight) for weight in np.unique(histories.data[below])
    }
    return select(histories, ~below), against


def _ones(csr: sparse.csr_array) -> sparse.csr_array:
    return sparse.csr_array((np.ones(csr.nnz, dtype=np.float32), csr.indices, csr.indptr), shape=csr.shape)


def _sorted(matrix: Any) -> sparse.csr_array:
    found = sparse.csr_array(matrix, dtype=np.float32)
    found.eliminate_zeros()
    found.sort_indices()
    found.indices, found.indptr = found.indices.astype(np.int32), found.indptr.astype(np.int32)
    return found
