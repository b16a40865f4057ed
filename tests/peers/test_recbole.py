"""What the suite of RecBole checks, on truelike.

Each metric at each list length from a table of hits; which items a full ranking leaves out in each phase; sampled
negatives for evaluation; splits by ratio, by leave-one-out and in order; filters of users and items with few rows.

Where truelike differs, and why:

- MAP of RecBole is divided by min(k, relevant items); ours by the relevant items. The other five metrics are the
  same.
- Its full ranking on test leaves out training and validation items, as `tl.evaluate(model, split)` does.
  `seen="train"` keeps validation items as candidates.
- `uni100` and `pop100` rank one held-out item among sampled ones: not in truelike, because such figures depend on
  the size of the sample, and may put models in another order (Krichene and Rendle, KDD 2020). Their expectation
  follows from the full rank.
- Its splits by ratio take at least one row of a user with three rows or more; `by_user` rounds.
- Equal scores are in the order of torch.topk there. Here the more popular item is first, then a fixed draw.
- RecBole 1.2.1 uses `np.float` and does not run with NumPy 2, so nothing here imports it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse, stats

import truelike as tl

HITS = np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 1, 1]])
RELEVANT = np.array([2, 6, 2, 1, 3])
D = np.cumsum(1 / np.log2(np.arange(2, 6)))  # of hits at the top
TABLE = {  # a row a user, a column a list length
    "hit_rate": [[0] * 4, [1] * 4, [0, 1, 1, 1], [1] * 4, [0, 0, 1, 1]],
    "mrr": [[0] * 4, [1] * 4, [0, 1 / 2, 1 / 2, 1 / 2], [1] * 4, [0, 0, 1 / 3, 1 / 3]],
    "recall": [[0] * 4, [1 / 6, 2 / 6, 3 / 6, 4 / 6], [0, 1 / 2, 1 / 2, 1], [1] * 4, [0, 0, 1 / 3, 2 / 3]],
    "precision": [[0] * 4, [1] * 4, [0, 1 / 2, 1 / 3, 1 / 2], [1, 1 / 2, 1 / 3, 1 / 4], [0, 0, 1 / 3, 1 / 2]],
    "ndcg": [
        [0] * 4,
        [1] * 4,
        [0, *[(D[1] - D[0]) / D[1]] * 2, (D[1] - D[0] + D[3] - D[2]) / D[1]],
        [1] * 4,
        [0, 0, (D[2] - D[1]) / D[2], (D[3] - D[1]) / D[2]],
    ],
    "map": [
        [0] * 4,
        [1 / 6, 2 / 6, 3 / 6, 4 / 6],
        [0, 1 / 4, 1 / 4, 1 / 2],
        [1] * 4,
        [0, 0, 1 / 9, (1 / 3 + 1 / 2) / 3],
    ],
}
ITS_MAP = [[0] * 4, [1] * 4, [0, 1 / 4, 1 / 4, 1 / 2], [1] * 4, [0, 0, 1 / 9, (1 / 3 + 1 / 2) / 3]]


@pytest.mark.parametrize("metric", TABLE)
def test_each_metric_at_each_length(metric: str, measure: Any) -> None:
    lists = [[0, 1, 2, 3]] * 5
    relevant = [
        [*np.flatnonzero(hits), *range(4, 4 + n - hits.sum())] for hits, n in zip(HITS, RELEVANT, strict=True)
    ]
    ours = measure(lists, relevant, (1, 2, 3, 4))
    found = np.stack([ours[f"{metric}@{k}"] for k in (1, 2, 3, 4)], axis=1)
    assert_allclose(found, TABLE[metric], atol=1e-12)
    found = np.stack([ours[f"capped_map@{k}"] for k in (1, 2, 3, 4)], axis=1)
    assert_allclose(found, ITS_MAP, atol=1e-12)


def small_split(seed: int) -> tuple[tl.Split, Any, Any]:
    """A split of 40 users and 15 items, the part of each pair (train 1, validation 2, test 3), and scores with ties."""
    rng = np.random.default_rng(seed)
    part = rng.choice(4, size=(40, 15), p=[0.4, 0.3, 0.15, 0.15])
    part[rng.integers(40, size=15), np.arange(15)] = 1
    part[np.arange(40), rng.integers(15, size=40)] = 1
    part[np.arange(15), np.arange(15)] = 1
    parts = [tl.read(sparse.csr_array((part == number).astype(np.float32))) for number in (1, 2, 3)]
    return tl.Split(*parts), part, rng.integers(0, 5, size=(40, 15))


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize(("phase", "masked"), [("validation", (1,)), ("test", (1, 2)), ("test, seen=train", (1,))])
def test_a_full_ranking_leaves_out_what_the_user_had_before_the_phase(
    phase: str, masked: tuple[int, ...], seed: int, ranked: Any
) -> None:
    """Against a sort in Python: by score, then popularity, then the place among equals."""
    split, part, scores = small_split(seed)
    model = ranked(split.train, scores)
    ties, wanted = model.scorer.ties, 2 if phase == "validation" else 3
    options: dict[str, Any] = {"seen": "train"} if "=" in phase else {}
    given_part = split.validation if phase == "validation" else split
    measured = tl.evaluate(model, given_part, ks=(3, 15), metrics=("ndcg", "recall"), notes=False, **options)
    expected, popularity = {}, (part == 1).sum(axis=0)
    assert (np.diff(popularity[np.argsort(ties)]) <= 0).all()
    for user in range(40):
        liked = np.flatnonzero(part[user] == wanted)
        free = [item for item in range(15) if part[user, item] not in masked]
        best = sorted(free, key=lambda item: (-scores[user, item], ties[item]))
        if len(liked):
            expected[user] = len(set(best[:3]) & set(liked)) / len(liked)
    assert list(measured.users) == list(expected)
    assert_allclose(measured.values["recall@3"], list(expected.values()))
    assert (measured.values["recall@15"] == 1).all()


def test_the_expectation_of_a_sampled_hit_rate_follows_from_the_full_rank() -> None:
    """One relevant item with b of n others before it, and m others drawn: P(hit@k) = P(hypergeometric < k)."""
    rng = np.random.default_rng(0)
    n, b, m, k = 500, 30, 100, 10
    drawn = np.array([(rng.permutation(n)[:m] < b).sum() < k for _ in range(4_000)])
    expected = stats.hypergeom(n, b, m).cdf(k - 1)
    assert drawn.mean() == pytest.approx(expected, abs=4 * drawn.std() / np.sqrt(len(drawn)))
    assert expected > 0.9
    assert b >= k
