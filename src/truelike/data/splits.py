"""`Split`, and the ways to make one: `random`, `by_user`, `leave_one_out`, `temporal`.

Impressions and other feedback are held out with the interactions (`cut.py`). The same seed gives the same split on
every machine: rows are drawn by a hash of (seed, row number). Row numbers follow the sorted ids, so the order of the
rows that were read does not matter.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.core.files import (
    OpenDirectory,
    describe_files,
    has_file,
    reading,
    replacing_directory,
    settled,
    write_description,
)
from truelike.data.checks import check_dataset, check_number, check_share
from truelike.data.cut import TEST, TRAIN, VALIDATION, Cut
from truelike.data.dataset import Dataset
from truelike.data.html import split_html
from truelike.data.ids import Ids
from truelike.data.part_files import (
    ID_FILES,
    entry_rows,
    known_library,
    read_entries,
    read_features,
    read_ids,
    write_entries,
    write_features,
    write_ids,
)
from truelike.errors import DataError, DataWarning, NotFoundError, ParameterError, warn

PARTS = ("train", "validation", "test")
FILES = ("split.json", *(f"{name}.parquet" for name in PARTS), *ID_FILES)
OWN_FILES = re.compile(r"(train|validation|test)-(shown|kinds)\.parquet|(item|user)_features\.parquet")
FORMAT = 2


@dataclass(frozen=True, eq=False, init=False)
class Split:
    """The training, validation and test parts of one dataset, with the same users and items in each.

    Each part is a Dataset with its own impressions (`shown`) and other feedback (`kinds`), and with all features.
    `tl.splits` makes splits. To bring your own, read each part and build the split from them: validation and test
    take the users and items of `train`. Their rows of other users and items are dropped, counted in
    ``info["dropped"]`` and reported in a warning, because no model can rank what it was not trained on.

    Parameters
    ----------
    train
        A Dataset, or anything that `tl.read` takes.
    validation, test
        The same; None for an empty part. A part with exactly the pairs of `train` is an error. Rows that are also
        in `train` are kept, counted in ``info["also_in_train"]`` and reported in a warning: a model does not
        recommend items that the user has interacted with in training.
    info
        How the split was made.

    Examples
    --------
    >>> import truelike as tl
    >>> train = tl.read([("ann", "tea"), ("ann", "rum"), ("bob", "tea"), ("bob", "gin")])
    >>> test = tl.read([("bob", "rum")])
    >>> split = tl.Split(train, None, test)
    >>> split
    Split(4 / 0 / 1 interactions, 2 users, 3 items)
    >>> split.test.items is split.train.items
    True
    """

    train: Dataset
    validation: Dataset
    test: Dataset
    info: dict[str, Any]

    def __init__(
        self, train: Any, validation: Any = None, test: Any = None, info: dict[str, Any] | None = None
    ) -> None:
        train = _as_dataset(train, "train")
        info = dict(info or {})
        counted = {"users": 0, "items": 0, "validation_rows": 0, "test_rows": 0, **info.get("dropped", {})}
        known_shared = info.get("also_in_train", {})
        shared, unknown, aligned, messages = {}, {}, {}, []
        for name, given in (("validation", validation), ("test", test)):
            part = _empty(train) if given is None else _as_dataset(given, name)
            aligned[name] = _aligned(part, train, name)
            unknown[name] = _unknown(part, train)
            lost = part.n_interactions - aligned[name].n_interactions
            counted[f"{name}_rows"] += lost
            if lost:
                messages.append(_message_of_dropped(name, lost, part.n_interactions, unknown[name]))
            shared[f"{name}_rows"] = n = len(
                np.intersect1d(_pairs(aligned[name]), _pairs(train), assume_unique=True)
            )
            if n > known_shared.get(f"{name}_rows", 0):
                messages.append(_message_of_shared(name, n, part.n_interactions - lost))
        for what in ("users", "items"):
            counted[what] += pl.concat([ids[what] for ids in unknown.values()]).n_unique()
        train, aligned["validation"], aligned["test"] = _without_held_out(train, *aligned.values())
        info["dropped"] = counted
        if any(shared.values()):
            info["also_in_train"] = shared
        self._set(train, aligned["validation"], aligned["test"], info)
        for message in messages:
            warn(message, DataWarning)

    @classmethod
    def unchecked(cls, train: Dataset, validation: Dataset, test: Dataset, info: dict[str, Any]) -> Split:
        """Build a split of parts that have the same users and items already, without any check."""
        split = cls.__new__(cls)
        split._set(train, validation, test, info)
        return split

    def _set(self, train: Dataset, validation: Dataset, test: Dataset, info: dict[str, Any]) -> None:
        for name, value in (("train", train), ("validation", validation), ("test", test), ("info", info)):
            object.__setattr__(self, name, value)  # the class is frozen

    def _repr_html_(self) -> str:
        return split_html(self)

    def __repr__(self) -> str:
        sizes = " / ".join(f"{part.n_interactions:,}" for part in self.parts)
        return f"Split({sizes} interactions, {self.train.n_users:,} users, {self.train.n_items:,} items)"

    @property
    def parts(self) -> tuple[Dataset, Dataset, Dataset]:
        """Train, validation, test."""
        return self.train, self.validation, self.test

    def with_titles(self, titles: Any, *, encoding: str = "utf-8") -> Split:
        """The same split with names of its items for people to read; see `Dataset.with_titles`."""
        train = self.train.with_titles(titles, encoding=encoding)
        validation, test = (part.with_parts(titles=train.titles) for part in (self.validation, self.test))
        return Split.unchecked(train, validation, test, self.info)

    def save(self, directory: str | Path) -> None:
        """Write the split as a directory: Parquet files of the parts and of the ids, and split.json."""
        with replacing_directory(directory, own=OWN_FILES) as place:
            further = write_features(self.train, place)
            for name, part in zip(PARTS, self.parts, strict=True):
                columns = {"user": part.entry_users, "item": part.csr.indices, "weight": part.csr.data}
                times = {} if part.times is None else {"time": part.times}
                pl.DataFrame({**columns, **times}).write_parquet(place / f"{name}.parquet")
                further += write_entries(part, place, f"{name}-")
            write_ids(self.train, place)
            about = {
                "format": FORMAT,
                "name": self.train.name,
                "ids": {"users": self.train.users.kind, "items": self.train.items.kind},
                "library": self.train.library,
                "info": self.info,
                "files": describe_files(place, [*FILES[1:], *further]),
            }
            write_description(place / "split.json", about)

    @classmethod
    def load(cls, directory: str | Path) -> Split:
        """Read a split that `save` wrote, or one in the format of the paper's authors (three JSON files)."""
        place = settled(directory)
        if has_file(place, "train_data.json"):
            return _load_authors(place)
        try:
            with OpenDirectory(directory, "split", FILES[0], FILES[1:]) as files, reading(files.place, "split"):
                names = list(files.about(FORMAT)["files"])
            opened = OpenDirectory(directory, "split", FILES[0], sorted({*FILES[1:], *names}))
        except NotFoundError as error:
            raise DataError(
                f"there is no split in {str(place)!r}: it has neither split.json nor train_data.json"
            ) from error
        with opened as files, reading(files.place, "split"):
            about = files.about(FORMAT)
            users, items, titles = read_ids(files, about["ids"])
            shape = (len(users), len(items))
            shared = read_features(files, names, shape)
            shared |= {"titles": titles, "library": known_library(about["library"]), "name": str(about["name"])}
            parts = []
            for name in PARTS:
                found = _read_part(files, f"{name}.parquet", users, items)
                parts.append(
                    found.with_parts(**shared).with_parts(**read_entries(files, names, shape, f"{name}-"))
                )
            return cls.unchecked(parts[0], parts[1], parts[2], dict(about["info"]))


