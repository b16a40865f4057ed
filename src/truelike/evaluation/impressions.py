"""Scores on held-out impressions: which of the pairs that were shown were taken.

Interactions say what was shown and liked. Among pairs that were shown, only the like decides. So these scores do not
reward a model for following the exposure.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.entries import users_of
from truelike.data.ids import Codes
from truelike.errors import DataError, DataWarning, warn
from truelike.evaluation.calibration import Bin, LabelScores, Pooled, auc
from truelike.evaluation.pairs import find, is_seen, pairs_of
from truelike.evaluation.protocol import Ranker, likes_of


def score_impressions(model: Ranker, test: Dataset | Blocks) -> LabelScores:
    """Score a fitted model on the impressions of a test part; see `tl.evaluate(..., impressions=True)`.

    The cost is that of the shown pairs if the score is a dot product, and else that of all items for the users of these
    pairs.

    Examples
    --------
    >>> import truelike as tl
    >>> world = tl.synthetic.World(n_users=200, n_items=60)
    >>> split = tl.splits.random(tl.read(world.dataset(), impressions=world.impressions()), validation=0, test=0.2)
    >>> model = tl.ItemPop().fit(split.train)
    >>> scores = score_impressions(model, split.test)
    >>> sorted([*scores.values, *scores.totals])
    ['shown_auc', 'shown_pooled_auc', 'shown_share']
    """
    train = model.train_
    test = test.to_dataset()
    known = test.recode(train.users, train.items)[0]
    users, items = _shown_pairs(train, test, known)
    taken = _taken(test, known, users, items)
    likes = likes_of(model)
    values = model.scorer.score_pairs(users, items) if likes is None else likes.of_pairs(users, items)
    if not np.isfinite(values).all():
        raise DataError(
            f"{np.count_nonzero(~np.isfinite(values)):,} scores of {model.name} are not finite numbers"
        )
    both, per_user = auc_by_user(users, values, taken)
    totals = {"shown_share": float(taken.mean()), "shown_pooled_auc": auc(values, taken)}
    bins: list[Bin] = []
    if likes is not None:
        pooled = Pooled()
        pooled.add(values, taken)
        totals |= {"shown_log_loss": pooled.log_loss(), "shown_ece": pooled.calibration_error()}
        bins = pooled.reliability()
    of_users = {"shown_auc": per_user} if len(per_user) else {}
    return LabelScores(train.users.take(both), of_users, totals, len(users), bins, train.library)


def _shown_pairs(train: Dataset | Blocks, test: Dataset, known: Dataset) -> tuple[Codes, Codes]:
    """The users and items of the shown pairs that the model knows and has not been trained on, sorted."""
    if test.shown is None:
        raise DataError(
            "the test data has no impressions. Read them with tl.read(rows, impressions=...), and split: the test part "
            "then has what was shown."
        )
    total = test.shown.counts.nnz
    assert known.shown is not None
    pairs = known.shown.counts
    if pairs.nnz < total:
        warn(
            f"{total - pairs.nnz:,} of {total:,} held-out impressions have a user or an item that the model does "
            "not know; they are left out",
            DataWarning,
        )
    users, items = users_of(pairs), pairs.indices
    trained = is_seen(train, users, items)
    if trained.any():
        warn(
            f"{np.count_nonzero(trained):,} of {total:,} held-out impressions are interactions of the training data; "
            "they are left out",
            DataWarning,
        )
    users, items = users[~trained], items[~trained].astype(np.int32)
    if not len(users):
        raise DataError(
            f"none of the {total:,} held-out impressions can be scored: the model does not know their "
            "users or items, or was trained on them as interactions"
        )
    return users, items


def _taken(test: Dataset, known: Dataset, users: Codes, items: Codes) -> NDArray[np.bool_]:
    """Whether each shown pair is among the held-out interactions; a warning if some of these were not shown."""
    interactions = np.sort(pairs_of(known.csr))
    taken = find(interactions, users.astype(np.int64) * known.n_items + items)[1]
    lacking = test.n_interactions - int(np.count_nonzero(taken))
    if lacking:
        warn(
            f"{lacking:,} of {test.n_interactions:,} held-out interactions are not among the held-out impressions that "
            "can be scored; they are left out",
            DataWarning,
        )
    return taken


def auc_by_user(
    users: Codes, values: NDArray[np.floating], taken: NDArray[np.bool_]
) -> tuple[Codes, NDArray[np.float64]]:
    """Return the users with both kinds of pairs, and the AUC of each; ties count half. `users` must be sorted.

    >>> users = np.array([3, 3, 3, 5, 5], dtype=np.int32)
    >>> auc_by_user(users, np.array([0.1, 0.7, 0.7, 0.2, 0.3]), np.array([False, True, False, True, True]))
    (array([3], dtype=int32), array([0.75]))
    """
    order = np.lexsort((values, users))
    sorted_users, sorted_values, positive = users[order], values[order], taken[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (sorted_users[1:] != sorted_users[:-1]) | (sorted_values[1:] != sorted_values[:-1])
    first = np.flatnonzero(new)  # of each run of equal values of a user
    likes = np.add.reduceat(positive.astype(np.int64), first)
    others = np.diff(first, append=len(order)) - likes
    found, at, owner = np.unique(sorted_users[first], return_index=True, return_inverse=True)
    total_likes, total_others = (np.bincount(owner, each, minlength=len(found)) for each in (likes, others))
    before = np.cumsum(others) - others
    before -= before[at][owner]  # of the same user
    ordered = np.bincount(owner, likes * (before + others / 2), minlength=len(found))
    both = (total_likes > 0) & (total_others > 0)
    return found[both], ordered[both] / (total_likes[both] * total_others[both])
