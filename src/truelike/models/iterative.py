"""What every model shares that is trained epoch by epoch: early stopping, checkpoints, a history, a bar."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

import polars as pl

from truelike.data.dataset import Dataset
from truelike.data.frames import to_native
from truelike.data.splits import hold_out
from truelike.errors import DataWarning
from truelike.models.recommender import HeldOut, Recommender
from truelike.progress import note
from truelike.training.callbacks import KeepBest, Progress
from truelike.training.checkpoint import Checkpoint, fingerprint
from truelike.training.trainer import Callback, DivergedError, Engine, State, Trained, train

MEASURES = ("f1", "precision", "recall", "ndcg", "map", "mrr", "hit_rate")
T = TypeVar("T", bound=Trained)
Phase = Literal["only", "search", "whole"]  # of a fit: one training, or a search and then one on the whole log
ENOUGH_VOTES = 50  # held out, for the number of epochs to be found by them
HUGE = 1e4  # no useful factor comes near it; the release stops at a sum of 1e10


def is_measure(value: Any) -> bool:
    """Whether a value is a metric at a length."""
    metric, _, k = str(value).partition("@")
    return metric in MEASURES and k.isdigit() and int(k) > 0


class IterativeModel(Recommender, Generic[T]):
    """A model that an engine trains, an epoch at a time.

    A model of this kind has the parameters `epochs`, `monitor`, `patience`, `seed` and `n_jobs`, says
    what training starts from (`_start`), what does an epoch (`_engine`) and how the model is to answer by what was
    trained (`_keep`), and gets `history_`.
    """

    if TYPE_CHECKING:
        epochs: int | None
        monitor: str
        patience: int | None
        seed: int
        n_jobs: int | None

    # --- what a model must say ------------------------------------------------------------------

    @abstractmethod
    def _start(self, log: Dataset) -> T:
        """What is trained, as training starts from it."""

    def _prepare(self, log: Dataset, trained: T, /) -> None:
        """What is done to it before the first epoch, and not again where training goes on from a checkpoint."""

    @abstractmethod
    def _engine(self, log: Dataset, trained: T, /) -> Engine:
        """What trains it."""

    @abstractmethod
    def _keep(self, trained: T, /) -> None:
        """Take what was trained as what the model answers by."""

    @abstractmethod
    def _remedy(self) -> str:
        """What to try where the numbers grow beyond all bounds, as the end of a sentence."""

    def _also_deciding(self) -> dict[str, Any]:
        """What decides the result beside the log, the parameters and the validation part."""
        return {}

    # --- fitting --------------------------------------------------------------------------------

    def fit(
        self,
        train: Dataset,
        *,
        validation: HeldOut = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
        checkpoint_epochs: int = 10,
        checkpoint_minutes: float = 5.0,
        resume: bool = False,
        progress: bool = True,
    ) -> Self:
        """Learn from a log, from the start, and return self.

        Parameters
        ----------
        train
            What `tl.read` or a split gave.
        validation
            Votes held out: the best epoch by `monitor` is kept, and training stops after `patience` worse ones.
            Or a share, such as 0.1: so much of the votes is held out to find the best epoch by (its figures are in
            `search_history_`), and then the whole log is trained on, from the start, for as many epochs.
        callbacks
            Functions of the trainer's State, called after each epoch; one may set `state.stop`. While the number
            of epochs is looked for, they are not called.
        checkpoint
            A directory to write the state of the training to, every `checkpoint_epochs` epochs or
            `checkpoint_minutes` minutes. The search for the number of epochs has one beside it, with "-held-out"
            in its name.
        resume
            Go on from that directory, if there is a checkpoint in it; the result is the same to the bit.
        progress
            Show a bar (only on a terminal).
        """
        self.__dict__["_run"] = {
            "callbacks": callbacks,
            "checkpoint": checkpoint,
            "every": (checkpoint_epochs, checkpoint_minutes),
            "resume": resume,
            "progress": progress,
        }
        try:
            return super().fit(train, validation=validation)
        finally:
            del self.__dict__["_run"]

    def _learn(self, train: Dataset, validation: HeldOut) -> None:
        epochs, search = int(self.epochs or 0), None
        if isinstance(validation, float):
            search = self._search(train, validation)
            epochs = epochs if search is None else _best_epoch(search, self.monitor) + 1
            trained, history = self._train(train, None, epochs, "whole")
        else:
            trained, history = self._train(train, validation, epochs)
        self._keep(trained)
        self.history_ = to_native(history, train.library)
        self.search_history_ = None if search is None else to_native(search, train.library)

    def _search(self, log: Dataset, share: float) -> pl.DataFrame | None:
        """The figures of each epoch on votes that are held out, when the others are trained on; None: too few."""
        rest, held_out = hold_out(log, share, self.seed)
        if held_out.n_interactions < ENOUGH_VOTES or not self.epochs:
            if share:
                warnings.warn(
                    f"{held_out.n_interactions:,} votes are too few to find the number of epochs with: "
                    f"all {self.epochs} are run",
                    DataWarning,
                    stacklevel=6,
                )
            return None
        history = self._train(rest, held_out, int(self.epochs), "search")[1]
        best = _best_epoch(history, self.monitor)
        note(
            f"best after epoch {best + 1}, by {self.monitor} on {held_out.n_interactions:,} held-out votes "
            f"({history[self.monitor][best]:.4f}); now so far with all of them"
        )
        return history

    def _train(
        self, train: Dataset, validation: Dataset | None, epochs: int, phase: Phase = "only"
    ) -> tuple[T, pl.DataFrame]:
        """What is best on validation, else the last, and the figures of each epoch."""
        run, trained = self._run, self._start(train)
        engine = _Watched(self._engine(train, trained), trained, self)
        best = measure = None
        if validation is not None and validation.n_interactions:
            measure = self._measurer(train, validation, trained)
            best = KeepBest(self.monitor, trained.copy, self.patience)
        bar = Progress(epochs, train.n_interactions, self.monitor, show=run["progress"])
        told = () if phase == "search" else run["callbacks"]
        callbacks: list[Callback] = [*([best] if best else []), bar, *told]
        state = None
        if run["checkpoint"] is not None:
            place = Path(run["checkpoint"]).absolute()
            place = place.with_name(f"{place.name}-held-out") if phase == "search" else place
            held_out = None if validation is None else fingerprint(validation, {})
            found = {"found": epochs} if phase == "whole" else {}
            deciding = {**self.get_params(), **self._also_deciding(), "validation": held_out, **found}
            mark = fingerprint(train, {**deciding, "class": type(self).__name__})
            every, minutes = run["every"]
            saver = Checkpoint(place, engine, best, mark, epochs=every, minutes=minutes)
            state = saver.read(trained) if run["resume"] else None
            callbacks.append(saver)
        if state is None:
            self._prepare(train, trained)
        try:
            if state is None or not state.stop:
                state = train_epochs(engine, epochs, callbacks, measure, bar, state)
        finally:
            bar.close()
        return best.best if best is not None and best.best is not None else trained, state.history()

    def _measurer(self, log: Dataset, validation: Dataset, trained: T) -> Any:
        """A function that evaluates what is trained as it is now, at the k of the monitor and the usual ones."""
        from truelike.evaluation.evaluate import KS, evaluate

        metric, _, k = self.monitor.partition("@")
        probe = object.__new__(type(self))
        probe.__dict__.update(self.__dict__, train_=log)
        probe._keep(trained)
        wanted = tuple(dict.fromkeys(("f1", "ndcg", metric)))
        lengths = tuple(sorted({*KS, int(k)}))
        return lambda: evaluate(probe, validation, ks=lengths, metrics=wanted, n_jobs=self.n_jobs).means()

    def _go_on(self, log: Dataset, trained: T, epochs: int, *, progress: bool) -> None:
        """Train further, from the epoch after the last, and keep it."""
        engine = _Watched(self._engine(log, trained), trained, self)
        done = int(self.epochs or 0)
        bar = Progress(epochs, log.n_interactions, None, show=progress)
        try:
            state = train_epochs(engine, done + epochs, [], None, bar, State(done - 1, 0))
        finally:
            bar.close()
        self.__dict__["train_"] = log
        self._keep(trained)
        self.history_ = to_native(state.history(), log.library)


def _best_epoch(history: pl.DataFrame, monitor: str) -> int:
    """The epoch, from 0, whose figure is best; the last where all are as bad."""
    values = history[monitor]
    return int(values.arg_max() or 0) if values.max() != values.min() else history.height - 1


class _Watched:
    """An engine whose numbers are looked at after each epoch, with the remedy in the model's own words."""

    def __init__(self, engine: Engine, trained: Trained, model: IterativeModel[Any]) -> None:
        self.trained, self.model = trained, model
        self.epoch, self.loss = engine.epoch, engine.loss
        self.state, self.restore = engine.state, engine.restore

    def check(self) -> None:
        """Raise DivergedError where a number is not finite or absurdly large."""
        largest = self.trained.largest()
        if not largest < HUGE:
            raise DivergedError(
                f"{self.model.name} diverged: a factor reached {largest:.3g} {self.model._remedy()}"
            )


def train_epochs(
    engine: Any, epochs: int, callbacks: list[Callback], measure: Any, bar: Progress, state: State | None
) -> State:
    """The trainer, with the bar told within an epoch too."""
    return train(engine, epochs, callbacks=callbacks, measure=measure, within_epoch=bar.within, state=state)
