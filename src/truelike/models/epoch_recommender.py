"""The base class of a model of one's own that is trained in epochs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.core.array_files import TYPES, Arrays
from truelike.core.parallel import one_blas_thread
from truelike.core.parameters import jobs, special, whole_number
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.engines.engine import ArrayEngine
from truelike.engines.loop import Result, Trainer, continue_epochs, fit_epochs
from truelike.engines.options import FitOptions
from truelike.errors import DivergedError, ParameterError
from truelike.evaluation.metrics import is_metric_at_k
from truelike.models.base import Recommender
from truelike.models.dot_product import DotProductScorer
from truelike.models.scorer import Scorer
from truelike.ranking.top_k import check_scores

ALLOWED = tuple(map(np.dtype, TYPES.values()))  # of arrays that are saved
STEPS = "Try smaller steps, or more regularization."


@dataclass(kw_only=True, eq=False, repr=False)
class EpochRecommender(Recommender):
    """Base class of a model of your own that is trained in epochs.

    You write two methods: `initial_arrays` returns the arrays that are learned, and `run_epoch` trains them. The
    arrays are the whole state of the training. The rest comes with them: the best epoch on validation is kept,
    training stops early, `history_`, progress, callbacks, checkpoints, `partial_fit`, files.

    An array whose name begins with `user_` has a row for each user, one whose name begins with `item_` a row for each
    item. With `user_vectors`, `item_vectors` and maybe `item_bias` the scores are dot products. For any other scores,
    write a third method, `make_scorer`.

    Parameters
    ----------
    epochs : int, default 20
        Maximum number of epochs.
    metric : str, default 'ndcg@20'
        Validation metric whose best epoch is kept.
    patience : int or None, default 10
        Stop after this many epochs without a better one; None: never. Training never stops before it ranks better
        than item popularity.
    seed : int, default 0
        Seed. It alone decides the result.
    n_jobs : int or None, default -1
        Number of threads of the evaluation after each epoch; -1: all cores.

    Attributes
    ----------
    arrays_
        The learned arrays by name.
    history_
        A frame with one row per epoch: epoch, seconds, loss and each validation metric.
    search_history_
        The history of the search for the number of epochs, if `validation` was a share; otherwise None.

    Examples
    --------
    Matrix factorization by gradient steps on the squared error of all pairs:

    >>> from dataclasses import dataclass
    >>> import numpy as np, truelike as tl
    >>> @dataclass(kw_only=True, eq=False, repr=False)
    ... class SquaredMF(tl.EpochRecommender):
    ...     factors: int = tl.parameters.whole_number(8, low=1)
    ...     learning_rate: float = tl.parameters.number(0.05, low=0.0)
    ...
    ...     def initial_arrays(self, train, rng):
    ...         return {
    ...             "user_vectors": rng.normal(0, 0.1, (train.n_users, self.factors)),
    ...             "item_vectors": rng.normal(0, 0.1, (train.n_items, self.factors)),
    ...         }
    ...
    ...     def run_epoch(self, train, arrays, epoch, rng):
    ...         U, V = arrays["user_vectors"], arrays["item_vectors"]
    ...         error = (train.matrix > 0) - U @ V.T
    ...         U += self.learning_rate * error @ V
    ...         V += self.learning_rate * error.T @ U
    ...         return np.mean(error**2)
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=200, n_items=100).dataset(), seed=0)
    >>> model = SquaredMF(epochs=30).fit(split)
    >>> model.history_.columns[:3], model.recommend([0, 1], k=2).height
    (['epoch', 'seconds', 'loss'], 4)
    """

    iterative: ClassVar[bool] = True
    scores_by_vectors: ClassVar[bool] = True

    epochs: int = whole_number(20, low=0)
    metric: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_metric_at_k)
    patience: int | None = whole_number(10, low=1, optional=True)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    # --- what a model implements ----------------------------------------------------------------

    @abstractmethod
    def initial_arrays(self, train: Dataset, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Return the arrays before the first epoch, by name.

        Parameters
        ----------
        train
            The training data.
        rng
            Random numbers of the seed.
        """

    @abstractmethod
    def run_epoch(
        self, train: Dataset, arrays: dict[str, NDArray[Any]], epoch: int, rng: np.random.Generator
    ) -> float | None:
        """Train the arrays in place, and return the loss for `history_`, or None.

        The model itself must not change. Matrix products run on one thread, so that the seed alone decides the result.

        Parameters
        ----------
        train
            The training data.
        arrays
            The arrays by name. One may be replaced by another of the same shape and dtype.
        epoch
            Number of the epoch, from 0.
        rng
            Random numbers of the seed and the epoch, so that a training that was stopped can continue.
        """

    # --- what a model may implement -------------------------------------------------------------

    def make_scorer(self, train: Dataset, arrays: dict[str, NDArray[Any]]) -> Scorer:
        """Return what answers by the arrays. It must not refer to the model.

        Default: a `DotProductScorer` of `user_vectors`, `item_vectors` and, if there is one, `item_bias`.
        """
        lacking = {"user_vectors", "item_vectors"} - set(arrays)
        if lacking:
            raise ParameterError(
                f"{self.name}.initial_arrays returned no {' and no '.join(sorted(lacking))}, whose dot products are "
                "the scores. Return them, or implement make_scorer for other scores."
            )
        return DotProductScorer(train, arrays["user_vectors"], arrays["item_vectors"], arrays.get("item_bias"))

    # --- what follows ---------------------------------------------------------------------------

    @final
    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        return _learned(fit_epochs(_Trainer(self), train, options), train)

    @final
    def _update(
        self, train: Dataset, users: Codes, items: Codes, epochs: int, progress: bool
    ) -> Mapping[str, Any]:
        trainer = _Trainer(self)
        trained = trainer.initial(train)
        fresh, known = trained.named, self.arrays_
        if _forms(fresh, of_rows=True) != _forms(known, of_rows=True):
            raise ParameterError(
                f"{self.name} cannot continue with more users and items: initial_arrays returned {_forms(known)}, and "
                f'now {_forms(fresh)}. Begin the name of an array with a row for each user with "user_", and for each '
                'item with "item_"; or set supports_partial_fit = False in the class.'
            )
        for name, array in fresh.items():
            rows = {"user": users, "item": items}.get(_side(name), ...)
            array[rows] = known[name]
        return _learned(continue_epochs(trainer, train, trained, epochs, progress=progress), train)

    @final
    def _of_users(self, train: Dataset, users: Codes) -> Mapping[str, Any]:
        of_rows = {name: array[users] for name, array in self.arrays_.items() if _side(name) == "user"}
        return {"arrays_": {**self.arrays_, **of_rows}}

    @final
    def _make_scorer(self) -> Scorer:
        scorer: object = self.make_scorer(self.train_, self.arrays_)
        if not isinstance(scorer, Scorer):
            raise TypeError(
                f"{self.name}.make_scorer returned a {type(scorer).__name__}; it must return a tl.Scorer, as "
                "tl.DotProductScorer(train, user_vectors, item_vectors)"
            )
        scores = scorer.score_users(np.zeros(1, dtype=np.int32))
        check_scores(scores, (1, self.train_.n_items))
        if np.isnan(scores).any():
            raise DivergedError(f"{self.name}: make_scorer returned a scorer that scores items with NaN")
        return scorer

    @final
    def _arrays(self) -> dict[str, NDArray[Any]]:
        return dict(self.arrays_)

    @final
    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        _check_arrays(self, arrays, train)
        return {"arrays_": arrays}


