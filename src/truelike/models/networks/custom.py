"""DeepRecommender: a model of any networks, by default of matrix factorization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from truelike.core.parameters import choice, special, with_inherited_parameters
from truelike.engines.torch.backend import Tensor, nn
from truelike.engines.torch.networks import Inputs, Maker
from truelike.models.networks import network_names
from truelike.models.networks.base import NetworkModel


class MFNetwork(nn.Module):
    """U_u . V_i, without biases: the score of `SampledMF`."""

    broadcasts = True

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.users = nn.Embedding(inputs.n_users, inputs.factors)
        self.items = nn.Embedding(inputs.n_items, inputs.factors)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Score pairs of users and items."""
        return (self.users(users) * self.items(items)).sum(dim=-1)

    def vectors(self) -> tuple[Tensor, Tensor, None]:
        """Return U and V."""
        return self.users.weight, self.items.weight, None


@with_inherited_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class DeepRecommender(NetworkModel):
    """Any network for the preference and any network for the flips, trained by any objective.

    The networks get the features of the dataset (`tl.read(..., users=frame, items=frame)`) in their `Inputs`.

    Parameters
    ----------
    preference : str or function, default 'MF'
        The network of the scores r: "MF", "FM", "NeuMF", "ACF", "LightGCN", or a function that makes a
        `torch.nn.Module` from `Inputs`. The module maps two tensors of row numbers, users and items, to as many
        scores.
    missing_features : {'raise', 'zeros'}, default 'raise'
        What to do with users and items of the training data that have no row of features: "raise" an error, or train
        them without features ("zeros").

    Examples
    --------
    >>> import torch, truelike as tl
    >>> class Cosine(torch.nn.Module):
    ...     def __init__(self, inputs):
    ...         super().__init__()
    ...         self.users = torch.nn.Embedding(inputs.n_users, inputs.factors)
    ...         self.items = torch.nn.Embedding(inputs.n_items, inputs.factors)
    ...         for table in (self.users, self.items):
    ...             torch.nn.init.normal_(table.weight, std=0.1)
    ...     def forward(self, users, items):
    ...         return 5 * torch.cosine_similarity(self.users(users), self.items(items))
    >>> data = tl.synthetic.World(n_users=200, n_items=100).dataset()
    >>> model = tl.DeepRecommender(preference=Cosine, objective="NBPO", flips="MF", epochs=2).fit(data)
    >>> model.recommend(0, k=3).height
    3
    """

    uses: ClassVar[frozenset[str]] = frozenset({"user_features", "item_features"})

    preference: Any = special("MF", network_names.EXPECTED, network_names.is_network)
    missing_features: Literal["raise", "zeros"] = choice("raise", "zeros")

    def _preference(self) -> Maker:
        return network_names.maker(self.preference)

    def _saved_parameters(self) -> dict[str, Any]:
        return {**super()._saved_parameters(), "preference": network_names.saved_name(self.preference)}
