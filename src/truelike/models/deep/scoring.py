"""Answers from trained networks: by vectors where the score is a dot product, else user by user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.evaluation.topk import factor_score_block
from truelike.models.deep.backend import torch
from truelike.models.deep.networks import Networks
from truelike.models.factor_model import unit_rows
from truelike.training.trainer import DivergedError

Floats = NDArray[np.float32]
Vectors = tuple[Floats, Floats, Floats | None]
ITEMS_AT_ONCE = 16_384  # of one user, so that the memory of a network's layers is bounded
PAIRS_AT_ONCE = 1 << 18  # of a network's own grid
TYPICAL = 200  # users whose mean is the average user
PROFILE_MEMORY = 64 * 2**20


class Kept:
    """What is worked out from networks as they are now, until they change."""

    def __init__(self, networks: Networks) -> None:
        self.networks, self.version = networks, -1
        self.found: dict[str, Any] = {}

    def _once(self, name: str, work: Callable[[], Any]) -> Any:
        if self.version != self.networks.version:
            self.found, self.version = {}, self.networks.version
        if name not in self.found:
            self.found[name] = work()
        return self.found[name]

    def vectors(self, part: str) -> Any:
        """U, V and b of a network whose score is a dot product; None for another."""
        network = self.networks.parts()[part]
        return self._once(part, lambda: vectors_of(network)) if hasattr(network, "vectors") else None

    def block(self, part: str, users: Codes, n_items: int) -> Floats:
        """The scores of all items for some users."""
        found = self.vectors(part)
        if found is None:
            return grid(self.networks.parts()[part], users, n_items)
        user_vectors, item_vectors, bias = found
        return factor_score_block(user_vectors[users], item_vectors, bias)

    def typical(self, part: str, log: Dataset) -> Floats:
        """The scores of all items for the average user."""

        def work() -> Floats:
            return np.asarray(self.block(part, _some_users(log, TYPICAL), log.n_items).mean(axis=0))

        return np.asarray(self._once(f"typical {part}", work))

    def unit_items(self, log: Dataset) -> Floats:
        """A row of length 1 for each item, alike for items that are alike."""
        return np.asarray(self._once("items", lambda: unit_rows(self._items(log))))

    def _items(self, log: Dataset) -> Floats:
        network = self.networks.preference
        if hasattr(network, "item_vectors"):
            with torch.no_grad():
                return finite(network, "item_vectors()", to_array(network.item_vectors()))
        if hasattr(network, "vectors"):
            return np.asarray(self.vectors("preference")[1])
        # nothing is known of the network: two items are alike if they are scored alike by the same users
        n = max(2, min(1_000, PROFILE_MEMORY // (4 * log.n_items)))
        scores = grid(network, _some_users(log, n), log.n_items)
        return np.ascontiguousarray((scores - scores.mean(axis=1, keepdims=True)).T)


def _some_users(log: Dataset, n: int) -> Codes:
    """Some users with votes, from all over the log."""
    voters = np.flatnonzero(log.rows_per_user()).astype(np.int32)
    return voters[np.unique(np.linspace(0, len(voters) - 1, min(len(voters), n)).astype(np.int32))]


def vectors_of(network: Any) -> Vectors:
    """U, V and b as arrays."""
    with torch.no_grad():
        found = network.vectors()
    U, V, b = (None if part is None else finite(network, "vectors()", to_array(part)) for part in found)
    assert U is not None
    assert V is not None
    return U, V, b


def to_array(tensor: Any) -> Floats:
    """A tensor as a NumPy array of its own, wherever it lay."""
    return np.array(tensor.detach().cpu().float().numpy(), dtype=np.float32, order="C")


def finite(network: Any, what: str, numbers: Floats) -> Floats:
    """Numbers to rank by; an error where there is a NaN among them, which would stand nowhere in a list."""
    if not np.isfinite(numbers.sum(dtype=np.float64)):
        wrong = tuple(int(n) for n in np.argwhere(~np.isfinite(numbers))[0])
        title = type(network).__name__
        raise DivergedError(f"the network {title} gave {numbers[wrong]} in {what}, at {wrong}, in row numbers")
    return numbers


def grid(network: Any, users: Codes, n_items: int) -> Floats:
    """The scores of all items for some users.

    By `forward` one user at a time: then a score does not depend on who else is asked for, which in a product of
    larger matrices it would, in its last bits. A network's own `grid` gets as many users as PAIRS_AT_ONCE allows,
    and decides that for itself.
    """
    where = next(network.parameters()).device
    scores = np.empty((len(users), n_items), dtype=np.float32)
    with torch.no_grad():
        for start in range(0, n_items, ITEMS_AT_ONCE):
            items = torch.arange(start, min(n_items, start + ITEMS_AT_ONCE), device=where)
            block = scores[:, start : start + ITEMS_AT_ONCE]
            if hasattr(network, "grid"):
                some = max(1, PAIRS_AT_ONCE // len(items))
                for first in range(0, len(users), some):
                    asked = torch.from_numpy(users[first : first + some].astype(np.int64)).to(where)
                    block[first : first + some] = network.grid(asked, items).float().cpu().numpy()
                continue
            for row, user in enumerate(users):
                block[row] = network(torch.full_like(items, int(user)), items).float().cpu().numpy()
    return finite(network, "the scores of (users, items)", scores)
