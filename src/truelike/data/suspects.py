"""Users who are far more active than all others: bots, test accounts, tills."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.checks import check_dataset
from truelike.data.dataset import Dataset
from truelike.data.moments import units_per_second

HOUR = 3_600  # seconds
STEPS = 3.0  # distances between the quartiles, on a logarithmic scale, beyond the upper one
LEAST_DISTANCE = 2.0  # between the quartiles, where most users are alike
LEAST = 100  # items, or items in an hour, that are suspicious at all
MOST_IN_AN_HOUR = 1_800  # of people: an item every two seconds


class Activity(NamedTuple):
    """What each user does of something, and the most that is usual."""

    counts: NDArray[np.int64]
    limit: int

    @property
    def beyond(self) -> NDArray[np.bool_]:
        """The users who do more."""
        return self.counts > self.limit


def suspicious_users(data: Dataset) -> pl.DataFrame:
    """The users who have far more items than the others, or far more in one hour: bots, test accounts, tills.

    With the quartiles a and b of a count over all users, more than b (b / a)^3 is suspicious, where b / a is at least
    2, and if it is more than 100. So no share of the users is suspicious by definition, and a few bots do not move the
    limit. More than 1,800 items in an hour are suspicious in any case. An hour counts where times are seconds, or parts
    of seconds, since 1970.

    Nobody is removed. Look at them, and take ``data.without_users(found["user_id"])`` if they are no people.

    Parameters
    ----------
    data
        The dataset.

    Returns
    -------
    DataFrame
        The columns user_id, items, items_in_an_hour (of the busiest hour; null if it is not known) and why: "items",
        "hour" or "items, hour". Those with the most items come first.

    Examples
    --------
    >>> import truelike as tl
    >>> people = [(user, item) for user in range(50) for item in range(5)]
    >>> data = tl.read([*people, *(("robot", item) for item in range(300))])
    >>> tl.suspicious_users(data).rows()
    [('robot', 300, None, 'items')]
    >>> data.without_users(tl.suspicious_users(data)["user_id"]).n_users
    50
    """
    check_dataset(data, "suspicious_users")
    items, hour = of_items(data), of_an_hour(data)
    in_an_hour = np.zeros(data.n_users, dtype=bool) if hour is None else hour.beyond
    found = np.flatnonzero(items.beyond | in_an_hour).astype(np.int32)
    found = found[np.argsort(-items.counts[found], kind="stable")]
    whys = [
        [name for name, mask in (("items", items.beyond), ("hour", in_an_hour)) if mask[user]] for user in found
    ]
    busiest = pl.lit(None, dtype=pl.Int64) if hour is None else pl.Series(hour.counts[found])
    return pl.DataFrame(
        [
            data.users.take(found).alias("user_id"),
            pl.Series("items", items.counts[found]),
            pl.Series("why", [", ".join(why) for why in whys], dtype=pl.String),
        ]
    ).select("user_id", "items", busiest.alias("items_in_an_hour"), "why")


def of_items(data: Dataset) -> Activity:
    """The number of items of each user."""
    return _activity(data.interactions_per_user())


def of_an_hour(data: Dataset) -> Activity | None:
    """The most items of each user in one hour; None if the unit of the times is not known."""
    units = None if data.times is None else units_per_second(data.times)
    if data.times is None or units is None:
        return None
    seconds = np.maximum(data.times // units, 0)
    order = np.lexsort((seconds, data.entry_users))
    users = data.entry_users[order].astype(np.int64)
    moments = users * (int(seconds.max()) + HOUR + 1) + seconds[order]  # users are more than an hour apart
    first = np.searchsorted(moments, moments - HOUR, side="right")
    counts = np.zeros(data.n_users, dtype=np.int64)
    np.maximum.at(counts, users, np.arange(1, len(moments) + 1) - first)
    found = _activity(counts)
    return found._replace(limit=min(found.limit, MOST_IN_AN_HOUR))


def _activity(counts: NDArray[np.int64]) -> Activity:
    """The counts, and the limit by their quartiles."""
    low, high = np.quantile(counts[counts > 0], [0.25, 0.75]) if counts.any() else (1.0, 1.0)
    return Activity(counts, max(LEAST, int(high * max(high / low, LEAST_DISTANCE) ** STEPS)))
