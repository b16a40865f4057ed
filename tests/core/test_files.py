"""Places that no system could have are errors that name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import truelike as tl
from truelike.errors import ParameterError, StorageError


@pytest.mark.parametrize(
    "place", ["/", "a" * 300, "a/" * 3000, "\0", "a\udcff", None, 3, b"model"], ids=lambda place: ascii(place)[:12]
)
def test_a_place_that_cannot_be_a_directory_is_an_error(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = tl.synthetic.World(n_users=60, n_items=40).dataset()
    model = tl.ItemPop().fit(data)
    for call in (model.save, tl.load, tl.splits.by_user(data).save, tl.Split.load):
        with pytest.raises(StorageError):
            call(place)
    if place is not None:
        with pytest.raises(StorageError):
            tl.IALS(epochs=1).fit(data, checkpoint=place)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("metrics", [{"a": "x"}, {"a": float("nan")}, {3: 1}, [1], {"a": None}])
def test_metrics_that_are_not_numbers_are_not_saved(metrics: Any, tmp_path: Path) -> None:
    model = tl.ItemPop().fit(tl.synthetic.World(n_users=60, n_items=40).dataset())
    with pytest.raises(ParameterError, match="metrics is"):
        model.save(tmp_path / "model", metrics=metrics)
    assert not list(tmp_path.iterdir())
