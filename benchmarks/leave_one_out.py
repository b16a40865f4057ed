"""Defaults on logs that took no part in making them: every log is left out once.

    python benchmarks/leave_one_out.py search [--logs coat amazon] [--models IALS EASE] [--trials 30]
    python benchmarks/leave_one_out.py rules [--logs ...] [--models ...]
    python benchmarks/leave_one_out.py auto [--logs ...]
    python benchmarks/leave_one_out.py table

`search` tunes each model on each log: by Optuna, on validation NDCG@20, in the search space of its class. `rules` fits
each model at its defaults and with other constants in its rules, so that for each log the constants that are best on
the others can be taken. `auto` fits `AutoRecommender()` to each log. Each result is a line of a file in --directory and
is not computed again. `table` prints the regret of each rule, of AutoRecommender, and intervals.

The logs are those of `logs.py`. All choices are made on validation; the tables have the test part, too. On test
validation items stay candidates (`seen="train"`).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from common import machine
from logs import LOGS

import truelike as tl
from truelike.engines import regularization
from truelike.models.registry import build

METRIC = "ndcg@20"
MODELS = ("ItemKNN", "EASE", "EDLAE", "IALS", "SoftmaxMF", "ExactBPO", "BPR", "NBPO")
# constants of the rules: where they are, and factors of their values
CONSTANTS: dict[str, dict[str, tuple[float, ...]]] = {
    "IALS": {"IALS_L2": (0.7, 1.0, 1.4), "UNOBSERVED": (0.5, 1.0, 2.0)},
    "SoftmaxMF": {"EXACT_L2": (0.7, 1.0, 1.4), "LISTWISE_RATE": (0.5, 1.0, 2.0)},
    "ExactBPO": {"EXACT_L2": (0.7, 1.0, 1.4), "POINTWISE_RATE": (0.5, 1.0, 2.0)},
}


class Results:
    """Lines of JSON in a file, by a key; each is written as it is found."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.found = {json.dumps(row["key"]): row for row in map(json.loads, lines)}

    def __contains__(self, key: Any) -> bool:
        return json.dumps(key) in self.found

    def add(self, key: Any, **values: Any) -> None:
        row = {"key": key, **values}
        self.found[json.dumps(key)] = row
        with self.path.open("a") as handle:
            handle.write(json.dumps(row) + "\n")
        print(*key, *(f"{name} {_short(value)}" for name, value in values.items()), flush=True)

    def get(self, key: Any) -> Any:
        return self.found.get(json.dumps(key))


