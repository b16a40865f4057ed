"""The epoch loop: early stopping, callbacks, checkpoints and the search for the number of epochs.

A model describes its training once (`Training`) and calls `fit_epochs`. The loop knows nothing of what it trains: an
engine runs an epoch, and a ranker ranks for the evaluation on held-out interactions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import polars as pl

from truelike.core.progress import note
from truelike.data.dataset import Dataset
from truelike.data.splits import hold_out
from truelike.engines.callbacks import KeepBest, Progress
from truelike.engines.checkpoint import Checkpoint, check_checkpoint_place, fingerprint
from truelike.engines.engine import Engine, State, Trained, close
from truelike.engines.options import Callback, FitOptions
from truelike.errors import DataError, DataWarning, DivergedError, StorageError, TrainingWarning, warn

MIN_HELD_OUT = 50  # held-out interactions needed to choose the number of epochs
LARGEST_FACTOR = 1e4  # no useful factor comes near it; the authors' release stops at a sum of 1e10


T = TypeVar("T", bound=Trained)


@dataclass(frozen=True)
class Training(Generic[T]):
    """How a model is trained.

    Attributes
    ----------
    name
        Name of the model, for messages.
    initial
        Returns the initial parameters for a dataset.
    engine
        Returns the engine that trains parameters on a dataset.
    ranker
        Returns a fitted model with the given parameters, for the evaluation after an epoch.
    epochs, metric, patience, seed, n_jobs
        The model's parameters of these names.
    identity
        All that decides the result beside the data, for the fingerprint of a checkpoint.
    advice
        What to try when training diverges: the end of an error message.
    """

    name: str
    initial: Callable[[Dataset], T]
    engine: Callable[[Dataset, T], Engine]
    ranker: Callable[[Dataset, T], Any]
    epochs: int
    metric: str
    patience: int | None
    seed: int
    n_jobs: int | None
    identity: Mapping[str, Any]
    advice: str

    @classmethod
    def of(cls, model: Any, **how: Any) -> Training[T]:
        """The training of a model, which has the name and the parameters that every training has."""
        own = ("name", "epochs", "metric", "patience", "seed", "n_jobs")
        return cls(**{name: getattr(model, name) for name in own}, **how)

    def check(self, trained: T) -> None:
        """Raise DivergedError if a parameter is not finite or absurdly large."""
        largest = trained.largest()
        if not largest < LARGEST_FACTOR:
            raise DivergedError(f"{self.name} diverged: a factor reached {largest:.3g} {self.advice}")


@dataclass(frozen=True)
class Result(Generic[T]):
    """What `fit_epochs` returns.

    Attributes
    ----------
    trained
        The parameters of the best epoch on validation, otherwise of the last.
    history
        One row per epoch: epoch, seconds, loss and the validation metrics.
    search_history
        The same of the search for the number of epochs; None if there was none.
    """

    trained: T
    history: pl.DataFrame
    search_history: pl.DataFrame | None = None


def fit_epochs(training: Training[T], train: Dataset, options: FitOptions) -> Result[T]:
    """Train from the start.

    With a validation part, the best epoch is kept. With a share, a share of the interactions is held out to find
    the number of epochs, and then all interactions are trained on for as many.
    """
    if not isinstance(options.validation, float):
        trained, history = _run(training, train, options, options.validation, training.epochs, "only")
        return Result(trained, history)
    search = _search(training, train, options)
    epochs = training.epochs if search is None else _best_epoch(search, training.metric) + 1
    trained, history = _run(training, train, options, None, epochs, "all")
    return Result(trained, history, search)


def continue_epochs(
    training: Training[T], train: Dataset, trained: T, epochs: int, *, progress: bool
) -> Result[T]:
    """Train further for some epochs, at the learning rates that follow the last of `training.epochs`."""
    engine = training.engine(train, trained)
    done = training.epochs
    bar = Progress(training.name, epochs, train.n_interactions, None, show=progress, first=done)
    try:
        state = run_epochs(
            engine, done + epochs, check=lambda: training.check(trained), callbacks=[bar],
            within_epoch=bar.within, state=State(done - 1, 0),
        )  # fmt: skip
    finally:
        bar.close()
    return Result(trained, state.history())


def run_epochs(
    engine: Engine,
    epochs: int,
    *,
    check: Callable[[], None] | None = None,
    callbacks: Sequence[Callback] = (),
    measure: Callable[[], dict[str, float]] | None = None,
    within_epoch: Callable[[int, int], None] | None = None,
    state: State | None = None,
) -> State:
    """Run epochs until `epochs` are done or a callback stops.

    Parameters
    ----------
    engine
        Runs an epoch.
    epochs
        Number of epochs in all.
    check
        Called after each epoch; raises if training has diverged.
    callbacks
        Called after each epoch, in this order.
    measure
        Returns the validation metrics after an epoch.
    within_epoch
        Called with (epoch, samples done) now and then.
    state
        Where to continue from; None: the start.
    """
    state = state or State(epoch=-1, epochs=epochs)
    state.epochs = epochs
    for number in range(state.epoch + 1, epochs):
        started = time.perf_counter()
        engine.epoch(number, None if within_epoch is None else lambda done, n=number: within_epoch(n, done))  # type: ignore[misc]
        seconds = time.perf_counter() - started
        if check is not None:
            check()
        row = {"epoch": number, "seconds": seconds, "loss": engine.loss(), **(measure() if measure else {})}
        state.epoch = number
        state.rows.append(row)
        for callback in callbacks:
            callback(state)
        if state.stop:
            break
    return state


def _search(training: Training[T], train: Dataset, options: FitOptions) -> pl.DataFrame | None:
    """The history of a training on part of the interactions, evaluated on the others; None if these are too few."""
    share = options.validation
    assert isinstance(share, float)
    rest, held_out = hold_out(train, share, training.seed)
    if held_out.n_interactions < MIN_HELD_OUT or not training.epochs:
        if share:
            warn(
                f"{held_out.n_interactions:,} held-out interactions are too few to find the number of epochs: "
                f"all {training.epochs} are run",
                DataWarning,
            )
        return None
    _, history = _run(training, rest, options, held_out, training.epochs, "search")
    best = _best_epoch(history, training.metric)
    note(
        f"{training.name}: best after epoch {best + 1} of {training.epochs} by {training.metric} on "
        f"{held_out.n_interactions:,} held-out interactions ({history[training.metric][best]:.4f}); "
        "training on all interactions for as many epochs"
    )
    return history


def _run(
    training: Training[T],
    train: Dataset,
    options: FitOptions,
    validation: Dataset | None,
    epochs: int,
    phase: Literal["only", "search", "all"],
) -> tuple[T, pl.DataFrame]:
    """The parameters of the best epoch on validation, otherwise of the last, and the history."""
    trained = training.initial(train)
    engine = training.engine(train, trained)
    try:
        return _trained(training, train, options, validation, epochs, phase, trained, engine)
    finally:
        close(engine)


def _trained(
    training: Training[T],
    train: Dataset,
    options: FitOptions,
    validation: Dataset | None,
    epochs: int,
    phase: Literal["only", "search", "all"],
    trained: T,
    engine: Engine,
) -> tuple[T, pl.DataFrame]:
    """What `_run` returns, by an engine that trains `trained`."""
    best = measure = None
    if validation is not None and validation.n_interactions:
        measure, popularity = _measures(training, train, validation, trained)
        best = KeepBest(training.metric, trained.copy, training.patience, floor=popularity)
    bar = Progress(training.name, epochs, train.n_interactions, training.metric, show=options.progress)
    own = () if phase == "search" else options.callbacks
    callbacks: list[Callback] = [*([best] if best else []), bar, *own]
    state = None
    if options.checkpoint is not None:
        place = Path(options.checkpoint).absolute()
        place = place.with_name(f"{place.name}-held-out") if phase == "search" else place
        check_checkpoint_place(place)
        held_out = None if validation is None else fingerprint(validation, {})
        found = {"found": epochs} if phase == "all" else {}
        mark = fingerprint(train, {**training.identity, "validation": held_out, **found})
        saver = Checkpoint(
            place, engine, best, mark, epochs=options.checkpoint_epochs, minutes=options.checkpoint_minutes
        )
        state = saver.read(trained) if options.resume else None
        if state is not None and state.epoch >= epochs:
            raise StorageError(
                f"the checkpoint in {str(place)!r} is after epoch {state.epoch + 1}, and epochs is {epochs}: "
                "train for as many at least, or delete it"
            )
        callbacks.append(saver)
    try:
        if state is None or best is None or not best.exhausted(state.epoch):
            state = run_epochs(
                engine, epochs, check=lambda: training.check(trained), callbacks=callbacks, measure=measure,
                within_epoch=bar.within, state=state,
            )  # fmt: skip
    finally:
        bar.close()
    if best is not None and state.rows and validation is not None:
        _warn_if_no_better_than_popularity(training, best, validation)
    return best.best if best is not None and best.best is not None else trained, state.history()


def _measures(
    training: Training[T], train: Dataset, validation: Dataset, trained: T
) -> tuple[Callable[[], dict[str, float]], float]:
    """A function that evaluates the parameters as they are now, and the value of the popularity ranking."""
    from truelike.evaluation.baseline import popularity_baseline
    from truelike.evaluation.evaluate import KS, evaluate
    from truelike.evaluation.metrics import parse_measure

    popularity = popularity_baseline(train, validation, training.metric)
    if math.isnan(popularity):
        raise DataError("every validation interaction is also in the training data, so none can be ranked")
    metric, k = parse_measure(training.metric)
    ranker = training.ranker(train, trained)
    metrics, ks = tuple(dict.fromkeys(("f1", "ndcg", metric))), tuple(sorted({*KS, k}))

    def measure() -> dict[str, float]:
        return evaluate(ranker, validation, ks=ks, metrics=metrics, n_jobs=training.n_jobs, notes=False).means()

    return measure, popularity


def _warn_if_no_better_than_popularity(training: Training[T], best: KeepBest, validation: Dataset) -> None:
    if best.best_value > best.floor or validation.n_interactions < MIN_HELD_OUT:
        return
    warn(
        f"{training.name} ranks no better than item popularity on validation: {training.metric} "
        f"{best.best_value:.4f}, popularity {best.floor:.4f}. Train longer, change learning_rate or "
        "regularization, or use another model.",
        TrainingWarning,
    )


def _best_epoch(history: pl.DataFrame, metric: str) -> int:
    """The epoch, from 0, with the best value; the last one if all are equal."""
    values = history[metric]
    return int(values.arg_max() or 0) if values.max() != values.min() else history.height - 1
