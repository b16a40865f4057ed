"""Matrix factorization as a network: r_ui = U_u . V_i."""

from __future__ import annotations

from typing import Any

from truelike.engines.torch.backend import nn
from truelike.engines.torch.networks import Inputs


class MFNetwork(nn.Module):
    """U_u . V_i, without biases. Trained with optimizer="sgd", it is the model of `SampledMF`."""

    broadcasts = True

    def __init__(self, inputs: Inputs, *, init_scale: float = 0.1) -> None:
        super().__init__()
        self.users = nn.Embedding(inputs.n_users, inputs.factors)
        self.items = nn.Embedding(inputs.n_items, inputs.factors)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=init_scale)

    def forward(self, users: Any, items: Any) -> Any:
        """Score pairs of users and items."""
        return (self.users(users) * self.items(items)).sum(dim=-1)

    def vectors(self) -> tuple[Any, Any, None]:
        """Return U and V."""
        return self.users.weight, self.items.weight, None
