"""The ways to make a split: `by_user`, `random`, `k_fold`, `last_n`, `leave_one_out`, `temporal`, `at_date`.

Impressions and other feedback are held out with the interactions (`cut.py`). The same seed gives the same split on
every machine: rows are drawn by a hash of (seed, row number). Row numbers follow the sorted ids, so the order of the
rows that were read does not matter.
"""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.data.checks import check_dataset, check_not_empty, check_number, check_share
from truelike.data.cut import TEST, TRAIN, VALIDATION, Cut, Labels, first_held_out
from truelike.data.dataset import Dataset
from truelike.data.moments import moment, time_range
from truelike.data.splits import Split, without_cold
from truelike.errors import DataError, DataWarning, ParameterError, warn

By = Literal["random", "time"]
Rounding = Literal["nearest", "random"]
Moment = date | str | float  # a datetime is a date
NEVER = np.iinfo(np.int64).max  # a moment after all times


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
    return _split(cut, _asked(validation, test), strategy="random", validation=validation, test=test, seed=seed)


def by_user(
    data: Dataset,
    *,
    validation: float = 0.1,
    test: float = 0.1,
    by: By | None = "random",
    rounding: Rounding = "nearest",
    seed: int = 0,
    item_guard: int = 0,
) -> Split:
    """Hold out a share of each user's interactions: round(share * n) of n for each part.

    A share of 0.1 of five interactions or fewer is then none: such users are never tested.
    ``info["users_never_tested"]`` counts them, and ``rounding="random"`` tests them, too.

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
    rounding
        "nearest" rounds share * n as the paper's authors did, so that figures can be compared with theirs. "random"
        rounds up with the probability of the fraction: 0.1 of 4 interactions are one for four users in ten. So each
        interaction has the same chance to be held out, whoever's it is. A user keeps one in training.
    seed
        Decides the draw, the rounding, and the order of interactions at the same time.
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

    Users with four interactions:

    >>> few = tl.read([(user, (user + n) % 9) for user in range(500) for n in range(4)])
    >>> tl.splits.by_user(few, rounding="random").info["users_never_tested"]
    0
    """
    check_dataset(data, "splits.by_user")
    _sizes(data.n_interactions, validation, test)
    check_number("item_guard", item_guard, low=0, high=2**31 - 1, whole=True)
    if rounding not in ("nearest", "random"):
        raise ParameterError(f'rounding is {rounding!r}; expected "nearest" or "random"')
    by = checked_by(data, by, "by_user")
    rows = data.interactions_per_user()
    quota = _rounded_at_random(rows, validation, test, randomness.key(seed, "by_user rounding"))
    largest = np.minimum(np.ceil(test * rows), rows - 1)
    if rounding == "nearest":
        quota = np.rint(np.outer((validation, test), rows))
        largest = quota[1]
    label = np.zeros(data.n_interactions, dtype=np.uint8)
    _draw_by_user(data, quota, by, seed, item_guard, label)
    return _split(
        cut_by_user(data, label, by, seed),
        _asked(validation, test),
        strategy="by_user",
        validation=validation,
        test=test,
        by=by,
        rounding=rounding,
        seed=seed,
        item_guard=item_guard,
        users_never_tested=int(((largest < 1) & (rows > 0)).sum()) if test else 0,
    )


def hold_out(data: Dataset, share: float, seed: int, by: By | None = "random") -> tuple[Dataset, Dataset]:
    """A dataset without a share of each user's interactions, and that share, with the same users and items.

    Fractions are rounded at random, so that users with few interactions contribute, too. Each user and each item
    keeps one interaction, so that a model of the first part knows all of them. `by` is that of `by_user`: "time" holds
    out each user's last interactions, and None does so if there are times.
    """
    check_share("share", share)
    by = checked_by(data, by, "hold_out")
    quota = _rounded_at_random(data.interactions_per_user(), share, 0.0, randomness.key(seed, "hold_out"))
    label = np.zeros(data.n_interactions, dtype=np.uint8)
    _draw_by_user(data, quota, by, seed, 1, label)
    train, held_out = cut_by_user(data, label, by, seed).parts((TRAIN, VALIDATION))
    return train, held_out


