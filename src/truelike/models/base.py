"""The contract of a recommender.

`fit` and the methods that answer are written here, once, for all models. A model implements how it learns (`_fit`),
how it scores all items for a block of users (`_score_block`) and for histories of new users (`_score_histories`), and
how similar items are (`_similarity_block`).

What a model learns is one mapping, which `fit` assigns at its end. So a fit that fails or is interrupted leaves the
model as it was.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike import parameters
from truelike.cluster import Cluster, as_cluster
from truelike.data.blocks.blocks import Blocks
from truelike.data.checks import check_dataset, check_number, check_share, check_trainable, known_interactions
from truelike.data.dataset import Dataset
from truelike.data.frames import Library, library_of, to_native, to_polars, to_series
from truelike.data.ids import Codes, Ids, normalise, one_or_many
from truelike.data.interactions import read
from truelike.data.splits import Split
from truelike.errors import DataWarning, NotFittedError, ParameterError, StorageError, TrainingWarning, some, warn
from truelike.exposure.impressions import impressions_of_split
from truelike.files import as_place
from truelike.models.availability import available_if
from truelike.models.explanations import MAX_BYTES_AT_ONCE, Contributions, most_similar
from truelike.models.fold_in import histories_of, rows_of
from truelike.parallel import threads
from truelike.progress import note
from truelike.ranking.factor_ranker import FactorRanker, factor_score_block
from truelike.ranking.top_k import TopK, check_users, no_items, top_k_by_scores
from truelike.training.callbacks import readable_seconds
from truelike.training.options import Callback, FitOptions, HeldOut

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Floats = NDArray[np.float32]
Frame: TypeAlias = "pl.DataFrame | pd.DataFrame | pa.Table"  # of the library that the training data came in
OnUnknown = Literal["raise", "popular", "skip"]
AVERAGED_USERS = 200  # users whose mean scores are those of a user without interactions
LONG = 600.0  # seconds of a fit, above which `fit` says how long it is expected to take


class DotProduct(NamedTuple):
    """Vectors whose dot product, plus the bias of the item, is the score."""

    users: Floats
    items: Floats
    bias: Floats | None


@dataclass(kw_only=True, eq=False, repr=False)
class Recommender(ABC):
    """Base class of all models.

    Constructors take keyword-only parameters, check them and store them. `fit` returns self and always starts from
    scratch. Learned attributes end in an underscore. Methods take and return the caller's own ids.
    """

    # ranges that a search goes through by default: (low, high) is a range, a list is a choice
    search_space: ClassVar[dict[str, Any]] = {}
    iterative: ClassVar[bool] = False  # trained epoch by epoch: uses validation, callbacks and checkpoints
    takes_impressions: ClassVar[bool] = False
    trains_on_blocks: ClassVar[bool] = False  # block by block, also on a cluster
    takes_features: ClassVar[tuple[str, ...]] = ()  # of whom: "user", "item"
    supports_partial_fit: ClassVar[bool] = True

    def __new__(cls, *positional: Any, **given: Any) -> Self:
        """Check the names of the parameters, and remember which were given."""
        if positional:
            raise TypeError(f"{cls.__name__} takes its parameters by keyword, e.g. {cls.__name__}(seed=0)")
        parameters.check_names(cls, given)
        model = super().__new__(cls)
        vars(model)["_given"] = frozenset(given)
        return model

    def __post_init__(self) -> None:
        parameters.check(self)

    # --- what a model implements ----------------------------------------------------------------

    @abstractmethod
    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        """Learn from the training data; returns the learned attributes by name. Must not change the model."""

    @abstractmethod
    def _score_block(self, users: Codes) -> Floats:
        """Scores of all items for some users: a new array (len(users), n_items)."""

    @abstractmethod
    def _score_histories(self, histories: Any) -> Floats:
        """Scores of all items for new users, each of whom is a row of a CSR of interactions."""

    @abstractmethod
    def _similarity_block(self, items: Codes) -> Floats:
        """Similarity of all items to some items: a new array (len(items), n_items)."""

    # --- what a model may implement -------------------------------------------------------------

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """The learned arrays by name, for saving. Default: every learned attribute, which must be an array."""
        state = {name: value for name, value in vars(self).get("_state", {}).items() if not name.startswith("_")}
        learned = {name: value for name, value in state.items() if name not in ("train_", "choice_")}
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

    def _check_data(self, train: Dataset) -> None:
        """Raise if the model cannot be fitted to some data, before anything is computed."""
        return

    def _check_blocks(self, train: Blocks) -> None:
        """Raise if a model that trains on blocks cannot be fitted to some with its parameters."""
        return

    def _expected_seconds(self, train: Dataset) -> float:
        """The seconds that `fit` is expected to take on two cores, about. It must not depend on the machine."""
        return 0.0

    def _dot_product(self) -> DotProduct | None:
        """The vectors whose dot product is the score; None if the score is no dot product."""
        return None

    def _contributions(self, history: Codes, items: Codes, user: int | None) -> Contributions:
        """What each interaction contributes to the scores of some items; see `_explained`.

        The history is never empty. Default: what the scores lose without the interaction.
        """
        marked = most_similar(self._similarity_block, history, items)
        places = np.flatnonzero(marked.any(axis=0)).astype(np.int32)
        if len(history) == 1:
            found = np.stack([self._scores_of(history, items), self._scores_without_history(items)])
        else:
            found = self._left_out_scores(history, places, items)
        values = np.zeros(marked.shape, dtype=np.float32)
        values[:, places] = (found[0] - np.where(np.isfinite(found[1:]), found[1:], found[0])).T
        values[~(marked & np.isfinite(values))] = 0.0
        scores = found[0] if user is None else self._scores_of(history, items, user)
        return Contributions(values, scores, "leave_one_out")

    def _left_out_scores(self, history: Codes, places: Codes, items: Codes) -> Floats:
        """Scores of some items for a history, then for the history without the interaction at each of some places.

        An array (1 + len(places), len(items)); the history has two items or more. Default: by `_score_histories`.
        """
        rows = [history, *(np.delete(history, place) for place in places)]
        n_items = self.train_.n_items
        at_once = max(1, MAX_BYTES_AT_ONCE // (4 * n_items))
        blocks = (histories_of(rows[start : start + at_once], n_items) for start in range(0, len(rows), at_once))
        return np.concatenate([self._score_histories(block)[:, items] for block in blocks], dtype=np.float32)

    def _ranking(self) -> AbstractContextManager[None]:
        """A context for ranking by `_score_block`, which is called from several threads."""
        return nullcontext()

    def _tie_order(self) -> Codes | None:
        """All items in the order in which equal scores are ranked; None: by row number."""
        return None

    def _state_with(self, train: Dataset) -> dict[str, Any]:
        """The learned state with other training data, which differs from the present one in its titles only."""
        return {**vars(self)["_state"], "train_": train}

    def _counts_weights(self) -> bool:
        """Whether the weights and repeated rows of the training data count."""
        return False

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
        impressions: Any = None,
        user_features: Any = None,
        item_features: Any = None,
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
            (`tl.blocks.open`), models with `trains_on_blocks` have one at a time in memory; others have all.
        validation : Dataset or float, optional
            Held-out interactions: the best epoch by `metric` is kept, and training stops after `patience` epochs
            without a better one. Or a share such as 0.1: this share of the interactions is held out to find the
            number of epochs (its history is `search_history_`); then the model is trained on all interactions for
            as many epochs. Models that are not trained in epochs ignore it.
        impressions : optional
            What was shown to whom, for models that use it (`takes_impressions`). A Dataset whose weights are how
            often a pair was shown, anything that `tl.read` takes, or a frame with a column `propensity`.
        user_features, item_features : optional
            Tables of features, for models that use them (`takes_features`): a frame or the path of a CSV or Parquet
            file, with a column of ids and columns of words, lists of words, or numbers.
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
            impressions = impressions_of_split(train, impressions)
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
            impressions=impressions,
            user_features=user_features,
            item_features=item_features,
            callbacks=tuple(callbacks),
            checkpoint=None if checkpoint is None else as_place(checkpoint),
            checkpoint_epochs=checkpoint_epochs,
            checkpoint_minutes=checkpoint_minutes,
            resume=resume,
            progress=progress,
            cluster=cluster,
        )
        self._check_options(options)
        if not self._counts_weights():
            _warn_of_weights(data, self)
        self._check_data(data)
        self._warn_of_time(data)
        self._assign(data, self._fit(data, options))
        return self

    @final
    @available_if(lambda model: model.supports_partial_fit)
    def partial_fit(self, more: Any, *, epochs: int = 5, progress: bool = True) -> Self:
        """Continue from the learned parameters with more interactions; new users and items are added.

        The interactions are added to the training data. Models that are trained in epochs are trained on all of it
        for a few more; the others are computed again. A model that was never fitted is fitted.

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
        if "_state" not in vars(self):
            self.fit(more, progress=progress)
            return self
        known = self.train_
        if isinstance(known, Blocks) or isinstance(more, Blocks):
            raise ParameterError(
                f"{self.name} was trained on blocks, or is to be, and partial_fit takes a Dataset. Build the blocks of "
                "all interactions, and fit again."
            )
        users, items = known.users.union(more.users), known.items.union(more.items)
        train = known.recode(users, items)[0].merge(more.recode(users, items)[0])
        if known.titles is not None:
            train = train.with_titles(dict(zip(known.items.values, known.titles, strict=True)))
        old_users, old_items = users.codes(known.users.values), items.codes(known.items.values)
        self._check_data(train)
        self._assign(train, self._update(train, old_users, old_items, epochs, progress))
        return self

    @final
    def _assign(self, train: Dataset, learned: Mapping[str, Any]) -> None:
        """Replace the learned state, in one step."""
        if not isinstance(learned, Mapping):
            raise TypeError(
                f"{self.name}._fit returned a {type(learned).__name__}; it must return the learned attributes by name"
            )
        self._state = {"train_": train, **learned, "_cache": {}}

    @final
    def _fitted(self, train: Dataset, learned: Mapping[str, Any]) -> Self:
        """A copy of this model with other learned attributes."""
        copy: Self = clone(self)
        copy._assign(train, learned)
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
    def _check_options(self, options: FitOptions) -> None:
        """Refuse options that this model cannot use."""
        if options.impressions is not None and not self.takes_impressions:
            raise ParameterError(f"{self.name} does not use impressions. ImpressionMF does.")
        for side in ("user", "item"):
            if getattr(options, f"{side}_features") is not None and side not in self.takes_features:
                able = "FM and DeepRecommender do" if side == "user" else "FM, ACF and DeepRecommender do"
                raise ParameterError(f"{self.name} does not use {side}_features; {able}")
        if not self.iterative and (options.callbacks or options.checkpoint or options.resume):
            raise ParameterError(
                f"{self.name} is not trained in epochs: it has no callbacks, checkpoint or resume"
            )
        if options.resume and options.checkpoint is None:
            raise ParameterError("resume=True needs checkpoint=, the directory to continue from")

    # --- parameters and state -------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the model in tables."""
        return type(self).__name__

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
        if changed._result_params() != self._result_params():
            own.pop("_state", None)
        self.__dict__ = own  # in one step, as `fit`
        return self

    @final
    def _result_params(self) -> dict[str, Any]:
        """The parameters that decide the result."""
        return {name: value for name, value in self.get_params().items() if name != "n_jobs"}

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in parameters.changed(self).items())
        return f"{type(self).__name__}({shown})"

    def __getattr__(self, name: str) -> Any:
        # called only for attributes that are not found otherwise: the learned ones are in _state
        state = vars(self).get("_state", {})
        if name in state:
            return state[name]
        if name.endswith("_") and not name.startswith("_") and not state:
            raise NotFittedError(f"{type(self).__name__} has no {name} yet: call fit(train) first")
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        learned = vars(self).get("_state", {})
        return sorted({*super().__dir__(), *(name for name in learned if not name.startswith("_"))})

    # --- recommending ---------------------------------------------------------------------------

    @final
    def recommend(
        self,
        users: Any = None,
        k: int = 10,
        *,
        candidates: Any = None,
        exclude: Any = None,
        exclude_seen: bool = True,
        on_unknown: OnUnknown = "raise",
        titles: bool = False,
        n_jobs: int | None = -1,
    ) -> Frame:
        """Recommend the k best items for each user: a frame user_id, item_id, score, rank (from 1).

        Parameters
        ----------
        users
            One id or many; None: all users of the training data.
        k
            Number of items for each user. Fewer are returned if fewer are left.
        candidates
            Recommend only these items. Those that are not in the training data are skipped, with a warning.
        exclude
            Never recommend these items.
        exclude_seen
            Leave out the items that the user interacted with in the training data.
        on_unknown
            For a user who is not in the training data: "raise" an error, return the most "popular" items (their
            score is the share of users who interacted with them), or "skip" the user.
        titles
            Add a column `title`.
        n_jobs
            Number of threads; -1: all cores. Never changes the result.
        """
        self._check_list(k, on_unknown, titles, exclude_seen)
        library = library_of(users) or self.train_.library
        known = self.train_.users
        asked = one_or_many(known if users is None else users)
        codes = known.known(asked) if on_unknown == "raise" else known.codes(asked)
        allowed = self._allowed(candidates, exclude)
        best = self._lists(
            codes, k, exclude_seen=exclude_seen, allowed=allowed, on_unknown=on_unknown, n_jobs=n_jobs
        )
        return self._frame({"user_id": _echo(asked, known)}, best, titles, library)

    @final
    def recommend_to(
        self,
        path: str | Path,
        users: Any = None,
        k: int = 10,
        *,
        candidates: Any = None,
        exclude: Any = None,
        exclude_seen: bool = True,
        on_unknown: OnUnknown = "raise",
        titles: bool = False,
        n_jobs: int | None = -1,
        block_size: int | None = None,
        progress: bool = True,
        cluster: str | Cluster | None = None,
    ) -> int:
        """Write the lists of `recommend` to a file, block by block, and return the number of rows.

        For many users: one block is in memory at a time. The file appears when it is complete. If the process is
        killed while it writes a Parquet file, the same call continues after the last block that was written, and
        the file is the same. The blocks are kept in a directory beside the file until then.

        Parameters
        ----------
        path
            A .parquet, .csv, .tsv or .jsonl file. UUIDs are written as text.
        users, k, candidates, exclude, exclude_seen, on_unknown, titles, n_jobs
            As in `recommend`.
        block_size
            Number of users in a block; None: about 500,000 rows.
        progress
            Show progress: a bar in terminals and notebooks, lines of the logger "truelike" elsewhere.
        cluster
            Compute the blocks on a Ray cluster, as in `fit`; this process writes them. The file has the same bytes. For
            models whose score is a dot product.

        Examples
        --------
        >>> import tempfile, polars as pl, truelike as tl
        >>> model = tl.ItemPop().fit(tl.synthetic.World(n_users=50, n_items=40).dataset())
        >>> with tempfile.TemporaryDirectory() as place:
        ...     rows = model.recommend_to(place + "/lists.parquet", k=5)
        ...     pl.read_parquet(place + "/lists.parquet").equals(model.recommend(k=5)), rows
        (True, 250)
        """
        from truelike.models.batch import Lists, write_lists

        lists = Lists(
            self, users, k,
            candidates=candidates, exclude=exclude, exclude_seen=exclude_seen, on_unknown=on_unknown, titles=titles,
            n_jobs=n_jobs, block_size=block_size, cluster=as_cluster(cluster),
        )  # fmt: skip
        return write_lists(lists, path, progress=progress)

    @final
    def recommend_from_items(
        self,
        items: Any,
        k: int = 10,
        *,
        candidates: Any = None,
        exclude: Any = None,
        exclude_seen: bool = True,
        on_unknown: OnUnknown = "raise",
        titles: bool = False,
    ) -> Frame:
        """Recommend the k best items for new users, from the items that they interacted with.

        Parameters
        ----------
        items
            The history of one new user: a list of item ids. The result is a frame item_id, score, rank. Or the
            histories of many: a mapping from user to list of items, a list of lists (users 0, 1, ...), or a Dataset.
            The result then has a column user_id, too.
        k, candidates, exclude, exclude_seen, titles
            As in `recommend`; "seen" is the history.
        on_unknown
            For an item of a history that is not in the training data: "raise" an error or "skip" it. With
            "popular" it is skipped, and a history without a known item gets the most popular items.
        """
        self._check_list(k, on_unknown, titles, exclude_seen)
        library = library_of(items) or self.train_.library
        keys, histories = self._histories(items, on_unknown)
        allowed = self._allowed(candidates, exclude)
        best = no_items(histories.shape[0], min(k, self.train_.n_items))
        empty = np.diff(histories.indptr) == 0
        if on_unknown == "popular":
            best.items[empty], best.scores[empty] = self._popular(k, allowed)
        here = np.flatnonzero(~empty).astype(np.int32)
        found = top_k_by_scores(
            lambda rows: self._score_histories(histories[rows]),
            here,
            k,
            n_items=self.train_.n_items,
            seen=histories if exclude_seen else None,
            allowed=allowed,
            ties=self._tie_order(),
            n_jobs=1,
        )
        best.items[here], best.scores[here] = found
        return self._frame(keys, best, titles, library)

    @final
    def similar_items(
        self,
        items: Any,
        k: int = 10,
        *,
        candidates: Any = None,
        exclude: Any = None,
        on_unknown: OnUnknown = "raise",
        titles: bool = False,
        n_jobs: int | None = -1,
    ) -> Frame:
        """Find the k items most similar to each of some: a frame item_id, similar_item_id, score, rank."""
        self._check_list(k, on_unknown, titles)
        library = library_of(items) or self.train_.library
        asked = one_or_many(items)
        codes = self._item_codes(asked, on_unknown)
        allowed = self._allowed(candidates, exclude)
        here = np.flatnonzero(codes >= 0)
        n_items = self.train_.n_items
        best = no_items(len(codes), min(k, n_items))
        itself = sparse.eye_array(n_items, dtype=np.float32, format="csr")
        found = top_k_by_scores(
            self._similarity_block, codes[here], k,
            n_items=n_items, seen=itself, allowed=allowed, n_jobs=n_jobs,
        )  # fmt: skip
        best.items[here], best.scores[here] = found
        if on_unknown == "popular" and len(here) < len(codes):
            best.items[codes < 0], best.scores[codes < 0] = self._popular(k, allowed)
        keys = {"item_id": _echo(asked, self.train_.items)}
        return self._frame(keys, best, titles, library, column="similar_item_id")

    @final
    def explain(self, user: Any, items: Any, k: int = 10, *, titles: bool = False) -> Frame:
        """Explain the scores of some items by the interactions of a user.

        The result is a frame item_id, because_item_id, contribution, share, rank, method. It lists for each of
        `items` the k interactions of the user that contribute most to its score, the largest contribution first.

        The contributions of all interactions and a base add up to the score. The base is what does not depend on one
        interaction alone, such as the bias of the item. The share is the contribution, divided by the sum of the
        absolute contributions of all interactions of the user: absolute shares add up to 1, or are 0 if all
        contributions are.

        The method is "exact" where the score is a sum over the interactions: `ItemPop` (all is base), `ItemKNN`,
        `EASE`, `EDLAE`, `IALS`, and a `Blend` of two of them. For other models it is "leave_one_out": the score for a
        new user with these interactions, less the score for one without the interaction. Only the 100 interactions
        that are most similar to the item are left out; the others have the contribution 0.

        Parameters
        ----------
        user
            The id of a user. Without interactions the frame is empty.
        items
            One id or many.
        k
            Number of interactions for each item. Fewer are returned if there are fewer.
        titles
            Add the columns `title` and `because_title`.

        Examples
        --------
        >>> import truelike as tl
        >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
        >>> model = tl.EASE(regularization=1.0).fit(data)
        >>> model.explain("eve", "milk").select("item_id", "because_item_id", "share", "method").rows()
        [('milk', 'tea', 1.0, 'exact')]
        """
        self._check_list(k, "raise", titles)
        library = library_of(items) or self.train_.library
        codes = self.train_.users.known(user)
        if len(codes) != 1:
            raise ParameterError(f"explain takes one user: {len(codes):,} were given. Call it for each of them.")
        asked = self.train_.items.known(items)
        history = self._history_of(int(codes[0]))
        return self._explanation(history, asked, int(codes[0]), k, titles, library)

    @final
    def explain_from_items(
        self,
        history: Any,
        items: Any,
        k: int = 10,
        *,
        titles: bool = False,
        on_unknown: Literal["raise", "skip"] = "raise",
    ) -> Frame:
        """Explain the scores of some items for a new user, by the items that the user interacted with.

        The result is that of `explain`; the scores are those of `recommend_from_items`.

        Parameters
        ----------
        history
            The items that the new user interacted with: one id or many.
        items, k, titles
            As in `explain`.
        on_unknown
            For an item of the history that is not in the training data: "raise" an error or "skip" it.
        """
        self._check_list(k, on_unknown, titles)
        if on_unknown not in ("raise", "skip"):
            raise ParameterError(f'on_unknown is {on_unknown!r}; for explanations it must be "raise" or "skip"')
        if isinstance(history, (Dataset, Mapping)):
            kind = type(history).__name__
            raise ParameterError(
                f"explain_from_items takes the history of one user, a list of items; a {kind} was given"
            )
        library = library_of(items) or self.train_.library
        asked = self.train_.items.known(items)
        known = self._item_codes(one_or_many(history), on_unknown)
        return self._explanation(np.unique(known[known >= 0]), asked, None, k, titles, library)

    @final
    def _explained(self, history: Codes, items: Codes, user: int | None = None) -> Contributions:
        """`explain` in row numbers: what each interaction contributes to the scores of some items.

        Parameters
        ----------
        history
            The items of the interactions, sorted.
        items
            The items whose scores are explained.
        user
            The user of the training data whose interactions these are; the scores are then those of `score`. None:
            a new user; the scores are those of `recommend_from_items`.
        """
        if len(history) and len(items):
            return self._contributions(history, items, user)
        scores = self._scores_of(history, items, user) if len(items) else np.zeros(0, dtype=np.float32)
        return Contributions(np.zeros((len(items), len(history)), dtype=np.float32), scores, "exact")

    @final
    def score(self, users: Any, items: Any) -> Floats:
        """The score of each pair (users[n], items[n]); one user or one item is paired with all of the other."""
        return values_of_pairs(self._score_block, *self._pair_codes(users, items, "score"))

    @final
    @available_if(lambda model: model._scores_by_dot_product())
    def user_vectors(self) -> Frame:
        """The vectors of all users: a frame user_id, vector.

        The score of a pair is the dot product of the vectors of user and item, plus the item's bias.
        """
        vectors = self._vectors()
        return self._vector_frame("user_id", self.train_.users, vectors.users, None)

    @final
    @available_if(lambda model: model._scores_by_dot_product())
    def item_vectors(self) -> Frame:
        """The vectors of all items: a frame item_id, vector, and bias if the score has one."""
        vectors = self._vectors()
        return self._vector_frame("item_id", self.train_.items, vectors.items, vectors.bias)

    @final
    @available_if(lambda model: model._scores_by_dot_product())
    def export_vectors(
        self,
        path: str | Path,
        *,
        what: Literal["items", "users"] = "items",
        metric: Literal["dot", "cosine"] = "dot",
    ) -> None:
        """Write vectors for a vector database: a Parquet file item_id, vector (float32), and title if there are any.

        Unlike `item_vectors`, the vectors alone give the ranking: a bias is a dimension of them.

        Parameters
        ----------
        path
            A .parquet file. UUIDs are written as text.
        what
            "items", to be stored, or "users", to search with: user_id, vector.
        metric
            How the database compares. "dot", inner product: the inner product of a user's and an item's vector is the
            score. If the model has item biases, the last dimension of an item is its bias, and that of a user is 1.
            "cosine", cosine similarity or Euclidean distance: all vectors have length 1, and one more dimension, which
            makes the ranking that of the score.

        Notes
        -----
        The metadata of the file has the key `truelike`, a JSON object: model, what, metric, factors, bias, dimensions,
        and for "cosine" the length that the items were divided by.

        Examples
        --------
        >>> import tempfile, polars as pl, truelike as tl
        >>> model = tl.IALS(factors=8, epochs=2).fit(tl.synthetic.World(n_users=50, n_items=40).dataset())
        >>> with tempfile.TemporaryDirectory() as place:
        ...     model.export_vectors(place + "/items.parquet")
        ...     dict(pl.read_parquet(place + "/items.parquet").schema)
        {'item_id': Int64, 'vector': Array(Float32, shape=(8,)), 'title': String}
        """
        from truelike.models.vectors import write_vectors

        write_vectors(self, path, what, metric)

    @final
    def set_titles(self, titles: Any) -> Self:
        """Set the titles of items, in any form that `Dataset.with_titles` takes, and return self."""
        self._state = self._state_with(self.train_.with_titles(titles))
        return self

    @final
    def _top_k(
        self,
        users: Codes,
        k: int,
        *,
        exclude_seen: bool = True,
        allowed: NDArray[np.bool_] | None = None,
        n_jobs: int | None = -1,
        ranker: FactorRanker | None = None,
    ) -> TopK:
        """`recommend` in row numbers: arrays of row numbers and scores. `ranker` is that of `_factor_ranker`."""
        train = self.train_
        check_users(users, train.n_users)
        vectors = self._dot_product()
        if vectors is not None:
            ranker = ranker or FactorRanker(vectors.items, vectors.bias)
            seen, rows = train._rows(users) if exclude_seen else (None, None)
            return ranker.top_k(vectors.users[users], k, rows=rows, seen=seen, allowed=allowed, n_jobs=n_jobs)
        seen = train._csr if exclude_seen else None
        with self._ranking():
            return top_k_by_scores(
                self._score_block, users, k,
                n_items=train.n_items, seen=seen, allowed=allowed, ties=self._tie_order(), n_jobs=n_jobs,
            )  # fmt: skip

    @final
    def _factor_ranker(self) -> FactorRanker | None:
        """The items, ready for many calls of `_top_k`; None if the score is no dot product."""
        vectors = self._dot_product()
        return None if vectors is None else FactorRanker(vectors.items, vectors.bias)

    @final
    def _lists(
        self,
        codes: Codes,
        k: int,
        *,
        exclude_seen: bool,
        allowed: NDArray[np.bool_] | None,
        on_unknown: OnUnknown,
        n_jobs: int | None,
        ranker: FactorRanker | None = None,
        ranked: TopK | None = None,
    ) -> TopK:
        """The lists of users by their row numbers, where -1 is a user who is not known.

        `ranked` are the lists of the others, where they are computed already.
        """
        here = np.flatnonzero(codes >= 0)
        best = no_items(len(codes), min(k, self.train_.n_items))
        best.items[here], best.scores[here] = ranked or self._top_k(
            codes[here], k, exclude_seen=exclude_seen, allowed=allowed, n_jobs=n_jobs, ranker=ranker
        )
        if on_unknown == "popular" and len(here) < len(codes):
            best.items[codes < 0], best.scores[codes < 0] = self._popular(k, allowed)
        return best

    # --- saving ---------------------------------------------------------------------------------

    @final
    def save(self, directory: str | Path, *, metrics: Mapping[str, float] | None = None) -> None:
        """Write the model as a directory, whole or not at all; read it with `tl.load`."""
        from truelike.storage import write_model

        model = self._written()
        choice = getattr(model, "choice_", None)
        about = {
            "class": type(model).__name__,
            "parameters": model._saved_parameters(),
            **({} if choice is None else {"choice": choice._asdict()}),
            **model._saved_history(),
        }
        write_model(directory, about, model._arrays(), model.train_, metrics or {})

    def _saved_history(self) -> dict[str, Any]:
        """The history of the training as plain columns; of a model that has none, nothing."""
        history = vars(self)["_state"].get("history_")
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
        """The model that is saved in place of this one."""
        _ = self.train_
        return self

    # --- helpers --------------------------------------------------------------------------------

    @final
    def _cached(self, name: str, compute: Callable[[], Any]) -> Any:
        """What follows from the learned state, computed when it is first asked for."""
        cache = vars(self)["_state"]["_cache"]
        if name not in cache:
            cache[name] = compute()
        return cache[name]

    @final
    def _history_of(self, user: int) -> Codes:
        """The items of a user of the training data, sorted."""
        history: Codes = self.train_._history(user)
        return history

    @final
    def _all_scores(self, history: Codes, user: int | None = None) -> Floats:
        """Scores of all items for a user of the training data, or for a new user with a history."""
        if user is not None:
            return np.asarray(self._score_block(np.array([user], dtype=np.int32))[0])
        return np.asarray(self._score_histories(histories_of([history], self.train_.n_items))[0])

    @final
    def _scores_of(self, history: Codes, items: Codes, user: int | None = None) -> Floats:
        """Scores of some items for a user of the training data, or for a new user with a history."""
        if user is None and not len(history):
            return self._scores_without_history(items)
        return np.asarray(self._all_scores(history, user)[items], dtype=np.float32)

    @final
    def _scores_without_history(self, items: Codes) -> Floats:
        """Scores for a user without interactions: by a vector of zeros, or those of the average user."""
        vectors = self._dot_product()
        if vectors is not None:
            return np.zeros(len(items), dtype=np.float32) if vectors.bias is None else vectors.bias[items]

        def average() -> Floats:
            n = self.train_.n_users
            users = np.unique(np.linspace(0, n - 1, min(n, AVERAGED_USERS)).astype(np.int32))
            blocks = [self._score_block(user[None])[0] for user in users]
            return np.asarray(np.mean(blocks, axis=0), dtype=np.float32)

        return np.asarray(self._cached("scores without history", average)[items])

    @final
    def _explanation(
        self, history: Codes, items: Codes, user: int | None, k: int, titles: bool, library: Library
    ) -> Frame:
        """The frame of `explain`."""
        found = self._explained(history, items, user)
        places = found.largest(k)
        row, rank = np.indices(places.shape).reshape(2, -1)
        at = places.reshape(-1)
        of, because = items[row], history[at]
        known = self.train_.items
        columns = [
            known.take(of).alias("item_id"),
            known.take(because).alias("because_item_id"),
            pl.Series("contribution", found.values[row, at]),
            pl.Series("share", found.shares()[row, at]),
            pl.Series("rank", rank + 1, dtype=pl.Int32),
            pl.Series("method", [found.method] * len(row), dtype=pl.String),
        ]
        if titles and self.train_.titles is not None:
            columns.append(self.train_.titles.gather(of).alias("title"))
            columns.append(self.train_.titles.gather(because).alias("because_title"))
        return to_native(pl.DataFrame(columns), library)

    def _pair_codes(self, users: Any, items: Any, asking: str) -> tuple[Codes, Codes]:
        """The row numbers of pairs; one user or one item is paired with all of the other."""
        user_codes, item_codes = self.train_.users.known(users), self.train_.items.known(items)
        try:
            user_codes, item_codes = np.broadcast_arrays(user_codes, item_codes)
        except ValueError:
            raise ParameterError(
                f"{asking} takes pairs: {len(user_codes)} users and {len(item_codes)} items were given"
            ) from None
        return user_codes, item_codes

    def _warn_of_time(self, train: Dataset) -> None:
        """Warn before a fit that would take more than LONG seconds, with what would be faster."""
        expected = self._expected_seconds(train) * 2 / threads(getattr(self, "n_jobs", 2))
        if expected > LONG:
            long = readable_seconds(expected)
            warn(
                f"{self.name} is expected to take about {long} on {train!r}. {self._sooner(train)}",
                TrainingWarning,
            )

    def _sooner(self, train: Dataset) -> str:
        """What to do instead of a fit that takes long."""
        from truelike.models.ials import IALS

        return f"IALS takes about {readable_seconds(IALS()._expected_seconds(train))} on two cores."

    def _popular(self, k: int, allowed: NDArray[np.bool_] | None) -> tuple[Codes, Floats]:
        share = (self.train_.popularity() / self.train_.n_users).astype(np.float32)
        best = top_k_by_scores(
            lambda _: share[None, :].copy(),
            np.zeros(1, dtype=np.int32),
            k,
            n_items=self.train_.n_items,
            allowed=allowed,
            n_jobs=1,
        )
        return best.items[0], best.scores[0]

    def _echo_users(self, asked: Any) -> pl.Series:
        return _echo(asked, self.train_.users)

    def _item_codes(self, items: Any, on_unknown: OnUnknown) -> Codes:
        known: Ids = self.train_.items
        return known.known(items) if on_unknown == "raise" else known.codes(items)

    def _histories(self, items: Any, on_unknown: OnUnknown) -> tuple[dict[str, pl.Series], Any]:
        """The key columns of the result, and a CSR of histories in row numbers of items."""
        if isinstance(items, Dataset):
            keys = {"user_id": items.users.take(np.arange(items.n_users, dtype=np.int32))}
            lists: list[Any] = [items.items.take(row) for row in rows_of(items._csr)]
        elif isinstance(items, Mapping):
            keys, lists = {"user_id": to_series(list(items))}, [one_or_many(row) for row in items.values()]
        elif isinstance(items, (list, tuple)) and items and all(isinstance(row, (list, tuple)) for row in items):
            keys, lists = {"user_id": pl.Series(range(len(items)))}, list(items)
        else:
            keys, lists = {}, [one_or_many(items)]
        codes = [self._item_codes(row, on_unknown) for row in lists]
        return keys, histories_of([np.unique(row[row >= 0]) for row in codes], self.train_.n_items)

    def _allowed(self, candidates: Any, exclude: Any) -> NDArray[np.bool_] | None:
        """A mask of the items that may be returned; None: all. Unknown candidates are skipped and counted."""
        if candidates is None and exclude is None:
            return None
        allowed = np.full(self.train_.n_items, candidates is None)
        if candidates is not None:
            codes = self.train_.items.codes(one_or_many(candidates))
            unknown = int((codes < 0).sum())
            if unknown:
                warn(
                    f"{unknown:,} of {len(codes):,} candidates are not in the training data; they are skipped",
                    DataWarning,
                )
            allowed[codes[codes >= 0]] = True
        if exclude is not None:
            codes = self.train_.items.codes(one_or_many(exclude))
            allowed[codes[codes >= 0]] = False
        return allowed

    def _check_list(self, k: int, on_unknown: str, titles: bool = False, exclude_seen: bool = True) -> None:
        train = self.train_
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise ParameterError(f"k is {some([repr(k)])}; it must be a whole number, at least 1")
        if not isinstance(on_unknown, str) or on_unknown not in ("raise", "popular", "skip"):
            found = some([repr(on_unknown)])
            raise ParameterError(f'on_unknown is {found}; it must be "raise", "popular" or "skip"')
        for name, value in (("titles", titles), ("exclude_seen", exclude_seen)):
            if not isinstance(value, (bool, np.bool_)):
                raise ParameterError(f"{name} is {some([repr(value)])}; it must be True or False")
        if titles and train.titles is None:
            raise ParameterError(
                "the training data has no titles: give them with tl.read(..., titles=...) or model.set_titles(...)"
            )

    def _scores_by_dot_product(self) -> bool:
        """Whether the score is a dot product, as far as it is known before fitting."""
        if type(self)._dot_product is Recommender._dot_product:
            return False
        return "_state" not in vars(self) or self._dot_product() is not None

    def _vectors(self) -> DotProduct:
        _ = self.train_
        found = self._dot_product()
        assert found is not None
        return found

    def _vector_frame(self, column: str, ids: Ids, vectors: Floats, bias: Floats | None) -> Frame:
        columns = [
            ids.take(np.arange(len(ids), dtype=np.int32)).alias(column),
            pl.Series("vector", np.ascontiguousarray(vectors), dtype=pl.Array(pl.Float32, vectors.shape[1])),
        ]
        if bias is not None:
            columns.append(pl.Series("bias", bias))
        return to_native(pl.DataFrame(columns), self.train_.library)

    def _frame(
        self,
        keys: dict[str, pl.Series],
        best: TopK,
        titles: bool,
        library: Library,
        column: str = "item_id",
    ) -> Frame:
        """One row for each filled place of each list."""
        row, rank = np.nonzero(best.items >= 0)
        codes = best.items[row, rank]
        columns = [series.gather(row).alias(name) for name, series in keys.items()]
        columns += [
            self.train_.items.take(codes).alias(column),
            pl.Series("score", best.scores[row, rank]),
            pl.Series("rank", rank + 1, dtype=pl.Int32),
        ]
        if titles and self.train_.titles is not None:
            columns.append(self.train_.titles.gather(codes).alias("title"))
        return to_native(pl.DataFrame(columns), library)


