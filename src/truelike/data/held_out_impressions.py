"""`hold_out_impressions`: pairs that were shown, taken or not, held out of training."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike import randomness
from truelike.data.blocks.blocks import Blocks
from truelike.data.checks import check_dataset, check_not_empty, check_number
from truelike.data.columns import choose
from truelike.data.dataset import Dataset
from truelike.data.frames import library_of, to_polars
from truelike.data.ids import Codes
from truelike.data.interactions import _names, read
from truelike.errors import DataError, DataWarning, ParameterError, warn

__all__ = ["HeldOutImpressions", "hold_out_impressions"]


class HeldOutImpressions(NamedTuple):
    """Interactions and impressions without the held-out pairs, and these.

    Attributes
    ----------
    train
        The interactions to train on.
    impressions
        The impressions to train with: `fit(train, impressions=impressions)`. Of the kind that was given.
    held_out_impressions
        The pairs that were held out, whether taken or not. Of the kind that was given.
    held_out_interactions
        Those of them that were taken.
    """

    train: Dataset
    impressions: Any
    held_out_impressions: Any
    held_out_interactions: Dataset


def hold_out_impressions(
    train: Dataset, impressions: Any, *, share: float = 0.1, seed: int = 0
) -> HeldOutImpressions:
    """Hold out a share of the pairs that were shown, whether they were taken or not.

    A pair is held out by a hash of the seed and the pair, in the interactions and in the impressions alike. So whether
    a pair is held out says nothing about whether it was taken. Settings can be chosen by
    `tl.evaluate(model, held_out_interactions, impressions=held_out_impressions)` without any bias by exposure.

    Parameters
    ----------
    train
        The interactions. Those without an impression are never held out; they are counted in a warning.
    impressions
        The pairs that were shown: a Dataset, a frame of pandas, polars or pyarrow with one or more rows for each pair,
        or anything else that `tl.read` takes. Impressions of users and items that `train` does not have are never held
        out.
    share
        The share of the pairs to hold out, above 0 and below 1.
    seed
        The seed of the hash.

    Returns
    -------
    HeldOutImpressions
        train, impressions, held_out_impressions, held_out_interactions.

    Examples
    --------
    >>> import truelike as tl
    >>> world = tl.synthetic.World(n_users=200, n_items=60)
    >>> parts = tl.splits.hold_out_impressions(world.dataset(), world.impressions(), share=0.2)
    >>> model = tl.ExactNBPO(epochs=1).fit(parts.train, impressions=parts.impressions, progress=False)
    >>> result = tl.evaluate(model, parts.held_out_interactions, impressions=parts.held_out_impressions)
    >>> sorted(result.means())
    ['shown_auc', 'shown_ece', 'shown_log_loss', 'shown_pooled_auc', 'shown_share']
    """
    check_dataset(train, "hold_out_impressions")
    if isinstance(train, Blocks) or isinstance(impressions, Blocks):
        raise ParameterError("hold_out_impressions takes a Dataset, not a block directory; use tl.blocks.hold_out")
    check_not_empty(train)
    check_number("share", share)
    if not 0 < share < 1:
        raise ParameterError(f"share is {share}; it must be above 0 and below 1")
    check_number("seed", seed, whole=True)
    library = None if isinstance(impressions, Dataset) else library_of(impressions)
    if library is None and not isinstance(impressions, Dataset):
        impressions = read(impressions)
    if library is None:
        users = train.users.codes(impressions.users.values)[impressions._user_of_entry]
        items = train.items.codes(impressions.items.values)[impressions._csr.indices]
    else:
        users, items = _codes_of_frame(train, impressions)
    key = randomness.key(seed, "held-out impressions")
    pairs = np.where((users >= 0) & (items >= 0), users.astype(np.int64) * train.n_items + items, -1)
    chosen = (pairs >= 0) & (randomness.uniform(key, pairs) < share)
    if not chosen.any():
        raise DataError(
            f"none of the {len(pairs):,} impressions is held out: there are too few of users and items of the training "
            "data. Check that the ids are the same, or hold out a larger share."
        )
    own = train._user_of_entry.astype(np.int64) * train.n_items + train._csr.indices
    shown = np.zeros(len(own), dtype=bool)  # own is sorted
    at = np.minimum(np.searchsorted(own, pairs), len(own) - 1)
    shown[at[own[at] == pairs]] = True
    if not shown.all():
        warn(
            f"{np.count_nonzero(~shown):,} of {train.n_interactions:,} interactions are not among the impressions; "
            "none of them is held out",
            DataWarning,
        )
    taken = shown & (randomness.uniform(key, own) < share)
    return HeldOutImpressions(
        train.select(~taken), _rows(impressions, ~chosen), _rows(impressions, chosen), train.select(taken)
    )


def _codes_of_frame(train: Dataset, frame: Any) -> tuple[Codes, Codes]:
    """The row numbers of the users and items of a frame; -1 for those that are not known."""
    columns = choose(_names(frame), user=None, item=None, rating=None, time=None, weight=None, needs_rating=False)
    table = to_polars(frame, [columns.user, columns.item])
    return train.users.codes(table[columns.user]), train.items.codes(table[columns.item])


def _rows(table: Any, mask: NDArray[np.bool_]) -> Any:
    """The marked rows of a frame, or entries of a dataset."""
    if isinstance(table, Dataset):
        return table.select(mask)
    return table.filter(pl.Series(mask)) if isinstance(table, pl.DataFrame) else _other_rows(table, mask)


def _other_rows(table: Any, mask: NDArray[np.bool_]) -> Any:
    """The marked rows of a frame of pandas or pyarrow."""
    if library_of(table) == "pandas":
        return table[mask]
    import pyarrow as pa

    return table.filter(pa.array(mask))
