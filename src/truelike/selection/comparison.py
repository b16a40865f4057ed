"""The result of a comparison: the table, the best model, and the settings that train it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.core.files import replacing_file
from truelike.data.frames import to_native
from truelike.data.splits import Split
from truelike.errors import ParameterError
from truelike.evaluation.significance import LEVEL, holm, mean_interval, paired_t
from truelike.models.base import Recommender
from truelike.report import Page, page_path
from truelike.selection import references
from truelike.selection.manifest import MANIFEST, Manifest
from truelike.selection.plan import Plan
from truelike.selection.references import is_own
from truelike.selection.trials import Record, settings, toml
from truelike.selection.variants import NOT_FIXED, Parameters, Variant

BEST, BELOW, ABOVE, ALIKE = "best", "below", "above", "not distinguishable"  # of a model against the best
CHEAPER = 5.0  # a model that trains so many times faster is worth mentioning
MORE = ("ndcg@5", "f1@5", "f1@20")  # shown beside the metric
CONFIG = "best.toml"


@dataclass(frozen=True, eq=False)
class ModelResult:
    """A model with its tuned parameters and its results.

    The records are those of the final runs, one for each seed; `score` is their mean metric on validation. The values
    are the test figures of each user, averaged over seeds: users x measures. Without a final run they are None, and
    `reason` says why.
    """

    variant: Variant
    parameters: Parameters
    score: float
    candidates: int
    search_seconds: float
    records: list[Record] = field(repr=False)
    values: NDArray[np.float64] | None = field(repr=False)
    reason: str = ""

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.variant.name

    @property
    def measures(self) -> list[str]:
        """The columns of `values`."""
        return list(self.records[0]["test"])

    def of(self, measure: str) -> NDArray[np.float64]:
        """A measure of each user."""
        assert self.values is not None
        column: NDArray[np.float64] = self.values[:, self.measures.index(measure)]
        return column

    def deviation(self, measure: str) -> float | None:
        """The standard deviation over seeds of the mean over users; None with one seed, or for a model without one."""
        means = [record["test"][measure] for record in self.records]
        return float(np.std(means, ddof=1)) if len(means) > 1 else None

    @property
    def seconds(self) -> float:
        """The training time of a final run: the median over seeds."""
        return float(np.median([record["fit"]["seconds"] for record in self.records]))

    @property
    def megabytes(self) -> float | None:
        """The peak memory of a process that trains the model: the maximum over seeds."""
        known = [record["fit"]["mb"] for record in self.records if record["fit"]["mb"] is not None]
        return max(known, default=None)

    @property
    def epochs(self) -> int | None:
        """The best epoch on validation: the median over seeds; None for a model without epochs."""
        found = [record["best_epoch"] for record in self.records if record.get("best_epoch")]
        return int(np.median(found)) if found else None

    @property
    def is_on_command_line(self) -> bool:
        """Whether `truelike train` can train it: neither its class nor a parameter is code of the user's own."""
        values = {**self.variant.parameters, **self.parameters}.values()
        return all(map(references.is_plain, values)) and not is_own(self.variant.model_class)


def against(reference: ModelResult, results: Sequence[ModelResult], metric: str) -> dict[str, float]:
    """The p-value of each other model against one that was chosen without the test part, after Holm's correction."""
    others = [each for each in results if each is not reference]
    p = [paired_t(reference.of(metric), other.of(metric)) for other in others]
    return {other.model: value for other, value in zip(others, holm(p), strict=True)}


