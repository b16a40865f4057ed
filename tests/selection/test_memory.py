from __future__ import annotations

import sys

import numpy as np
import pytest

from truelike.selection.memory import Peak


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is reset on Linux only")
def test_the_peak_is_measured_within_the_block_only() -> None:
    np.ones(200_000_000, dtype=np.uint8)  # freed before the block: not counted
    with Peak() as small:
        pass
    with Peak() as large:
        np.ones(100_000_000, dtype=np.uint8)
    assert small.mb is not None
    assert large.mb is not None
    assert 90 < large.mb - small.mb < 150
