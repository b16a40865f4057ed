"""The sorting of compiled loops equals NumPy's, and compiled functions that are kept on disk use no other."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import truelike
from truelike.core.sorting import kth_smallest, sort


@given(st.lists(st.integers(-50, 50), max_size=300))
def test_sort_equals_numpy(values: list[int]) -> None:
    for kind in (np.int32, np.int64):
        mine = np.array(values, dtype=kind)
        sort(mine)
        assert mine.tolist() == sorted(values)


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=60), st.data())
def test_the_kth_smallest_equals_numpy(values: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(values) - 1))
    given = np.array(values, dtype=np.float64)
    assert kth_smallest(given, k) == sorted(values)[k]
    assert given.tolist() == values


SOURCES = sorted(Path(truelike.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if "njit(" in path.read_text()], ids=lambda path: path.stem
)
def test_compiled_functions_do_not_use_the_sorting_of_numba(path: Path) -> None:
    """Kept on disk by two processes, they may call each other's: see `sorting`."""
    compiled = re.findall(
        r"^@\w*\.?\w*njit\(.*?^def .*?(?=^@|^def |^class |^_\w+ =|\Z)", path.read_text(), re.S | re.M
    )
    for text in compiled:
        assert not re.search(
            r"\.sort\(|np\.(sort|argsort|partition|searchsorted|median|unique|quantile)\(", text
        ), text
