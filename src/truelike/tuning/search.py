"""`tl.tune`: the parameters of a model that are best on validation, by halving, Optuna or the paper's grids.

A search uses the training and the validation part and is never given the test part. Every search is deterministic.
That is how a stopped one is resumed: the trials on disk are not run again, and the next ones follow from them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl

from truelike.cluster import Cluster, as_cluster
from truelike.data.checks import check_number
from truelike.data.dataset import Dataset
from truelike.data.splits import Split
from truelike.errors import DataError, DivergedError, MissingExtraError, ParameterError, TruelikeError
from truelike.parallel import threads
from truelike.tuning.grids import Parameters, Stage, paper_stages
from truelike.tuning.halving import RUNGS, Expect, halve, parameters_of, trial_lengths, winner_of
from truelike.tuning.progress import TrialLog
from truelike.tuning.runner import Runner
from truelike.tuning.spaces import checked_space, default_space, draw, suggest, usual_values
from truelike.tuning.trials import Record, Trial, check_metric, score
from truelike.tuning.variants import Model, Variant, learns_flips, variant

AT_ONCE = 4  # trials that Optuna suggests at a time; fixed, so that the result does not depend on n_jobs


@dataclass(repr=False)
class Tuned:
    """The result of a search.

    Attributes
    ----------
    variant
        The model class, with the parameters that its name fixes.
    metric
        The metric on validation that candidates were compared by.
    parameters
        The best parameters.
    best
        The record of the best trial.
    records
        The records of all trials.
    stages
        For each grid, the keys of its trials.
    """

    variant: Variant
    metric: str
    parameters: Parameters
    best: Record
    records: list[Record]
    stages: list[dict[str, Any]] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Tuned({self.make()!r}: {self.metric} {self.score:.4f} on validation, {len(self.records)} trials)"

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.variant.name

    @property
    def score(self) -> float:
        """The metric of the best trial on validation."""
        return score(self.best, self.metric)

    @property
    def trials(self) -> pl.DataFrame:
        """A frame with one row a trial, the best first."""
        names = list(dict.fromkeys(name for record in self.records for name in record["parameters"]))
        rows = sorted(self.records, key=lambda record: -score(record, self.metric))
        return pl.DataFrame(
            {
                self.metric: [score(record, self.metric) for record in rows],
                "seconds": [record["seconds"] for record in rows],
                **{name: [record["parameters"].get(name) for record in rows] for name in names},
            },
            strict=False,
        )

    def make(self, **more: Any) -> Any:
        """Create the unfitted model with the best parameters."""
        return self.variant.make({**self.parameters, **more})


def tune(
    model: Model,
    split: Split,
    *,
    search: Literal["halving", "optuna", "paper"] = "halving",
    metric: str = "ndcg@20",
    n_trials: int = 54,
    search_space: Mapping[str, Any] | None = None,
    directory: str | Path | None = None,
    n_jobs: int | None = -1,
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
    n_jobs
        Number of processes; -1 is one for each core, None is 1. Never changes the result. A class that other
        processes cannot import, such as one of a notebook, is run in this process.
    seed
        Seed of the search and of the models.
    report
        Called with the record of each trial that was run.
    cluster
        Run trials on a Ray cluster in place of `n_jobs` processes: "local" starts one on this machine, "auto" takes the
        one that this machine belongs to, or its address. With `tl.Cluster(..., threads=2)` each trial has two threads;
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
    >>> found = tl.tune("ItemKNN", split, n_trials=2, search_space={"neighbors": [5, 20]}, n_jobs=1)
    >>> found.parameters["neighbors"] in (5, 20)
    True
    >>> model = found.make().fit(split.train)
    """
    chosen = variant(model)
    check_metric(metric)
    if search not in ("halving", "optuna", "paper"):
        raise ParameterError(f"search is {search!r}; it must be 'halving', 'optuna' or 'paper'")
    check_number("n_trials", n_trials, low=1, whole=True)
    check_number("seed", seed, low=0, whole=True)
    processes, places = checked_jobs(n_jobs), as_cluster(cluster)
    check_fixed(fixed, "tune")
    chosen.check(fixed)
    chosen.make(fixed)  # raises for a wrong value
    check_split(split, "tune")
    space: dict[str, Any] = {}
    if search != "paper":
        space = checked_space(search_space) if search_space is not None else default_space(chosen, fixed)
        chosen.check(dict.fromkeys(space))
        if not space:
            raise ParameterError(
                f"{chosen} has nothing to search; give search_space={{'parameter': [value, value]}}"
            )
    first = [usual_values(chosen, space, fixed)] if space and search_space is None else []
    with (
        tempfile.TemporaryDirectory() as spare,
        Runner(
            directory or spare, split.train, split.validation, n_jobs=processes, report=report,
            log=TrialLog(metric, processes), local_n_jobs=processes, cluster=places,
        ) as runner,
    ):  # fmt: skip
        if search == "paper":
            return paper_search(runner, chosen, metric=metric, seed=seed, fixed=fixed)
        if search == "optuna":
            return optuna_search(
                runner, chosen, space, metric=metric, n=n_trials, seed=seed, fixed=fixed, first=first
            )
        drawn = [*first, *(draw(space, seed, n) for n in range(n_trials - len(first)))]
        stages = [Stage("drawn", lambda best: drawn)]
        return staged_search(runner, chosen, stages, metric=metric, seed=seed, fixed=fixed, rungs=RUNGS)


