"""Train, validation and test: `random`, `by_user`, `leave_one_out`, `temporal`.

The same seed gives the same split on every machine: rows are drawn by a hash of (seed, row), and rows
are numbered by sorted ids, so the order of the log does not matter either.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike import randomness
from truelike.data.checks import check_log, check_number, check_share
from truelike.data.dataset import Dataset
from truelike.data.id_files import known_library, read_ids, write_ids
from truelike.data.ids import Ids
from truelike.errors import DataError, DataWarning, ParameterError, StorageError
from truelike.files import has_file, reading, replacing_directory, settled

TRAIN, VALIDATION, TEST = 0, 1, 2
PARTS = ("train", "validation", "test")
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint parts of one log, with the same users and items in each.

    Users and items with no training row are dropped from all of it (the paper's rule); `info` says
    how many rows that cost, and how the split was made.

    Examples
    --------
    >>> import truelike as tl
    >>> log = tl.synthetic.World(n_users=50, n_items=40).log()
    >>> split = tl.split.by_user(log, validation=0.1, test=0.1, seed=0)
    >>> split.train.items == split.test.items
    True
    """

    train: Dataset
    validation: Dataset
    test: Dataset
    info: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        sizes = " / ".join(f"{part.n_interactions:,}" for part in self.parts)
        return f"Split({sizes} interactions, {self.train.n_users:,} users, {self.train.n_items:,} items)"

    @property
    def parts(self) -> tuple[Dataset, Dataset, Dataset]:
        """Train, validation, test."""
        return self.train, self.validation, self.test

    def impressions(self, shown: Dataset, *, weight: Literal["count", "propensity"] = "count") -> pl.DataFrame:
        """What was shown to whom, as a fit on the training part must take it: with propensities.

        A held-out vote is in the impressions but not in the training part, as if the user had seen the item and
        not liked it. So a like that was shown is a vote in training only as likely as a vote of its user was left
        there: that is its propensity.

        Parameters
        ----------
        shown
            The impressions.
        weight
            What the weights of `shown` are: how often a pair was shown (at least once is all that counts here), or
            how likely it was shown.

        Examples
        --------
        >>> import truelike as tl
        >>> world = tl.synthetic.World(n_users=50, n_items=40)
        >>> split = tl.split.by_user(world.log(), validation=0.1, test=0.1, seed=0)
        >>> bool((split.impressions(world.shown())["propensity"] < 1).any())
        True
        """
        here = shown.recode(self.train.users, self.train.items)[0]
        votes = np.sum([part.rows_per_user() for part in self.parts], axis=0)
        left = self.train.rows_per_user() / np.maximum(votes, 1)
        likely = here.matrix.data if weight == "propensity" else here.matrix.data > 0
        return pl.DataFrame(
            [
                here.users.take(here.user_of_entry).alias("user_id"),
                here.items.take(here.matrix.indices).alias("item_id"),
                pl.Series("propensity", left[here.user_of_entry] * likely),
            ]
        )

    def save(self, directory: str | Path) -> None:
        """Write the split as a directory: three Parquet files, two id maps and split.json."""
        with replacing_directory(Path(directory)) as place:
            for name, part in zip(PARTS, self.parts, strict=True):
                columns = {
                    "user": part.user_of_entry,
                    "item": part.matrix.indices,
                    "weight": part.matrix.data,
                }
                if part.times is not None:
                    columns["time"] = part.times
                pl.DataFrame(columns).write_parquet(place / f"{name}.parquet")
            write_ids(self.train, place)
            kinds = {"users": self.train.users.kind, "items": self.train.items.kind}
            about = {
                "format": FORMAT,
                "name": self.train.name,
                "ids": kinds,
                "library": self.train.library,
                "info": self.info,
            }
            (place / "split.json").write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: str | Path) -> Split:
        """Read a split that `save` wrote, or one in the format of the paper's authors."""
        place = settled(Path(directory))
        if has_file(place, "train_data.json"):
            return _load_authors(place)
        if not has_file(place, "split.json"):
            raise DataError(
                f"there is no split in {str(place)!r}: neither split.json nor train_data.json is there"
            )
        with reading(place, "split"):
            about = json.loads((place / "split.json").read_text())
            if about["format"] != FORMAT:
                raise DataError(f"{str(place)!r} has split format {about['format']}; this reads {FORMAT}")
            users, items, titles = read_ids(place, about["ids"])
            library = known_library(about["library"])
            shared = {"titles": titles, "library": library, "name": str(about["name"])}
            parts = [_load_part(place / f"{name}.parquet", users, items, shared) for name in PARTS]
            return cls(parts[0], parts[1], parts[2], about["info"])


def _load_part(path: Path, users: Ids, items: Ids, shared: dict[str, Any]) -> Dataset:
    rows = pl.read_parquet(path)
    for name, ids in (("user", users), ("item", items)):
        _check_codes(rows[name].to_numpy(), ids, path)
    return Dataset.from_pairs(
        users,
        items,
        rows["user"].to_numpy(),
        rows["item"].to_numpy(),
        weights=rows["weight"].to_numpy(),
        times=rows["time"].to_numpy() if "time" in rows.columns else None,
        **shared,
    )


