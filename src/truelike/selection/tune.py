"""`tl.tune`: the parameters of a model that are best on validation, by halving, Optuna or the paper's grids.

A search uses the training and the validation part and is never given the test part.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from truelike.cluster import Cluster, as_cluster
from truelike.core.parallel import threads
from truelike.core.parameters import parse
from truelike.data.checks import check_number
from truelike.data.dataset import Dataset
from truelike.data.new_users import NewUserSplit
from truelike.data.splits import Split
from truelike.errors import DataError, MissingExtraError, ParameterError
from truelike.evaluation.metrics import parse_measure
from truelike.selection.executor import Executor
from truelike.selection.grids import Stage, paper_stages
from truelike.selection.progress import TrialLog
from truelike.selection.search import RUNGS, Search, Tuned, run_search, staged
from truelike.selection.space import SearchSpace
from truelike.selection.trials import Record, Trial
from truelike.selection.variants import Model, Parameters, Variant, learns_flips, variant

SUGGESTED_AT_ONCE = 4  # trials of Optuna; fixed, so that the result does not depend on n_workers


def tune(
    model: Model,
    split: Split,
    *,
    search: Literal["halving", "optuna", "paper"] = "halving",
    metric: str = "ndcg@20",
    n_trials: int = 54,
    search_space: Mapping[str, object] | None = None,
    directory: str | Path | None = None,
    n_workers: int | None = -1,
    seed: int = 0,
    report: Callable[[Record], None] | None = None,
    cluster: str | Cluster | None = None,
    **fixed: Any,
) -> Tuned:
    """Search for the parameters of a model that are best on validation.

    Parameters
    ----------
    model
        A name such as "NBPO" or "NBPO:factors=64", a class, also of your own, or an unfitted model, whose
        parameters are fixed where they differ from the defaults.
    split
        The training and the validation part are used. The test part is not.
    search
        "halving": many candidates for a few epochs, the best third of them for longer, and so on. "optuna": each
        candidate follows from earlier results (TPE). "paper": the paper's grids, one after another.
    metric
        The metric to maximize, such as "ndcg@20" or "f1@2".
    n_trials
        Number of candidates of "halving" and "optuna".
    search_space
        What "halving" and "optuna" search: (low, high) or a list of values for each parameter. None is the class
        attribute `search_space` of the model; the first candidate is then the model at its defaults.
    directory
        Where trials are kept. Called again with the same directory, a stopped search continues.
    n_workers
        Number of processes; -1 is one for each core, None is 1. The cores are divided among them. Never changes the
        result. A class that other processes cannot import, such as one of a notebook, is run in this process.
    seed
        Seed of the search and of the models.
    report
        Called with the record of each trial that was run.
    cluster
        Run trials on a Ray cluster in place of processes: "local" starts one on this machine, "auto" takes the one
        that this machine belongs to, or its address. With `tl.Cluster(..., threads=2)` each trial has two threads;
        by default one. A trial whose worker is lost is run again. Never changes the result.
    **fixed
        Parameters of the model that are not searched.

    Returns
    -------
    Tuned
        The best parameters, their score and all trials; `make()` creates the model.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=80, n_items=40).dataset(), seed=0)
    >>> found = tl.tune("ItemKNN", split, n_trials=2, search_space={"neighbors": [5, 20]}, n_workers=1)
    >>> found.parameters["neighbors"] in (5, 20)
    True
    >>> model = found.make().fit(split.train)
    """
    chosen = variant(model)
    parse_measure(metric)
    if search not in ("halving", "optuna", "paper"):
        raise ParameterError(f"search is {search!r}; it must be 'halving', 'optuna' or 'paper'")
    check_number("n_trials", n_trials, low=1, whole=True)
    check_number("seed", seed, low=0, whole=True)
    processes, places = checked_workers(n_workers), as_cluster(cluster)
    parse(chosen.model_class, fixed)  # raises for a name that the class does not have
    chosen.make(fixed)  # raises for a wrong value
    _check_split(split)
    log = TrialLog(metric, processes)
    chosen_search = (
        paper_search(chosen, metric=metric, seed=seed, fixed=fixed, log=log)
        if search == "paper"
        else _space_search(search, chosen, search_space, metric, n_trials, seed, fixed, log)
    )
    with (
        tempfile.TemporaryDirectory() as spare,
        Executor(
            directory or spare, split.train, split.validation, n_workers=processes, report=report, log=log,
            cluster=places,
        ) as executor,
    ):  # fmt: skip
        return run_search(chosen_search, executor.run)


def _space_search(
    search: str,
    model: Variant,
    search_space: Mapping[str, object] | None,
    metric: str,
    n_trials: int,
    seed: int,
    fixed: Parameters,
    log: TrialLog,
) -> Search:
    """The search of "halving" or "optuna". In the space of the class, the first candidate is the defaults."""
    space = SearchSpace.of(model, fixed) if search_space is None else SearchSpace.given(search_space)
    parse(model.model_class, dict.fromkeys(space.axes))
    if not space:
        raise ParameterError(f"{model} has nothing to search; give search_space={{'parameter': [value, value]}}")
    first = [space.defaults(model, fixed)] if search_space is None else []
    if search == "optuna":
        try:
            import optuna  # noqa: F401
        except ImportError as error:
            raise MissingExtraError('search="optuna" needs optuna: pip install "truelike[tune]"') from error
        return _optuna_search(model, space, first, metric=metric, n=n_trials, seed=seed, fixed=fixed, log=log)
    drawn = [*first, *(space.draw(seed, n) for n in range(n_trials - len(first)))]
    stages = [Stage("drawn", lambda best: drawn)]
    return staged(model, stages, metric=metric, seed=seed, fixed=fixed, rungs=RUNGS, log=log)


def _check_split(split: object) -> None:
    """Raise DataError, with what to write instead, for anything but a split with a validation part."""
    if isinstance(split, Split):
        if not split.validation.n_interactions:
            raise DataError(
                "the split has no validation part, which tune searches on: split again with validation=0.1"
            )
        return
    if isinstance(split, Dataset):
        remedy = "tl.splits.by_user(data) splits a dataset"
    elif isinstance(split, NewUserSplit):
        remedy = "tune on tl.splits.by_user(split.train), a split of its training part"
    else:
        remedy = (
            "tl.Split(tl.read(train), tl.read(validation), tl.read(test)) makes one of your own files or frames"
        )
    raise DataError(f"tune takes a Split, not {type(split).__name__}: {remedy}")


def checked_workers(n_workers: int | None) -> int:
    """The number of processes; raise ParameterError for what is not a number of them."""
    if n_workers is not None:
        check_number("n_workers", n_workers, whole=True)
    if n_workers == 0:
        raise ParameterError("n_workers is 0; it is a number of processes, -1 for all cores, or None for 1")
    return threads(n_workers)


def paper_search(
    model: Variant, *, metric: str = "f1@2", seed: int = 0, fixed: Parameters, log: TrialLog
) -> Search:
    """The search of the paper's grids with the authors' recipe."""
    if not {"learning_rate", "recipe"} <= set(model.parameter_names):
        raise ParameterError(
            f"search='paper' needs a model with learning_rate and recipe; {model} does not have them"
        )
    fixed = {**model.applicable({"recipe": "paper", "patience": None}), **fixed}
    made = model.make(fixed)
    flip_rate = getattr(made, "objective", None) == "ShiftMC" and "flip_rate" in made.get_params()
    stages = paper_stages(flips=learns_flips(made), flip_rate=flip_rate)
    return staged(model, stages, metric=metric, seed=seed, fixed=fixed, log=log)


def _optuna_search(
    model: Variant,
    space: SearchSpace,
    first: list[Parameters],
    *,
    metric: str,
    n: int,
    seed: int,
    fixed: Parameters,
    log: TrialLog,
) -> Search:
    """The search by TPE: after `first` a few trials at a time, suggested and reported in a fixed order."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    base = {**fixed, **model.of_training(metric, seed)}
    log.expect(model.name, [1.0] * n)
    trials = [Trial(model, {**base, **each}, metric=metric) for each in first]
    yield trials
    for start in range(len(first), n, SUGGESTED_AT_ONCE):
        asked = [study.ask() for _ in range(min(SUGGESTED_AT_ONCE, n - start))]
        suggested = [Trial(model, {**base, **space.suggest(each)}, metric=metric) for each in asked]
        yield suggested
        for each, trial in zip(asked, suggested, strict=True):
            study.tell(each, max(trial.score(), 0.0))
        trials += suggested
    records = {trial.key: trial.record for trial in trials}
    winner = max(trials, key=Trial.score)
    best = winner.record if winner.score() > float("-inf") else {}
    return Tuned(model, metric, dict(winner.parameters), best, list(records.values()))
