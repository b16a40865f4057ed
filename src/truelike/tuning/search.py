"""`tl.tune`: the best parameters of a model on validation, by the paper's grids, by halving or by Optuna.

A search sees the training and the validation part and nothing else: the test part is never handed to it. All
searches are the same to the last bit when they are run again, which is how a stopped one goes on: trials that are
on disk are not run again, and the next ones follow from them.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import polars as pl

from truelike.data.checks import check_log
from truelike.data.dataset import Dataset
from truelike.errors import MissingExtraError, ParameterError, TruelikeError
from truelike.models.iterative import is_measure
from truelike.training.trainer import DivergedError
from truelike.tuning.grids import Parameters, Stage, paper_stages
from truelike.tuning.runner import Runner
from truelike.tuning.spaces import default_space, draw, plain, suggest
from truelike.tuning.trials import Record, Trial, score

RUNGS = (1 / 9, 1 / 3, 1.0)  # of the epochs; after each the best third goes on
FEWEST = 5  # epochs that tell anything: a shorter rung is left out


@dataclass
class Tuned:
    """What a search found: the best parameters, their figures, and all trials."""

    model: str
    metric: str
    parameters: Parameters
    best: Record
    records: list[Record] = field(repr=False)
    stages: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def score(self) -> float:
        """The metric of the best trial on validation."""
        return score(self.best, self.metric)

    @property
    def trials(self) -> pl.DataFrame:
        """A frame with a row for each trial, the best first."""
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
        """The model with the best parameters, not fitted."""
        return Trial(self.model, {**self.parameters, **more}).make()


def tune(
    model: str | type,
    train: Dataset,
    validation: Dataset,
    *,
    search: Literal["halving", "optuna", "paper"] = "halving",
    metric: str = "ndcg@20",
    n_trials: int = 54,
    space: Mapping[str, Any] | None = None,
    directory: str | Path | None = None,
    jobs: int | None = None,
    seed: int = 0,
    report: Callable[[Record], None] | None = None,
    **fixed: Any,
) -> Tuned:
    """Search for the parameters of a model that are best on validation.

    Parameters
    ----------
    model
        A class or its name, such as "NBPO".
    train, validation
        Two parts of a split. There is no place for the third.
    search
        "halving": many candidates for a few epochs, the best third of them for longer, and so on. "optuna": each
        candidate follows from the results before (TPE). "paper": the grids of the paper, one after another.
    metric
        What is best, such as "ndcg@20" or "f1@2".
    n_trials
        Candidates of "halving" and "optuna"; the paper's grids are as long as they are.
    space
        What "halving" and "optuna" search: name to (low, high), or to a list of values.
    directory
        Where trials are kept; called again with the same directory, a search that was stopped goes on.
    jobs
        Processes; None: one for each core. Never changes the result.
    seed
        Of the search, and of the models.
    report
        Called with the record of each trial that was run.
    **fixed
        Parameters that are not searched.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.split.by_user(tl.synthetic.World(n_users=80, n_items=40).log(), seed=0)
    >>> found = tl.tune("ItemKNN", split.train, split.validation, n_trials=2, space={"neighbors": [5, 20]}, jobs=1)
    >>> found.parameters["neighbors"] in (5, 20)
    True
    """
    check_metric(metric)
    if search not in ("halving", "optuna", "paper"):
        raise ParameterError(f"search is {search!r}; it is 'halving', 'optuna' or 'paper'")
    for what, value in (("n_trials", n_trials), ("jobs", 1 if jobs is None else jobs)):
        if value < 1:
            raise ParameterError(f"{what} is {value}; it is a whole number from 1 up")
    taken = {"seed": "seed", "monitor": "metric", "n_jobs": "jobs"}
    for parameter in fixed:
        if parameter in taken:
            raise ParameterError(f"{parameter} is not for tune to fix: say {taken[parameter]}=... instead")
    check_log(train, "tune", part="train")
    check_log(validation, "tune", part="validation")
    name = model if isinstance(model, str) else model.__name__
    with (
        tempfile.TemporaryDirectory() as spare,
        Runner(directory or spare, train, validation, jobs=jobs, report=report) as runner,
    ):
        if search == "paper":
            return paper_search(runner, name, metric=metric, seed=seed, fixed=fixed)
        chosen = plain(space) if space is not None else default_space(name, fixed)
        if not chosen:
            raise ParameterError(f"{name} has nothing to search for; say what: space={{'name': [1, 2]}}")
        if search == "optuna":
            return optuna_search(runner, name, chosen, metric=metric, n=n_trials, seed=seed, fixed=fixed)
        drawn = [draw(chosen, seed, n) for n in range(n_trials)]
        stages = [Stage("drawn", lambda best: drawn)]
        return staged_search(runner, name, stages, metric=metric, seed=seed, fixed=fixed, rungs=RUNGS)


def check_metric(metric: str) -> None:
    """Raise an error where it is not a metric at a length."""
    if not is_measure(metric):
        raise ParameterError(f"metric is {metric!r}; it is a metric at a length, e.g. 'ndcg@20'")


def paper_search(
    runner: Runner,
    model: str,
    *,
    metric: str = "f1@2",
    seed: int = 0,
    fixed: Parameters | None = None,
    rungs: Sequence[float] = (1.0,),
) -> Tuned:
    """The paper's grids by its authors' recipe; with several `rungs`, each grid is halved on the way."""
    fixed = {"recipe": "paper", "patience": None, **(fixed or {})}
    made: Any = Trial(model).make()
    if not hasattr(made, "learning_rate"):
        raise ParameterError(f"the paper's grids are of learning rates and the like; {model} has none")
    made = Trial(model, fixed).make()
    stages = paper_stages(flips=made.has_flips, flip_rate=made.objective == "ShiftMC")
    return staged_search(runner, model, stages, metric=metric, seed=seed, fixed=fixed, rungs=rungs)


def staged_search(
    runner: Runner,
    model: str,
    stages: Sequence[Stage],
    *,
    metric: str,
    seed: int = 0,
    fixed: Parameters | None = None,
    rungs: Sequence[float] = (1.0,),
) -> Tuned:
    """One grid after another, each around the best of those before."""
    given = fixed or {}  # not searched, even if a grid would
    best = {**given, **of_training(model, metric, seed)}
    seen: dict[str, Record] = {}
    told: list[dict[str, Any]] = []
    winner: Record | None = None
    for stage in stages:
        changes = stage.candidates(Trial(model, best).make().get_params())
        candidates = [{**best, **{k: v for k, v in change.items() if k not in given}} for change in changes]
        results = climb(runner, model, candidates, metric, rungs)
        seen.update({record["key"]: record for record in results.records})
        challenger = max(results.finalists, key=lambda record: score(record, metric))
        if score(challenger, metric) > (float("-inf") if winner is None else score(winner, metric)):
            winner = challenger
            best = dict(challenger["parameters"])
        told.append(
            {
                "stage": stage.name,
                "candidates": [record["key"] for record in results.latest],
                "even": [record["key"] for record in results.records[: len(candidates)]],
            }
        )
    if winner is None:
        raise _all_diverged(model, list(seen.values()))
    return Tuned(model, metric, best, winner, list(seen.values()), told)


def _all_diverged(model: str, records: Sequence[Record]) -> TruelikeError:
    return (ParameterError if any("refused" in record for record in records) else DivergedError)(
        why_none(model, records)
    )


def why_none(model: str, records: Sequence[Record]) -> str:
    """In words, why no trial of a model has a result."""
    failed = [record for record in records if "error" in record]
    refused = [record["error"] for record in failed if "refused" in record]
    if refused:
        return f"{model} cannot be trained on this: {refused[-1]}"
    return f"every trial of {model} diverged; the last said: {failed[-1]['error'] if failed else 'nothing'}"


@dataclass
class Climbed:
    """What became of some candidates: the last record of each, who went all the way, and all records."""

    latest: list[Record]
    places: list[int]
    records: list[Record]

    @property
    def finalists(self) -> list[Record]:
        """The records of those who went all the way."""
        return [self.latest[n] for n in self.places]


Climbing = Generator[list[Trial], list[Record], Climbed]


def climb(
    runner: Runner, model: str, candidates: Sequence[Parameters], metric: str, rungs: Sequence[float]
) -> Climbed:
    """Run all candidates for a part of their epochs, the best third of them for a longer part, and so on."""
    climbing = climb_by_steps(model, candidates, metric, rungs)
    asked = next(climbing)
    while True:
        try:
            asked = climbing.send(runner.run(asked))
        except StopIteration as end:
            found: Climbed = end.value
            return found


def climb_by_steps(
    model: str,
    candidates: Sequence[Parameters],
    metric: str,
    rungs: Sequence[float],
    *,
    keep_first: bool = False,
) -> Climbing:
    """The same for a caller who runs the trials: it gives those of a step, is sent records, empty if not run.

    `keep_first` takes the first candidate all the way, however it starts.
    """
    epochs = getattr(Trial(model, dict(candidates[0])).make(), "epochs", None)
    latest: list[Record] = [{} for _ in candidates]
    records: list[Record] = []

    def run(going: list[int], rung: float) -> Generator[list[Trial], list[Record], None]:
        part = {} if epochs is None or rung == 1.0 else {"epochs": max(1, round(epochs * rung))}
        found = yield [Trial(model, {**candidates[n], **part}, metric=metric) for n in going]
        records.extend(record for record in found if record)
        for place, record in zip(going, found, strict=True):
            latest[place] = record or latest[place]

    going = list(range(len(candidates)))
    waiting: list[int] = []
    for rung in rungs[:-1] if epochs is not None else ():
        if round((epochs or 0) * rung) < FEWEST:
            continue
        yield from run(going, rung)
        going.sort(key=lambda n: (-score(latest[n], metric), n))
        best = max(1, -(-len(going) // 3))
        kept = sorted({*going[:best], *([0] if keep_first else [])})
        waiting, going = [*(n for n in going if n not in kept), *waiting], kept
    yield from run(going, 1.0)
    while waiting and all(score(latest[n], metric) == -math.inf for n in going):
        going = [waiting.pop(0)]  # what was best so far diverged later: the next one
        yield from run(going, 1.0)
    return Climbed(latest, going, records)


def of_training(model: str, metric: str, seed: int) -> Parameters:
    """The seed, and the metric whose best epoch counts, for models that have such."""
    known = {f.name for f in fields(type(Trial(model).make()))}
    return {name: value for name, value in (("monitor", metric), ("seed", seed)) if name in known}


def optuna_search(
    runner: Runner, model: str, space: Mapping[str, Any], *, metric: str, n: int, seed: int, fixed: Parameters
) -> Tuned:
    """TPE in rounds of a few: asked and told in a fixed order, so that the same rounds come again."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError('this search needs optuna: pip install "truelike[tune]"') from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    base = {**fixed, **of_training(model, metric, seed)}
    records: dict[str, Record] = {}
    at_once = 4  # whatever the number of processes: a search must not depend on it
    for first in range(0, n, at_once):
        asked = [study.ask() for _ in range(min(at_once, n - first))]
        trials = [Trial(model, {**base, **suggest(trial, space)}, metric=metric) for trial in asked]
        for trial, record in zip(asked, runner.run(trials), strict=True):
            records[record["key"]] = record
            study.tell(trial, max(score(record, metric), 0.0))
    winner = max(records.values(), key=lambda record: score(record, metric))
    if score(winner, metric) == float("-inf"):
        raise _all_diverged(model, list(records.values()))
    return Tuned(model, metric, dict(winner["parameters"]), winner, list(records.values()))
