"""The networks of a model: one for the preference R(Theta), and one for the flips Gamma(Phi).

A network is a `torch.nn.Module` that maps (users, items), two tensors of row numbers of the same length, to a
tensor of as many scores. Nothing else is required. It is created by a function of `Inputs`, which can be its
class.

A network may also have the following attributes and methods, which make it faster or more capable:

- `broadcasts = True`: `forward` also accepts users of shape (n, 1) with items of shape (n, m), and returns (n, m).
  Then the part that depends only on the user is computed once for a positive and its negatives.
- `vectors()`: returns (U, V, b) with score = U_u . V_i + b_i, if the score is a dot product. `b` may be None. Then
  items are ranked as fast as for matrix factorization.
- `score_grid(users, items)`: returns the scores of all pairs of some users and some items, a row for each user.
- `item_vectors()`: returns a row for each item, for `similar_items`.
- `user_embedding_names`: the names of the embeddings that have a row for each user, such as ("users",), if nothing
  else depends on the user. Then new users get embeddings that are trained on their history with all else fixed.
- `new_user_vectors(histories)`: returns rows of U for new users, from a SciPy CSR of their positives. Requires
  `vectors`.

Use `torch.nn.Embedding` or `torch.index_select` to look up rows of a table. The gradient of `table[index]` is
summed by several threads in no fixed order, so that two runs differ in their last bits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.features import Features
from truelike.engines.torch.backend import Module, Tensor, torch
from truelike.errors import DataError, DivergedError, ParameterError, StorageError, some


@dataclass(frozen=True)
class Inputs:
    """The inputs from which a network is created.

    Attributes
    ----------
    dataset
        The training data: `dataset.matrix` is the CSR of interactions.
    factors
        The width of the network.
    user_features, item_features
        The features, a row for each user or item; None: not given.
    """

    dataset: Dataset
    factors: int
    user_features: Features | None = None
    item_features: Features | None = None

    @property
    def n_users(self) -> int:
        """The number of users."""
        return self.dataset.n_users

    @property
    def n_items(self) -> int:
        """The number of items."""
        return self.dataset.n_items


Maker = Callable[[Inputs], Any]


def scores(part: str, network: Module, users: Tensor, items: Tensor) -> Tensor:
    """Return the scores of rows of items, a row for each user; errors name the part, "preference" or "flips"."""
    if getattr(network, "broadcasts", False):
        pairs = users[:, None], items
    else:
        pairs = users.repeat_interleave(items.shape[1]), items.reshape(-1)
    return check_scores(part, network, *pairs, network(*pairs)).view(items.shape)


def check_scores(part: str, network: Module, users: Tensor, items: Tensor, found: Any) -> Tensor:
    """Return the scores that a network gave for pairs, if there is one for each and all are finite."""
    title = f"the {part} network {type(network).__name__}"
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
            f"{title} returned scores that do not depend on its parameters, so it cannot be trained. Does it "
            "detach them, or compute them under torch.no_grad()?"
        )
    if not torch.isfinite(found).all():
        wrong = tuple(torch.nonzero(~torch.isfinite(found))[0].tolist())
        user, item = (int(codes.expand_as(found)[wrong]) for codes in (users, items))
        raise DivergedError(
            f"{title} returned {found[wrong].item()} for the pair (user {user}, item {item}), in row numbers. "
            "Does it divide by zero or take the logarithm of zero? If training went well at first, try a smaller "
            "learning_rate."
        )
    return found


def array(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor as an array, sharing memory if possible. bfloat16, which NumPy lacks, becomes float32."""
    tensor = tensor.detach().cpu()
    numbers: NDArray[Any] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return numbers


class Networks:
    """The networks of the scores r and of the flip logits g (None: g = 0), which are trained, copied and saved as one.

    `version` counts the changes of the parameters, so that results computed from them can be cached.
    """

    def __init__(self, preference: Module, flips: Module | None) -> None:
        self.preference, self.flips = preference, flips
        self.version = 0

    def parts(self) -> dict[str, Module]:
        """Return the networks that are not None, by name."""
        both = {"preference": self.preference, "flips": self.flips}
        return {name: network for name, network in both.items() if network is not None}

    def _tensors(self) -> dict[str, Tensor]:
        return {
            f"{part}.{name}": tensor
            for part, network in self.parts().items()
            for name, tensor in network.state_dict().items()
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that are trained and saved, by name."""
        return {name: array(tensor) for name, tensor in self._tensors().items()}

    def take(self, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> None:
        """Overwrite all tensors with the given arrays."""
        for name, tensor in self._tensors().items():
            if prefix + name not in arrays:
                raise StorageError(
                    f"no array {name} for the network; there are {some(sorted(arrays))}. Was the model saved with "
                    "a network of another class?"
                )
            given = arrays[prefix + name]
            if not tensor.ndim and given.size == 1:
                given = given.reshape(())  # files do not store arrays without dimensions
            if given.shape != tuple(tensor.shape):
                raise DataError(f"{name} has the shape {given.shape}; the network expects {tuple(tensor.shape)}")
            with torch.no_grad():
                tensor.copy_(torch.from_numpy(np.array(given)))
        self.version += 1

    def copy(self) -> Self:
        """Return a copy in new memory."""
        other = copy.deepcopy(self)
        other.version += 1
        return other

    def largest(self) -> float:
        """Return the largest absolute value of the trained parameters; NaN if there is one."""
        trained = [p for network in self.parts().values() for p in network.parameters() if p.requires_grad]
        found = [parameter.detach().abs().max().float().cpu() for parameter in trained if parameter.numel()]
        return float(torch.stack(found).max())

    def training(self, mode: bool) -> None:
        """Set the training mode, in which layers such as dropout are active."""
        for network in self.parts().values():
            network.train(mode)

    def to(self, device: Any) -> Self:
        """Move the networks to a device, and return self."""
        for network in self.parts().values():
            network.to(device)
        return self
