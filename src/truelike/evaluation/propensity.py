"""Self-normalised inverse-propensity estimates of the metrics, with confidence intervals.

A held-out interaction is a like that was shown. If the like was shown with probability q, it stands for 1 / q likes.
The gain g of a like is the metric of the user's list if this like is the only relevant item. The estimate is the
weighted mean of the gains of all held-out interactions of all users,

    sum(g / q) / sum(1 / q),

which estimates the mean gain of all held-out likes, shown or not (Yang et al., RecSys 2018; Swaminathan and Joachims,
NeurIPS 2015). Its interval is that of the jackknife over users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.dataset import Dataset
from truelike.data.frames import Library, to_native
from truelike.data.html import table
from truelike.data.ids import Codes
from truelike.data.propensities import Propensities
from truelike.errors import DataError, DataWarning, ParameterError, UnknownMeasureError, warn
from truelike.evaluation.metrics import METRICS, Floats
from truelike.evaluation.significance import tail_of

LEAST_SHARE, LEAST_SIZE = 0.05, 100  # of the effective sample size, below which there is a warning


def gain_by_rank(metric: str, k: int, length: int) -> Floats:
    """Return the value of a metric if the only relevant item is at rank 0 (not listed), 1, ... `length`.

    >>> gain_by_rank("ndcg", 2, 3).round(4).tolist()
    [0.0, 1.0, 0.6309, 0.0]
    """
    hits = np.vstack((np.zeros(length), np.eye(length)))
    return METRICS[metric](hits, np.ones(length + 1), k)


def ratio_interval(
    gains: Floats, weights: Floats, size: float, *, largest: float = 1.0, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the interval of sum(gains) / sum(weights) by the jackknife over users.

    The quantile is that of Student's t. Its degrees of freedom are the effective number of users,
    (sum z^2)^2 / sum z^4 - 1, with the residuals z = gains - estimate * weights: few users with large weights count as
    few users. Where all gains are the same, the jackknife has no variance, and the bound is that of Clopper and Pearson
    for the effective sample size `size`. The largest possible gain is `largest`.

    Examples
    --------
    >>> low, high = ratio_interval(np.array([1.0, 0.0] * 50), np.full(100, 1.0), 100.0)
    >>> round(low, 3), round(high, 3)
    (0.4, 0.6)
    """
    from scipy.special import stdtrit

    tail = tail_of(confidence)
    n, total = len(weights), weights.sum()
    value = float(gains.sum() / total)
    residuals = gains - value * weights
    if n < 2:
        return 0.0, largest
    if np.abs(residuals).max() <= 1e-12 * total:
        margin = largest * (1 - tail ** (1 / size))
        return max(0.0, value - margin), min(largest, value + margin)
    without = -residuals / (total - weights)  # the estimate without this user, less the estimate
    error = float(np.sqrt((n - 1) / n * (without**2).sum()))
    square = residuals**2
    freedom = max(float(square.sum() ** 2 / (square**2).sum()) - 1, 1.0)
    margin = float(stdtrit(freedom, 1 - tail)) * error
    return max(0.0, value - margin), min(largest, value + margin)


