"""Impressions, in any form in which they are given, as `ShownPairs`.

Impressions are the items that were shown to a user, with how often or how likely they were shown, where and when. If
a user likes an item, it is missed at one showing with probability m, the miss rate, and at all of them with the product
of their miss rates. That is the flip probability p(observed 0 | truly 1) of the pair; of an item that was never shown it
is 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.data.blocks.blocks import Blocks
from truelike.data.columns import choose
from truelike.data.dataset import Dataset
from truelike.data.files import column_names
from truelike.data.frames import library_of, to_polars
from truelike.data.interactions import read
from truelike.errors import DataError, DataWarning, ParameterError, warn
from truelike.training.options import FitOptions
from truelike.training.shown_pairs import CERTAIN, ShownPairs

COUNT, PROPENSITY, POSITION = "count", "propensity", "position"  # names of columns


def shown_pairs(impressions: Any, train: Dataset, miss_rate: float | None) -> ShownPairs:
    """Return the pairs of a dataset that were shown, from impressions in any form.

    A table may have a column `count` (how often the pair was shown), `propensity` (how likely it was shown),
    `position` (where in a list, from 1) and a time. In any other form the weight of a pair is how often it was shown.
    Rows of the same pair are further showings.

    Parameters
    ----------
    impressions
        A Dataset, Blocks, the path of a block directory, or what `tl.read` takes.
    train
        The interactions.
    miss_rate
        The probability that a user misses a liked item when it is shown once. None: it is estimated where positions, or
        times of repeated showings, are known, and 0 otherwise.
    """
    shown, columns = _read(impressions)
    known, left_out = shown.recode(train.users, train.items)
    if not known.n_interactions:
        raise DataError(
            f"none of the {shown.n_interactions:,} impressions has both a user and an item of the training data; "
            "check that the ids are the same"
        )
    if left_out:
        warn(
            f"{left_out:,} of {shown.n_interactions:,} impressions are left out, because their user or their item has "
            "no interaction in the training data",
            DataWarning,
        )
    weights = known._csr.data
    if PROPENSITY in columns:
        _check_propensities(weights)
        rates = -np.log1p(-weights.astype(np.float64) * (1 - (miss_rate or 0.0)))
        basis = "propensities"
    else:
        if weights.min() <= 0:
            raise DataError(
                f"{int((weights <= 0).sum()):,} impressions have a weight of 0 or less; a weight is how often the pair "
                "was shown"
            )
        rates, basis = _rates(impressions, columns, known, train, miss_rate), "impressions"
    logits = _flip_logits(rates)
    same = bool((logits == logits[0]).all())
    once = float(logits[0]) if same else -CERTAIN
    pairs = ShownPairs.merged(train._csr, known._csr, np.zeros(0, np.float32) if same else logits, once, basis)
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
    return pairs


def _read(impressions: Any) -> tuple[Dataset, list[str]]:
    """The impressions as a Dataset, and the names of the columns that have a meaning here."""
    if isinstance(impressions, Blocks):
        return impressions.to_dataset(), []
    if isinstance(impressions, Dataset):
        return impressions, []
    columns = _columns(impressions)
    if PROPENSITY in columns and (POSITION in columns or COUNT in columns):
        raise DataError(
            "the impressions have a column propensity and a column count or position; a propensity says all that is "
            "known of a pair, so give one or the other"
        )
    if PROPENSITY in columns:
        shown = read(impressions, weight=PROPENSITY)
        rows = None if isinstance(impressions, str | Path) else len(to_polars(impressions))
        if rows is not None and shown.n_interactions < rows:
            raise DataError(
                f"{rows - shown.n_interactions:,} rows have a pair of user and item that is listed before; a pair must "
                "have one propensity"
            )
        return shown, [PROPENSITY]
    return read(impressions, **({"weight": COUNT} if COUNT in columns else {})), columns


def _columns(table: Any) -> list[str]:
    if isinstance(table, str | Path):
        names = column_names(Path(table))
    elif library_of(table) is not None:
        names = to_polars(table).columns
    else:
        return []
    return [name for name in (COUNT, PROPENSITY, POSITION, "time") if name in names or _is_time(name, names)]


def _is_time(name: str, names: list[str]) -> bool:
    return name == "time" and choose(names).time is not None


def _check_propensities(weights: NDArray[np.float32]) -> None:
    wrong = ~((weights > 0) & (weights <= 1))
    if wrong.any():
        raise DataError(
            f"{int(wrong.sum()):,} propensities are outside (0, 1], e.g. {weights[wrong][0]:g}; a propensity is the "
            "probability that the pair was shown. Leave out pairs that cannot have been shown."
        )


def _rates(
    impressions: Any, columns: list[str], known: Dataset, train: Dataset, miss_rate: float | None
) -> NDArray[np.float64]:
    """For each shown pair, minus the logarithm of the probability that a like was missed at all showings."""
    with np.errstate(divide="ignore"):
        return known._csr.data.astype(np.float64) * -np.log(miss_rate or 0.0)


def _flip_logits(rates: NDArray[np.float64]) -> NDArray[np.float32]:
    """The logits of exp(-rate), within CERTAIN."""
    with np.errstate(over="ignore", divide="ignore"):
        return np.clip(-rates - np.log(-np.expm1(-rates)), -CERTAIN, CERTAIN).astype(np.float32)


def check_held_out(options: FitOptions) -> None:
    """Raise if a share of the interactions is to be held out beside impressions, which would look like dislikes."""
    if isinstance(options.validation, float) and options.validation:
        raise ParameterError(
            "with impressions a held-out interaction looks like a dislike: split the data, and call "
            "fit(split.train, validation=split.validation, impressions=split.impressions(impressions))"
        )
