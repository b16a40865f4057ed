"""Run a plan: the settings of release and text, the grids, the tuned settings, and the curves over K, rho and L.

There are two Executors for each dataset. The one in `tuning/` has the training and the validation part. The one in
`final/` also has the test part, and runs only settings that are chosen already. Each result is a line of a
`trials.jsonl`, so no finished trial is run again, and a stopped run can be continued.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.core.files import replacing_file
from truelike.data.splits import Split
from truelike.errors import DivergedError
from truelike.evaluation.evaluate import KS
from truelike.evaluation.significance import LEVEL, paired_t
from truelike.models.sampled_mf import PAPER
from truelike.paper.protocol import (
    BY_NAME,
    COMPARED,
    CONTENDERS,
    FACTORS,
    FLIP_FACTORS,
    METRIC,
    NEGATIVES,
    SEARCHES,
    SETTINGS,
    Contender,
    Plan,
    Setting,
)
from truelike.selection.executor import Executor
from truelike.selection.grids import Stage, axis, paper_stages
from truelike.selection.records import read_records
from truelike.selection.search import Tuned, run_search, staged
from truelike.selection.trials import METRICS, Record, Trial, score
from truelike.selection.tune import checked_workers
from truelike.selection.variants import learns_flips, variant

MEASURES = [f"{metric}@{k}" for metric in METRICS for k in KS]
SCALED = "n_negatives, scaled"  # the curve along which learning rate and regularization follow n_negatives
QUICK_VALUES = {"factors": (10, 50, 100), "n_negatives": (1, 3, 5), SCALED: (1, 3, 5), "flip_factors": (0, 10, 50)}
VALUES = {"factors": FACTORS, "n_negatives": NEGATIVES, SCALED: NEGATIVES, "flip_factors": FLIP_FACTORS}


def run(plan: Plan, split: Split, directory: Path, *, n_workers: int | None, say: Callable[[str], None]) -> None:
    """Run a plan; trials that are finished already are not run again.

    The results are in a subdirectory with the name of the dataset. `say` is called with lines of progress.
    """
    place = directory / plan.data
    done = 0

    def report(record: Record) -> None:
        nonlocal done
        done += 1
        if done % 25 == 0:
            say(f"  {plan.data}: {done} trials done; last: {record['model']}, {record['seconds']:.1f} s")

    options: dict[str, Any] = {
        "n_workers": checked_workers(n_workers),
        "n_jobs": 1,
        "report": report,
    }
    with (
        Executor(place / "final", *split.parts, **options) as final,
        Executor(place / "tuning", split.train, split.validation, **options) as tuning,
    ):
        results = Results(plan, final.records, searched={})
        for setting in ("release", "text"):
            say(f"{plan.data}: {SETTINGS[setting]} settings, {plan.seeds} seeds")
            final.run([trial for each in CONTENDERS for trial in results.finals(setting, each.name)])
        for setting, metric in SEARCHES.items():
            tuned = results.searched[setting] = {}
            for contender in _searched(plan, setting):
                if contender.like is None:
                    say(f"{plan.data}: tuning {contender.name} by {metric}")
                    try:
                        tuned[contender.name] = _as_json(tune(plan, contender, tuning, metric))
                    except DivergedError as error:
                        say(f"{plan.data}: {error}")
                        continue
                else:
                    tuned[contender.name] = tuned[contender.like]
                final.run(list(results.finals(setting, contender.name)))
                with replacing_file(place / _file(setting)) as fresh:
                    fresh.write_text(json.dumps(tuned, indent=1) + "\n", encoding="utf-8")
        say(f"{plan.data}: curves over K, rho and L, {plan.curve_seeds} seeds")
        for seed in range(plan.curve_seeds):
            tuning.run([trial for name in VALUES for _, _, trial in results.curve(name, seed)])


def _searched(plan: Plan, setting: Setting) -> list[Contender]:
    """Return the contenders that are searched for a setting."""
    return [contender for contender in CONTENDERS if setting == "tuned" or contender.name in plan.retuned]


def _file(setting: Setting) -> str:
    return f"{setting.replace(' ', '-')}.json"


def tune(plan: Plan, contender: Contender, executor: Executor, metric: str = METRIC) -> Tuned:
    """Search the paper's grids for one contender; they are the same for all models that are trained by epochs."""

    def search(stages: list[Stage], fixed: dict[str, Any], rungs: Sequence[float] = (1.0,)) -> Tuned:
        model = variant(contender.model)
        steps = staged(model, stages, metric=metric, fixed=fixed, rungs=rungs, log=executor.log)
        return run_search(steps, executor.run)

    if contender.model == "ItemPop":
        return search([Stage("no search", lambda best: [{}])], {})
    if contender.model == "ItemKNN":
        return search([axis("neighbors", 5, 10, 20, 50, 100, 200, 500, 2_000)], contender.fixed)
    fixed = {**plan.base, "metric": metric, **contender.fixed}
    flips, flip_rate = learns_flips(Trial(contender.model, fixed).make()), contender.model == "ShiftMC"

    def grids(slower: float) -> list[Stage]:
        return paper_stages(flips=flips, flip_rate=flip_rate, quick=plan.quick, slower=slower)

    try:
        return search(grids(slower=1.0), fixed, plan.rungs)
    except DivergedError:  # at all learning rates of the paper: search at a tenth of them
        return search(grids(slower=0.1), fixed, plan.rungs)


