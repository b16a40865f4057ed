from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

import truelike as tl
from truelike.errors import DataError, DataWarning, ParameterError


@pytest.fixture(scope="module")
def world() -> Any:
    return tl.synthetic.World(n_users=300, n_items=80, seed=1)


def pairs(data: Any) -> set[tuple[int, int]]:
    return set(data.to_frame().select("user_id", "item_id").rows())


def test_every_pair_is_in_one_part_alone(world: Any) -> None:
    train, shown = world.dataset(), world.impressions()
    parts = tl.splits.hold_out_impressions(train, shown, share=0.2, seed=4)
    assert pairs(parts.train) | pairs(parts.held_out_interactions) == pairs(train)
    assert pairs(parts.impressions) | pairs(parts.held_out_impressions) == pairs(shown)
    assert not pairs(parts.impressions) & pairs(parts.held_out_impressions)
    # nothing is leaked: a held-out interaction is a held-out impression, and no other impression tells of it
    assert pairs(parts.held_out_interactions) == pairs(train) & pairs(parts.held_out_impressions)
    assert parts.train.users == train.users
    assert parts.impressions.matrix.sum() + parts.held_out_impressions.matrix.sum() == shown.matrix.sum()


def test_taken_and_other_pairs_are_held_out_alike(world: Any) -> None:
    parts = tl.splits.hold_out_impressions(world.dataset(), world.impressions(), share=0.2, seed=4)
    n, m = parts.held_out_impressions.n_interactions, world.impressions().n_interactions
    taken, all_taken = parts.held_out_interactions.n_interactions, world.dataset().n_interactions
    for held_out, of in ((taken, all_taken), (n - taken, m - all_taken)):
        assert abs(held_out / of - 0.2) < 4 * np.sqrt(0.16 / of)


def test_the_seed_decides(world: Any) -> None:
    a, b, c = (
        pairs(tl.splits.hold_out_impressions(world.dataset(), world.impressions(), seed=s).held_out_impressions)
        for s in (0, 0, 1)
    )
    assert a == b != c


def test_frames_stay_frames_with_all_their_columns_and_rows(world: Any) -> None:
    train, shown = world.dataset(), world.impressions()
    expected = tl.splits.hold_out_impressions(train, shown)
    frame = shown.to_frame().with_columns(pl.lit(0.5).alias("propensity"), pl.lit(3).alias("position"))
    frame = pl.concat([frame, frame])
    for given, kind in ((frame, pl.DataFrame), (frame.to_pandas(), pd.DataFrame), (frame.to_arrow(), pa.Table)):
        parts = tl.splits.hold_out_impressions(train, given)
        assert isinstance(parts.impressions, kind)
        held_out = pl.DataFrame(parts.held_out_impressions)
        assert held_out.columns == frame.columns
        assert len(held_out) == 2 * expected.held_out_impressions.n_interactions
        assert len(held_out) + len(parts.impressions) == len(frame)
        assert_array_equal(parts.train.matrix.indices, expected.train.matrix.indices)
        assert pairs(tl.read(held_out)) == pairs(expected.held_out_impressions)


def test_interactions_that_were_not_shown_are_counted_and_kept(world: Any) -> None:
    train, shown = world.dataset(), world.impressions()
    few = shown.select(np.arange(shown.n_interactions) % 2 == 0)
    lacking = len(pairs(train) - pairs(few))
    with pytest.warns(DataWarning, match=rf"^{lacking:,} of {train.n_interactions:,} interactions are not among"):
        parts = tl.splits.hold_out_impressions(train, few, share=0.5)
    assert pairs(train) - pairs(few) <= pairs(parts.train)


def test_impressions_of_other_users_are_kept_or_an_error(world: Any) -> None:
    train, shown = world.dataset(), world.impressions().to_frame().select("user_id", "item_id")
    more = pl.DataFrame({"user_id": [10_000] * 50, "item_id": list(range(50))})
    parts = tl.splits.hold_out_impressions(train, pl.concat([shown, more]), share=0.5)
    assert (parts.impressions["user_id"] == 10_000).sum() == 50
    with pytest.raises(DataError, match="none of the 50 impressions is held out"):
        tl.splits.hold_out_impressions(train, more)


def test_wrong_arguments(world: Any) -> None:
    for share in (0, 1, -0.1, "x"):
        with pytest.raises(ParameterError, match="share is"):
            tl.splits.hold_out_impressions(world.dataset(), world.impressions(), share=share)
    with pytest.raises(ParameterError, match="seed is"):
        tl.splits.hold_out_impressions(world.dataset(), world.impressions(), seed=0.5)  # type: ignore[arg-type]
