"""A trial: one model with its parameters, fitted once and evaluated on held-out data, and its record."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike._version import __version__
from truelike.core.parameters import parameter_fields
from truelike.data.dataset import Dataset
from truelike.data.splits import Split
from truelike.errors import DivergedError, TruelikeError, muted
from truelike.evaluation.breakdown import by_popularity
from truelike.evaluation.evaluate import KS, evaluate
from truelike.evaluation.result import Evaluation
from truelike.evaluation.seen import SeenParts
from truelike.evaluation.trec import lists_of
from truelike.models.base import Recommender
from truelike.selection import references
from truelike.selection.references import is_own
from truelike.selection.variants import Model, Parameters, Variant, variant

METRICS = ("f1", "ndcg")  # that are always measured, at the lengths KS
PEAK_MEMORY, RESET_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")
USERS = "users"  # the array with the test figures of each user
Arrays = dict[str, NDArray[np.generic]]  # what a run gives beside its record, by the names of `Trial.kept`
Record = dict[str, Any]  # the result of a trial, plain values only; one line of trials.jsonl


@dataclass(eq=False)
class Trial:
    """A model and its parameters, and what came out of it.

    Attributes
    ----------
    model
        A name, a class or an unfitted model.
    parameters
        Its parameters, on top of those that `model` fixes.
    test
        Whether to evaluate on the test part, too.
    seen
        What is left out of the lists on the test part; see `tl.evaluate`.
    metric
        A metric to measure beside the usual ones. A model with a `metric` measures that one.
    n_listed
        The length of the lists on the test part that are kept; 0: none are.
    record
        The result; empty if it was not run.
    values
        The metric of each held-out user, where it is kept.
    fitted
        The fitted model, where it is kept.

    Examples
    --------
    >>> Trial("BPR", {"factors": 8}).key == Trial("BPR", {"factors": 8, "n_negatives": 3}).key
    True
    """

    model: Model
    parameters: Parameters = field(default_factory=dict)
    test: bool = False
    metric: str | None = None
    seen: SeenParts = "train"
    n_listed: int = 0
    record: Record = field(default_factory=dict, repr=False)
    values: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False)
    fitted: Recommender | None = field(default=None, repr=False)

    @cached_property
    def variant(self) -> Variant:
        """The class and the parameters that `model` stands for."""
        return variant(self.model)

    @property
    def name(self) -> str:
        """The name of the model in records and tables."""
        return self.variant.name

    def make(self, **more: Any) -> Recommender:
        """Create the unfitted model; of the keyword arguments, those that it has no parameter for are ignored."""
        known = {name: value for name, value in more.items() if name in self.variant.parameter_names}
        return self.variant.make({**self.parameters, **known})

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the arrays that a run gives beside the record."""
        lists = (f"lists@{self.n_listed}", f"scores@{self.n_listed}") if self.n_listed else ()
        return (USERS, *lists) if self.test else ()

    @cached_property
    def key(self) -> str:
        """A digest of all that decides the result; the same however the parameters are spelled."""
        model = self.make()
        kind = type(model)
        name = references.identity(kind) if is_own(kind) else kind.__name__
        values = {each: references.identity(value) for each, value in _result_params(model).items()}
        watched = model.iterative and hasattr(model, "metric")
        asked = [] if self.metric is None or watched else [self.metric]
        # the key of a trial without the validation items is that of earlier versions, which knew no other
        protocol = [{"left out on test": self.seen}] if self.test and self.seen != "train" else []
        text = json.dumps([name, values, self.test, *asked, *protocol], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def score(self, metric: str | None = None) -> float:
        """The metric on held-out data; minus infinity for a trial that failed or was not run."""
        return score(self.record, metric or str(self.metric))

    def message(self) -> Record:
        """Convert to a message for a worker process; raise NotImportableError where a class cannot reach it."""
        return {
            "key": self.key,
            "name": self.name,
            "class": references.encode(self.variant.model_class),
            "own": {name: references.encode(value) for name, value in self.variant.parameters.items()},
            "parameters": {name: references.encode(value) for name, value in self.parameters.items()},
            "test": self.test,
            "metric": self.metric,
            "seen": self.seen,
            "n_listed": self.n_listed,
        }

    @classmethod
    def from_message(cls, message: Record) -> Trial:
        """Recreate a trial from its message; raise NotImportableError where a class is not the same here."""
        own, parameters = (
            {name: references.decode(value) for name, value in message[part].items()}
            for part in ("own", "parameters")
        )
        model = Variant(message["name"], references.decode(message["class"]), own)
        trial = cls(model, parameters, *(message[name] for name in ("test", "metric", "seen", "n_listed")))
        if trial.key != message["key"]:
            raise references.NotImportableError(f"{trial.name} is another class or version where it is imported")
        return trial


def settings(model: Recommender) -> Parameters:
    """All parameters that decide the result, as plain values."""
    return {name: references.plain(value) for name, value in _result_params(model).items()}


def _result_params(model: Recommender) -> Parameters:
    """The parameters that decide the result; a whole number is a float where the parameter is one."""
    found = {name: value for name, value in model.get_params().items() if name != "n_jobs"}
    for parameter in parameter_fields(model):
        value = found.get(parameter.name)
        if isinstance(value, int) and not isinstance(value, bool) and parameter.metadata.get("whole") is False:
            found[parameter.name] = float(value)
    return found


@contextlib.contextmanager
def recorded(record: Record) -> Iterator[None]:
    """A context for a trial: its record gets the seconds, and the error of a model that cannot be trained.

    Warnings are silent: a search tries bad settings, too, and their scores show it.
    """
    started = time.perf_counter()
    try:
        with muted():
            yield
    except DivergedError as error:
        record["error"] = str(error)
    except (TruelikeError, MemoryError) as error:  # not for this dataset, or not on this machine
        record.update(error=str(error) or type(error).__name__, refused=True)
    record["seconds"] = round(time.perf_counter() - started, 3)


def run(trial: Trial, split: Split, *, n_jobs: int | None = 1) -> tuple[Record, Arrays | None]:
    """Fit and evaluate. The best epoch is chosen on validation; test is used only where the trial asks for it.

    The record of a trial with test figures also has the time and memory of the fit, the learning curve, and recall
    by item popularity. A model that cannot be trained on the dataset gives a record with the error.
    """
    model = trial.make(n_jobs=n_jobs)
    record: Record = {
        "key": trial.key,
        "model": trial.name,
        "parameters": {name: references.plain(value) for name, value in trial.parameters.items()},
        "settings": settings(model),
        "version": __version__,
    }
    if is_own(type(model)):
        record["class"] = references.reference(type(model))
    kept = None
    with recorded(record):
        kept = _fit_and_evaluate(trial, model, split, record, n_jobs)
    return record, kept


def _fit_and_evaluate(
    trial: Trial, model: Recommender, split: Split, record: Record, n_jobs: int | None
) -> Arrays | None:
    """Fit, add the results to the record step by step, and return the arrays to store beside it."""
    started = time.perf_counter()
    _reset_peak_memory()
    model.fit(split.train, validation=split.validation, progress=False)
    mb, seconds = _peak_memory(), time.perf_counter() - started
    watched = getattr(model, "metric", None) if model.iterative else None
    history = getattr(model, "history_", None) if model.iterative else None
    curve: list[float] = []
    if history is not None:
        curve = [float(value) for value in history[watched]] if watched in history.columns else []
        record["epochs"] = len(history)
        record["best_epoch"] = 1 + int(np.argmax(curve)) if curve else None
        record["peaks"] = {name: float(history[name].max()) for name in history.columns if "@" in name}
    metric, _, k = str(trial.metric or watched or "f1@2").partition("@")
    metrics, ks = tuple(dict.fromkeys((*METRICS, metric))), sorted({*KS, int(k)})

    def measured(part: Dataset | Split, seen: SeenParts) -> Evaluation:
        return evaluate(model, part, seen=seen, ks=ks, metrics=metrics, n_jobs=n_jobs, notes=False)

    record["validation"] = measured(split.validation, "train").means()
    if not trial.test:
        return None
    evaluation = measured(split, trial.seen)
    record["test"] = evaluation.means()
    record["left_out"] = list(evaluation.left_out)
    record["fit"] = {"seconds": round(seconds, 3), "mb": mb and round(mb, 1)}
    record["popularity"] = by_popularity(model, split, int(k), seen=trial.seen, n_jobs=n_jobs)
    if history is not None and curve:
        record["curve"] = {
            "metric": watched,
            "values": [round(value, 6) for value in curve],
            "seconds": np.cumsum(np.asarray(history["seconds"], dtype=float)).round(3).tolist(),
        }
    arrays = [np.stack(list(evaluation.values.values()), axis=1).astype(np.float32)]
    if trial.n_listed:
        lists = list(lists_of(model, split, trial.n_listed, seen=trial.seen, n_jobs=n_jobs))
        arrays += [np.concatenate([each.items for each in lists]), np.concatenate([each.scores for each in lists])]
    return dict(zip(trial.kept, arrays, strict=True))


def _reset_peak_memory() -> None:
    with contextlib.suppress(OSError):  # not Linux, or not permitted: the peak since the start is used
        RESET_PEAK.write_text("5")


def _peak_memory() -> float | None:
    """The peak resident memory of this process in MB: since the reset on Linux, else since the start or None."""
    with contextlib.suppress(OSError, StopIteration):
        lines = PEAK_MEMORY.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM"))
    with contextlib.suppress(ImportError):  # Windows has none
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    return None


def score(record: Record, metric: str) -> float:
    """The metric on validation; minus infinity for a trial that failed."""
    value = record.get("peaks", {}).get(metric, record.get("validation", {}).get(metric))
    return -math.inf if value is None else float(value)


def toml(
    data: str,
    model: str,
    parameters: Parameters,
    about: Sequence[str] = (),
    read: Parameters | None = None,
) -> str:
    """Write a file that `truelike train --config` runs.

    >>> print(toml("log.csv", "BPR", {"factors": 8, "patience": None}, ["tuned"]), end="")
    # tuned
    data = "log.csv"
    model = "BPR"
    <BLANKLINE>
    [parameters]
    factors = 8
    patience = "none"
    """
    # TOML has no None; the command line reads "none" as None. A JSON string is a TOML string.
    given = {name: "none" if value is None else value for name, value in parameters.items()}
    lines = [
        *(f"# {line}" for line in about),
        f"data = {json.dumps(data)}",
        f"model = {json.dumps(model)}",
        "",
        "[parameters]",
        *(f"{name} = {_toml_value(value)}" for name, value in given.items()),
        *(["", "[read]"] if read else []),
        *(f"{name} = {_toml_value(value)}" for name, value in (read or {}).items()),
    ]
    return "\n".join(lines) + "\n"


def _toml_value(value: object) -> str:
    """A value in TOML, which is that in JSON, except for tables.

    >>> _toml_value({"view": 0.2, "buy": 1})
    '{"view" = 0.2, "buy" = 1}'
    """
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(str(name))} = {_toml_value(each)}' for name, each in value.items())}}}"
    return json.dumps(value)
