"""What users have interacted with before the test: it is left out of their lists and does not count as relevant."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np
from scipy import sparse

from truelike.data.checks import check_dataset
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.data.protocol import Rows
from truelike.data.splits import Split
from truelike.errors import DataWarning, ParameterError, warn

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

    def __init__(self, train: Rows, earlier: Dataset | None = None, name: str = "earlier") -> None:
        self.train, self.earlier = train, earlier
        self.parts: tuple[str, ...] = ("train",) if earlier is None else ("train", name)

    @classmethod
    def of(cls, train: Any, test: object, seen: Dataset | SeenParts | None = None) -> Seen:
        """What `tl.evaluate(model, test, seen=seen)` leaves out, with the users and items of the training data."""
        if seen is None:
            seen = "validation" if isinstance(test, Split) else "train"
        if isinstance(seen, str):
            return cls._of_parts(train, test, seen)
        check_dataset(seen, "seen", part="validation")
        known = seen.recode(train.users, train.items)[0]
        if seen.n_interactions and not known.n_interactions:
            warn(
                f"none of the {seen.n_interactions:,} interactions of seen is of a user and an item of the training "
                "data, so nothing is left out for them",
                DataWarning,
            )
        return cls(train, known if known.n_interactions else None)

    @classmethod
    def _of_parts(cls, train: Any, test: object, seen: str) -> Seen:
        check_seen_parts(seen)
        if seen == "train":
            return cls(train)
        if not isinstance(test, Split):
            raise ParameterError(
                f"seen is 'validation', and test is a {type(test).__name__}, which has no validation part. Pass the "
                "split as test, or the earlier interactions themselves: seen=split.validation"
            )
        known = test.validation.recode(train.users, train.items)[0]
        return cls(train, known if known.n_interactions else None, "validation")

    @property
    def n_items(self) -> int:
        """The number of items."""
        return self.train.n_items

    def rows(self, users: Codes) -> tuple[sparse.csr_array, Codes]:
        """A CSR with the items of some users, and the row of each of them."""
        seen, rows = self.train.rows(users)
        if self.earlier is None:
            return seen, rows
        more, places = self.earlier.rows(users)
        both = sparse.csr_array(seen[rows] + more[places])
        both.sort_indices()
        return both, np.arange(len(users), dtype=np.int32)


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
