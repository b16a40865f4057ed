"""Matrix factorization as a network: r_ui = U_u . V_i."""

from __future__ import annotations

from typing import Any

from truelike.models.deep.backend import nn
from truelike.models.deep.networks import Inputs


class MFNetwork(nn.Module):
    """U_u . V_i, without biases: trained by "sgd" it is what `MatrixFactorization` is."""

    broadcasts = True

    def __init__(self, inputs: Inputs, *, init_scale: float = 0.1) -> None:
        super().__init__()
        self.users = nn.Embedding(inputs.n_users, inputs.factors)
        self.items = nn.Embedding(inputs.n_items, inputs.factors)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=init_scale)

    def forward(self, users: Any, items: Any) -> Any:
        """The scores of pairs."""
        return (self.users(users) * self.items(items)).sum(dim=-1)

    def vectors(self) -> tuple[Any, Any, None]:
        """U and V."""
        return self.users.weight, self.items.weight, None