def _check_codes(codes: NDArray[np.integer], ids: Ids, path: Path) -> None:
    """Row numbers from a file must be checked: SciPy does not, and would write outside its arrays."""
    if codes.dtype.kind not in "iu" or (len(codes) and not 0 <= codes.min() <= codes.max() < len(ids)):
        raise StorageError(
            f"{str(path)!r} is damaged: it names {ids.what}s that are not among its {len(ids):,}. Make it anew."
        )


def _load_authors(place: Path) -> Split:
    """Three files, `train_data.json` and so on: a list of users, each the list of its items."""
    with reading(place, "split"):
        lists: list[list[list[int]]] = [json.loads((place / f"{n}_data.json").read_text()) for n in PARTS]
        n_users = len(lists[0])
        users = Ids.range(n_users, "user")
        items = Ids.range(1 + max(max(row, default=-1) for part in lists for row in part), "item")
        parts = []
        for name, part in zip(PARTS, lists, strict=True):
            if len(part) != n_users:
                raise DataError(f"{name}_data.json has {len(part):,} users, train_data.json {n_users:,}")
            user_codes = np.repeat(np.arange(n_users, dtype=np.int32), [len(row) for row in part])
            item_codes = np.array([item for row in part for item in row] or np.empty(0, dtype=np.int32))
            _check_codes(item_codes, items, place / f"{name}_data.json")
            item_codes = item_codes.astype(np.int32)
            parts.append(Dataset.from_pairs(users, items, user_codes, item_codes, name=place.name))
    return _without_cold(parts, {"strategy": "authors"})


def random(log: Dataset, *, validation: float = 0.1, test: float = 0.1, seed: int = 0) -> Split:
    """Draw rows at random from the whole log, as the paper's text says (80/10/10).

    Examples
    --------
    >>> import truelike as tl
    >>> tl.split.random(tl.synthetic.World(n_users=100, n_items=80).log(), seed=1).info["strategy"]
    'random'
    """
    check_log(log, "split.random")
    n = log.n_interactions
    n_validation, n_test = _sizes(n, validation, test)
    drawn = _shuffled(log, seed, "random")
    label = np.zeros(n, dtype=np.uint8)
    label[drawn[:n_validation]] = VALIDATION
    label[drawn[n_validation : n_validation + n_test]] = TEST
    return _labelled(log, label, strategy="random", validation=validation, test=test, seed=seed)


def by_user(
    log: Dataset, *, validation: float = 0.1, test: float = 0.1, seed: int = 0, item_guard: int = 0
) -> Split:
    """Draw a share of each user's rows: round(share x n) to validation and as many to test.

    Parameters
    ----------
    log
        What to split.
    validation, test
        The share of each user's rows.
    seed
        Decides the draw.
    item_guard
        A row is drawn only while its item keeps this many other rows for training. The paper's authors
        use 9. Items rarer than that are then never tested, so the default is 0.

    Examples
    --------
    >>> import truelike as tl
    >>> log = tl.synthetic.World(n_users=100, n_items=80).log()
    >>> split = tl.split.by_user(log, seed=0, item_guard=9)
    >>> tested = split.test.popularity() + split.validation.popularity() > 0
    >>> bool((split.train.popularity()[tested] >= 9).all())
    True
    """
    check_log(log, "split.by_user")
    _sizes(log.n_interactions, validation, test)
    check_number("item_guard", item_guard, low=0, whole=True)
    return _labelled(
        log,
        _drawn_by_user(log, np.rint(np.outer((validation, test), log.rows_per_user())), seed, item_guard),
        strategy="by_user",
        validation=validation,
        test=test,
        seed=seed,
        item_guard=item_guard,
    )


