"""What a fit takes of the dataset beside the interactions."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from truelike.core.progress import note
from truelike.data.columns import Columns
from truelike.data.dataset import Dataset
from truelike.data.interactions import EncodedRows
from truelike.data.shown import Shown


def note_of_unused(name: str, uses: frozenset[str], train: Any) -> None:
    """Say what the dataset has and a model does not use."""
    unused = sorted(train.carries - uses - {"times"})
    if unused:
        note(f"{name} does not use what the dataset has as {', '.join(unused)}")


def known_data(uses: frozenset[str], train: Any) -> dict[str, Any]:
    """The arguments `impressions`, `user_features` and `item_features` of `FitOptions`."""
    found: dict[str, Any] = {}
    if "shown" in uses and train.shown is not None:
        shown = train.shown
        found["impressions"] = _as_rows(train, shown) if isinstance(shown, Shown) else shown
    for side, ids in (("user", train.users), ("item", train.items)):
        table = getattr(train, f"{side}_features")
        if table is not None and f"{side}_features" in uses:
            found[f"{side}_features"] = table.table(ids)
    return found


def _as_rows(train: Dataset, shown: Shown) -> Dataset | EncodedRows | None:
    """Impressions as models read them: pairs with counts, or rows."""
    if not shown.n_entries:
        return None
    if not shown.known:
        parts = (shown.csr.data.astype(np.float32), shown.csr.indices, shown.csr.indptr)
        return Dataset._of(train.users, train.items, sparse.csr_array(parts, shape=shown.csr.shape))
    weights = shown.csr.data if shown.propensities is None else shown.propensities
    return EncodedRows(
        train.users,
        train.items,
        shown.users,
        shown.items,
        Columns("user_id", "item_id", weight="count" if shown.propensities is None else "propensity"),
        weights.astype(np.float64),
        shown.times,
        None if shown.positions is None else shown.positions.astype(np.float64),
    )
