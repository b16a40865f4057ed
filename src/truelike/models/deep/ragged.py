"""Rows of different lengths, as a CSR has them: gathered, summed, and always added up in the same order.

A row is taken by `index_select`, never by `table[index]`: the gradient of the latter is added up by threads in
whatever order they come, and then no two runs are alike.
"""

from __future__ import annotations

from typing import Any

from truelike.models.deep.backend import torch


def entries(indptr: Any, rows: Any) -> tuple[Any, Any]:
    """For all entries of some rows of a CSR: the place of its row among those asked for, and its own place."""
    start = indptr[rows]
    lengths = indptr[rows + 1] - start
    owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), lengths)
    first = torch.cumsum(lengths, 0) - lengths
    return owner, torch.arange(len(owner), device=rows.device) + (start - first)[owner]


def take(table: Any, index: Any) -> Any:
    """The rows of a table at an index of any shape."""
    return torch.index_select(table, 0, index.reshape(-1)).view(*index.shape, *table.shape[1:])


def sums(values: Any, owner: Any, n: int) -> Any:
    """The sums of the values of each of n owners."""
    room = torch.zeros((n, *values.shape[1:]), dtype=values.dtype, device=values.device)
    return room.index_add(0, owner, values)
