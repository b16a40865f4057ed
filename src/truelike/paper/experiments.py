"""Running the plan: the authors' settings, the grids, the tuned settings, and the curves of K, rho and L.

Everything goes through two Runners for each data set. `tuning/` sees the training and the validation part;
`final/` is given the test part, too, and runs only settings that are fixed by then. So each number has its line in
a `trials.jsonl`, nothing finished is run twice, and a stopped run goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.data.splits import Split
from truelike.evaluation.significance import paired_t
from truelike.files import replacing_file
from truelike.paper.protocol import (
    BY_NAME,
    COMPARED,
    CONTENDERS,
    FACTORS,
    FLIP_FACTORS,
    METRIC,
    NEGATIVES,
    Contender,
    Plan,
    Setting,
)
from truelike.training.trainer import DivergedError
from truelike.tuning.grids import Stage, axis, paper_stages
from truelike.tuning.runner import Runner, read_records
from truelike.tuning.search import Tuned, staged_search
from truelike.tuning.trials import KS, METRICS, Record, Trial

MEASURES = [f"{metric}@{k}" for metric in METRICS for k in KS]
SETTINGS: tuple[Setting, ...] = ("authors", "tuned")
QUICK_VALUES = {"factors": (10, 50, 100), "n_negatives": (1, 3, 5), "flip_factors": (0, 10, 50)}
VALUES = {"factors": FACTORS, "n_negatives": NEGATIVES, "flip_factors": FLIP_FACTORS}


def run(
    plan: Plan, split: Split, directory: Path, *, jobs: int | None, nice: int, say: Callable[[str], None]
) -> None:
    """Run all of a plan on a data set."""
    place = directory / plan.data
    done = 0

    def report(record: Record) -> None:
        nonlocal done
        done += 1
        if done % 25 == 0:
            say(f"  {plan.data}: {done} runs; the last was {record['model']} in {record['seconds']:.1f} s")

    def runner(kind: str, test: Any = None) -> Runner:
        return Runner(place / kind, split.train, split.validation, test, jobs=jobs, nice=nice, report=report)

    with runner("final", split.test) as final, runner("tuning") as tuning:
        results = Results(plan, final.records, tuned={})
        say(f"{plan.data}: the authors' settings, {plan.seeds} seeds")
        final.run([trial for contender in CONTENDERS for trial in results.finals("authors", contender.name)])
        for contender in CONTENDERS:
            if contender.like is None:
                say(f"{plan.data}: tuning {contender.name}")
                try:
                    results.tuned[contender.name] = _told(tune(plan, contender, tuning))
                except DivergedError as error:
                    say(f"{plan.data}: {error}")
                    continue
            else:
                results.tuned[contender.name] = results.tuned[contender.like]
            final.run(list(results.finals("tuned", contender.name)))
            with replacing_file(place / "tuned.json") as fresh:
                fresh.write_text(json.dumps(results.tuned, indent=1) + "\n", encoding="utf-8")
        say(f"{plan.data}: the curves of K, rho and L")
        for seed in range(plan.curve_seeds):
            tuning.run([trial for name in VALUES for _, _, trial in results.curve(name, seed)])
    Results.read(directory, plan).keep_tests()


def tune(plan: Plan, contender: Contender, runner: Runner) -> Tuned:
    """The paper's grids for one contender, the same for all that learn."""
    if contender.model == "ItemPop":
        return staged_search(runner, "ItemPop", [Stage("as it is", lambda best: [{}])], metric=METRIC)
    if contender.model == "ItemKNN":
        stages = [axis("neighbors", 5, 10, 20, 50, 100, 200, 500, 2_000)]
        return staged_search(runner, "ItemKNN", stages, metric=METRIC)
    fixed = {**plan.base, **contender.fixed}
    made: Any = Trial(contender.model, fixed).make()

    def search(slower: float) -> Tuned:
        stages = paper_stages(
            flips=made.has_flips, flip_rate=made.objective == "ShiftMC", quick=plan.quick, slower=slower
        )
        return staged_search(runner, contender.model, stages, metric=METRIC, fixed=fixed, rungs=plan.rungs)

    try:
        return search(slower=1.0)
    except DivergedError:  # at all of the paper's rates; that a model has no figure at all helps nobody
        return search(slower=0.1)


def _told(found: Tuned) -> dict[str, Any]:
    return {
        "parameters": {name: value for name, value in found.parameters.items() if name != "seed"},
        METRIC: found.score,
        "stages": found.stages,
    }