def _as_dataset(part: Any, name: str) -> Dataset:
    """A part of a split, read where it is not a Dataset yet."""
    if not isinstance(part, (Dataset, Split)):
        from truelike.data.read import read

        part = read(part)
    check_dataset(part, "Split", part=name)
    found: Dataset = part
    return found


def _empty(train: Dataset) -> Dataset:
    return train.select(np.zeros(train.n_interactions, dtype=bool)).with_parts(kinds={}, shown=None)


def _aligned(part: Dataset, train: Dataset, name: str) -> Dataset:
    """A held-out part in the users and items of the training part; an error where it cannot be evaluated."""
    known = part.recode(train.users, train.items)[0]
    if part.n_interactions and not known.n_interactions:
        raise DataError(
            f"none of the {part.n_interactions:,} {name} rows is of a user and an item of the training part. Its "
            f"ids look like {part.users[0]!r} (user) and {part.items[0]!r} (item), those of the training part "
            f"like {train.users[0]!r} and {train.items[0]!r}. Read both with the same columns."
        )
    if part.n_interactions and np.array_equal(_pairs(known), _pairs(train)):
        raise DataError(
            f"the {name} part has the same {train.n_interactions:,} pairs as the training part. Hold out "
            "interactions that the model is not trained on, e.g. with tl.splits.by_user(data)."
        )
    return known.with_parts(
        titles=train.titles,
        library=train.library,
        name=train.name,
        item_features=train.item_features,
        user_features=train.user_features,
    )