def _short(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "" if isinstance(value, list) else str(value)


def measured(model: Any, split: tl.Split) -> dict[str, Any]:
    """NDCG@20 on validation and test, and that of each user on test."""
    values = {
        "validation": tl.evaluate(model, split.validation, ks=20, metrics="ndcg"),
        "test": tl.evaluate(model, split, seen="train", ks=20, metrics="ndcg"),
    }
    per_user = [round(float(value), 6) for value in values["test"].values[METRIC]]
    return {**{part: each[METRIC] for part, each in values.items()}, "per_user": per_user}


def search(given: argparse.Namespace, results: Results) -> None:
    for log, name in product(given.logs, given.models):
        if [log, name] in results:
            continue
        split, started = LOGS[log](), time.perf_counter()
        found = tl.tune(
            name,
            split,
            search="optuna",
            n_trials=given.trials,
            n_workers=1,
            directory=given.directory / "trials" / log,
        )
        model = found.make().fit(split, progress=False)
        seconds = time.perf_counter() - started
        results.add([log, name], **measured(model, split), model=repr(model), seconds=seconds)


def rules(given: argparse.Namespace, results: Results) -> None:
    for log in given.logs:
        split = None
        for name in given.models:
            for constants in settings(name):
                key = [log, name, constants]
                if key in results:
                    continue
                split = split or LOGS[log]()
                with changed(constants):
                    started = time.perf_counter()
                    model = build(name, {})
                    # of sampled models, the number of epochs is found on validation, as `fit(split)` does
                    model.fit(split if name in ("BPR", "NBPO") else split.train, progress=False)
                    results.add(key, **measured(model, split), seconds=time.perf_counter() - started)


def settings(name: str) -> Iterator[dict[str, float]]:
    """The factors of the constants of a model's rules: all combinations."""
    axes = CONSTANTS.get(name, {})
    for factors in product(*axes.values()):
        yield dict(zip(axes, factors, strict=True))


class changed:  # noqa: N801 - a context
    """A context in which constants of the rules are multiplied by factors."""

    def __init__(self, factors: dict[str, float]) -> None:
        from truelike.models import exact_mf, ials

        modules = (regularization, exact_mf, ials)
        self.places = [
            (module, name, factor)
            for name, factor in factors.items()
            for module in modules
            if hasattr(module, name)
        ]

    def __enter__(self) -> None:
        self.old = [(module, name, getattr(module, name)) for module, name, _ in self.places]
        for module, name, factor in self.places:
            setattr(module, name, getattr(module, name) * factor)

    def __exit__(self, *_: Any) -> None:
        for module, name, value in self.old:
            setattr(module, name, value)


def auto(given: argparse.Namespace, results: Results) -> None:
    for log in given.logs:
        for budget in given.budgets:
            if [log, budget] in results:
                continue
            split, started = LOGS[log](), time.perf_counter()
            model = tl.AutoRecommender(budget=budget).fit(split, progress=False)
            seconds = time.perf_counter() - started
            results.add([log, budget], **measured(model, split), model=model.choice_.model, seconds=seconds)


def table(given: argparse.Namespace) -> None:
    searched, ruled, raced = (Results(given.directory / f"{name}.jsonl") for name in ("search", "rules", "auto"))
    print("\nTest NDCG@20 of each model: searched, by its rules from the other logs, and at its defaults\n")
    print(f"| log | {' | '.join(given.models)} |\n|---|{'---|' * len(given.models)}")
    regrets: dict[str, list[float]] = {name: [] for name in given.models}
    for log in given.logs:
        cells = []
        for name in given.models:
            best, left_out = searched.get([log, name]), from_the_others(ruled, given.logs, log, name)
            usual = ruled.get([log, name, dict.fromkeys(CONSTANTS.get(name, {}), 1.0)])
            values = [None if row is None else row["test"] for row in (best, left_out, usual)]
            if None not in values[:2]:
                regrets[name].append(1 - values[1] / values[0])
            cells.append(" / ".join("–" if value is None else f"{value:.4f}" for value in values))
        print(f"| {log} | {' | '.join(cells)} |")
    means = [f"{np.mean(each):.1%}" if each else "–" for each in regrets.values()]
    print(f"| mean regret, left out | {' | '.join(means)} |")
    print("\nAutoRecommender and the best of all searches\n")
    print(
        "| log | budget | NDCG@20 | best search | difference | 95 % interval | seconds | model |\n|" + "---|" * 8
    )
    for log, budget in product(given.logs, given.budgets):
        row = raced.get([log, budget])
        rivals = [(found["validation"], name) for name in given.models if (found := searched.get([log, name]))]
        if row is None or not rivals:
            continue
        # the best by test: harder to beat than what a user would have chosen on validation
        best = max((searched.get([log, name]) for _, name in rivals), key=lambda found: found["test"])
        difference = np.array(row["per_user"]) - np.array(best["per_user"])
        half = 1.96 * difference.std(ddof=1) / np.sqrt(len(difference)) / best["test"]
        share = row["test"] / best["test"] - 1
        rival = best["model"].partition("(")[0]
        print(
            f"| {log} | {budget} | {row['test']:.4f} | {best['test']:.4f} ({rival}) | {share:+.1%} | "
            f"{share - half:+.1%} to {share + half:+.1%} | {row['seconds']:.0f} | {row['model'].partition('(')[0]} |"
        )


def from_the_others(ruled: Results, logs: list[str], left_out: str, name: str) -> Any:
    """The result on a log with the constants that are best on the other logs, by validation."""

    def on_the_others(constants: dict[str, float]) -> float:
        total = 0.0
        for log in logs:
            rows = [ruled.get([log, name, each]) for each in settings(name)]
            mine = ruled.get([log, name, constants])
            if log != left_out and mine is not None and None not in rows:
                total += mine["validation"] / max(row["validation"] for row in rows)
        return total

    return ruled.get([left_out, name, max(settings(name), key=on_the_others)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["search", "rules", "auto", "table"])
    parser.add_argument("--logs", nargs="+", default=list(LOGS), choices=list(LOGS))
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--budgets", nargs="+", default=["normal"])
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--directory", type=Path, default=Path("leave-one-out"))
    given = parser.parse_args()
    warnings.simplefilter("ignore", tl.errors.TrainingWarning)
    warnings.simplefilter("ignore", tl.errors.DataWarning)
    if given.what == "table":
        table(given)
        return
    print(machine())
    run = {"search": search, "rules": rules, "auto": auto}[given.what]
    run(given, Results(given.directory / f"{given.what}.jsonl"))


if __name__ == "__main__":
    main()
