"""The files of a block directory, and the bounds and tiles of blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from truelike.data.blocks.format import block_bounds


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.data())
def test_every_block_has_a_user_and_all_users_are_in_a_block(counts: list[int], data: st.DataObject) -> None:
    blocks = data.draw(st.integers(1, len(counts)))
    bounds = block_bounds(np.array(counts), blocks)
    assert len(bounds) == blocks + 1
    assert (bounds[0], bounds[-1]) == (0, len(counts))
    assert (np.diff(bounds) >= 1).all()


def test_blocks_have_about_as_many_interactions() -> None:
    counts = np.random.default_rng(0).integers(1, 100, 10_000)
    sizes = np.add.reduceat(counts, block_bounds(counts, 7)[:-1])
    assert sizes.max() - sizes.min() <= 2 * counts.max()
