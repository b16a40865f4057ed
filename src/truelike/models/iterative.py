"""What every model shares that is trained epoch by epoch: early stopping, checkpoints, a history, a bar."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import polars as pl

from truelike.data.dataset import Dataset
from truelike.data.frames import to_native
from truelike.data.splits import hold_out
from truelike.models.recommender import HeldOut, Recommender
from truelike.progress import note
from truelike.training.callbacks import KeepBest, Progress
from truelike.training.checkpoint import Checkpoint, fingerprint
from truelike.training.trainer import Callback, DivergedError, Engine, State, Trained, train

MEASURES = ("f1", "precision", "recall", "ndcg", "map", "mrr", "hit_rate")
T = TypeVar("T", bound=Trained)
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
            Or a share, such as 0.1: so much of each user's votes is held out to find the best epoch by, and then
            the whole log is trained on, from the start, for as many epochs.
        callbacks
            Functions of the trainer's State, called after each epoch; one may set `state.stop`.
        checkpoint
            A directory to write the state of the training to, every `checkpoint_epochs` epochs or
            `checkpoint_minutes` minutes.
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
        epochs, place = int(self.epochs or 0), self._run["checkpoint"]
        if isinstance(validation, float):
            epochs, validation = self._epochs_for(train, validation), None
        trained, history = self._train(train, validation, epochs, None if place is None else Path(place))
        self._keep(trained)
        self.history_ = to_native(history, train.library)

    def _epochs_for(self, log: Dataset, share: float) -> int:
        """How many epochs are best for the votes that are held out, when the others are trained on."""
        most, place = int(self.epochs or 0), self._run["checkpoint"]
        rest, held_out = hold_out(log, share, self.seed)
        if not held_out.n_interactions:
            return most
        beside = None if place is None else Path(place).with_name(f"{Path(place).name}-held-out")
        _, history = self._train(rest, held_out, most, beside)
        values = history[self.monitor] if history.height else pl.Series([0.0])
        best = int(values.arg_max() or 0)
        note(
            f"{self.monitor} on the {share:.0%} that were held out was best after {best + 1} epochs, "
            f"{values[best]:.4f}; now for as many on the whole log"
        )
        return min(most, best + 1)

    def _train(
        self, train: Dataset, validation: Dataset | None, epochs: int, place: Path | None
    ) -> tuple[T, pl.DataFrame]:
        """What is best on validation, else the last, and the figures of each epoch."""
        run, trained = self._run, self._start(train)
        engine = _Watched(self._engine(train, trained), trained, self)
        best = measure = None
        if validation is not None and validation.n_interactions:
            measure = self._measurer(train, validation, trained)
            best = KeepBest(self.monitor, trained.copy, self.patience)
        bar = Progress(epochs, train.n_interactions, self.monitor, show=run["progress"])
        callbacks: list[Callback] = [*([best] if best else []), bar, *run["callbacks"]]
        state = None
        if place is not None:
            held_out = None if validation is None else fingerprint(validation, {})
            deciding = {**self.get_params(), **self._also_deciding(), "validation": held_out}
            mark = fingerprint(train, {**deciding, "class": type(self).__name__})
            every, minutes = run["every"]
            saver = Checkpoint(place, engine, best, mark, epochs=every, minutes=minutes)
            state = saver.read(trained) if run["resume"] else None
            callbacks.append(saver)
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