def _without_held_out(train: Dataset, validation: Dataset, test: Dataset) -> list[Dataset]:
    """The parts, with what the training part knows of held-out pairs in the part of the pair."""
    parts = [train, validation, test]
    if train.shown is None and not train.kinds:
        return parts
    numbers = [_pairs(each) for each in parts]
    pairs = np.unique(np.concatenate(numbers))
    label = np.full(len(pairs), TRAIN, dtype=np.uint8)
    for part in (TEST, VALIDATION, TRAIN):
        label[np.searchsorted(pairs, numbers[part])] = part
    users, items = (each.astype(np.int32) for each in np.divmod(pairs, train.n_items))
    whole = Dataset.from_pairs(train.users, train.items, users, items, kinds=train.kinds, shown=train.shown)
    cut = Cut(whole, label, shares=(0.0, 0.0))
    moved = [part.select(np.zeros(part.n_interactions, dtype=bool)) for part in cut.parts()]
    kept = train.with_parts(kinds=moved[0].kinds, shown=moved[0].shown)
    return [kept, *(part.merge(more) for part, more in zip(parts[1:], moved[1:], strict=True))]


def _unknown(part: Dataset, train: Dataset) -> dict[str, pl.Series]:
    """The users and the items that have interactions in a part and are not in the training part, as text."""
    found = {}
    for what, counts in (("users", part.interactions_per_user()), ("items", part.popularity())):
        ids, known = getattr(part, what), getattr(train, what)
        new = (known.codes(ids.values) < 0) & (counts > 0) if ids != known else np.zeros(len(ids), dtype=bool)
        found[what] = ids.values.filter(pl.Series(new)).cast(pl.String).alias("id")
    return found


def _pairs(data: Dataset) -> NDArray[np.int64]:
    """Each pair of a dataset as one number, sorted."""
    return np.asarray(data.entry_users.astype(np.int64) * data.n_items + data.csr.indices)


def _message_of_dropped(name: str, lost: int, total: int, unknown: dict[str, pl.Series]) -> str:
    counts = [f"{len(ids):,} {what if len(ids) > 1 else what[:-1]}" for what, ids in unknown.items() if len(ids)]
    return (
        f"dropped {lost:,} of {total:,} {name} rows: they are of {' and '.join(counts)} that are not in the "
        "training part"
    )


def _message_of_shared(name: str, shared: int, total: int) -> str:
    return (
        f"{shared:,} of {total:,} {name} rows are also in the training part. They cannot be recommended, because "
        "a model leaves out what a user has interacted with in training. Remove them from one of the two parts."
    )


def _read_part(files: OpenDirectory, name: str, users: Ids, items: Ids) -> Dataset:
    rows = entry_rows(files, name, (len(users), len(items)), {"weight": pl.Float32()})
    weights, times = rows["weight"], rows["time"] if "time" in rows.columns else None
    if not (weights.is_finite() & (weights > 0)).all():
        raise ValueError(f"{name} has a weight that is not a positive number")
    if times is not None and (times.dtype != pl.Int64 or times.null_count()):
        raise ValueError(f"{name} has a time that is not a whole number")
    return Dataset.from_pairs(
        users,
        items,
        rows["user"].to_numpy(),
        rows["item"].to_numpy(),
        weights=weights.to_numpy(),
        times=None if times is None else times.to_numpy(),
    )


