"""`Interactions`: what models ask of training data, whether it is a `Dataset` or `Blocks`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeGuard

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.frames import Library
from truelike.data.ids import Codes, Ids
from truelike.data.schema import Schema

if TYPE_CHECKING:
    from truelike.data.dataset import Dataset
    from truelike.data.feedback import Feedback

ASKED = ("n_interactions", "interactions_per_user", "popularity", "rows")  # what nothing else has


class Digest(Protocol):
    """A hash of `hashlib`."""

    def update(self, data: bytes, /) -> None:
        """Add bytes."""


class Rows(Protocol):
    """The items of each user by row numbers: what lists leave out."""

    @property
    def n_items(self) -> int:
        """The number of items."""

    def rows(self, users: Codes) -> tuple[sparse.csr_array, Codes]:
        """A CSR that has the items of some users, by row numbers, and the row of each of them."""


class Interactions(Rows, Protocol):
    """Interactions of users with items by row numbers, in memory or not, and what else is known of them."""

    @property
    def users(self) -> Ids:
        """The ids of the users, sorted."""

    @property
    def items(self) -> Ids:
        """The ids of the items, sorted."""

    @property
    def library(self) -> Library:
        """The frame library of the rows that were read."""

    @property
    def titles(self) -> pl.Series | None:
        """A title for each item; None if there are no titles."""

    @property
    def kinds(self) -> Mapping[str, Feedback]:
        """Other feedback by its name."""

    @property
    def schema(self) -> Schema | None:
        """What the kinds of events mean; None if the rows had no kinds."""

    @property
    def n_users(self) -> int:
        """The number of users."""

    @property
    def n_interactions(self) -> int:
        """The number of distinct (user, item) pairs."""

    @property
    def has_weights(self) -> bool:
        """Whether any pair has a weight other than 1."""

    @property
    def carries(self) -> frozenset[str]:
        """What is known beside the interactions."""

    def interactions_per_user(self) -> NDArray[np.int64]:
        """The number of items of each user, in the order of `users`."""

    def popularity(self) -> NDArray[np.int64]:
        """The number of users of each item, in the order of `items`."""

    def items_of(self, user: int) -> Codes:
        """The items of a user, by row numbers."""

    def history_of(self, user: int) -> tuple[sparse.csr_array, NDArray[np.int64] | None]:
        """The interactions of a user as a CSR of one row, with weights, and their times."""

    def every(self, step: int) -> sparse.csr_array:
        """A CSR of every `step`-th user."""

    def parts(self) -> Iterator[Dataset]:
        """The interactions of some users after the other, as much as is in memory at once."""

    def recode(self, users: Ids, items: Ids) -> tuple[Dataset, int]:
        """What is known of the given users and items, in their order, and the number of pairs of others."""

    def to_dataset(self) -> Dataset:
        """All in memory."""

    def digest_into(self, digest: Digest) -> None:
        """Add all that models learn from to a digest."""


def has_interactions(value: object) -> TypeGuard[Interactions]:
    """Whether a value is a Dataset or Blocks.

    >>> import truelike as tl
    >>> has_interactions(tl.read([("ann", "tea")])), has_interactions([("ann", "tea")])
    (True, False)
    """
    return all(hasattr(type(value), name) for name in ASKED)
