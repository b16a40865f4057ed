"""Loads beside saves, and kill -9; `saves.py` and `kills.py` do the same thousands and hundreds of times."""

from __future__ import annotations

import random
from pathlib import Path

import kills
import pytest
import saves


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("savers", [1, 2])
def test_a_load_beside_saves_is_of_one_model(savers: int, tmp_path: Path) -> None:
    found, seen = saves.load_beside_saves(tmp_path, 250, savers)
    assert set(found) <= {"a", "b"}
    assert seen > 3


@pytest.mark.parametrize("kind", ["save", "train", "recommend"])
def test_work_that_is_killed_goes_on_to_the_same_result(kind: str, tmp_path: Path) -> None:
    kills.prepare(tmp_path)
    assert kills.kill(kind, tmp_path, 2, random.Random(0)) >= 0
