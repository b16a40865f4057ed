"""Evaluation: the metrics of each user, their means, and how they are shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.frames import Library, to_native
from truelike.errors import UnknownMeasureError
from truelike.evaluation.impressions import ImpressionScores
from truelike.evaluation.metrics import METRICS
from truelike.evaluation.propensity import PropensityEstimates
from truelike.evaluation.significance import bootstrap_interval
from truelike.evaluation.truth import TruthScores

__all__ = ["ALL_METRICS", "LIST_METRICS", "Evaluation"]

LIST_METRICS = ("coverage", "novelty", "popularity")  # of the lists alone, whatever is relevant
ALL_METRICS = (*METRICS, *LIST_METRICS)  # in the order of tables
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

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=200, n_items=100).dataset(), seed=0)
    >>> result = tl.evaluate(tl.ItemPop().fit(split.train), split.test, ks=(5, 20), metrics=["recall", "ndcg"])
    >>> result.summary().columns, result.summary()["metric"].to_list()
    (['metric', '@5', '@20'], ['ndcg', 'recall'])
    >>> result.intervals().columns
    ['model', 'metric', 'k', 'value', 'low', 'high']
    >>> 0 < result["ndcg@5"] < 1
    True
    """

    model: str
    users: pl.Series
    values: dict[str, NDArray[np.float64]]
    totals: dict[str, float] = field(default_factory=dict)
    library: Library = "polars"
    truth: TruthScores | None = None
    propensity: PropensityEstimates | None = None
    impressions: ImpressionScores | None = None
    notes: tuple[str, ...] = ()

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
        """Return a frame with one row per metric and one column per list length: metric, @5, @20, ...

        Measures without a list length, such as "truth_auc", are in a column `value`.
        """
        rows, columns = self._grid()
        means = self.means()
        table = [[means.get(_measure(metric, column)) for column in columns] for metric in rows]
        schema = {"metric": pl.String, **dict.fromkeys(columns, pl.Float64)}
        frame = pl.DataFrame(
            [(metric, *row) for metric, row in zip(rows, table, strict=True)], schema=schema, orient="row"
        )
        return to_native(frame, self.library)

    def intervals(self, *, confidence: float = 0.95, resamples: int = 1_000, seed: int = 0) -> Any:
        """Return a frame model, metric, k, value, low, high: one row per measure, with confidence intervals.

        Parameters
        ----------
        confidence
            The confidence of the intervals, between 0 and 1.
        resamples
            The number of bootstrap samples of the users.
        seed
            The seed of the bootstrap.

        Returns
        -------
        frame
            In the frame library of the training data. Measures of all lists together, such as coverage, have no
            interval.
        """
        return to_native(self._intervals(confidence, resamples, seed), self.library)

    def _intervals(self, confidence: float, resamples: int, seed: int) -> pl.DataFrame:
        bounds: dict[str, tuple[float | None, float | None]] = {}
        for values in (self.values, {} if self.truth is None else self.truth.values):
            if not values:
                continue
            each = np.array(list(values.values())).T
            low, high = bootstrap_interval(each, confidence=confidence, resamples=resamples, seed=seed)
            bounds |= {name: (float(low[n]), float(high[n])) for n, name in enumerate(values)}
        rows = []
        for name, value in self._sorted_means().items():
            metric, _, k = name.partition("@")
            rows.append((self.model, metric, int(k) if k else None, value, *bounds.get(name, (None, None))))
        numbers = dict.fromkeys(("value", "low", "high"), pl.Float64)
        schema = {"model": pl.String, "metric": pl.String, "k": pl.Int64, **numbers}
        return pl.DataFrame(rows, schema=schema, orient="row")

    @cached_property
    def _shown_intervals(self) -> dict[str, tuple[float, float]]:
        """The intervals that a notebook shows: computed once, since a bootstrap of many users takes seconds."""
        rows = self._intervals(0.95, 1_000, 0).iter_rows(named=True)
        return {
            _measure(row["metric"], row["k"]): (row["low"], row["high"]) for row in rows if row["low"] is not None
        }

    def _sorted_means(self) -> dict[str, float]:
        """The means in the order of tables: NDCG first, then by list length."""
        means = self.means()
        return {name: means[name] for name in sorted(means, key=_table_order)}

    def _grid(self) -> tuple[list[str], list[str]]:
        """The metrics and the columns of a table with one row per metric."""
        parts = [name.partition("@") for name in self._sorted_means()]
        lengths = sorted({int(k) for _, _, k in parts if k})
        columns = [f"@{k}" for k in lengths] + ([NO_LENGTH] if any(not k for _, _, k in parts) else [])
        return list(dict.fromkeys(metric for metric, _, _ in parts)), columns

    def __repr__(self) -> str:
        shown = [f"{name} {value:.4f}" for name, value in self._sorted_means().items()]
        listed = [*shown[:8], "..."] if len(shown) > 8 else shown
        weighted = "" if self.propensity is None else f"; weighted by 1 / propensity: {self.propensity!r}"
        notes = "".join(f"\nNote: {note}" for note in self.notes)
        return f"Evaluation({self.model}, {len(self.users):,} users: {', '.join(listed)}{weighted}){notes}"

    def _repr_html_(self) -> str:
        rows, columns = self._grid()
        means, bounds = self.means(), self._shown_intervals

        def cell(measure: str) -> str:
            if measure not in means:
                return "<td></td>"
            low, high = bounds.get(measure, (None, None))
            around = "" if low is None else f"<br><small>{low:.4f} to {high:.4f}</small>"
            return f'<td style="text-align: right; padding: .2em .7em">{means[measure]:.4f}{around}</td>'

        head = "".join(f'<th style="text-align: right; padding: .2em .7em">{name}</th>' for name in columns)
        body = "".join(
            f'<tr><th style="text-align: left">{escape(metric)}</th>'
            + "".join(cell(_measure(metric, column)) for column in columns)
            + "</tr>"
            for metric in rows
        )
        return (
            f"<table><caption>{escape(self.model)}, {len(self.users):,} users, with 95 % bootstrap intervals"
            f"</caption><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"
            + ("" if self.propensity is None else self.propensity._repr_html_())
            + "".join(f"<p>Note: {escape(note)}</p>" for note in self.notes)
        )


def _measure(metric: str, column: str | int | None) -> str:
    """The name of the measure in a cell of a table: by the column's name, or by the list length."""
    if column is None or column == NO_LENGTH:
        return metric
    return f"{metric}@{str(column).removeprefix('@')}"


def _table_order(measure: str) -> tuple[int, int]:
    """NDCG first; measures of the truth, which come as they are, last."""
    metric, _, k = measure.partition("@")
    place = ALL_METRICS.index(metric) if metric in ALL_METRICS else len(ALL_METRICS)
    return place, int(k or 0) if metric in ALL_METRICS else 0