def scaled(parameters: dict[str, Any], n_negatives: int) -> dict[str, Any]:
    """Return a setting for another number of negatives, with the same balance of gradient and regularization.

    The recipe sums gradients, and adds the term of a positive once for each of its negatives. So a gradient grows with
    the number of negatives: the regularization must grow alike, and the learning rate must shrink.

    >>> scaled({"learning_rate": 0.02, "regularization": 2.0}, 1)
    {'learning_rate': 0.08, 'regularization': 0.5, 'n_negatives': 1}
    """
    tuned = parameters.get("n_negatives", PAPER["n_negatives"])
    found = {"learning_rate": parameters["learning_rate"] * tuned / n_negatives}
    for name in ("regularization", "flip_regularization"):
        if name in parameters:
            found[name] = parameters[name] * n_negatives / tuned
    return {**parameters, **found, "n_negatives": n_negatives}


def _as_json(found: Tuned) -> dict[str, Any]:
    return {
        "parameters": {name: value for name, value in found.parameters.items() if name != "seed"},
        found.metric: found.score,
        "stages": found.stages,
    }


@dataclass(eq=False)
class Results:
    """The results on one dataset, by experiment. The runs need not be finished."""

    plan: Plan
    records: dict[str, Record]  # of the finished trials, by key
    searched: dict[
        Setting, dict[str, dict[str, Any]]
    ]  # by setting: the tuned parameters and the stages of the search
    directory: Path | None = None

    @classmethod
    def read(cls, directory: Path, plan: Plan) -> Results:
        """Read the results in a directory."""
        place = directory / plan.data
        records = {}
        for kind in ("tuning", "final"):
            records.update(read_records(place / kind / "trials.jsonl"))
        files: dict[Setting, Path] = {setting: place / _file(setting) for setting in SEARCHES}
        searched = {
            setting: json.loads(path.read_text("utf-8")) if path.exists() else {}
            for setting, path in files.items()
        }
        return cls(plan, records, searched, place)

    @property
    def tuned(self) -> dict[str, dict[str, Any]]:
        """The results of the paper's search, by F1@2."""
        return self.searched.setdefault("tuned", {})

    def parameters(self, setting: Setting, name: str) -> dict[str, Any] | None:
        """Return the parameters of a contender without the seed; None if it has no such setting (yet)."""
        contender = BY_NAME[name]
        if setting in ("release", "text"):
            if not contender.learns:
                return dict(contender.fixed)
            given = getattr(contender, setting).get(self.plan.data)
            return None if given is None else {**self.plan.base, **given, **contender.fixed}
        tuned = self.searched.get(setting, {})
        return {**tuned[name]["parameters"], **contender.fixed} if name in tuned else None

    def finals(self, setting: Setting, name: str) -> Iterator[Trial]:
        """Yield the trials of a contender that are evaluated on the test part, one per seed."""
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
        """Yield contender, value and trial, for one parameter that varies around the tuned setting.

        Along SCALED, learning rate and regularization follow the number of negatives.
        """
        values = (QUICK_VALUES if self.plan.quick else VALUES)[parameter]
        for name in COMPARED if parameter != "flip_factors" else ("NBPO",):
            base = self.parameters("tuned", name)
            if base is not None:
                for value in values:
                    changed = scaled(base, value) if parameter == SCALED else {**base, parameter: value}
                    yield name, value, Trial(BY_NAME[name].model, {**changed, "seed": seed})

    def found(self, trials: Iterator[Trial] | list[Trial]) -> list[Record]:
        """Return the records of the trials that are finished and did not diverge."""
        known = [self.records.get(trial.key) for trial in trials]
        return [record for record in known if record is not None and "error" not in record]

    def mean(self, setting: Setting, name: str, measure: str) -> float | None:
        """Return the mean over seeds of a measure on the test part; None without a finished trial."""
        found = self.found(self.finals(setting, name))
        return float(np.mean([record["test"][measure] for record in found])) if found else None

    def p_value(self, a: tuple[Setting, str], b: tuple[Setting, str], measure: str) -> float:
        """Return the p-value of the paired t-test over users of two contenders, each with its setting.

        Metrics are averaged over seeds first. NaN without values per user.
        """
        users = [self.per_user(*each) for each in (a, b)]
        if users[0] is None or users[1] is None:
            return float("nan")
        row = MEASURES.index(measure)
        return paired_t(users[0][:, row], users[1][:, row])

    def trained(self, setting: Setting, name: str) -> bool:
        """Whether F1@2 of a contender on the test part is above that of ItemPop, significantly over users.

        A contender is taken as trained if it or ItemPop was not run. One that does not learn always is.
        """
        floor = "ItemPop"
        mean, least = self.mean(setting, name, METRIC), self.mean("release", floor, METRIC)
        if not BY_NAME[name].learns or mean is None or least is None:
            return True
        return mean > least and not self.p_value((setting, name), ("release", floor), METRIC) >= LEVEL

    def floor(self) -> float:
        """Return F1@2 of ItemPop on the validation part; minus infinity if it was not run."""
        found = self.found(self.finals("release", "ItemPop"))
        return score(found[0], METRIC) if found else -np.inf

    @lru_cache(maxsize=64)  # noqa: B019 - a program has few results
    def per_user(self, setting: Setting, name: str) -> NDArray[np.float64] | None:
        """Return the mean over seeds of each user and each of MEASURES on the test part; None if not stored."""
        if self.directory is None:
            return None
        keys = [record["key"] for record in self.found(self.finals(setting, name))]
        paths = [self.directory / "final" / "users" / f"{key}.npy" for key in keys]
        if not paths or not all(path.exists() for path in paths):
            return None
        values = [np.load(path, allow_pickle=False)[:, : len(MEASURES)] for path in paths]
        return np.asarray(np.mean(values, axis=0, dtype=np.float64))

    def missing(self) -> list[str]:
        """Return the parts of the plan that are not finished."""
        parts: dict[str, list[Trial | None]] = {
            f"{SETTINGS[setting]} settings": [t for c in CONTENDERS for t in self.finals(setting, c.name)]
            for setting in ("release", "text")
        }
        for setting, metric in SEARCHES.items():
            models, found = _searched(self.plan, setting), self.searched.get(setting, {})
            parts[f"tuning by {metric}"] = [None for model in models if model.name not in found]
            parts[f"the settings tuned by {metric}"] = [t for c in models for t in self.finals(setting, c.name)]
        parts["the curves"] = [
            t for n in VALUES for s in range(self.plan.curve_seeds) for _, _, t in self.curve(n, s)
        ]
        return [
            name
            for name, trials in parts.items()
            if any(trial is None or trial.key not in self.records for trial in trials)
        ]

    def diverged(self, setting: Setting) -> list[str]:
        """Return the contenders with final trials that diverged."""
        return [
            contender.name
            for contender in CONTENDERS
            if any("error" in self.records.get(trial.key, {}) for trial in self.finals(setting, contender.name))
        ]
