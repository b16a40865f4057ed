"""`hold_out`: interactions of some users of a block directory, for validation or test, and blocks without them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.core.files import as_place, check_place
from truelike.data.blocks.blocks import Block, Blocks
from truelike.data.blocks.format import OWN_FILES, writing
from truelike.data.checks import check_number, check_share
from truelike.data.dataset import Dataset
from truelike.data.ids import Ids
from truelike.data.part_files import write_features
from truelike.errors import DataWarning, ParameterError, warn


class HeldOut(NamedTuple):
    """Blocks without the interactions that were held out, and these."""

    blocks: Blocks
    held_out: Dataset


def hold_out(
    blocks: Blocks, directory: str | Path, *, share: float = 0.1, users: int | None = 100_000, seed: int = 0
) -> HeldOut:
    """Hold out a share of the interactions of some users, and write blocks without them.

    The blocks have the same users, items and features as before, and no impressions and other feedback. A fraction of
    an interaction is rounded at random. A user, and an item, of whom all would be held out, keeps all.

    Parameters
    ----------
    blocks
        All interactions.
    directory
        Where to write the blocks without the held-out interactions.
    share
        The share of each user's interactions.
    users
        The number of users, drawn at random: enough for a precise mean, and few enough for memory. None: all.
    seed
        Decides the draws.

    Examples
    --------
    >>> import tempfile, truelike as tl
    >>> data = tl.synthetic.World(n_users=200, n_items=100).dataset()
    >>> with tempfile.TemporaryDirectory() as place:
    ...     blocks = tl.blocks.build(data, place + "/all", blocks=2, progress=False)
    ...     train, test = tl.blocks.hold_out(blocks, place + "/train", users=50)
    ...     train.n_interactions + test.n_interactions == data.n_interactions, test.n_users <= 50
    (True, True)
    """
    check_share("share", share)
    if users is not None:
        check_number("users", users, low=1, whole=True)
    check_number("seed", seed, low=0, whole=True)
    target = as_place(directory)
    if target == blocks.directory:
        raise ParameterError("the blocks without the held-out interactions need a directory of their own")
    check_place(target, own=OWN_FILES)
    if left := blocks.carries & {"shown", "kinds"}:
        warn(
            f"the blocks without the held-out interactions have no {' and '.join(sorted(left))}, which would tell of "
            "these. Hold out of a Dataset with tl.splits to keep them.",
            DataWarning,
        )
    chosen = _chosen(blocks, share, users, seed)
    popularity, held = blocks.popularity(), np.zeros(blocks.n_items, dtype=np.int64)
    for block, entries in zip(blocks, chosen, strict=True):
        held += np.bincount(block.indices[entries], minlength=blocks.n_items)
    whole = held >= popularity  # items that would lose all
    codes, items, weights, times = [], [], [], []
    kinds = {"user": blocks.users.kind, "item": blocks.items.kind}
    further = partial(write_features, blocks)
    with writing(target, blocks.items.values, kinds, blocks.name, blocks.titles, further) as writer:
        for block, entries in zip(blocks, chosen, strict=True):
            out = entries[~whole[block.indices[entries]]]
            keep = np.ones(len(block.indices), dtype=bool)
            keep[out] = False
            counts = np.add.reduceat(np.append(keep, False), block.indptr[:-1], dtype=np.int64)
            counts[np.diff(block.indptr) == 0] = 0
            indptr = np.concatenate([[0], np.cumsum(counts)])
            writer.add(
                blocks.ids_of_block(block.number),
                indptr,
                block.indices[keep],
                None if block.weights is None else block.weights[keep],
                None if block.times is None else block.times[keep],
            )
            owners = np.searchsorted(block.indptr, out, side="right") - 1
            codes.append(owners + block.first_user)
            items.append(block.indices[out])
            weights.append(np.ones(len(out), np.float32) if block.weights is None else block.weights[out])
            times.append(np.zeros(0, np.int64) if block.times is None else block.times[out])
    return HeldOut(Blocks(target), _dataset(blocks, codes, items, weights, times))


def _chosen(blocks: Blocks, share: float, users: int | None, seed: int) -> list[NDArray[np.int64]]:
    """The entries of each block to hold out, sorted."""
    draws = randomness.uniform(randomness.key(seed, "hold_out users"), np.arange(blocks.n_users))
    limit = np.inf if users is None or users >= blocks.n_users else np.partition(draws, users)[users]
    return [_of_block(block, np.flatnonzero(draws[block.rows] < limit), share, seed) for block in blocks]


def _of_block(block: Block, rows: NDArray[np.intp], share: float, seed: int) -> NDArray[np.int64]:
    counts = np.diff(block.indptr)[rows].astype(np.int64)
    chance = randomness.uniform(randomness.key(seed, "hold_out"), rows + block.first_user)
    quota = np.minimum(np.floor(share * counts + chance).astype(np.int64), counts - 1).clip(0)
    starts = np.cumsum(counts) - counts
    entries = np.arange(counts.sum()) + np.repeat(block.indptr[rows] - starts, counts)
    pairs = np.repeat(rows + block.first_user, counts) * np.int64(block.n_items) + block.indices[entries]
    noise = randomness.uniform(randomness.key(seed, "hold_out pairs"), pairs)
    order = np.lexsort((noise, np.repeat(np.arange(len(rows)), counts)))
    rank = np.arange(len(order)) - np.repeat(starts, counts)
    return np.sort(entries[order[rank < np.repeat(quota, counts)]])


def _dataset(blocks: Blocks, codes: list, items: list, weights: list, times: list) -> Dataset:  # type: ignore[type-arg]
    """The held-out interactions, with the ids of their users and of all items."""
    found, rows = np.unique(np.concatenate(codes), return_inverse=True)
    return Dataset.from_pairs(
        Ids(blocks.users.stored(found), blocks.users.kind, "user"),
        blocks.items,
        rows.astype(np.int32),
        np.concatenate(items).astype(np.int32),
        weights=np.concatenate(weights),
        times=np.concatenate(times) if blocks.has_times else None,
        titles=blocks.titles,
        name=blocks.name,
    )
