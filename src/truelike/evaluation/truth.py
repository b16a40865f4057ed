"""Scoring against the truth: unvoted pairs whose label is known, by the ranking and by the posterior."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.dataset import Dataset
from truelike.data.frames import Library, to_native
from truelike.data.ids import Codes
from truelike.data.truth import Truth
from truelike.errors import DataError
from truelike.evaluation import metrics as formulas
from truelike.evaluation.calibration import Bin, Pooled, auc
from truelike.evaluation.topk import top_k_by_scores
from truelike.parallel import for_each

if TYPE_CHECKING:
    from truelike.models.recommender import Recommender

Block = Callable[[Codes], NDArray[np.float32]]
CELLS_AT_ONCE = 2**22  # pairs that a thread looks at in one go


@dataclass(frozen=True, eq=False)
class TruthScores:
    """What a model is worth by the truth, over the pairs that it has no vote for and whose label is known.

    Attributes
    ----------
    users
        The ids of the users who have both a like and a dislike among these pairs.
    values
        One value a user: "truth_auc", "truth_ndcg@20" of the ranking; "hidden_auc" of the posterior.
    totals
        Of all pairs together: "hidden_share" (truly liked), and of the posterior "hidden_pooled_auc",
        "hidden_ece" and "hidden_log_loss".
    bins
        The reliability table; none for a model without a posterior.
    """

    users: pl.Series
    values: dict[str, NDArray[np.float64]]
    totals: dict[str, float]
    bins: list[Bin] = field(default_factory=list)
    library: Library = "polars"

    def reliability(self) -> Any:
        """A frame (bin, predicted, liked, count): mean posterior, share truly liked and pairs of each bin."""
        rows = [(n, b.predicted, b.liked, b.count) for n, b in enumerate(self.bins, 1)]
        schema = {"bin": pl.Int64, "predicted": pl.Float64, "liked": pl.Float64, "count": pl.Int64}
        return to_native(pl.DataFrame(rows, schema=schema, orient="row"), self.library)


def score_truth(
    model: Recommender, truth: Truth, *, ks: Sequence[int] = (20,), n_jobs: int | None = None
) -> TruthScores:
    """Score a fitted model against true labels; see `tl.evaluate(..., truth=...)`.

    Examples
    --------
    >>> import truelike as tl
    >>> world = tl.synthetic.World(n_users=100, n_items=60)
    >>> sorted(score_truth(tl.ItemPop().fit(world.log()), world.truth()).values)
    ['truth_auc', 'truth_ndcg@20']
    """
    posterior = model.hidden_like_block if model.has_posterior else None
    return score_blocks(
        model.train_, truth, model._score_block, posterior, ties=model._tie_order(), ks=ks, n_jobs=n_jobs
    )


def score_blocks(
    train: Dataset,
    truth: Truth,
    score_block: Block,
    posterior_block: Block | None = None,
    *,
    ties: Codes | None = None,
    ks: Sequence[int] = (20,),
    n_jobs: int | None = None,
) -> TruthScores:
    """Score anything that gives numbers for all items of a block of users: a model, or the world itself.

    Parameters
    ----------
    train
        The votes: what they are about is left out.
    truth
        The labels.
    score_block, posterior_block
        Fresh arrays (len(users), n_items): what to rank by, and p(truly liked | not voted).
    ties
        All items, in the order in which equal scores are ranked; None: as they stand.
    ks
        The lengths of the lists for NDCG.
    n_jobs
        Threads; None: all cores. Never changes the result.
    """
    labels = _Labels(train, truth)
    posteriors = Pooled()

    def work(users: Codes) -> NDArray[np.float64]:
        open_, liked = labels.of(users)
        scores = score_block(users)
        beliefs = scores if posterior_block is None else posterior_block(users)
        if posterior_block is not None:
            posteriors.add(beliefs[open_], liked[open_])
        found = np.empty((len(users), 4))
        for row, mask in enumerate(open_):
            mine = liked[row, mask]
            found[row] = len(mine), mine.sum(), auc(scores[row, mask], mine), auc(beliefs[row, mask], mine)
        return found

    everybody = np.arange(train.n_users, dtype=np.int32)
    rows = max(1, min(256, CELLS_AT_ONCE // train.n_items))
    pairs, likes, by_score, by_posterior = np.concatenate(
        for_each(work, [everybody[start : start + rows] for start in range(0, train.n_users, rows)], n_jobs)
    ).T
    users = np.flatnonzero(~np.isnan(by_score)).astype(np.int32)
    if not len(users):
        raise DataError(
            "no user has both a like and a dislike among the unvoted pairs that the truth is about and the model "
            "knows: there is nothing to tell apart"
        )
    values = {"truth_auc": by_score[users]}
    hits = _hits(labels, score_block, users, max(ks), ties, n_jobs)
    values |= {f"truth_ndcg@{k}": formulas.ndcg(hits, likes[users], k) for k in ks}
    totals = {"hidden_share": float(likes.sum() / pairs.sum())}
    bins: list[Bin] = []
    if posterior_block is not None:
        values["hidden_auc"] = by_posterior[users]
        bins = posteriors.reliability()
        totals |= {
            "hidden_pooled_auc": posteriors.auc(),
            "hidden_ece": posteriors.calibration_error(),
            "hidden_log_loss": posteriors.log_loss(),
        }
    return TruthScores(train.users.take(users), values, totals, bins, train.library)


def _hits(
    labels: _Labels, score_block: Block, users: Codes, k: int, ties: Codes | None, n_jobs: int | None
) -> NDArray[np.float64]:
    """1 where the n-th best of a user's unvoted judged items is truly liked."""

    def open_scores(block: Codes) -> NDArray[np.float32]:
        return np.where(labels.of(block)[0], score_block(block), np.float32(-np.inf))

    best = top_k_by_scores(open_scores, users, k, n_items=labels.shape[1], ties=ties, n_jobs=n_jobs).items
    hits = np.zeros(best.shape)
    for row, user in enumerate(users):
        listed = best[row][best[row] >= 0]
        hits[row, : len(listed)] = np.isin(listed, labels.likes_of(user))
    return hits


class _Labels:
    """The labels in the row numbers of a training log, a block of users at a time."""

    def __init__(self, train: Dataset, truth: Truth) -> None:
        self.shape = train.matrix.shape
        self.voted = train.matrix
        self.likes = truth.likes.recode(train.users, train.items)[0].matrix
        self.judged = None
        if truth.judged is not None:
            self.judged = truth.judged.recode(train.users, train.items)[0].matrix
        else:  # all pairs of the users and items that the truth is about
            self.rows = truth.likes.users.codes(train.users.values) >= 0
            self.columns = truth.likes.items.codes(train.items.values) >= 0

    def of(self, users: Codes) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which pairs are judged and not voted, and which are truly liked."""
        liked = _pattern(self.likes, users)
        if self.judged is None:
            judged = np.outer(self.rows[users], self.columns)
        else:
            judged = _pattern(self.judged, users) | liked
        return judged & ~_pattern(self.voted, users), liked

    def likes_of(self, user: int) -> Codes:
        matrix = self.likes
        row: Codes = matrix.indices[matrix.indptr[user] : matrix.indptr[user + 1]]
        return row


def _pattern(matrix: Any, users: Codes) -> NDArray[np.bool_]:
    """Where a sparse matrix has entries, whatever their weight."""
    rows = matrix[users]
    dense = np.zeros(rows.shape, dtype=bool)
    dense[np.repeat(np.arange(len(users)), np.diff(rows.indptr)), rows.indices] = True
    return dense
