"""The contract of a recommender: parameters, `fit`, `partial_fit`, `save`; the answers are in `lists.py`.

A model implements how it learns (`_fit`), and what answers by what it learned (`_make_scorer`). What a model learns is
one mapping, which `fit` assigns at its end. So a fit that fails or is interrupted leaves the model as it was.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from truelike.cluster import Cluster, as_cluster
from truelike.core import parameters
from truelike.core.files import as_place
from truelike.core.parallel import threads
from truelike.core.progress import note
from truelike.data.blocks.blocks import Blocks
from truelike.data.checks import check_dataset, check_number, check_share, check_trainable, known_interactions
from truelike.data.dataset import Dataset
from truelike.data.frames import library_of, to_polars
from truelike.data.ids import Codes
from truelike.data.read import read
from truelike.data.splits import Split
from truelike.engines.callbacks import readable_seconds
from truelike.engines.options import Callback, FitOptions, HeldOut
from truelike.errors import DataWarning, NotFittedError, ParameterError, StorageError, TrainingWarning, warn
from truelike.models.availability import available_if
from truelike.models.lists import Answers
from truelike.models.scorer import Scorer

INNER = ("train_", "_scorer", "_ties")  # what is kept beside the learned attributes
M = TypeVar("M", bound="Recommender")
LONG = 600.0  # seconds of a fit, above which `fit` says how long it is expected to take


@dataclass(kw_only=True, eq=False, repr=False)
class Recommender(Answers):
    """Base class of all models.

    Constructors take keyword-only parameters, check them and store them. `fit` returns self and always starts from
    scratch. Learned attributes end in an underscore. Methods take and return the caller's own ids.

    These are the parameters that several models have. The docstrings of models get them by
    `with_inherited_parameters`.

    Parameters
    ----------
    weighting : {'none', 'log', 'linear'}, default 'none'
        How the weight of a pair counts, which is the number of its rows or the sum of their weights: not at all, as
        log(1 + weight), or as it is.
    recency : {'none', 'user', 'global'}, default 'none'
        Whether new interactions count more than old ones; the training data must have times then. The age of an
        interaction is for "user" the share of the user's interactions that are later, for "global" the time to the
        last interaction of all, as a share of the time span of the training data.
    half_life : float, default 0.5
        The age at which an interaction counts half.
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
        Number of threads; -1: all cores. Never changes the result.
    """

    # ranges that a search goes through by default: (low, high) is a range, a list is a choice
    search_space: ClassVar[dict[str, Any]] = {}
    iterative: ClassVar[bool] = False  # trained epoch by epoch: uses validation, callbacks and checkpoints
    # what `fit` uses of a dataset beside interactions: "shown", "times", "kinds", "item_features", "user_features"
    uses: ClassVar[frozenset[str]] = frozenset()
    trains_on_blocks: ClassVar[bool] = False  # block by block, also on a cluster
    supports_partial_fit: ClassVar[bool] = True

    def __new__(cls, *positional: Any, **given: Any) -> Self:
        """Check the names of the parameters, and remember which were given."""
        if positional:
            raise TypeError(f"{cls.__name__} takes its parameters by keyword, e.g. {cls.__name__}(seed=0)")
        parameters.check_names(cls, given)
        model = super().__new__(cls)
        vars(model)["_given"] = frozenset(given)
        return model

    @final
    def __post_init__(self) -> None:
        parameters.check(self)
        self._complete()

    # --- what a model implements ----------------------------------------------------------------

    @abstractmethod
    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        """Learn from the training data; returns the learned attributes by name. Must not change the model."""

    @abstractmethod
    def _make_scorer(self) -> Scorer:
        """What answers in row numbers, from the learned attributes. It must not refer to the model."""

    # --- what a model may implement -------------------------------------------------------------

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """The learned arrays by name, for saving. Default: every learned attribute, which must be an array."""
        learned = {name: value for name, value in self.learned.items() if name != "choice_"}
        if library_of(learned.get("history_")) is not None:  # it is saved as text
            del learned["history_"]
        for name, value in learned.items():
            if not isinstance(value, np.ndarray):
                raise StorageError(
                    f"{self.name}: {name} is a {type(value).__name__}; only arrays are saved. Implement _arrays and "
                    "_restore to save it as arrays."
                )
        return {name.rstrip("_"): value for name, value in learned.items()}

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        """The learned attributes from saved arrays: the inverse of `_arrays`."""
        return {f"{name}_": array for name, array in arrays.items()}

    def _update(
        self, train: Dataset, users: Codes, items: Codes, epochs: int, progress: bool
    ) -> Mapping[str, Any]:
        """Learn from the training data with more interactions; old user n is now users[n], old item n items[n].

        Default: learn from the start.
        """
        return self._fit(train, FitOptions(progress=progress))

    def _of_users(self, train: Dataset, users: Codes) -> Mapping[str, Any]:
        """The learned attributes that have a row for each user, of some users, whose training data is `train`.

        Default: nobody can be forgotten.
        """
        raise ParameterError(
            f"{self.name} cannot forget users. Fit it again on data without them: "
            "model.fit(model.train_.without_users(users))"
        )

    def _known_data(self) -> Dataset | Blocks:
        """The training data that `partial_fit` adds to. May implement, for what a saved model has of it elsewhere."""
        return self.train_

    def _part_train(self, train: Dataset) -> Dataset:
        """The training data of the fitted models that this one is made of. Default: its own."""
        return train

    def _complete(self) -> None:
        """Check parameters that depend on each other, and set those that follow from others."""
        return

    def _shown_parameters(self) -> dict[str, Any]:
        """The parameters that `repr` shows. Default: those that differ from their defaults."""
        return parameters.changed(self)

    def _check_data(self, train: Dataset) -> None:
        """Raise if the model cannot be fitted to some data, before anything is computed."""
        return

    def _check_blocks(self, train: Blocks) -> None:
        """Raise if a model that trains on blocks cannot be fitted to some with its parameters."""
        return

    def _expected_seconds(self, train: Dataset) -> float:
        """The seconds that `fit` is expected to take on two cores, about. It must not depend on the machine."""
        return 0.0

    def _counts_weights(self) -> bool:
        """Whether the weights and repeated rows of the training data count."""
        return getattr(self, "weighting", "none") != "none"

    def _check_changes(self, given: Mapping[str, Any]) -> None:
        """Raise if some parameters of a constructed model cannot be changed."""
        return

    def _saved_parameters(self) -> dict[str, Any]:
        """The parameters as they are written to a file: plain values only."""
        return self.get_params()

    # --- fitting --------------------------------------------------------------------------------

    @final
    def fit(
        self,
        train: Dataset | Split | Blocks,
        *,
        validation: HeldOut = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
        checkpoint_epochs: int = 10,
        checkpoint_minutes: float = 5.0,
        resume: bool = False,
        progress: bool = True,
        cluster: str | Cluster | None = None,
    ) -> Self:
        """Learn from a dataset, from scratch, and return self.

        Parameters
        ----------
        train : Dataset, Split or Blocks
            Training data. Of a split, the training part and the validation part are used. Of the blocks of a directory
            (`tl.blocks.open`), models with `trains_on_blocks` have one at a time in memory; others have all. What else
            the data carries (impressions, features) is used by models that name it in `uses`.
        validation : Dataset or float, optional
            Held-out interactions: the best epoch by `metric` is kept, and training stops after `patience` epochs
            without a better one. Or a share such as 0.1: this share of the interactions is held out to find the
            number of epochs (its history is `search_history_`); then the model is trained on all interactions for
            as many epochs. Models that are not trained in epochs ignore it.
        callbacks : sequence of functions
            Called after each epoch with the `State` of the training; one may set `state.stop`.
        checkpoint : path, optional
            Directory for checkpoints, written every `checkpoint_epochs` epochs or `checkpoint_minutes` minutes.
        resume : bool
            Continue from the checkpoint if there is one. The result is the same to the bit.
        progress : bool
            Show progress: a bar in terminals and notebooks, lines of the logger "truelike" elsewhere.
        cluster : str or Cluster, optional
            Train on blocks on a Ray cluster: "local" starts one on this machine, "auto" takes the one that this
            machine belongs to, or its address. `tl.Cluster` has more options. The result is the same to the bit.
        """
        parameters.check(self)
        if isinstance(train, Split):
            if validation is None and train.validation.n_interactions:
                validation = train.validation
            train = train.train
        check_dataset(train, "fit")
        check_trainable(train)
        cluster = as_cluster(cluster)
        data, cluster = self._trainable(train, cluster, validation)
        check_number("checkpoint_epochs", checkpoint_epochs, low=1, whole=True)
        check_number("checkpoint_minutes", checkpoint_minutes, low=0)
        if not (isinstance(callbacks, Sequence) and all(map(callable, callbacks))):
            raise ParameterError(f"callbacks is {callbacks!r}; it must be a list of functions")
        if isinstance(validation, Real):
            check_share("validation", validation)
            validation = float(validation)
        elif validation is not None:
            validation = known_interactions(validation, data)
        options = FitOptions(
            validation=validation,
            callbacks=tuple(callbacks),
            checkpoint=None if checkpoint is None else as_place(checkpoint),
            checkpoint_epochs=checkpoint_epochs,
            checkpoint_minutes=checkpoint_minutes,
            resume=resume,
            progress=progress,
            cluster=cluster,
        )
        check_options(self, options)
        _note_what_does_not_count(self, data)
        self._check_data(data)
        _warn_of_time(self, data)
        self._assign(data, self._fit(data, options))
        return self

    @final
    @available_if(lambda model: model.supports_partial_fit)
    def partial_fit(self, more: Any, *, epochs: int = 5, progress: bool = True) -> Self:
        """Continue from the learned parameters with more interactions; new users and items are added.

        The interactions are added to the training data. Those of a user, an item and a time that are there already,
        such as the same night once more, are left out, with a warning; so are the rows of other kinds. A refund takes
        back what is in `more`, not what is in the training data. Models that are trained in epochs are trained on
        all of it for a few more; the others are computed again. A model that was never fitted is fitted.

        Parameters
        ----------
        more
            Anything that `tl.read` takes.
        epochs
            Number of epochs.
        progress
            Show progress.
        """
        check_number("epochs", epochs, low=0, whole=True)
        more = more if isinstance(more, (Dataset, Blocks)) else read(more)
        if not self._is_fitted:
            self.fit(more, progress=progress)
            return self
        known = self._known_data()
        if isinstance(known, Blocks) or isinstance(more, Blocks):
            raise ParameterError(
                f"{self.name} was trained on blocks, or is to be, and partial_fit takes a Dataset. Build the blocks of "
                "all interactions, and fit again."
            )
        users, items = known.users.union(more.users), known.items.union(more.items)
        old, new = known.recode(users, items)[0], more.recode(users, items)[0]
        train = old.merge(_not_repeated(new, old))
        old_users, old_items = users.codes(known.users.values), items.codes(known.items.values)
        self._check_data(train)
        self._assign(train, self._update(train, old_users, old_items, epochs, progress))
        return self

    @final
    def _assign(self, train: Dataset, learned: Mapping[str, Any], ties: Codes | None = None) -> None:
        """Replace the learned state, in one step. `ties` are those of the scorer where `train` does not tell them."""
        if not isinstance(learned, Mapping):
            raise TypeError(
                f"{self.name}._fit returned a {type(learned).__name__}; it must return the learned attributes by name"
            )
        learned = {name: value for name, value in learned.items() if name not in INNER}
        self._state = {"train_": train, "_ties": ties, **learned}

    @final
    def forget_users(self, users: Any) -> Self:
        """Remove some users from a fitted model, and return self. What it answers of all others stays the same.

        Their ids, their interactions and what was learned of each of them are gone; a model that is saved then has no
        trace of the ids. The lists and scores of all other users, and similar items, are the same to the bit. What the
        users' interactions taught of items stays until the next training. Lists for a history, and explanations by
        them, may change by as much as a few users matter, because some constants follow from the training data.

        Networks and models of impressions have to be fitted again, which the error says.

        Parameters
        ----------
        users
            One id or many, all of which are in the training data.

        Examples
        --------
        >>> import truelike as tl
        >>> model = tl.EASE().fit(tl.synthetic.World(n_users=50, n_items=40).dataset())
        >>> before = model.recommend(4)
        >>> model.forget_users([3, 7]).recommend(4).equals(before), 3 in model.train_.users
        (True, False)
        """
        if isinstance(self.train_, Blocks):
            raise ParameterError(
                f"{self.name} was trained on blocks, which have the users. Build them again without these users, and "
                "fit again."
            )
        kept = np.ones(self.train_.n_users, dtype=bool)
        kept[self.train_.users.known(users)] = False
        if not kept.any():
            raise ParameterError("all users of the model were named. Delete the model instead.")
        train = self.train_.restrict(kept, np.ones(self.train_.n_items, dtype=bool))
        self._state = self.of_users(train, np.flatnonzero(kept).astype(np.int32))._state
        return self

    @final
    def of_users(self, train: Dataset, users: Codes) -> Self:
        """A copy that knows some users alone, whose training data these are: `forget_users` in row numbers."""
        copy = clone(self)
        copy._assign(train, {**self.learned, **self._of_users(train, users)}, self.scorer.ties)
        return copy

    @final
    def _trainable(
        self, train: Dataset | Blocks, cluster: Cluster | None, validation: Any
    ) -> tuple[Any, Cluster | None]:
        """The training data and the cluster as `_fit` takes them. Blocks become a Dataset where they must."""
        if cluster is not None and not self.trains_on_blocks:
            raise ParameterError(
                f"{self.name} is trained in one process: its data and its tables must fit into the memory of one "
                "machine. Leave cluster out, or train IALS on the cluster."
            )
        if isinstance(train, Dataset):
            if cluster is not None:
                raise ParameterError(
                    "a cluster trains on a block directory, and a Dataset was given. Write one with "
                    "tl.blocks.build(data, directory, blocks=...), or with `truelike blocks` from files."
                )
            return train, None
        if not self.trains_on_blocks or len(train) == 1:
            if cluster is not None:
                note("one block is trained in this process, as a Dataset is; use more blocks for a cluster")
            return train.to_dataset(), None
        self._check_blocks(train)
        if isinstance(validation, Real):
            raise ParameterError(
                f"validation is {validation}, and a share of several blocks cannot be held out while training. Hold "
                "interactions out when the blocks are built, and pass them as a Dataset."
            )
        return train, cluster

    @final
    def expected_seconds(self, train: Dataset) -> float:
        """The seconds that `fit` is expected to take on two cores, about; they do not depend on the machine."""
        return self._expected_seconds(train)

    # --- models that are made of others ---------------------------------------------------------

    @final
    def fit_with(self, train: Dataset, options: FitOptions) -> Self:
        """`fit` with options that are checked already, and without its notes and warnings."""
        check_options(self, options)
        self._check_data(train)
        self._assign(train, self._fit(train, options))
        return self

    @final
    def with_learned(self, train: Dataset, learned: Mapping[str, Any]) -> Self:
        """A copy of this model with other learned attributes."""
        copy = clone(self)
        copy._assign(train, learned)
        return copy

    @final
    def with_train(self, train: Dataset) -> Self:
        """A copy of this fitted model with its training data in another form: other titles, or in memory."""
        parts = {name: each for name, each in self.learned.items() if isinstance(each, Recommender)}
        of_parts = self._part_train(train) if parts else train
        copy = clone(self)
        learned = {**self.learned, **{name: each.with_train(of_parts) for name, each in parts.items()}}
        copy._assign(train, learned, vars(self)["_state"]["_ties"])
        return copy

    @final
    def updated(self, train: Dataset, users: Codes, items: Codes, epochs: int, progress: bool) -> Self:
        """A copy that continued to learn: `partial_fit` in row numbers, where old user n is users[n]."""
        if not self.supports_partial_fit:
            raise ParameterError(f"{self.name} has no partial_fit: fit again on all data")
        return self.with_learned(train, self._update(train, users, items, epochs, progress))

    @final
    @property
    def learned(self) -> dict[str, Any]:
        """The learned attributes by name, without the training data; empty before `fit`."""
        return {name: value for name, value in vars(self).get("_state", {}).items() if name not in INNER}

    @final
    @property
    def given(self) -> frozenset[str]:
        """The names of the parameters that the constructor was given."""
        names: frozenset[str] = vars(self)["_given"]
        return names

    # --- parameters and state -------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the model in tables."""
        return type(self).__name__

    @final
    @property
    def scorer(self) -> Scorer:
        """What the fitted model answers in row numbers: see `tl.Scorer`."""
        if not self._is_fitted:
            raise NotFittedError(f"{type(self).__name__} has no scorer yet: call fit(train) first")
        state = vars(self)["_state"]
        if "_scorer" not in state:
            state["_scorer"] = self._make_scorer()
            if state["_ties"] is not None:
                state["_scorer"].order_ties(state["_ties"])
        found: Scorer = state["_scorer"]
        return found

    @final
    @property
    def _is_fitted(self) -> bool:
        return "_state" in vars(self)

    @final
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name. `deep` is accepted for compatibility with scikit-learn."""
        return parameters.parameters_of(self)

    @final
    def set_params(self, **given: Any) -> Self:
        """Change parameters and return self.

        A fitted model is no longer fitted then, unless only `n_jobs` changes.
        """
        changed = clone(self, **given)
        own = {**vars(self), **{name: getattr(changed, name) for name in given}}
        if any(value != getattr(self, name) for name, value in changed.get_params().items() if name != "n_jobs"):
            own.pop("_state", None)
        self.__dict__ = own  # in one step, as `fit`
        return self

    @final
    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self._shown_parameters().items())
        return f"{type(self).__name__}({shown})"

    def __getattr__(self, name: str) -> Any:
        # called only for attributes that are not found otherwise: the learned ones are in _state
        state = vars(self).get("_state", {})
        if name in state:
            return state[name]
        if name == "scorer" and state:
            return self._make_scorer()  # for its error, which the property hides
        learned = name == "scorer" or (name.endswith("_") and not name.startswith("_"))
        if learned and not state:
            raise NotFittedError(f"{type(self).__name__} has no {name} yet: call fit(train) first")
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        learned = vars(self).get("_state", {})
        return sorted({*super().__dir__(), *(name for name in learned if not name.startswith("_"))})

    @final
    def set_titles(self, titles: Any) -> Self:
        """Set the titles of items, in any form that `Dataset.with_titles` takes, and return self."""
        self._state = self.with_train(self.train_.with_titles(titles))._state
        return self

    # --- saving ---------------------------------------------------------------------------------

    @final
    def save(self, directory: str | Path, *, metrics: Mapping[str, float] | None = None) -> None:
        """Write the model as a directory, whole or not at all; read it with `tl.load`."""
        from truelike.storage import write_model

        model = self._written()
        choice = self.learned.get("choice_")
        about = {
            "class": type(model).__name__,
            "parameters": model._saved_parameters(),
            **({} if choice is None else {"choice": choice._asdict()}),
            **model._saved_history(),
        }
        ties = vars(model)["_state"]["_ties"]
        write_model(directory, about, model._arrays(), model.train_, metrics or {}, ties)

    def _saved_history(self) -> dict[str, Any]:
        """The history of the training as plain columns; of a model that has none, nothing."""
        history = self.learned.get("history_")
        if history is None or library_of(history) is None:
            return {}
        names = history.column_names if library_of(history) == "pyarrow" else history.columns
        columns = to_polars(history, names).to_dict(as_series=False)
        finite = {
            name: [value if value is None or math.isfinite(value) else None for value in values]
            for name, values in columns.items()
        }
        return {"history": finite}

    def _written(self) -> Recommender:
        """The model that is saved in place of this one. May implement."""
        _ = self.train_
        return self


def clone(model: M, **changed: Any) -> M:
    """A new model of the same class with the same parameters, not fitted; `changed` replaces some.

    >>> import truelike as tl
    >>> tl.clone(tl.BPR(factors=8, epochs=2), epochs=3)
    BPR(factors=8, epochs=3)
    """
    if not isinstance(model, Recommender):
        raise ParameterError(f"clone takes a model, not {type(model).__name__}")
    parameters.check_names(type(model), changed)
    model._check_changes(changed)
    return type(model)(
        **{**{f.name: getattr(model, f.name) for f in parameters.parameter_fields(model)}, **changed}
    )


def _not_repeated(new: Dataset, known: Dataset) -> Dataset:
    """New interactions, without those that are known already; a warning counts these."""
    found = new.without_repeated(known)
    if left_out := new.n_interactions - found.n_interactions:
        warn(
            f"{left_out:,} of {new.n_interactions:,} interactions have the user, the item and the time of one in the "
            "training data: they are the same, and left out",
            DataWarning,
        )
    return found


def check_options(model: Recommender, options: FitOptions) -> None:
    """Refuse options that a model cannot use."""
    if not model.iterative and (options.callbacks or options.checkpoint or options.resume):
        raise ParameterError(f"{model.name} is not trained in epochs: it has no callbacks, checkpoint or resume")
    if options.resume and options.checkpoint is None:
        raise ParameterError("resume=True needs checkpoint=, the directory to continue from")


def _note_what_does_not_count(model: Recommender, train: Dataset) -> None:
    """Say what the dataset has and a model does not use; warn of weights and repeated rows."""
    unused = sorted(train.carries - model.uses - {"times"})
    if unused:
        note(f"{model.name} does not use what the dataset has as {', '.join(unused)}")
    if train.has_weights and not model._counts_weights():
        remedy = '. Pass weighting="log" to count them.' if hasattr(model, "weighting") else ""
        warn(
            f"{model.name} uses whether a pair was observed, not how often: the weights and repeated rows of the "
            f"training data do not count{remedy}",
            DataWarning,
        )


def _warn_of_time(model: Recommender, train: Dataset) -> None:
    """Warn before a fit that would take more than LONG seconds, with what would be faster."""
    from truelike.models.ials import IALS

    expected = model.expected_seconds(train) * 2 / threads(getattr(model, "n_jobs", 2))
    if expected > LONG:
        sooner = f"IALS takes about {readable_seconds(IALS().expected_seconds(train))} on two cores."
        long = readable_seconds(expected)
        warn(f"{model.name} is expected to take about {long} on {train!r}. {sooner}", TrainingWarning)
