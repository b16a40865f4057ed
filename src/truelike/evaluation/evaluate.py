"""`evaluate`: rank all items for each user of a test set and compute the metrics of the lists."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.cluster import Cluster, as_cluster
from truelike.data.blocks.blocks import Blocks
from truelike.data.checks import check_dataset, check_number
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.data.propensities import Propensities
from truelike.data.splits import Split
from truelike.data.truth import Truth
from truelike.errors import DataError, DataWarning, ParameterError, warn
from truelike.evaluation.exposure import ExposureSample, exposure_notes
from truelike.evaluation.impressions import score_impressions
from truelike.evaluation.metrics import METRICS, Floats, mean_of_listed
from truelike.evaluation.pairs import USERS_AT_ONCE, hits_of, relevant_items
from truelike.evaluation.propensity import WeightedGains
from truelike.evaluation.protocol import Ranker, check_ranker
from truelike.evaluation.result import ALL_METRICS, Evaluation
from truelike.evaluation.truth import score_truth
from truelike.ranking.on_cluster import check_dot_product, top_k_on_cluster
from truelike.ranking.top_k import TopK

KS = (2, 5, 10, 20)


def evaluate(
    model: Ranker,
    test: Dataset | Split | Blocks | None = None,
    *,
    truth: Truth | Dataset | None = None,
    impressions: bool = False,
    propensity: Any = None,
    propensity_clip: float | None = None,
    ks: Sequence[int] | int = KS,
    metrics: Sequence[str] | str = ALL_METRICS,
    n_jobs: int | None = -1,
    name: str | None = None,
    cluster: str | Cluster | None = None,
    notes: bool = True,
) -> Evaluation:
    """Rank all items for each user of a test set and compute the metrics of the lists.

    Items that a user has in training are never recommended, and do not count as relevant. Users without a relevant
    item are left out. With `truth`, the model is also, or only, scored against true labels of unobserved pairs.

    Parameters
    ----------
    model
        Any fitted recommender.
    test
        The interactions (or true likes) to find, or a split, whose test part is used, or the blocks of a directory
        (`tl.blocks.open`), which are read one at a time. Rows with ids that the model does not know are left out, with
        a warning. None: only `truth` is used.
    truth
        The true labels of pairs; or the true likes, if all other pairs are dislikes. Adds "truth_auc" and
        "truth_ndcg@k" of the ranking over unobserved pairs. For models with flip probabilities it also adds
        "hidden_auc", "hidden_pooled_auc", "hidden_ece" and "hidden_log_loss" of the posterior of hidden likes,
        and `result.truth.reliability()`.
    impressions
        Whether to score the pairs that were shown in the test part (`test.shown`), of which `test` says which were
        taken. No lists are computed. The result has "shown_auc", the mean over users, and "shown_pooled_auc",
        "shown_share" and, for models with probabilities, "shown_log_loss" and "shown_ece" among what was shown, and
        `result.impressions.reliability()`. The splits of `tl.splits` hold out impressions with the interactions.
    propensity
        How likely each held-out interaction was to be shown: a frame or a file with the columns user_id, item_id and
        propensity, or item_id and propensity; a Dataset whose weights are propensities; one number; or
        "popularity^0.5", which assumes (popularity / largest popularity)^0.5 of the training data. Adds
        `result.propensity`: estimates of the metrics on all held-out likes, shown or not, by weights 1 / propensity,
        with intervals and the effective sample size. Each like counts as the only relevant item of its user.
    propensity_clip
        The smallest propensity that is used; smaller ones are raised to it, which bounds the weights and biases the
        estimates. None: none is changed.
    ks
        The list lengths.
    metrics
        Any of ndcg, recall, precision, f1, map, mrr, hit_rate, coverage, novelty, popularity.
    n_jobs
        Number of threads; -1: all cores. It does not change the result.
    name
        The name of the model in tables; None: its class.
    cluster
        Compute the lists on a Ray cluster: "local" starts one on this machine, "auto" takes the one that this machine
        belongs to, or its address. `tl.Cluster` has more options. The result is the same to the bit. For models whose
        score is a dot product.
    notes
        Whether to judge by a sample of the held-out interactions if they mostly measure exposure or popularity; then
        `result.notes` says so, and so does its repr.

    Returns
    -------
    Evaluation
        The value of each user, the means, and tables of them.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=200, n_items=100).dataset(), seed=0)
    >>> tl.evaluate(tl.ItemKNN().fit(split.train), split.test, ks=(5,), metrics=["ndcg"])
    Evaluation(ItemKNN, ... users: ndcg@5 0...)

    In a synthetic world the true likes are known:

    >>> world = tl.synthetic.World(n_users=200, n_items=100)
    >>> tl.evaluate(tl.ItemPop().fit(world.dataset()), truth=world.truth(), ks=(5,))
    Evaluation(ItemPop, ... users: truth_auc 0..., truth_ndcg@5 0..., hidden_share 0...)
    """
    ks, metrics = _checked_ks(ks), _checked_metrics(metrics)
    check_ranker(model)
    cluster = as_cluster(cluster)
    _check_options(test, impressions, propensity, propensity_clip, cluster)
    vectors = None if cluster is None else check_dot_product(model.name, model.scorer.vectors)
    labels = truth if truth is None or isinstance(truth, Truth) else Truth(truth)
    scores = None if labels is None else score_truth(model, labels, ks=ks, n_jobs=n_jobs)
    name = name or model.name
    if test is None and scores is not None:
        return Evaluation(name, scores.users, scores.values, scores.totals, scores.library, scores)
    if isinstance(test, Split):
        test = test.test
    check_dataset(test, "evaluate", part="test")
    assert test is not None
    if impressions:
        shown = score_impressions(model, test)
        return Evaluation(name, shown.users, shown.values, shown.totals, shown.library, scores, impressions=shown)
    train, k = model.train_, max(ks)
    measured = _Measured(train, metrics, ks)
    if propensity is not None:
        measured.weighted = WeightedGains(Propensities.of(propensity, train), metrics, ks, propensity_clip)
    measured.sample = ExposureSample() if notes else None
    waiting = deque[_Chunk]()

    def asked() -> Iterator[Codes]:
        for chunk in _chunks(train, test):
            waiting.append(chunk)
            yield chunk[0]

    lists: Generator[TopK, None, None]
    if cluster is None:
        lists = (model.scorer.top_k(users, k, n_jobs=n_jobs) for users in asked())
    else:
        lists = top_k_on_cluster(cluster, vectors, train, asked(), k, ties=model.scorer.ties)
    with closing(lists):
        for best in lists:
            measured.add(*waiting.popleft(), best.items)
    if not measured.users:
        raise DataError(
            f"no user of the held-out part ({test.n_interactions:,} interactions) has a relevant item: one that the "
            "model knows and the user does not have in training. Give interactions held out of training."
        )
    users, values, totals = measured.results()
    estimates = None if measured.weighted is None else measured.weighted.results(name, train)
    found = () if measured.sample is None else exposure_notes(model, measured.sample)
    of_users = train.users.take(users)
    return Evaluation(name, of_users, values, totals, train.library, scores, estimates, notes=found)


_Chunk = tuple[Codes, sparse.csr_array]  # row numbers of users, and their relevant items, a row for each


def _chunks(train: Dataset | Blocks, test: Dataset | Blocks) -> Iterator[_Chunk]:
    """The users with relevant items in the order of their row numbers, some at a time."""
    for known in _known(train, test):
        relevant = relevant_items(train, known)
        users = np.flatnonzero(np.diff(relevant.indptr)).astype(np.int32)
        for start in range(0, len(users), USERS_AT_ONCE):
            chunk = users[start : start + USERS_AT_ONCE]
            yield chunk, relevant[chunk]


def _known(train: Dataset | Blocks, test: Dataset | Blocks) -> Iterator[Dataset]:
    """The test interactions in row numbers of the training data, block by block; a warning if some have none."""
    unknown = 0
    # in another order, no block of the test users is one of the training users
    for part in test.parts() if test.users.kind == train.users.kind else [test.to_dataset()]:
        known, others = part.recode(train.users, train.items)
        unknown += others
        yield known
    if unknown:
        warn(
            f"{unknown:,} of {test.n_interactions:,} test rows have a user or an item that the model "
            "does not know; they are left out",
            DataWarning,
        )


class _Measured:
    """What is kept of the lists of users: the hits, and what follows from their items alone."""

    def __init__(self, train: Dataset | Blocks, metrics: Sequence[str], ks: Sequence[int]) -> None:
        self.metrics, self.ks = metrics, ks
        self.users: list[Codes] = []
        self.hits: list[NDArray[np.bool_]] = []
        self.relevant: list[Floats] = []
        self.of_items: dict[str, Floats] = {}
        if "popularity" in metrics or "novelty" in metrics:
            shares = np.maximum(train.popularity(), 0.5) / train.n_users
            of_items = {"popularity": shares, "novelty": -np.log2(shares)}
            self.of_items = {metric: of_items[metric] for metric in metrics if metric in of_items}
        self.of_lists: dict[str, list[Floats]] = {f"{metric}@{k}": [] for metric in self.of_items for k in ks}
        self.listed = {k: np.zeros(train.n_items, dtype=bool) for k in ks if "coverage" in metrics}
        self.weighted: WeightedGains | None = None
        self.sample: ExposureSample | None = None

    def add(self, users: Codes, relevant: sparse.csr_array, best: Codes) -> None:
        """Add the lists of some users."""
        hits, entries = hits_of(best, relevant)
        self.users.append(users)
        self.hits.append(hits)
        self.relevant.append(np.diff(relevant.indptr).astype(np.float64))
        if self.weighted is not None:
            self.weighted.add(users, relevant, hits, entries)
        if self.sample is not None:
            self.sample.add(users, relevant)
        for k in self.ks:
            for metric, values in self.of_items.items():
                self.of_lists[f"{metric}@{k}"].append(mean_of_listed(best, values, k))
            if k in self.listed:
                items = best[:, :k]
                self.listed[k][items[items >= 0]] = True

    def results(self) -> tuple[Codes, dict[str, Floats], dict[str, float]]:
        """The users, the values of each user, and the totals.

        A metric is computed of all users at once: BLAS may round a row otherwise beside fewer others.
        """
        hits, relevant = np.concatenate(self.hits).astype(np.float64), np.concatenate(self.relevant)
        values = {
            f"{metric}@{k}": METRICS[metric](hits, relevant, k)
            for metric in self.metrics
            if metric in METRICS
            for k in self.ks
        }
        values.update({measure: np.concatenate(each) for measure, each in self.of_lists.items()})
        totals = {f"coverage@{k}": float(listed.sum() / len(listed)) for k, listed in self.listed.items()}
        return np.concatenate(self.users), values, totals


def _checked_metrics(metrics: object) -> list[str]:
    wanted: list[Any] = (
        [metrics] if isinstance(metrics, str) or not isinstance(metrics, Iterable) else list(metrics)
    )
    if not wanted or any(name not in ALL_METRICS for name in wanted):
        raise ParameterError(f"metrics is {metrics!r}; it must be one or more of {', '.join(ALL_METRICS)}")
    return wanted


def _checked_ks(ks: object) -> list[int]:
    wanted: list[Any] = list(ks) if isinstance(ks, Iterable) else [ks]
    if not wanted or not all(isinstance(k, Integral) and not isinstance(k, bool) and int(k) >= 1 for k in wanted):
        raise ParameterError(f"ks is {ks!r}; it must be one or more whole numbers from 1 up")
    return sorted({int(k) for k in wanted})


def _check_options(
    test: object, impressions: bool, propensity: object, clip: float | None, cluster: Cluster | None
) -> None:
    """Raise an error for options of lists if no lists are computed, and for a clip that is none."""
    if impressions and test is None:
        raise ParameterError(
            "impressions need a test set, which says what was taken of what was shown; test is None"
        )
    for name, value in (("cluster", cluster), ("propensity", propensity)):
        if value is not None and (test is None or impressions):
            why = "test is None" if test is None else "with impressions no lists are computed"
            raise ParameterError(f"{name} is for the lists of a test set, and {why}: leave {name} out")
    if clip is None:
        return
    if propensity is None:
        raise ParameterError("propensity_clip is given without propensity; pass both, or none")
    check_number("propensity_clip", clip, high=1)
    if clip <= 0:
        raise ParameterError(f"propensity_clip is {clip}; it must be above 0 and at most 1")
