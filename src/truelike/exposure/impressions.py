"""The shown pairs of a dataset, with how likely a like of each was missed.

If a user likes an item, it is missed at one showing with probability m, the miss rate, and at all of them with the
product of their miss rates. That is the flip probability p(observed 0 | truly 1) of the pair. For an item that was not
shown it is 1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from truelike import objectives
from truelike.data.dataset import Dataset
from truelike.data.shown import Shown
from truelike.errors import DataError, DataWarning, warn
from truelike.exposure.miss_rate import Missed, estimated
from truelike.exposure.shown_pairs import CERTAIN, ShownPairs, flip_logits


def shown_pairs(train: Dataset, shown: Shown, miss_rate: float | None) -> ShownPairs:
    """The interactions of a dataset, and what was shown without one.

    `miss_rate` is the probability that a user misses a liked item when it is shown once. None: it is estimated where
    positions, or times of repeated showings, are known, and 0 otherwise.

    >>> import truelike as tl
    >>> seen = [("ann", "tea"), ("ann", "rum"), ("ann", "rum"), ("bob", "rum")]
    >>> data = tl.read([("ann", "tea"), ("bob", "rum")], impressions=seen)
    >>> pairs = shown_pairs(data, data.shown, miss_rate=0.5)
    >>> pairs.taken.tolist(), (1 / (1 + np.exp(-pairs.logits))).tolist()
    ([0, 1, 1], [0.25, 0.5, 0.5])
    """
    missed = _missed(train, shown, miss_rate)
    logits = flip_logits(missed.rates)
    same = bool((logits == logits[0]).all())
    once = float(logits[0]) if same else -CERTAIN
    evidence = "impressions" if shown.propensities is None else "propensities"
    pairs = ShownPairs.merged(train.csr, shown.counts, np.zeros(0, np.float32) if same else logits, once, evidence)
    if pairs.added == train.n_interactions:
        raise DataError(
            f"none of the {train.n_interactions:,} interactions is among the impressions, so these say nothing of what "
            "the users saw. Use impressions and interactions of the same time and place."
        )
    if pairs.added:
        warn(
            f"{pairs.added:,} of {train.n_interactions:,} interactions are not among the impressions; they count as "
            "shown, since a user cannot take what was not shown. If the impressions are those of a part of the time "
            "or of one page only, use the interactions of that part, too.",
            DataWarning,
        )
    if not (pairs.taken == 0).any():
        raise DataError(
            "every pair of the impressions is an interaction, so nothing is known of what users saw and did not take"
        )
    seen = float(objectives.sigmoid(-pairs.logits if len(pairs.logits) else np.array([-pairs.logit])).mean())
    noise = float(np.sqrt(seen * (1 - seen) / pairs.n_pairs))
    if pairs.taken_share() > seen + 4 * noise:
        warn(
            f"{pairs.taken_share():.1%} of the shown pairs were taken, but only {seen:.1%} would be if all were liked: "
            "the propensities or the miss rate contradict the interactions, and every probability comes out near 1",
            DataWarning,
        )
    return replace(pairs, miss_rate=missed.miss_rate, all_shown=shown.propensities is None)


def _missed(train: Dataset, shown: Shown, miss_rate: float | None) -> Missed:
    """How likely a like of each shown pair was missed, as rates."""
    if shown.propensities is not None:
        noticed = shown.propensities.astype(np.float64) * (1 - (miss_rate or 0.0))
        with np.errstate(divide="ignore"):
            return Missed(-np.log1p(-noticed), miss_rate or 0.0)
    has_order = shown.times is not None and train.times is not None
    if miss_rate is None and (shown.positions is not None or has_order):
        counts = shown.csr.data.astype(np.float64)
        return estimated(shown.users, shown.items, train, counts, shown.positions, shown.times)
    with np.errstate(divide="ignore"):
        rate = -np.log(miss_rate or 0.0)
    times = shown.counts.data
    if np.isinf(rate) or times.min() == times.max():  # one rate for all: there may be many pairs
        times = times[:1]
    return Missed(times.astype(np.float64) * rate, miss_rate or 0.0)
