"""How often the tests reject where nothing differs, and how often the intervals contain the truth, by simulation.

    nice -n 19 python benchmarks/error_rates.py [--output results/error-rates] [--repetitions 1] [--quick]

Values per user are drawn with a known truth and given to the functions that the product calls. A test is applied to
models with equal means, which gives its size (of a family of tests: how often any of them is wrong), and to models of
which the last is 10 % better, which gives its power. An interval contains the true value or not.

Users have one relevant item for validation and one for test. A quarter of them have a hit; NDCG@20 is correlated with
.9 between models, and three quarters of the differences are zero. Differences on validation and on test are correlated
with .05. Between EASE, ItemKNN and two runs of IALS on Amazon Electronics and MovieLens 1M these are .78 to .98,
10 % to 73 %, and .00 to .10.

Writes tests.csv and intervals.csv, and prints them as Markdown. What is done is kept in runs/, so that the same command
continues. `--repetitions 5` makes five times as many.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
from common import arguments, machine, output_directory
from scipy import special, stats

import truelike as tl
from truelike.engines.langevin.link import tested
from truelike.evaluation.propensity import ratio_interval
from truelike.evaluation.ranks import RankTest
from truelike.evaluation.significance import bootstrap_p_values, compare_means, mean_interval, paired_t, wilcoxon
from truelike.exposure.miss_rate import by_showing
from truelike.paper.gains import half_width
from truelike.paper.verdicts import best_of
from truelike.selection.comparison import ALIKE, BEST, Comparison, ModelResult
from truelike.selection.plan import Plan
from truelike.selection.race import MAX_P_VALUE, Race
from truelike.selection.variants import Variant, variant

Rng = np.random.Generator
USERS = (50, 500, 6_000)
LEVEL, CONFIDENCE = 0.05, 0.95
MEASURE = "ndcg@20"
LENGTH = 20  # of the lists
BETTER = 1.1  # the last model's chance of a hit, relative to that of the others, where they differ
AT_ONCE = 2_000_000  # values of a model that are drawn at once
GAIN = 1 / np.log2(1 + np.arange(1, LENGTH + 1))
P_HIT = 0.25
OWN_TASTE = 0.2  # part of what tells two models apart that is the same on validation and on test
RUN_EFFECT = 0.01  # standard deviation of the quality of the runs of a model, relative to its mean


# --- values of users --------------------------------------------------------------------------------------------


def ndcg(x: Any, better: Any = 1.0) -> Any:
    """NDCG@20 of users with one relevant item, whose place is given as a standard normal number."""
    place = special.ndtr(x) / (P_HIT * better)
    return np.where(place < 1, GAIN[np.minimum((place * LENGTH).astype(int), LENGTH - 1)], 0.0)


def models(
    rng: Rng,
    shape: tuple[int, ...],
    n: int,
    better: float = 1.0,
    *,
    own: float = OWN_TASTE,
    runs: int = 1,
    effect: float = 0.0,
) -> Any:
    """The values of n models on validation and on test, each (n, *shape); the last model may be better.

    A value is the mean over `runs` of a model, whose quality has the standard deviation `effect`.
    """
    draw = partial(rng.standard_normal, dtype=np.float32)
    user, taste = draw(shape), draw((n, *shape))
    quality = np.ones((runs, n, *[1] * len(shape)), dtype=np.float32)
    quality[:, -1] = better
    quality *= np.exp(effect * draw(quality.shape))
    common, own_part, noise = (np.float32(np.sqrt(each)) for each in (0.76, 0.04 * own, 0.04 * (1 - own)))
    found = []
    for _ in ("validation", "test"):
        place = np.float32(np.sqrt(0.2)) * user + common * draw(shape) + own_part * taste
        found.append(sum(ndcg(place + noise * draw(taste.shape), each) for each in quality) / runs)
    return found


def equal(rng: Rng, shape: tuple[int, ...], better: float) -> Any:
    return models(rng, shape, 2, better)[1]


def heavy(rng: Rng, shape: tuple[int, ...], better: float) -> Any:
    """A quarter of the users have values, which are log-normal: a few are a hundred times the median."""
    has = rng.random(shape) < P_HIT
    both = [has * np.minimum(np.exp(rng.normal(-4.5, 1.6, shape)), 1.0) for _ in range(2)]
    return both[0], both[1] * better


def skewed(times: int, rng: Rng, shape: tuple[int, ...], better: float) -> Any:
    """A model is a little better for many users, and much worse for few. The means are equal."""
    size, drawn = 0.1 * rng.random(shape), rng.random(shape)
    worse = P_HIT / (times + 1)
    difference = np.where(drawn < worse, -times * size, np.where(drawn < P_HIT, size, 0.0))
    return 0.0, difference + (better - 1) * 0.05


PAIRS = {
    "equal models": equal,
    "heavy tails": heavy,
    "skewness -1.8": partial(skewed, 2),
    "skewness -6.9": partial(skewed, 9),
}


def differences(world: str, rng: Rng, shape: tuple[int, ...], better: float) -> Any:
    a, b = PAIRS[world](rng, shape, better)
    return b - a


# --- tests ------------------------------------------------------------------------------------------------------


def each(test: Callable[[Any, Any], float], found: Any) -> Any:
    zeros = np.zeros(len(found))
    return [test(column, zeros) < LEVEL for column in found.T]


def by_t(found: Any) -> Any:
    return each(paired_t, found)


def by_wilcoxon(found: Any) -> Any:
    return each(wilcoxon, found)


def by_bootstrap(found: Any) -> Any:
    return bootstrap_p_values(found, resamples=1_000) < LEVEL


def paired(test: Callable[[Any], Any], world: str, rng: Rng, n: int, repetitions: int, better: float) -> Any:
    """Whether each repetition rejects."""
    batch, found = max(1, AT_ONCE // n), []
    for start in range(0, repetitions, batch):
        found += [*test(differences(world, rng, (n, min(batch, repetitions - start)), better))]
    return found


def all_pairs(n_models: int, rng: Rng, n: int, repetitions: int, better: float) -> Any:
    """compare_means: whether any pair of equal models is called different; the share of the pairs of the better one."""
    users, found = pl.Series(range(n)), []
    for _ in range(repetitions):
        values = models(rng, (n,), n_models, better)[1]
        results = [tl.Evaluation(f"{k:02d}", users, {MEASURE: each}) for k, each in enumerate(values)]
        table = compare_means(results, MEASURE)
        rejected = table.with_columns(no=pl.col("p_holm") < LEVEL)
        last = f"{n_models - 1:02d}"
        found.append(rejected["no"].any() if better == 1 else rejected.filter(other=last)["no"].mean())
    return found


def comparison(validation: Any, test: Any) -> Comparison:
    """The result of `compare`, from values of users."""
    nothing: Any = None
    results = []
    for k, (left, right) in enumerate(zip(validation, test, strict=True)):
        kind = Variant(f"{k:02d}", variant("ItemPop").model_class)
        record = {"test": {MEASURE: 0.0}}
        results.append(ModelResult(kind, {}, float(left.mean()), 1, 0.0, [record], right[:, None]))
    plan = Plan([each.variant for each in results], metric=MEASURE)
    return Comparison(results, plan, nothing, np.zeros(0, dtype=int), from_dataset=False)


def compared(n_models: int, options: Any, rng: Rng, n: int, repetitions: int, better: float) -> Any:
    """compare: whether any model is called above or below the best on validation; the share that is."""
    found = []
    for _ in range(repetitions):
        said = comparison(*models(rng, (n,), n_models, better, **options)).against_best.values()
        wrong = [each != ALIKE for each in said if each != BEST]
        found.append(any(wrong) if better == 1 else np.mean(wrong))
    return found


def raced(n_models: int, rng: Rng, n: int, repetitions: int, better: float) -> Any:
    """AutoRecommender: whether the best candidate is called better than the second."""
    found = []
    for _ in range(repetitions):
        values = models(rng, (n,), n_models, better)[0]
        means = values.mean(axis=1)
        trials = [SimpleNamespace(values=each) for each in values]
        race: Any = SimpleNamespace(trials=trials, score=means.__getitem__)
        *_, second, best = np.argsort(means, kind="stable")
        found.append(Race.is_better(race, best, second))
    return found


def follows_tastes(rng: Rng, n: int, repetitions: int, better: float) -> Any:
    """ImpressionMF: whether exposure that follows users and items alone (size) or tastes, too, is called clear."""
    n_users, n_items, found = n // 5, 200, []
    for repetition in range(repetitions):
        user, item = rng.normal(size=(n_users, 4)), rng.normal(size=(n_items, 4))
        tastes = user @ item.T / 2
        logits = -4 + rng.normal(size=(n_users, 1)) + rng.normal(size=n_items) + (better > 1) * 0.3 * tastes
        shown = rng.random(logits.shape) < special.expit(logits)
        users, items = np.nonzero(shown)
        kept = rng.permutation(len(users))[: min(n, len(users))]
        users, items = users[kept].astype(np.int32), items[kept].astype(np.int32)
        link = tested(users, items, lambda u, i, of=shown: of[u, i], lambda u, i, of=tastes: of[u, i], repetition)
        found.append(link.is_clear)
    return found


def best_value(n_values: int, rng: Rng, n: int, repetitions: int, better: float) -> Any:
    """`truelike paper`: whether the best value of a parameter is called better than the paper's; n seeds each."""
    found = []
    for _ in range(repetitions):
        points = {float(value): rng.normal(1, RUN_EFFECT, n) for value in range(n_values)}
        points[n_values - 1.0] += (better > 1) * 2 * RUN_EFFECT
        p = best_of(points, 0.0).p
        found.append(p is not None and p < LEVEL)
    return found


