"""`Blocks`: what a Dataset has, from files that need not fit into memory; damage is found."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

import truelike as tl
from truelike.data.blocks.format import by_item
from truelike.data.blocks.ids import BlockIds
from truelike.errors import DataError, NotFoundError, ParameterError, StorageError, UnknownIdError

pytestmark = pytest.mark.filterwarnings("ignore:.*uses whether a pair was observed:truelike.errors.DataWarning")


@pytest.fixture(scope="module")
def data() -> tl.Dataset:
    rng = np.random.default_rng(3)
    rows = [(f"u{u:03}", int(i), 1, int(t)) for u, i, t in rng.integers(0, (90, 50, 1_000), size=(1_200, 3))]
    return tl.read(rows, titles={1: "one"})


@pytest.fixture(scope="module")
def blocks(data: tl.Dataset, tmp_path_factory: pytest.TempPathFactory) -> tl.blocks.Blocks:
    return tl.blocks.build(data, tmp_path_factory.mktemp("blocks") / "b", blocks=5, progress=False)


def test_blocks_have_what_the_dataset_has(data: tl.Dataset, blocks: tl.blocks.Blocks) -> None:
    again = blocks.to_dataset()
    assert (again.matrix != data.matrix).nnz == 0
    assert_array_equal(again.times, data.times)
    assert list(again.users) == list(data.users)
    assert again.titles.to_list() == data.titles.to_list()
    for name in ("n_users", "n_items", "n_interactions", "has_weights"):
        assert getattr(blocks, name) == getattr(data, name), name
    assert_array_equal(blocks.popularity(), data.popularity())
    assert_array_equal(blocks.interactions_per_user(), data.interactions_per_user())
    assert blocks.seen("u007").to_list() == data.seen("u007").to_list()
    assert_array_equal(blocks.every(7).toarray(), data.matrix[::7].toarray())
    users = np.array([80, 3, 3, 41, 0], dtype=np.int32)
    found, rows = blocks.rows(users)
    assert_array_equal(found[rows].toarray(), data.matrix[users].toarray())


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_tiles_are_the_transposed_matrix(n_users: int, n_items: int, tile: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 9, (n_users, n_items)) * (rng.random((n_users, n_items)) < 0.3)
    matrix = sparse.csr_array(dense.astype(np.float32))
    users, starts = by_item(matrix.indptr, matrix.indices, n_items, tile)
    block = tl.blocks.Block(0, 0, n_users, n_items, matrix.indptr, matrix.indices, tile, users, starts)
    weights = block.of_tiles(matrix.data)
    for number, first in enumerate(range(0, n_users, tile)):
        for item in range(n_items):
            a, b = starts[number * n_items + item : number * n_items + item + 2]
            own = first + np.flatnonzero(dense[first : first + tile, item])
            assert_array_equal(users[a:b], own)
            assert_array_equal(weights[a:b], dense[own, item])
    assert starts[-1] == matrix.nnz


def test_ids_of_blocks_are_found_like_those_of_a_dataset(data: tl.Dataset, blocks: tl.blocks.Blocks) -> None:
    asked = ["u089", "u000", "nobody", "", "zzz", "u045", "a"]
    assert_array_equal(blocks.users.codes(asked), data.users.codes(asked))
    assert isinstance(blocks.users, BlockIds)
    codes = np.array([5, 88, 5, 0, 60])
    assert blocks.users.take(codes).to_list() == data.users.take(codes).to_list()
    assert (blocks.users[0], blocks.users[-1], len(blocks.users)) == (
        data.users[0],
        data.users[-1],
        len(data.users),
    )
    assert blocks.users == data.users
    assert "u001" in blocks.users
    assert 7 not in blocks.users
    with pytest.raises(UnknownIdError, match="nobody"):
        blocks.users.known(["nobody"])


def test_models_on_blocks_answer_like_those_on_a_dataset(
    data: tl.Dataset, blocks: tl.blocks.Blocks, tmp_path: Path
) -> None:
    model = tl.IALS(factors=4, epochs=2).fit(blocks, progress=False)
    same = tl.IALS(factors=4, epochs=0).fit(data, progress=False)
    same.user_factors_[:], same.item_factors_[:] = model.user_factors_, model.item_factors_
    assert model.recommend(["u003", "u080"], k=4).equals(same.recommend(["u003", "u080"], k=4))
    assert model.similar_items([1, 2], k=3).equals(same.similar_items([1, 2], k=3))
    model.recommend_to(tmp_path / "lists.parquet", k=3, block_size=7, progress=False)
    assert pl.read_parquet(tmp_path / "lists.parquet").equals(same.recommend(k=3))
    test = tl.read([("u003", 4), ("u050", 7), ("u051", 9), ("nobody", 1)])
    with pytest.warns(tl.errors.DataWarning):
        assert tl.evaluate(model, test)["ndcg@20"] == pytest.approx(
            tl.evaluate(same, test.restrict(np.array([n != "nobody" for n in test.users]), np.ones(4, bool)))[
                "ndcg@20"
            ]
        )


@pytest.mark.parametrize("moved", [False, True])
def test_a_saved_model_finds_its_blocks(data: tl.Dataset, tmp_path: Path, moved: bool) -> None:
    blocks = tl.blocks.build(data, tmp_path / "a" / "blocks", blocks=3, progress=False)
    model = tl.BPR(factors=4, epochs=2).fit(blocks, progress=False)
    model.save(tmp_path / "a" / "model")
    home = tmp_path / "a"
    if moved:
        home = tmp_path / "b"
        shutil.move(tmp_path / "a", home)
    again = tl.load(home / "model")
    assert again.recommend(k=3).equals(model.recommend(k=3)) if not moved else len(again.recommend(k=3))
    assert len(again.train_) == 3
    tl.blocks.build(data, home / "blocks", blocks=2, progress=False)
    with pytest.raises(StorageError, match="is not there, or was built again"):
        tl.load(home / "model")


@pytest.mark.parametrize("memory", [2**40, 0], ids=["in memory", "in scratch"])
def test_a_loaded_model_stays_as_it_is_when_its_file_is_overwritten(
    blocks: tl.blocks.Blocks, tmp_path: Path, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tl.BPR(factors=4, epochs=2).fit(blocks, progress=False).save(tmp_path / "model")
    monkeypatch.setattr("truelike.data.blocks.blocks.available_memory", lambda: memory)
    model = tl.load(tmp_path / "model")
    held = model.user_factors_
    while isinstance(held.base, np.ndarray):
        held = held.base
    assert isinstance(held, np.memmap) == (memory == 0)
    lists = model.recommend(k=5)
    file = tmp_path / "model" / "arrays.safetensors"
    with file.open("r+b") as opened:
        opened.write(bytes(file.stat().st_size))
    assert model.recommend(k=5).equals(lists)
    os.truncate(file, 0)  # a map of it would end the process
    assert model.recommend(k=5).equals(lists)


def test_damage_is_found(data: tl.Dataset, tmp_path: Path) -> None:
    place = tmp_path / "b"
    tl.blocks.build(data, place, blocks=3, progress=False)

    def broken(name: str, edit: bytes) -> tl.blocks.Blocks:
        target = tmp_path / "broken"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(place, target)
        content = (target / name).read_bytes()
        (target / name).write_bytes(content[: -len(edit)] + edit)
        return tl.blocks.open(target)

    with pytest.raises(StorageError, match=r"block 1 .* is damaged: its checksums"):
        tl.IALS(factors=2, epochs=1).fit(broken("block-00001.safetensors", b"\x01\x02\x03"), progress=False)
    with pytest.raises(StorageError, match=r"block 2 .* users-00002.parquet"):
        broken("users-00002.parquet", b"xxx").users.stored(np.array([data.n_users - 1]))
    with pytest.raises(StorageError, match="damaged or incomplete"):
        broken("items.parquet", b"xxx")
    with pytest.raises(StorageError, match="damaged or incomplete"):
        broken("blocks.json", b"}}")
    missing = broken("blocks.json", b"\n")
    (missing.directory / "block-00000.safetensors").unlink()
    with pytest.raises(StorageError, match=r"block-00000\.safetensors is missing"):
        missing.block(0)
    with pytest.raises(NotFoundError, match="there is no block directory"):
        tl.blocks.open(tmp_path / "nothing")
    about = json.loads((place / "blocks.json").read_text())
    about["format"] = 99
    (place / "blocks.json").write_text(json.dumps(about))
    with pytest.raises(StorageError, match="has format 99"):
        tl.blocks.open(place)


def test_hold_out(data: tl.Dataset, blocks: tl.blocks.Blocks, tmp_path: Path) -> None:
    train, held = tl.blocks.hold_out(blocks, tmp_path / "train", share=0.2, users=40, seed=1)
    assert train.n_interactions + held.n_interactions == data.n_interactions
    assert list(train.users) == list(data.users)
    assert list(train.items) == list(data.items)
    assert (train.popularity() > 0).all()
    assert (train.interactions_per_user() > 0).all()
    assert 30 <= held.n_users <= 40
    of_held = data.restrict(np.isin(list(data.users), list(held.users)), np.ones(data.n_items, bool))
    assert held.n_interactions == pytest.approx(0.2 * of_held.n_interactions, rel=0.2)
    both = train.to_dataset().merge(held.recode(train.users, train.items)[0])
    assert (both.matrix != data.matrix).nnz == 0
    again = tl.blocks.hold_out(blocks, tmp_path / "again", share=0.2, users=40, seed=1).held_out
    assert (again.matrix != held.matrix).nnz == 0
    model = tl.IALS(factors=4, epochs=2).fit(train, validation=held, progress=False)
    assert "ndcg@20" in model.history_.columns
    with pytest.raises(ParameterError, match="a directory of their own"):
        tl.blocks.hold_out(blocks, blocks.directory)
    with pytest.raises((ParameterError, DataError)):
        tl.blocks.hold_out(blocks, tmp_path / "x", share=1.5)