def _load_authors(place: Path) -> Split:
    """Three files, `train_data.json` and so on: a list of users, each a list of items."""
    with reading(place, "split"):
        lists: list[list[list[int]]] = [json.loads((place / f"{n}_data.json").read_text()) for n in PARTS]
        n_users = len(lists[0])
        users = Ids.range(n_users, "user")
        items = Ids.range(1 + max(max(row, default=-1) for part in lists for row in part), "item")
        parts = []
        for name, part in zip(PARTS, lists, strict=True):
            if len(part) != n_users:
                raise DataError(
                    f"{name}_data.json has {len(part):,} users; expected {n_users:,}, as in train_data.json"
                )
            user_codes = np.repeat(np.arange(n_users, dtype=np.int32), [len(row) for row in part])
            item_codes = np.array([item for row in part for item in row] or np.empty(0, dtype=np.int32))
            parts.append(Dataset.from_pairs(users, items, user_codes, item_codes, name=place.name))
    return _without_cold(parts, {"strategy": "authors"})


def random(data: Dataset, *, validation: float = 0.1, test: float = 0.1, seed: int = 0) -> Split:
    """Hold out interactions drawn at random from the whole dataset, as the paper's text says (80/10/10).

    Parameters
    ----------
    data
        The dataset to split.
    validation, test
        The share of all interactions.
    seed
        Decides the draw.

    Examples
    --------
    >>> import truelike as tl
    >>> tl.splits.random(tl.synthetic.World(n_users=100, n_items=80).dataset(), seed=1).info["strategy"]
    'random'
    """
    check_dataset(data, "splits.random")
    n = data.n_interactions
    n_validation, n_test = _sizes(n, validation, test)
    drawn = _shuffled(data, seed, "random")
    label = np.zeros(n, dtype=np.uint8)
    label[drawn[:n_validation]] = VALIDATION
    label[drawn[n_validation : n_validation + n_test]] = TEST
    cut = Cut(data, label, seed, shares=(validation, test))
    return _cut(cut, strategy="random", validation=validation, test=test, seed=seed)


def by_user(
    data: Dataset,
    *,
    validation: float = 0.1,
    test: float = 0.1,
    by: Literal["random", "time"] | None = "random",
    seed: int = 0,
    item_guard: int = 0,
) -> Split:
    """Hold out a share of each user's interactions: round(share * n) of n for each part.

    Parameters
    ----------
    data
        The dataset to split.
    validation, test
        The share of each user's interactions.
    by
        "random" draws them. "time" takes the last interactions of each user for test, and those before them for
        validation. Unlike with `temporal`, each user is tested; but training has interactions of other users that
        are later. None: by time if the dataset has times.
    seed
        Decides the draw, and the order of interactions at the same time.
    item_guard
        An interaction is held out only while its item keeps this many others for training. The paper's authors use
        9. Rarer items are then never tested, so the default is 0.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.synthetic.World(n_users=100, n_items=80).dataset()
    >>> split = tl.splits.by_user(data, seed=0, item_guard=9)
    >>> tested = split.test.popularity() + split.validation.popularity() > 0
    >>> bool((split.train.popularity()[tested] >= 9).all())
    True
    >>> rows = [("ann", item, 1, time) for time, item in enumerate(["tea", "rum", "gin", "ale"])]
    >>> last = tl.splits.by_user(tl.read([*rows, ("bob", "ale", 1, 0)]), validation=0, test=0.25, by="time").test
    >>> last.seen("ann").to_list()
    ['ale']
    """
    check_dataset(data, "splits.by_user")
    _sizes(data.n_interactions, validation, test)
    check_number("item_guard", item_guard, low=0, high=2**31 - 1, whole=True)
    by = _checked_by(data, by, "by_user")
    quota = np.rint(np.outer((validation, test), data.interactions_per_user()))
    label = _drawn_by_user(data, quota, by, seed, item_guard)
    return _cut(
        Cut(data, label, seed, "user" if by == "time" else None),
        strategy="by_user",
        validation=validation,
        test=test,
        by=by,
        seed=seed,
        item_guard=item_guard,
    )


