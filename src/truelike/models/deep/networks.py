"""The networks of a model: R(Theta) for the preference, and Gamma(Phi) for the flips.

A network is any `torch.nn.Module` that maps (users, items), two tensors of row numbers of one length, to a tensor
of as many scores. That is all it must do. What it may have beside, to be quicker or to know more:

- `broadcasts = True`: it also takes users of shape (n, 1) with items of shape (n, m), and returns (n, m), so that
  what depends on the user alone is worked out once for a positive and its negatives.
- `vectors()`: (U, V, b) with score = U_u . V_i + b_i, where the score is a dot product. Then all items are ranked
  as for matrix factorization. `b` may be None.
- `grid(users, items)`: the scores of all pairs of some users and some items, a row for each user.
- `item_vectors()`: rows that are alike for items that are alike.
- `personal`: the names of the embeddings that have a row for each user, such as ("users",), where nothing else
  depends on the user. Then somebody never seen before gets rows of their own, trained while all else stands still.
- `strangers(histories)`: the rows of U for people never seen before, from a CSR of SciPy of their votes; beside
  `vectors`.

A table is best looked up by `torch.nn.Embedding` or `torch.index_select`: the gradient of `table[index]` is added
up by threads in whatever order they come, so that two runs differ in their last bits.

How a network is made is a function of `Inputs`: its class, if the class takes them.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.features import Features
from truelike.errors import DataError, ParameterError, StorageError, some
from truelike.models.deep.backend import installed, nn, torch
from truelike.training.trainer import DivergedError

HOMES = {
    "MF": ("truelike.models.deep.mf", "MFNetwork"),
    "FM": ("truelike.models.deep.fm", "FMNetwork"),
    "NeuMF": ("truelike.models.deep.neumf", "NeuMFNetwork"),
    "ACF": ("truelike.models.deep.acf", "ACFNetwork"),
    "LightGCN": ("truelike.models.deep.lightgcn", "LightGCNNetwork"),
}
EXPECTED = f"one of {', '.join(HOMES)}, or a function that makes a torch.nn.Module from truelike's Inputs"
OWN = "own: "  # what is saved in place of a function of the user's own


@dataclass(frozen=True)
class Inputs:
    """What a network is made for.

    Attributes
    ----------
    log
        The training log: `log.matrix` is the CSR of votes.
    factors
        How wide the network is to be.
    user_features, item_features
        What is known of them, a row for each; None: nothing.
    """

    log: Dataset
    factors: int
    user_features: Features | None = None
    item_features: Features | None = None

    @property
    def n_users(self) -> int:
        """The number of users."""
        return self.log.n_users

    @property
    def n_items(self) -> int:
        """The number of items."""
        return self.log.n_items


Maker = Callable[[Inputs], Any]


def is_network(value: Any) -> bool:
    """Whether a value names a network, or makes one."""
    if isinstance(value, str):
        return value in HOMES or value.startswith(OWN)
    return callable(value) and not isinstance(value, nn.Module if installed else ())


def maker(value: Any) -> Maker:
    """What makes a network, by its name."""
    if not isinstance(value, str):
        made: Maker = value
        return made
    if value.startswith(OWN):
        raise StorageError(
            f"the network {value.removeprefix(OWN)!r} is of your own making, and no file carries it: "
            "load the model with tl.load(directory, preference=...) or flips=..., whichever it is"
        )
    home, name = HOMES[value]
    network: Maker = getattr(importlib.import_module(home), name)
    return network


def saved_name(value: Any) -> Any:
    """What stands in a file."""
    return value if value is None or isinstance(value, str) else f"{OWN}{getattr(value, '__name__', 'a function')}"


def scores(what: str, network: Any, users: Any, items: Any) -> Any:
    """The scores of rows of items, a row for each user; what is wrong with them is said by name."""
    if getattr(network, "broadcasts", False):
        pairs = users[:, None], items
    else:
        pairs = users.repeat_interleave(items.shape[1]), items.reshape(-1)
    return check_scores(what, network, *pairs, network(*pairs)).view(items.shape)


def check_scores(what: str, network: Any, users: Any, items: Any, found: Any) -> Any:
    """What a network returned for pairs, if it is one score for each, and finite."""
    title = f"the {what} network {type(network).__name__}"
    if not isinstance(found, torch.Tensor):
        raise ParameterError(f"{title} returned a {type(found).__name__}, not a tensor")
    if found.shape != items.shape:
        raise ParameterError(
            f"{title} returned a tensor of shape {tuple(found.shape)} for {items.numel():,} pairs; it must be "
            f"{tuple(items.shape)}, one score for each pair"
        )
    if not found.is_floating_point():
        raise ParameterError(f"{title} returned scores of type {found.dtype}; they must be floating-point numbers")
    if torch.is_grad_enabled() and not found.requires_grad:
        raise ParameterError(
            f"{title} returned scores that do not depend on its parameters, so nothing can be learned. Does it "
            "detach them, or work under torch.no_grad()?"
        )
    if not torch.isfinite(found).all():
        wrong = tuple(torch.nonzero(~torch.isfinite(found))[0].tolist())
        user, item = (int(codes.expand_as(found)[wrong]) for codes in (users, items))
        raise DivergedError(
            f"{title} returned {found[wrong].item()} for the pair (user {user}, item {item}), in row numbers. "
            "Does it divide by zero or take the logarithm of it? If it went well for a "
            "while, try a smaller learning_rate."
        )
    return found


def array(tensor: Any) -> NDArray[Any]:
    """A tensor's numbers, in the same memory where it can be; NumPy knows no bfloat16."""
    tensor = tensor.detach().cpu()
    numbers: NDArray[Any] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return numbers


