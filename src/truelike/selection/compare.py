"""`tl.compare`: all models on one split, tuned alike, evaluated once on the test part."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from truelike.cluster import Cluster, as_cluster
from truelike.data.checks import check_number
from truelike.data.dataset import Dataset
from truelike.data.splits import Split
from truelike.data.strategies import by_user
from truelike.errors import DataError, ParameterError
from truelike.evaluation.metrics import parse_measure
from truelike.evaluation.pairs import relevant_items
from truelike.evaluation.seen import Seen, SeenParts, check_seen_parts
from truelike.models.registry import REGISTRY, usual_models
from truelike.selection.comparison import Comparison, ModelResult
from truelike.selection.executor import Executor
from truelike.selection.grids import Stage
from truelike.selection.progress import TrialLog
from truelike.selection.records import users_file
from truelike.selection.references import identity, reference
from truelike.selection.search import RUNGS, Search, Tuned, no_result_reason, run_searches, staged
from truelike.selection.space import SearchSpace
from truelike.selection.trials import Record, Trial, score
from truelike.selection.tune import checked_workers
from truelike.selection.variants import Model, Parameters, Variant, variant


def compare(
    data: Dataset | Split,
    models: Model | Sequence[Model] | None = None,
    *,
    metric: str = "ndcg@20",
    by: Literal["time", "random"] | None = None,
    seen: SeenParts = "validation",
    n_trials: int = 18,
    seeds: int = 3,
    directory: str | Path | None = None,
    n_workers: int | None = -1,
    seed: int = 0,
    report: Callable[[Record], None] | None = None,
    cluster: str | Cluster | None = None,
    **fixed: Any,
) -> Comparison:
    """Find out which model suits a dataset: tune each alike on validation, then evaluate all on the test part.

    The best model is the one that is best on validation. The others are tested against it on the test part.

    Parameters
    ----------
    data
        A dataset, of which 10 % of each user's interactions are held out for validation and 10 % for test, with
        fractions rounded at random, or a split. `Comparison.split` is the split that was used.
    models
        Names such as "NBPO" or "NeuMF:objective=NBPO", classes, also of your own, or unfitted models, whose
        parameters are fixed where they differ from the defaults. None is every model except the networks.
    metric
        The metric on validation that parameters, epochs and the best model are chosen by, and the metric on test that
        models are ranked and tested by.
    by
        Which interactions of a dataset are held out: by "time" the last ones of each user, or "random" ones. None:
        by time if the dataset has times. To hold out all interactions after one point in time, pass
        `tl.splits.temporal(data)`; most users may then have none to be tested on, or none to train on.
    seen
        What is left out of the lists on the test part, and does not count as relevant: "validation", the training and
        the validation items of a user, or "train", the training items alone. On validation only training items are.
    n_trials
        Number of candidates of each model, run by successive halving as in `tl.tune`. The first candidate is the
        defaults. A model with nothing to search has one candidate.
    seeds
        Number of final runs of a model whose result depends on a seed.
    directory
        Where all trials are kept. Called again with the same directory, a stopped comparison continues.
    n_workers
        Number of processes; -1 is one for each core, None is 1. Each trial has one thread. Changes no result except
        times. A class that other processes cannot import, such as one of a notebook, is run in this process.
    seed
        Seed of the split, the search and the models.
    report
        Called with the record of each trial that was run.
    cluster
        Run trials on a Ray cluster in place of processes: "local" starts one on this machine, "auto" takes the one
        that this machine belongs to, or its address. With `tl.Cluster(..., threads=2)` each trial has two threads;
        by default one. A trial whose worker is lost is run again. Changes no result except times.
    **fixed
        Parameters that are not searched, for the models that have them, such as `epochs=30`.

    Returns
    -------
    Comparison
        The best model, the table of all and the page of plots.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.synthetic.World(n_users=150, n_items=80).dataset()
    >>> found = tl.compare(data, ["ItemPop", "ItemKNN"], n_trials=2, n_workers=1)
    >>> found.best in found.sentence
    True
    >>> found.table.columns[:4]
    ['model', 'ndcg@20', 'ndcg@20 low', 'ndcg@20 high']
    """
    chosen = chosen_models(models)
    parse_measure(metric)
    check_seen_parts(seen)
    check_number("n_trials", n_trials, low=1, whole=True)
    check_number("seeds", seeds, low=1, whole=True)
    check_number("seed", seed, low=0, whole=True)
    processes, places = checked_workers(n_workers), as_cluster(cluster)
    _check_fixed(chosen, fixed)
    split = _checked_split(data, by, seed)
    activity = _activity(split, seen)
    log = TrialLog(metric, processes)
    for model in chosen:
        log.expect(model.name, [1.0] * (seeds if "seed" in model.parameter_names else 1), final=True)
    options: dict[str, Any] = {
        "n_workers": processes,
        "n_jobs": 1,
        "report": report,
        "log": log,
        "cluster": places,
    }
    with (
        tempfile.TemporaryDirectory() as spare,
        Executor(Path(directory or spare) / "final", *split.parts, **options) as final,
        Executor(Path(directory or spare) / "tuning", split.train, split.validation, **options) as tuning,
    ):
        searches = {each.name: _search(each, metric, seed, n_trials, fixed, log) for each in chosen}
        found = run_searches(searches, tuning.run_some)
        tuning.close()  # its processes are no longer needed
        runs = {name: _final_trials(each, metric, seen, seed, seeds) for name, each in found.items()}
        for name, trials in runs.items():
            log.expect(name, [1.0] * len(trials), final=True)
        for trial in (each for trials in runs.values() for each in trials):
            if not users_file(final.directory, trial.key).exists():  # it may be missing in a copy of a directory
                final.records.pop(trial.key, None)
        final.run_some([trial for trials in runs.values() for trial in trials])
        results = [_result(found[model.name], runs[model.name], final, metric) for model in chosen]
    comparison = Comparison(
        results,
        metric=metric,
        split=split,
        activity=activity,
        budget=f"{n_trials} candidates",
        from_dataset=not isinstance(data, Split),
        directory=None if directory is None else Path(directory),
    )
    if not comparison.ranked:
        reasons = "; ".join(f"{each.model}: {each.reason}" for each in results)
        raise DataError(f"no model could be trained. {reasons}")
    if directory is not None:
        comparison.write_config()
    return comparison


def chosen_models(models: Model | Sequence[Model] | None) -> list[Variant]:
    """Resolve the models that were asked for, each once, under names that differ.

    >>> [model.name for model in chosen_models(["item-knn", "bpr", "BPR", "neumf:objective=NBPO"])]
    ['ItemKNN', 'BPR', 'NeuMF:objective=NBPO']
    """
    if models is None:
        return [variant(name) for name in usual_models()]
    asked: list[Model] = list(models) if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    if not asked:
        raise ParameterError(
            f"models is {models!r}; give one or more of {', '.join(REGISTRY)}, classes of your own, or None for "
            "all models except networks"
        )
    different: dict[str, Variant] = {}
    for model in asked:
        resolved = variant(model)
        different.setdefault(_identity(resolved), resolved)
    return _with_unique_names(list(different.values()))


def _identity(model: Variant) -> str:
    parameters = {name: identity(value) for name, value in model.parameters.items()}
    return f"{identity(model.model_class)} {sorted(parameters.items())}"


def _with_unique_names(models: list[Variant]) -> list[Variant]:
    """Name classes of one name by their modules, and by a number where that is the same, too."""
    names = [model.name for model in models]
    named: dict[str, Variant] = {}
    for model in models:
        name = model.name
        if names.count(name) > 1 and not model.model_class.__module__.startswith("truelike."):
            name = reference(model.model_class).replace(":", ".") + name[len(model.model_class.__name__) :]
        number, unique = 1, name
        while unique in named:
            number += 1
            unique = f"{name} ({number})"
        named[unique] = replace(model, name=unique)
    return list(named.values())


def _check_fixed(models: Sequence[Variant], fixed: Parameters) -> None:
    for parameter in fixed:
        if not any(parameter in model.parameter_names for model in models):
            raise ParameterError(f"none of {', '.join(map(str, models))} has a parameter {parameter!r}")
    for model in models:
        model.make(model.applicable(fixed))  # raises for a wrong value


def _checked_split(data: object, by: Literal["time", "random"] | None, seed: int) -> Split:
    if isinstance(data, Split):
        if by is not None:
            raise ParameterError(
                f"by is {by!r}, and the data is a split already: give a Dataset, or leave out `by`"
            )
        return data
    if isinstance(data, Dataset):
        return by_user(data, validation=0.1, test=0.1, by=by, rounding="random", seed=seed)
    raise DataError(
        f"compare takes a Dataset or a Split, not {type(data).__name__}: use tl.read(rows), or "
        "tl.Split(tl.read(train), tl.read(validation), tl.read(test)) for a split of your own"
    )


def _activity(split: Split, seen: SeenParts) -> NDArray[np.int64]:
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
                "two or more are needed"
            )
    counts: NDArray[np.int64] = np.diff(train.csr.indptr)[evaluated["test"]]
    return counts


def _search(model: Variant, metric: str, seed: int, n_trials: int, fixed: Parameters, log: TrialLog) -> Search:
    """The search of one model. The first candidate is the defaults, the others are drawn.

    The defaults are run for all epochs, so that no search ends below them.
    """
    own = model.applicable(fixed)
    space = SearchSpace.of(model, own)
    candidates = [{}, *(space.draw(seed, n) for n in range(1, n_trials if space else 1))]
    stages = [Stage("drawn", lambda best: candidates)]
    return staged(model, stages, metric=metric, seed=seed, fixed=own, rungs=RUNGS, log=log, keep_first=True)


def _final_trials(found: Tuned, metric: str, seen: SeenParts, seed: int, seeds: int) -> list[Trial]:
    """The trials that are evaluated on the test part: one for each seed, or one for a model without a seed."""
    if not found.best:
        return []
    numbers = range(seed, seed + seeds) if "seed" in found.parameters else (None,)
    each = [found.parameters if n is None else {**found.parameters, "seed": n} for n in numbers]
    return [Trial(found.variant, parameters, test=True, metric=metric, seen=seen) for parameters in each]


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