def ranked(
    outcome: Callable[[RankTest], Any], best: float, m: int, rng: Rng, n: int, repetitions: int, better: float
) -> Any:
    """`tl.compare` of n datasets: what is told apart by ranks of m models, the first of which may be above all others.

    The last model is better by two standard deviations, where models differ: the share of the others that it is told
    from. Where they do not, whether any of the equal ones is told from another.
    """
    found = []
    for study in range(repetitions):
        values = rng.normal(size=(n, m))
        values[:, 0] += best
        values[:, -1] += 2 * (better > 1)
        differs = np.asarray(outcome(RankTest.of(values, draws=RANK_DRAWS, seed=study)))
        if differs.ndim:
            differs = differs[int(best > 0) :, int(best > 0) :]
            differs = differs[-1, :-1].mean() if better > 1 else differs.any()
        found.append(float(differs))
    return found


def pairs_differ(test: RankTest) -> Any:
    """Which pairs of models are told apart."""
    return test.p_of_pairs < LEVEL


def any_differs(test: RankTest) -> Any:
    """Whether Friedman's test says that models differ."""
    return test.p < LEVEL


# --- intervals --------------------------------------------------------------------------------------------------


def log_normal_mean(mean: float, deviation: float) -> float:
    """The mean of a log-normal number that is cut off at 1."""
    below = np.exp(mean + deviation**2 / 2) * special.ndtr(-mean / deviation - deviation)
    return float(below + special.ndtr(mean / deviation))


