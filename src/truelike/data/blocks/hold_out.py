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
from truelike.data.entries import select, taken, users_of
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
    held = sum(
        np.bincount(block.indices[entries], minlength=blocks.n_items)
        for block, entries in zip(blocks, chosen, strict=True)
    )
    whole = held >= blocks.popularity()  # items that would lose all
    kinds = {"user": blocks.users.kind, "item": blocks.items.kind}
    further, found = partial(write_features, blocks), []
    with writing(target, blocks.items.values, kinds, blocks.name, blocks.titles, further) as writer:
        for block, entries in zip(blocks, chosen, strict=True):
            csr, out = block.csr, entries[~whole[block.indices[entries]]]
            keep = np.ones(csr.nnz, dtype=bool)
            keep[out] = False
            rest, times = select(csr, keep), taken(block.times, keep)
            writer.add(blocks.ids_of_block(block.number), rest.indptr, rest.indices, rest.data, times)
            moments = np.zeros(len(out), dtype=np.int64) if block.times is None else block.times[out]
            found.append((users_of(csr)[out] + block.first_user, csr.indices[out], csr.data[out], moments))
    codes, items, weights, moments = map(np.concatenate, zip(*found, strict=True))
    known, rows = np.unique(codes, return_inverse=True)
    held_out = Dataset.from_pairs(
        Ids(blocks.users.stored(known), blocks.users.kind, "user"),
        blocks.items,
        rows.astype(np.int32),
        items.astype(np.int32),
        weights=weights,
        times=moments if blocks.has_times else None,
        titles=blocks.titles,
        name=blocks.name,
    )
    return HeldOut(Blocks(target), held_out)


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
