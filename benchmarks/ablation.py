"""The contribution of each part of the exact models: one part is changed at a time, tuned again and tested.

    python benchmarks/ablation.py amazon|movielens [--directory results/comparison/ablation] [--seeds 3] [--quick]

Each variant differs from `SoftmaxMF()` as its name says. Its regularization is chosen again on validation, and its
learning rate if the optimizer or the objective is another one; on MovieLens by runs of 15 of the 40 epochs. Then it
is run on test with several seeds. The table is written to the directory. All runs are kept in its runs/, which Git
ignores, so that a stopped study can be continued. Validation items stay candidates on test (`seen="train"`).
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from common import arguments, load_split, output_directory

from truelike.core.parallel import cores
from truelike.selection.executor import Executor
from truelike.selection.trials import Record, Trial, score

# name, regularization, epochs of the search and of the final runs
DATA = {"amazon": ("amazon-electronics-14core", 6.0, 60, 60), "movielens": ("ml-1m-split", 12.0, 15, 40)}
METRIC = "ndcg@20"
SURROGATE = {"objective": "NBPO"}
# name -> (model, changed parameters, factors of the regularization, learning rates; None: the default)
VARIANTS: dict[str, tuple[str, dict[str, Any], tuple[float, ...], tuple[float, ...] | None]] = {
    "SoftmaxMF, defaults": ("SoftmaxMF", {}, (0.5, 1, 2), None),
    "plain L2 (frequency power 0)": ("SoftmaxMF", {"frequency_power": 0.0}, (0.5, 1, 2), None),
    "L2 by frequency (power 1)": ("SoftmaxMF", {"frequency_power": 1.0}, (0.5, 1, 2), None),
    "64 factors instead of 256": ("SoftmaxMF", {"factors": 64}, (0.5, 1, 2), None),
    "512 factors instead of 256": ("SoftmaxMF", {"factors": 512}, (0.5, 1, 2), None),
    "logistic (exact BPO) instead of softmax": ("ExactBPO", {}, (0.5, 1, 2), (0.02, 0.05)),
    "logistic, unobserved weight .5": ("ExactBPO", {"unobserved_weight": 0.5}, (0.5, 1, 2), (0.02, 0.05)),
    "logistic, unobserved weight .1": ("ExactBPO", {"unobserved_weight": 0.1}, (0.25, 0.5, 1), (0.02, 0.05)),
    "likelihood with free flips (exact NBPO-o)": ("ExactNBPO", {}, (0.5, 1, 2), (0.02, 0.05)),
    "surrogate with free flips (exact NBPO)": ("ExactMF", SURROGATE, (0.25, 0.5, 1), (0.02, 0.05)),
    "surrogate, unobserved weight .1": (
        "ExactMF",
        {**SURROGATE, "unobserved_weight": 0.1},
        (0.1, 0.25, 0.5),
        (0.02, 0.05),
    ),
}


def candidates(variant: str, base: float, epochs: int) -> list[Trial]:
    model, changed, factors, rates = VARIANTS[variant]
    grid = product(factors, (None,) if rates is None else rates)
    return [
        Trial(
            model,
            {
                **changed, "regularization": base * factor, "epochs": epochs, "patience": 8, "metric": METRIC,
                **({} if rate is None else {"learning_rate": rate}),
            },
        )
        for factor, rate in grid
    ]  # fmt: skip


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--directory", type=Path, default=Path("results/comparison/ablation"))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    name, base, search, epochs = DATA[given.data]
    if given.quick:
        search = epochs = 1
    split = load_split(name, given.quick)
    directory = output_directory(given.directory, given.quick)
    runs = directory / "runs" / given.data
    tried = {variant: candidates(variant, base, search) for variant in VARIANTS}
    with Executor(runs / "tuning", split.train, split.validation, n_workers=cores(), n_jobs=1) as tuning:
        tuning.run([trial for trials in tried.values() for trial in trials])
        best = {
            variant: max(trials, key=lambda trial: score(tuning.records[trial.key], METRIC))
            for variant, trials in tried.items()
        }
    finals = {
        variant: [
            Trial(trial.model, {**trial.parameters, "epochs": epochs, "seed": seed}, test=True, seen="train")
            for seed in range(given.seeds)
        ]
        for variant, trial in best.items()
    }
    with Executor(runs / "final", *split.parts, n_workers=cores(), n_jobs=1) as final:
        final.run([trial for trials in finals.values() for trial in trials])
        rows = [row_of(best[variant], [final.records[t.key] for t in finals[variant]]) for variant in VARIANTS]
    change = 100 * (pl.col("test ndcg@20") / pl.col("test ndcg@20").first() - 1)
    table = (
        pl.DataFrame({"variant": list(VARIANTS)}).hstack(pl.DataFrame(rows)).with_columns(change.alias("change %"))
    )
    table.write_csv(directory / f"{given.data}.csv")
    for row in table.iter_rows(named=True):
        print(f"| {row['variant']} | {row['test ndcg@20']:.4f} | {row['std']:.4f} | {row['change %']:+.1f} % |")


def row_of(best: Trial, records: list[Record]) -> dict[str, float]:
    """What the final runs of a variant gave."""
    values = [record["test"][METRIC] for record in records if "test" in record] or [np.nan]  # nan: it diverged
    return {
        "test ndcg@20": float(np.mean(values)),
        "std": float(np.std(values, ddof=1)) if len(values) > 1 else np.nan,
        "regularization": best.parameters["regularization"],
        "learning rate": best.make().get_params()["learning_rate"],
        "seconds": float(np.mean([record["seconds"] for record in records])),
    }


if __name__ == "__main__":
    main()