def hold_out(
    data: Dataset, share: float, seed: int, by: Literal["random", "time"] | None = "random"
) -> tuple[Dataset, Dataset]:
    """A dataset without a share of each user's interactions, and that share, with the same users and items.

    Fractions are rounded at random, so that users with few interactions contribute, too. Each user and each item
    keeps one interaction, so that a model of the first part knows all of them. `by` is that of `by_user`: "time" holds
    out each user's last interactions, and None does so if there are times.
    """
    check_share("share", share)
    by = _checked_by(data, by, "hold_out")
    rows = data.interactions_per_user()
    chance = randomness.uniform(randomness.key(seed, "hold_out"), np.arange(data.n_users))
    drawn = np.minimum(np.floor(share * rows + chance), rows - 1)
    label = _drawn_by_user(data, np.stack([drawn, np.zeros_like(drawn)]), by, seed, item_guard=1)
    train, held_out = Cut(data, label, seed, "user" if by == "time" else None).parts((TRAIN, VALIDATION))
    return train, held_out


def _drawn_by_user(
    data: Dataset, quota: NDArray[np.float64], by: Literal["random", "time"], seed: int, item_guard: int
) -> NDArray[np.uint8]:
    """The part of each row: `quota` rows of each user for validation and test, as far as the guard allows."""
    from truelike.data.kernels import draw_by_user

    label = np.zeros(data.n_interactions, dtype=np.uint8)
    order = _shuffled(data, seed, "by_user")
    users, items, left = data.entry_users, data.csr.indices, data.popularity()
    quota = quota.astype(np.int64)
    if by == "random":
        draw_by_user(order, users, items, quota, left, item_guard, label)
        return label
    times = _need_times(data, "by='time'")
    latest_first = order[np.argsort(times[order], kind="stable")[::-1]]
    nothing = np.zeros_like(quota[0])
    for only in (np.stack([nothing, quota[1]]), np.stack([quota[0], nothing])):  # test, then validation
        rest = latest_first[label[latest_first] == TRAIN]
        draw_by_user(rest, users, items, only, left, item_guard, label)
    return label


def _checked_by(data: Dataset, by: str | None, what: str) -> Literal["random", "time"]:
    """How rows are chosen; None is by time if there are times."""
    if by is None:
        return "random" if data.times is None else "time"
    if by == "random":
        return "random"
    if by != "time":
        raise ParameterError(f'by is {by!r}; expected "time" or "random"')
    _need_times(data, f"{what}(by='time')")
    return "time"


def leave_one_out(data: Dataset, *, by: Literal["time", "random"] | None = None, seed: int = 0) -> Split:
    """Hold out one interaction of each user for test and one for validation.

    A user with fewer than three interactions keeps them all in training.

    Parameters
    ----------
    data
        The dataset to split.
    by
        "time" takes the last interaction for test and the one before it for validation; "random" draws both. By
        default by time if the dataset has times.
    seed
        Decides the draw, and the order of interactions at the same time.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.read([(user, item, 1, (user + item) % 4) for user in range(4) for item in range(4)])
    >>> tl.splits.leave_one_out(data)
    Split(8 / 4 / 4 interactions, 4 users, 4 items)
    """
    check_dataset(data, "splits.leave_one_out")
    check_number("seed", seed, whole=True)
    by = _checked_by(data, by, "leave_one_out")
    noise = randomness.bits(randomness.key(seed, "leave_one_out"), np.arange(data.n_interactions))
    if by == "time":
        order = np.lexsort((noise, _need_times(data, "leave_one_out(by='time')"), data.entry_users))
    else:
        order = np.lexsort((noise, data.entry_users))
    last = data.csr.indptr[1:] - 1
    enough = data.interactions_per_user() >= 3
    label = np.zeros(data.n_interactions, dtype=np.uint8)
    label[order[last[enough]]] = TEST
    label[order[last[enough] - 1]] = VALIDATION
    cut = Cut(data, label, seed, "user" if by == "time" else None)
    return _cut(cut, strategy="leave_one_out", by=by, seed=seed)