def hits(share: float, rng: Rng, shape: tuple[int, ...]) -> Any:
    return (rng.random(shape) < share).astype(float)


def ndcg_of(share: float, rng: Rng, shape: tuple[int, ...]) -> Any:
    return hits(share, rng, shape) * GAIN[rng.integers(0, LENGTH, shape)]


MEANS: dict[str, tuple[Callable[..., Any], float]] = {
    "NDCG, a quarter has a hit": (partial(ndcg_of, P_HIT), P_HIT * float(GAIN.mean())),
    "NDCG, 1 % have a hit": (partial(ndcg_of, 0.01), 0.01 * float(GAIN.mean())),
    "hit rate 2 %": (partial(hits, 0.02), 0.02),
    "hit rate 98 %": (partial(hits, 0.98), 0.98),
    "recall, half is zero": (lambda rng, shape: hits(0.5, rng, shape) * rng.beta(0.6, 1.2, shape), 0.5 / 3),
    "heavy tails": (lambda rng, shape: heavy(rng, shape, 1.0)[0], P_HIT * log_normal_mean(-4.5, 1.6)),
    "novelty, in bits": (lambda rng, shape: rng.gamma(2.0, 2.0, shape), 4.0),
}


def side(interval: tuple[float, float], truth: float) -> int:
    """-1: the interval is below the truth, 1: above, 0: it contains the truth."""
    low, high = interval
    return int(low > truth) - int(high < truth)


