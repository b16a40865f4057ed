"""Coverage of propensity-weighted estimates: how often their 95 % intervals contain the known truth.

    python benchmarks/ips_coverage.py [--output results/ips-coverage] [--repetitions 200] [--quick]

In each synthetic world a fifth of all true likes, drawn uniformly, is held out. A model is trained on those of the
others that were shown. The truth is the value of a metric on all held-out likes of all users, shown or not. A
repetition draws some users, and which of their held-out likes were shown, by the world's own probabilities, and calls

    tl.evaluate(model, shown, propensity=frame)

Beside it: the interval of the same users without weights; the mean over users of estimates that are weighted within
each user; and weights by an assumed power of popularity. Writes coverage.csv and prints it as Markdown.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from common import arguments, machine, output_directory

import truelike as tl
from truelike.core import randomness

STRENGTHS = {"weak": 0.0, "middle": 0.9, "strong": 1.8}
SIZES = (200, 1_000, 4_000)
MEASURES = ("ndcg@20", "recall@20", "precision@20", "f1@20", "map@20", "mrr@20", "hit_rate@20", "recall@5")
ASSUMED = "popularity^0.5"


class Study:
    """A world, a model trained on what was shown of four fifths of its likes, and the other fifth."""

    def __init__(self, skew: float, n_users: int, n_items: int, seed: int = 0) -> None:
        per_user = 0.3 * n_items
        self.world = tl.synthetic.World(
            n_users=n_users, n_items=n_items, impressions_per_user=per_user, exposure_skew=skew, seed=seed
        )
        likes, shown = self.world.true_likes(), self.world.impressions()
        was_shown = np.isin(pairs_of(likes), pairs_of(shown))
        held_out = randomness.uniform(randomness.key(seed, "coverage"), pairs_of(likes)) < 0.2
        self.model = tl.IALS(factors=16).fit(likes.select(~held_out & was_shown), progress=False)
        self.likes = likes.select(held_out)
        self.propensity = 1 - self.world.flip_probability(self.likes.user_of_entry, self.likes.matrix.indices)
        self.pairs = pairs_of(self.likes)

    def evaluate(self, likes: Any, propensity: Any) -> Any:
        metrics = ["ndcg", "recall", "precision", "f1", "map", "mrr", "hit_rate"]
        return tl.evaluate(
            self.model, likes, propensity=propensity, ks=(5, 20), metrics=metrics, n_jobs=1
        ).propensity

    def users(self, n: int, repetition: int) -> Any:
        """A mask of the held-out likes of some users."""
        noise = randomness.bits(
            randomness.key(repetition, "users", n), np.arange(self.world.n_users, dtype=np.int64)
        )
        chosen = np.zeros(self.world.n_users, dtype=bool)
        chosen[np.argsort(noise, kind="stable")[:n]] = True
        return chosen[self.likes.user_of_entry]

    def shown(self, repetition: int) -> Any:
        """A mask of the held-out likes that were shown."""
        return randomness.uniform(randomness.key(repetition, "shown"), self.pairs) < self.propensity

    def frame(self, mask: Any) -> pl.DataFrame:
        """The propensities of some held-out likes."""
        likes = self.likes
        columns = {"user_id": likes.user_of_entry[mask], "item_id": likes.matrix.indices[mask]}
        return pl.DataFrame({**columns, "propensity": self.propensity[mask]})


def pairs_of(data: Any) -> Any:
    return data.user_of_entry.astype(np.int64) * data.n_items + data.matrix.indices


def covers(found: Any, measure: str, truth: float) -> bool:
    low, high = found.interval(measure)
    return low <= truth <= high


def mean_of_users(found: Any, measure: str) -> tuple[float, float]:
    """The mean of estimates that are weighted within each user, and its standard error."""
    values = found.gains[measure] / found.weights
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def coverage(strength: str, study: Study, n: int, repetitions: int) -> list[dict[str, Any]]:
    everything = study.evaluate(study.likes, 1.0)
    results = []
    for repetition in range(repetitions):
        mine = study.users(n, repetition)
        mask = mine & study.shown(repetition)
        some = study.likes.select(mask)
        results.append(
            {
                "weighted": study.evaluate(some, study.frame(mask)),
                "plain": study.evaluate(some, 1.0),
                "assumed": study.evaluate(some, ASSUMED),
                "own": study.evaluate(study.likes.select(mine), 1.0),
            }
        )
    rows = []
    for measure in MEASURES:
        truth, of_users = everything[measure], mean_of_users(everything, measure)[0]
        values = np.array([each["weighted"][measure] for each in results])
        within = np.array([mean_of_users(each["weighted"], measure) for each in results])
        row = {
            "world": strength,
            "users": n,
            "interactions": float(np.mean([each["weighted"].n_interactions for each in results])),
            "effective sample size": float(np.mean([each["weighted"].effective_sample_size for each in results])),
            "measure": measure,
            "truth": truth,
            "mean estimate": float(values.mean()),
            "sd": float(values.std(ddof=1)),
            "mean without weights": float(np.mean([each["plain"][measure] for each in results])),
            "coverage": np.mean([covers(each["weighted"], measure, truth) for each in results]),
            "of the own likes": np.mean([covers(e["weighted"], measure, e["own"][measure]) for e in results]),
            "without weights": np.mean([covers(each["plain"], measure, truth) for each in results]),
            "weights within users": np.mean(np.abs(within[:, 0] - of_users) <= 1.96 * within[:, 1]),
            f"assumed {ASSUMED}": np.mean([covers(each["assumed"], measure, truth) for each in results]),
        }
        rows.append({name: float(v) if isinstance(v, np.floating) else v for name, v in row.items()})
    return rows


def markdown(table: pl.DataFrame) -> str:
    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * table.width]
    lines += [
        "| " + " | ".join(f"{v:.4f}" if isinstance(v, float) else str(v) for v in row) + " |"
        for row in table.iter_rows()
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("results/ips-coverage"))
    parser.add_argument("--repetitions", type=int, default=200)
    given = parser.parse_args()
    print(machine())
    warnings.simplefilter("ignore", tl.errors.DataWarning)  # small effective sample sizes are part of the study
    size, sizes = ((1_000, 200), (100, 300)) if given.quick else ((20_000, 1_000), SIZES)
    repetitions = min(given.repetitions, 3) if given.quick else given.repetitions
    rows = []
    for strength, skew in STRENGTHS.items():
        study = Study(skew, *size)
        for n in sizes:
            started = time.perf_counter()
            rows += coverage(strength, study, n, repetitions)
            print(f"{strength}, {n:,} users: {time.perf_counter() - started:.0f} s", flush=True)
    output = output_directory(given.output, given.quick)
    table = pl.DataFrame(rows)
    table.write_csv(output / "coverage.csv", float_precision=4)
    print(markdown(table))


if __name__ == "__main__":
    main()
