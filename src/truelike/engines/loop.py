"""The epoch loop: early stopping, callbacks, checkpoints and the search for the number of epochs.

A model has a `Trainer` and calls `fit_epochs`. The loop knows nothing of what it trains: an engine runs an epoch, and a
ranker ranks for the evaluation on held-out interactions.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import polars as pl

from truelike.core.progress import note
from truelike.data.dataset import Dataset
from truelike.data.frames import Library, to_native
from truelike.data.strategies import hold_out
from truelike.engines.callbacks import KeepBest, Progress
from truelike.engines.checkpoint import Checkpoint, check_checkpoint_place, fingerprint
from truelike.engines.engine import Engine, State, Trained, closing
from truelike.engines.options import Callback, FitOptions
from truelike.errors import DataError, DataWarning, DivergedError, StorageError, TrainingWarning, warn
from truelike.evaluation.protocol import Ranker

MIN_HELD_OUT = 50  # held-out interactions needed to choose the number of epochs
LARGEST_FACTOR = 1e4  # no useful factor comes near it; the authors' release stops at a sum of 1e10

T = TypeVar("T", bound=Trained)


class Trainable(Protocol):
    """The parameters that every model has which is trained in epochs."""

    epochs: int
    metric: str
    patience: int | None
    seed: int
    n_jobs: int | None

    @property
    def name(self) -> str:
        """The name, for messages."""


class Trainer(ABC, Generic[T]):
    """How a model is trained, whose parameters `T` an engine learns. The model itself is not changed."""

    model: Trainable
    limit: ClassVar[float] = LARGEST_FACTOR  # a parameter that reaches it has diverged

    @abstractmethod
    def initial(self, train: Dataset) -> T:
        """The initial parameters for a dataset."""

    @abstractmethod
    def engine(self, train: Dataset, trained: T) -> Engine:
        """The engine that trains parameters on a dataset."""

    @abstractmethod
    def ranker(self, train: Dataset, trained: T) -> Ranker:
        """A fitted model with the given parameters, for the evaluation after an epoch."""

    @abstractmethod
    def identity(self) -> Mapping[str, object]:
        """All that decides the result beside the data, for the fingerprint of a checkpoint."""

    @abstractmethod
    def advice(self) -> str:
        """What to try when training diverges: the end of an error message."""

    def check(self, trained: T) -> None:
        """Raise DivergedError if a parameter is not a number or reaches the limit."""
        largest = trained.largest()
        if not largest < self.limit:
            raise DivergedError(f"{self.model.name} diverged: a number reached {largest:.3g} {self.advice()}")


@dataclass(frozen=True)
class Result(Generic[T]):
    """What `fit_epochs` returns: the parameters of the best epoch on validation, otherwise of the last.

    A history has one row per epoch: epoch, seconds, loss and the validation metrics. `search_history` is that of the
    search for the number of epochs; None if there was none.
    """

    trained: T
    history: pl.DataFrame
    search_history: pl.DataFrame | None = None

    def histories(self, library: Library) -> dict[str, Any]:
        """Both as learned attributes, in the frame library of the training data."""
        search = self.search_history
        return {
            "history_": to_native(self.history, library),
            "search_history_": None if search is None else to_native(search, library),
        }


def fit_epochs(trainer: Trainer[T], train: Dataset, options: FitOptions) -> Result[T]:
    """Train from the start.

    With a validation part, the best epoch is kept. With a share, a share of the interactions is held out to find
    the number of epochs, and then all interactions are trained on for as many.
    """
    epochs, run = trainer.model.epochs, partial(_run, trainer, options)
    if not isinstance(options.validation, float):
        return Result(*run(train, options.validation, epochs, "only"))
    rest, held_out = hold_out(train, options.validation, trainer.model.seed)
    search = None
    if held_out.n_interactions >= MIN_HELD_OUT and epochs:
        _, search = run(rest, held_out, epochs, "search")
        epochs = _found_epochs(trainer.model, search, held_out.n_interactions)
    elif options.validation:
        warn(
            f"{held_out.n_interactions:,} held-out interactions are too few to find the number of epochs: "
            f"all {epochs} are run",
            DataWarning,
        )
    return Result(*run(train, None, epochs, "all"), search)


def _found_epochs(model: Trainable, search: pl.DataFrame, n_held_out: int) -> int:
    """The number of epochs with the best value in a search; all of them if all are equal."""
    values = search[model.metric]
    best = int(values.arg_max() or 0) if values.max() != values.min() else search.height - 1
    note(
        f"{model.name}: best after epoch {best + 1} of {model.epochs} by {model.metric} on "
        f"{n_held_out:,} held-out interactions ({values[best]:.4f}); training on all interactions for as many epochs"
    )
    return best + 1


def continue_epochs(trainer: Trainer[T], train: Dataset, trained: T, epochs: int, *, progress: bool) -> Result[T]:
    """Train further for some epochs, at the learning rates that follow the last of the model's epochs."""
    engine, done = trainer.engine(train, trained), trainer.model.epochs
    with Progress(trainer.model.name, epochs, train.n_interactions, None, show=progress, first=done) as bar:
        state = run_epochs(
            engine, done + epochs, check=lambda: trainer.check(trained), callbacks=[bar],
            within_epoch=bar.within, state=State(done - 1, 0),
        )  # fmt: skip
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
    """Run epochs until `epochs` are done in all, or a callback stops.

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
        engine.epoch(number, None if within_epoch is None else partial(within_epoch, number))
        seconds = time.perf_counter() - started
        if check is not None:
            check()
        state.rows.append(
            {"epoch": number, "seconds": seconds, "loss": engine.loss(), **(measure() if measure else {})}
        )
        state.epoch = number
        for callback in callbacks:
            callback(state)
        if state.stop:
            break
    return state


def _run(
    trainer: Trainer[T],
    options: FitOptions,
    train: Dataset,
    validation: Dataset | None,
    epochs: int,
    phase: Literal["only", "search", "all"],
) -> tuple[T, pl.DataFrame]:
    """The parameters of the best epoch on validation, otherwise of the last, and the history."""
    trained, model = trainer.initial(train), trainer.model
    with (
        closing(trainer.engine(train, trained)) as engine,
        Progress(model.name, epochs, train.n_interactions, model.metric, show=options.progress) as bar,
    ):
        best = measure = None
        if validation is not None and validation.n_interactions:
            measure, popularity = _measures(trainer, train, validation, trained)
            best = KeepBest(model.metric, trained.copy, model.patience, floor=popularity)
        own = () if phase == "search" else options.callbacks
        callbacks: list[Callback] = [*([best] if best else []), bar, *own]
        state = None
        if options.checkpoint is not None:
            place = Path(options.checkpoint).absolute()
            place = place.with_name(f"{place.name}-held-out") if phase == "search" else place
            check_checkpoint_place(place)
            held_out = None if validation is None else fingerprint(validation, {})
            found = {"found": epochs} if phase == "all" else {}
            mark = fingerprint(train, {**trainer.identity(), "validation": held_out, **found})
            saver = Checkpoint(place, engine, best, mark, options.checkpoint_epochs, options.checkpoint_minutes)
            state = saver.read(trained) if options.resume else None
            if state is not None and state.epoch >= epochs:
                raise StorageError(
                    f"the checkpoint in {str(place)!r} is after epoch {state.epoch + 1}, and epochs is {epochs}: "
                    "train for as many at least, or delete it"
                )
            callbacks.append(saver)
        if state is None or best is None or not best.exhausted(state.epoch):
            state = run_epochs(
                engine, epochs, check=lambda: trainer.check(trained), callbacks=callbacks, measure=measure,
                within_epoch=bar.within, state=state,
            )  # fmt: skip
    if best is not None and state.rows and validation is not None:
        _warn_if_no_better_than_popularity(model, best, validation)
    return best.best if best is not None and best.best is not None else trained, state.history()


def _measures(
    trainer: Trainer[T], train: Dataset, validation: Dataset, trained: T
) -> tuple[Callable[[], dict[str, float]], float]:
    """A function that evaluates the parameters as they are now, and the value of the popularity ranking."""
    from truelike.evaluation.baseline import popularity_baseline
    from truelike.evaluation.evaluate import KS, evaluate
    from truelike.evaluation.metrics import parse_measure

    popularity = popularity_baseline(train, validation, trainer.model.metric)
    if math.isnan(popularity):
        raise DataError("every validation interaction is also in the training data, so none can be ranked")
    metric, k = parse_measure(trainer.model.metric)
    metrics, ks = tuple(dict.fromkeys(("f1", "ndcg", metric))), tuple(sorted({*KS, k}))

    def measure() -> dict[str, float]:
        ranker, n_jobs = trainer.ranker(train, trained), trainer.model.n_jobs
        return evaluate(ranker, validation, ks=ks, metrics=metrics, n_jobs=n_jobs, notes=False).means()

    return measure, popularity


def _warn_if_no_better_than_popularity(model: Trainable, best: KeepBest, validation: Dataset) -> None:
    if best.best_value > best.floor or validation.n_interactions < MIN_HELD_OUT:
        return
    warn(
        f"{model.name} ranks no better than item popularity on validation: {model.metric} "
        f"{best.best_value:.4f}, popularity {best.floor:.4f}. Train longer, change learning_rate or "
        "regularization, or use another model.",
        TrainingWarning,
    )
