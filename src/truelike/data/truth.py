"""Truth: which pairs are known to be liked and which to be disliked, voted or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from truelike.data.checks import check_log
from truelike.data.dataset import Dataset


@dataclass(frozen=True, eq=False)
class Truth:
    """The true labels of pairs, to score a model against.

    Attributes
    ----------
    likes
        The pairs that are truly liked.
    judged
        The pairs whose label is known; those of `likes` are so in any case. None: all pairs of the users and items
        of `likes`, so that every one of them that is not liked is a dislike.

    Examples
    --------
    A world knows the label of every pair; who asks people for ratings, of the pairs that they were asked about.

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
        check_log(self.likes, "Truth", part="test")
        if self.judged is not None:
            check_log(self.judged, "Truth", part="test")

    @classmethod
    def of_ratings(cls, table: Any, *, min_rating: float, **how: Any) -> Truth:
        """From a table of ratings: all its pairs are judged, and those rated at least `min_rating` are liked.

        Parameters
        ----------
        table, **how
            What `tl.read` takes.
        min_rating
            From which rating on a pair is liked.
        """
        from truelike.data.interactions import read

        return cls(read(table, min_rating=min_rating, **how), read(table, **how))

    def __repr__(self) -> str:
        if self.judged is None:
            pairs = self.likes.n_users * self.likes.n_items
            return f"Truth({self.likes.n_interactions:,} likes of all {pairs:,} pairs)"
        return f"Truth({self.likes.n_interactions:,} likes of {self.judged.n_interactions:,} judged pairs)"