def hold_out(log: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """A log without a share of each user's rows, and that share; users and items are those of the log.

    A part of a row is a row with that probability, so that those who have few give theirs, too. Each user and each
    item keeps a row: a model of the first part is one of the whole.
    """
    check_share("share", share)
    rows = log.rows_per_user()
    chance = randomness.uniform(randomness.key(seed, "hold_out"), np.arange(log.n_users))
    drawn = np.minimum(np.floor(share * rows + chance), rows - 1)
    label = _drawn_by_user(log, np.stack([drawn, np.zeros_like(drawn)]), seed, item_guard=1)
    return log.select(label == TRAIN), log.select(label == VALIDATION)


def _drawn_by_user(log: Dataset, quota: NDArray[Any], seed: int, item_guard: int) -> NDArray[np.uint8]:
    """The part of each row: of each user so many for validation and for test, as far as the guard allows."""
    from truelike.compiled import draw_by_user

    label = np.zeros(log.n_interactions, dtype=np.uint8)
    order = _shuffled(log, seed, "by_user")
    columns, popularity = log.matrix.indices, log.popularity()
    draw_by_user(order, log.user_of_entry, columns, quota.astype(np.int64), popularity, item_guard, label)
    return label


def leave_one_out(log: Dataset, *, by: Literal["time", "random"] | None = None, seed: int = 0) -> Split:
    """One row of each user to test and one to validation; a user with fewer than three keeps all.

    Parameters
    ----------
    log
        What to split.
    by
        "time": the last row to test, the one before it to validation. "random": drawn. None: by time
        where the log has times.
    seed
        Decides the draw, and the order of rows with the same time.
    """
    check_log(log, "split.leave_one_out")
    check_number("seed", seed, whole=True)
    if by is None:
        by = "random" if log.times is None else "time"
    noise = randomness.bits(randomness.key(seed, "leave_one_out"), np.arange(log.n_interactions))
    if by == "time":
        order = np.lexsort((noise, _need_times(log, "leave_one_out(by='time')"), log.user_of_entry))
    elif by == "random":
        order = np.lexsort((noise, log.user_of_entry))
    else:
        raise ParameterError(f'by is {by!r}; it is "time" or "random"')
    last = log.matrix.indptr[1:] - 1
    enough = log.rows_per_user() >= 3
    label = np.zeros(log.n_interactions, dtype=np.uint8)
    label[order[last[enough]]] = TEST
    label[order[last[enough] - 1]] = VALIDATION
    return _labelled(log, label, strategy="leave_one_out", by=by, seed=seed)


def temporal(log: Dataset, *, validation: float = 0.1, test: float = 0.1) -> Split:
    """The latest rows of the whole log to test, those before them to validation.

    Rows with the same time stay together, so the shares are met as nearly as the times allow.

    Examples
    --------
    >>> import truelike as tl
    >>> rows = [(user, item, 1, (user + item) % 10) for user in range(4) for item in range(10)]
    >>> split = tl.split.temporal(tl.read(rows), validation=0.1, test=0.2)
    >>> split.train.times.max() < split.validation.times.min() < split.test.times.min()
    np.True_
    """
    check_log(log, "split.temporal")
    times = _need_times(log, "temporal")
    n_validation, n_test = _sizes(log.n_interactions, validation, test)
    ordered = np.sort(times)
    test_from = ordered[-n_test] if n_test else np.iinfo(np.int64).max
    held_out = n_validation + n_test
    validation_from = ordered[-held_out] if held_out else test_from
    label = np.where(times >= test_from, TEST, np.where(times >= validation_from, VALIDATION, TRAIN))
    return _labelled(log, label.astype(np.uint8), strategy="temporal", validation=validation, test=test)


def _need_times(log: Dataset, what: str) -> NDArray[np.int64]:
    if log.times is None:
        raise DataError(
            f"{what} needs times, and this log has none. Name their column with read(..., time=...), "
            "or take split.by_user."
        )
    return log.times


def _sizes(n: int, validation: float, test: float) -> tuple[int, int]:
    for name, share in (("validation", validation), ("test", test)):
        check_share(name, share)
    if validation + test >= 1:
        raise ParameterError(f"validation + test is {validation + test}; nothing is left to train on")
    return round(validation * n), round(test * n)


def _shuffled(log: Dataset, seed: int, strategy: str) -> NDArray[np.int64]:
    check_number("seed", seed, whole=True)
    noise = randomness.bits(randomness.key(seed, "split", strategy), np.arange(log.n_interactions))
    return np.argsort(noise, kind="stable")


def _labelled(log: Dataset, label: NDArray[np.uint8], **info: Any) -> Split:
    parts = [log.select(label == part) for part in (TRAIN, VALIDATION, TEST)]
    info = {name: value.item() if isinstance(value, np.generic) else value for name, value in info.items()}
    split = _without_cold(parts, info)
    _warn_of_empty(split)
    return split


def _warn_of_empty(split: Split) -> None:
    """A part that was asked for and has no row is found out here rather than after the training."""
    for name in ("validation", "test"):
        asked = split.info.get(name, 1)  # leave_one_out is not asked for a share, and always means both
        if asked and not getattr(split, name).n_interactions:
            warnings.warn(
                f"the {name} part is empty: the log is too small for this split, or all the rows drawn for it "
                "are of users or items without a training row. Ask for a larger share, or split another way.",
                DataWarning,
                stacklevel=4,
            )


def _without_cold(parts: list[Dataset], info: dict[str, Any]) -> Split:
    """Drop users and items with no training row, and count what that costs."""
    users, items = parts[0].rows_per_user() > 0, parts[0].popularity() > 0
    warm = parts if users.all() and items.all() else [part.restrict(users, items) for part in parts]
    train, validation, test = (replace(part, users=warm[0].users, items=warm[0].items) for part in warm)
    cold = {
        "users": int((~users).sum()),
        "items": int((~items).sum()),
        "validation_rows": parts[1].n_interactions - validation.n_interactions,
        "test_rows": parts[2].n_interactions - test.n_interactions,
    }
    if train.n_interactions == 0:
        raise DataError(
            "no row is left to train on: the log is too small for this split, or too many of its rows share "
            "one time"
        )
    return Split(train, validation, test, {**info, "dropped_cold": cold})
