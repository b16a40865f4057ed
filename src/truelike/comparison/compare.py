"""`tl.compare`: all models on one split, tuned alike, judged once on the test part."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from truelike.comparison.result import Comparison, Contender
from truelike.comparison.search import Found, own, search_all
from truelike.data.checks import check_log, check_number
from truelike.data.dataset import Dataset
from truelike.data.splits import Split, by_user
from truelike.errors import DataError, ParameterError
from truelike.evaluation.evaluate import relevant_items
from truelike.models import REGISTRY, usual_models, variant, variant_name
from truelike.models.default import choose
from truelike.tuning.runner import Runner
from truelike.tuning.search import check_metric, why_none
from truelike.tuning.trials import Record, Trial, score

CANDIDATES = 18  # of each model, where no budget is given


def compare(
    data: Dataset | Split,
    models: str | type | Sequence[str | type] | None = None,
    *,
    metric: str = "ndcg@20",
    n_trials: int | None = None,
    minutes: float | None = None,
    seeds: int = 3,
    directory: str | Path | None = None,
    jobs: int | None = None,
    seed: int = 0,
    report: Callable[[Record], None] | None = None,
    **fixed: Any,
) -> Comparison:
    """Find out which model suits a log: tune each alike on validation, then judge all on the test part.

    Parameters
    ----------
    data
        A log, which is split by user into 80, 10 and 10 %, or a split, which is used as it is.
    models
        Names or classes; a name may bring parameters of its own: "NeuMF:objective=NBPO". None: all but networks,
        and the one that `tl.recommender` would take.
    metric
        What parameters and epochs are chosen by on validation, and models are ranked by on the test part.
    n_trials
        The candidates of each model, halved as `tl.tune` does; 18 where neither this nor `minutes` is given. The
        first is the model as it is. A model with nothing to search is run as it is.
    minutes
        Instead: as many candidates as fit into this time of one process, for each model.
    seeds
        Final runs of each model whose result depends on a seed.
    directory
        Where all runs are kept; called again with the same directory, a comparison that was stopped goes on.
    jobs
        Processes; None: one for each core. Changes no result but times, and what fits into `minutes`.
    seed
        Of the split, the search and the models.
    report
        Called with the record of each run.
    **fixed
        Parameters that are not searched, of those models that have them, e.g. `epochs=30`.

    Examples
    --------
    >>> import truelike as tl
    >>> log = tl.synthetic.World(n_users=150, n_items=80).log()
    >>> found = tl.compare(log, ["ItemPop", "ItemKNN"], n_trials=2, jobs=1)
    >>> found.best in found.sentence
    True
    >>> found.table.columns[:4]
    ['model', 'ndcg@20', 'ndcg@20 low', 'ndcg@20 high']
    """
    names = chosen_models(models)
    check_metric(metric)
    n_trials = _budget(n_trials, minutes)
    for what, value in (("seeds", seeds), ("jobs", 1 if jobs is None else jobs)):
        check_number(what, value, low=1, whole=True)
    check_number("seed", seed, low=0, whole=True)
    _check_fixed(names, fixed)
    split = data if isinstance(data, Split) else _split(data, seed)
    if models is None:
        names = with_default(names, data, fixed)
    activity = _activity(split)
    with (
        tempfile.TemporaryDirectory() as spare,
        _runner(directory or spare, "final", split, split.test, jobs, report) as final,
        _runner(directory or spare, "tuning", split, None, jobs, report) as tuning,
    ):
        found = search_all(
            tuning, names, metric=metric, seed=seed, n_trials=n_trials, minutes=minutes, fixed=fixed
        )
        tuning.close()  # its processes are of no use any more
        runs = {name: _finals(each, metric, seed, seeds) for name, each in found.items()}
        _run_all(final, [trial for trials in runs.values() for trial in trials])
        contenders = [_judged(found[name], runs[name], final, metric) for name in names]
    result = Comparison(
        contenders,
        metric=metric,
        split=split,
        activity=activity,
        budget=f"{n_trials} candidates" if minutes is None else f"{minutes:g} minutes of one process",
        whole=not isinstance(data, Split),
        place=None if directory is None else Path(directory),
    )
    if not result.ranked:
        reasons = "; ".join(f"{each.model}: {each.reason}" for each in contenders)
        raise DataError(f"none of the models could be run. {reasons}")
    if directory is not None:
        result.write_config()
    return result


def chosen_models(models: str | type | Sequence[str | type] | None) -> list[str]:
    """The names of the models asked for, each once.

    >>> chosen_models(["item-knn", "bpr", "BPR", "neumf:objective=NBPO"])
    ['ItemKNN', 'BPR', 'NeuMF:objective=NBPO']
    """
    if models is None:
        return usual_models()
    asked = [models] if isinstance(models, str | type) else list(models)
    if not asked:
        raise ParameterError(f"models is {models!r}; it is one or more of {', '.join(REGISTRY)}, or None for all")
    for model in asked:
        if not isinstance(model, str | type):
            raise ParameterError(
                f"models has {model!r} in it; a comparison makes its models anew: say {type(model).__name__}, or "
                "a name with parameters, such as 'NBPO:factors=64'"
            )
    names = [model if isinstance(model, str) else model.__name__ for model in asked]
    return list(dict.fromkeys(map(variant_name, names)))


def with_default(names: list[str], data: Dataset | Split, fixed: Mapping[str, Any]) -> list[str]:
    """These models, and the one that `tl.recommender` would take, unless what sets it apart is fixed for all."""
    default = choose(data.train if isinstance(data, Split) else data)[0]
    return names if default in names or set(variant(default)[1]) & set(fixed) else [*names, default]


def _budget(n_trials: int | None, minutes: float | None) -> int | None:
    if n_trials is not None and minutes is not None:
        raise ParameterError("n_trials and minutes were both given; the budget of a model is one of them")
    if minutes is not None:
        check_number("minutes", minutes, low=0)
        return None
    check_number("n_trials", CANDIDATES if n_trials is None else n_trials, low=1, whole=True)
    return CANDIDATES if n_trials is None else n_trials


def _check_fixed(names: Sequence[str], fixed: Mapping[str, Any]) -> None:
    taken = {"seed": "seed", "monitor": "metric", "n_jobs": "jobs"}
    for parameter in fixed:
        if parameter in taken:
            raise ParameterError(f"{parameter} is not for compare to fix: say {taken[parameter]}=... instead")
        if not any(parameter in own(name, {parameter: None}) for name in names):
            raise ParameterError(f"none of {', '.join(names)} has a parameter {parameter!r}")
    for name in names:
        Trial(name, own(name, fixed)).make()  # says what is wrong with a value


def _split(log: Any, seed: int) -> Split:
    check_log(log, "compare")
    return by_user(log, validation=0.1, test=0.1, seed=seed)


def _activity(split: Split) -> np.ndarray[Any, Any]:
    """The training votes of each user who is judged on the test part."""
    train = split.train
    judged = {}
    for name, part in (("validation", split.validation), ("test", split.test)):
        check_log(part, "compare", part=name)
        judged[name] = np.diff(relevant_items(train, part.recode(train.users, train.items)[0]).indptr) > 0
        if judged[name].sum() < 2:
            raise DataError(
                f"the {name} part has votes of {int(judged[name].sum())} users; two or more are needed"
            )
    votes: np.ndarray[Any, Any] = train.rows_per_user()[judged["test"]]
    return votes


def _runner(
    directory: str | Path,
    kind: str,
    split: Split,
    test: Dataset | None,
    jobs: int | None,
    report: Callable[[Record], None] | None,
) -> Runner:
    return Runner(Path(directory) / kind, split.train, split.validation, test, jobs=jobs, report=report)


def _finals(found: Found, metric: str, seed: int, seeds: int) -> list[Trial]:
    """The runs that are judged on the test part: one for each seed, or one where there is none to choose."""
    if found.reason:
        return []
    numbers = range(seed, seed + seeds) if "seed" in found.parameters else (None,)
    each = [found.parameters if n is None else {**found.parameters, "seed": n} for n in numbers]
    return [Trial(found.model, parameters, test=True, metric=metric) for parameters in each]


def _run_all(runner: Runner, trials: Sequence[Trial]) -> None:
    """Run them, but no more of a model that a process died of."""
    keys: dict[str, list[str]] = {}
    for trial in trials:
        keys.setdefault(trial.model, []).append(trial.key)
        if not runner.has_users(trial):  # a copy of a directory may lack them
            runner.records.pop(trial.key, None)

    def skip(trial: Trial) -> bool:
        return any("crashed" in runner.records.get(key, {}) for key in keys[trial.model])

    runner.run_some(trials, skip)


def _judged(found: Found, trials: Sequence[Trial], runner: Runner, metric: str) -> Contender:
    records = [runner.records[trial.key] for trial in trials if trial.key in runner.records]
    worked = [trial for trial in trials if "test" in runner.records.get(trial.key, {})]
    reason = found.reason or ("" if worked else why_none(found.model, records))
    return Contender(
        found.model,
        found.parameters,
        score(runner.records[worked[0].key], metric) if worked else found.score,
        found.candidates,
        found.seconds,
        [runner.records[trial.key] for trial in worked],
        np.mean([runner.per_user(trial) for trial in worked], axis=0, dtype=np.float64) if worked else None,
        reason,
    )
