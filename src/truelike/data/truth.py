"""`Truth`: the true labels of pairs (liked or not), whether they were observed or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from truelike.data.checks import check_dataset
from truelike.data.dataset import Dataset


@dataclass(frozen=True, eq=False)
class Truth:
    """The true labels of pairs, to evaluate a model against.

    Attributes
    ----------
    likes
        The pairs that are truly liked.
    judged
        The pairs whose label is known; those of `likes` always are. None if all pairs of the users and items of
        `likes` are known, so that every pair that is not liked is disliked.

    Examples
    --------
    A synthetic world has the label of every pair. A survey has those of the pairs that users were asked about.

    >>> import truelike as tl
    >>> tl.synthetic.World(n_users=50, n_items=40).truth()
    Truth(... likes of all 2,000 pairs)
    >>> asked = [("ann", "tea", 5), ("ann", "rum", 1), ("bob", "tea", 2), ("bob", "gin", 4)]
    >>> tl.Truth.of_ratings(asked, min_rating=4, user=0, item=1, rating=2)
    Truth(2 likes of 4 judged pairs)
    """

    likes: Dataset
    judged: Dataset | None = None

    def __post_init__(self) -> None:
        check_dataset(self.likes, "Truth", part="test")
        if self.judged is not None:
            check_dataset(self.judged, "Truth", part="test")

    @classmethod
    def of_ratings(cls, table: Any, *, min_rating: float, **how: Any) -> Truth:
        """Build from a table of ratings: all its pairs are judged, those rated at least `min_rating` are liked.

        Parameters
        ----------
        table, **how
            As in `tl.read`.
        min_rating
            The least rating of a pair that is liked.
        """
        from truelike.data.read import read

        return cls(read(table, min_rating=min_rating, **how), read(table, **how))

    def __repr__(self) -> str:
        if self.judged is None:
            pairs = self.likes.n_users * self.likes.n_items
            return f"Truth({self.likes.n_interactions:,} likes of all {pairs:,} pairs)"
        return f"Truth({self.likes.n_interactions:,} likes of {self.judged.n_interactions:,} judged pairs)"