@dataclass(frozen=True, eq=False)
class PropensityEstimates:
    """Estimates of the metrics on all held-out likes, shown or not, from those that were shown.

    Each value is a weighted mean over held-out interactions. A weight is 1 / propensity. The gain of an interaction is
    the metric of the user's list if its item is the only relevant one. See "Metrics" in the documentation.

    Attributes
    ----------
    model
        The name of the model.
    evidence
        What the propensities rest on: "given by pair", "given by item", "given: 0.2", "assumed: popularity^0.5".
    n_interactions
        The number of held-out interactions that count.
    effective_sample_size
        (sum of weights)^2 / sum of squared weights: as many interactions of equal weight would be as informative.
    smallest
        The smallest propensity of these interactions, after clipping.
    n_clipped
        How many propensities were raised to `propensity_clip`.
    n_left_out
        How many held-out interactions have no propensity.
    weights
        The sum of weights of each user who has an interaction.
    gains
        For each measure, such as "ndcg@20", the weighted sum of gains of each of these users.
    unweighted
        For each measure, the mean gain of the interactions without weights: what exposure makes of it.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=500, n_items=200).dataset(), seed=0)
    >>> model = tl.ItemPop().fit(split.train)
    >>> found = tl.evaluate(model, split, propensity="popularity^0.5", ks=(20,), metrics=["ndcg"]).propensity
    >>> found
    PropensityEstimates(ItemPop, assumed: popularity^0.5, effective sample size ... of ...: ndcg@20 0... (0... to 0...))
    >>> found["ndcg@20"] < found.unweighted["ndcg@20"]
    True
    >>> found.estimates().columns
    ['model', 'metric', 'k', 'value', 'low', 'high', 'unweighted', 'effective_sample_size']
    """

    model: str
    evidence: str
    n_interactions: int
    effective_sample_size: float
    smallest: float
    n_clipped: int
    n_left_out: int
    weights: Floats
    gains: dict[str, Floats]
    unweighted: dict[str, float]
    library: Library = "polars"

    def __getitem__(self, measure: str) -> float:
        """Return the estimate of one measure, e.g. `result.propensity["ndcg@20"]`."""
        if measure not in self.gains:
            raise UnknownMeasureError(f"{measure!r} was not estimated; available: {', '.join(self.gains)}")
        return float(self.gains[measure].sum() / self.weights.sum())

    def interval(self, measure: str, *, confidence: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of one measure: low, high."""
        self[measure]
        metric, _, k = measure.partition("@")
        largest = float(gain_by_rank(metric, int(k), int(k)).max())
        size = self.effective_sample_size
        return ratio_interval(self.gains[measure], self.weights, size, largest=largest, confidence=confidence)

    def estimates(self, *, confidence: float = 0.95) -> Any:
        """Return a frame model, metric, k, value, low, high, unweighted, effective_sample_size.

        Parameters
        ----------
        confidence
            The confidence of the intervals, between 0 and 1.
        """
        return to_native(self._estimates(confidence), self.library)

    def _estimates(self, confidence: float = 0.95) -> pl.DataFrame:
        rows = []
        for measure in self.gains:
            metric, _, k = measure.partition("@")
            low, high = self.interval(measure, confidence=confidence)
            figures = (self[measure], low, high, self.unweighted[measure], self.effective_sample_size)
            rows.append((self.model, metric, int(k), *figures))
        names = ("value", "low", "high", "unweighted", "effective_sample_size")
        schema = {"model": pl.String, "metric": pl.String, "k": pl.Int64, **dict.fromkeys(names, pl.Float64)}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def about(self) -> str:
        """The evidence and the sample size, and what was left out or changed."""
        said = (
            f"{self.evidence}, effective sample size {self.effective_sample_size:,.0f} of {self.n_interactions:,}"
        )
        said += f", {self.n_clipped:,} propensities clipped to {self.smallest:g}" * (self.n_clipped > 0)
        return said + f", {self.n_left_out:,} interactions without a propensity left out" * (self.n_left_out > 0)

    def __repr__(self) -> str:
        shown = []
        for measure in list(self.gains)[:4]:
            low, high = self.interval(measure)
            shown.append(f"{measure} {self[measure]:.4f} ({low:.4f} to {high:.4f})")
        more = ["..."] * (len(self.gains) > len(shown))
        return f"PropensityEstimates({self.model}, {self.about()}: {', '.join([*shown, *more])})"

    def _repr_html_(self) -> str:
        rows = [
            (
                f"{row['metric']}@{row['k']}",
                *(f"{row[name]:.4f}" for name in ("value", "low", "high", "unweighted")),
            )
            for row in self._estimates().iter_rows(named=True)
        ]
        header = ("", "estimate", "95 % from", "to", "without weights")
        about = f"{escape(self.model)}, weighted by 1 / propensity ({escape(self.about())})"
        return f"<div><b>PropensityEstimates</b> {about}{table(rows, header)}</div>"


class WeightedGains:
    """The weighted sums of the gains of users, collected while their lists are computed."""

    def __init__(
        self, propensities: Propensities, metrics: Sequence[str], ks: Sequence[int], clip: float | None
    ) -> None:
        self.propensities, self.clip = propensities, clip
        length = max(ks)
        self.by_rank = {
            f"{metric}@{k}": gain_by_rank(metric, k, length) for metric in METRICS if metric in metrics for k in ks
        }
        if not self.by_rank:
            raise ParameterError(
                f"metrics is {', '.join(metrics)}, of which no one depends on the held-out interactions; with "
                f"propensity= it must have one or more of {', '.join(METRICS)}"
            )
        self.weights: list[Floats] = []
        self.gains: dict[str, list[Floats]] = {measure: [] for measure in self.by_rank}
        self.plain = dict.fromkeys(self.by_rank, 0.0)
        self.n = self.n_clipped = self.n_left_out = 0
        self.sum = self.squares = 0.0
        self.smallest = 1.0
        self.example: tuple[int, int] | None = None  # an interaction without a propensity

    def add(
        self, users: Codes, relevant: sparse.csr_array, hits: NDArray[np.bool_], entries: NDArray[np.int64]
    ) -> None:
        """Add some users with their relevant items, and what `hits_of` says of their lists."""
        rows = np.repeat(np.arange(len(users)), np.diff(relevant.indptr))
        q = self.propensities.lookup(users[rows], relevant.indices)
        known = ~np.isnan(q)
        if not known.all():
            at = int(np.flatnonzero(~known)[0])
            self.example = self.example or (int(users[rows[at]]), int(relevant.indices[at]))
            self.n_left_out += int(np.count_nonzero(~known))
        ranks = ranks_of_relevant(relevant.nnz, hits, entries)[known]
        rows, q = rows[known], q[known]
        if not len(q):
            return
        if self.clip is not None:
            self.n_clipped += int(np.count_nonzero(q < self.clip))
            q = np.maximum(q, self.clip)
        weights = 1 / q
        self.n += len(q)
        self.sum += float(weights.sum())
        self.squares += float((weights**2).sum())
        self.smallest = min(self.smallest, float(q.min()))
        there = np.bincount(rows, minlength=len(users)) > 0
        self.weights.append(np.asarray(np.bincount(rows, weights, minlength=len(users)), np.float64)[there])
        for measure, by_rank in self.by_rank.items():
            gains = by_rank[ranks]
            sums = np.asarray(np.bincount(rows, weights * gains, minlength=len(users)), np.float64)
            self.gains[measure].append(sums[there])
            self.plain[measure] += float(gains.sum())

    def results(self, model: str, train: Dataset) -> PropensityEstimates:
        """Return the estimates; a warning where they rest on little."""
        if self.example is not None:
            user, item = (repr(ids[n]) for ids, n in zip((train.users, train.items), self.example, strict=True))
            lacking = (
                f"{self.n_left_out:,} of {self.n + self.n_left_out:,} held-out interactions have no propensity"
            )
            if not self.n:
                raise DataError(f"{lacking}, such as user {user}, item {item}. Give one for each of them.")
            warn(f"{lacking}, such as user {user}, item {item}; the estimates leave them out", DataWarning)
        size = self.sum**2 / self.squares
        if size < max(LEAST_SIZE, LEAST_SHARE * self.n):
            warn(
                f"the effective sample size of the propensity-weighted estimates is {size:,.0f} of {self.n:,} held-out "
                f"interactions, with propensities down to {self.smallest:.2g}. Intervals may be too narrow below "
                f"{LEAST_SIZE} or {LEAST_SHARE:.0%}. Hold out more, or bound the weights with propensity_clip=... at "
                "the price of bias.",
                DataWarning,
            )
        return PropensityEstimates(
            model,
            self.propensities.evidence,
            self.n,
            size,
            self.smallest,
            self.n_clipped,
            self.n_left_out,
            np.concatenate(self.weights),
            {measure: np.concatenate(parts) for measure, parts in self.gains.items()},
            {measure: total / self.n for measure, total in self.plain.items()},
            train.library,
        )


def ranks_of_relevant(n: int, hits: NDArray[np.bool_], entries: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rank of each of n relevant items in the list of its user, from 1 up; 0 if it is not listed."""
    rows, places = np.nonzero(hits)
    ranks = np.zeros(n, dtype=np.int64)
    ranks[entries[rows, places]] = places + 1
    return ranks