def of_means(world: str, rng: Rng, n: int, repetitions: int) -> Any:
    draw, truth = MEANS[world]
    return [side(mean_interval(draw(rng, (n,))), truth) for _ in range(repetitions)]


def of_ratios(spread: float, rng: Rng, n: int, repetitions: int) -> Any:
    """Users with some interactions each, of gain 0 or 1, weighted by 1 / propensity."""
    truth, found = 0.25, []
    for _ in range(repetitions):
        of = np.repeat(np.arange(n), 1 + rng.poisson(2.0, n))
        weights = np.minimum(np.exp(rng.normal(0, spread, len(of))), 100)
        gains = (
            special.ndtr(np.sqrt(0.2) * rng.normal(size=n)[of] + np.sqrt(0.8) * rng.normal(size=len(of))) < truth
        )
        sums, total = np.bincount(of, weights * gains), np.bincount(of, weights)
        size = weights.sum() ** 2 / (weights**2).sum()
        found.append(side(ratio_interval(sums, total, size), truth))
    return found


def of_miss_rates(items: int, rng: Rng, n: int, repetitions: int) -> Any:
    """Shown pairs, of which a tenth is liked and two fifths of the likes are missed at each showing."""
    truth, found = 0.4, []
    for _ in range(repetitions):
        scheduled, at = rng.integers(1, 6, n), rng.geometric(1 - truth, n)
        taken = (rng.random(n) < 0.1) & (at <= scheduled)
        estimate = by_showing(np.where(taken, at, scheduled), taken, rng.integers(0, items, n))
        found.append(side(estimate.interval(), truth))
    return found


def over_seeds(rng: Rng, n: int, repetitions: int) -> Any:
    """`truelike paper`: the gain of a model over another that is as good, each with n seeds."""
    found = []
    for _ in range(repetitions):
        a, b = rng.normal(1, RUN_EFFECT, (2, n))
        gain, width = a.mean() / b.mean() - 1, half_width(a, b)
        found.append(side((gain - width, gain + width), 0.0))
    return found


# --- all of them ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A procedure in a world: `run(rng, n, repetitions, better)` for a test, `run(rng, n, repetitions)` otherwise."""

    procedure: str
    world: str
    run: Callable[..., Any]
    models: int | None = None
    sizes: tuple[int, ...] = USERS
    repetitions: tuple[int, ...] = (2_000, 1_000, 400)  # for each size
    level: float = LEVEL


SIZE_OF_3 = float(stats.norm.sf(3.0))  # of a test by z > 3
FAMILIES = (2, 5, 15)
OF_FAMILIES = (1_000, 500, 200)
OF_INTERVALS = (10_000, 5_000, 2_000)
SEEDS = (3, 5, 10)
DATASETS = (3, 5, 12)
RANK_DRAWS = 999
RANKS: list[tuple[str, str, Callable[[RankTest], Any], float]] = [
    ("ranks, all pairs", "equal models", pairs_differ, 0.0),
    ("ranks, all pairs", "equal models beside one that is always best", pairs_differ, 100.0),
    ("ranks, Friedman", "equal models", any_differs, 0.0),
]
BY = {"paired t": by_t, "Wilcoxon": by_wilcoxon, "paired bootstrap": by_bootstrap}
IN_COMPARE = {
    "equal models, correlation .13": {"own": 0.5},
    "equal models, means of 3 runs": {"runs": 3},
    "equal models, means of 3 runs that differ by 1 %": {"runs": 3, "effect": RUN_EFFECT},
}
TESTS = [
    *(Cell(name, world, partial(paired, test, world)) for name, test in BY.items() for world in PAIRS),
    *(Cell("compare", "equal models", partial(compared, m, {}), m, repetitions=OF_FAMILIES) for m in FAMILIES),
    *(
        Cell("compare", world, partial(compared, FAMILIES[-1], options), FAMILIES[-1], USERS[1:], OF_FAMILIES[1:])
        for world, options in IN_COMPARE.items()
    ),
    *(Cell("compare_means", "equal models", partial(all_pairs, m), m, repetitions=OF_FAMILIES) for m in FAMILIES),
    *(
        Cell("AutoRecommender", "equal models", partial(raced, m), m, repetitions=OF_FAMILIES, level=MAX_P_VALUE)
        for m in FAMILIES
    ),
    Cell(
        "exposure follows tastes",
        "it follows users and items",
        follows_tastes,
        None,
        USERS,
        (500, 200, 100),
        SIZE_OF_3,
    ),
    *(Cell("paper, best value", "equal values", partial(best_value, m), m, SEEDS, (800,) * 3) for m in (2, 5)),
    *(
        Cell(name, world, partial(ranked, outcome, best, m), m, DATASETS, (1_000,) * 3)
        for name, world, outcome, best in RANKS
        for m in (3, 5, 8)
    ),
]
INTERVALS = [
    *(Cell("mean", world, partial(of_means, world), repetitions=OF_INTERVALS) for world in MEANS),
    Cell("weighted by propensities", "weights differ little", partial(of_ratios, 0.5), repetitions=OF_INTERVALS),
    Cell("weighted by propensities", "weights differ much", partial(of_ratios, 1.5), repetitions=OF_INTERVALS),
    Cell("miss rate", "one item", partial(of_miss_rates, 1), None, (500, 6_000, 60_000), (2_500, 1_000, 500)),
    Cell("miss rate", "50 items", partial(of_miss_rates, 50), None, (500, 6_000, 60_000), (2_500, 1_000, 500)),
    Cell("gain over seeds", "equal models", over_seeds, 2, SEEDS, (10_000,) * 3),
]


