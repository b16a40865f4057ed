"""What a comparison found: the table, the winner, the sentence, and the settings that train it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.frames import to_native
from truelike.data.splits import Split
from truelike.errors import ParameterError
from truelike.evaluation.significance import bootstrap_interval, holm, paired_t
from truelike.files import replacing_file
from truelike.models import variant
from truelike.report import Page
from truelike.tuning.trials import Record, Trial, settings, toml

LEVEL = 0.05  # of the tests; what lies above it may be chance
CHEAPER = 5.0  # times as fast: worth a word
MORE = ("ndcg@5", "f1@5", "f1@20")  # shown beside the metric
CONFIG = "best.toml"


@dataclass(frozen=True, eq=False)
class Contender:
    """A model with its tuned parameters, and what came of them.

    Attributes
    ----------
    score
        The metric on validation, by which the parameters were chosen, of the first final run.
    candidates, search_seconds
        What the search took, in seconds of one process.
    records
        Those of the final runs, one for each seed.
    values
        The test figures of each user, seeds averaged: users x measures; None where there are none.
    reason
        Why there are none.
    """

    model: str
    parameters: dict[str, Any]
    score: float
    candidates: int
    search_seconds: float
    records: list[Record] = field(repr=False)
    values: NDArray[np.float64] | None = field(repr=False)
    reason: str = ""

    @property
    def measures(self) -> list[str]:
        """The columns of `values`."""
        return list(self.records[0]["test"])

    def of(self, measure: str) -> NDArray[np.float64]:
        """A figure for each user."""
        assert self.values is not None
        column: NDArray[np.float64] = self.values[:, self.measures.index(measure)]
        return column

    @property
    def seconds(self) -> float:
        """Of training: the middle one of the seeds."""
        return float(np.median([record["fit"]["seconds"] for record in self.records]))

    @property
    def megabytes(self) -> float | None:
        """The peak memory of a process that trains it: the greatest of the seeds."""
        known = [record["fit"]["mb"] for record in self.records if record["fit"]["mb"] is not None]
        return max(known, default=None)

    @property
    def epochs(self) -> int | None:
        """The best epoch on validation: the middle one of the seeds; None for a model that has none."""
        found = [record["best_epoch"] for record in self.records if record.get("best_epoch")]
        return int(np.median(found)) if found else None


@dataclass(eq=False)
class Comparison:
    """Models tuned alike on one split and judged on its test part, the best first.

    Attributes
    ----------
    contenders
        All models; those that could not be run last.
    activity
        The training votes of each judged user.
    budget
        What each model was given, in words.
    whole
        Whether a whole log was given, and split here.
    place
        Where `best.toml` is written.
    source, read
        What the log is called on the command line, and how it is read.
    """

    contenders: list[Contender]
    metric: str
    split: Split
    activity: NDArray[Any]
    budget: str
    whole: bool
    place: Path | None = None
    source: str = "LOG"
    read: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def place(contender: Contender) -> float:
            return -float(contender.of(self.metric).mean()) if contender.values is not None else np.inf

        self.contenders = sorted(self.contenders, key=place)

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.model} {each.of(self.metric).mean():.4f}" for each in self.ranked)
        return f"Comparison({self.metric}: {shown})"

    @property
    def ranked(self) -> list[Contender]:
        """The models that could be run, the best first."""
        return [each for each in self.contenders if each.values is not None]

    @property
    def best(self) -> str:
        """The model that is best on the test part."""
        return self.ranked[0].model

    @property
    def measures(self) -> list[str]:
        """What the table shows: the metric first."""
        return list(dict.fromkeys((self.metric, *MORE)))

    @property
    def table(self) -> Any:
        """A frame with a row for each model, the best first.

        Each measure is a mean over users (and seeds) with its 95 % interval over users (bootstrap); `seconds` and
        `mb` are of the training of one final run; `p_holm` is of a paired t-test over users against the best,
        corrected for the number of models; `not_worse` says whether it may be chance that the model is below it.
        """
        return to_native(self.frame, self.split.train.library)

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The table as a polars frame, whatever library the log came in."""
        k = self.metric.partition("@")[2]
        rows = []
        for each in self.contenders:
            row: dict[str, Any] = {"model": each.model}
            low, high = self.intervals.get(each.model, ([None] * 9, [None] * 9))
            for n, measure in enumerate(self.measures):
                row[measure] = None if each.values is None else float(each.of(measure).mean())
                row[f"{measure} low"], row[f"{measure} high"] = low[n], high[n]
            ran = bool(each.records)
            coverage = [record["popularity"]["coverage"] for record in each.records]
            row[f"coverage@{k}"] = float(np.mean(coverage)) if ran else None
            row["seconds"] = each.seconds if ran else None
            row["mb"] = each.megabytes if ran else None
            row["p_holm"] = self.p_values.get(each.model)
            row["not_worse"] = each.model in self.as_good if ran else None
            row["not_run"] = each.reason or None
            rows.append(row)
        kinds = {"model": pl.String, "not_worse": pl.Boolean, "not_run": pl.String}
        schema = {name: kinds.get(name, pl.Float64) for name in rows[0]}
        return pl.DataFrame(rows, schema=schema, orient="row")

    @cached_property
    def intervals(self) -> dict[str, tuple[list[float], list[float]]]:
        """Of each model: the lower and the upper bounds of `measures`."""
        found = {}
        for each in self.ranked:
            columns = np.stack([each.of(measure) for measure in self.measures], axis=1)
            low, high = bootstrap_interval(columns)
            found[each.model] = low.tolist(), high.tolist()
        return found

    @cached_property
    def p_values(self) -> dict[str, float]:
        """Of each model but the best: the p-value against the best, after Holm's correction."""
        best, *others = self.ranked
        p = [paired_t(best.of(self.metric), other.of(self.metric)) for other in others]
        return {other.model: value for other, value in zip(others, holm(p), strict=True)}

    @property
    def as_good(self) -> list[str]:
        """The best, and those of which it may be chance that they are below it."""
        return [self.best, *(model for model, p in self.p_values.items() if p >= LEVEL)]

    # --- what to do with it ---------------------------------------------------------------------

    @property
    def command(self) -> str:
        """What trains the best model."""
        config = CONFIG if self.place is None else str(self.place / CONFIG)
        return f"truelike train {shlex.quote(self.source)} --config {shlex.quote(config)} -o model/"

    @property
    def sentence(self) -> str:
        """Which model to use on this log, why, and how to train it."""
        return f"{self.verdict}; train {self.best} with: {self.command}"

    @property
    def verdict(self) -> str:
        """Which model to use on this log, and why."""
        best, others = self.ranked[0], self.ranked[1:]
        low, high = (bound[0] for bound in self.intervals[best.model])
        value = best.of(self.metric).mean()
        figures = f"{self.metric} {value:.4f} on the test part, 95 % interval {low:.4f} to {high:.4f}"
        if not others:
            return f"Use {best.model} on this log: it is the only one that was run ({figures})"
        rivals = self.as_good[1:]
        words = [f"Use {best.model} on this log: it is the best of {len(self.ranked)} ({figures})"]
        if not rivals:
            words.append(f"and all others are worse beyond chance (p < {LEVEL:g} after Holm's correction)")
        else:
            are = "is" if len(rivals) == 1 else "are"
            words.append(f"though {_listed(rivals)} {are} not worse beyond chance")
            cheap = min((each for each in others if each.model in rivals), key=lambda each: each.seconds)
            if cheap.seconds * CHEAPER <= best.seconds and best.seconds >= 1.0:
                words.append(
                    f"and {cheap.model} trains in {_seconds(cheap.seconds)} instead of {_seconds(best.seconds)}: "
                    "take that where time matters"
                )
        return ", ".join(words)

    def config(self, model: str | None = None) -> str:
        """A TOML file for `truelike train --config`, of the best model or of another."""
        name = self.best if model is None else model
        known = {each.model: each for each in self.ranked}
        if name not in known:
            raise ParameterError(f"model is {name!r}; there are results of {', '.join(known)}")
        chosen = known[name]
        parameters = settings(Trial(chosen.model, chosen.parameters).make())
        about = [
            f"{self.metric} on validation: {chosen.score!r}",
            f"{self.metric} on test: {float(chosen.of(self.metric).mean())!r}",
        ]
        if self.whole and chosen.epochs:
            about.append("epochs: the best one of a split of this log; the whole log is trained for as many")
            parameters["epochs"] = chosen.epochs
        return toml(self.source, variant(chosen.model)[0].__name__, parameters, about, self.read)

    def write_config(self) -> Path:
        """Write `best.toml` to its place."""
        path = (self.place or Path()) / CONFIG
        with replacing_file(path) as fresh:
            fresh.write_text(self.config(), encoding="utf-8")
        return path

    def page(self) -> Page:
        """The page with the table, the plots and the sentence."""
        from truelike.comparison.report import page

        return page(self)

    def write(self, path: str | Path) -> Path:
        """Write the page; `best.toml` goes beside it where no directory was named."""
        path = Path(path)
        if self.place is None:
            self.place = path.parent
        written = self.page().write(path)
        self.write_config()
        return written


def _listed(names: list[str]) -> str:
    """Names as a person lists them.

    >>> _listed(["BPR"]), _listed(["BPR", "BPO", "NBPO"])
    ('BPR', 'BPR, BPO and NBPO')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _seconds(seconds: float) -> str:
    if seconds < 0.1:
        return "less than 0.1 s"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
