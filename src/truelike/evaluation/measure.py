"""`measure`: the metrics of lists, wherever these come from."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from numbers import Integral
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes, Ids
from truelike.data.protocol import Interactions, Rows
from truelike.errors import DataError, DataWarning, ParameterError, warn
from truelike.evaluation.metrics import METRICS, Floats, Metric, mean_of_listed, own_metric
from truelike.evaluation.pairs import USERS_AT_ONCE, hits_of, relevant_items
from truelike.evaluation.result import ALL_METRICS

Metrics = dict[str, Metric | None]  # by name; None for a metric of the lists alone
Chunk = tuple[Codes, sparse.csr_array]  # row numbers of users, and their relevant items, a row for each


class Source(Protocol):
    """Where lists come from. Users and items are row numbers of its ids.

    `evaluate.py` has the lists of a model. Other lists are another source: `measure` does not know which.
    """

    @property
    def users(self) -> Ids:
        """The ids of the users who may have lists."""

    @property
    def items(self) -> Ids:
        """The ids of the items that may be listed."""

    @property
    def seen(self) -> Rows:
        """What is left out of the lists, so that it does not count as relevant."""

    def lists(self, blocks: Iterable[Codes], k: int) -> Generator[Codes, None, None]:
        """For each block of users, an array of the k best items of each, best first; -1 where a list is shorter."""


class Watcher(Protocol):
    """What looks at lists while they are measured."""

    def add(
        self, users: Codes, relevant: sparse.csr_array, hits: NDArray[np.bool_], entries: NDArray[np.int64]
    ) -> None:
        """Add some users with their relevant items, and what `hits_of` says of their lists."""


class Measures:
    """The metrics of users, whose lists are added some at a time.

    Attributes
    ----------
    users
        The row numbers of the users, in the order of the values.
    """

    def __init__(self, train: Interactions | None, n_items: int, ks: Sequence[int], metrics: Metrics) -> None:
        self.metrics, self.ks = metrics, ks
        self._users: list[Codes] = []
        self._hits: list[NDArray[np.bool_]] = []
        self._relevant: list[Floats] = []
        self._of_items: dict[str, Floats] = {}
        if train is not None and ("popularity" in metrics or "novelty" in metrics):
            shares = np.maximum(train.popularity(), 0.5) / train.n_users
            of_items = {"popularity": shares, "novelty": -np.log2(shares)}
            self._of_items = {metric: of_items[metric] for metric in metrics if metric in of_items}
        self._of_lists: dict[str, list[Floats]] = {f"{metric}@{k}": [] for metric in self._of_items for k in ks}
        self._listed = {k: np.zeros(n_items, dtype=bool) for k in ks if "coverage" in metrics}

    def add(self, users: Codes, relevant: sparse.csr_array, best: Codes, hits: NDArray[np.bool_]) -> None:
        """Add the lists of some users."""
        self._users.append(users)
        self._hits.append(hits)
        self._relevant.append(np.diff(relevant.indptr).astype(np.float64))
        for k in self.ks:
            for metric, values in self._of_items.items():
                self._of_lists[f"{metric}@{k}"].append(mean_of_listed(best, values, k))
            if k in self._listed:
                items = best[:, :k]
                self._listed[k][items[items >= 0]] = True

    @property
    def users(self) -> Codes:
        """The row numbers of the users."""
        return np.concatenate(self._users) if self._users else np.empty(0, dtype=np.int32)

    def values(self) -> dict[str, Floats]:
        """The values of each user.

        A metric is computed of all users at once: BLAS may round a row otherwise beside fewer others.
        """
        hits, relevant = np.concatenate(self._hits).astype(np.float64), np.concatenate(self._relevant)
        values = {
            f"{name}@{k}": metric(hits, relevant, k)
            for name, metric in self.metrics.items()
            if metric is not None
            for k in self.ks
        }
        return values | {measure: np.concatenate(each) for measure, each in self._of_lists.items()}

    def totals(self) -> dict[str, float]:
        """The figures of all lists together."""
        return {f"coverage@{k}": float(listed.sum() / len(listed)) for k, listed in self._listed.items()}


def measure(
    source: Source,
    test: Dataset | Blocks,
    *,
    train: Interactions | None,
    ks: Sequence[int],
    metrics: Metrics,
    watchers: Sequence[Watcher] = (),
) -> Measures:
    """Compute the metrics of the lists of a source, for all users with a relevant item.

    Parameters
    ----------
    source
        Where the lists come from.
    test
        The interactions to find.
    train
        The data that popularity is counted in, with the items of the source; None: no metric depends on it.
    ks, metrics
        Those that `checked_ks` and `checked_metrics` return.
    watchers
        What else is to see the lists.
    """
    found = Measures(train, len(source.items), ks, metrics)
    waiting = deque[Chunk]()

    def asked() -> Iterator[Codes]:
        for chunk in chunks(source, test):
            waiting.append(chunk)
            yield chunk[0]

    with closing(source.lists(asked(), max(ks))) as lists:
        for best in lists:
            users, relevant = waiting.popleft()
            hits, entries = hits_of(best, relevant)
            found.add(users, relevant, best, hits)
            for watcher in watchers:
                watcher.add(users, relevant, hits, entries)
    if not len(found.users):
        raise DataError(
            f"no user of the held-out part ({test.n_interactions:,} interactions) has a relevant item: one that is "
            "in the training data, and that the user has not interacted with before. Give interactions held out of "
            "training."
        )
    return found


def chunks(source: Source, test: Dataset | Blocks) -> Iterator[Chunk]:
    """The users with relevant items in the order of their row numbers, some at a time."""
    for known in _known(source, test):
        relevant = relevant_items(source.seen, known)
        users = np.flatnonzero(np.diff(relevant.indptr)).astype(np.int32)
        for start in range(0, len(users), USERS_AT_ONCE):
            chunk = users[start : start + USERS_AT_ONCE]
            yield chunk, relevant[chunk]


def _known(source: Source, test: Dataset | Blocks) -> Iterator[Dataset]:
    """The test interactions in row numbers of the source, block by block; a warning if some have none."""
    unknown = 0
    # in another order, no block of the test users is one of the users of the source
    for part in test.parts() if test.users.kind == source.users.kind else [test.to_dataset()]:
        known, others = part.recode(source.users, source.items)
        unknown += others
        yield known
    if unknown:
        warn(
            f"{unknown:,} of {test.n_interactions:,} test rows have a user or an item that is not in the "
            "training data; they are left out",
            DataWarning,
        )


def checked_metrics(metrics: object, known: Sequence[str] = ALL_METRICS) -> Metrics:
    """The metrics that were asked for, by name; an error if one is unknown."""
    one = isinstance(metrics, str) or callable(metrics) or not isinstance(metrics, Iterable)
    wanted: list[Any] = [metrics] if one else list(cast("Iterable[Any]", metrics))
    found: Metrics = {}
    for asked in wanted:
        if callable(asked):
            name, metric = own_metric(asked)
            if name in (*ALL_METRICS, "truth_ndcg", "hidden_ndcg") or name in found:
                raise ParameterError(f"there is another metric with the name {name}; rename the function")
            found[name] = metric
        elif asked in known:
            found[asked] = METRICS.get(asked)
    if not wanted or not all(callable(asked) or asked in known for asked in wanted):
        raise ParameterError(f"metrics is {metrics!r}; it must be one or more of {', '.join(known)}, or functions")
    return found


def checked_ks(ks: object) -> list[int]:
    """The list lengths that were asked for, sorted; an error if one is none."""
    wanted: list[Any] = list(ks) if isinstance(ks, Iterable) else [ks]
    if not wanted or not all(isinstance(k, Integral) and not isinstance(k, bool) and int(k) >= 1 for k in wanted):
        raise ParameterError(f"ks is {ks!r}; it must be one or more whole numbers from 1 up")
    return sorted({int(k) for k in wanted})