def generator(cell: Cell, n: int, what: str = "") -> Rng:
    """The random numbers of a cell: they do not depend on which other cells are run."""
    return np.random.default_rng([*f"{cell.procedure} {cell.world} {cell.models} {n} {what}".encode()])


def error_of(rate: float, repetitions: int) -> float:
    """The standard error of a simulated rate."""
    return float(np.sqrt(rate * (1 - rate) / repetitions))


def simulated(cell: Cell, n: int, repetitions: int) -> dict[str, Any]:
    """A row of the table."""
    about = {"procedure": cell.procedure, "world": cell.world, "models": cell.models, "n": n}
    if cell in INTERVALS:
        sides = np.array(cell.run(generator(cell, n), n, repetitions))
        coverage = float(np.mean(sides == 0))
        figures = {
            "coverage": coverage,
            "too low": float(np.mean(sides < 0)),
            "too high": float(np.mean(sides > 0)),
        }
        return {**about, **figures, "repetitions": repetitions, "error": error_of(coverage, repetitions)}
    size, power = (
        float(np.mean(cell.run(generator(cell, n, what), n, m, better)))
        for what, better, m in (("", 1.0, repetitions), ("power", BETTER, max(repetitions // 4, 1)))
    )
    error = error_of(size, repetitions)
    return {**about, "level": cell.level, "size": size, "power": power, "repetitions": repetitions, "error": error}


def markdown(table: pl.DataFrame) -> str:
    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * table.width]
    lines += [
        "| " + " | ".join("" if v is None else f"{v:.4f}" if isinstance(v, float) else str(v) for v in row) + " |"
        for row in table.iter_rows()
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("results/error-rates"))
    parser.add_argument("--repetitions", type=float, default=1.0, help="times those in the script")
    given = parser.parse_args()
    print(machine())
    output = output_directory(given.output, given.quick)
    log = output / "runs" / "cells.jsonl"
    log.parent.mkdir(exist_ok=True)
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {(row["procedure"], row["world"], row["models"], row["n"], row["repetitions"]): row for row in rows}
    for cells, name in ((INTERVALS, "intervals"), (TESTS, "tests")):
        table = []
        for cell in cells:
            for n, usual in zip(cell.sizes, cell.repetitions, strict=True):
                repetitions = 4 if given.quick else max(1, int(usual * given.repetitions))
                key = cell.procedure, cell.world, cell.models, n, repetitions
                if key not in done:
                    started = time.perf_counter()
                    done[key] = simulated(cell, n, repetitions)
                    with log.open("a") as handle:
                        handle.write(json.dumps(done[key]) + "\n")
                    print(f"{key}: {time.perf_counter() - started:.1f} s", flush=True)
                table.append(done[key])
        frame = pl.DataFrame(table, infer_schema_length=None)
        frame.write_csv(output / f"{name}.csv", float_precision=4)
        print(markdown(frame))


if __name__ == "__main__":
    main()