@dataclass(eq=False)
class Comparison:
    """Models tuned alike on one split and evaluated on its test part.

    `best` is the model with the best metric on validation, mean over seeds. It is known before the test part is looked
    at, so that a test of the others against it rejects as often as it says.

    Attributes
    ----------
    results
        All models, the best on the test part first; those that could not be trained last.
    plan
        The models and the arguments that decide the result.
    split
        The split.
    activity
        The number of training interactions of each evaluated user.
    from_dataset
        Whether a whole dataset was given and split by `compare`.
    directory
        Where `best.toml` is written.
    source, read
        The name of the dataset on the command line, and the options that read it.
    """

    results: list[ModelResult]
    plan: Plan
    split: Split
    activity: NDArray[np.int64]
    from_dataset: bool
    directory: Path | None = None
    source: str = "LOG"
    read: Parameters = field(default_factory=dict)

    def __post_init__(self) -> None:
        def rank(result: ModelResult) -> float:
            return -float(result.of(self.metric).mean()) if result.values is not None else np.inf

        self.results = sorted(self.results, key=rank)

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.model} {each.of(self.metric).mean():.4f}" for each in self.ranked)
        return f"Comparison(best: {self.best}; {self.metric} on test: {shown})"

    def _repr_html_(self) -> str:
        """The answer and the table, for notebooks."""
        from truelike.selection.comparison_page import html

        return html(self)

    @property
    def metric(self) -> str:
        """The metric on validation that models were tuned and the best was chosen by, and that is tested on test."""
        return self.plan.metric

    @property
    def manifest(self) -> Manifest:
        """What reproduces the table: versions, settings, and the hash of each part of the data."""
        return Manifest.of(self.plan, {self.split.train.name: self.split})

    @property
    def ranked(self) -> list[ModelResult]:
        """The models that could be trained, the best on the test part first."""
        return [each for each in self.results if each.values is not None]

    @cached_property
    def chosen(self) -> ModelResult:
        """The results of the model that is best on validation; of equal ones the first by name."""
        return min(self.ranked, key=lambda each: (-each.score, each.model))

    @property
    def best(self) -> str:
        """The name of the model that is best on validation."""
        return self.chosen.model

    def make(self, **more: Any) -> Recommender:
        """Create the best model, unfitted, with its tuned parameters.

        Where a whole dataset was given, `epochs` is the best epoch, so that `fit(dataset)` trains for as many.
        """
        return self.chosen.variant.make({**self._parameters(self.chosen), **more})

    @property
    def measures(self) -> list[str]:
        """The measures of the table, the metric first."""
        return list(dict.fromkeys((self.metric, *MORE)))

    @property
    def table(self) -> Any:
        """A frame with one row a model, the best on the test part first.

        Each measure is a mean over users and seeds with its 95 % interval over users; "ndcg@20 std" is the
        standard deviation of the metric over seeds, null with one seed or for a model without one; "ndcg@20
        validation" is the mean over seeds by which `best` was chosen. `seconds` and `mb` are the training time and
        memory of one final run. `p_holm` is the p-value of a paired t-test over users against `best` on the test part,
        after Holm's correction. `against_best` says the outcome: "below" or "above" with p < 0.05, else "not
        distinguishable".
        """
        return to_native(self.frame, self.split.train.library)

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The table as a polars frame, whatever library the dataset came from."""
        k = self.metric.partition("@")[2]
        rows = []
        for each in self.results:
            row: dict[str, str | float | bool | None] = {"model": each.model}
            nothing = [None] * len(self.measures)
            low, high = self.intervals.get(each.model, (nothing, nothing))
            for n, measure in enumerate(self.measures):
                row[measure] = None if each.values is None else float(each.of(measure).mean())
                row[f"{measure} low"], row[f"{measure} high"] = low[n], high[n]
            ran = each.values is not None
            row[f"{self.metric} std"] = each.deviation(self.metric)
            row[f"{self.metric} validation"] = each.score if ran else None
            coverage = [record["popularity"]["coverage"] for record in each.records]
            row[f"coverage@{k}"] = float(np.mean(coverage)) if ran else None
            row["seconds"] = each.seconds if ran else None
            row["mb"] = each.megabytes if ran else None
            row["p_holm"] = self.p_values.get(each.model)
            row["against_best"] = self.against_best.get(each.model)
            row["not_run"] = each.reason or None
            rows.append(row)
        kinds = {"model": pl.String, "against_best": pl.String, "not_run": pl.String}
        schema = {name: kinds.get(name, pl.Float64) for name in rows[0]}
        return pl.DataFrame(rows, schema=schema, orient="row")

    @cached_property
    def intervals(self) -> dict[str, tuple[list[float], list[float]]]:
        """For each model the lower and the upper bounds of `measures`."""
        found = {}
        for each in self.ranked:
            low, high = zip(*(mean_interval(each.of(measure)) for measure in self.measures), strict=True)
            found[each.model] = list(low), list(high)
        return found

    @cached_property
    def p_values(self) -> dict[str, float]:
        """For each model except `best`: the p-value against `best` on the test part, after Holm's correction."""
        return against(self.chosen, self.ranked, self.metric)

    @cached_property
    def against_best(self) -> dict[str, str]:
        """How each model compares with the best on the test part: "below", "above" or "not distinguishable"."""
        found = {self.best: BEST}
        for each in self.ranked:
            if each.model != self.best:
                side = ABOVE if self._is_above(each) else BELOW
                found[each.model] = side if self.p_values[each.model] < LEVEL else ALIKE
        return found

    def _is_above(self, result: ModelResult) -> bool:
        """Whether the mean of a model on the test part is above that of the best on validation."""
        return bool(result.of(self.metric).mean() > self.chosen.of(self.metric).mean())

    # --- the answer -----------------------------------------------------------------------------

    @property
    def command(self) -> str:
        """What trains the best model: a command, or Python code for a class of the user's own."""
        best = self.chosen
        if not best.is_on_command_line:
            return f"{self._code(best)}.fit(data)"
        config = CONFIG if self.directory is None else str(self.directory / CONFIG)
        return f"truelike train {shlex.quote(self.source)} --config {shlex.quote(config)} -o model/"

    def _code(self, result: ModelResult) -> str:
        """The constructor call of a tuned model."""
        given = {**result.variant.parameters, **self._parameters(result)}
        shown = (
            f"{name}={getattr(value, '__name__', None) or repr(value)}"
            for name, value in given.items()
            if name not in NOT_FIXED
        )
        return f"{result.variant.model_class.__name__}({', '.join(shown)})"

    @property
    def sentence(self) -> str:
        """Which model to use on this dataset, why, and how to train it."""
        return f"{self.verdict}. Train it with: {self.command}"

    @property
    def verdict(self) -> str:
        """Which model to use on this dataset, and why."""
        best, n = self.chosen, len(self.ranked)
        low, high = (bound[0] for bound in self.intervals[best.model])
        value = best.of(self.metric).mean()
        figures = f"{self.metric} {value:.4f} on the test part, 95 % interval {low:.4f} to {high:.4f}"
        if n == 1:
            return f"Use {best.model} on this dataset: it is the only model that was trained ({figures})"
        first = f"Use {best.model} on this dataset: it is the best of {n} models on validation ({figures})"
        parts = [*self._said_of_those_above(), *self._said_of_those_below()]
        return f"{first}. On the test part {'; '.join(parts)}"

    def _said_of_those_above(self) -> list[str]:
        """What is said of each model with a higher mean on the test part."""
        parts = []
        for each in self.ranked:
            if self._is_above(each):
                found = f"{each.model} is above it ({each.of(self.metric).mean():.4f})"
                significant = self.against_best[each.model] == ABOVE
                parts.append(f"{found}, {'significantly' if significant else 'but not significantly'}")
        return parts

    def _said_of_those_below(self) -> list[str]:
        """What is said of the models with a lower mean on the test part, and of a much faster one among them."""
        lower = [each for each in self.ranked if each.model != self.best and not self._is_above(each)]
        rivals = [each for each in lower if self.against_best[each.model] != BELOW]
        parts = []
        if rivals:
            are = "is" if len(rivals) == 1 else "are"
            parts.append(f"{listed([each.model for each in rivals])} {are} not distinguishable from it")
        if len(lower) > len(rivals):
            parts.append(f"all others are significantly below it (p < {LEVEL:g} after Holm's correction)")
        alike = [each for each in self.ranked if self.against_best[each.model] in (ALIKE, ABOVE)]
        cheap = min(alike, key=lambda each: each.seconds, default=self.chosen)
        if cheap.seconds * CHEAPER <= self.chosen.seconds and self.chosen.seconds >= 1.0:
            parts.append(
                f"{cheap.model} trains in {_seconds(cheap.seconds)} instead of {_seconds(self.chosen.seconds)}: "
                "use it where training time matters"
            )
        return parts

    def _parameters(self, result: ModelResult) -> Parameters:
        """The tuned parameters; for a whole dataset with the best number of epochs."""
        more = {"epochs": result.epochs} if self.from_dataset and result.epochs else {}
        return {**result.parameters, **more}

    def config(self, model: str | None = None) -> str:
        """The TOML file for `truelike train --config`, of the best model or of another."""
        name = self.best if model is None else model
        known = {each.model: each for each in self.ranked}
        if name not in known:
            raise ParameterError(f"model is {name!r}; there are results of {', '.join(known)}")
        chosen = known[name]
        if not chosen.is_on_command_line:
            raise ParameterError(
                f"{name} has a class of your own, which `truelike train` does not know. Train it in Python: "
                f"{self._code(chosen)}.fit(data)"
            )
        about = [
            f"{self.metric} on validation: {chosen.score!r}",
            f"{self.metric} on test: {float(chosen.of(self.metric).mean())!r}",
        ]
        if self.from_dataset and chosen.epochs:
            about.append("epochs: the best epoch on a split of this dataset; the whole dataset is trained as long")
        parameters = settings(chosen.variant.make(self._parameters(chosen)))
        return toml(self.source, chosen.variant.model_class.__name__, parameters, about, self.read)

    def write_config(self) -> Path | None:
        """Write `best.toml` to the directory; None for a best model that `truelike train` does not know."""
        if not self.chosen.is_on_command_line:
            return None
        path = (self.directory or Path()) / CONFIG
        with replacing_file(path) as fresh:
            fresh.write_text(self.config(), encoding="utf-8")
        return path

    def to_latex(self) -> str:
        """The table of the models that were trained, for a paper; it needs the LaTeX package booktabs.

        Bold is the highest mean on test. Marks, which a note explains, say what is the best on validation, and what is
        significantly below or above it on test.
        """
        from truelike.selection.comparison_latex import latex

        return latex(self)

    def page(self) -> Page:
        """Create the page: the answer, the table and the plots."""
        from truelike.selection.comparison_page import page

        return page(self)

    def write(self, path: str | Path) -> Path:
        """Write the page; `best.toml` and `manifest.json` go beside it where no directory was given."""
        path = page_path(path)
        alone = self.directory is None
        self.directory = self.directory or path.parent
        written = self.page().write(path)
        if alone:
            self.manifest.write(self.directory / MANIFEST)
        self.write_config()
        return written


def listed(names: list[str]) -> str:
    """Names in a sentence.

    >>> listed(["BPR"]), listed(["BPR", "BPO", "NBPO"])
    ('BPR', 'BPR, BPO and NBPO')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _seconds(seconds: float) -> str:
    if seconds < 0.1:
        return "less than 0.1 s"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
