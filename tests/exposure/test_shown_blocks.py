"""Impressions of blocks: the pairs of the plain fit, the same bits out of core, near the plain engine, clear errors."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import truelike as tl
from truelike.errors import DataError, DataWarning, ParameterError, StorageError
from truelike.exposure.shown_blocks import ShownSource, shown_blocks
from truelike.exposure.shown_pairs import HeldOut, ShownPairs, shown_pairs

WORLD = tl.synthetic.World(n_users=900, n_items=250, impressions_per_user=60, exposure_skew=1.5)
B = 3


def digest(model: Any) -> str:
    arrays = model.tables_.arrays()
    return hashlib.sha256(
        b"".join(np.ascontiguousarray(arrays[name]).tobytes() for name in sorted(arrays))
    ).hexdigest()


@pytest.fixture(scope="module")
def data() -> tl.Dataset:
    return WORLD.dataset()


@pytest.fixture(scope="module")
def seen() -> tl.Dataset:
    return WORLD.impressions()


@pytest.fixture(scope="module")
def place(data: tl.Dataset, seen: tl.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shown")
    for n in (1, B):
        tl.blocks.build(data, place / str(n), blocks=n, progress=False)
    tl.blocks.build(seen, place / "seen", blocks=2, progress=False)
    return place


def pairs_of(data: tl.Dataset, seen: tl.Dataset, miss_rate: float) -> ShownPairs:
    known = tl.read(data, impressions=seen)
    assert known.shown is not None
    return shown_pairs(known, known.shown, miss_rate)


def quick(**given: Any) -> tl.ImpressionMF:
    return tl.ImpressionMF(**{"factors": 8, "steps": 30, "samples": 3, **given})


@pytest.mark.parametrize("miss_rate", [0.0, 0.3])
def test_the_pairs_are_those_of_a_dataset(
    place: Path, data: tl.Dataset, seen: tl.Dataset, miss_rate: float
) -> None:
    expected = pairs_of(data, seen, miss_rate)
    for train in (tl.blocks.open(place / str(B)), tl.blocks.open(place / str(B), in_memory=True)):
        found = shown_blocks(train, tl.blocks.open(place / "seen"), miss_rate)
        blocks = [found.block(number) for number in range(B)]
        assert_array_equal(np.concatenate([each.indices for each in blocks]), expected.indices)
        assert_array_equal(np.concatenate([each.taken for each in blocks]), expected.taken)
        assert_array_equal(np.concatenate([each.all_logits() for each in blocks]), expected.all_logits())
        assert found.taken_share() == expected.taken_share()
        assert_allclose(found.average_logits(), expected.average_logits())
        users = np.array([800, 3, 3, 77], dtype=np.int32)
        assert_array_equal(found.dense_logits(users), expected.dense_logits(users))


def test_ids_may_be_numbers_in_one_directory_and_text_in_the_other(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(1, (80, 30), size=(600, 2)), axis=0)
    data = tl.read([(int(u), int(i)) for u, i in pairs[::3]])
    seen = tl.read([(str(u), str(i)) for u, i in pairs])
    train = tl.blocks.build(data, tmp_path / "train", blocks=B, progress=False)
    shown = tl.blocks.build(seen, tmp_path / "seen", blocks=2, progress=False)
    found = shown_blocks(train, shown, 0.0)
    inner = np.isin(pairs[:, 0], data.users.values) & np.isin(pairs[:, 1], data.items.values)
    expected = {(int(u), int(i)) for u, i in pairs[inner]}
    for number in range(B):
        block, own = train.block(number), found.block(number)
        users = np.repeat(np.arange(block.n_users), np.diff(own.indptr)) + block.first_user
        got = list(zip(train.users.take(users), train.items.take(own.indices), strict=True))
        expected -= set(got)
        assert len(set(got)) == own.n_pairs
        assert all(np.all(np.diff(own.indices[a:b]) > 0) for a, b in zip(own.indptr, own.indptr[1:], strict=False))
    assert not expected
    assert found.counts.known == inner.sum()


def test_a_saved_model_finds_its_impressions_and_says_what_is_missing(
    place: Path, data: tl.Dataset, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    shutil.copytree(place / str(B), old / "train")
    shutil.copytree(place / "seen", old / "seen")
    model = quick(steps=10).fit(tl.blocks.open(old / "train").with_impressions(old / "seen"), progress=False)
    model.save(old / "model")
    expected, users, items = model.hidden_likes([3, 7], k=3), data.users[:2], data.items[:2]
    lists = (model.recommend(users, k=2), model.recommend_from_items(items, k=2))
    assert set(expected["evidence"]) == {"impressions"}
    assert tl.load(old / "model").hidden_likes([3, 7], k=3).equals(expected)
    old.rename(tmp_path / "new")
    again = tl.load(tmp_path / "new" / "model")
    assert again.hidden_likes([3, 7], k=3).equals(expected)
    shutil.rmtree(tmp_path / "new" / "seen")
    missing = tl.load(tmp_path / "new" / "model")
    assert missing.recommend(users, k=2).equals(lists[0])
    assert missing.recommend_from_items(items, k=2).equals(lists[1])
    with pytest.raises(StorageError, match=r"impressions were a block directory in .*seen.* not there"):
        missing.hidden_likes(users)
    tl.blocks.build(tl.read([(3, 1), (3, 2)]), tmp_path / "new" / "seen", blocks=1, progress=False)
    with pytest.raises(StorageError, match="another block directory"):
        tl.load(tmp_path / "new" / "model").hidden_likes(users)


def test_what_is_not_a_block_directory_is_refused(place: Path, tmp_path: Path) -> None:
    train = tl.blocks.open(place / str(B))
    with pytest.raises(ParameterError, match=r"is no block directory.*truelike blocks IMPRESSIONS"):
        train.with_impressions(tmp_path)
    with pytest.raises(ParameterError, match="needs impressions on several blocks"):
        tl.ImpressionMF().fit(train, progress=False)


def test_unknown_ids_and_interactions_without_an_impression_are_counted(
    place: Path, seen: tl.Dataset, tmp_path: Path
) -> None:
    train, rows = tl.blocks.open(place / str(B)), seen.to_frame().select("user_id", "item_id")
    unknown = pl.DataFrame({"user_id": [5_000, 5_000, 3], "item_id": [1, 2, 5_000]})
    shown = tl.blocks.build(tl.read(pl.concat([rows, unknown])), tmp_path / "more", blocks=2, progress=False)
    with pytest.warns(DataWarning, match=r"^3 of [\d,]+ impressions are left out"):
        quick(steps=10).fit(train.with_impressions(shown), progress=False)
    half = tl.blocks.build(
        tl.read(rows.filter(pl.col("user_id") % 2 == 0)), tmp_path / "half", blocks=2, progress=False
    )
    with pytest.warns(DataWarning, match=r"interactions are not among the impressions; they count as shown"):
        quick(steps=10).fit(train.with_impressions(half), progress=False)
    none = tl.blocks.build(tl.read([("x", "y"), ("z", "w")]), tmp_path / "none", blocks=1, progress=False)
    with pytest.raises(DataError, match="none of the 2 impressions has both a user and an item"):
        quick(steps=10).fit(train.with_impressions(none), progress=False)
    with pytest.raises(DataError, match="every pair of the impressions is an interaction"):
        quick(steps=10).fit(train.with_impressions(train), progress=False)


def test_another_process_must_find_the_same_impressions(place: Path) -> None:
    train = tl.blocks.open(place / str(B))
    given = shown_blocks(train, tl.blocks.open(place / "seen"), 0.3).source
    assert_array_equal(given.of(train).count(1), shown_blocks(train, tl.blocks.open(place / "seen"), 0.3).count(1))
    with pytest.raises(StorageError, match="another block directory"):
        ShownSource(given.directory, "other", 0.3).of(train).count(0)


def test_the_held_out_pairs_are_those_of_a_dataset(place: Path, data: tl.Dataset, seen: tl.Dataset) -> None:
    which = HeldOut(seed=5, user_share=0.4)
    known, train = pairs_of(data, seen, 0.3), tl.blocks.open(place / str(B))
    blocks = shown_blocks(train, tl.blocks.open(place / "seen"), 0.3)
    expected, found = known.held_out(which), blocks.held_out(which)
    assert 0.02 < len(expected.users) / known.n_pairs < 0.06
    for one, other in zip(expected, found, strict=True):
        assert_array_equal(one, other)
    rest = blocks.without(which)
    kept = np.concatenate([rest.block(number).indices for number in range(B)])
    assert_array_equal(kept, known.without(which).indices)
    assert len(kept) + len(expected.users) == known.n_pairs
    blocks.take_back(rest, found)
    assert_allclose(blocks.counts.values, shown_blocks(train, tl.blocks.open(place / "seen"), 0.3).counts.values)


@pytest.mark.parametrize("twice", [True, False])
def test_probabilities_of_blocks_are_calibrated(place: Path, twice: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a model is trained twice, or once without the few pairs that it is calibrated on."""
    if not twice:
        monkeypatch.setattr("truelike.exposure.calibration.REFIT", 1.0)
    blocks = tl.blocks.open(place / str(B)).with_impressions(place / "seen")
    model = quick().fit(blocks, progress=False)
    assert model.calibration_.pairs > 200
    assert model.like_probability(5, [1, 2])["evidence"].to_list() == ["impressions"] * 2
    uncalibrated = quick(calibrate=False).fit(blocks, progress=False)
    assert (digest(model) == digest(uncalibrated)) == twice
    model.save(place / f"model-{twice}")
    loaded = tl.load(place / f"model-{twice}")
    assert_allclose(
        model.like_probability(5, [1, 2])["probability"], loaded.like_probability(5, [1, 2])["probability"]
    )
