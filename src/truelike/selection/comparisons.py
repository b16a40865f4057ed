"""Comparisons on several datasets: the table, the ranks of the models over datasets, and a test of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from truelike.data.frames import to_native
from truelike.errors import UnknownIdError
from truelike.evaluation.metrics import Floats
from truelike.evaluation.ranks import FEWEST_DATASETS, RankTest, ranks_of
from truelike.evaluation.significance import LEVEL
from truelike.report import Page, page_path
from truelike.selection.comparison import ABOVE, ALIKE, BELOW, BEST, Comparison, ModelResult, listed
from truelike.selection.manifest import MANIFEST, Manifest
from truelike.selection.plan import Plan

UNTESTED = "not tested"  # with fewer datasets than a test needs


@dataclass(eq=False, repr=False)
class Comparisons(Mapping[str, Comparison]):
    """The same models compared on several datasets: a mapping from the name of a dataset to its `Comparison`.

    The ranks of a model are those of its metric, mean over users and seeds, among the models that were trained on all
    datasets. The test of them is over datasets: it asks whether the order would hold on other datasets of the same
    kind. Other models are compared with the one that has the best mean rank on validation, which is known before the
    test parts are looked at.

    Attributes
    ----------
    comparisons
        The comparison of each dataset.
    plan
        The models and the arguments that decide the result.
    directory
        Where all runs are kept, a directory for each dataset.
    """

    comparisons: dict[str, Comparison]
    plan: Plan
    directory: Path | None = None

    def __getitem__(self, name: str) -> Comparison:
        if name not in self.comparisons:
            raise UnknownIdError(f"there is no dataset {name!r}; there are {', '.join(self.comparisons)}")
        return self.comparisons[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.comparisons)

    def __len__(self) -> int:
        return len(self.comparisons)

    def __repr__(self) -> str:
        best = ", ".join(f"{model} on {name}" for name, model in self.best.items())
        return f"Comparisons({self.plan.metric}; best on validation: {best})"

    def _repr_html_(self) -> str:
        """The answer and the tables, for notebooks."""
        from truelike.selection.comparisons_page import html

        return html(self)

    @property
    def best(self) -> dict[str, str]:
        """The model that is best on validation, of each dataset."""
        return {name: each.best for name, each in self.items()}

    @property
    def manifest(self) -> Manifest:
        """What reproduces the table: versions, settings, and the hash of each part of each dataset."""
        return Manifest.of(self.plan, {name: each.split for name, each in self.items()})

    # --- ranks ----------------------------------------------------------------------------------

    @cached_property
    def ranked(self) -> list[str]:
        """The models that were trained on all datasets, the best mean rank on test first."""
        names = [
            model.name for model in self.plan.models if all(model.name in of for of in self._results.values())
        ]
        means = ranks_of(self._values(names)).mean(axis=0) if names else np.empty(0)
        return [name for _, name in sorted(zip(means.tolist(), names, strict=True))]

    @cached_property
    def _results(self) -> dict[str, dict[str, ModelResult]]:
        return {name: {each.model: each for each in found.ranked} for name, found in self.items()}

    def _values(self, names: list[str]) -> Floats:
        """The metric on test: datasets x models."""
        metric = self.plan.metric
        return np.array([[of[name].of(metric).mean() for name in names] for of in self._results.values()])

    @cached_property
    def ranks_on_test(self) -> Floats:
        """The ranks on test, datasets x `ranked`; the highest value has the rank 1, equal ones share their mean."""
        return ranks_of(self._values(self.ranked))

    @cached_property
    def ranks_on_validation(self) -> Floats:
        """The mean rank on validation of each of `ranked`."""
        scores = np.array([[of[name].score for name in self.ranked] for of in self._results.values()])
        means: Floats = ranks_of(scores).mean(axis=0)
        return means

    @property
    def reference(self) -> str:
        """The model with the best mean rank on validation; of equal ones the first by name."""
        return min(zip(self.ranks_on_validation.tolist(), self.ranked, strict=True))[1]

    @cached_property
    def rank_test(self) -> RankTest | None:
        """The test of the mean ranks; None with fewer than three datasets or two models."""
        if self.why_no_test:
            return None
        return RankTest.of(self._values(self.ranked))

    @property
    def why_no_test(self) -> str:
        """Why the ranks are not tested; empty if they are."""
        if len(self.ranked) < 2:
            return f"fewer than two models were trained on all {len(self)} datasets, so there is nothing to rank"
        if len(self) < FEWEST_DATASETS:
            few = "two datasets" if len(self) == 2 else "one dataset"
            return f"{few} cannot show a difference over datasets; {FEWEST_DATASETS} or more are needed"
        return ""

    @cached_property
    def against_best(self) -> dict[str, str]:
        """How each of `ranked` compares with `reference` over datasets: as in `Comparison`, or "not tested"."""
        found = {}
        means = dict(zip(self.ranked, self.ranks_on_test.mean(axis=0), strict=True))
        for name in self.ranked:
            p = self.p_value(name)
            if name == self.reference:
                found[name] = BEST
            elif p is None:
                found[name] = UNTESTED
            elif p >= LEVEL:
                found[name] = ALIKE
            else:
                found[name] = ABOVE if means[name] < means[self.reference] else BELOW
        return found

    def p_value(self, name: str) -> float | None:
        """The corrected p-value of a model's mean rank against that of `reference`; None without a test."""
        if self.rank_test is None or name == self.reference:
            return None
        return float(self.rank_test.p_of_pairs[self.ranked.index(name), self.ranked.index(self.reference)])

    # --- tables ---------------------------------------------------------------------------------

    @property
    def table(self) -> Any:
        """A frame with one row a model, the best mean rank on test first; models without ranks last.

        For each dataset it has the metric on test, such as "ml ndcg@20", mean over users and seeds, and "ml std", its
        standard deviation over seeds (null with one run). "rank" is the mean rank.
        """
        return to_native(self.frame, self._library)

    @property
    def _library(self) -> Any:
        return next(iter(self.values())).split.train.library

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The table as a polars frame."""
        metric = self.plan.metric
        others = [model.name for model in self.plan.models if model.name not in self.ranked]
        rows = []
        for model in [*self.ranked, *others]:
            row: dict[str, str | float | None] = {"model": model}
            for name, of in self._results.items():
                result = of.get(model)
                row[f"{name} {metric}"] = None if result is None else float(result.of(metric).mean())
                row[f"{name} std"] = None if result is None else result.deviation(metric)
            at = self.ranked.index(model) if model in self.ranked else None
            row["rank"] = None if at is None else float(self.ranks_on_test[:, at].mean())
            rows.append(row)
        return pl.DataFrame(rows, schema={name: pl.String if name == "model" else pl.Float64 for name in rows[0]})

    @property
    def ranks(self) -> Any:
        """A frame with one row a model that was trained on all datasets, the best mean rank on test first.

        `rank` and "rank on validation" are mean ranks; "ml rank" is the rank on test of one dataset. `p` is the p-value
        of the difference from the best mean rank on validation, corrected for all pairs; `against_best` says the
        outcome. Without a test `p` is null, and the outcome is "not tested".
        """
        return to_native(self.rank_frame, self._library)

    @cached_property
    def rank_frame(self) -> pl.DataFrame:
        """The ranks as a polars frame."""
        columns = {
            "model": self.ranked,
            "rank": self.ranks_on_test.mean(axis=0),
            "rank on validation": self.ranks_on_validation,
            **{f"{name} rank": each for name, each in zip(self, self.ranks_on_test, strict=True)},
            "p": pl.Series([self.p_value(name) for name in self.ranked], dtype=pl.Float64),
            "against_best": [self.against_best[name] for name in self.ranked],
        }
        return pl.DataFrame(columns)

    # --- the answer -----------------------------------------------------------------------------

    @property
    def sentence(self) -> str:
        """Which model is best on the datasets, and what the test of the ranks says."""
        each = "; ".join(f"{model} on {name}" for name, model in self.best.items())
        return f"Best on validation: {each}. {self._said_of_ranks()}"

    def _said_of_ranks(self) -> str:
        if not self.ranked or len(self.ranked) < 2:
            return f"No ranks: {self.why_no_test}"
        means = dict(zip(self.ranked, self.ranks_on_test.mean(axis=0).tolist(), strict=True))
        said = (
            f"{self.reference} has the best mean rank on validation over {len(self)} datasets, and the mean rank "
            f"{means[self.reference]:.2f} of {len(self.ranked)} models on test"
        )
        test = self.rank_test
        if test is None:
            return f"{said}. The ranks are not tested: {self.why_no_test}"
        if test.smallest_p >= LEVEL:
            return (
                f"{said}. No test can tell {len(self.ranked)} models apart by {len(self)} datasets: the smallest "
                f"p-value that two can have is {test.smallest_p:.2g}"
            )
        parts = []
        for outcome, words in ((ABOVE, "significantly above it"), (BELOW, "significantly below it")):
            if names := [name for name in self.ranked if self.against_best[name] == outcome]:
                parts.append(f"{listed(names)} {'is' if len(names) == 1 else 'are'} {words}")
        if names := [name for name in self.ranked if self.against_best[name] == ALIKE]:
            parts.append(f"{listed(names)} {'is' if len(names) == 1 else 'are'} not distinguishable from it")
        return f"{said}. By ranks over datasets {'; '.join(parts)} (Friedman p = {test.p:.2g})"

    def to_latex(self) -> str:
        """The table for a paper; it needs the LaTeX package booktabs. Marks are explained in a note."""
        from truelike.selection.comparison_latex import latex_of_several

        return latex_of_several(self)

    def plot(self) -> Any:
        """The mean ranks, the ranks on each dataset and the critical difference: a matplotlib figure."""
        from truelike.selection.comparisons_page import rank_plot

        return rank_plot(self)

    def page(self) -> Page:
        """Create the page: the answer, the table, the ranks, and the result of each dataset."""
        from truelike.selection.comparisons_page import page

        return page(self)

    def write(self, path: str | Path) -> Path:
        """Write the page; `manifest.json` goes beside it where no directory was given."""
        path = page_path(path)
        written = self.page().write(path)
        if self.directory is None:
            self.manifest.write(path.parent / MANIFEST)
        return written
