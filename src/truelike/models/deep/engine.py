"""The trainer of networks: the same batches, draws and equations as for matrix factorization, by autograd.

The objective is a function of scores. It is evaluated on the tensors r and g, and its steps are what
`torch.autograd.backward` starts from, so nothing of it is written twice and no loss is differentiated: the
surrogate gradient of NBPO has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from truelike import randomness
from truelike.data.dataset import Dataset
from truelike.models.deep.backend import seeded, torch, using_threads
from truelike.models.deep.networks import Networks, array, scores
from truelike.negatives import Negatives
from truelike.objectives import Objective, Pairwise, Pointwise
from truelike.training.samples import Recipe, Samples, mean_loss

Optimizer = Literal["adam", "sgd"]


class NetworkEngine:
    """Trains networks in place, an epoch at a time.

    With "sgd" a parameter moves by rate x (the sum of the batch's steps - its share of lambda x parameter), which
    is what the sampled engine does with its tables. "adam" takes the same gradient.
    """

    def __init__(
        self,
        train: Dataset,
        networks: Networks,
        objective: type[Objective],
        negatives: Negatives,
        recipe: Recipe,
        *,
        optimizer: Optimizer = "adam",
        seed: int,
        device: Any,
        n_jobs: int | None = None,
    ) -> None:
        self.train, self.networks, self.objective, self.recipe = train, networks, objective, recipe
        self.samples = Samples(train, negatives, recipe, seed)
        self.seed, self.device, self.n_jobs = seed, device, n_jobs
        self.candidates = negatives.candidates
        self.optimizer = self._optimizer(optimizer)

    def _optimizer(self, kind: Optimizer) -> Any:
        share = min(1.0, self.recipe.batch_size / self.train.n_interactions) if self.recipe.prior == "epoch" else 1
        strengths = {"preference": self.recipe.regularization, "flips": self.recipe.flip_regularization}
        groups: list[dict[str, Any]] = [
            {"params": list(network.parameters()), "weight_decay": strengths[part] * share}
            for part, network in self.networks.parts().items()
        ]
        if kind == "sgd":
            return torch.optim.SGD(groups, lr=self.recipe.learning_rate)
        made = torch.optim.Adam(groups, lr=self.recipe.learning_rate, fused=True)
        for parameter in (p for group in groups for p in group["params"]):
            made.state[parameter] = {  # there from the start, so that a checkpoint can be read into it
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        return made

    # --- an epoch -------------------------------------------------------------------------------

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Go once through all positives."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate(number)
        size, n = self.recipe.batch_size, self.train.n_interactions
        self.networks.training(True)
        with using_threads(self.n_jobs), seeded(randomness.key(self.seed, "network", number)):
            for start in range(0, n, size):
                stop = min(n, start + size)
                self._batch(number, self.samples.entries(number, start, stop))
                if progress is not None:
                    progress(stop)
        self.networks.training(False)
        self.networks.version += 1

    def _batch(self, epoch: int, entries: NDArray[np.int32]) -> None:
        users = self._tensor(self.train.user_of_entry[entries])
        voted = self._tensor(self.train.matrix.indices[entries])
        drawn = self._tensor(self.samples.drawn(self.samples.key(epoch), entries))
        items = torch.cat([voted[:, None], self._hardest(users, drawn)], dim=1)
        r, g = self._scores(users, items)
        with torch.no_grad():
            steps = sampled_steps(self.objective, r, g, self._weight)
        self.optimizer.zero_grad(set_to_none=True)
        moved = [(score, -step) for score, step in zip((r, g), steps, strict=True) if score.requires_grad]
        torch.autograd.backward([score for score, _ in moved], [step for _, step in moved])
        self.optimizer.step()

    @property
    def _weight(self) -> float:
        """How often a positive's step counts."""
        return float(self.recipe.n_negatives) if self.recipe.positives == "each" else 1.0

    def _scores(self, users: Any, items: Any) -> tuple[Any, Any]:
        """R and g of rows of items, one row for each user; g is 0 where there is no network for it."""
        found = {part: scores(part, network, users, items) for part, network in self.networks.parts().items()}
        return found["preference"], found.get("flips", torch.zeros(items.shape, device=items.device))

    def _hardest(self, users: Any, drawn: Any) -> Any:
        """Of each lot of candidates the one that is scored best."""
        if self.candidates == 1:
            return drawn
        self.networks.training(False)  # as it will rank, without dropout and the like
        with torch.no_grad():
            r = scores("preference", self.networks.preference, users, drawn)
        self.networks.training(True)
        lots = (len(drawn), -1, self.candidates)
        best = r.view(lots).argmax(dim=2, keepdim=True)
        return drawn.view(lots).gather(2, best).squeeze(2)

    def _tensor(self, codes: NDArray[np.int32]) -> Any:
        return torch.from_numpy(np.ascontiguousarray(codes, dtype=np.int64)).to(self.device)

    # --- what is told and kept ------------------------------------------------------------------

    def loss(self) -> float:
        """Minus the mean likelihood of some positives and of some negatives of theirs, always the same ones."""
        users, items, drawn = self.samples.for_loss
        rows = torch.cat([self._tensor(items)[:, None], self._tensor(drawn)], dim=1)
        with torch.no_grad(), using_threads(self.n_jobs):
            r, g = self._scores(self._tensor(users), rows)
        return mean_loss(self.objective, *(x.double().cpu().numpy() for x in (r, g)))

    def _moments(self) -> dict[str, Any]:
        names = {
            id(parameter): f"{part}.{name}"
            for part, network in self.networks.parts().items()
            for name, parameter in network.named_parameters()
        }
        return {
            f"optimizer.{names[id(parameter)]}.{what}": tensor
            for parameter, state in self.optimizer.state.items()
            for what, tensor in state.items()
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays that training goes on from."""
        moments = {name: array(tensor).reshape(tensor.shape) for name, tensor in self._moments().items()}
        return {**self.networks.arrays(), **moments}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        self.networks.take(arrays)
        for name, tensor in self._moments().items():
            tensor.copy_(torch.from_numpy(np.array(arrays[name])).reshape(tensor.shape))


def sampled_steps(objective: type[Objective], r: Any, g: Any, weight: float) -> tuple[Any, Any]:
    """The steps of r and of g for rows of (a positive, its negatives), by an objective."""
    if issubclass(objective, Pairwise):
        up, down = objective.pair(r[:, :1], r[:, 1:])
        return torch.cat([up.sum(dim=1, keepdim=True), down], dim=1), torch.zeros_like(r)
    assert issubclass(objective, Pointwise)
    up, up_flip = objective.positive(r[:, :1], g[:, :1])
    down, down_flip = objective.unvoted(r[:, 1:], g[:, 1:])
    return torch.cat([weight * up, down], dim=1), torch.cat([weight * up_flip, down_flip], dim=1)
