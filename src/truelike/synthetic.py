"""Synthetic data for which the true likes, the impressions and the interactions are known: `World`.

1. **Tastes.** Users and items belong to clusters (genres) and have low-rank vectors around their centres. The
   probability that user u truly likes item i is sigma(bias + taste * t_u . q_i + quality_i).
2. **Exposure.** User u gets a_u impressions (the activity), each drawn from the items by their visibility. So
   p(shown) = 1 - (1 - v_i)^a_u: it grows with the activity of the user and the visibility of the item. With
   `exposure_taste`, visibility also grows with the user's taste for the item.
3. **Interactions.** A pair is observed if it is liked and shown. So the paper's flip probability,
   p(observed 0 | truly 1), is p(never shown) = (1 - v_i)^a_u.

Everything is a hash of (seed, user, item). So the label of any pair can be computed at any time and is not stored,
and 100 million interactions can be streamed in blocks of users.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from truelike.core import randomness
from truelike.core.forks import check_not_forked
from truelike.data.checks import check_number
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes, Ids
from truelike.data.truth import Truth
from truelike.errors import ParameterError

GENRES = (
    "Jazz", "Techno", "Folk", "Metal", "Opera", "Reggae", "Blues", "Punk",
    "Soul", "Ambient", "Flamenco", "Tango", "Gospel", "Grunge", "Klezmer", "Samba",
)  # fmt: skip
MOST_TITLES = 1_000_000  # items that get titles
BLOCK = 2_048  # users per block; results do not depend on it
MOST_PAIRS = 200_000_000  # whose likes can be listed

__all__ = ["World"]


def __dir__() -> list[str]:
    return sorted(__all__)


@dataclass(frozen=True, eq=False)
class World:
    """Users and items with known likes and known exposure.

    Parameters
    ----------
    n_users, n_items
        The number of users and items.
    n_clusters
        The number of clusters (genres).
    rank
        The length of the taste vectors.
    impressions_per_user
        The mean number of impressions of a user.
    taste
        How strongly tastes decide what is liked; at 0, only the quality of items does.
    like_rate
        The approximate share of all pairs that are truly liked.
    exposure_skew
        How much more visible popular items are; at 0, all items are equally visible.
    exposure_taste
        How much more an item is shown to those whose taste it is, as a recommender does; at 0, tastes do not matter.
        Visibility is multiplied by exp(exposure_taste * taste * t_u . q_i).
    seed
        Decides everything.

    Examples
    --------
    >>> world = World(n_users=200, n_items=100, seed=0)
    >>> data = world.dataset()
    >>> data.n_users, data.n_items
    (200, 100)
    >>> flips = world.flip_probability(np.array([0, 1]), np.array([5, 7]))
    >>> bool(((0 <= flips) & (flips <= 1)).all())
    True
    """

    n_users: int = 2_000
    n_items: int = 1_500
    n_clusters: int = 8
    rank: int = 8
    impressions_per_user: float = 400.0
    taste: float = 2.5
    like_rate: float = 0.08
    exposure_skew: float = 0.9
    exposure_taste: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high, whole in (
            ("n_users", 2, 2**31 - 1, True),
            ("n_items", 2, 2**31 - 1, True),
            ("n_clusters", 1, None, True),
            ("rank", 1, None, True),
            ("impressions_per_user", 1, None, False),
            ("taste", 0, None, False),
            ("like_rate", 1e-6, 0.5, False),
            ("exposure_skew", 0, 5, False),
            ("exposure_taste", 0, 5, False),
            ("seed", None, None, True),
        ):
            check_number(name, getattr(self, name), low=low, high=high, whole=whole)

    # --- true labels ------------------------------------------------------------------------------

    def like_probability(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float64]:
        """p(truly liked) of each pair (users[n], items[n])."""
        return self._likes_of_pairs(*self._pairs(users, items))

    def likes(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.bool_]:
        """Whether each pair is truly liked, observed or not."""
        rows, columns = self._pairs(users, items)
        drawn = randomness.uniform(self._key("likes"), rows * self.n_items + columns)
        return np.asarray(drawn < self._likes_of_pairs(rows, columns))

    def flip_probability(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float64]:
        """p(observed 0 | truly 1): the probability that the item was never shown to the user."""
        rows, columns = self._pairs(users, items)
        visible = self._visibility_of_pairs(rows, columns)
        return np.asarray((1.0 - visible) ** self._activity[rows], dtype=np.float64)

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

    def truth(self) -> Truth:
        """The label of every pair, for `tl.evaluate(model, truth=world.truth())`."""
        return Truth(self.true_likes())

    # --- impressions and interactions -------------------------------------------------------------

    def impressions_in_blocks(self) -> Iterator[tuple[Codes, Codes]]:
        """The impressions as arrays (users, items), a block of users at a time; pairs may repeat."""
        start = np.concatenate(([0], np.cumsum(self._activity)))
        for first in range(0, self.n_users, BLOCK):
            last = min(first + BLOCK, self.n_users)
            users = np.repeat(np.arange(first, last, dtype=np.int32), self._activity[first:last])
            drawn = randomness.uniform(self._key("shown"), np.arange(start[first], start[last]))
            yield users, np.minimum(self._shown_items(users, drawn), self.n_items - 1).astype(np.int32)

    def interactions_in_blocks(self) -> Iterator[tuple[Codes, Codes]]:
        """The interactions as arrays (users, items), each pair once, sorted, a block of users at a time."""
        for users, items in self.impressions_in_blocks():
            pairs = np.unique(users.astype(np.int64) * self.n_items + items)
            shown_users, shown_items = (each.astype(np.int32) for each in np.divmod(pairs, self.n_items))
            liked = self.likes(shown_users, shown_items)
            yield shown_users[liked], shown_items[liked]

    def dataset(self) -> Dataset:
        """The observed interactions."""
        return self._of_blocks(self.interactions_in_blocks(), "synthetic")

    def impressions(self) -> Dataset:
        """The impressions; the weight of a pair is the number of times it was shown."""
        return self._of_blocks(self.impressions_in_blocks(), "impressions")

    def impression_log(
        self, miss_rate: float = 0.0, examination: Sequence[float] | None = None
    ) -> tuple[Dataset, pl.DataFrame]:
        """The interactions and the impressions of a world in which users miss what they are shown.

        The impressions of a user come one after the other. A liked item is noticed at each of them with probability
        1 - miss_rate, and the first time it is noticed it is taken: that is the interaction, and its time that of the
        impression. A liked item that is never noticed is hidden. Likes and impressions are those of the world.

        Parameters
        ----------
        miss_rate
            The probability that a user misses a liked item at one impression.
        examination
            The probability that a user looks at position 1, 2, ... of a page. Impressions come in pages of that many
            items, with good items mostly first. A liked item is then noticed with probability (1 - miss_rate) times
            that of its position. None: there are no positions.

        Returns
        -------
        Dataset
            The interactions, with times.
        polars.DataFrame
            The impressions in the order shown: user_id, item_id, time (the number of the impression of the user) and,
            if there are any, position.

        Examples
        --------
        >>> data, shown = World(n_users=200, n_items=100).impression_log(miss_rate=0.5)
        >>> data.n_interactions < World(n_users=200, n_items=100).dataset().n_interactions
        True
        >>> shown.columns
        ['user_id', 'item_id', 'time']
        """
        check_number("miss_rate", miss_rate, low=0, high=1)
        if examination is not None:
            if not len(examination):
                raise ParameterError("examination is empty; it is the probability of each position")
            for value in examination:
                check_number("examination", value, low=0, high=1)
        users, items = (np.concatenate(each) for each in zip(*self.impressions_in_blocks(), strict=True))
        counters = np.arange(len(users))
        start = np.concatenate(([0], np.cumsum(self._activity)))[:-1]
        times = counters - start[users]
        noticed = 1.0 - miss_rate
        columns: dict[str, NDArray[np.generic]] = {"user_id": users, "item_id": items, "time": times}
        if examination is not None:
            page = times // len(examination)
            appeal = self._quality[items] / 0.7 + randomness.normal(self._key("order on a page"), counters)
            order = np.lexsort((-appeal, page, users))
            items = items[order]  # users and pages stay where they are
            position = times % len(examination)
            noticed = noticed * np.asarray(examination, dtype=np.float64)[position]
            columns |= {"item_id": items, "position": position + 1}
        taken = self.likes(users, items) & (randomness.uniform(self._key("noticed"), counters) < noticed)
        pair = users[taken].astype(np.int64) * self.n_items + items[taken]
        first = np.flatnonzero(taken)[np.unique(pair, return_index=True)[1]]
        return self._dataset(users[first], items[first], "synthetic", times[first]), pl.DataFrame(columns)

    # --- descriptions -----------------------------------------------------------------------------

    def genre(self, items: Codes) -> list[str]:
        """The name of the cluster of each item."""
        return [_genre(int(cluster)) for cluster in self._item_cluster[items]]

    def tastes(self, user: int, n: int = 2) -> list[str]:
        """The genres that a user likes most."""
        order = np.argsort(-self._centres @ self._user_tastes[user], kind="stable")
        return [_genre(int(cluster)) for cluster in order[:n]]

    # --- features and parameters of the world -----------------------------------------------------

    def item_features(self) -> pl.DataFrame:
        """Features of the items: item_id, genre (a word), moods (a list of words) and loudness (a number)."""
        tastes = self._item_tastes
        strongest = np.argsort(-np.abs(tastes), axis=1, kind="stable")[:, :2]
        moods = [
            [f"{'more' if row[axis] > 0 else 'less'} of {axis}" for axis in axes]
            for row, axes in zip(tastes, strongest, strict=True)
        ]
        items = np.arange(self.n_items, dtype=np.int32)
        columns = {"item_id": items, "genre": self.genre(items), "moods": moods, "loudness": tastes[:, 0]}
        return pl.DataFrame(columns)

    def user_features(self) -> pl.DataFrame:
        """Features of the users: user_id, favourite (a genre) and activity (a number)."""
        favourite = [self.tastes(user, 1)[0] for user in range(self.n_users)]
        users = np.arange(self.n_users, dtype=np.int32)
        return pl.DataFrame({"user_id": users, "favourite": favourite, "activity": self._activity})

    # --- what a world is --------------------------------------------------------------------------

    def _likes_of_pairs(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.float64]:
        """p(truly liked) of each pair; users and items are in range."""
        taste = np.einsum("nk,nk->n", self._user_tastes[users], self._item_tastes[items])
        return np.asarray(expit(self._bias + self.taste * taste + self._quality[items]), dtype=np.float64)

    @cached_property
    def _activity(self) -> NDArray[np.int64]:
        """The number of impressions of each user: log-normal, at least one."""
        spread = 0.7
        normal = self._normals("activity", self.n_users)
        mean = self.impressions_per_user * np.exp(spread * normal - spread**2 / 2)
        return np.maximum(1, np.rint(mean)).astype(np.int64)

    @cached_property
    def _visibility(self) -> NDArray[np.float64]:
        """The probability that one impression shows each item; it depends partly on quality."""
        appeal = self._quality / 0.7 + 1.5 * self._normals("visibility", self.n_items)
        rank = np.empty(self.n_items)
        rank[np.argsort(-appeal, kind="stable")] = np.arange(1, self.n_items + 1)
        weight = (rank + 0.02 * self.n_items) ** -self.exposure_skew
        return np.asarray(weight / weight.sum())

    def _visibility_of_pairs(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability that one impression of the user shows the item."""
        if not self.exposure_taste:
            return self._visibility[items]
        found = np.empty(len(users))
        for user, entries in _by_user(users):
            found[entries] = self._visibility_to(user)[items[entries]]
        return found

    def _shown_items(self, users: Codes, drawn: NDArray[np.float64]) -> NDArray[np.int64]:
        """The item of each impression, from a number between 0 and 1; impressions are sorted by user."""
        if not self.exposure_taste:
            return np.searchsorted(self._cumulative, drawn)
        found = np.empty(len(users), dtype=np.int64)
        for user, entries in _by_user(users):
            found[entries] = np.searchsorted(np.cumsum(self._visibility_to(user)), drawn[entries])
        return found

    @cached_property
    def _cumulative(self) -> NDArray[np.float64]:
        return np.cumsum(self._visibility)

    def _visibility_to(self, user: int) -> NDArray[np.float64]:
        """The probability that one impression of the user shows each item."""
        logs = self.exposure_taste * self.taste * (self._item_tastes @ self._user_tastes[user])
        weight = self._visibility * np.exp(logs - logs.max())
        return np.asarray(weight / weight.sum())

    def _titles(self) -> pl.Series | None:
        if self.n_items > MOST_TITLES:
            return None
        genres = self.genre(np.arange(self.n_items, dtype=np.int32))
        return pl.Series("title", [f"{genre} no. {number}" for number, genre in enumerate(genres)])

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
        return Dataset.from_pairs(*ids, users, items, times=times, titles=self._titles(), name=name)

    def _key(self, *stream: str | int) -> int:
        check_not_forked()
        return randomness.key(self.seed, "world", *stream)

    def _normals(self, what: str, *shape: int) -> NDArray[np.float64]:
        numbers = randomness.normal(self._key(what), np.arange(int(np.prod(shape))))
        return numbers.reshape(shape)

    def _clusters(self, what: str, n: int) -> NDArray[np.int64]:
        return (randomness.uniform(self._key(what), np.arange(n)) * self.n_clusters).astype(np.int64)

    @cached_property
    def _centres(self) -> NDArray[np.float64]:
        centres = self._normals("centres", self.n_clusters, self.rank)
        return np.asarray(centres / np.linalg.norm(centres, axis=1, keepdims=True))

    @cached_property
    def _item_cluster(self) -> NDArray[np.int64]:
        return self._clusters("item cluster", self.n_items)

    @cached_property
    def _item_tastes(self) -> NDArray[np.float64]:
        return self._centres[self._item_cluster] + 0.25 * self._normals("item", self.n_items, self.rank)

    @cached_property
    def _user_tastes(self) -> NDArray[np.float64]:
        """A main genre, a second one half as strong, and a personal component."""
        main, second = (self._clusters(f"user cluster {n}", self.n_users) for n in (1, 2))
        personal = 0.25 * self._normals("user", self.n_users, self.rank)
        return self._centres[main] + 0.5 * self._centres[second] + personal

    @cached_property
    def _quality(self) -> NDArray[np.float64]:
        return 0.7 * self._normals("quality", self.n_items)

    @cached_property
    def _bias(self) -> float:
        """The bias at which the share of true likes is `like_rate`, estimated from a sample of pairs."""
        n = 20_000
        users = (randomness.uniform(self._key("sample u"), np.arange(n)) * self.n_users).astype(np.int64)
        items = (randomness.uniform(self._key("sample i"), np.arange(n)) * self.n_items).astype(np.int64)
        taste = np.einsum("nk,nk->n", self._user_tastes[users], self._item_tastes[items])
        logits = self.taste * taste + self._quality[items]
        low, high = -30.0, 30.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if expit(logits + middle).mean() < self.like_rate else (low, middle)
        return low


def _by_user(users: NDArray[np.integer]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each user, and where it is in a list of users."""
    order = np.argsort(users, kind="stable")
    found, starts = np.unique(users[order], return_index=True)
    for user, first, stop in zip(found, starts, np.append(starts, len(order))[1:], strict=True):
        yield int(user), order[first:stop]


def _genre(cluster: int) -> str:
    name = GENRES[cluster % len(GENRES)]
    return name if cluster < len(GENRES) else f"{name} {cluster // len(GENRES) + 1}"
