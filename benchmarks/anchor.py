"""The figures of the paper's authors, reproduced: recipe="paper" on their Amazon split.

NBPO at eta .05, lambda 1 and 5, K = L = 50, rho = 3: the best of 200 epochs on validation, over ten seeds, beside
the figures of the authors' release. Then NBPO-ss, NBPO-o and NBPO-s at their release settings (rho = 4).

    python benchmarks/anchor.py [--seeds 10] [--quick]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from common import arguments, load_split, machine

import truelike as tl

MEASURES = [f"{metric}@{k}" for metric in ("f1", "ndcg") for k in (2, 5, 10, 20)]
RECORDED_MEAN = np.array([0.03584, 0.03920, 0.03701, 0.03030, 0.04546, 0.05243, 0.06436, 0.07752])
RECORDED_STD = np.array([0.00056, 0.00027, 0.00018, 0.00013, 0.00066, 0.00034, 0.00031, 0.00020])
RELEASE = {
    "NBPO-ss": {"objective": "NBPO", "learning_rate": 0.05, "regularization": 1.0, "flip_regularization": 5.0},
    "NBPO-o": {"objective": "NBPO-o", "learning_rate": 0.005, "regularization": 1.0, "flip_regularization": 0.5},
    "NBPO-s": {"objective": "NBPO-s", "learning_rate": 0.002, "regularization": 0.05, "flip_regularization": 0.01},
}


def best_epochs(split: tl.Split, seeds: int, **settings: Any) -> np.ndarray:
    """For each seed, the best value of each measure over the epochs of its run."""
    rows = []
    for seed in range(seeds):
        history = tl.SampledMF(recipe="paper", seed=seed, **settings).fit(split, progress=False).history_
        rows.append([history[measure].max() for measure in MEASURES])
    return np.array(rows)


def row(name: str, values: np.ndarray, form: str = "10.5f") -> str:
    return f"{name:22}" + "".join(f"{value:{form}}" for value in values)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    epochs = {"epochs": 5} if given.quick else {}
    seeds = 1 if given.quick else given.seeds
    split = load_split("amazon-electronics-14core", given.quick)
    print(machine())
    print(f"{'':22}" + "".join(f"{measure:>10}" for measure in MEASURES))
    started = time.perf_counter()
    found = best_epochs(split, seeds, n_negatives=3, **epochs, **RELEASE["NBPO-ss"])
    seconds = time.perf_counter() - started
    print(row("authors, mean", RECORDED_MEAN))
    print(row("authors, std", RECORDED_STD))
    print(row("truelike, mean", found.mean(axis=0)))
    print(row("truelike, std", found.std(axis=0)))
    print(row("difference in stds", (found.mean(axis=0) - RECORDED_MEAN) / RECORDED_STD, "10.2f"))
    print(f"{seeds} runs with an evaluation after each epoch: {seconds:.0f} s (authors: about 15 hours for ten)")
    print("at the release settings, rho = 4:")
    for name, settings in RELEASE.items():
        print(row(name, best_epochs(split, seeds, **epochs, **settings).mean(axis=0)), flush=True)


if __name__ == "__main__":
    main()