def temporal(data: Dataset, *, validation: float = 0.1, test: float = 0.1) -> Split:
    """Hold out the latest interactions of the whole dataset for test, and those before them for validation.

    Interactions at the same time stay together, so the shares are met as nearly as the times allow.

    Parameters
    ----------
    data
        The dataset to split; it must have times.
    validation, test
        The share of all interactions.

    Examples
    --------
    >>> import truelike as tl
    >>> rows = [(user, item, 1, (user + item) % 10) for user in range(4) for item in range(10)]
    >>> split = tl.splits.temporal(tl.read(rows), validation=0.1, test=0.2)
    >>> split.train.times.max() < split.validation.times.min() < split.test.times.min()
    np.True_
    """
    check_dataset(data, "splits.temporal")
    times = _need_times(data, "temporal")
    n_validation, n_test = _sizes(data.n_interactions, validation, test)
    ordered = np.sort(times)
    test_from = ordered[-n_test] if n_test else np.iinfo(np.int64).max
    held_out = n_validation + n_test
    validation_from = ordered[-held_out] if held_out else test_from
    label = np.where(times >= test_from, TEST, np.where(times >= validation_from, VALIDATION, TRAIN))
    cut = Cut(data, label.astype(np.uint8), by_time="all")
    return _cut(cut, strategy="temporal", validation=validation, test=test)


def _need_times(data: Dataset, what: str) -> NDArray[np.int64]:
    if data.times is None:
        raise DataError(
            f"{what} needs times, and this dataset has none. Name their column with tl.read(..., time=...), or "
            "use tl.splits.by_user."
        )
    return data.times


def _sizes(n: int, validation: float, test: float) -> tuple[int, int]:
    for name, share in (("validation", validation), ("test", test)):
        check_share(name, share)
    if validation + test >= 1:
        raise ParameterError(
            f"validation + test is {validation + test}; nothing is left to train on. Use smaller shares."
        )
    return round(validation * n), round(test * n)


def _shuffled(data: Dataset, seed: int, strategy: str) -> NDArray[np.int64]:
    check_number("seed", seed, whole=True)
    noise = randomness.bits(randomness.key(seed, "split", strategy), np.arange(data.n_interactions))
    return np.argsort(noise, kind="stable")


def _cut(cut: Cut, **info: Any) -> Split:
    info = {name: value.item() if isinstance(value, np.generic) else value for name, value in info.items()}
    split = _without_cold(cut.parts(), info)
    for name in ("validation", "test"):
        asked = split.info.get(name, 1)  # leave_one_out has no shares and always makes both
        if asked and not getattr(split, name).n_interactions:
            warn(
                f"the {name} part is empty: the dataset is too small for this split, or all interactions drawn "
                "for it are of users or items without any in training. Ask for a larger share, or another split.",
                DataWarning,
            )
    return split


def _without_cold(parts: list[Dataset], info: dict[str, Any]) -> Split:
    """Drop users and items of which nothing is known in training from all parts, and count the rows that this drops."""
    users, items = _warm(parts[0])
    warm = parts if users.all() and items.all() else [part.restrict(users, items) for part in parts]
    names = ("users", "items", "titles", "item_features", "user_features")
    shared = {name: getattr(warm[0], name) for name in names}
    train, validation, test = (part.with_parts(**shared) for part in warm)
    cold = {
        "users": int((~users).sum()),
        "items": int((~items).sum()),
        "validation_rows": parts[1].n_interactions - validation.n_interactions,
        "test_rows": parts[2].n_interactions - test.n_interactions,
    }
    if train.n_interactions == 0:
        raise DataError(
            "no row is left to train on: the dataset is too small for this split, or too many of its rows share "
            "one time. Ask for smaller shares, or split another way."
        )
    return Split.unchecked(train, validation, test, {**info, "dropped": cold})


def _warm(train: Dataset) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The users and the items that have an interaction, other feedback or features."""
    users, items = train.interactions_per_user() > 0, train.popularity() > 0
    for kind in train.kinds.values():
        users |= np.diff(kind.csr.indptr) > 0
        items |= np.bincount(kind.csr.indices, minlength=len(items)) > 0
    for known, table in ((users, train.user_features), (items, train.item_features)):
        if table is not None:
            known |= table.known
    return users, items
