"""An index that is mapped into memory finds what the one in memory finds, without threads of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest

from truelike.serving.index import ApproximateIndex


def test_a_mapped_index_starts_no_threads(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    built = ApproximateIndex.build(rng.normal(size=(4_000, 8)).astype(np.float32), None)
    built.write(tmp_path / "index.faiss")
    mapped = ApproximateIndex.read(tmp_path / "index.faiss", 20, biased=False)
    built.probes = 20
    users = rng.normal(size=(50, 8)).astype(np.float32)
    before = psutil.Process().num_threads()
    for user in users:
        assert mapped.nearest(user, 10).tolist() == built.nearest(user, 10).tolist()
    assert psutil.Process().num_threads() == before
    lists = mapped._faiss.downcast_InvertedLists(mapped.index.invlists)
    assert lists.prefetch_nthread == 0
