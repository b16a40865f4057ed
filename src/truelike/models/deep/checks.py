"""A network is made, and one of somebody's own is asked in all the ways that it offers: they must say the same.

What is trained is `forward`; what is ranked by may be `vectors` or `grid`. If they differed, nobody would see it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from truelike.errors import ParameterError
from truelike.models.deep.backend import nn, torch
from truelike.models.deep.networks import Inputs, Maker, check_scores

PAIRS = 60  # that are looked at
ANY = "any number"
ALIKE = {"rtol": 1e-3, "atol": 1e-4}


def make(what: str, made_by: Maker, inputs: Inputs) -> Any:
    """Make a network and look whether it is one."""
    network = made_by(inputs)
    if not isinstance(network, nn.Module):
        raise ParameterError(f"{what} made a {type(network).__name__}, not a torch.nn.Module")
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ParameterError(f"the {what} network {type(network).__name__} has no parameter that could be trained")
    if not type(network).__module__.startswith("truelike."):  # ours are looked at by tests
        _check_own(what, network, inputs)
    return network


def _check_own(what: str, network: Any, inputs: Inputs) -> None:
    """Ask a network in every way that it offers, before it is trained."""
    mode = network.training
    network.eval()
    try:
        with torch.no_grad():
            _Asked(what, network, inputs).check()
    finally:
        network.train(mode)


class _Asked:
    def __init__(self, what: str, network: Any, inputs: Inputs) -> None:
        self.what, self.network, self.inputs = what, network, inputs
        self.title = f"the {what} network {type(network).__name__}"
        self.users, self.items = _unvoted_pairs(inputs)
        found = network(self.users, self.items)
        self.expected = check_scores(what, network, self.users, self.items, found)

    def check(self) -> None:
        """Each way in turn."""
        if getattr(self.network, "broadcasts", False):
            self._rows()
        if hasattr(self.network, "grid"):
            self._grid()
        if hasattr(self.network, "vectors"):
            self._vectors()
        elif hasattr(self.network, "strangers"):
            raise ParameterError(f"{self.title} has strangers(), which gives rows of U, but no vectors()")
        if hasattr(self.network, "item_vectors"):
            self._shape("item_vectors()", self.network.item_vectors(), (self.inputs.n_items, ANY))
        if hasattr(self.network, "personal"):
            self._personal()

    def _rows(self) -> None:
        pairs = self.users[:, None], torch.stack([self.items, self.items], dim=1)
        found = check_scores(self.what, self.network, *pairs, self.network(*pairs))
        self._same("forward, for rows of items,", found[:, 1])

    def _grid(self) -> None:
        users, items = torch.unique(self.users), torch.unique(self.items)
        block = self.network.grid(users, items)
        self._shape("grid(users, items)", block, (len(users), len(items)))
        places = torch.searchsorted(users, self.users), torch.searchsorted(items, self.items)
        self._same("grid(users, items)", block[places])

    def _vectors(self) -> None:
        found = self.network.vectors()
        if not isinstance(found, tuple) or len(found) != 3:
            given = f"{len(found)} things" if isinstance(found, tuple) else f"a {type(found).__name__}"
            raise ParameterError(f"{self.title}: vectors() is (U, V, b), where b may be None; it returned {given}")
        U, V, b = found
        self._shape("U of vectors()", U, (self.inputs.n_users, ANY))
        self._shape("V of vectors()", V, (self.inputs.n_items, U.shape[1]))
        bias = 0.0
        if b is not None:
            self._shape("b of vectors()", b, (self.inputs.n_items,))
            bias = b[self.items]
        self._same("vectors()", (U[self.users] * V[self.items]).sum(dim=1) + bias)
        if hasattr(self.network, "strangers"):
            histories = self.inputs.log.matrix[: min(2, self.inputs.n_users)]
            rows = self.network.strangers(histories)
            self._shape("strangers(histories)", rows, (histories.shape[0], U.shape[1]))

    def _personal(self) -> None:
        for name in self.network.personal:
            table = dict(self.network.named_modules()).get(name)
            if not isinstance(table, nn.Embedding) or table.num_embeddings != self.inputs.n_users:
                raise ParameterError(
                    f"{self.title} has personal={self.network.personal!r}, but its {name!r} is no Embedding with "
                    f"a row for each of the {self.inputs.n_users:,} users"
                )

    def _shape(self, which: str, found: Any, expected: tuple[Any, ...]) -> None:
        if not isinstance(found, torch.Tensor):
            raise ParameterError(f"{self.title}: {which} is a {type(found).__name__}, not a tensor")
        shape = tuple(found.shape)
        alike = [wanted in (n, ANY) for n, wanted in zip(shape, expected, strict=False)]
        if len(shape) != len(expected) or not all(alike):
            wanted = ", ".join(map(str, expected))
            raise ParameterError(f"{self.title}: {which} is of shape {shape}; it must be ({wanted})")

    def _same(self, which: str, found: Any) -> None:
        """The scores of the pairs that were looked at, asked for in another way."""
        if torch.allclose(found.to(self.expected.dtype), self.expected, **ALIKE):
            return
        wrong = int((found - self.expected).abs().argmax())
        pair = f"(user {int(self.users[wrong])}, item {int(self.items[wrong])})"
        raise ParameterError(
            f"{self.title}: {which} gives {found[wrong].item():.4g} for the pair {pair}, in row numbers, and "
            f"forward {self.expected[wrong].item():.4g}; what is ranked by must be what is trained"
        )


def _unvoted_pairs(inputs: Inputs) -> tuple[Any, Any]:
    """Some pairs without a vote, for which no network leaves anything out; all alike where there are none."""
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, inputs.n_users, PAIRS), rng.integers(0, inputs.n_items, PAIRS)
    unvoted = np.asarray(inputs.log.matrix[users, items]).reshape(-1) == 0
    if unvoted.any():
        users, items = users[unvoted], items[unvoted]
    return torch.from_numpy(users), torch.from_numpy(items)
