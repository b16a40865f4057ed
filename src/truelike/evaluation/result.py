"""Evaluation: the metrics of each user, their means, and how they are shown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any

import polars as pl

from truelike.data.frames import Library, to_native
from truelike.data.html import table
from truelike.errors import UnknownMeasureError
from truelike.evaluation.calibration import LabelScores
from truelike.evaluation.metrics import METRICS, Floats
from truelike.evaluation.propensity import PropensityEstimates
from truelike.evaluation.significance import mean_interval

LIST_METRICS = ("coverage", "novelty", "popularity")  # of the lists alone, whatever is relevant
ALL_METRICS = (*METRICS, *LIST_METRICS)  # in the order of tables
USUAL_METRICS = tuple(name for name in ALL_METRICS if name != "capped_recall")  # those of an evaluation by default
NO_LENGTH = "value"  # the column of measures that have no list length, such as "truth_auc"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The metrics of a model on a test set: one value per user, and the means over users.

    Attributes
    ----------
    model
        The name of the model.
    users
        The ids of the users that were evaluated.
    values
        For each measure, such as "ndcg@20", one value per user.
    totals
        Measures of all lists together, such as "coverage@20".
    library
        The frame library of the results: "polars", "pandas" or "pyarrow".
    truth
        The scores against true labels, if these were given.
    propensity
        The estimates weighted by 1 / propensity, if propensities were given.
    impressions
        The scores on held-out impressions, if these were given.
    notes
        Reasons to doubt the metrics, as sentences; most results have none.
    left_out
        The parts whose items were left out of the lists: "train", and "validation" or "earlier"; see `seen` of
        `tl.evaluate`. Of new users, "history". Empty if there are no lists.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=200, n_items=100).dataset(), seed=0)
    >>> result = tl.evaluate(tl.ItemPop().fit(split.train), split, ks=(5, 20), metrics=["recall", "ndcg"])
    >>> result.summary().columns, result.summary()["metric"].to_list()
    (['metric', '@5', '@20', 'left_out'], ['ndcg', 'recall'])
    >>> result.left_out, result.intervals().columns
    (('train', 'validation'), ['model', 'metric', 'k', 'value', 'low', 'high', 'left_out'])
    >>> 0 < result["ndcg@5"] < 1
    True
    """

    model: str
    users: pl.Series
    values: dict[str, Floats]
    totals: dict[str, float] = field(default_factory=dict)
    library: Library = "polars"
    truth: LabelScores | None = None
    propensity: PropensityEstimates | None = None
    impressions: LabelScores | None = None
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def __getitem__(self, measure: str) -> float:
        """Return the mean over users of one measure, e.g. `result["ndcg@20"]`."""
        means = self.means()
        if measure not in means:
            raise UnknownMeasureError(f"{measure!r} was not measured; available: {', '.join(means)}")
        return means[measure]

    def means(self) -> dict[str, float]:
        """Return the mean over users of each measure."""
        values, totals = dict(self.values), dict(self.totals)
        if self.truth is not None:  # its users may be others
            values.update(self.truth.values)
            totals.update(self.truth.totals)
        return {**{name: float(each.mean()) for name, each in values.items()}, **totals}

    def per_user(self) -> Any:
        """Return a frame with one row per user and one column per measure.

        After an evaluation with both a test set and a truth, the measures are those of the test set.
        """
        columns = [pl.Series(name, values) for name, values in self.values.items()]
        return to_native(pl.DataFrame([self.users.alias("user_id"), *columns]), self.library)

    def summary(self) -> Any:
        """Return a frame with one row per metric and one column per list length: metric, @5, @20, ..., left_out.

        Measures without a list length, such as "truth_auc", are in a column `value`. `left_out` are the parts whose
        items are not in the lists.
        """
        columns, rows = self._table(self.means().__getitem__)
        schema = {"metric": pl.String, **dict.fromkeys(columns, pl.Float64)}
        return to_native(self._with_left_out(pl.DataFrame(rows, schema=schema, orient="row")), self.library)

    def _with_left_out(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame with what was left out of the lists, if there are lists: figures differ by it."""
        return frame.with_columns(left_out=pl.lit(", ".join(self.left_out))) if self.left_out else frame

    def intervals(self, *, confidence: float = 0.95) -> Any:
        """Return a frame model, metric, k, value, low, high, left_out: one row per measure, with confidence intervals.

        Parameters
        ----------
        confidence
            The confidence of the intervals, between 0 and 1.

        Returns
        -------
        frame
            In the frame library of the training data. Measures of all lists together, such as coverage, have no
            interval. `left_out` are the parts whose items are not in the lists.
        """
        bounds = self._bounds(confidence)
        rows = []
        for name, value in self._sorted_means().items():
            metric, _, k = name.partition("@")
            rows.append((self.model, metric, int(k) if k else None, value, *bounds.get(name, (None, None))))
        numbers = dict.fromkeys(("value", "low", "high"), pl.Float64)
        schema = {"model": pl.String, "metric": pl.String, "k": pl.Int64, **numbers}
        return to_native(self._with_left_out(pl.DataFrame(rows, schema=schema, orient="row")), self.library)

    def _bounds(self, confidence: float = 0.95) -> dict[str, tuple[float, float]]:
        """The interval of each measure that has one value per user."""
        values = self.values | ({} if self.truth is None else self.truth.values)
        return {name: mean_interval(each, confidence=confidence) for name, each in values.items()}

    def _sorted_means(self) -> dict[str, float]:
        """The means in the order of tables: NDCG first, then by list length; those of the truth last."""

        def place(measure: str) -> tuple[int, int]:
            metric, _, k = measure.partition("@")
            known = metric in ALL_METRICS
            return ALL_METRICS.index(metric) if known else len(ALL_METRICS), int(k or 0) if known else 0

        means = self.means()
        return {name: means[name] for name in sorted(means, key=place)}

    def _table(self, cell: Callable[[str], Any]) -> tuple[list[str], list[list[Any]]]:
        """The columns and the rows of a table with one row per metric, of the cells of its measures."""
        cells: dict[str, dict[str, Any]] = {}
        for name in self._sorted_means():
            metric, _, k = name.partition("@")
            cells.setdefault(metric, {})[k] = cell(name)
        lengths = sorted({k for row in cells.values() for k in row}, key=lambda k: int(k or sys.maxsize))
        columns = [f"@{k}" if k else NO_LENGTH for k in lengths]
        return columns, [[metric, *(row.get(k) for k in lengths)] for metric, row in cells.items()]

    def __repr__(self) -> str:
        shown = [f"{name} {value:.4f}" for name, value in self._sorted_means().items()]
        listed = [*shown[:8], "..."] if len(shown) > 8 else shown
        weighted = "" if self.propensity is None else f"; weighted by 1 / propensity: {self.propensity!r}"
        left_out = f"; left out: {', '.join(self.left_out)}" if self.left_out else ""
        notes = "".join(f"\nNote: {note}" for note in self.notes)
        return (
            f"Evaluation({self.model}, {len(self.users):,} users: {', '.join(listed)}{left_out}{weighted}){notes}"
        )

    def _repr_html_(self) -> str:
        means, bounds = self.means(), self._bounds()

        def cell(measure: str) -> str:
            low, high = bounds.get(measure, (None, None))
            return f"{means[measure]:.4f}" + ("" if low is None else f" ({low:.4f} to {high:.4f})")

        columns, rows = self._table(cell)
        filled = [["" if each is None else each for each in row] for row in rows]
        return (
            f"<div><b>Evaluation</b> {escape(self.model)}, {len(self.users):,} users, with 95 % intervals"
            + (f". Left out of the lists: {', '.join(self.left_out)}" if self.left_out else "")
            + table(filled, ("", *columns))
            + ("" if self.propensity is None else self.propensity._repr_html_())
            + "".join(f"<p>Note: {escape(note)}</p>" for note in self.notes)
            + "</div>"
        )
