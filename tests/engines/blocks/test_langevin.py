"""ImpressionMF on blocks: the bits of the model in memory, whatever the blocks are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import truelike as tl
from truelike.engines.blocks.langevin import LangevinWorker
from truelike.engines.blocks.workers import LocalWorkers, WorkersLostError

SHORT: dict[str, Any] = {"steps": 40, "burn_in": 20, "samples": 3, "factors": 4}


def world(taste: float) -> tl.synthetic.World:
    return tl.synthetic.World(n_users=400, n_items=150, impressions_per_user=60, exposure_taste=taste, seed=2)


def bits(model: Any) -> list[bytes]:
    posterior = model.posterior_
    arrays = (posterior.tables.users, posterior.tables.items, posterior.user_bias, posterior.item_bias)
    return [array.tobytes() for array in arrays]


def built(place: Path, taste: float, blocks: int) -> tuple[Any, Path]:
    tl.blocks.build(world(taste).impressions(), place / "seen", blocks=2, progress=False)
    return tl.blocks.build(world(taste).dataset(), place / "train", blocks=blocks, progress=False), place / "seen"


@pytest.mark.parametrize(("taste", "miss_rate"), [(0.0, 0.2), (0.8, None)])
def test_blocks_have_the_bits_of_memory(
    taste: float, miss_rate: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("truelike.engines.langevin.link.CLEARLY", -9.0 if taste else 9.0)
    model = tl.ImpressionMF(**SHORT, miss_rate=miss_rate)
    data, shown = world(taste).dataset(), world(taste).impressions()
    plain = tl.clone(model).fit(tl.read(data, impressions=shown), progress=False)
    train, seen = built(tmp_path, taste, 3)
    found = tl.clone(model, n_jobs=2).fit(train.with_impressions(seen), progress=False)
    assert bits(found) == bits(plain)
    in_core = tl.blocks.open(train.directory, in_memory=True).with_impressions(seen)
    assert bits(tl.clone(model, n_jobs=1).fit(in_core, progress=False)) == bits(plain)
    one = tl.blocks.build(data, tmp_path / "one", blocks=1, progress=False).with_impressions(seen)
    assert bits(tl.clone(model).fit(one, progress=False)) == bits(plain)
    assert (found.exposure_z_, found.taste_in_exposure_) == (plain.exposure_z_, plain.taste_in_exposure_)
    assert (found.taste_in_exposure_ > 0) == (taste > 0)
    asked = (5, [1, 2, 3])
    assert found.like_probability(*asked).equals(plain.like_probability(*asked))
    assert found.hidden_likes(5, k=3).equals(plain.hidden_likes(5, k=3))


def test_a_lost_worker_changes_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps since the last sample are done again, from the rows and the precisions of then."""
    train, seen = built(tmp_path, 0.0, 2)
    model = tl.ImpressionMF(**SHORT, calibrate=False)
    expected = bits(tl.clone(model).fit(train.with_impressions(seen), progress=False))
    calls, kept, plain_sum = [0], {}, LocalWorkers.sum
    collect = LocalWorkers.collect

    def failing(self: Any, method: Any, *arguments: Any) -> Any:
        kept.setdefault("users", self.worker.share.rows.copy())
        calls[0] += method is LangevinWorker.advance
        if method is LangevinWorker.advance and calls[0] in (8, 37):
            raise WorkersLostError("lost")
        return plain_sum(self, method, *arguments)

    def collected(self: Any, users: Any) -> None:
        collect(self, users)
        kept["users"] = users.copy()

    monkeypatch.setattr(LocalWorkers, "sum", failing)
    monkeypatch.setattr(LocalWorkers, "collect", collected)
    monkeypatch.setattr(LocalWorkers, "replace", lambda self, users: users.__setitem__(slice(None), kept["users"]))
    assert bits(tl.clone(model).fit(train.with_impressions(seen), progress=False)) == expected
    assert calls[0] > 42


def test_unlisted_interactions_leave_the_exposure_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train, _ = built(tmp_path, 1.2, 2)
    shown = world(1.2).impressions()
    kept = shown.select((shown.matrix.indices + shown.matrix.tocoo().row) % 10 > 0)
    few = tl.blocks.build(kept, tmp_path / "few", blocks=2, progress=False)
    with caplog.at_level("INFO", logger="truelike"), pytest.warns(tl.errors.DataWarning, match="not among"):
        model = tl.ImpressionMF(**SHORT).fit(train.with_impressions(few), progress=False)
    assert model.exposure_z_ is None
    assert "some interactions are not among the impressions" in caplog.text
