"""What every model shares that is trained epoch by epoch: early stopping, checkpoints, a history, a bar."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.frames import to_native
from truelike.models.factor_model import FactorModel
from truelike.training.callbacks import KeepBest, Progress
from truelike.training.checkpoint import Checkpoint, fingerprint
from truelike.training.tables import Tables
from truelike.training.trainer import Callback, DivergedError, Engine, State, train

MEASURES = ("f1", "precision", "recall", "ndcg", "map", "mrr", "hit_rate")
HUGE = 1e4  # no useful factor comes near it; the release stops at a sum of 1e10


def is_measure(value: Any) -> bool:
    """Whether a value is a metric at a length."""
    metric, _, k = str(value).partition("@")
    return metric in MEASURES and k.isdigit() and int(k) > 0


class IterativeModel(FactorModel):
    """A factor model that an engine trains, an epoch at a time.

    A model of this kind has the parameters `factors`, `epochs`, `monitor`, `patience`, `seed` and `n_jobs`, says
    with which tables training starts (`_start`) and what does an epoch (`_engine`), and gets `history_`.
    """

    if TYPE_CHECKING:
        factors: int | None
        epochs: int | None
        monitor: str
        patience: int | None
        seed: int
        n_jobs: int | None

    # --- what a model must say ------------------------------------------------------------------

    @abstractmethod
    def _start(self, log: Dataset) -> Tables:
        """The tables that training starts from."""

    @abstractmethod
    def _engine(self, log: Dataset, tables: Tables) -> Engine:
        """What trains the tables."""

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
        validation: Dataset | None = None,
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

    def _learn(self, train: Dataset, validation: Dataset | None) -> None:
        run, epochs, tables = self._run, int(self.epochs or 0), self._start(train)
        engine = _Watched(self._engine(train, tables), tables, self)
        best = measure = None
        if validation is not None and validation.n_interactions:
            measure = self._measurer(train, validation, tables)
            best = KeepBest(self.monitor, tables.copy, self.patience)
        bar = Progress(epochs, train.n_interactions, self.monitor, show=run["progress"])
        callbacks: list[Callback] = [*([best] if best else []), bar, *run["callbacks"]]
        state = None
        if run["checkpoint"] is not None:
            held_out = None if validation is None else fingerprint(validation, {})
            deciding = {**self.get_params(), **self._also_deciding(), "validation": held_out}
            mark = fingerprint(train, {**deciding, "class": type(self).__name__})
            every, minutes = run["every"]
            saver = Checkpoint(Path(run["checkpoint"]), engine, best, mark, epochs=every, minutes=minutes)
            state = saver.read(tables) if run["resume"] else None
            callbacks.append(saver)
        try:
            if state is None or not state.stop:
                state = train_epochs(engine, epochs, callbacks, measure, bar, state)
        finally:
            bar.close()
        self._keep(best.best if best is not None and best.best is not None else tables)
        self.history_ = to_native(state.history(), train.library)

    def _measurer(self, log: Dataset, validation: Dataset, tables: Tables) -> Any:
        """A function that evaluates the tables as they are now, at the k of the monitor and the usual ones."""
        from truelike.evaluation.evaluate import KS, evaluate

        metric, _, k = self.monitor.partition("@")
        probe = object.__new__(type(self))
        probe.__dict__.update(self.__dict__, train_=log)
        probe._keep(tables)
        wanted = tuple(dict.fromkeys(("f1", "ndcg", metric)))
        lengths = tuple(sorted({*KS, int(k)}))
        return lambda: evaluate(probe, validation, ks=lengths, metrics=wanted, n_jobs=self.n_jobs).means()

    def _go_on(self, log: Dataset, tables: Tables, epochs: int, *, progress: bool) -> None:
        """Train tables further, from the epoch after the last, and keep them."""
        engine = _Watched(self._engine(log, tables), tables, self)
        done = int(self.epochs or 0)
        bar = Progress(epochs, log.n_interactions, None, show=progress)
        try:
            state = train_epochs(engine, done + epochs, [], None, bar, State(done - 1, 0))
        finally:
            bar.close()
        self.__dict__["train_"] = log
        self._keep(tables)
        self.history_ = to_native(state.history(), log.library)

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        log = self.train_
        shape = (log.n_users, log.n_items, int(self.factors or 0), int(getattr(self, "flip_factors", 0) or 0))
        self._keep(Tables.restored(arrays, *shape))


class _Watched:
    """An engine whose numbers are looked at after each epoch, with the remedy in the model's own words."""

    def __init__(self, engine: Engine, tables: Tables, model: IterativeModel) -> None:
        self.tables, self.model = tables, model
        self.epoch, self.loss, self.state = engine.epoch, engine.loss, engine.state

    def check(self) -> None:
        """Raise DivergedError where a number is not finite or absurdly large."""
        largest = self.tables.largest()
        if not largest < HUGE:
            raise DivergedError(
                f"{self.model.name} diverged: a factor reached {largest:.3g} {self.model._remedy()}"
            )


def train_epochs(
    engine: Any, epochs: int, callbacks: list[Callback], measure: Any, bar: Progress, state: State | None
) -> State:
    """The trainer, with the bar told within an epoch too."""
    return train(engine, epochs, callbacks=callbacks, measure=measure, within_epoch=bar.within, state=state)
