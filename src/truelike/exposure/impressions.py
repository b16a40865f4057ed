"""Impressions, in any form in which they are given, as `ShownPairs`.

Impressions are the items that were shown to a user, with how often or how likely they were shown, where and when. If
a user likes an item, it is missed at one showing with probability m, the miss rate, and at all of them with the product
of their miss rates. That is the flip probability p(observed 0 | truly 1) of the pair. For an item that was never shown
it is 1.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike import objectives
from truelike.data.blocks.blocks import Blocks
from truelike.data.blocks.format import DESCRIPTION
from truelike.data.columns import TRAINING_PROPENSITY, Columns, choose, recognised
from truelike.data.dataset import Dataset
from truelike.data.interactions import EncodedRows, read_rows
from truelike.data.read import read
from truelike.errors import DataError, DataWarning, ParameterError, warn
from truelike.exposure.miss_rate import Missed, estimated
from truelike.exposure.shown_pairs import CERTAIN, ShownPairs, flip_logits


def shown_pairs(impressions: Any, train: Dataset, miss_rate: float | None) -> ShownPairs:
    """Return the pairs of a dataset that were shown, from impressions in any form.

    A table may have a column `count` (how often the pair was shown; also `weight`), `propensity` (how likely it was
    shown), `position` (where in a list, from 1) and a time. In any other form the weight of a pair is how often it was
    shown. Rows of the same pair are further showings.

    Parameters
    ----------
    impressions
        A Dataset, Blocks, the path of a block directory, what `tl.read` takes, or rows that `to_rows` read.
    train
        The interactions.
    miss_rate
        The probability that a user misses a liked item when it is shown once. None: it is estimated where positions, or
        times of repeated showings, are known, and 0 otherwise.

    Examples
    --------
    >>> import truelike as tl
    >>> train = tl.read([("ann", "tea"), ("bob", "rum")])
    >>> shown = [("ann", "tea"), ("ann", "rum"), ("ann", "rum"), ("bob", "rum")]
    >>> pairs = shown_pairs(shown, train, miss_rate=0.5)
    >>> pairs.taken.tolist(), (1 / (1 + np.exp(-pairs.logits))).tolist()
    ([0, 1, 1], [0.25, 0.5, 0.5])
    """
    rows = read_impressions(impressions)
    if isinstance(rows, EncodedRows) and has_propensities(rows):
        known, listed = _known(rows, train)
        if repeated := len(listed.user_codes) - known.n_interactions:
            raise DataError(
                f"{repeated:,} rows have a pair of user and item that is listed before; a pair must have one "
                "propensity"
            )
        missed = _by_propensity(known, 0.0 if miss_rate is None else miss_rate)
        evidence, all_shown = "propensities", rows.columns.weight == TRAINING_PROPENSITY
    else:
        known, missed = _by_count(rows, train, miss_rate)
        evidence, all_shown = "impressions", True
    logits = flip_logits(missed.rates)
    same = bool((logits == logits[0]).all())
    once = float(logits[0]) if same else -CERTAIN
    pairs = ShownPairs.merged(train.csr, known.csr, np.zeros(0, np.float32) if same else logits, once, evidence)
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
    return replace(pairs, miss_rate=missed.miss_rate, all_shown=all_shown)


# --- reading -------------------------------------------------------------------------------------


def read_impressions(impressions: Any) -> Dataset | EncodedRows:
    """Return impressions that have rows as rows, and others as a Dataset whose weights are counts."""
    if isinstance(impressions, EncodedRows):  # of the command line, which names the columns
        return impressions
    if isinstance(impressions, str | Path) and _is_block_directory(Path(impressions)):
        impressions = Blocks(impressions)
    if isinstance(impressions, Blocks):
        impressions = impressions.to_dataset()
    if sparse.issparse(impressions):
        impressions = read(impressions)
    if isinstance(impressions, EncodedRows):
        return impressions
    if not isinstance(impressions, Dataset):
        return to_rows(impressions)
    _check_counts(impressions.csr.data, "a weight")
    return impressions


def to_rows(
    impressions: Any,
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    on_bad_rows: str = "refuse",
    **how: Any,
) -> EncodedRows:
    """Read the rows of a frame, a file, an array or a list of impressions; the other arguments are those of `tl.read`.

    The weights of the rows are counts or propensities, whichever column there is. `user` and `item` name columns, and
    `how` are further options of `tl.read`.
    """
    if not how.get("header", True):
        user, item = 0 if user is None else user, 1 if item is None else item
    rows = read_rows(impressions, partial(_columns, user=user, item=item), on_bad_rows=on_bad_rows, **how)
    if not len(rows.user_codes):
        raise DataError("the table of impressions is empty. Pass a row for each pair that was shown.")
    if rows.weights is not None:
        if has_propensities(rows):
            _check_propensities(rows.weights)
        else:
            _check_counts(rows.weights, f"a {rows.columns.weight}")
    if rows.positions is not None:
        _check_positions(rows.positions)
    return rows


def _columns(names: list[str], user: str | int | None, item: str | int | None) -> Columns:
    """The columns of a table of impressions."""
    found = choose(names, user=user, item=item, rating=None, time=None, weight=None, needs_rating=False)
    count, propensity, position = (recognised(names, role) for role in ("count", "propensity", "position"))
    if propensity is not None and (count is not None or position is not None):
        other = " and ".join(repr(name) for name in (count, position) if name is not None)
        raise DataError(
            f"the impressions have the columns {propensity!r} and {other}. A propensity says all that is known of a "
            "pair, so give one or the other."
        )
    return replace(found, weight=count if propensity is None else propensity, position=position)


def has_propensities(rows: EncodedRows) -> bool:
    """Return whether the weights are propensities; otherwise they are counts."""
    weight = rows.columns.weight
    return weight is not None and recognised([weight], "propensity") is not None


def _is_block_directory(path: Path) -> bool:
    try:
        return (path / DESCRIPTION).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


# --- bad values ----------------------------------------------------------------------------------


def _check_counts(counts: NDArray[np.floating], what: str) -> None:
    wrong = ~((counts > 0) & np.isfinite(counts))
    if wrong.any():
        raise DataError(
            f"{int(wrong.sum()):,} impressions have {what} of 0 or less, or none, e.g. {counts[wrong][0]:g}; it is how "
            "often the pair was shown. Leave out pairs that were not shown."
        )


def _check_propensities(propensities: NDArray[np.floating]) -> None:
    wrong = ~((propensities > 0) & (propensities <= 1))
    if wrong.any():
        raise DataError(
            f"{int(wrong.sum()):,} propensities are outside (0, 1], e.g. {propensities[wrong][0]:g}; a propensity is "
            "the probability that the pair was shown. Leave out pairs that cannot have been shown."
        )


def _check_positions(positions: NDArray[np.floating]) -> None:
    wrong = ~((positions >= 1) & (positions == np.floor(positions)))
    if wrong.any():
        raise DataError(
            f"{int(wrong.sum()):,} positions are not whole numbers from 1, e.g. {positions[wrong][0]:g}; position 1 is "
            "the first place of a list. Add 1 if yours begin at 0."
        )


# --- pairs ---------------------------------------------------------------------------------------


def _known(rows: EncodedRows, train: Dataset) -> tuple[Dataset, EncodedRows]:
    """The pairs, and the rows, of users and items of the training data, with its row numbers."""
    users = train.users.codes(rows.users.values)[rows.user_codes]
    items = train.items.codes(rows.items.values)[rows.item_codes]
    kept = (users >= 0) & (items >= 0)
    _check_known(int(kept.sum()), len(kept))

    def of_kept(values: Any) -> Any:
        return None if values is None else values[kept]

    found = replace(
        rows,
        users=train.users,
        items=train.items,
        user_codes=users[kept],
        item_codes=items[kept],
        weights=of_kept(rows.weights),
        times=of_kept(rows.times),
        positions=of_kept(rows.positions),
    )
    return found.to_dataset(), found


def _check_known(known: int, total: int) -> None:
    """Raise an error if no impression, and warn if not every one, is of a user and an item of the training data."""
    if not known:
        raise DataError(
            f"none of the {total:,} impressions has both a user and an item of the training data; check that the ids "
            "are the same"
        )
    if known < total:
        warn(
            f"{total - known:,} of {total:,} impressions are left out, because their user or their item has no "
            "interaction in the training data",
            DataWarning,
        )


def _by_propensity(known: Dataset, miss_rate: float) -> Missed:
    """The rates of pairs that were shown with some probability."""
    with np.errstate(divide="ignore"):
        return Missed(-np.log1p(-known.csr.data.astype(np.float64) * (1 - miss_rate)), miss_rate)


def _by_count(shown: Dataset | EncodedRows, train: Dataset, miss_rate: float | None) -> tuple[Dataset, Missed]:
    """The pairs that were shown some times, and their rates."""
    rows = None
    if isinstance(shown, Dataset):
        known, _ = shown.recode(train.users, train.items)
        _check_known(known.n_interactions, shown.n_interactions)
    else:
        known, rows = _known(shown, train)
    if miss_rate is None and rows is not None:
        has_order = rows.times is not None and train.times is not None
        if rows.positions is not None or has_order:
            log = (rows.user_codes, rows.item_codes, train, rows.weights, rows.positions, rows.times)
            return known, estimated(*log)
    with np.errstate(divide="ignore"):
        rate = -np.log(0.0 if miss_rate is None else miss_rate)
    counts = known.csr.data
    if np.isinf(rate) or counts.min() == counts.max():  # one rate for all: there may be many pairs
        counts = counts[:1]
    return known, Missed(counts.astype(np.float64) * rate, miss_rate or 0.0)


def check_held_out(validation: Any) -> None:
    """Raise if a share of the interactions is to be held out beside impressions, which would look like dislikes."""
    if isinstance(validation, float) and validation:
        raise ParameterError(
            "with impressions a held-out interaction looks like a dislike: split the data, and call "
            "fit(split), which holds out what was shown, too"
        )
