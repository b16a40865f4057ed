"""`evaluate`: rank all items for each user of a test set and compute the metrics of the lists."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from typing import Any

from truelike.cluster import Cluster, as_cluster
from truelike.data.blocks.blocks import Blocks
from truelike.data.checks import check_dataset, check_number
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.data.propensities import Propensities
from truelike.data.seen import SeenBy
from truelike.data.splits import Split
from truelike.data.truth import Truth
from truelike.errors import ParameterError
from truelike.evaluation.exposure import ExposureSample, exposure_notes
from truelike.evaluation.impressions import score_impressions
from truelike.evaluation.measure import checked_ks, checked_metrics, measure
from truelike.evaluation.metrics import Metric
from truelike.evaluation.propensity import WeightedGains
from truelike.evaluation.protocol import Ranker, check_ranker
from truelike.evaluation.result import USUAL_METRICS, Evaluation
from truelike.evaluation.seen import Seen, SeenParts
from truelike.evaluation.truth import score_truth
from truelike.ranking.on_cluster import check_dot_product, top_k_on_cluster

KS = (2, 5, 10, 20)


def evaluate(
    model: Ranker,
    test: Dataset | Split | Blocks | None = None,
    *,
    seen: Dataset | SeenParts | None = None,
    exclude_seen: SeenBy = True,
    truth: Truth | Dataset | None = None,
    impressions: bool = False,
    propensity: Any = None,
    propensity_clip: float | None = None,
    ks: Sequence[int] | int = KS,
    metrics: Sequence[str | Metric] | str | Metric = USUAL_METRICS,
    n_jobs: int | None = -1,
    name: str | None = None,
    cluster: str | Cluster | None = None,
    notes: bool = True,
) -> Evaluation:
    """Rank all items for each user of a test set and compute the metrics of the lists.

    What a user has interacted with before the test is never recommended, and does not count as relevant: of a split
    the training and the validation items, else the training items. Users without a relevant item are left out.
    With `truth`, the model is also, or only, scored against true labels of unobserved pairs.

    Parameters
    ----------
    model
        Any fitted recommender.
    test
        A split, whose test part is used, or the interactions (or true likes) to find, or the blocks of a directory
        (`tl.blocks.open`), which are read one at a time. Rows with ids that the model does not know are left out, with
        a warning. None: only `truth` is used.
    seen
        What is left out of the lists beside the training items. "validation": the validation items of the split, too,
        as most papers do. "train": nothing else, so that validation items stay candidates. A Dataset of earlier
        interactions: these. None: "validation" for a split, "train" for anything else. `result.left_out` says which.
    exclude_seen
        By which kinds of events, and for how long, an item is seen, as in `Recommender.recommend`. False: nothing is
        left out, so that repeated interactions can be predicted and are measured. Periods end at the last interaction
        before the test.
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
        Any of ndcg, recall, capped_recall, precision, f1, map, mrr, hit_rate, coverage, novelty, popularity, and
        functions of your own: `metric(hits, relevant, k)` gets an array (users, k) of 1 where the item at a rank is
        relevant and 0 elsewhere, and the number of relevant items of each user, and returns one number for each user.
        It is named by its function, and `propensity` does not weight it. By default all but capped_recall.
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
    >>> tl.evaluate(tl.ItemKNN().fit(split.train), split, ks=(5,), metrics=["ndcg"])
    Evaluation(ItemKNN, ... users: ndcg@5 0...; left out: train, validation)

    A metric of your own, here the share of users whose first item is relevant:

    >>> def first(hits, relevant, k):
    ...     return hits[:, 0]
    >>> tl.evaluate(tl.ItemKNN().fit(split.train), split, ks=(5,), metrics=["capped_recall", first])
    Evaluation(ItemKNN, ... users: capped_recall@5 0..., first@5 0...; left out: train, validation)

    In a synthetic world the true likes are known:

    >>> world = tl.synthetic.World(n_users=200, n_items=100)
    >>> tl.evaluate(tl.ItemPop().fit(world.dataset()), truth=world.truth(), ks=(5,))
    Evaluation(ItemPop, ... users: truth_auc 0..., truth_ndcg@5 0..., hidden_share 0...)
    """
    ks, wanted = checked_ks(ks), checked_metrics(metrics)
    check_ranker(model)
    cluster = as_cluster(cluster)
    _check_options(test, impressions, propensity, propensity_clip, cluster, seen)
    labels = truth if truth is None or isinstance(truth, Truth) else Truth(truth)
    scores = None if labels is None else score_truth(model, labels, ks=ks, n_jobs=n_jobs)
    name = name or model.name
    if test is None and scores is not None:
        return Evaluation(name, scores.users, scores.values, scores.totals, scores.library, scores)
    held_out = test.test if isinstance(test, Split) else test
    check_dataset(held_out, "evaluate", part="test")
    assert held_out is not None
    if impressions:
        shown = score_impressions(model, held_out)
        return Evaluation(name, shown.users, shown.values, shown.totals, shown.library, scores, impressions=shown)
    train = model.train_
    before = Seen.of(train, test, seen, exclude_seen)
    sample = ExposureSample() if notes else None
    weighted = None
    if propensity is not None:
        weighted = WeightedGains(Propensities.of(propensity, train), list(wanted), ks, propensity_clip)
    watchers = [each for each in (weighted, sample) if each is not None]
    source = ModelLists(model, before, n_jobs, cluster)
    found = measure(source, held_out, train=train, ks=ks, metrics=wanted, watchers=watchers)
    return Evaluation(
        name,
        train.users.take(found.users),
        found.values(),
        found.totals(),
        train.library,
        scores,
        None if weighted is None else weighted.results(name, train),
        notes=() if sample is None else exposure_notes(model, before, sample),
        left_out=before.parts,
    )


class ModelLists:
    """The lists of a fitted model, computed here or on a cluster."""

    def __init__(self, model: Ranker, seen: Seen, n_jobs: int | None, cluster: Cluster | None) -> None:
        self.scorer, self.seen, self.n_jobs, self.cluster = model.scorer, seen, n_jobs, cluster
        self.users, self.items = model.train_.users, model.train_.items
        self.vectors = None if cluster is None else check_dot_product(model.name, self.scorer.vectors)

    def lists(self, blocks: Iterable[Codes], k: int) -> Generator[Codes, None, None]:
        """For each block of users, the k best items of each."""
        if self.cluster is None:
            for users in blocks:
                yield self.scorer.top_k(users, k, seen=self.seen, n_jobs=self.n_jobs).items
            return
        with closing(
            top_k_on_cluster(self.cluster, self.vectors, self.seen, blocks, k, ties=self.scorer.ties)
        ) as found:
            for best in found:
                yield best.items


def _check_options(
    test: object, impressions: bool, propensity: object, clip: float | None, cluster: Cluster | None, seen: object
) -> None:
    """Raise an error for options of lists if no lists are computed, and for a clip that is none."""
    if impressions and test is None:
        raise ParameterError(
            "impressions need a test set, which says what was taken of what was shown; test is None"
        )
    for name, value in (("cluster", cluster), ("propensity", propensity), ("seen", seen)):
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
