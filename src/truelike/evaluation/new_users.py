"""`evaluate_new_users`: the metrics of the lists of users whom a fitted model has not seen, from their histories."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.parallel import one_blas_thread
from truelike.data.ids import Codes
from truelike.data.new_users import NewUsers, NewUserSplit
from truelike.errors import DataError, DataWarning, ParameterError, warn
from truelike.evaluation.evaluate import KS
from truelike.evaluation.measure import checked_ks, checked_metrics, measure
from truelike.evaluation.metrics import Metric
from truelike.evaluation.protocol import Floats, Ranker, Scores, check_ranker
from truelike.evaluation.result import USUAL_METRICS, Evaluation
from truelike.ranking.top_k import top_k_by_scores


def evaluate_new_users(
    model: Ranker,
    test: NewUsers | NewUserSplit,
    *,
    ks: Sequence[int] | int = KS,
    metrics: Sequence[str | Metric] | str | Metric = USUAL_METRICS,
    n_jobs: int | None = -1,
    name: str | None = None,
) -> Evaluation:
    """Give a fitted model the histories of users it was not trained on, and compute the metrics of their lists.

    The scores of all items are those of `recommend_from_items`: by fold-in, with the model as it is. The items of the
    history are left out of the list and do not count as relevant. Users without a relevant item are left out. So are
    those whose history has no item that the model knows; a warning counts them. Models that use weights and times use
    those of the histories.

    Parameters
    ----------
    model
        Any fitted recommender.
    test
        The users: a part of `tl.splits.new_users(data)`, or the split, whose test part is used; or `tl.NewUsers` of
        your own. Rows with items that the model does not know are left out, with a warning.
    ks, metrics, n_jobs, name
        As in `tl.evaluate`. Popularity and novelty are those in the training data.

    Returns
    -------
    Evaluation
        As of `tl.evaluate`, so that `tl.compare_means` takes both.

    Examples
    --------
    The metrics of the Mult-VAE paper (Liang et al., WWW 2018):

    >>> import truelike as tl
    >>> data = tl.synthetic.World(n_users=300, n_items=200).dataset()
    >>> split = tl.splits.new_users(data, validation=50, test=50)
    >>> model = tl.EASE().fit(split.train)
    >>> result = tl.evaluate_new_users(model, split, ks=(20, 50, 100), metrics=["capped_recall", "ndcg"])
    >>> result["capped_recall@20"] < result["capped_recall@50"], 0 < result["ndcg@100"] < 1
    (True, True)
    >>> result.left_out
    ('history',)
    """
    ks, wanted = checked_ks(ks), checked_metrics(metrics)
    check_ranker(model, "evaluate_new_users")
    part = test.test if isinstance(test, NewUserSplit) else test
    if not isinstance(part, NewUsers):
        raise DataError(
            f"evaluate_new_users takes new users, not {type(part).__name__}: pass a part of "
            "tl.splits.new_users(data), or tl.NewUsers(history, targets)"
        )
    source = _FoldedIn(model, part, n_jobs)
    found = measure(source, source.targets, train=model.train_, ks=ks, metrics=wanted)
    users, library = source.users.take(found.users), model.train_.library
    return Evaluation(name or model.name, users, found.values(), found.totals(), library, left_out=("history",))


class _FoldsIn(Scores, Protocol):
    """The scorer of a model that can score new users."""

    def score_histories(self, histories: sparse.csr_array) -> Floats:
        """Scores of all items for new users, each of whom is a row of a CSR of interactions: a new array."""

    def counted(self, weights: sparse.csr_array, times: NDArray[np.int64] | None = None) -> sparse.csr_array:
        """Histories with how much each interaction counts in place of its weight."""


class _FoldedIn:
    """The lists of new users, who have row numbers of their own."""

    def __init__(self, model: Ranker, new: NewUsers, n_jobs: int | None) -> None:
        scorer: Any = model.scorer
        if not hasattr(scorer, "score_histories"):
            raise ParameterError(
                f"{model.name} cannot score new users: its scorer has no score_histories(histories). Implement it, or "
                "evaluate the users that it was trained on with tl.evaluate."
            )
        self.scorer: _FoldsIn = scorer
        self.n_jobs, self.items = n_jobs, model.train_.items
        self.users = new.history.users.union(new.targets.users)
        self.seen, of_histories = new.history.recode(self.users, self.items)
        self.targets, of_targets = new.targets.recode(self.users, self.items)
        if of_histories or of_targets:
            warn(
                f"{of_histories:,} of {new.history.n_interactions:,} rows of the histories and {of_targets:,} of "
                f"{new.targets.n_interactions:,} targets have an item that is not in the training data; they are left "
                "out",
                DataWarning,
            )
        self._report_trained(model)
        self._leave_out_without_history()

    def _report_trained(self, model: Ranker) -> None:
        """Warn if the model was trained on some of the users."""
        if trained := int((model.train_.users.codes(self.users.to_series()) >= 0).sum()):
            warn(
                f"{trained:,} of {len(self.users):,} new users are in the training data of {model.name}, so that they "
                "are not new to it; fit it without them, e.g. on split.train of tl.splits.new_users(data)",
                DataWarning,
            )

    def _leave_out_without_history(self) -> None:
        """Drop the targets of users of whom nothing is known, with a warning."""
        known = self.seen.interactions_per_user() > 0
        tested = self.targets.interactions_per_user() > 0
        if unknown := int((tested & ~known).sum()):
            warn(
                f"{unknown:,} of {int(tested.sum()):,} new users are left out: no item of their history is in the "
                "training data",
                DataWarning,
            )
            self.targets = self.targets.select(known[self.targets.entry_users])

    def lists(self, blocks: Iterable[Codes], k: int) -> Generator[Codes, None, None]:
        """For each block of users, the k best items of each that are not in the history."""
        seen = self.seen.csr
        histories = self.scorer.counted(seen, self.seen.times)
        for users in blocks:
            with one_blas_thread():  # whose number would change the last bits of a fold-in
                best = top_k_by_scores(
                    lambda rows: self.scorer.score_histories(histories[rows]),
                    users,
                    k,
                    n_items=len(self.items),
                    seen=seen,
                    ties=self.scorer.ties,
                    n_jobs=self.n_jobs,
                )
            yield best.items
