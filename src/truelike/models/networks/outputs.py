"""Scores of trained networks: by vectors if the score is a dot product, otherwise user by user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.engines.torch.backend import torch
from truelike.engines.torch.networks import Networks
from truelike.errors import DivergedError
from truelike.models.factor_model import unit_rows
from truelike.models.scorer import DotProduct, Floats

ITEMS_AT_ONCE = 16_384  # of one user, which bounds the memory of a network's layers
PAIRS_AT_ONCE = 1 << 18  # per call of a network's score_grid
AVERAGED_USERS = 200  # users whose mean scores are those of the average user
PROFILE_MEMORY = 64 * 2**20  # bytes of the scores by which items are compared


class Outputs:
    """Computes scores and vectors of networks, and keeps results that can be reused until the networks change."""

    def __init__(self, networks: Networks) -> None:
        self.networks, self.version = networks, -1
        self.cache: dict[str, Any] = {}

    def _cached(self, name: str, compute: Callable[[], Any]) -> Any:
        if self.version != self.networks.version:
            self.cache, self.version = {}, self.networks.version
        if name not in self.cache:
            self.cache[name] = compute()
        return self.cache[name]

    def vectors(self, part: str) -> DotProduct | None:
        """Return U, V and b of a network whose score is a dot product; None for another network."""
        network = self.networks.parts()[part]
        if not hasattr(network, "vectors"):
            return None
        found: DotProduct = self._cached(part, lambda: vectors_of(network))
        return found

    def block(self, part: str, users: Codes, n_items: int) -> Floats:
        """Return the scores of all items for some users."""
        found = self.vectors(part)
        if found is None:
            return score_all_items(self.networks.parts()[part], users, n_items)
        return found.scores(users)

    def average_user(self, part: str, train: Dataset) -> Floats:
        """Return the scores of all items for the average user."""

        def compute() -> Floats:
            return np.asarray(self.block(part, _spread_users(train, AVERAGED_USERS), train.n_items).mean(axis=0))

        return np.asarray(self._cached(f"average user of {part}", compute))

    def unit_items(self, train: Dataset) -> Floats:
        """Return a row of length 1 for each item, such that similar items have similar rows."""
        return np.asarray(self._cached("unit items", lambda: unit_rows(self._item_profiles(train))))

    def _item_profiles(self, train: Dataset) -> Floats:
        network = self.networks.preference
        if hasattr(network, "item_vectors"):
            with torch.no_grad():
                return check_finite(network, "item_vectors()", to_array(network.item_vectors()))
        found = self.vectors("preference")
        if found is not None:
            return found.items
        # the network has only forward: items are similar if the same users give them similar scores
        n = max(2, min(1_000, PROFILE_MEMORY // (4 * train.n_items)))
        scores = score_all_items(network, _spread_users(train, n), train.n_items)
        return np.ascontiguousarray((scores - scores.mean(axis=1, keepdims=True)).T)


def _spread_users(train: Dataset, n: int) -> Codes:
    """At most n users with interactions, from all over the dataset."""
    active = np.flatnonzero(train.interactions_per_user()).astype(np.int32)
    return active[np.unique(np.linspace(0, len(active) - 1, min(len(active), n)).astype(np.int32))]


def vectors_of(network: Any) -> DotProduct:
    """Return U, V and b as arrays."""
    with torch.no_grad():
        found = network.vectors()
    U, V, b = (None if part is None else check_finite(network, "vectors()", to_array(part)) for part in found)
    assert U is not None
    assert V is not None
    return DotProduct(U, V, b)


def to_array(tensor: Any) -> Floats:
    """Copy a tensor, on any device, to a NumPy array."""
    return np.array(tensor.detach().cpu().float().numpy(), dtype=np.float32, order="C")


def check_finite(network: Any, what: str, values: Floats) -> Floats:
    """Return the values; raise an error if one of them is not finite, because NaN cannot be ranked."""
    if not np.isfinite(values.sum(dtype=np.float64)):
        wrong = tuple(int(n) for n in np.argwhere(~np.isfinite(values))[0])
        raise DivergedError(
            f"the network {type(network).__name__} returned {values[wrong]} in {what}, at row numbers {wrong}. "
            "Try a smaller learning_rate, or check the network for divisions by zero."
        )
    return values


def score_all_items(network: Any, users: Codes, n_items: int) -> Floats:
    """Return the scores of all items for some users.

    `forward` is called for one user at a time, so that a score does not depend on the other users: in products of
    larger matrices its last bits would. A network's `score_grid` is called for up to PAIRS_AT_ONCE pairs.
    """
    where = next(network.parameters()).device
    scores = np.empty((len(users), n_items), dtype=np.float32)
    with torch.no_grad():
        for start in range(0, n_items, ITEMS_AT_ONCE):
            items = torch.arange(start, min(n_items, start + ITEMS_AT_ONCE), device=where)
            block = scores[:, start : start + ITEMS_AT_ONCE]
            if hasattr(network, "score_grid"):
                size = max(1, PAIRS_AT_ONCE // len(items))
                for first in range(0, len(users), size):
                    asked = torch.from_numpy(users[first : first + size].astype(np.int64)).to(where)
                    block[first : first + size] = network.score_grid(asked, items).float().cpu().numpy()
                continue
            for row, user in enumerate(users):
                block[row] = network(torch.full_like(items, int(user)), items).float().cpu().numpy()
    return check_finite(network, "the scores of (users, items)", scores)
