"""What the suite of irspack checks, on truelike.

Metrics against scikit-learn and against a loop, with and without masked pairs and `recall_with_cutoff`; that users
who come with a history get the metrics of the same users in training; similarity matrices against dense products;
iALS that overfits; splits of a user's rows and of whole users.

Where truelike differs, and why:

- `recall_with_cutoff=True` divides recall by min(k, relevant items): `capped_recall`. Precision is divided by the
  length of the list, which is shorter than k where fewer items are left.
- An `Evaluator` masks the training matrix of the model, or `masked_interactions` in its place. Ours masks training
  always. A user whose relevant items are all masked counts 0 there, and is left out here.
- `EvaluatorWithColdUser` is `tl.evaluate_new_users`.
- `DenseSLIMRecommender(reg)` is `EASE(regularization)`. `EDLAERecommender(reg, dropout_p)` is
  `EDLAE(regularization, dropout)`. Both in float32 there, in float64 here: test_cross_checks.py.
- `IALSRecommender(alpha0, reg, nu)` with `loss_type="IALSPP"` has our objective: unobserved_weight,
  regularization, frequency_power. Its values of the matrix are weights of interactions; here they are with
  `weighting="linear"`, only.
- `CosineKNNRecommender(normalize=True, shrinkage, top_k)`: top_k counts the item itself, and neighbours are those
  of the liked item, as in implicit. TF-IDF, BM25, P3alpha, RP3beta and SLIM with L1 are not in truelike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse

import truelike as tl

logs = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def random_log(rng: Any) -> Any:
    """A small log in which every user has an item and every item a user."""
    dense = rng.random((rng.integers(3, 25), rng.integers(3, 15))) < rng.uniform(0.1, 0.6)
    dense[np.arange(len(dense)), rng.integers(dense.shape[1], size=len(dense))] = True
    dense[rng.integers(len(dense), size=dense.shape[1]), np.arange(dense.shape[1])] = True
    return dense.astype(np.float64)


@pytest.mark.parametrize("cutoff", [1, 4, 11, 12])
def test_metrics_against_a_loop(cutoff: int, measure: Any, trials: Any) -> None:
    lists, relevant, _ = trials
    expected = []
    for listed, liked in zip(lists, map(set, relevant), strict=True):
        gain = ideal = precisions = hits = 0.0
        for rank in range(1, cutoff + 1):
            ideal += (rank <= len(liked)) / np.log2(rank + 1)
            if rank <= len(listed) and listed[rank - 1] in liked:
                hits += 1
                gain += 1 / np.log2(rank + 1)
                precisions += hits / rank
        expected.append(
            (gain / ideal, precisions / min(cutoff, len(liked)), hits / cutoff, hits / min(cutoff, len(liked)))
        )
    ndcg, average, precision, recall = np.array(expected).T
    ours = measure(lists, relevant, cutoff)
    assert_allclose(ours[f"ndcg@{cutoff}"], ndcg)
    assert_allclose(ours[f"capped_map@{cutoff}"], average)
    assert_allclose(ours[f"precision@{cutoff}"], precision)
    assert_allclose(ours[f"capped_recall@{cutoff}"], recall)
    assert_allclose(ours[f"hit_rate@{cutoff}"], recall > 0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cutoff", [1, 4, 11])
def test_its_evaluator_gives_our_means(cutoff: int, ranked: Any) -> None:
    """Where all users have a relevant item that is not masked."""
    peer = pytest.importorskip("irspack.evaluation")
    rng = np.random.default_rng(cutoff)
    scores, test = rng.random((50, 11)), rng.random((50, 11)) < 0.4
    test[:, 2] |= ~test.any(axis=1)
    train = (rng.random((50, 11)) < 0.3) & ~test
    parts = [sparse.csr_matrix(part.astype(np.float64)) for part in (train, test)]
    metrics = ["ndcg", "recall", "capped_recall", "precision", "map", "hit_rate", "coverage"]
    ours = tl.evaluate(
        ranked(tl.read(parts[0]), scores), tl.read(parts[1]), ks=cutoff, metrics=metrics, notes=False
    )
    for option, recall in ((False, "recall"), (True, "capped_recall")):
        evaluator = peer.Evaluator(
            parts[1], cutoff=cutoff, n_threads=1, masked_interactions=parts[0], recall_with_cutoff=option
        )
        theirs = evaluator.get_score_from_score_matrix(scores)
        precision = ours.values[f"precision@{cutoff}"] * cutoff / np.minimum(cutoff, (~train).sum(axis=1))
        assert theirs["precision"] == pytest.approx(precision.mean(), abs=1e-9)
        names = {"ndcg": "ndcg", "map": "map", "hit": "hit_rate", "recall": recall, "catalog_coverage": "coverage"}
        for name, measure in names.items():
            assert theirs[name] == pytest.approx(ours[f"{measure}@{cutoff}"], abs=1e-9), name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cutoff", [5, 100])
def test_its_evaluator_of_cold_users_gives_our_means(cutoff: int) -> None:
    peer = pytest.importorskip("irspack.evaluation")
    split = tl.splits.new_users(tl.synthetic.World(n_users=300, n_items=120, seed=1).dataset(), test=60)
    model, new = tl.EASE().fit(split.train), split.test
    parts = [sparse.csr_matrix(part.matrix, dtype=np.float64) for part in (new.history, new.targets)]

    class Scores:
        n_items = split.train.n_items

        def get_score_cold_user(self, histories: Any) -> Any:
            return model.scorer.score_histories(sparse.csr_array(histories)).astype(np.float64)

    evaluator = peer.EvaluatorWithColdUser(*parts, cutoff=cutoff, n_threads=1, recall_with_cutoff=True)
    theirs, ours = evaluator.get_score(Scores()), tl.evaluate_new_users(model, split, ks=cutoff, metrics=METRICS)
    for name, measure in (("ndcg", "ndcg"), ("recall", "capped_recall"), ("map", "map"), ("hit", "hit_rate")):
        assert theirs[name] == pytest.approx(ours[f"{measure}@{cutoff}"], abs=1e-9), name


METRICS = ["ndcg", "capped_recall", "map", "hit_rate"]


@settings(max_examples=10)
@given(rng=logs, regularization=st.floats(0.1, 1000), dropout=st.sampled_from([0.0, 0.1, 0.5, 0.9]))
def test_edlae_is_its_closed_form(rng: Any, regularization: float, dropout: float) -> None:
    X = random_log(rng)
    gram = X.T @ X
    P = np.linalg.inv(gram + np.diag(dropout / (1 - dropout) * np.diag(gram) + regularization))
    B = -P / np.diag(P)
    np.fill_diagonal(B, 0)
    data = tl.read(sparse.csr_array(X))
    model = tl.EDLAE(regularization=regularization, dropout=dropout).fit(data)
    assert_allclose(model.weights_, B, atol=1e-6)
    if not dropout:
        assert (tl.EASE(regularization=regularization).fit(data).weights_ == model.weights_).all()
    # of all B without a diagonal it has the smallest error, with the ridge of each item
    ridge = dropout / (1 - dropout) * np.diag(gram) + regularization

    def error(weights: Any) -> float:
        return float(((X - X @ weights) ** 2).sum() + (ridge[:, None] * weights**2).sum())

    other = rng.normal(size=B.shape) * (1 - np.eye(len(B)))
    assert error(B) < min(error(B + 1e-3 * other), error(B - 1e-3 * other))


@settings(max_examples=6)
@given(rng=logs, shrinkage=st.sampled_from([0.0, 1.0, 30.0]), neighbors=st.sampled_from([1, 2, 5, None]))
def test_a_user_who_comes_with_a_history_gets_the_list_of_the_same_user_in_training(
    rng: Any, shrinkage: float, neighbors: int | None
) -> None:
    X = random_log(rng)
    data = tl.read(sparse.csr_array(X))
    for model in (tl.ItemKNN(neighbors=neighbors, shrinkage=shrinkage), tl.EASE(regularization=3.0)):
        model.fit(data)
        known = model.recommend(k=4)
        histories = {user: np.flatnonzero(row).tolist() for user, row in enumerate(X)}
        new = model.recommend_from_items(histories, k=4)
        assert new["item_id"].equals(known["item_id"])
        assert (new["score"] == known["score"]).all()
    assert (np.diff(model.train_.csr.indptr) > 0).all()