class Networks:
    """Both networks as one thing that is trained, set aside and saved."""

    def __init__(self, preference: Any, flips: Any | None) -> None:
        self.preference, self.flips = preference, flips
        self.version = 0  # counts the changes, so that what was worked out from the numbers can be kept

    def parts(self) -> dict[str, Any]:
        """The networks that are there, by name."""
        both = {"preference": self.preference, "flips": self.flips}
        return {name: network for name, network in both.items() if network is not None}

    def _tensors(self) -> dict[str, Any]:
        return {
            f"{part}.{name}": tensor
            for part, network in self.parts().items()
            for name, tensor in network.state_dict().items()
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that is trained and saved, by name."""
        return {name: array(tensor) for name, tensor in self._tensors().items()}

    def take(self, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> None:
        """Put numbers in the place of those that are there."""
        for name, room in self._tensors().items():
            if prefix + name not in arrays:
                there = some(sorted(arrays))
                raise StorageError(f"no array {name} for the network; there are {there}. Is it of another class?")
            given = arrays[prefix + name]
            if not room.ndim and given.size == 1:
                given = given.reshape(())  # a file knows no array without a dimension
            if given.shape != tuple(room.shape):
                raise DataError(f"{name} has the shape {given.shape}; the network's has {tuple(room.shape)}")
            with torch.no_grad():
                room.copy_(torch.from_numpy(np.array(given)))
        self.version += 1

    def copy(self) -> Self:
        """The same numbers in memory of their own."""
        other = copy.deepcopy(self)
        other.version += 1
        return other

    def largest(self) -> float:
        """The greatest absolute value of what is trained; NaN where there is one."""
        trained = [p for network in self.parts().values() for p in network.parameters() if p.requires_grad]
        found = [parameter.detach().abs().max().float().cpu() for parameter in trained if parameter.numel()]
        return float(torch.stack(found).max())

    def training(self, mode: bool) -> None:
        """Whether layers such as dropout are at work."""
        for network in self.parts().values():
            network.train(mode)

    def to(self, device: Any) -> Self:
        """Move them to a device."""
        for network in self.parts().values():
            network.to(device)
        return self
