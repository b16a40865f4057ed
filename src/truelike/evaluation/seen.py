"""What users have interacted with before the test: it is left out of their lists and does not count as relevant."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np
from scipy import sparse

from truelike.data.checks import check_dataset
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.data.protocol import Interactions, Rows
from truelike.data.replay import INTERACTIONS
from truelike.data.seen import SeenBy, SeenPairs, SeenRules, seen_of
from truelike.data.splits import Split
from truelike.errors import DataWarning, ParameterError, muted, warn

SeenParts = Literal["train", "validation"]


class Seen:
    """The items of the training data, and those of earlier interactions with the same row numbers.

    Examples
    --------
    >>> import truelike as tl
    >>> train = tl.read([("ann", "tea"), ("ann", "rum"), ("bob", "tea"), ("bob", "gin")])
    >>> split = tl.Split(train, [("ann", "gin")], [("bob", "rum")])
    >>> seen = Seen.of(train, split)
    >>> seen.parts, seen.rows(np.array([0]))[0].indices.tolist()
    (('train', 'validation'), [0, 1, 2])
    """

    def __init__(
        self, train: Interactions, earlier: Dataset | None = None, name: str = "earlier", by: SeenBy = True
    ) -> None:
        now = _latest(train, earlier)
        self.n_items = train.n_items
        self.train = seen_of(train, by, now)
        self.earlier: Rows | None = None
        if earlier is not None and earlier.times is None and not earlier.kinds:  # nobody knows how long ago
            self.earlier = earlier if INTERACTIONS in SeenRules.of(by, train.schema).seconds else None
        elif earlier is not None:
            with muted():  # it need not have the kinds that the training data has
                self.earlier = seen_of(earlier.with_parts(schema=train.schema), by, now)
        parts = {"train": self.train, name: self.earlier}
        self.parts = tuple(each for each, there in parts.items() if there is not None)

    @classmethod
    def of(
        cls, train: Any, test: object, seen: Dataset | SeenParts | None = None, exclude_seen: SeenBy = True
    ) -> Seen:
        """What `tl.evaluate` leaves out with these arguments, with the users and items of the training data."""
        if seen is None:
            seen = "validation" if isinstance(test, Split) else "train"
        if isinstance(seen, str):
            return cls._of_parts(train, test, seen, exclude_seen)
        check_dataset(seen, "seen", part="validation")
        known = seen.recode(train.users, train.items)[0]
        if seen.n_interactions and not known.n_interactions:
            warn(
                f"none of the {seen.n_interactions:,} interactions of seen is of a user and an item of the training "
                "data, so nothing is left out for them",
                DataWarning,
            )
        return cls(train, known if known.n_interactions else None, by=exclude_seen)

    @classmethod
    def _of_parts(cls, train: Any, test: object, seen: str, exclude_seen: SeenBy) -> Seen:
        check_seen_parts(seen)
        if seen == "train":
            return cls(train, by=exclude_seen)
        if not isinstance(test, Split):
            raise ParameterError(
                f"seen is 'validation', and test is a {type(test).__name__}, which has no validation part. Pass the "
                "split as test, or the earlier interactions themselves: seen=split.validation"
            )
        known = test.validation.recode(train.users, train.items)[0]
        return cls(train, known if known.n_interactions or known.kinds else None, "validation", exclude_seen)

    def rows(self, users: Codes) -> tuple[sparse.csr_array, Codes]:
        """A CSR with the items of some users, and the row of each of them."""
        if self.train is None or self.earlier is None:
            only = self.earlier if self.train is None else self.train
            return SeenPairs.nothing(users, self.n_items) if only is None else only.rows(users)
        seen, rows = self.train.rows(users)
        more, places = self.earlier.rows(users)
        both = sparse.csr_array(seen[rows] + more[places])
        both.sort_indices()
        return both, np.arange(len(users), dtype=np.int32)


def _latest(*parts: Interactions | None) -> int | None:
    """The latest time of the interactions; None if there are no times."""
    datasets = [each for each in parts if isinstance(each, Dataset)]
    times = [each.times for each in datasets if each.times is not None and len(each.times)]
    return max((int(each.max()) for each in times), default=None)


def check_seen_parts(seen: object) -> SeenParts:
    """Return what is left out, as the name of a part; an error if it is no such name.

    >>> check_seen_parts("test")
    Traceback (most recent call last):
    ...
    truelike.errors.ParameterError: seen is 'test'; it must be "train" or "validation", or for tl.evaluate a Dataset ...
    """
    if seen not in get_args(SeenParts):
        raise ParameterError(
            f'seen is {seen!r}; it must be "train" or "validation", or for tl.evaluate a Dataset of earlier '
            'interactions. With "train" the training items of a user are left out of the list, with "validation" '
            "those of both parts."
        )
    return cast("SeenParts", seen)
