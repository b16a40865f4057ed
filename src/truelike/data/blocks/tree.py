"""Sums over blocks whose result does not depend on who computes which block.

Blocks are the leaves of a fixed binary tree, in their order: the sum of blocks 0 ... 7 is that of 0 ... 3 plus that of
4 ... 7, and so on. A worker that has blocks 4 ... 7 returns one sum in place of four, and the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
Node = tuple[int, int]


def tree_sum(first: int, stop: int, leaf: Callable[[int], T]) -> T:
    """The sum of leaf(first) ... leaf(stop - 1) by the tree over these blocks; one leaf is computed at a time.

    >>> tree_sum(0, 5, str)
    '01234'
    """
    if stop - first == 1:
        return leaf(first)
    middle = (first + stop) // 2
    return _sum(tree_sum(first, middle, leaf), tree_sum(middle, stop, leaf))


def nodes_within(first: int, stop: int, own: range) -> list[Node]:
    """The largest nodes of the tree over blocks first ... stop - 1 that have only blocks of `own`.

    >>> nodes_within(0, 8, range(2, 8))
    [(2, 4), (4, 8)]
    """
    if stop <= own.start or own.stop <= first:
        return []
    if own.start <= first and stop <= own.stop:
        return [(first, stop)]
    middle = (first + stop) // 2
    return nodes_within(first, middle, own) + nodes_within(middle, stop, own)


def combined(first: int, stop: int, sums: Mapping[Node, T]) -> T:
    """The sum over the tree, from the sums of some of its nodes, which cover all blocks.

    >>> combined(0, 4, {(0, 2): "a", (2, 3): "b", (3, 4): "c"})
    'abc'
    """
    if (first, stop) in sums:
        return sums[first, stop]
    middle = (first + stop) // 2
    return _sum(combined(first, middle, sums), combined(middle, stop, sums))


def _sum(left: T, right: Any) -> T:
    left += right
    return left
