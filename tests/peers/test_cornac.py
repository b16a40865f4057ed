"""What the suite of cornac checks, on truelike.

Ranking metrics of one list by hand; splits by ratio, by size, with validation, in folds, and with ids that
training does not know; the threshold of ratings; models that are trained, saved, loaded and asked for unknown
users.

Where truelike differs, and why:

- `MRR` and `MAP` of cornac have no cutoff: they are ours at k = the number of items. MRR is an error without a
  hit.
- `rating_threshold` makes a held-out row relevant or not, and training rows below it stay candidates. Here
  `min_rating` drops rows when they are read, with the same candidates; but cornac's models train on the rows below
  the threshold, too.
- Items of the validation part are left out on test. `tl.evaluate(model, split)` does the same.
- Shares are rounded up there, and to the nearest number here.
- Equal scores: the higher row number is first there; the more popular item here.
- `EASE(lamb, posB=True)`: cornac's default sets negative weights to 0, and multiplies by ratings. `posB=False` on
  ratings of 1 is ours: test_cross_checks.py.
- BPR of cornac draws negatives uniformly and adds item biases; its WBPR draws by popularity: `tl.BPR`, `tl.WBPR`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import truelike as tl
from truelike.errors import DataWarning

L = 1 / np.log2(3)  # what a hit at the second place gains
# list, relevant, k: ndcg, mrr, precision, recall, f1
HAND = {
    "one item": ([0], [0], 1, (1, 1, 1, 1, 1)),
    "all three": ([0, 2, 1], [0, 2], 3, (1, 1, 2 / 3, 1, 4 / 5)),
    "from the second on": (
        [1, 2, 0],
        [0, 2],
        3,
        ((L + 1 / 2) / (1 + L), 1 / 2, 2 / 3, 1, 4 / 5),
    ),
    "the second of two": ([1, 2, 0], [2], 2, (L, 1 / 2, 1 / 2, 1, 2 / 3)),
    "none of two": ([1, 2, 0], [0], 2, (0, 0, 0, 0, 0)),
    "one of many": ([4, 5], [5, 6, 7, 8], 2, (L / (1 + L), 1 / 2, 1 / 2, 1 / 4, 1 / 3)),
}


@pytest.mark.parametrize("case", HAND)
def test_metrics_by_hand(case: str, measure: Any) -> None:
    listed, relevant, k, expected = HAND[case]
    ours = measure([listed], [relevant], k)
    assert_allclose([ours[f"{name}@{k}"][0] for name in ("ndcg", "mrr", "precision", "recall", "f1")], expected)


@pytest.mark.slow  # imports cornac
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("k", [1, 3, 6])
def test_its_evaluation_is_ours_with_validation_items_left_out(k: int, ranked: Any) -> None:
    base, metrics = pytest.importorskip("cornac.eval_methods.base_method"), pytest.importorskip("cornac.metrics")
    from cornac.data import Dataset
    from cornac.models import Recommender

    rng = np.random.default_rng(k)
    which = rng.choice(4, size=(60, 20), p=[0.5, 0.3, 0.08, 0.12])  # nothing, train, validation, test
    which[np.arange(20), np.arange(20)] = 1  # every user and every item has a training row
    which[np.arange(60), rng.integers(20, size=60)] = 1
    which[np.arange(20), np.arange(20)] = 1
    scores = rng.random((60, 20))
    parts = [sparse.csr_array((which == part).astype(np.float32)) for part in (1, 2, 3)]
    split = tl.Split(*map(tl.read, parts))
    measured = tl.evaluate(ranked(split.train, scores), split, ks=(k, 20), notes=False)
    maps = ({user: user for user in range(60)}, {item: item for item in range(20)})
    sets = [
        Dataset.build([(*pair, 1.0) for pair in np.argwhere(which == part)], "UIR", *maps) for part in (1, 2, 3)
    ]

    class Peer(Recommender):
        num_items = total_items = 20

        def __init__(self) -> None:
            pass

        def score(self, user_idx: int, item_idx: Any = None) -> Any:
            return scores[user_idx]

    wanted = {
        metrics.NDCG(k): f"ndcg@{k}", metrics.Recall(k): f"recall@{k}", metrics.Precision(k): f"precision@{k}",
        metrics.FMeasure(k): f"f1@{k}", metrics.HitRatio(k): f"hit_rate@{k}",
        metrics.MRR(): "mrr@20", metrics.MAP(): "map@20",
    }  # fmt: skip
    for metric, measure in wanted.items():
        (mean,), _ = base.ranking_eval(Peer(), [metric], sets[0], sets[2], sets[1])
        assert mean == pytest.approx(measured[measure], abs=1e-9), measure


def test_rows_below_a_rating_are_neither_relevant_nor_left_out() -> None:
    rows = [(1, 1, 5), (1, 2, 2), (2, 1, 4), (2, 2, 5), (2, 3, 5), (3, 3, 4), (3, 2, 1)]
    data = tl.read(rows, min_rating=4)
    assert data.n_interactions == 5
    model = tl.ItemPop().fit(data)
    assert set(model.recommend(1, k=5)["item_id"]) == {2, 3}
    assert model.recommend(3, k=5)["item_id"].to_list() == [1, 2]


@pytest.mark.parametrize(("validation", "test"), [(0.0, 0.2), (0.1, 0.2), (0.25, 0.25), (0.0, 0.5)])
def test_sizes_of_a_split_by_ratio(validation: float, test: float, log: Any) -> None:
    data = tl.read(log)
    split = tl.splits.random(data, validation=validation, test=test, seed=1)
    lost, n = split.info["dropped"], data.n_interactions
    assert split.validation.n_interactions + lost["validation_rows"] == round(validation * n)
    assert split.test.n_interactions + lost["test_rows"] == round(test * n)
    assert split.train.n_interactions == n - round(validation * n) - round(test * n)
    for part in (split.validation, split.test):  # no user and no item that training does not know
        assert part.users is split.train.users
        assert part.items is split.train.items


def test_rows_that_training_does_not_know_are_left_out() -> None:
    train = tl.read([("ann", "tea"), ("ann", "rum"), ("bob", "tea"), ("bob", "gin")])
    test = tl.read([("ann", "gin"), ("ann", "new"), ("new", "tea"), ("bob", "rum")])
    with pytest.warns(DataWarning, match="2 of 4 test rows"):
        measured = tl.evaluate(tl.ItemPop().fit(train), test, ks=1)
    assert sorted(measured.users) == ["ann", "bob"]
    assert measured["recall@1"] == 1.0
