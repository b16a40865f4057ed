"""Operations on rows of different lengths, stored as a CSR. They add up in a fixed order.

Rows are looked up by `index_select`, never by `table[index]`: several threads add up the gradient of the latter in
no fixed order, so two runs would differ in their last bits.
"""

from __future__ import annotations

from truelike.engines.torch.backend import Tensor, torch


def row_entries(indptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each entry of some rows of a CSR the place of its row in `rows`, and its place in the CSR."""
    start = indptr[rows]
    lengths = indptr[rows + 1] - start
    owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), lengths)
    first = torch.cumsum(lengths, 0) - lengths
    return owner, torch.arange(len(owner), device=rows.device) + (start - first)[owner]


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """Look up rows of a table by an index of any shape."""
    return torch.index_select(table, 0, index.reshape(-1)).view(*index.shape, *table.shape[1:])


def sum_by_owner(values: Tensor, owner: Tensor, n: int) -> Tensor:
    """Sum the values of each of n owners."""
    totals = torch.zeros((n, *values.shape[1:]), dtype=values.dtype, device=values.device)
    return totals.index_add(0, owner, values)
