"""`new_users`: a split in which whole users are held out, each with a history and what is to be found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from truelike.core import randomness
from truelike.core.files import describe_files, reading, replacing_directory, write_description
from truelike.data.checks import check_dataset, check_number, check_share
from truelike.data.cut import TEST, TRAIN, VALIDATION
from truelike.data.dataset import Dataset
from truelike.data.features import FeatureTable
from truelike.data.ids import Ids
from truelike.data.part_files import ID_FILES, read_parquet
from truelike.data.splits import as_dataset, known_ids, open_parts, read_parts, write_parts
from truelike.data.strategies import By, checked_by, cut_by_user, shuffled_by_user
from truelike.errors import DataError, DataWarning, ParameterError, warn

DESCRIPTION, GROUPS = "new_users.json", "groups.parquet"
PARTS = ("train", *(f"{group}-{what}" for group in ("validation", "test") for what in ("history", "targets")))
FILES = (DESCRIPTION, GROUPS, *(f"{name}.parquet" for name in PARTS), *ID_FILES)
OWN_FILES = re.compile(rf"({'|'.join(PARTS)})-(shown|kinds)\.parquet|(item|user)_features\.parquet|schema\.json")
FORMAT = 1


@dataclass(frozen=True, eq=False, init=False)
class NewUsers:
    """Users who are not in the training data: what is known of each, and what is to be found.

    Parameters
    ----------
    history
        The interactions that a fitted model is given: a Dataset, or anything that `tl.read` takes.
    targets
        The interactions of the same users to find.

    Examples
    --------
    >>> import truelike as tl
    >>> tl.NewUsers([("zoe", "tea"), ("zoe", "rum")], [("zoe", "gin")])
    NewUsers(1 users, 2 interactions of histories, 1 targets)
    """

    history: Dataset
    targets: Dataset

    def __init__(self, history: Any, targets: Any) -> None:
        for name, given in (("history", history), ("targets", targets)):
            object.__setattr__(self, name, as_dataset(given, name, "NewUsers"))  # the class is frozen

    def __repr__(self) -> str:
        return (
            f"NewUsers({self.history.n_users:,} users, {self.history.n_interactions:,} interactions of histories, "
            f"{self.targets.n_interactions:,} targets)"
        )


@dataclass(frozen=True, eq=False, repr=False)
class NewUserSplit:
    """A training part, and new users for validation and for test, none of whom is in it.

    `tl.splits.new_users` makes one. All parts have the items of `train`, and carry what is known beside the
    interactions. A model is fitted on `train`, and `tl.evaluate_new_users` gives it the histories of the new users.

    Attributes
    ----------
    train
        All interactions of the users who are not held out.
    validation, test
        The held-out users: `NewUsers`.
    info
        How the split was made.
    """

    train: Dataset
    validation: NewUsers
    test: NewUsers
    info: dict[str, Any]

    def __post_init__(self) -> None:
        items, taken = self.train.items, self.train.users
        for name, part in self._new_users():
            users = part.history.users
            if part.targets.users != users or not part.history.items == part.targets.items == items:
                raise DataError(
                    f"the histories and targets of {name} do not have the same users, and the items of train. Make the "
                    "split with tl.splits.new_users(data), or evaluate parts of your own one by one: "
                    "tl.evaluate_new_users(model, tl.NewUsers(history, targets))"
                )
            if shared := int((taken.codes(users.values) >= 0).sum()):
                raise DataError(f"{shared:,} users of {name} are in another part, too; each user has one part")
            taken = taken.union(users)

    def _new_users(self) -> Iterator[tuple[str, NewUsers]]:
        yield "validation", self.validation
        yield "test", self.test

    def __repr__(self) -> str:
        users = [self.train.n_users, *(part.history.n_users for _, part in self._new_users())]
        return (
            f"NewUserSplit({' / '.join(f'{n:,}' for n in users)} users, {self.train.n_interactions:,} interactions to "
            f"train on, {self.train.n_items:,} items)"
        )

    def save(self, directory: str | Path) -> None:
        """Write the split as a directory: Parquet files of the parts and of the ids, and new_users.json."""
        parts = {"train": self.train}
        for name, part in self._new_users():
            parts |= {f"{name}-history": part.history, f"{name}-targets": part.targets}
        groups = [part.users for part in (self.train, self.validation.history, self.test.history)]
        users = reduce(Ids.union, groups)
        parts = {name: part.recode(users, self.train.items)[0] for name, part in parts.items()}
        group = np.zeros(len(users), dtype=np.uint8)
        for number, ids in enumerate(groups):
            group[users.codes(ids.values)] = number
        parts["train"] = parts["train"].with_parts(user_features=_of_all(parts.values()))
        with replacing_directory(directory, own=OWN_FILES) as place:
            about = write_parts(place, parts)
            pl.DataFrame({"group": group}).write_parquet(place / GROUPS)
            about["files"] |= describe_files(place, [GROUPS])
            write_description(place / DESCRIPTION, {"format": FORMAT, "info": self.info, **about})

    @classmethod
    def load(cls, directory: str | Path) -> NewUserSplit:
        """Read a split that `save` wrote."""
        with open_parts(directory, DESCRIPTION, PARTS, FORMAT) as files, reading(files.place, "split"):
            about = files.about(FORMAT)
            train, *others = read_parts(files, about, PARTS)
            group, items = read_parquet(files, GROUPS)["group"].to_numpy(), np.ones(train.n_items, dtype=bool)
            train = train.restrict(group == TRAIN, items)
            validation, test = (
                NewUsers(*(part.restrict(group == number, items) for part in pair))
                for number, pair in ((VALIDATION, others[:2]), (TEST, others[2:]))
            )
            return cls(train, validation, test, dict(about["info"]))


def new_users(
    data: Dataset,
    *,
    validation: float = 0.1,
    test: float = 0.1,
    history: float = 0.8,
    by: By | None = "random",
    seed: int = 0,
) -> NewUserSplit:
    """Hold out whole users: a model is trained without them, and later given a part of their interactions.

    This is the strong generalization of the Mult-VAE paper (Liang et al., WWW 2018): training has all interactions of
    the other users. Interactions of held-out users with items that training does not know are dropped. Of what is
    left of a user, the history gets round(history * n) of n interactions, and the targets the others; each at least
    one. A held-out user who has fewer than two left is dropped. ``info["dropped"]`` counts all of these.

    Users with one interaction are never drawn: they stay in training, and ``info["users_never_tested"]`` counts them.

    Parameters
    ----------
    data
        The dataset to split.
    validation, test
        The share of the users with two or more interactions, such as 0.1; or their number, such as 500. 0 for none.
    history
        The share of each held-out user's interactions that the fitted model is given.
    by
        "random" draws the history, as the paper does. "time" takes the first interactions of each user. None: by time
        if the dataset has times.
    seed
        Decides the draw of users and of histories, and the order of interactions at the same time.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.synthetic.World(n_users=300, n_items=100).dataset()
    >>> split = tl.splits.new_users(data, validation=50, test=50)
    >>> split
    NewUserSplit(... / 50 / 50 users, ... interactions to train on, ... items)
    >>> model = tl.EASE().fit(split.train)
    >>> tl.evaluate_new_users(model, split.test, ks=20, metrics="ndcg")
    Evaluation(EASE, 50 users: ndcg@20 0...; left out: history)
    """
    check_dataset(data, "splits.new_users")
    check_number("history", history)
    if not 0 < history < 1:
        raise ParameterError(f"history is {history}; it must be above 0 and below 1: each user has both parts")
    by = checked_by(data, by, "new_users")
    check_number("seed", seed, whole=True)
    rows = data.interactions_per_user()
    able = np.flatnonzero(rows > 1)
    n_validation, n_test = (_users(*each, len(able)) for each in (("validation", validation), ("test", test)))
    if n_validation + n_test >= len(able):
        raise ParameterError(
            f"validation and test are {n_validation:,} and {n_test:,} users, and {len(able):,} users have two or more "
            "interactions; none of these is left to train on. Ask for fewer users."
        )
    noise = randomness.bits(randomness.key(seed, "split", "new_users"), able)
    drawn = able[np.argsort(noise, kind="stable")]
    group = np.full(data.n_users, TRAIN, dtype=np.uint8)
    group[drawn[:n_validation]] = VALIDATION
    group[drawn[n_validation : n_validation + n_test]] = TEST
    users, items = known_ids(data.restrict(group == TRAIN, np.ones(data.n_items, dtype=bool)))
    trained = group == TRAIN
    trained[trained] = users
    dropped = {"users": 0, "items": int((~items).sum())}
    parts = []
    for name, number, asked in (("validation", VALIDATION, validation), ("test", TEST, test)):
        known = data.restrict(group == number, items)
        enough = known.interactions_per_user() > 1
        parts.append(_with_targets(known.restrict(enough, np.ones(known.n_items, dtype=bool)), history, by, seed))
        kept = parts[-1].history.n_interactions + parts[-1].targets.n_interactions
        dropped["users"] += int((~enough).sum())
        dropped[f"{name}_rows"] = int(rows[group == number].sum()) - kept
        if asked and not kept:
            warn(
                f"the {name} part has no users: the dataset is too small for this split, or the items of the users "
                "drawn for it are not in training. Ask for more users.",
                DataWarning,
            )
    given: dict[str, Any] = {"validation": validation, "test": test, "history": history, "by": by, "seed": seed}
    given = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
    never = int((rows == 1).sum())
    info = {"strategy": "new_users", **given, "users_never_tested": never, "dropped": dropped}
    return NewUserSplit(data.restrict(trained, items), parts[0], parts[1], info)


def _of_all(parts: Iterable[Dataset]) -> FeatureTable | None:
    """The features of the users of all parts, each of which knows those of its own."""
    tables = [part.user_features for part in parts if part.user_features is not None]
    return reduce(FeatureTable.merge, tables) if tables else None


def _users(name: str, asked: float, n: int) -> int:
    """How many of n users a share or a number is."""
    if isinstance(asked, Integral) and not isinstance(asked, bool):
        check_number(name, asked, low=0, whole=True)
        return int(asked)
    check_share(name, asked)
    return round(asked * n)


def _with_targets(data: Dataset, history: float, by: By, seed: int) -> NewUsers:
    """Users with two or more interactions each, of whom the last or a random share are the targets."""
    rows = data.interactions_per_user()
    order = shuffled_by_user(data, seed, "new_users", data.times if by == "time" else None)
    place = np.arange(data.n_interactions) - np.repeat(data.csr.indptr[:-1], rows)
    known = np.clip(np.rint(history * rows), 1, rows - 1)
    label = np.empty(data.n_interactions, dtype=np.uint8)
    label[order] = np.where(place < np.repeat(known, rows), TRAIN, TEST)
    return NewUsers(*cut_by_user(data, label, by, seed).parts((TRAIN, TEST)))
