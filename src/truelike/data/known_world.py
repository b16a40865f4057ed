"""`KnownWorld`: what all worlds with known likes and known exposure have in common.

A pair is liked with the probability that a world gives, and shown to a user who gets a_u impressions, each drawn from
the items by their visibility to the user. It is observed if it is liked and shown. Everything is a hash of (seed, user,
item).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import final

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from truelike.core import randomness
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes, Ids
from truelike.data.truth import Truth
from truelike.errors import ParameterError

BLOCK = 2_048  # users per block; results do not depend on it
MOST_PAIRS = 200_000_000  # whose likes can be listed


class KnownWorld(ABC):
    """Users and items with known likes and known exposure."""

    n_users: int
    n_items: int
    seed: int

    # --- what a world is --------------------------------------------------------------------------

    @abstractmethod
    def _likes_of_pairs(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.float64]:
        """p(truly liked) of each pair; users and items are in range."""

    @abstractmethod
    def _activity_of_users(self) -> NDArray[np.int64]:
        """The number of impressions of each user, at least one."""

    @abstractmethod
    def _visibility_of_items(self) -> NDArray[np.float64]:
        """The probability that one impression shows each item; they add up to 1."""

    @abstractmethod
    def _titles_of_items(self) -> pl.Series | None:
        """A title for each item."""

    @abstractmethod
    def _key(self, *stream: str | int) -> int:
        """The key of a stream of random numbers of this world."""

    # --- what a world may change ------------------------------------------------------------------

    def _visibility_of_pairs(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability that one impression of the user shows the item. Default: the same for all users."""
        return self._visibility[items]

    def _shown_items(self, users: Codes, drawn: NDArray[np.float64]) -> NDArray[np.int64]:
        """The item of each impression, from a number between 0 and 1; impressions are sorted by user."""
        return np.searchsorted(self._cumulative, drawn)

    # --- true labels ------------------------------------------------------------------------------

    @final
    def like_probability(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float64]:
        """p(truly liked) of each pair (users[n], items[n])."""
        return self._likes_of_pairs(*self._pairs(users, items))

    @final
    def likes(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.bool_]:
        """Whether each pair is truly liked, observed or not."""
        rows, columns = self._pairs(users, items)
        drawn = randomness.uniform(self._key("likes"), rows * self.n_items + columns)
        return np.asarray(drawn < self._likes_of_pairs(rows, columns))

    @final
    def flip_probability(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float64]:
        """p(observed 0 | truly 1): the probability that the item was never shown to the user."""
        rows, columns = self._pairs(users, items)
        visible = self._visibility_of_pairs(rows, columns)
        return np.asarray((1.0 - visible) ** self._activity[rows], dtype=np.float64)

    @final
    def true_likes(self) -> Dataset:
        """All true likes as a Dataset; for worlds of at most 200 million pairs."""
        if self.n_users * self.n_items > MOST_PAIRS:
            raise ParameterError(
                "this world is too large to list all its likes; call likes(users, items) for the pairs you need"
            )
        everything = np.arange(self.n_items)
        found = [everything[self.likes(np.full(self.n_items, user), everything)] for user in range(self.n_users)]
        users = np.repeat(np.arange(self.n_users, dtype=np.int32), [len(liked) for liked in found])
        return self._dataset(users, np.concatenate(found).astype(np.int32), "true likes")

    @final
    def truth(self) -> Truth:
        """The label of every pair, for `tl.evaluate(model, truth=world.truth())`."""
        return Truth(self.true_likes())

    # --- impressions and interactions -------------------------------------------------------------

    @final
    def impressions_in_blocks(self) -> Iterator[tuple[Codes, Codes]]:
        """The impressions as arrays (users, items), a block of users at a time; pairs may repeat."""
        start = np.concatenate(([0], np.cumsum(self._activity)))
        for first in range(0, self.n_users, BLOCK):
            last = min(first + BLOCK, self.n_users)
            users = np.repeat(np.arange(first, last, dtype=np.int32), self._activity[first:last])
            drawn = randomness.uniform(self._key("shown"), np.arange(start[first], start[last]))
            yield users, np.minimum(self._shown_items(users, drawn), self.n_items - 1).astype(np.int32)

    @final
    def interactions_in_blocks(self) -> Iterator[tuple[Codes, Codes]]:
        """The interactions as arrays (users, items), each pair once, sorted, a block of users at a time."""
        for users, items in self.impressions_in_blocks():
            pairs = np.unique(users.astype(np.int64) * self.n_items + items)
            shown_users, shown_items = (each.astype(np.int32) for each in np.divmod(pairs, self.n_items))
            liked = self.likes(shown_users, shown_items)
            yield shown_users[liked], shown_items[liked]

    @final
    def dataset(self) -> Dataset:
        """The observed interactions."""
        return self._of_blocks(self.interactions_in_blocks(), "synthetic")

    @final
    def impressions(self) -> Dataset:
        """The impressions; the weight of a pair is the number of times it was shown."""
        return self._of_blocks(self.impressions_in_blocks(), "impressions")

    # --- parts ------------------------------------------------------------------------------------

    @cached_property
    def _activity(self) -> NDArray[np.int64]:
        return self._activity_of_users()

    @cached_property
    def _visibility(self) -> NDArray[np.float64]:
        return self._visibility_of_items()

    @cached_property
    def _cumulative(self) -> NDArray[np.float64]:
        return np.cumsum(self._visibility)

    def _pairs(self, users: ArrayLike, items: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Users and items as arrays, checked to be in range."""
        checked = []
        for what, asked, n in (("users", users, self.n_users), ("items", items, self.n_items)):
            numbers = np.atleast_1d(np.asarray(asked))
            if len(numbers) and not (numbers.dtype.kind in "iu" and 0 <= numbers.min() <= numbers.max() < n):
                raise ParameterError(f"{what} of this world are whole numbers from 0 to {n - 1:,}")
            checked.append(numbers.astype(np.int64))
        return checked[0], checked[1]

    def _of_blocks(self, blocks: Iterator[tuple[Codes, Codes]], name: str) -> Dataset:
        users, items = zip(*blocks, strict=True)
        return self._dataset(np.concatenate(users), np.concatenate(items), name)

    def _dataset(self, users: Codes, items: Codes, name: str, times: NDArray[np.int64] | None = None) -> Dataset:
        ids = Ids.range(self.n_users, "user"), Ids.range(self.n_items, "item")
        return Dataset.from_pairs(*ids, users, items, times=times, titles=self._titles_of_items(), name=name)