def check_split(split: Any, function: str) -> None:
    """Raise DataError, with what to write instead, for anything but a Split."""
    if isinstance(split, Split):
        if not split.validation.n_interactions:
            raise DataError(
                f"the split has no validation part, which {function} searches on: split again with validation=0.1"
            )
        return
    remedy = (
        "tl.splits.by_user(data) splits a dataset"
        if isinstance(split, Dataset)
        else "tl.Split(tl.read(train), tl.read(validation), tl.read(test)) makes one of your own files or frames"
    )
    raise DataError(f"{function} takes a Split, not {type(split).__name__}: {remedy}")


def check_fixed(fixed: Mapping[str, Any], function: str) -> None:
    """Raise ParameterError for a parameter that the search sets itself."""
    if "monitor" in fixed:
        raise ParameterError(f"{function} sets monitor itself; use metric={fixed['monitor']!r} instead")


def checked_jobs(n_jobs: int | None) -> int:
    """The number of processes; raise ParameterError for what is not a number of them."""
    if n_jobs is not None:
        check_number("n_jobs", n_jobs, whole=True)
    return threads(n_jobs)


def paper_search(
    runner: Runner,
    model: Model,
    *,
    metric: str = "f1@2",
    seed: int = 0,
    fixed: Parameters | None = None,
    rungs: Sequence[float] = (1.0,),
) -> Tuned:
    """Search the paper's grids with the authors' recipe; with several `rungs`, each grid is halved."""
    chosen = variant(model)
    if not {"learning_rate", "recipe"} <= set(chosen.parameter_names):
        raise ParameterError(
            f"search='paper' needs a model with learning_rate and recipe; {chosen} does not have them"
        )
    fixed = {**chosen.applicable({"recipe": "paper", "patience": None}), **(fixed or {})}
    made: Any = chosen.make(fixed)
    flip_rate = getattr(made, "objective", None) == "ShiftMC"
    stages = paper_stages(flips=learns_flips(made), flip_rate=flip_rate)
    return staged_search(runner, chosen, stages, metric=metric, seed=seed, fixed=fixed, rungs=rungs)


