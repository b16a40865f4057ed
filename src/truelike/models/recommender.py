"""The contract of a recommender, written once.

A model says how it learns (`_learn`), how it scores all items for a block of users (`_score_block`) and
for histories of strangers (`_score_histories`), how alike items are (`_similarity_block`), and which
arrays make it up (`_arrays`, `_restore`). All else, ids, lists, unknown users, frames, files, is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike import parameters
from truelike.data.checks import check_log, check_share, known_rows
from truelike.data.dataset import Dataset
from truelike.data.frames import Library, library_of, to_native, to_series
from truelike.data.ids import Codes, Ids, normalise, one_or_many
from truelike.errors import DataError, NotFittedError, ParameterError
from truelike.evaluation.topk import TopK, check_users, no_items, top_k_by_scores

Floats = NDArray[np.float32]
HeldOut = Dataset | float | None  # votes to choose an epoch by, or the share of each user's to take for that
OnUnknown = Literal["raise", "popular", "skip"]


@dataclass(kw_only=True, eq=False, repr=False)
class Recommender(ABC):
    """What every model of truelike can do.

    Constructors take keyword-only parameters and check them. `fit` returns self and always starts
    afresh. What is learned ends in an underscore. Ids go in and come out as the caller gave them.
    """

    # what a search goes through where it is not told: (low, high) is a range, a list a choice
    space: ClassVar[dict[str, Any]] = {}
    takes_features: ClassVar[tuple[str, ...]] = ()  # of whom: "user", "item"

    def __post_init__(self) -> None:
        parameters.check(self)

    # --- what a model must say ------------------------------------------------------------------

    @abstractmethod
    def _learn(self, train: Dataset, validation: HeldOut) -> None:
        """Learn from the training log."""

    @abstractmethod
    def _score_block(self, users: Codes) -> Floats:
        """Scores of all items for some users: a fresh array (len(users), n_items)."""

    @abstractmethod
    def _score_histories(self, histories: Any) -> Floats:
        """Scores of all items for strangers, each a row of a CSR of what they voted for."""

    @abstractmethod
    def _similarity_block(self, items: Codes) -> Floats:
        """How alike all items are to some: a fresh array (len(items), n_items)."""

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[Any]]:
        """The learned arrays, by name, for saving."""

    @abstractmethod
    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take back what `_arrays` gave; `train_` is already there."""

    def _tie_order(self) -> Codes | None:
        """All items, in the order in which equal scores are ranked; None: as they stand."""
        return None

    # --- fitting --------------------------------------------------------------------------------

    def fit(self, train: Dataset, *, validation: HeldOut = None) -> Self:
        """Learn from a log, from the start, and return self.

        Parameters
        ----------
        train
            What `tl.read` or a split gave.
        validation
            Votes held out to choose the best epoch by, or the share of each user's votes to choose the number of
            epochs by before all are trained on; models that do not iterate ignore it.
        """
        parameters.check(self)
        check_log(train, "fit")
        if train.n_interactions == 0:
            raise DataError("fit was given a log without a row")
        if isinstance(validation, Real):
            check_share("validation", validation)
            validation = float(validation)
        elif validation is not None:
            validation = known_rows(validation, train)
        self._learn(train, validation)
        self.__dict__["train_"] = train
        return self

    @property
    def name(self) -> str:
        """What to call the model in tables."""
        return type(self).__name__

    @property
    def has_posterior(self) -> bool:
        """Whether it says how likely an unvoted item is truly liked, by `hidden_like_block`."""
        return False

    @property
    def takes_impressions(self) -> bool:
        """Whether `fit` can use what was shown to whom."""
        return False

    def get_params(self) -> dict[str, Any]:
        """The parameters, by name."""
        return parameters.parameters_of(self)

    def deciding_params(self) -> dict[str, Any]:
        """The parameters that decide the result, by name."""
        return {name: value for name, value in self.get_params().items() if name != "n_jobs"}

    def _saved_parameters(self) -> dict[str, Any]:
        """The parameters as they stand in a file: plain values only."""
        return self.get_params()

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in parameters.changed(self).items())
        return f"{type(self).__name__}({shown})"

    def __getattr__(self, name: str) -> Any:
        # only called for what is not there: a learned array that is missing means "not fitted"
        if name.endswith("_") and not name.startswith("_"):
            raise NotFittedError(f"{type(self).__name__} has no {name} yet: call fit(train) first")
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    # --- recommending ---------------------------------------------------------------------------

    def recommend(
        self,
        users: Any,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        on_unknown: OnUnknown = "raise",
        titles: bool = False,
        n_jobs: int | None = None,
    ) -> Any:
        """The k best items of each user: a frame user_id, item_id, score, rank (from 1).

        Parameters
        ----------
        users
            An id, or several: a list, an array or a series.
        k
            How many; fewer come back where fewer are left.
        exclude_seen
            Leave out what the user voted for in training.
        items
            Recommend only among these.
        exclude
            Never recommend these.
        on_unknown
            For a user (or one of `items`) that was not in training: "raise" an error, give the most
            "popular" items (their score is the share of users who voted for them), or "skip".
        titles
            Add a column `title` where titles are known.
        n_jobs
            Threads; None: all cores. Never changes the result.
        """
        self._check_list(k, on_unknown)
        library = library_of(users) or self.train_.library
        asked = one_or_many(users)
        known_users = self.train_.users
        codes = known_users.known(asked) if on_unknown == "raise" else known_users.codes(asked)
        allowed = self._allowed(items, exclude, on_unknown)
        here = np.flatnonzero(codes >= 0)
        best = no_items(len(codes), min(k, self.train_.n_items))
        found = self.top_k(codes[here], k, exclude_seen=exclude_seen, allowed=allowed, n_jobs=n_jobs)
        best.items[here], best.scores[here] = found
        if on_unknown == "popular" and len(here) < len(codes):
            strangers = codes < 0
            best.items[strangers], best.scores[strangers] = self._popular(k, allowed)
        who = _echo(asked, known_users)
        return self._frame({"user_id": who}, best, titles, library)

    def recommend_from_items(
        self,
        items: Any,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        among: Any = None,
        exclude: Any = None,
        on_unknown: OnUnknown = "raise",
        titles: bool = False,
    ) -> Any:
        """The k best items for somebody never seen before, from what they voted for.

        A frame item_id, score, rank. With on_unknown="skip", items of the history that are not known
        are left out; with "popular" too, and a history of which nothing is known gets the most popular.
        """
        self._check_list(k, on_unknown)
        library = library_of(items) or self.train_.library
        asked = one_or_many(items)
        codes = self._item_codes(asked, on_unknown)
        history = np.unique(codes[codes >= 0])
        allowed = self._allowed(among, exclude, on_unknown)
        if not len(history):
            best = no_items(1, min(k, self.train_.n_items))
            if on_unknown == "popular":
                best.items[0], best.scores[0] = self._popular(k, allowed)
        else:
            row = (
                np.ones(len(history), np.float32),
                history,
                np.array([0, len(history)], np.int32),
            )
            histories = sparse.csr_array(row, shape=(1, self.train_.n_items))
            best = top_k_by_scores(
                lambda _: self._score_histories(histories),
                np.zeros(1, dtype=np.int32),
                k,
                n_items=self.train_.n_items,
                seen=histories if exclude_seen else None,
                allowed=allowed,
                ties=self._tie_order(),
                n_jobs=1,
            )
        return self._frame({}, best, titles, library)

    def similar_items(
        self,
        items: Any,
        k: int = 10,
        *,
        among: Any = None,
        exclude: Any = None,
        on_unknown: OnUnknown = "raise",
        titles: bool = False,
        n_jobs: int | None = None,
    ) -> Any:
        """The k items most like each of some: a frame item_id, similar_item_id, score, rank."""
        self._check_list(k, on_unknown)
        library = library_of(items) or self.train_.library
        asked = one_or_many(items)
        codes = self._item_codes(asked, on_unknown)
        allowed = self._allowed(among, exclude, on_unknown)
        here = np.flatnonzero(codes >= 0)
        best = no_items(len(codes), min(k, self.train_.n_items))
        n_items = self.train_.n_items
        itself = sparse.eye_array(n_items, dtype=np.float32, format="csr")
        found = top_k_by_scores(
            self._similarity_block, codes[here], k,
            n_items=n_items, seen=itself, allowed=allowed, n_jobs=n_jobs,
        )  # fmt: skip
        best.items[here], best.scores[here] = found
        if on_unknown == "popular" and len(here) < len(codes):
            strangers = codes < 0
            best.items[strangers], best.scores[strangers] = self._popular(k, allowed)
        of = _echo(asked, self.train_.items)
        return self._frame({"item_id": of}, best, titles, library, column="similar_item_id")

    def score(self, users: Any, items: Any) -> Floats:
        """The score of each pair (users[n], items[n]); one user or one item goes with all of the other."""
        return self._score_pairs(*self._pair_codes(users, items, "score"))

    def top_k(
        self,
        users: Codes,
        k: int,
        *,
        exclude_seen: bool = True,
        allowed: NDArray[np.bool_] | None = None,
        n_jobs: int | None = None,
    ) -> TopK:
        """`recommend` for hot paths: row numbers in, arrays of row numbers and scores out."""
        check_users(users, self.train_.n_users)
        return top_k_by_scores(
            self._score_block,
            users,
            k,
            n_items=self.train_.n_items,
            seen=self.train_.matrix if exclude_seen else None,
            allowed=allowed,
            ties=self._tie_order(),
            n_jobs=n_jobs,
        )

    # --- saving ---------------------------------------------------------------------------------

    def save(self, directory: str | Path, *, metrics: dict[str, float] | None = None) -> None:
        """Write the model as a directory, whole or not at all; read it with `tl.load`."""
        from truelike.storage import save

        save(self, Path(directory), metrics=metrics)

    # --- helpers --------------------------------------------------------------------------------

    def _pair_codes(self, users: Any, items: Any, asking: str) -> tuple[Codes, Codes]:
        """The row numbers of pairs; one user or one item goes with all of the other."""
        user_codes, item_codes = self.train_.users.known(users), self.train_.items.known(items)
        try:
            user_codes, item_codes = np.broadcast_arrays(user_codes, item_codes)
        except ValueError:
            raise ParameterError(
                f"{asking} takes pairs: {len(user_codes)} users and {len(item_codes)} items were given"
            ) from None
        return user_codes, item_codes

    def _score_pairs(self, users: Codes, items: Codes) -> Floats:
        return of_pairs(self._score_block, users, items)

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

    def _item_codes(self, items: Any, on_unknown: OnUnknown) -> Codes:
        known: Ids = self.train_.items
        return known.known(items) if on_unknown == "raise" else known.codes(items)

    def _allowed(self, items: Any, exclude: Any, on_unknown: OnUnknown) -> NDArray[np.bool_] | None:
        if items is None and exclude is None:
            return None
        allowed = np.full(self.train_.n_items, items is None)
        if items is not None:
            codes = self._item_codes(one_or_many(items), on_unknown)
            allowed[codes[codes >= 0]] = True
        if exclude is not None:
            codes = self.train_.items.codes(one_or_many(exclude))
            allowed[codes[codes >= 0]] = False
        return allowed

    def _check_list(self, k: int, on_unknown: str) -> None:
        _ = self.train_
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise ParameterError(f"k is {k!r}; it is a whole number from 1 up")
        if on_unknown not in ("raise", "popular", "skip"):
            raise ParameterError(f'on_unknown is {on_unknown!r}; it is "raise", "popular" or "skip"')

    def _frame(
        self,
        keys: dict[str, pl.Series],
        best: TopK,
        titles: bool,
        library: Library,
        column: str = "item_id",
    ) -> Any:
        """One row for each place of each list that is filled."""
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


def of_pairs(block: Callable[[Codes], Floats], users: Codes, items: Codes) -> Floats:
    """The values of pairs, from a function of all items of some users, who are asked for once each."""
    wanted, at = np.unique(users, return_inverse=True)
    found = np.empty(len(users), dtype=np.float32)
    for start in range(0, len(wanted), 256):
        values = block(wanted[start : start + 256])
        mine = (at >= start) & (at < start + 256)
        found[mine] = values[at[mine] - start, items[mine]]
    return found


def _echo(asked: Any, known: Ids) -> pl.Series:
    """The ids that were asked for, in the type of the training log where that can be."""
    codes = known.codes(asked)
    if (codes >= 0).all():
        return known.take(codes)
    if known.kind == "uuid":
        return pl.Series(list(asked), dtype=pl.Object)
    series, _ = normalise(to_series(asked), known.what)
    typed = series.cast(known.values.dtype, strict=False)
    same = (typed.cast(pl.String) == series.cast(pl.String)).fill_null(False)
    return typed if same.all() else series.cast(pl.String)
