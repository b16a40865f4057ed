"""Scores against true labels of unobserved pairs: of the ranking, and of the posterior of hidden likes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.parallel import for_each
from truelike.data.ids import Codes
from truelike.data.protocol import Interactions
from truelike.data.truth import Truth
from truelike.errors import DataError
from truelike.evaluation.calibration import Bin, LabelScores, Pooled, auc
from truelike.evaluation.metrics import ndcg
from truelike.evaluation.protocol import Ranker, likes_of
from truelike.ranking.top_k import top_k_by_scores

Block = Callable[[Codes], NDArray[np.float32]]
PAIRS_AT_ONCE = 2**22  # pairs that a thread scores at a time


def score_truth(model: Ranker, truth: Truth, *, ks: Sequence[int] = (20,), n_jobs: int | None = -1) -> LabelScores:
    """Score a fitted model against true labels; see `tl.evaluate(..., truth=...)`.

    Examples
    --------
    >>> import truelike as tl
    >>> world = tl.synthetic.World(n_users=100, n_items=60)
    >>> sorted(score_truth(tl.ItemPop().fit(world.dataset()), world.truth()).values)
    ['truth_auc', 'truth_ndcg@20']
    """
    likes, scorer = likes_of(model), model.scorer
    posterior = None if likes is None else likes.hidden
    return score_blocks(model.train_, truth, scorer.score_users, posterior, ties=scorer.ties, ks=ks, n_jobs=n_jobs)


def score_blocks(
    train: Interactions,
    truth: Truth,
    score_block: Block,
    posterior_block: Block | None = None,
    *,
    ties: Codes | None = None,
    ks: Sequence[int] = (20,),
    n_jobs: int | None = -1,
) -> LabelScores:
    """Score functions that return a number for each item of a block of users; see `score_truth`.

    `score_block` gives the scores to rank by, `posterior_block` p(truly liked | not observed), both as new arrays
    (len(users), n_items). `ties` has the place of each item among items with its score; None: in item order.
    """
    labels = _Labels(train, truth)
    pooled = Pooled()

    def work(users: Codes) -> NDArray[np.float64]:
        judged, liked = labels.of(users)
        scores = score_block(users)
        posterior = scores if posterior_block is None else posterior_block(users)
        if posterior_block is not None:
            pooled.add(posterior[judged], liked[judged])
        found = np.empty((len(users), 4))
        for row, mask in enumerate(judged):
            labels_of_user = liked[row, mask]
            by_score, by_posterior = (auc(each[row, mask], labels_of_user) for each in (scores, posterior))
            found[row] = len(labels_of_user), labels_of_user.sum(), by_score, by_posterior
        return found

    everybody = np.arange(train.n_users, dtype=np.int32)
    rows = max(1, min(256, PAIRS_AT_ONCE // train.n_items))
    pairs, likes, by_score, by_posterior = np.concatenate(
        for_each(work, [everybody[start : start + rows] for start in range(0, train.n_users, rows)], n_jobs)
    ).T
    users = np.flatnonzero(~np.isnan(by_score)).astype(np.int32)
    if not len(users):
        raise DataError(
            "no user has both a like and a dislike among the unobserved pairs that have a true label and that the "
            "model knows. Give a truth with the ids of the training data, with likes and dislikes outside of it."
        )
    values = {"truth_auc": by_score[users]}
    hits = _hits(labels, score_block, users, max(ks), ties, n_jobs)
    values |= {f"truth_ndcg@{k}": ndcg(hits, likes[users], k) for k in ks}
    totals = {"hidden_share": float(likes.sum() / pairs.sum())}
    bins: list[Bin] = []
    if posterior_block is not None:
        values["hidden_auc"] = by_posterior[users]
        hits = _hits(labels, posterior_block, users, max(ks), ties, n_jobs)
        values |= {f"hidden_ndcg@{k}": ndcg(hits, likes[users], k) for k in ks}
        bins = pooled.reliability()
        totals |= {
            "hidden_pooled_auc": pooled.auc(),
            "hidden_ece": pooled.calibration_error(),
            "hidden_log_loss": pooled.log_loss(),
        }
    return LabelScores(train.users.take(users), values, totals, int(pairs.sum()), bins, train.library)


def _hits(
    labels: _Labels, score_block: Block, users: Codes, k: int, ties: Codes | None, n_jobs: int | None
) -> NDArray[np.float64]:
    """Return 1 where the n-th best of a user's unobserved labelled items is truly liked, else 0."""

    def labelled_scores(block: Codes) -> NDArray[np.float32]:
        return np.where(labels.of(block)[0], score_block(block), np.float32(-np.inf))

    best = top_k_by_scores(labelled_scores, users, k, n_items=labels.train.n_items, ties=ties, n_jobs=n_jobs).items
    hits = np.zeros(best.shape)
    for row, user in enumerate(users):
        listed = best[row][best[row] >= 0]
        hits[row, : len(listed)] = np.isin(listed, labels.likes_of(user))
    return hits


class _Labels:
    """The labels in the row numbers of the training data, for a block of users at a time."""

    def __init__(self, train: Interactions, truth: Truth) -> None:
        self.train = train
        self.likes = truth.likes.recode(train.users, train.items)[0].csr
        self.judged = None
        if truth.judged is not None:
            self.judged = truth.judged.recode(train.users, train.items)[0].csr
        else:  # all pairs of the users and items of the truth
            self.rows = truth.likes.users.codes(train.users.values) >= 0
            self.columns = truth.likes.items.codes(train.items.values) >= 0

    def of(self, users: Codes) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return masks of the pairs that have a label and are not observed, and of those that are liked."""
        liked = _pattern(self.likes, users)
        if self.judged is None:
            judged = np.outer(self.rows[users], self.columns)
        else:
            judged = _pattern(self.judged, users) | liked
        return judged & ~_pattern(*self.train.rows(users)), liked

    def likes_of(self, user: int) -> Codes:
        matrix = self.likes
        row: Codes = matrix.indices[matrix.indptr[user] : matrix.indptr[user + 1]]
        return row


def _pattern(matrix: sparse.csr_array, users: Codes) -> NDArray[np.bool_]:
    """Return a mask of the entries of a sparse matrix, whatever their weight."""
    rows = matrix[users]
    dense = np.zeros(rows.shape, dtype=bool)
    dense[np.repeat(np.arange(len(users)), np.diff(rows.indptr)), rows.indices] = True
    return dense
