"""How an objective turns the scores of rows of (a positive, its negatives) into steps, on tensors."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from truelike.engines.lists.correction import Correction
from truelike.engines.lists.engine import list_loss
from truelike.engines.sgd.samples import mean_loss
from truelike.engines.torch.backend import Tensor, torch
from truelike.errors import ParameterError
from truelike.objectives import Listwise, Objective, Pairwise, Pointwise


class Steps(Protocol):
    """The steps and the loss of rows of (a positive, its negatives), a row for each of some users."""

    def steps(self, r: Tensor, g: Tensor, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """Return the steps of r and of g."""

    def loss(self, r: Tensor, g: Tensor, users: Tensor, items: Tensor) -> float:
        """Return minus the mean likelihood; NaN if the objective has none."""


class SampledSteps:
    """Those of a pointwise or pairwise objective.

    `weight` is the factor of a positive's step. For a pairwise objective the steps of a positive are summed.
    """

    def __init__(self, objective: type[Objective], weight: float) -> None:
        self.objective, self.weight = objective, weight

    def steps(self, r: Tensor, g: Tensor, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """By the functions of the objective."""
        objective, weight = self.objective, self.weight
        if issubclass(objective, Pairwise):
            up, down = objective.pair(r[:, :1], r[:, 1:])
            return torch.cat([up.sum(dim=1, keepdim=True), down], dim=1), torch.zeros_like(r)
        assert issubclass(objective, Pointwise)
        up, up_flip = objective.positive(r[:, :1], g[:, :1])
        down, down_flip = objective.negative(r[:, 1:], g[:, 1:])
        return torch.cat([weight * up, down], dim=1), torch.cat([weight * up_flip, down_flip], dim=1)

    def loss(self, r: Tensor, g: Tensor, users: Tensor, items: Tensor) -> float:
        """By the likelihood of the objective."""
        return mean_loss(self.objective, *(x.double().cpu().numpy() for x in (r, g)))


class ListSteps:
    """Those of a listwise objective; `correction` is subtracted from the scores of negatives, None: nothing is."""

    def __init__(self, objective: type[Listwise], correction: Correction | None) -> None:
        self.objective = objective
        self._correction: tuple[Tensor, Tensor] | None = None
        if correction is not None:
            self._correction = torch.from_numpy(correction.items), torch.from_numpy(correction.users)

    def steps(self, r: Tensor, g: Tensor, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """By the steps of the objective."""
        observed = torch.zeros_like(r)
        observed[:, 0] = 1.0
        try:
            found = self.objective.steps(self._corrected(r, users, items), observed)
        except Exception as error:
            raise ParameterError(
                f"{self.objective.__name__}.steps failed on PyTorch tensors: {error}. Use functions of arrays and of "
                "tensors, as those of tl.objectives."
            ) from error
        if not isinstance(found, torch.Tensor) or found.shape != r.shape:
            what = f"shape {tuple(np.shape(found))}" if isinstance(found, torch.Tensor) else type(found).__name__
            raise ParameterError(
                f"{self.objective.__name__}.steps returned {what} for a tensor of shape {tuple(r.shape)}; it must "
                "return a tensor with one step for each score"
            )
        return found, torch.zeros_like(r)

    def loss(self, r: Tensor, g: Tensor, users: Tensor, items: Tensor) -> float:
        """By the likelihood of the objective."""
        return list_loss(self.objective, self._corrected(r, users, items).double().cpu().numpy())

    def _corrected(self, r: Tensor, users: Tensor, items: Tensor) -> Tensor:
        if self._correction is None:
            return r
        of_items, of_users = (each.to(r.device) for each in self._correction)
        return torch.cat([r[:, :1], r[:, 1:] - of_items[items[:, 1:]] + of_users[users][:, None]], dim=1)


def steps_of(objective: type[Objective], weight: float, correction: Correction | None) -> Steps:
    """Return those of an objective of any kind."""
    if issubclass(objective, Listwise):
        return ListSteps(objective, correction)
    return SampledSteps(objective, weight)
