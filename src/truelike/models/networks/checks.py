"""Make networks, and check those of users of the library before training.

`forward` is what is trained; `vectors` or `score_grid` may be what is ranked by. If they differed, nobody would notice.
So all ways to score are compared, on a copy of the network: with the initial parameters, and with changed ones. A bias
that is initially zero, or a cached result, is right until something is learned.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import numpy as np

from truelike.engines.torch.backend import Module, Tensor, nn, torch
from truelike.engines.torch.networks import Inputs, Maker, check_scores
from truelike.errors import DivergedError, ParameterError, TrainingWarning, TruelikeError, warn
from truelike.models.networks.scorer import fixed_copy

PAIRS = 60  # number of pairs that are compared
ANY = "any number"
TOLERANCE = 1e-3  # of the standard deviation of the scores
CHANGE = 0.1  # standard deviation of the change of the parameters for the second comparison
SATURATED = 10.0  # absolute score at which the gradient of every objective is nearly zero


def make(part: str, maker: Maker, inputs: Inputs) -> Module:
    """Make a network and check it. `part` is "preference" or "flips"."""
    network = maker(inputs)
    if not isinstance(network, nn.Module):
        raise ParameterError(f"{part} made a {type(network).__name__}, not a torch.nn.Module")
    title = f"the {part} network {type(network).__name__}"
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ParameterError(f"{title} has no parameter that can be trained")
    if not type(network).__module__.startswith("truelike."):  # the library's own are checked by its tests
        _check_modules(title, network)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            _Comparison(part, title, network, inputs).check()
    return network


def check_separate(preference: Module, flips: Module) -> None:
    """Raise an error if two networks share a parameter: each has a regularization of its own."""
    if {id(p) for p in preference.parameters()} & {id(p) for p in flips.parameters()}:
        raise ParameterError("the networks of preference and flips share a parameter; each must have its own")


def _check_modules(title: str, network: Module) -> None:
    """Raise an error if a part of a network cannot be trained or saved."""
    for name, module in network.named_modules():
        if getattr(module, "sparse", False):
            raise ParameterError(
                f"{title}: {name or 'it'} has sparse=True, but sparse gradients are not supported. Remove it."
            )
    for name, value in network.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise ParameterError(
                f"{title}: its state {name!r} is a {type(value).__name__}; only tensors can be saved"
            )


class _Comparison:
    """Compares all ways to score of a copy of a network with its `forward`."""

    def __init__(self, part: str, title: str, network: Module, inputs: Inputs) -> None:
        self.part, self.title, self.inputs = part, title, inputs
        self.network = copy.deepcopy(network).eval()
        # pairs without an interaction; a network such as ACF scores observed pairs differently in training
        rng = np.random.default_rng(0)
        users = rng.integers(0, inputs.n_users, PAIRS)
        unobserved = [
            np.setdiff1d(np.arange(inputs.n_items), inputs.dataset.csr[[user]].indices) for user in users
        ]
        items = [int(rng.choice(some)) if len(some) else 0 for some in unobserved]
        self.users, self.items = torch.from_numpy(users), torch.tensor(items)

    def check(self) -> None:
        """Compare with the initial parameters, and with changed ones."""
        self._compare()
        if float(self.expected.abs().float().median()) > SATURATED:
            warn(
                f"{self.title} starts with scores of about {float(self.expected.float().median()):.0f}, where the "
                "gradient of the objectives is nearly zero. Use smaller initial parameters, e.g. "
                "torch.nn.init.normal_(table.weight, std=0.1).",
                TrainingWarning,
            )
        for parameter in self.network.parameters():
            if parameter.is_floating_point():
                parameter.add_(CHANGE * torch.randn_like(parameter))
        with contextlib.suppress(DivergedError):  # training may never reach such parameters
            self._compare()

    def _error(self, problem: str) -> ParameterError:
        return ParameterError(f"{self.title}{problem}")

    def _compare(self) -> None:
        network = self.network
        self.expected = self._forward(self.users, self.items)
        if getattr(network, "broadcasts", False):
            rows = torch.stack([self.items, self.items.roll(1)], dim=1)
            found = self._forward(self.users[:, None], rows)
            what = "forward with users of shape (n, 1) and items of shape (n, m)"
            self._check_same(what, found[:, 0], self.expected)
            self._check_same(what, found[:, 1], self._forward(self.users, rows[:, 1]), rows[:, 1])
        if hasattr(network, "score_grid"):
            self._check_score_grid()
        if hasattr(network, "vectors"):
            self._check_vectors()
        elif hasattr(network, "new_user_vectors"):
            raise self._error(" has new_user_vectors(), which returns rows of U, but no vectors()")
        if hasattr(network, "item_vectors"):
            self._check_shape("item_vectors()", network.item_vectors(), (self.inputs.n_items, ANY))
        if hasattr(network, "user_embedding_names"):
            self._check_user_embeddings(network.user_embedding_names)

    def _forward(self, users: Tensor, items: Tensor) -> Tensor:
        try:
            found = self.network(users, items)
        except TruelikeError:
            raise
        except Exception as error:
            pairs = f"{items.numel()} pairs of {self.inputs.n_users:,} users and {self.inputs.n_items:,} items"
            raise self._error(f" failed to score {pairs}: {type(error).__name__}: {error}") from error
        return check_scores(self.part, self.network, users, items, found)

    def _check_score_grid(self) -> None:
        users, items = torch.unique(self.users), torch.unique(self.items)
        block = self.network.score_grid(users, items)
        self._check_shape("score_grid(users, items)", block, (len(users), len(items)))
        places = torch.searchsorted(users, self.users), torch.searchsorted(items, self.items)
        self._check_same("score_grid(users, items)", block[places], self.expected)

    def _check_vectors(self) -> None:
        found = self.network.vectors()
        if not isinstance(found, tuple) or len(found) != 3:
            given = f"a tuple of {len(found)}" if isinstance(found, tuple) else f"a {type(found).__name__}"
            raise self._error(f": vectors() returned {given}; it must return (U, V, b), where b may be None")
        U, V, b = found
        self._check_shape("U of vectors()", U, (self.inputs.n_users, ANY))
        self._check_shape("V of vectors()", V, (self.inputs.n_items, U.shape[1]))
        by_vectors = (U[self.users] * V[self.items]).sum(dim=1)
        if b is not None:
            self._check_shape("b of vectors()", b, (self.inputs.n_items,))
            by_vectors = by_vectors + b[self.items]
        self._check_same("vectors()", by_vectors, self.expected)
        if hasattr(self.network, "new_user_vectors"):
            histories = self.inputs.dataset.csr[: min(2, self.inputs.n_users)]
            rows = self.network.new_user_vectors(histories)
            self._check_shape("new_user_vectors(histories)", rows, (histories.shape[0], U.shape[1]))

    def _check_user_embeddings(self, names: Any) -> None:
        """With the same rows for all users in these embeddings, all users must have the same scores."""
        given = f" has user_embedding_names={names!r}"
        if not isinstance(names, tuple) or not names or not all(isinstance(name, str) for name in names):
            raise self._error(f"{given}; it must be a tuple of names, such as ('users',)")
        same = fixed_copy(self.network)
        for name in names:
            table = dict(same.named_modules(remove_duplicate=False)).get(name)
            if not isinstance(table, nn.Embedding) or table.num_embeddings != self.inputs.n_users:
                raise self._error(
                    f"{given}, but its {name!r} is not an Embedding with a row for each of the "
                    f"{self.inputs.n_users:,} users"
                )
            table.weight = nn.Parameter(table.weight[:1].expand_as(table.weight).clone(), requires_grad=False)
        if not _is_close(*(same(users, self.items) for users in (self.users, self.users.roll(1)))):
            raise self._error(
                f"{given}, but its scores depend on the user in other ways, too: name all embeddings of users, or "
                "remove user_embedding_names"
            )

    def _check_shape(self, what: str, found: Any, expected: tuple[Any, ...]) -> None:
        if not isinstance(found, torch.Tensor):
            raise self._error(f": {what} is a {type(found).__name__}, not a tensor")
        shape = tuple(found.shape)
        fits = [wanted in (n, ANY) for n, wanted in zip(shape, expected, strict=False)]
        if len(shape) != len(expected) or not all(fits):
            wanted = ", ".join(map(str, expected))
            raise self._error(f": {what} is of shape {shape}; it must be ({wanted})")

    def _check_same(self, what: str, found: Tensor, expected: Tensor, items: Tensor | None = None) -> None:
        """Raise an error if scores of the pairs, computed in another way, differ from those of `forward`."""
        if not _is_close(found, expected):
            wrong = int((found - expected).abs().argmax())
            user, item = int(self.users[wrong]), int((self.items if items is None else items)[wrong])
            ours, theirs = found[wrong].item(), expected[wrong].item()
            raise self._error(
                f": {what} gives {ours:.4g} for the pair (user {user}, item {item}), in row numbers, and forward gives "
                f"{theirs:.4g}. They must be equal: items are ranked by one and trained by the other."
            )


def _is_close(found: Tensor, expected: Tensor) -> bool:
    rounding = 20 * max(torch.finfo(scores.dtype).eps for scores in (found, expected))
    found, expected = found.double(), expected.double()
    tolerance = TOLERANCE * float(expected.std(correction=0)) + rounding * float(expected.abs().max())
    return bool(torch.allclose(found, expected, rtol=0.0, atol=max(tolerance, 1e-12)))
