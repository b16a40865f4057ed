"""A list and its scores have the same bits, however they are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from truelike.errors import ParameterError
from truelike.ranking.factor_ranker import FactorRanker, factor_pair_scores, factor_score_block
from truelike.ranking.top_k import TopK


def assert_same(found: TopK, expected: TopK) -> None:
    assert found.items.tobytes() == expected.items.tobytes()
    assert found.scores.tobytes() == expected.scores.tobytes()


@pytest.fixture(scope="module")
def parts() -> tuple[Any, ...]:
    rng = np.random.default_rng(5)
    U, V = rng.normal(size=(300, 10)).astype(np.float32), rng.normal(size=(1500, 10)).astype(np.float32)
    seen = sparse.csr_array((rng.random((300, 1500)) < 0.05).astype(np.float32))
    return U, V, rng.normal(size=1500).astype(np.float32), seen, rng.random(1500) < 0.5


@pytest.mark.parametrize("k", [7, 200])
def test_a_list_has_the_bits_of_the_scores(parts: tuple[Any, ...], k: int) -> None:
    U, V, bias, seen, allowed = parts
    ranker = FactorRanker(V, bias)
    users = np.array([4, 299, 4, 17], dtype=np.int32)
    same = {"seen": seen, "allowed": allowed}
    found = ranker.top_k(U[users], k, rows=users, **same)
    scores = factor_score_block(U[users], V, bias)
    assert found.scores.tobytes() == np.take_along_axis(scores, found.items, axis=1).tobytes()
    one = ranker.top_k(U[17:18], k, rows=users[3:], n_jobs=-1, **same)
    assert_same(one, TopK(found.items[3:], found.scores[3:]))
    assert ranker.scores(U[users]).tobytes() == scores.tobytes()
    pairs = factor_pair_scores(U, V, bias, np.repeat(users, k), found.items.ravel())
    assert pairs.tobytes() == found.scores.tobytes()


def test_without_rows_the_vectors_have_the_rows_in_order(parts: tuple[Any, ...]) -> None:
    U, V, bias, seen, _ = parts
    everybody = np.arange(len(U), dtype=np.int32)
    ranker = FactorRanker(V, bias)
    assert_same(ranker.top_k(U, 5, seen=seen), ranker.top_k(U, 5, rows=everybody, seen=seen, n_jobs=2))


def test_a_call_may_have_a_bias_of_its_own(parts: tuple[Any, ...]) -> None:
    U, V, bias, seen, _ = parts
    boosted = FactorRanker(V, bias).top_k(U, 5, seen=seen, bias=2 * bias)
    assert_same(boosted, FactorRanker(V, 2 * bias).top_k(U, 5, seen=seen))


def test_a_ready_table_is_used_as_it_is(parts: tuple[Any, ...]) -> None:
    U, V, bias, _, _ = parts
    table = FactorRanker(V).by_factor
    ranker = FactorRanker(None, bias, by_factor=table)
    assert ranker.by_factor is table
    assert table.shape == (12, 1500)
    assert_same(ranker.top_k(U, 5), FactorRanker(V, bias).top_k(U, 5))


def test_what_the_kernels_cannot_use_is_refused(parts: tuple[Any, ...]) -> None:
    U, V, bias, seen, _ = parts
    ranker = FactorRanker(V)
    for wrong in (
        lambda: FactorRanker(None),
        lambda: FactorRanker(None, by_factor=V.T.copy()),
        lambda: FactorRanker(V, bias[1:]),
        lambda: ranker.top_k(U, 5, bias=bias[1:]),
        lambda: ranker.top_k(np.ones((1, 13), dtype=np.float32), 5),
        lambda: ranker.scores(U[0]),
        lambda: ranker.top_k(U, 5, seen=seen[:5]),
        lambda: ranker.top_k(U[:1], 5, rows=np.array([-1], dtype=np.int32), seen=seen),
        lambda: ranker.top_k(U[:2], 5, rows=np.array([1], dtype=np.int32), seen=seen),
        lambda: ranker.top_k(U, 5, seen=seen[:, 1:]),
        lambda: ranker.top_k(U, 0),
    ):
        with pytest.raises(ParameterError):
            wrong()


@pytest.mark.parametrize("k", [1, 5, 200])
def test_the_best_of_one_user_are_those_of_all(parts: tuple[Any, ...], k: int) -> None:
    users, items, bias, seen, _ = parts
    ranker = FactorRanker(items, bias)
    for row, (expected, scores) in enumerate(zip(*ranker.top_k(users, k, seen=seen), strict=True)):
        out = seen.indices[seen.indptr[row] : seen.indptr[row + 1]]
        found = ranker.best(users[row][None], k, out)
        assert found[0].tolist() == [item for item in expected.tolist() if item >= 0]
        assert found[1].tobytes() == scores[expected >= 0].tobytes()