def k_fold(
    data: Dataset,
    k: int = 5,
    *,
    validation: float = 0.1,
    seed: int = 0,
) -> list[Split]:
    """Split k times, so that each interaction is in the test part of one split: k-fold cross-validation.

    Each user's interactions are dealt to the folds, as evenly as their number allows. Only an interaction whose user
    or item has no other in training is in no test part; ``info["dropped"]`` counts them.

    Parameters
    ----------
    data
        The dataset to split.
    k
        The number of folds: the test part of each has 1 / k of the interactions.
    validation
        The share of each user's interactions, drawn from the other folds. Fractions are rounded at random, and a user
        keeps an interaction in training.
    seed
        Decides the draw.

    Returns
    -------
    list of Split
        A split for each fold.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.synthetic.World(n_users=100, n_items=80).dataset()
    >>> folds = tl.splits.k_fold(data, k=4)
    >>> tested = sum(split.test.n_interactions + split.info["dropped"]["test_rows"] for split in folds)
    >>> tested == data.n_interactions
    True
    >>> figures = [tl.evaluate(tl.ItemPop().fit(split), split)["ndcg@20"] for split in folds]
    """
    check_dataset(data, "splits.k_fold")
    check_number("k", k, low=2, whole=True)
    if k > data.n_interactions:
        raise ParameterError(f"k is {k:,}; {data.n_interactions:,} interactions make no more folds")
    check_share("validation", validation)
    if validation + 1 / k >= 1:
        raise ParameterError(
            f"validation is {validation}, and the test part of each of {k} folds is {1 / k:.3g}; nothing is left to "
            "train on. Use a smaller share."
        )
    fold = np.empty(data.n_interactions, dtype=np.int64)
    fold[shuffled_by_user(data, seed, "k_fold")] = np.arange(data.n_interactions) % k
    rows = data.interactions_per_user()
    splits = []
    for number in range(k):
        label = np.where(fold == number, TEST, TRAIN).astype(np.uint8)
        tested = np.bincount(data.entry_users[label == TEST], minlength=data.n_users)
        quota = _rounded_at_random(rows, validation, 0.0, randomness.key(seed, "k_fold rounding", number))
        quota[0] = np.minimum(quota[0], rows - tested - 1)
        _draw_by_user(data, quota, "random", randomness.key(seed, "k_fold", number), 0, label)
        info = {"strategy": "k_fold", "k": k, "fold": number, "validation": validation, "seed": seed}
        splits.append(_split(Cut(data, label, seed), _asked(validation, 1), **info))
    return splits


def _rounded_at_random(rows: NDArray[np.int64], validation: float, test: float, key: int) -> NDArray[np.float64]:
    """How many of each user's interactions are held out for validation and for test: share * n in the mean.

    Of n interactions, n - 1 are held out at most.
    """
    shares = np.array([0.0, test, test + validation])
    ends = np.floor(np.outer(shares, rows) + randomness.uniform(key, np.arange(len(rows))))
    test_rows, validation_rows = np.diff(np.clip(np.minimum(ends, rows - 1), 0, None), axis=0)
    return np.stack([validation_rows, test_rows])


def _draw_by_user(
    data: Dataset, quota: NDArray[np.float64], by: By, seed: int, item_guard: int, label: Labels
) -> None:
    """Label `quota` interactions of each user for validation and test, of those in training, as the guard allows."""
    from truelike.data.kernels import draw_by_user

    order = _shuffled(data, seed, "by_user")
    users, items, quota = data.entry_users, data.csr.indices, quota.astype(np.int64)
    left = np.bincount(items[label == TRAIN], minlength=data.n_items)
    drawn = [quota]
    if by == "time":
        order = order[np.argsort(_need_times(data, "by='time'")[order], kind="stable")[::-1]]
        drawn = [quota * np.array([[0], [1]]), quota * np.array([[1], [0]])]  # test, then validation
    for each in drawn:
        draw_by_user(order[label[order] == TRAIN], users, items, each, left, item_guard, label)


def cut_by_user(data: Dataset, label: Labels, by: By, seed: int) -> Cut:
    """The cut of each user's interactions; by time from the first one of each part on."""
    return Cut(data, label, seed, first_held_out(data, label) if by == "time" else None)


def checked_by(data: Dataset, by: str | None, what: str) -> By:
    """How rows are chosen; None is by time if there are times."""
    if by is None:
        return "random" if data.times is None else "time"
    if by == "random":
        return "random"
    if by != "time":
        raise ParameterError(f'by is {by!r}; expected "time" or "random"')
    _need_times(data, f"{what}(by='time')")
    return "time"