def staged_search(
    runner: Runner,
    model: Model,
    stages: Sequence[Stage],
    *,
    metric: str,
    seed: int = 0,
    fixed: Parameters | None = None,
    rungs: Sequence[float] = (1.0,),
) -> Tuned:
    """Search one grid after another, each around the best setting so far."""
    chosen = variant(model)
    given = {**chosen.parameters, **(fixed or {})}  # not searched, even if a grid has them
    best: Parameters = {**(fixed or {}), **chosen.of_training(metric, seed)}
    seen: dict[str, Record] = {}
    told: list[dict[str, Any]] = []
    winner: Record | None = None
    for number, stage in enumerate(stages, 1):
        candidates = _candidates(chosen, stage, best, given)
        expect = _expect(runner, chosen, stages[number:], {**best, **candidates[0]}, given, rungs)
        found = halve(runner.run, chosen, candidates, metric, rungs, expect)
        seen.update({record["key"]: record for record in found.records})
        challenger = max(found.finalists, key=lambda record: score(record, metric))
        if score(challenger, metric) > (float("-inf") if winner is None else score(winner, metric)):
            winner = challenger
            best = parameters_of(found.trials, challenger)
        told.append(
            {
                "stage": stage.name,
                "candidates": [record["key"] for record in found.latest],
                "even": [record["key"] for record in found.records[: len(candidates)]],
            }
        )
    if winner is None:
        raise _no_result(chosen.name, list(seen.values()))
    return Tuned(chosen, metric, best, winner, list(seen.values()), told)


def _candidates(model: Variant, stage: Stage, best: Parameters, given: Mapping[str, Any]) -> list[Parameters]:
    """The candidates of a stage around the best setting so far, without changes of fixed parameters."""
    changes = stage.candidates(model.make(best).get_params())
    return [{**best, **{name: value for name, value in change.items() if name not in given}} for change in changes]


def _expect(
    runner: Runner,
    model: Variant,
    later: Sequence[Stage],
    best: Parameters,
    given: Mapping[str, Any],
    rungs: Sequence[float],
) -> Expect | None:
    """A function that announces the trials of a stage, and those of the stages after it, to the log."""
    log = runner.log
    if log is None:
        return None
    sizes = [len(_candidates(model, stage, best, given)) for stage in later]
    after = [length for size in sizes for length in trial_lengths(size, rungs)]
    return lambda lengths: log.expect(model.name, [*lengths, *after])


def _no_result(model: str, records: Sequence[Record]) -> TruelikeError:
    refused = any("refused" in record for record in records)
    return (ParameterError if refused else DivergedError)(no_result_reason(model, records))


def no_result_reason(model: str, records: Sequence[Record]) -> str:
    """Say why no trial of a model has a result."""
    failed = [record for record in records if "error" in record]
    refused = [record["error"] for record in failed if "refused" in record]
    if refused:
        return f"{model} cannot be trained on this dataset: {refused[-1]}"
    return f"every trial of {model} diverged; the last error: {failed[-1]['error'] if failed else 'none'}"


def optuna_search(
    runner: Runner,
    model: Model,
    space: Mapping[str, Any],
    *,
    metric: str,
    n: int,
    seed: int,
    fixed: Parameters,
    first: Sequence[Parameters] = (),
) -> Tuned:
    """Search by TPE, a few trials at a time, suggested and reported in a fixed order, after the candidates `first`."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError('search="optuna" needs optuna: pip install "truelike[tune]"') from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    chosen = variant(model)
    base = {**fixed, **chosen.of_training(metric, seed)}
    if runner.log is not None:
        runner.log.expect(chosen.name, [1.0] * n)
    given = [Trial(chosen, {**base, **each}, metric=metric) for each in first]
    trials: list[tuple[Trial, Record]] = list(zip(given, runner.run(given), strict=True))
    for start in range(len(given), n, AT_ONCE):
        asked = [study.ask() for _ in range(min(AT_ONCE, n - start))]
        suggested = [Trial(chosen, {**base, **suggest(each, space)}, metric=metric) for each in asked]
        for each, trial, record in zip(asked, suggested, runner.run(suggested), strict=True):
            trials.append((trial, record))
            study.tell(each, max(score(record, metric), 0.0))
    records = list({record["key"]: record for _, record in trials}.values())
    winner, best = winner_of(trials, metric)
    if score(best, metric) == float("-inf"):
        raise _no_result(chosen.name, records)
    return Tuned(chosen, metric, dict(winner.parameters), best, records)
