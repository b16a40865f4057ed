"""k-core: only users and items with enough votes, where each vote counts only between such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from truelike.data.checks import check_log, check_number
from truelike.data.dataset import Dataset
from truelike.errors import DataError


@dataclass(frozen=True)
class KCoreReport:
    """What a k-core dropped, and in how many rounds it reached its fixed point."""

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
    """The dense part of a log, and the report of what was dropped."""

    dataset: Dataset
    report: KCoreReport


def k_core(log: Dataset, *, user: int = 14, item: int = 14) -> KCore:
    """Drop users with fewer than `user` items and items with fewer than `item` users, until none is left.

    The result is the largest such part of the log, whatever the order of dropping. The paper takes the
    14-core of Amazon Electronics.

    Examples
    --------
    >>> import truelike as tl
    >>> log = tl.read([("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 2), ("c", 3)])
    >>> core, report = tl.k_core(log, user=2, item=2)
    >>> core
    Dataset(4 interactions, 2 users, 2 items, sparsity 0.0000%)
    >>> print(report)
    2/2-core after 3 rounds: 2 of 3 users, 2 of 3 items, 4 of 6 interactions
    """
    check_log(log, "k_core")
    for name, least in (("user", user), ("item", item)):
        check_number(name, least, low=0, whole=True)
    users = np.ones(log.n_users, dtype=bool)
    items = np.ones(log.n_items, dtype=bool)
    rounds = 0
    rows, columns = log.user_of_entry, log.matrix.indices
    while True:
        rounds += 1
        user_votes = np.bincount(rows, minlength=log.n_users)
        item_votes = np.bincount(columns, minlength=log.n_items)
        weak_users, weak_items = users & (user_votes < user), items & (item_votes < item)
        if not (weak_users.any() or weak_items.any()):
            break
        users &= ~weak_users
        items &= ~weak_items
        keep = users[rows] & items[columns]
        rows, columns = rows[keep], columns[keep]
    if not (users.any() and items.any()):
        raise DataError(
            f"nothing is left of the log in its {user}/{item}-core: no group of users and items is that "
            "dense. Ask for fewer votes, e.g. k_core(log, user=5, item=5)."
        )
    core = log.restrict(users, items)
    report = KCoreReport(
        user,
        item,
        rounds,
        (log.n_users, core.n_users),
        (log.n_items, core.n_items),
        (log.n_interactions, core.n_interactions),
    )
    return KCore(core, report)
