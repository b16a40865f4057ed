"""Do samplers that see scores train BPR better than uniform negatives?

    python benchmarks/samplers.py [--settings 24] [--seeds 3] [--threads 2]

On the authors' Amazon split. For each sampler so many random settings (learning rate, L2, and those of the sampler) are
trained with seed 0, and the best by validation NDCG@20 is trained with further seeds. Only then is the test part looked
at, once; validation items are left out of its lists. Printed are NDCG@20 of the best setting on validation and on test,
as mean and standard deviation over seeds, and the difference to uniform negatives on test: of users, each averaged over
the seeds, with a paired t-test.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import ttest_rel

import truelike as tl
from truelike.negatives import AHNS, Hard, Negatives, Uniform
from truelike.objectives import log

Random = np.random.Generator


@dataclass(frozen=True)
class Soft(Negatives):
    """A candidate with a probability in proportion to exp(r_j / temperature), by Gumbel noise."""

    draws: int = 8
    temperature: float = 1.0

    def priority(self, r_i: Any, r_j: Any, u: Any) -> Any:
        return r_j / self.temperature - log(-log(u))


SAMPLERS: dict[str, Any] = {
    "uniform": lambda rng: Uniform(),
    "hard": lambda rng: Hard(int(rng.choice([2, 3, 5, 8, 16]))),
    "soft": lambda rng: Soft(int(rng.choice([4, 8, 16, 32])), float(rng.choice([0.1, 0.3, 1.0]))),
    "AHNS": lambda rng: AHNS(
        int(rng.choice([4, 8, 16, 32])),
        float(rng.choice([0.1, 0.5, 1.0])),
        float(rng.choice([0.1, 0.2, 0.4, 0.8])),
    ),
}


def setting(name: str, number: int) -> dict[str, Any]:
    """The setting of a number. Learning rate and L2 are the same for all samplers."""
    rng = np.random.default_rng(number)
    rate, l2 = np.exp(rng.uniform(np.log([0.01, 1.0]), np.log([0.2, 30.0])))
    return {"learning_rate": float(rate), "regularization": float(l2), "negatives": SAMPLERS[name](rng)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    split = tl.datasets.load("amazon-electronics-14core")

    def trained(choice: dict[str, Any], seed: int) -> tl.BPR:
        model = tl.BPR(**choice, factors=64, n_negatives=3, epochs=150, seed=seed, n_jobs=given.threads)
        return model.fit(split, progress=False)

    def validated(choice: dict[str, Any]) -> float:
        try:
            return float(trained(choice, 0).history_["ndcg@20"].max())
        except tl.errors.DivergedError:
            return 0.0

    best: dict[str, dict[str, Any]] = {}
    for name in SAMPLERS:
        choices = [setting(name, number) for number in range(given.settings)]
        best[name] = max(choices, key=validated)
        print(name, best[name], flush=True)
    by_user = {}
    for name, choice in best.items():
        models = [trained(choice, seed) for seed in range(given.seeds)]
        on_validation = [float(model.history_["ndcg@20"].max()) for model in models]
        found = [tl.evaluate(model, split, metrics=["ndcg"]) for model in models]
        on_test = [each["ndcg@20"] for each in found]
        by_user[name] = np.mean([each.per_user()["ndcg@20"].to_numpy() for each in found], axis=0)
        difference = by_user[name] - by_user["uniform"]
        p = ttest_rel(by_user[name], by_user["uniform"]).pvalue
        print(
            f"{name}: validation {np.mean(on_validation):.4f} ± {np.std(on_validation, ddof=1):.4f}, test "
            f"{np.mean(on_test):.4f} ± {np.std(on_test, ddof=1):.4f}, difference {difference.mean():+.4f}, p {p:.2g}",
            flush=True,
        )


if __name__ == "__main__":
    main()
