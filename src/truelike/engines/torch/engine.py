"""The engine for networks: the samples and objectives of the sampled engine, with gradients by autograd.

The objective's functions are evaluated on the tensors r and g. The steps they return are the gradients with which
`torch.autograd.backward` starts. No loss is differentiated, so surrogate gradients (NBPO) work, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.core import randomness
from truelike.data.dataset import Dataset
from truelike.engines.lists.correction import Correction
from truelike.engines.sgd.samples import Samples, SGDSettings
from truelike.engines.torch.backend import Tensor, seeded, torch, using_threads
from truelike.engines.torch.networks import Networks, array, scores
from truelike.engines.torch.steps import steps_of
from truelike.negatives import Negatives, check_choice
from truelike.objectives import Objective


class NetworkEngine:
    """Trains networks in place, an epoch at a time.

    Adam gets the summed gradients of a batch, minus the batch's part of lambda x parameter: the step of the sampled
    engine, which adds it to its tables. The seed determines the samples, and the random numbers of the networks.
    `correction` is that of listwise objectives; None: scores are not corrected.
    """

    def __init__(
        self,
        train: Dataset,
        networks: Networks,
        objective: type[Objective],
        negatives: Negatives,
        settings: SGDSettings,
        *,
        seed: int,
        device: Any,
        n_jobs: int | None = -1,
        correction: Correction | None = None,
    ) -> None:
        check_choice(negatives, torch.from_numpy)
        self.train, self.networks, self.settings = train, networks, settings
        self.steps = steps_of(objective, float(settings.n_negatives), correction)
        self.samples = Samples(train, negatives, settings, seed)
        self.seed, self.device, self.n_jobs = seed, device, n_jobs
        self.negatives = negatives
        self.optimizer = self._adam()

    def _adam(self) -> Any:
        batch_part = min(1.0, self.settings.batch_size / self.train.n_interactions)
        l2 = {"preference": self.settings.regularization, "flips": self.settings.flip_regularization}
        groups: list[dict[str, Any]] = [
            {"params": list(network.parameters()), "weight_decay": l2[part] * batch_part}
            for part, network in self.networks.parts().items()
        ]
        adam = torch.optim.Adam(groups, lr=self.settings.learning_rate, fused=True)
        for parameter in (p for group in groups for p in group["params"]):
            adam.state[parameter] = {  # created here, so that a checkpoint can be read into it
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        return adam

    # --- an epoch -------------------------------------------------------------------------------

    def epoch(self, number: int, progress: Callable[[int], None] | None = None) -> None:
        """Train on all positives once."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate(number)
        size, n = self.settings.batch_size, self.train.n_interactions
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
        positives = self._tensor(self.train.csr.indices[entries])
        drawn = self._tensor(self.samples.draw(self.samples.key(epoch), entries))
        items = torch.cat([positives[:, None], drawn], dim=1)
        if self.negatives.draws > 1:
            items = self._chosen(users, items, self.samples.numbers(self.samples.choice_key(epoch), entries))
        r, g = self._scores(users, items)
        with torch.no_grad():
            steps = self.steps.steps(r, g, users, items)
        self.optimizer.zero_grad(set_to_none=True)
        trained = [(score, -step) for score, step in zip((r, g), steps, strict=True) if score.requires_grad]
        torch.autograd.backward([score for score, _ in trained], [gradient for _, gradient in trained])
        self.optimizer.step()

    def _scores(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """Return r and g of rows of items, one row for each user. Without a network for the flips g is 0."""
        found = {part: scores(part, network, users, items) for part, network in self.networks.parts().items()}
        return found["preference"], found.get("flips", torch.zeros(items.shape, device=items.device))

    def _chosen(self, users: Tensor, items: Tensor, numbers: NDArray[np.float32]) -> Tensor:
        """Return rows of (a positive, its negatives) of rows of (a positive, the candidates of its negatives)."""
        self.networks.training(False)  # scores as for ranking: without dropout
        with torch.no_grad():
            r = scores("preference", self.networks.preference, users, items)
        self.networks.training(True)
        r_j, drawn = (each[:, 1:].unflatten(1, (-1, self.negatives.draws)) for each in (r, items))
        u = torch.from_numpy(numbers).to(self.device).view(r_j.shape)
        priority = self.negatives.priority(r[:, :1, None].expand_as(r_j), r_j, u)
        chosen = drawn.gather(2, priority.to(r.dtype).argmax(dim=2, keepdim=True)).squeeze(2)
        return torch.cat([items[:, :1], chosen], dim=1)

    def _tensor(self, codes: NDArray[np.int32]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(codes, dtype=np.int64)).to(self.device)

    # --- loss and state -------------------------------------------------------------------------

    def loss(self) -> float:
        """Return minus the mean likelihood of a fixed sample of positives and their negatives."""
        users, positives, negatives = map(self._tensor, self.samples.loss_samples)
        items = torch.cat([positives[:, None], negatives], dim=1)
        with torch.no_grad(), using_threads(self.n_jobs):
            r, g = self._scores(users, items)
        return self.steps.loss(r, g, users, items)

    def _moments(self) -> dict[str, Tensor]:
        """Return the tensors of the optimizer's state, by name."""
        names = {
            id(parameter): f"{part}.{name}"
            for part, network in self.networks.parts().items()
            for name, parameter in network.named_parameters()
        }
        return {
            f"optimizer.{names[id(parameter)]}.{moment}": tensor
            for parameter, state in self.optimizer.state.items()
            for moment, tensor in state.items()
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which training can resume."""
        moments = {name: array(tensor).reshape(tensor.shape) for name, tensor in self._moments().items()}
        return {**self.networks.arrays(), **moments}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Resume from arrays that `state` returned."""
        self.networks.take(arrays)
        for name, tensor in self._moments().items():
            tensor.copy_(torch.from_numpy(np.array(arrays[name])).reshape(tensor.shape))
