"""Sums over blocks have the same bits, whoever computes which block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelike.data.blocks.tree import combined, nodes_within, tree_sum


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_sums_do_not_depend_on_the_workers(blocks: int, workers: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(blocks, 3)).astype(np.float32) * 10.0 ** (seed % 7)
    expected = tree_sum(0, blocks, lambda number: values[number].copy())
    ranges = [range(blocks * w // workers, blocks * (w + 1) // workers) for w in range(workers)]
    sums = {
        node: tree_sum(*node, lambda number: values[number].copy())
        for own in ranges
        for node in nodes_within(0, blocks, own)
    }
    np.testing.assert_array_equal(combined(0, blocks, sums), expected)


@pytest.mark.parametrize(("own", "n"), [(range(64), 1), (range(1, 64), 6), (range(21, 43), 8)])
def test_a_worker_returns_few_sums(own: range, n: int) -> None:
    nodes = nodes_within(0, 64, own)
    assert [number for first, stop in nodes for number in range(first, stop)] == list(own)
    assert len(nodes) <= n
