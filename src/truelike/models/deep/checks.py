"""A network is made, and one of somebody's own is asked in all the ways that it offers: they must say the same.

What is trained is `forward`; what is ranked by may be `vectors` or `grid`. If they differed, nobody would see it.
So they are compared before training, once as the network starts and once with other numbers in it, on a copy: a
bias that starts at zero, or a result that is kept, looks right until something is learned.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from typing import Any

import numpy as np

from truelike.errors import ParameterError, TrainingWarning, TruelikeError
from truelike.models.deep.backend import nn, torch
from truelike.models.deep.networks import Inputs, Maker, check_scores
from truelike.models.deep.strangers import standing_still
from truelike.training.trainer import DivergedError

PAIRS = 60  # that are looked at
ANY = "any number"
CLOSE = 1e-3  # of the spread of the scores: as near as rounding leaves them
MOVED = 0.1  # by so much all numbers are changed for the second look
SATURATED = 10.0  # a score of which every objective is sure, so that it hardly moves


def make(what: str, made_by: Maker, inputs: Inputs) -> Any:
    """Make a network and look whether it is one."""
    network = made_by(inputs)
    if not isinstance(network, nn.Module):
        raise ParameterError(f"{what} made a {type(network).__name__}, not a torch.nn.Module")
    title = f"the {what} network {type(network).__name__}"
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ParameterError(f"{title} has no parameter that could be trained")
    if not type(network).__module__.startswith("truelike."):  # ours are looked at by tests
        _check_parts(title, network)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            _Asked(what, title, network, inputs).check()
    return network


def check_apart(preference: Any, flips: Any) -> None:
    """Raise where two networks share a parameter: each has a prior of its own."""
    shared = {id(parameter) for parameter in preference.parameters()} & {id(p) for p in flips.parameters()}
    if shared:
        raise ParameterError("the networks of preference and flips share a parameter; each must have its own")


def _check_parts(title: str, network: Any) -> None:
    """What can be neither trained nor saved here."""
    for name, module in network.named_modules():
        if getattr(module, "sparse", False):
            raise ParameterError(
                f"{title}: {name or 'it'} has sparse=True, whose gradients cannot be used; leave it out"
            )
    for name, value in network.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise ParameterError(
                f"{title}: its state {name!r} is a {type(value).__name__}; only tensors can be saved"
            )


class _Asked:
    """A network that is asked on a copy, in all ways."""

    def __init__(self, what: str, title: str, network: Any, inputs: Inputs) -> None:
        self.what, self.title, self.inputs = what, title, inputs
        self.network = copy.deepcopy(network).eval()
        self.users, self.items = _unvoted_pairs(inputs)

    def check(self) -> None:
        """Each way in turn, as the network starts and with other numbers."""
        self._compare()
        if float(self.expected.abs().float().median()) > SATURATED:
            warnings.warn(
                f"{self.title} starts with scores of about {float(self.expected.float().median()):.0f}, at which "
                "objectives hardly move: start smaller, e.g. by torch.nn.init.normal_(table.weight, std=0.1)",
                TrainingWarning,
                stacklevel=9,
            )
        for parameter in self.network.parameters():
            if parameter.is_floating_point():
                parameter.add_(MOVED * torch.randn_like(parameter))
        with contextlib.suppress(DivergedError):  # numbers that it would never come to
            self._compare()

    def _compare(self) -> None:
        network = self.network
        self.expected = self._forward(self.users, self.items)
        if getattr(network, "broadcasts", False):
            self._rows()
        if hasattr(network, "grid"):
            self._grid()
        if hasattr(network, "vectors"):
            self._vectors()
        elif hasattr(network, "strangers"):
            raise ParameterError(f"{self.title} has strangers(), which gives rows of U, but no vectors()")
        if hasattr(network, "item_vectors"):
            self._shape("item_vectors()", network.item_vectors(), (self.inputs.n_items, ANY))
        if hasattr(network, "personal"):
            self._personal(network.personal)

    def _forward(self, users: Any, items: Any) -> Any:
        try:
            found = self.network(users, items)
        except TruelikeError:
            raise
        except Exception as error:
            pairs = f"{items.numel()} pairs of {self.inputs.n_users:,} users and {self.inputs.n_items:,} items"
            raise ParameterError(
                f"{self.title} failed when it was asked for the scores of {pairs}: {type(error).__name__}: {error}"
            ) from error
        return check_scores(self.what, self.network, users, items, found)

    def _rows(self) -> None:
        rows = torch.stack([self.items, self.items.roll(1)], dim=1)
        found = self._forward(self.users[:, None], rows)
        self._same("forward, for rows of items,", found[:, 0])
        flat = self._forward(self.users, rows[:, 1])
        self._same("forward, for rows of items,", found[:, 1], flat, rows[:, 1])

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

    def _personal(self, names: Any) -> None:
        """Where all users have the same rows in what is named, nothing may tell them apart."""
        if not isinstance(names, tuple) or not names or not all(isinstance(name, str) for name in names):
            raise ParameterError(f"{self.title} has personal={names!r}; it is a tuple of names, as ('users',)")
        alike = standing_still(self.network)
        for name in names:
            table = dict(alike.named_modules(remove_duplicate=False)).get(name)
            if not isinstance(table, nn.Embedding) or table.num_embeddings != self.inputs.n_users:
                raise ParameterError(
                    f"{self.title} has personal={names!r}, but its {name!r} is no Embedding with a row for each "
                    f"of the {self.inputs.n_users:,} users"
                )
            table.weight = nn.Parameter(table.weight[:1].expand_as(table.weight).clone(), requires_grad=False)
        one, another = (alike(users, self.items) for users in (self.users, self.users.roll(1)))
        if not self._close(one, another):
            raise ParameterError(
                f"{self.title} has personal={names!r}, but tells users apart by more than that: name all "
                "embeddings of users, or leave personal out"
            )

    def _shape(self, which: str, found: Any, expected: tuple[Any, ...]) -> None:
        if not isinstance(found, torch.Tensor):
            raise ParameterError(f"{self.title}: {which} is a {type(found).__name__}, not a tensor")
        shape = tuple(found.shape)
        alike = [wanted in (n, ANY) for n, wanted in zip(shape, expected, strict=False)]
        if len(shape) != len(expected) or not all(alike):
            wanted = ", ".join(map(str, expected))
            raise ParameterError(f"{self.title}: {which} is of shape {shape}; it must be ({wanted})")

    def _same(self, which: str, found: Any, expected: Any = None, items: Any = None) -> None:
        """The scores of the pairs that were looked at, asked for in another way."""
        expected, items = (self.expected, self.items) if expected is None else (expected, items)
        if self._close(found, expected):
            return
        wrong = int((found - expected).abs().argmax())
        pair = f"(user {int(self.users[wrong])}, item {int(items[wrong])})"
        raise ParameterError(
            f"{self.title}: {which} gives {found[wrong].item():.4g} for the pair {pair}, in row numbers, and "
            f"forward {expected[wrong].item():.4g}; what is ranked by must be what is trained"
        )

    def _close(self, found: Any, expected: Any) -> bool:
        rounding = 20 * max(torch.finfo(scores.dtype).eps for scores in (found, expected))
        found, expected = found.double(), expected.double()
        room = CLOSE * float(expected.std(correction=0)) + rounding * float(expected.abs().max())
        return bool(torch.allclose(found, expected, rtol=0.0, atol=max(room, 1e-12)))


def _unvoted_pairs(inputs: Inputs) -> tuple[Any, Any]:
    """Some pairs without a vote, for which no network leaves anything out."""
    rng = np.random.default_rng(0)
    users = rng.integers(0, inputs.n_users, PAIRS)
    unvoted = [np.setdiff1d(np.arange(inputs.n_items), inputs.log.matrix[[user]].indices) for user in users]
    items = [int(rng.choice(some)) if len(some) else 0 for some in unvoted]
    return torch.from_numpy(users), torch.tensor(items)
