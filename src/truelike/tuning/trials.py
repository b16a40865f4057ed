"""A trial: a model and its parameters, fitted once and judged on validation (or, for a final run, on test)."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from truelike._version import __version__
from truelike.errors import TruelikeError
from truelike.training.trainer import DivergedError
from truelike.tuning.memory import Peak

if TYPE_CHECKING:
    from truelike.data.splits import Split
    from truelike.evaluation.evaluate import Evaluation
    from truelike.models.recommender import Recommender

KS = (2, 5, 10, 20)
METRICS = ("f1", "ndcg")
Record = dict[str, Any]  # what is known of a finished trial; one line of trials.jsonl


@dataclass(frozen=True)
class Trial:
    """A model of the registry, or a variant of it, with some parameters; `test` asks for figures on the test part.

    Examples
    --------
    >>> Trial("BPR", {"factors": 8}).key == Trial("BPR", {"factors": 8, "n_negatives": 3}).key
    True
    """

    model: str
    parameters: dict[str, Any] = field(default_factory=dict)
    test: bool = False
    metric: str | None = None  # measured beside the usual ones, of a model that does not watch one while it learns

    def make(self, **more: Any) -> Recommender:
        """The model, not fitted."""
        from truelike.models import variant

        kind, own = variant(self.model)
        known = {f.name for f in fields(kind)}
        more = {name: value for name, value in more.items() if name in known}
        return kind(**{**own, **self.parameters, **more})

    @property
    def key(self) -> str:
        """The same for trials that must give the same result, however their parameters were spelled."""
        made = self.make()
        asked = [] if self.metric is None or hasattr(made, "monitor") else [self.metric]
        text = json.dumps([type(made).__name__, settings(made), self.test, *asked], sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def settings(model: Recommender) -> dict[str, Any]:
    """All parameters that decide the result, each as its own kind of number."""
    found = model.deciding_params()
    for parameter in fields(model):
        value = found.get(parameter.name)
        if isinstance(value, int) and not isinstance(value, bool) and parameter.metadata.get("whole") is False:
            found[parameter.name] = float(value)
    return found


def run(trial: Trial, split: Split, *, n_jobs: int | None = 1) -> tuple[Record, Evaluation | None]:
    """Fit and judge. The best epoch is chosen on validation; the test part is looked at only if asked for.

    A run that is judged on the test part also tells what its fit took, its learning curve, and how it does on
    popular and on rare items.
    """
    from truelike.evaluation.breakdown import by_popularity
    from truelike.evaluation.evaluate import evaluate
    from truelike.models.iterative import IterativeModel

    model = trial.make(n_jobs=n_jobs)
    record: Record = {
        "key": trial.key,
        "model": trial.model,
        "parameters": trial.parameters,
        "settings": settings(model),
        "version": __version__,
    }
    started = time.perf_counter()
    judged = None
    peak = Peak()
    try:
        if isinstance(model, IterativeModel):
            with peak:
                model.fit(split.train, validation=split.validation, progress=False)
            curve = model.history_[model.monitor].to_list() if model.monitor in model.history_.columns else []
            record["epochs"] = len(model.history_)
            record["best_epoch"] = 1 + max(range(len(curve)), key=curve.__getitem__) if curve else None
            record["peaks"] = {
                name: float(model.history_[name].max()) for name in model.history_.columns if "@" in name
            }
        else:
            with peak:
                model.fit(split.train)
        fitted = time.perf_counter()
        metric, _, k = str(trial.metric or getattr(model, "monitor", "f1@2")).partition("@")
        metrics, ks = tuple(dict.fromkeys((*METRICS, metric))), sorted({*KS, int(k)})
        record["validation"] = evaluate(model, split.validation, ks=ks, metrics=metrics, n_jobs=n_jobs).means()
        if trial.test:
            judged = evaluate(model, split.test, ks=ks, metrics=metrics, n_jobs=n_jobs)
            record["test"] = judged.means()
            record["fit"] = {"seconds": round(fitted - started, 3), "mb": peak.mb and round(peak.mb, 1)}
            record["popularity"] = by_popularity(model, split.test, int(k), n_jobs=n_jobs)
            record.update(_curve(model))
    except DivergedError as error:
        record["error"] = str(error)
    except (TruelikeError, MemoryError) as error:  # not for this log, or not on this machine
        record.update(error=str(error) or type(error).__name__, refused=True)
    record["seconds"] = round(time.perf_counter() - started, 3)
    return record, judged


def _curve(model: Any) -> dict[str, Any]:
    """The monitored metric after each epoch, and the seconds of training until then; of a model that iterates."""
    history, monitor = model.__dict__.get("history_"), getattr(model, "monitor", None)
    if history is None or monitor not in history.columns:
        return {}
    seconds = np.cumsum(np.asarray(history["seconds"], dtype=float))
    values = [round(float(value), 6) for value in history[monitor]]
    return {"curve": {"metric": monitor, "values": values, "seconds": seconds.round(3).tolist()}}


def score(record: Record, metric: str) -> float:
    """The metric on validation; below all others for a run that diverged."""
    value = record.get("peaks", {}).get(metric, record.get("validation", {}).get(metric))
    return -math.inf if value is None else float(value)


def toml(
    data: str,
    model: str,
    parameters: dict[str, Any],
    about: Sequence[str] = (),
    read: Mapping[str, Any] | None = None,
) -> str:
    """A file that `truelike train --config` runs.

    >>> print(toml("log.csv", "BPR", {"factors": 8, "patience": None}, ["tuned"]), end="")
    # tuned
    data = "log.csv"
    model = "BPR"
    <BLANKLINE>
    [parameters]
    factors = 8
    patience = "none"
    """
    # TOML has no None; "none" is what the command line takes for it. JSON's strings are TOML's.
    given = {name: "none" if value is None else value for name, value in parameters.items()}
    lines = [
        *(f"# {line}" for line in about),
        f"data = {json.dumps(data)}",
        f"model = {json.dumps(model)}",
        "",
        "[parameters]",
        *(f"{name} = {json.dumps(value)}" for name, value in given.items()),
        *(["", "[read]"] if read else []),
        *(f"{name} = {json.dumps(value)}" for name, value in (read or {}).items()),
    ]
    return "\n".join(lines) + "\n"
