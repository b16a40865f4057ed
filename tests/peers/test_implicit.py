"""What the suite of implicit checks, on truelike.

Its mixin runs every model on a checkerboard: the first item, batches, `recalculate_user`, `filter_items`, `items`,
more items than there are, similar items, rows without interactions, types of the matrix, a saved model. Its other
files check conjugate gradients on two matrices that once gave NaN, exact reconstruction, explanations, nearest
neighbours against a matrix product, splits, and metrics.

Where truelike differs, and why:

- Lists end when no item is left; implicit fills a batch with -1. An item is not similar to itself; implicit lists
  it first.
- The values of a matrix are weights that no model counts unless it is asked to (`weighting`): implicit's ALS reads
  them as confidence. So a reconstruction at regularization 0 is 1 in implicit and 1 / (1 + unobserved_weight)
  here: the objective of Rendle et al. pulls all pairs to 0, observed ones, too.
- An empty matrix is an error; implicit fits zeros.
- Held-out rows of users and items without training rows are dropped, and counted in `split.info`; implicit keeps
  them.
- `precision` and `map` of `ranking_metrics_at_k` have other denominators, below. Its `auc` is one of a truncated
  list.
- BM25 and TF-IDF weights, `similar_users`, `LMF` and approximate search inside a model are not in truelike.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from threadpoolctl import threadpool_limits

import truelike as tl
from truelike.errors import DataError

MODELS = {
    "ItemKNN": lambda: tl.ItemKNN(shrinkage=0.0),
    "EASE": lambda: tl.EASE(regularization=1.0),
    "EDLAE": lambda: tl.EDLAE(regularization=1.0),
    "IALS": lambda: tl.IALS(factors=4),
    "BPR": lambda: tl.BPR(factors=4, epochs=50),
}
# implicit's two matrices: halves of a triangle, and one interaction in 2,000 pairs
TRIANGLE = np.kron(np.eye(2), np.triu(np.ones((6, 6)), 1))
NEARLY_EMPTY = sparse.random_array((100, 100), density=0.0005, rng=42).toarray() > 0


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, board: Any) -> Any:
    return MODELS[request.param]().fit(tl.read(board))


def test_the_withheld_item_of_the_board_is_first(model: Any, board: Any) -> None:
    assert model.recommend(k=1)["item_id"].to_list() == list(range(50))
    for user in (0, 17, 49):
        one = model.recommend(user, k=5)
        assert one.equals(model.recommend([user, 3], k=5)[:5])
        folded = model.recommend_from_items(board[[user]].indices.tolist(), k=1)
        assert folded["item_id"].to_list() == [user]  # implicit's `recalculate_user`
    assert len(model.recommend(0, k=10_000)) == 26
    assert 0 not in model.recommend(0, k=10, exclude=[0])["item_id"].to_list()
    assert model.recommend(0, k=10, candidates=[9, 0, 1])["item_id"].to_list()[0] == 0
    assert set(model.recommend(0, k=10, candidates=[9, 0, 1])["item_id"]) == {0, 1, 9}
    assert len(model.recommend(0, k=50, exclude_seen=False)) == 50


def test_similar_items_are_of_the_same_colour_and_not_the_item_itself(model: Any, tmp_path: Path) -> None:
    found = model.similar_items(list(range(50)), k=10)
    assert (found["item_id"] % 2 == found["similar_item_id"] % 2).all()
    assert (found["item_id"] != found["similar_item_id"]).all()
    model.save(tmp_path / "model")
    assert tl.load(tmp_path / "model").similar_items(list(range(50)), k=10).equals(found)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "BPR"])
def test_an_item_without_users_is_similar_to_nothing_and_the_type_of_a_matrix_is_nothing(
    name: str, board: Any
) -> None:
    dense = board.toarray()
    dense[42] = dense[:, 42] = 0
    fitted = [
        MODELS[name]().fit(tl.read(sparse.csr_array(dense.astype(kind)))) for kind in ("f4", "f8", "i4", "?")
    ]
    lists = [one.recommend(list(range(40)), k=20) for one in fitted]
    assert all(a.equals(b) for a, b in pairwise(lists))
    assert 42 not in set(fitted[0].similar_items(list(range(40)), k=10)["similar_item_id"])


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
@pytest.mark.parametrize("dense", [TRIANGLE, NEARLY_EMPTY], ids=["triangle", "nearly empty"])
def test_least_squares_stay_finite_on_the_matrices_that_gave_nan(dense: Any, solver: Any) -> None:
    with pytest.raises(DataError):
        tl.read(sparse.csr_array(np.zeros((3, 3))))
    for factors in (3, 32):
        made = tl.IALS(factors=factors, solver=solver, regularization=0.01, unobserved_weight=0.1)
        made.fit(tl.read(sparse.csr_array(dense * 1.0)))
        assert np.isfinite(made.user_factors_).all()
        assert np.isfinite(made.item_factors_).all()
        assert not made.item_factors_[dense.sum(axis=0) == 0].any()


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_full_rank_without_regularization_reconstructs_the_matrix(solver: Any) -> None:
    likes = np.array(
        [[1, 1, 0, 1, 0, 0], [0, 1, 1, 1, 0, 0], [1, 0, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0],
         [0, 0, 1, 1, 0, 1], [0, 1, 0, 0, 0, 1], [0, 0, 0, 0, 1, 1]]
    )  # fmt: skip
    made = tl.IALS(factors=6, solver=solver, regularization=1e-6, unobserved_weight=0.25, epochs=60, cg_steps=8)
    made.fit(tl.read(sparse.csr_array(likes * 1.0)))
    assert_allclose(made.user_factors_ @ made.item_factors_.T, likes / 1.25, atol=2e-3)


@pytest.mark.parametrize("shrinkage", [0.0, 5.0])
@pytest.mark.parametrize("neighbors", [1, 3, 20, None])
def test_neighbours_are_the_largest_entries_of_the_product(
    neighbors: int | None, shrinkage: float, log: Any
) -> None:
    X = log.toarray().astype(np.float64)
    common, length = X.T @ X, np.sqrt(X.sum(axis=0))
    with np.errstate(invalid="ignore"):
        expected = np.nan_to_num(common / (np.outer(length, length) + shrinkage))
    np.fill_diagonal(expected, 0)
    made = tl.ItemKNN(neighbors=neighbors, shrinkage=shrinkage).fit(tl.read(log)).similarity_
    for item, row in enumerate(made.toarray()):
        kept = np.flatnonzero(row)
        assert_allclose(row[kept], expected[item, kept], rtol=1e-6)
        assert_allclose(np.sort(row)[::-1][:neighbors], np.sort(expected[item])[::-1][:neighbors], rtol=1e-6)
        assert neighbors is None or len(kept) <= neighbors


def test_the_parts_of_a_split_add_up_to_the_data_and_the_seed_decides_them(log: Any) -> None:
    data = tl.read(log)
    ways = {
        "random": lambda seed: tl.splits.random(data, validation=0, test=0.2, seed=seed),
        "by_user": lambda seed: tl.splits.by_user(data, validation=0.1, test=0.2, seed=seed),
        "leave_one_out": lambda seed: tl.splits.leave_one_out(data, seed=seed),
    }
    for name, way in ways.items():
        split, again, other = way(5), way(5), way(6)
        parts = (split.train, split.validation, split.test)
        pairs = [set(part.to_frame().select("user_id", "item_id").rows()) for part in parts]
        lost = split.info["dropped"]["validation_rows"] + split.info["dropped"]["test_rows"]
        assert sum(map(len, pairs)) == len(set.union(*pairs)) == log.nnz - lost, name
        assert again.test.to_frame().equals(split.test.to_frame()), name
        assert not other.test.to_frame().equals(split.test.to_frame()), name
    one_out = tl.splits.leave_one_out(data)
    tested = one_out.test.interactions_per_user()
    assert tested.sum() + one_out.info["dropped"]["test_rows"] == (np.diff(log.indptr) >= 3).sum()
    assert tested.max() == 1


@pytest.mark.parametrize("k", [1, 3, 5, 8])
def test_its_metrics_follow_from_ours(k: int, measure: Any, trials: Any) -> None:
    """NDCG is the same. Its precision pools hits of all users; its MAP divides by min(k, relevant items)."""
    from implicit.evaluation import ranking_metrics_at_k

    lists, liked, _ = trials

    class Lists:
        def recommend(self, users: Any, rows: Any, N: int) -> Any:
            ids = np.full((len(users), N), -1, dtype=np.int32)
            for place, user in enumerate(users):
                ids[place, : len(lists[user][:N])] = lists[user][:N]
            return ids, np.zeros(ids.shape, dtype=np.float32)

    test = np.zeros((len(lists), 12), dtype=np.float32)
    for row, items in zip(test, liked, strict=True):
        row[items] = 1
    nothing = sparse.csr_matrix(test.shape, dtype=np.float32)
    theirs = ranking_metrics_at_k(Lists(), nothing, sparse.csr_matrix(test), K=k, show_progress=False)
    ours = measure(lists, liked, k)
    assert theirs["ndcg"] == pytest.approx(ours[f"ndcg@{k}"].mean())
    assert theirs["precision"] == pytest.approx(k * ours[f"precision@{k}"].sum() / ours[f"possible@{k}"].sum())
    assert theirs["map"] == pytest.approx(ours[f"capped_map@{k}"].mean())


@pytest.mark.parametrize(("confidence", "regularization"), [(6.0, 7.0), (41.0, 0.5)])
def test_an_iteration_of_its_als_is_an_epoch_of_ours(confidence: float, regularization: float, log: Any) -> None:
    """With unobserved_weight 1 / (c - 1), regularization lambda / c and frequency_power 0.

    The objectives are then the same function, if our factors are multiplied by sqrt(c / (c - 1)).
    """
    from implicit.cpu.als import AlternatingLeastSquares

    def ours(epochs: int) -> Any:
        return tl.IALS(
            factors=8, solver="cholesky", relaxation=1.0, epochs=epochs, frequency_power=0.0,
            unobserved_weight=1 / (confidence - 1), regularization=regularization / confidence,
        ).fit(tl.read(log))  # fmt: skip

    start, after = ours(2), ours(3)
    scale = np.float32(np.sqrt(confidence / (confidence - 1)))
    with threadpool_limits(limits=1, user_api="blas"):  # implicit warns of more
        peer = AlternatingLeastSquares(
            factors=8, alpha=confidence, regularization=regularization, iterations=1, use_cg=False, num_threads=1
        )
        peer.user_factors, peer.item_factors = scale * start.user_factors_, scale * start.item_factors_
        peer.fit(sparse.csr_matrix(log), show_progress=False)
    assert_allclose(peer.user_factors, scale * after.user_factors_, rtol=1e-3, atol=1e-5)
    assert_allclose(peer.item_factors, scale * after.item_factors_, rtol=1e-3, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Method expects CSR input")
@pytest.mark.parametrize("K", [5, 60])
def test_its_cosine_counts_the_item_itself_and_keeps_neighbours_of_the_liked_item(K: int, log: Any) -> None:
    """Each item keeps K - 1 others. It adds up the neighbours of liked items; ours are those of the scored item."""
    from implicit.nearest_neighbours import CosineRecommender

    peer = CosineRecommender(K=K)
    peer.fit(sparse.csr_matrix(log, dtype=np.float64), show_progress=False)
    theirs = peer.similarity.toarray()
    np.fill_diagonal(theirs, 0)
    made = tl.ItemKNN(neighbors=K - 1, shrinkage=0.0).fit(tl.read(log))
    mine = made.similarity_.toarray()
    assert_allclose(np.sort(theirs, axis=1), np.sort(mine, axis=1), rtol=1e-5)  # the same values, up to ties
    history = log.toarray()
    assert_allclose(
        made.scorer.score_users(np.arange(150, dtype=np.int32)), history @ mine.T, rtol=1e-4, atol=1e-5
    )
    ids, scores = peer.recommend(
        0, sparse.csr_matrix(log, dtype=np.float64)[0], N=10, filter_already_liked_items=True
    )
    assert_allclose(scores, (history @ theirs)[0, ids], rtol=1e-5)
    if K == 60:  # nothing is cut: the direction does not matter
        assert_allclose(made.scorer.score_users(np.zeros(1, dtype=np.int32))[0, ids], scores, rtol=1e-4)
