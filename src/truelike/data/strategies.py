"""The ways to make a split: `by_user`, `random`, `leave_one_out`, `last_n`, `temporal`, `at_date`, `k_fold`.

Impressions and other feedback are held out with the interactions (`cut.py`). The same seed gives the same split on
every machine: rows are drawn by a hash of (seed, row number). Row numbers follow the sorted ids, so the order of the
rows that were read does not matter.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.data.checks import check_dataset, check_number, check_share
from truelike.data.cut import TEST, TRAIN, VALIDATION, Cut
from truelike.data.dataset import Dataset
from truelike.data.splits import Split, without_cold
from truelike.errors import DataError, DataWarning, ParameterError, warn


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
    split = without_cold(cut.parts(), info)
    for name in ("validation", "test"):
        asked = split.info.get(name, 1)  # leave_one_out has no shares and always makes both
        if asked and not getattr(split, name).n_interactions:
            warn(
                f"the {name} part is empty: the dataset is too small for this split, or all interactions drawn "
                "for it are of users or items without any in training. Ask for a larger share, or another split.",
                DataWarning,
            )
    return split