@dataclass(eq=False)
class Results:
    """What the runs of a data set gave, by experiment; also of a run that is not finished yet."""

    plan: Plan
    records: dict[str, Record]
    tuned: dict[str, dict[str, Any]]
    directory: Path | None = None
    tests: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path, plan: Plan) -> Results:
        """From the files of a run."""
        place = directory / plan.data
        records = {}
        for kind in ("tuning", "final"):
            records.update(read_records(place / kind / "trials.jsonl"))
        tuned, tests = (
            json.loads(path.read_text("utf-8")) if path.exists() else {}
            for path in (place / "tuned.json", place / "tests.json")
        )
        return cls(plan, records, tuned, place, tests)

    def parameters(self, setting: Setting, name: str) -> dict[str, Any] | None:
        """The parameters of a contender, without a seed; None where there is no such setting (yet)."""
        contender = BY_NAME[name]
        if setting == "authors":
            if not contender.learns:
                return {}
            if self.plan.data not in contender.release:
                return None
            return {**self.plan.base, **contender.fixed, **contender.release[self.plan.data]}
        if name not in self.tuned:
            return None
        return {**self.tuned[name]["parameters"], **contender.fixed}

    def finals(self, setting: Setting, name: str) -> Iterator[Trial]:
        """The runs of a contender that are judged on the test part, one for each seed."""
        parameters = self.parameters(setting, name)
        if parameters is None:
            return
        contender = BY_NAME[name]
        if not contender.learns:
            yield Trial(contender.model, parameters, test=True)
            return
        for seed in range(self.plan.seeds):
            yield Trial(contender.model, {**parameters, "seed": seed}, test=True)

    def curve(self, parameter: str, seed: int) -> Iterator[tuple[str, Any, Trial]]:
        """One parameter varied around the tuned setting: contender, value, run."""
        values = (QUICK_VALUES if self.plan.quick else VALUES)[parameter]
        for name in COMPARED if parameter != "flip_factors" else ("NBPO",):
            base = self.parameters("tuned", name)
            if base is not None:
                for value in values:
                    changed = {**base, parameter: value, "seed": seed}
                    yield name, value, Trial(BY_NAME[name].model, changed)

    def found(self, trials: Iterator[Trial] | list[Trial]) -> list[Record]:
        """The records of those runs that are finished and did not diverge."""
        known = [self.records.get(trial.key) for trial in trials]
        return [record for record in known if record is not None and "error" not in record]

    def mean(self, setting: Setting, name: str, measure: str) -> float | None:
        """The mean over seeds of a measure on the test part."""
        found = self.found(self.finals(setting, name))
        return float(np.mean([record["test"][measure] for record in found])) if found else None

    def p_value(self, setting: Setting, a: str, b: str, measure: str) -> float:
        """Of the paired t-test over users, their figures averaged over seeds; NaN where those are not kept."""
        kept = self.tests.get(self._tested(setting, a, b, measure))
        if kept is not None:
            return kept
        users = [self.per_user(setting, name) for name in (a, b)]
        if users[0] is None or users[1] is None:
            return float("nan")
        row = MEASURES.index(measure)
        return paired_t(users[0][:, row], users[1][:, row])

    def keep_tests(self) -> None:
        """Write the p-values of all pairs: they need each user's figures, which are too many to be passed on."""
        assert self.directory is not None
        for setting in SETTINGS:
            for a, b in permutations((contender.name for contender in CONTENDERS), 2):
                for measure in MEASURES:
                    p = self.p_value(setting, a, b, measure)
                    if not np.isnan(p):
                        self.tests[self._tested(setting, a, b, measure)] = p
        with replacing_file(self.directory / "tests.json") as fresh:
            fresh.write_text(json.dumps(self.tests, indent=0) + "\n", encoding="utf-8")

    def _tested(self, setting: Setting, a: str, b: str, measure: str) -> str:
        """What a kept p-value is of: the very figures, so that no older one is taken for it."""
        found = [record["test"] for name in (a, b) for record in self.found(self.finals(setting, name))]
        mark = hashlib.sha256(json.dumps(found).encode()).hexdigest()[:12]
        return f"{setting}: {a} - {b}, {measure} ({mark})"

    @lru_cache(maxsize=64)  # noqa: B019 - results live as long as the program
    def per_user(self, setting: Setting, name: str) -> NDArray[np.float64] | None:
        """Each user's figures on the test part, seeds averaged, a column for each of MEASURES; or None."""
        assert self.directory is not None
        keys = [record["key"] for record in self.found(self.finals(setting, name))]
        paths = [self.directory / "final" / "users" / f"{key}.npy" for key in keys]
        if not paths or not all(path.exists() for path in paths):
            return None
        values = [np.load(path, allow_pickle=False)[:, : len(MEASURES)] for path in paths]
        return np.asarray(np.mean(values, axis=0, dtype=np.float64))

    def missing(self) -> list[str]:
        """The parts of the plan that are not finished."""
        parts: dict[str, list[Trial | None]] = {
            "the authors' settings": [t for c in CONTENDERS for t in self.finals("authors", c.name)],
            "tuning": [None for c in CONTENDERS if c.name not in self.tuned],
            "the tuned settings": [t for c in CONTENDERS for t in self.finals("tuned", c.name)],
            "the curves": [
                t for n in VALUES for s in range(self.plan.curve_seeds) for _, _, t in self.curve(n, s)
            ],
        }
        return [
            name
            for name, trials in parts.items()
            if any(trial is None or trial.key not in self.records for trial in trials)
        ]

    def diverged(self, setting: Setting) -> list[str]:
        """The contenders of whose final runs one or more diverged."""
        return [
            contender.name
            for contender in CONTENDERS
            if any("error" in self.records.get(trial.key, {}) for trial in self.finals(setting, contender.name))
        ]
