"""A model of networks of one's choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from truelike.models.deep import networks
from truelike.models.deep.features import FeatureModel
from truelike.models.deep.networks import Maker
from truelike.parameters import special


@dataclass(kw_only=True, eq=False, repr=False)
class DeepRecommender(FeatureModel):
    """Any network for the preference, any network for the flips, trained by any objective.

    Parameters
    ----------
    preference
        "MF", "FM", "NeuMF", "ACF", "LightGCN", or a function that makes a `torch.nn.Module` from `Inputs`. The
        module maps two tensors of row numbers, users and items, to as many scores.
    **others
        As for every network: see `NetworkModel`. `fit` takes features, which the network finds in its `Inputs`.

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
    >>> log = tl.synthetic.World(n_users=200, n_items=100).log()
    >>> model = tl.DeepRecommender(preference=Cosine, objective="NBPO", flips="MF", epochs=2).fit(log)
    >>> model.recommend(0, k=3).height
    3
    """

    preference: Any = special("MF", networks.EXPECTED, networks.is_network)

    def _preference(self) -> Maker:
        return networks.maker(self.preference)

    def _saved_parameters(self) -> dict[str, Any]:
        return {**super()._saved_parameters(), "preference": networks.saved_name(self.preference)}