@dataclass
class _NamedArrays:
    """The arrays of a model, as the loop asks for them."""

    named: Arrays

    def arrays(self) -> Arrays:
        return self.named

    def take(self, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> None:
        self.named = {name: arrays[f"{prefix}{name}"] for name in self.named}

    def copy(self) -> Self:
        return type(self)({name: array.copy() for name, array in self.named.items()})

    def largest(self) -> float:
        return float(np.max([np.abs(array).max(initial=0) for array in self.named.values()]))


class _Engine(ArrayEngine):
    """Runs the epochs of a model, and refuses what the loop cannot continue with."""

    def __init__(self, model: EpochRecommender, train: Dataset, trained: _NamedArrays) -> None:
        self.model, self.train, self.trained, self.last = model, train, trained, math.nan

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        model, arrays = self.model, self.trained.named
        before, rng = _forms(arrays), _generator(model, "epoch", number)
        with one_blas_thread():
            loss: object = model.run_epoch(self.train, arrays, number, rng)
        if loss is not None and not isinstance(loss, Real):
            raise TypeError(
                f"{model.name}.run_epoch returned a {type(loss).__name__}; it must train the arrays in place and "
                "return the loss, a number, or None"
            )
        if _forms(arrays) != before:
            raise ParameterError(
                f"{model.name}.run_epoch changed the arrays from {before} to {_forms(arrays)}; names, shapes and "
                'dtypes must stay. Write into an array, as arrays["user_vectors"][:] = ...'
            )
        if loss is not None and not math.isfinite(loss):
            raise DivergedError(f"{model.name} diverged: run_epoch returned a loss of {loss}. {STEPS}")
        self.last = math.nan if loss is None else float(loss)

    def loss(self) -> float:
        return self.last

    def state(self) -> Arrays:
        return {f"trained.{name}": array for name, array in self.trained.named.items()}


@dataclass(frozen=True)
class _Trainer(Trainer[_NamedArrays]):
    model: EpochRecommender
    limit: ClassVar[float] = math.inf  # an array may hold counts

    def initial(self, train: Dataset) -> _NamedArrays:
        with one_blas_thread():
            arrays = self.model.initial_arrays(train, _generator(self.model, "initial"))
        _check_arrays(self.model, arrays, train)
        trained = _NamedArrays({name: array.copy() for name, array in arrays.items()})
        _ = self.ranker(train, trained).scorer  # fails before training if it cannot be made
        return trained

    def engine(self, train: Dataset, trained: _NamedArrays) -> _Engine:
        return _Engine(self.model, train, trained)

    def ranker(self, train: Dataset, trained: _NamedArrays) -> EpochRecommender:
        return self.model.with_learned(train, {"arrays_": trained.named})

    def identity(self) -> Mapping[str, object]:
        return {"class": type(self.model).__name__, **self.model._saved_parameters()}

    def advice(self) -> str:
        return f"in the arrays that run_epoch trains. {STEPS}"


def _learned(result: Result[_NamedArrays], train: Dataset) -> dict[str, Any]:
    return {"arrays_": result.trained.named, **result.histories(train.library)}


def _generator(model: EpochRecommender, *stream: int | str) -> np.random.Generator:
    return np.random.default_rng(randomness.key(model.seed, *stream))


def _side(name: str) -> str:
    """What an array has a row for, by its name: "user", "item" or nothing."""
    side, underscore, _ = name.partition("_")
    return side if underscore and side in ("user", "item") else ""


def _forms(arrays: Mapping[str, Any], *, of_rows: bool = False) -> dict[str, str]:
    """The type, dtype and shape of each array in words; `of_rows`: of its rows, where a row is a user or an item."""
    found = {}
    for name, array in arrays.items():
        if isinstance(array, np.ndarray):
            shape = array.shape[1:] if of_rows and _side(name) else array.shape
            found[name] = f"{array.dtype} {shape}"
        else:
            found[name] = type(array).__name__
    return found


def _check_arrays(model: EpochRecommender, arrays: object, train: Dataset) -> None:
    """Raise an error that names what is wrong with the initial or the saved arrays of a model."""
    hook = f"{model.name}.initial_arrays returned"
    if not isinstance(arrays, dict) or not arrays or not all(isinstance(name, str) for name in arrays):
        raise TypeError(
            f'{hook} a {type(arrays).__name__}; it must return arrays by name, as {{"user_vectors": ...}}'
        )
    rows = {"user": train.n_users, "item": train.n_items}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{hook} {name!r} as a {type(array).__name__}; it must be a NumPy array")
        if array.dtype not in ALLOWED:
            raise TypeError(f"{hook} {name!r} with dtype {array.dtype}; it must be of real numbers, as float32")
        side = _side(name)
        if side and array.shape[:1] != (rows[side],):
            raise ParameterError(
                f"{hook} {name!r} with shape {array.shape}; by its name it has a row for each of {rows[side]:,} {side}s"
            )
        if not np.isfinite(array).all():
            raise ParameterError(f"{hook} {name!r} with a number that is NaN or infinite")
