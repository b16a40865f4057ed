"""`evaluate_lists`: the metrics of lists that were made elsewhere, from a frame or a file."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.blocks.blocks import Blocks
from truelike.data.checks import check_dataset
from truelike.data.columns import recognised
from truelike.data.dataset import Dataset
from truelike.data.files import Picked, refuse_address
from truelike.data.frames import Library, missing
from truelike.data.ids import Codes, Ids
from truelike.data.interactions import cast, encode_column, read_table, report_bad_rows
from truelike.data.splits import Split
from truelike.errors import DataError, DataWarning, ParameterError, quoted, some, warn
from truelike.evaluation.evaluate import KS
from truelike.evaluation.measure import checked_ks, checked_metrics, measure
from truelike.evaluation.metrics import METRICS, Metric
from truelike.evaluation.pairs import is_seen
from truelike.evaluation.result import LIST_METRICS, USUAL_METRICS, Evaluation
from truelike.evaluation.seen import Seen, SeenParts
from truelike.ranking.top_k import tie_places


def evaluate_lists(
    lists: Any,
    test: Dataset | Split | Blocks,
    *,
    train: Dataset | Blocks | None = None,
    seen: Dataset | SeenParts | None = None,
    ks: Sequence[int] | int = KS,
    metrics: Sequence[str | Metric] | str | Metric | None = None,
    name: str = "lists",
) -> Evaluation:
    """Compute the metrics of lists that another library or program made, as `tl.evaluate` does for a model.

    Each user with a relevant item counts; one without a list counts with zeros. Items that `seen` leaves out are
    removed from the lists, and an item that is in a list twice counts at its first place; a warning counts both.
    So does one for items that are not in the training data, which keep their places as misses.

    Parameters
    ----------
    lists
        A frame, a file or rows: user, item, and the rank (1 is the best) or the score (higher is better), in a column
        "rank", "score", "prediction" or "rating"; the first of these is used. Equal scores, and equal ranks, are
        ordered as in lists of models: by popularity in training, then by a fixed draw. Without rank and score, the
        rows of a user are in their order.
    test
        A split, whose test part is used, or the interactions to find.
    train
        The training data, if `test` is no split. None: it is not known, nothing is left out of the lists, and there is
        no coverage, novelty and popularity.
    seen
        What is left out beside the training items, as in `tl.evaluate`.
    ks, metrics
        As in `tl.evaluate`. Where all lists are shorter than k, the missing places are misses, with a warning.
    name
        The name of the lists in tables.

    Returns
    -------
    Evaluation
        As of `tl.evaluate`, so that `tl.compare_means` takes both.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=200, n_items=100).dataset(), seed=0)
    >>> model = tl.ItemKNN().fit(split.train)
    >>> lists = model.recommend(split.test.users, k=20)  # which have no training items
    >>> result = tl.evaluate_lists(lists, split, seen="train", ks=20, name="from a frame")
    >>> result
    Evaluation(from a frame, ... users: ndcg@20 0...; left out: train)
    >>> result["ndcg@20"] == tl.evaluate(model, split, seen="train")["ndcg@20"]
    True
    """
    ks = checked_ks(ks)
    if isinstance(test, Split) and train is not None:
        raise ParameterError("train is given, and test is a split, which has its own: leave train out")
    train = test.train if isinstance(test, Split) else train
    held_out = test.test if isinstance(test, Split) else test
    check_dataset(held_out, "evaluate_lists", part="test")
    if train is not None:
        check_dataset(train, "evaluate_lists")
    elif seen is not None:
        raise ParameterError("seen is given without train: pass the training data, or a split as test")
    wanted = checked_metrics(*_metrics(metrics, train is not None))
    source = _GivenLists(_read(lists), held_out, train, Seen.of(train, test, seen) if train is not None else None)
    source.check_lengths(max(ks))
    found = measure(source, held_out, train=train, ks=ks, metrics=wanted)
    source.report_lacking(len(found.users))
    users = source.users.take(found.users)
    parts = () if train is None else source.seen.parts
    return Evaluation(name, users, found.values(), found.totals(), source.library, left_out=parts)


def _metrics(metrics: Any, has_train: bool) -> tuple[Any, Sequence[str]]:
    """The metrics that are asked for, and those that there are."""
    if has_train:
        return USUAL_METRICS if metrics is None else metrics, (*METRICS, *LIST_METRICS)
    asked = [metrics] if isinstance(metrics, str) else metrics if isinstance(metrics, Sequence) else []
    if lacking := [each for each in asked if each in LIST_METRICS]:
        raise ParameterError(
            f"{', '.join(lacking)} depends on the training data: pass train, or a split as test, or leave it out"
        )
    return [each for each in USUAL_METRICS if each in METRICS] if metrics is None else metrics, tuple(METRICS)


class _Rows(NamedTuple):
    """The rows of lists: ids, and what they are ordered by, smaller first."""

    users: Ids
    user_codes: Codes
    items: Ids
    item_codes: Codes
    order: NDArray[np.float64]
    library: Library


def _read(lists: Any) -> _Rows:
    refuse_address(lists)
    found: dict[str, str | None] = {}
    unused = set[str]()

    def settle(names: list[str]) -> Picked:
        found.update({role: recognised(names, role) for role in ("user", "item", "rank", "score")})
        for role in ("user", "item"):
            if found[role] is None:
                raise DataError(
                    f"no column looks like the {role}: the lists have {some(map(repr, names), 20)}. Rename it to "
                    f"{role}_id."
                )
        unused.update(set(names) - set(found.values()))
        by = found["rank"] or found["score"]
        return Picked([each for each in (found["user"], found["item"], by) if each is not None])

    rows = read_table(lists, settle)
    user, item, *by = rows.columns.names
    for role, column in (("user", user), ("item", item)):
        rows.mark(missing(rows.frame[column]), f"has no {role} (column {quoted(column)})")
    order = np.arange(len(rows.frame), dtype=np.float64)
    if by:
        numbers = cast(rows.frame[by[0]], pl.Float64()).fill_nan(None)
        rows.mark(
            numbers.is_null(), f"has no usable {'rank' if found['rank'] else 'score'} (column {quoted(by[0])})"
        )
        order = numbers.to_numpy() if found["rank"] else -numbers.to_numpy()
    elif unused:
        warn(
            "the lists have no column rank or score, so the rows of a user are in their order; not used are "
            f"{some(map(repr, sorted(unused)))}",
            DataWarning,
        )
    if rows.bad:
        report_bad_rows(rows, "refuse")
    if not len(rows.frame):
        raise DataError("the table of lists is empty; it needs a row for each user and item of a list")
    users, items = (
        encode_column(rows.frame[each], role, rows.text) for each, role in ((user, "user"), (item, "item"))
    )
    return _Rows(*users, *items, order, rows.library)


class _GivenLists:
    """Lists of a table, in row numbers of the training data, or of the test data where it is not known."""

    def __init__(
        self, rows: _Rows, test: Dataset | Blocks, train: Dataset | Blocks | None, seen: Seen | None
    ) -> None:
        base = test.to_dataset() if train is None else train
        self.users, self.items, self.library = base.users, base.items, rows.library
        nothing = Dataset.from_pairs(self.users, self.items, np.empty(0, np.int32), np.empty(0, np.int32))
        self.seen = Seen(nothing) if seen is None else seen
        self.of = "test" if train is None else "training"
        popularity = np.zeros(len(self.items), dtype=np.int64) if train is None else train.popularity()
        users, items = self._codes(rows, has_train=train is not None)
        known = users >= 0
        users, items, order = users[known], items[known], rows.order[known]
        # an item that is not known has a number above all others, so that it has a place among equal scores
        more = max(0, int(items.max()) + 1 - len(popularity))
        ties = tie_places(np.concatenate((popularity, np.zeros(more, dtype=np.int64))))
        place = np.lexsort((ties[items], order, users))
        users, items = self._once(users[place], items[place])
        users, items = self._new(users, items)
        counts = np.bincount(users, minlength=len(self.users))
        self.starts = np.concatenate(([0], np.cumsum(counts)))
        self.listed = np.where(items < len(self.items), items, -1).astype(np.int32)
        self.lacking = 0

    def _codes(self, rows: _Rows, *, has_train: bool) -> tuple[Codes, Codes]:
        """The row numbers of users, -1 for unknown ones, and of items, from `len(self.items)` for unknown ones."""
        users, items = self.users.codes(rows.users.values), self.items.codes(rows.items.values)
        for what, codes, ids, own in (
            ("users", users, rows.users, self.users),
            ("items", items, rows.items, self.items),
        ):
            if (codes < 0).all():
                raise DataError(
                    f"none of the {len(codes):,} {what} of the lists is in the {self.of} data. Their ids look like "
                    f"{ids[0]!r}, those of the {self.of} data like {own[0]!r}. Give both the same ids."
                )
        unknown = items < 0
        items[unknown] = len(self.items) + np.arange(np.count_nonzero(unknown))
        found = items[rows.item_codes]
        if has_train and unknown.any():
            warn(
                f"{np.count_nonzero(found >= len(self.items)):,} of {len(found):,} rows of the lists have an item that "
                "is not in the training data; they keep their places and count as misses",
                DataWarning,
            )
        return users[rows.user_codes], found

    def _once(self, users: Codes, items: Codes) -> tuple[Codes, Codes]:
        """The lists with each item at its first place."""
        pairs = users.astype(np.int64) * (int(items.max()) + 1) + items
        first = np.zeros(len(pairs), dtype=bool)
        first[np.unique(pairs, return_index=True)[1]] = True
        if not first.all():
            warn(
                f"{np.count_nonzero(~first):,} of {len(first):,} rows of the lists repeat an item of the same user; "
                "each item counts at its first place",
                DataWarning,
            )
        return users[first], items[first]

    def _new(self, users: Codes, items: Codes) -> tuple[Codes, Codes]:
        """The lists without what the users have interacted with before."""
        known = np.flatnonzero(items < len(self.items))
        there = is_seen(self.seen, users[known], items[known])
        if not there.any():
            return users, items
        if there.sum() == len(users):
            raise DataError(
                f"all {len(users):,} rows of the lists are of items that the user has interacted with before "
                f"({', '.join(self.seen.parts)}), so nothing is left. Give lists of new items."
            )
        warn(
            f"{np.count_nonzero(there):,} of {len(users):,} rows of the lists have an item that the user has "
            f"interacted with before ({', '.join(self.seen.parts)}); they are removed, and what follows moves up",
            DataWarning,
        )
        kept = np.ones(len(users), dtype=bool)
        kept[known[there]] = False
        return users[kept], items[kept]

    def check_lengths(self, k: int) -> None:
        """Warn if no list has k items."""
        longest = int(np.diff(self.starts).max())
        if longest < min(k, len(self.items)):
            warn(
                f"the longest list has {longest:,} items, and metrics at {k} are asked for: the missing places count "
                f"as misses. Pass longer lists, or ks up to {longest}",
                DataWarning,
            )

    def report_lacking(self, n: int) -> None:
        """Warn if some of the n evaluated users have no list."""
        if self.lacking:
            warn(f"{self.lacking:,} of {n:,} evaluated users have no list; they count with zeros", DataWarning)

    def lists(self, blocks: Iterable[Codes], k: int) -> Generator[Codes, None, None]:
        """For each block of users, the first k items of the list of each."""
        for users in blocks:
            starts = self.starts[users]
            lengths = np.minimum(self.starts[users + 1] - starts, k)
            self.lacking += int(np.count_nonzero(lengths == 0))
            best = np.full((len(users), k), -1, dtype=np.int32)
            filled = np.arange(k) < lengths[:, None]
            best[filled] = self.listed[(starts[:, None] + np.arange(k))[filled]]
            yield best
