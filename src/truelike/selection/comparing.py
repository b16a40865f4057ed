"""A comparison on one split: search, final runs, and the results of each model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.cluster import Cluster
from truelike.core.files import file_name
from truelike.data.splits import Split
from truelike.errors import DataError
from truelike.evaluation.pairs import relevant_items
from truelike.evaluation.seen import Seen, SeenParts
from truelike.selection.comparison import Comparison, ModelResult
from truelike.selection.executor import Executor
from truelike.selection.final_lists import DIRECTORY, check_files, write_lists
from truelike.selection.grids import Stage
from truelike.selection.manifest import MANIFEST
from truelike.selection.plan import Plan
from truelike.selection.progress import TrialLog
from truelike.selection.search import RUNGS, Search, Tuned, no_result_reason, run_searches, staged
from truelike.selection.space import SearchSpace
from truelike.selection.trials import Record, Trial, score
from truelike.selection.variants import Variant


@dataclass(frozen=True)
class Place:
    """Where the trials of a comparison run, and what is stored. It changes no result except times.

    `n_listed` is the length of the lists of the final runs that are kept; 0: none are.
    """

    directory: Path | None
    n_workers: int
    report: Callable[[Record], None] | None = None
    cluster: Cluster | None = None
    n_listed: int = 0

    def within(self, name: str) -> Place:
        """The place of one of several datasets."""
        return replace(self, directory=None if self.directory is None else self.directory / file_name(name))


def compare_on(split: Split, plan: Plan, place: Place, *, from_dataset: bool) -> Comparison:
    """Run a plan on one split."""
    metric, activity = plan.metric, activity_of(split, plan.seen)
    log = TrialLog(metric, place.n_workers)
    for model in plan.models:
        log.expect(model.name, [1.0] * (plan.seeds if "seed" in model.parameter_names else 1), final=True)
    options: dict[str, Any] = {
        "n_workers": place.n_workers,
        "n_jobs": 1,
        "report": place.report,
        "log": log,
        "cluster": place.cluster,
    }
    with (
        tempfile.TemporaryDirectory() as spare,
        Executor(Path(place.directory or spare) / "final", *split.parts, **options) as final,
        Executor(Path(place.directory or spare) / "tuning", split.train, split.validation, **options) as tuning,
    ):
        found = run_searches({each.name: _search(each, plan, log) for each in plan.models}, tuning.run_some)
        tuning.close()  # its processes are no longer needed
        runs = {name: _final_trials(each, plan, place.n_listed) for name, each in found.items()}
        for name, trials in runs.items():
            log.expect(name, [1.0] * len(trials), final=True)
        every = [trial for trials in runs.values() for trial in trials]
        final.forget_incomplete(every)
        final.run_some(every)
        results = [_result(found[model.name], runs[model.name], final, metric) for model in plan.models]
        worked = [trial for trial in every if "test" in trial.record]
        if place.directory is not None and place.n_listed and worked:
            write_lists(place.directory / DIRECTORY, split, worked, final)
    comparison = Comparison(results, plan, split, activity, from_dataset, place.directory)
    if not comparison.ranked:
        reasons = "; ".join(f"{each.model}: {each.reason}" for each in results)
        raise DataError(f"no model could be trained. {reasons}")
    if place.directory is not None:
        comparison.write_config()
        comparison.manifest.write(place.directory / MANIFEST)
    return comparison


def check_data(split: Split, plan: Plan, place: Place) -> None:
    """Raise an error, before the work, for a split on which the plan cannot be run."""
    activity_of(split, plan.seen)
    if place.n_listed:
        check_files(split, [model.name for model in plan.models])


def activity_of(split: Split, seen: SeenParts) -> NDArray[np.int64]:
    """The number of training interactions of each user that is evaluated on the test part."""
    train = split.train
    evaluated = {}
    for name, part, left_out in (
        ("validation", split.validation, Seen(train)),
        ("test", split.test, Seen.of(train, split, seen)),
    ):
        evaluated[name] = np.diff(relevant_items(left_out, part.recode(train.users, train.items)[0]).indptr) > 0
        if evaluated[name].sum() < 2:
            raise DataError(
                f"the {name} part has interactions of {int(evaluated[name].sum())} users that can be evaluated; "
                "two or more are needed. Models are tuned on validation and tested on test: give a Dataset, or a split "
                "with both parts"
            )
    counts: NDArray[np.int64] = np.diff(train.csr.indptr)[evaluated["test"]]
    return counts


def _search(model: Variant, plan: Plan, log: TrialLog) -> Search:
    """The search of one model. The first candidate is the defaults, the others are drawn.

    The defaults are run for all epochs, so that no search ends below them.
    """
    own = model.applicable(plan.fixed)
    space = SearchSpace.of(model, own)
    candidates = [{}, *(space.draw(plan.seed, n) for n in range(1, plan.n_trials if space else 1))]
    stages = [Stage("drawn", lambda best: candidates)]
    return staged(
        model, stages, metric=plan.metric, seed=plan.seed, fixed=own, rungs=RUNGS, log=log, keep_first=True
    )


def _final_trials(found: Tuned, plan: Plan, n_listed: int) -> list[Trial]:
    """The trials that are evaluated on the test part: one for each seed, or one for a model without a seed."""
    if not found.best:
        return []
    numbers = range(plan.seed, plan.seed + plan.seeds) if "seed" in found.parameters else (None,)
    each = [found.parameters if n is None else {**found.parameters, "seed": n} for n in numbers]
    options: dict[str, Any] = {"test": True, "metric": plan.metric, "seen": plan.seen, "n_listed": n_listed}
    return [Trial(found.variant, parameters, **options) for parameters in each]


def _result(found: Tuned, trials: Sequence[Trial], executor: Executor, metric: str) -> ModelResult:
    worked = [trial for trial in trials if "test" in trial.record]
    records = [trial.record for trial in trials if trial.record] if found.best else found.records
    return ModelResult(
        found.variant,
        found.parameters,
        float(np.mean([score(trial.record, metric) for trial in worked])) if worked else found.score,
        found.candidates,
        found.seconds,
        [trial.record for trial in worked],
        np.mean([executor.per_user(trial) for trial in worked], axis=0, dtype=np.float64) if worked else None,
        "" if worked else no_result_reason(found.model, records),
    )
