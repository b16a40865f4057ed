"""ACF on MovieLens until validation stops improving.

    python benchmarks/longer.py ml-100k|ml-1m [--minutes 40] [--quick]

`comparison.py movielens --networks` ends networks after 20 epochs; most runs were best in one of the last two. This
trains ACF by NBPO, BPR and BPO, one after the other, for at most 100 epochs with a patience of 10: on MovieLens 1M with
the settings of that comparison, on 100K (from ml-100k.tsv in the cache) with 64 factors and the defaults. One seed, one
thread. Each has a third of the minutes, counted in seconds of the processor; called again, a run that was not over goes
on. Validation items stay candidates on test, as in the comparison.

Writes the curves to results/comparison/networks/longer/DATA-OBJECTIVE.csv, and the table to DATA.csv there.
"""

from __future__ import annotations

import time
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
from common import arguments, load_split, output_directory

import truelike as tl

OBJECTIVES = ("NBPO", "BPR", "BPO")
FORMER = 20  # epochs of the comparison
PATIENCE = 10
METRIC = "ndcg@20"
HERE = Path("results/comparison/networks")


def split_of(data: str, quick: bool) -> tl.Split:
    """The split of the comparison, or MovieLens 100K split in the same way."""
    if quick or data == "ml-1m":
        return load_split("ml-1m-split", quick)
    table = tl.datasets.cache_directory() / "ml-100k.tsv"
    rows = pl.read_csv(table, separator="\t", has_header=False, new_columns=["user", "item", "rating", "time"])
    return tl.splits.by_user(tl.read(rows), validation=0.1, test=0.1, by="random", seed=0)


def parameters_of(data: str, objective: str, epochs: int) -> dict[str, Any]:
    """The settings that the comparison chose for MovieLens 1M."""
    given: dict[str, Any] = {"objective": objective, "factors": 64}
    if data == "ml-1m":
        given = tomllib.loads((HERE / f"settings/movielens-ACF-{objective}.toml").read_text("utf-8"))["parameters"]
    return {**given, "epochs": epochs, "patience": PATIENCE, "n_jobs": 1}


def run(
    data: str, objective: str, split: tl.Split, epochs: int, seconds: float, directory: Path
) -> dict[str, Any]:
    """Train and evaluate; return a row of the table, and write the curve."""
    model, started = tl.ACF(**parameters_of(data, objective, epochs)), time.process_time()

    def in_time(state: Any) -> None:
        print(f"{data} {objective} {state.epoch} {state.last[METRIC]:.4f}", flush=True)
        state.stop = state.stop or time.process_time() - started > seconds

    checkpoint = directory / "runs" / f"{data}-{objective}"
    model.fit(split, callbacks=[in_time], checkpoint=checkpoint, resume=checkpoint.exists(), progress=False)
    curve, found = model.history_, tl.evaluate(model, split, seen="train", n_jobs=1)
    curve.write_csv(directory / f"{data}-{objective}.csv", float_precision=6)
    values = curve[METRIC]
    best = values.arg_max()
    return {
        "objective": objective,
        "epochs": len(curve),
        "best epoch": best + 1,
        "converged": len(curve) == epochs or len(curve) - 1 - best >= PATIENCE,
        "validation, best of 20": values[:FORMER].max(),
        "validation, best": values.max(),
        "growth in 5 epochs": values.max() / values[:-5].max() - 1 if len(values) > 5 else None,
        "test ndcg@20": found[METRIC],
        "test f1@5": found["f1@5"],
        "seconds": curve["seconds"].sum(),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", choices=("ml-100k", "ml-1m"))
    parser.add_argument("--minutes", type=float, default=40.0)
    given = parser.parse_args()
    directory = output_directory(HERE / "longer", given.quick)
    split = split_of(given.data, given.quick)
    path = directory / f"{given.data}.csv"
    rows = {row["objective"]: row for row in pl.read_csv(path).to_dicts()} if path.exists() else {}
    for objective in OBJECTIVES:
        if not rows.get(objective, {}).get("converged"):
            seconds, epochs = given.minutes * 60 / len(OBJECTIVES), 2 if given.quick else 100
            rows[objective] = run(given.data, objective, split, epochs, seconds, directory)
            pl.DataFrame(list(rows.values())).write_csv(path, float_precision=6)
    print(pl.DataFrame(list(rows.values())))


if __name__ == "__main__":
    main()