def leave_one_out(data: Dataset, *, by: By | None = None, seed: int = 0) -> Split:
    """Hold out one interaction of each user for test and one for validation: `last_n` with n = 1.

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
    return _last(data, 1, 1, by, seed, strategy="leave_one_out")


def last_n(
    data: Dataset, n: int = 1, *, validation: int | None = None, by: By | None = None, seed: int = 0
) -> Split:
    """Hold out the last n interactions of each user for test, and those before them for validation.

    A user with too few for both parts and one in training keeps them all in training, and is not tested.
    ``info["users_never_tested"]`` counts these users.

    Parameters
    ----------
    data
        The dataset to split.
    n
        The number of interactions of each user for test.
    validation
        The number for validation, 0 for none; None: n.
    by
        "time" takes the last ones; "random" draws them. By default by time if the dataset has times.
    seed
        Decides the draw, and the order of interactions at the same time.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.read([(user, item, 1, (user + item) % 7) for user in range(5) for item in range(7)])
    >>> tl.splits.last_n(data, 2, validation=1)
    Split(20 / 5 / 10 interactions, 5 users, 7 items)
    """
    check_dataset(data, "splits.last_n")
    check_number("n", n, low=1, whole=True)
    validation = n if validation is None else validation
    check_number("validation", validation, low=0, whole=True)
    return _last(data, int(n), int(validation), by, seed, strategy="last_n", n=n, validation=validation)


def _last(data: Dataset, n_test: int, n_validation: int, by: By | None, seed: int, **info: Any) -> Split:
    by = checked_by(data, by, info["strategy"])
    times = _need_times(data, "by='time'") if by == "time" else None
    order = shuffled_by_user(data, seed, "leave_one_out", times)
    rows = data.interactions_per_user()
    few = rows <= n_test + n_validation
    later = np.repeat(data.csr.indptr[1:], rows) - np.arange(data.n_interactions)  # 1 for a user's last one
    part = np.where(later <= n_test, TEST, np.where(later <= n_test + n_validation, VALIDATION, TRAIN))
    label = np.empty(data.n_interactions, dtype=np.uint8)
    label[order] = np.where(np.repeat(few, rows), TRAIN, part)
    cut, asked = cut_by_user(data, label, by, seed), _asked(n_validation, n_test)
    return _split(cut, asked, **info, by=by, seed=seed, users_never_tested=int((few & (rows > 0)).sum()))


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
    test_from = ordered[-n_test] if n_test else NEVER
    held_out = n_validation + n_test
    validation_from = ordered[-held_out] if held_out else test_from
    cut = _cut_at(data, times, validation_from, test_from)
    return _split(cut, _asked(validation, test), strategy="temporal", validation=validation, test=test)


def at_date(data: Dataset, *, test_from: Moment, validation_from: Moment | None = None) -> Split:
    """Hold out the interactions from one moment on for test, and from an earlier one on for validation.

    Nothing that is trained on is later than a moment, for any user, as when a model was trained on that day. Users
    and items whose interactions are all later are dropped; ``info["dropped"]`` counts them.

    Parameters
    ----------
    data
        The dataset to split; it must have times.
    test_from
        Interactions at this moment or later are the test part. A date, a datetime or an ISO date in text, in UTC
        unless it has a time zone; or a number in the units of ``data.times``.
    validation_from
        Interactions at this moment or later, and before `test_from`, are the validation part. None: there is none.

    Examples
    --------
    >>> import truelike as tl
    >>> rows = [(user, item, 1, f"2024-0{1 + (user + item) % 6}-15") for user in range(6) for item in range(9)]
    >>> split = tl.splits.at_date(tl.read(rows), validation_from="2024-05-01", test_from="2024-06-01")
    >>> split
    Split(36 / 9 / 9 interactions, 6 users, 9 items)
    """
    check_dataset(data, "splits.at_date")
    check_not_empty(data)
    times = _need_times(data, "at_date")
    until = moment("test_from", test_from, times)
    since = until if validation_from is None else moment("validation_from", validation_from, times)
    if validation_from is not None and since >= until:
        raise ParameterError(
            f"validation_from is {validation_from!r}, which is not before test_from, {test_from!r}: the validation "
            "part is between them"
        )
    for name, value, at in (("test_from", test_from, until), ("validation_from", validation_from, since)):
        if value is not None and not times.min() < at <= times.max():
            raise DataError(
                f"{name} is {value!r}, and the times of the dataset are {time_range(times)}: there are no "
                f"interactions {'before it' if at <= times.min() else 'from then on'}"
            )
    cut = _cut_at(data, times, since, until)
    return _split(
        cut, _asked(validation_from is not None, 1), strategy="at_date", validation_from=since, test_from=until
    )


def _cut_at(data: Dataset, times: NDArray[np.int64], validation_from: int, test_from: int) -> Cut:
    """The cut of all users at two moments."""
    label = np.where(times >= test_from, TEST, np.where(times >= validation_from, VALIDATION, TRAIN))
    moments = np.repeat(np.array([[validation_from], [test_from]], dtype=np.int64), data.n_users, axis=1)
    return Cut(data, label.astype(np.uint8), moments=moments)


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


def shuffled_by_user(
    data: Dataset, seed: int, strategy: str, times: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The interactions user by user, each user's in the order of time, or in a random one."""
    check_number("seed", seed, whole=True)
    noise = randomness.bits(randomness.key(seed, strategy), np.arange(data.n_interactions))
    return np.lexsort((noise, data.entry_users) if times is None else (noise, times, data.entry_users))


def _asked(validation: float, test: float) -> list[str]:
    """The names of the parts that are to have interactions."""
    return [name for name, share in (("validation", validation), ("test", test)) if share]


def _split(cut: Cut, asked: list[str], **info: Any) -> Split:
    """The split of a cut; a warning if a part that was asked for is empty."""
    info = {name: value.item() if isinstance(value, np.generic) else value for name, value in info.items()}
    split = without_cold(cut.parts(), info)
    for name in asked:
        if not getattr(split, name).n_interactions:
            warn(
                f"the {name} part is empty: the dataset is too small for this split, or all interactions drawn "
                "for it are of users or items without any in training. Ask for a larger share, or another split.",
                DataWarning,
            )
    return split
