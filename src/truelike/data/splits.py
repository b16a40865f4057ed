"""`Split`: the training, validation and test parts of a dataset. `strategies.py` has the ways to make one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.core.files import (
    OpenDirectory,
    describe_files,
    has_file,
    reading,
    replacing_directory,
    settled,
    write_description,
)
from truelike.data.checks import check_dataset
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
from truelike.errors import DataError, DataWarning, NotFoundError, warn

PARTS = ("train", "validation", "test")
FILES = ("split.json", *(f"{name}.parquet" for name in PARTS), *ID_FILES)
OWN_FILES = re.compile(
    r"(train|validation|test)-(shown|kinds)\.parquet|(item|user)_features\.parquet|schema\.json"
)
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
        train = as_dataset(train, "train")
        info = dict(info or {})
        counted = {"users": 0, "items": 0, "validation_rows": 0, "test_rows": 0, **info.get("dropped", {})}
        known_shared = info.get("also_in_train", {})
        shared, unknown, aligned, messages = {}, {}, {}, []
        for name, given in (("validation", validation), ("test", test)):
            part = _empty(train) if given is None else as_dataset(given, name)
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
            about = write_parts(place, dict(zip(PARTS, self.parts, strict=True)))
            write_description(place / "split.json", {"format": FORMAT, "info": self.info, **about})

    @classmethod
    def load(cls, directory: str | Path) -> Split:
        """Read a split that `save` wrote, or one in the format of the paper's authors (three JSON files)."""
        place = settled(directory)
        if has_file(place, "train_data.json"):
            return _load_authors(place)
        try:
            opened = open_parts(directory, "split.json", PARTS, FORMAT)
        except NotFoundError as error:
            raise DataError(
                f"there is no split in {str(place)!r}: it has neither split.json nor train_data.json"
            ) from error
        with opened as files, reading(files.place, "split"):
            about = files.about(FORMAT)
            parts = read_parts(files, about, PARTS)
            return cls.unchecked(parts[0], parts[1], parts[2], dict(about["info"]))


def write_parts(place: Path, parts: Mapping[str, Dataset]) -> dict[str, Any]:
    """Write datasets with the same ids and features into a directory, and return what describes them."""
    first = next(iter(parts.values()))
    names = write_features(first, place)
    for name, part in parts.items():
        columns = {"user": part.entry_users, "item": part.csr.indices, "weight": part.csr.data}
        times = {} if part.times is None else {"time": part.times}
        pl.DataFrame({**columns, **times}).write_parquet(place / f"{name}.parquet")
        names += [f"{name}.parquet", *write_entries(part, place, f"{name}-")]
    write_ids(first, place)
    return {
        "name": first.name,
        "ids": {"users": first.users.kind, "items": first.items.kind},
        "library": first.library,
        "files": describe_files(place, [*names, *ID_FILES]),
    }


def open_parts(directory: str | Path, description: str, parts: Sequence[str], format: int) -> OpenDirectory:
    """Open the files that `write_parts` wrote, and those that their description names beside them."""
    required = [*(f"{name}.parquet" for name in parts), *ID_FILES]
    with OpenDirectory(directory, "split", description, required) as files, reading(files.place, "split"):
        names = list(files.about(format)["files"])
    return OpenDirectory(directory, "split", description, sorted({*required, *names}))


def read_parts(files: OpenDirectory, about: Mapping[str, Any], parts: Sequence[str]) -> list[Dataset]:
    """Read the datasets that `write_parts` wrote."""
    users, items, titles = read_ids(files, about["ids"])
    shape, names = (len(users), len(items)), list(about["files"])
    shared = read_features(files, names, shape)
    shared |= {"titles": titles, "library": known_library(about["library"]), "name": str(about["name"])}
    found = [_read_part(files, f"{name}.parquet", users, items) for name in parts]
    return [
        part.with_parts(**shared).with_parts(**read_entries(files, names, shape, f"{name}-"))
        for name, part in zip(parts, found, strict=True)
    ]


def as_dataset(part: Any, name: str, what: str = "Split") -> Dataset:
    """A part of a split, read where it is not a Dataset yet."""
    if not isinstance(part, (Dataset, Split)):
        from truelike.data.read import read

        part = read(part)
    check_dataset(part, what, part=name)
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
        schema=train.schema,
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
        f"{shared:,} of {total:,} {name} rows are also in the training part. They are not recommended, because "
        "a model leaves out what a user has interacted with in training. Remove them from one of the two parts, or "
        "pass exclude_seen=False to tl.evaluate if they are what is to be predicted."
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
    return without_cold(parts, {"strategy": "authors"})


def without_cold(parts: list[Dataset], info: dict[str, Any]) -> Split:
    """Drop users and items of which nothing is known in training from all parts, and count the rows that this drops."""
    users, items = known_ids(parts[0])
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


def known_ids(train: Dataset) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The users and the items that have an interaction, other feedback or features."""
    users, items = train.interactions_per_user() > 0, train.popularity() > 0
    for kind in train.kinds.values():
        users |= np.diff(kind.csr.indptr) > 0
        items |= np.bincount(kind.csr.indices, minlength=len(items)) > 0
    for known, table in ((users, train.user_features), (items, train.item_features)):
        if table is not None:
            known |= table.known
    return users, items
