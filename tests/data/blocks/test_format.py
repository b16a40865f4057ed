"""The files of a block directory, and the bounds and tiles of blocks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import truelike as tl
from truelike.core.array_files import read_arrays
from truelike.data.blocks.build import build
from truelike.data.blocks.format import OWN_FILES, array_file, block_bounds, by_item, tile_size, user_file, writing


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


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_tiles_are_the_transposed_matrix(n_users: int, n_items: int, tile: int, seed: int) -> None:
    dense = np.random.default_rng(seed).random((n_users, n_items)) < 0.3
    matrix = sparse.csr_array(dense)
    users, starts = by_item(matrix.indptr, matrix.indices, n_items, tile)
    for number, first in enumerate(range(0, n_users, tile)):
        for item in range(n_items):
            place = number * n_items + item
            expected = first + np.flatnonzero(dense[first : first + tile, item])
            assert users[starts[place] : starts[place + 1]].tolist() == expected.tolist()
    assert starts[-1] == matrix.nnz


def test_the_files_hold_the_dataset(tmp_path: Path) -> None:
    data = tl.synthetic.World(n_users=90, n_items=40, seed=3).dataset()
    build(data, tmp_path / "blocks", blocks=4)
    about = json.loads((tmp_path / "blocks" / "blocks.json").read_text())
    assert [about[key] for key in ("format", "users", "items", "interactions")] == [2, 90, 40, data.n_interactions]
    assert all(OWN_FILES.fullmatch(path.name) for path in (tmp_path / "blocks").iterdir())
    users, parts = [], []
    for number, block in enumerate(about["blocks"]):
        descriptor = os.open(tmp_path / "blocks" / array_file(number), os.O_RDONLY)
        identity, arrays = read_arrays(descriptor)
        os.close(descriptor)
        users.append(pl.read_parquet(tmp_path / "blocks" / user_file(number))["user_id"])
        ones = np.ones(len(arrays["indices"]), dtype=np.float32)
        shape = (block["users"], 40)
        parts.append(
            sparse.csr_array((arrays.get("weights", ones), arrays["indices"], arrays["indptr"]), shape=shape)
        )
        assert identity == block["arrays"]["id"]
        assert block["first_user"] == users[-1][0]
        assert block["tile"] == tile_size(block["users"], 40, block["interactions"])
    assert pl.concat(users).to_list() == list(data.users)
    assert (sparse.vstack(parts) != data.matrix).nnz == 0
    items = pl.read_parquet(tmp_path / "blocks" / "items.parquet")
    assert items["item_id"].to_list() == list(data.items)
    assert items["popularity"].to_list() == data.popularity().tolist()


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with writing(tmp_path / "blocks", pl.Series([1, 2]), {"user": "int", "item": "int"}, "log") as writer:
            writer.add(pl.Series([5]), np.array([0, 1]), np.array([1], dtype=np.int32))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert list(tmp_path.iterdir()) == []
