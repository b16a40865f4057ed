"""`k_core`: the part of a dataset in which every user and every item has enough interactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from truelike.data.checks import check_dataset, check_number
from truelike.data.dataset import Dataset
from truelike.errors import DataError


@dataclass(frozen=True)
class KCoreReport:
    """How much a k-core kept of a dataset: counts (before, after), and the number of rounds it took."""

    user: int
    item: int
    rounds: int
    users: tuple[int, int]
    items: tuple[int, int]
    interactions: tuple[int, int]

    def __str__(self) -> str:
        def kept(what: str, counts: tuple[int, int]) -> str:
            before, after = counts
            return f"{after:,} of {before:,} {what}"

        return (
            f"{self.user}/{self.item}-core after {self.rounds} rounds: {kept('users', self.users)}, "
            f"{kept('items', self.items)}, {kept('interactions', self.interactions)}"
        )


class KCore(NamedTuple):
    """The k-core of a dataset, and the report."""

    dataset: Dataset
    report: KCoreReport


def k_core(data: Dataset, *, user: int = 14, item: int = 14) -> KCore:
    """Drop users with fewer than `user` items and items with fewer than `item` users, until there are none.

    The result does not depend on the order of dropping: it is the largest part in which every user and item has
    enough interactions. The paper uses the 14-core of Amazon Electronics.

    Parameters
    ----------
    data
        The dataset.
    user, item
        The least number of items of each user, and of users of each item.

    Returns
    -------
    KCore
        The dataset and a report of what was dropped, as a named tuple (dataset, report).

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.read([("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 2), ("c", 3)])
    >>> core, report = tl.k_core(data, user=2, item=2)
    >>> core
    Dataset(4 interactions, 2 users, 2 items, sparsity 0.0000%)
    >>> print(report)
    2/2-core after 3 rounds: 2 of 3 users, 2 of 3 items, 4 of 6 interactions
    """
    check_dataset(data, "k_core")
    for name, least in (("user", user), ("item", item)):
        check_number(name, least, low=0, whole=True)
    users = np.ones(data.n_users, dtype=bool)
    items = np.ones(data.n_items, dtype=bool)
    rounds = 0
    rows, columns = data.user_of_entry, data.csr.indices
    while True:
        rounds += 1
        weak_users = users & (np.bincount(rows, minlength=data.n_users) < user)
        weak_items = items & (np.bincount(columns, minlength=data.n_items) < item)
        if not (weak_users.any() or weak_items.any()):
            break
        users &= ~weak_users
        items &= ~weak_items
        keep = users[rows] & items[columns]
        rows, columns = rows[keep], columns[keep]
    if not (users.any() and items.any()):
        raise DataError(
            f"nothing is left of the dataset in its {user}/{item}-core: no group of users and items is that "
            "dense. Ask for fewer interactions, e.g. k_core(data, user=5, item=5)."
        )
    core = data.restrict(users, items)
    report = KCoreReport(
        user,
        item,
        rounds,
        (data.n_users, core.n_users),
        (data.n_items, core.n_items),
        (data.n_interactions, core.n_interactions),
    )
    return KCore(core, report)