def clone(model: Recommender, **changed: Any) -> Any:
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


def values_of_pairs(block: Callable[[Codes], Floats], users: Codes, items: Codes) -> Floats:
    """The values of pairs, from a function that gives all items of some users; each user is asked for once."""
    wanted, at = np.unique(users, return_inverse=True)
    found = np.empty(len(users), dtype=np.float32)
    for start in range(0, len(wanted), 256):
        values = block(wanted[start : start + 256])
        mine = (at >= start) & (at < start + 256)
        found[mine] = values[at[mine] - start, items[mine]]
    return found


def score_by_vectors(vectors: DotProduct, users: Codes) -> Floats:
    """Scores of all items for some users, by dot products."""
    return factor_score_block(vectors.users[users], vectors.items, vectors.bias)


def _warn_of_weights(train: Dataset, model: Recommender) -> None:
    """Warn of weights and repeated rows that the model does not use."""
    if train.has_weights:
        remedy = '. Pass weighting="log" to count them.' if hasattr(model, "weighting") else ""
        warn(
            f"{model.name} uses whether a pair was observed, not how often: the weights and repeated rows of the "
            f"training data do not count{remedy}",
            DataWarning,
        )


def _echo(asked: Any, known: Ids) -> pl.Series:
    """The ids that were asked for, in the type of the training data if possible."""
    codes = known.codes(asked)
    if (codes >= 0).all():
        return known.take(codes)
    if known.kind == "uuid":
        return pl.Series(list(asked), dtype=pl.Object)
    series, _ = normalise(to_series(asked), known.what)
    typed = series.cast(known.dtype, strict=False)
    same = (typed.cast(pl.String) == series.cast(pl.String)).fill_null(False)
    return typed if same.all() else series.cast(pl.String)
