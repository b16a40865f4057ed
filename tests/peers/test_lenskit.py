"""What the suite of LensKit checks, on truelike.

Lists of each metric by hand (empty lists, no relevant item, more relevant items than places), ALS for users who
are known and for the same history of a new user, item neighbourhoods (bounded and not, scores as sums of
similarities), popularity, and splits by users and by time.

Where truelike differs, and why:

- NDCG: LensKit's default discount is max(1, log2 rank), so ranks 1 and 2 count the same, as in the first paper on
  NDCG. `LogRankWeight(offset=1)` is log2(rank + 1), which is ours, and that of the other peers here.
- Recall is divided by min(k, relevant items), precision and average precision by the length of the list that was
  returned. Ours are divided by the relevant items and by k, so that a short list is no advantage.
- A metric of a user without relevant items is NaN there. Here such users are left out.
- A score of an unknown user or item is NaN there and an error here.
- `ImplicitMFScorer(weight=w, regularization=l)` is `IALS(unobserved_weight=1 / w, regularization=l / (1 + w),
  frequency_power=0)`, up to a common factor of all scores: test_cross_checks.py.
- `ItemKNNScorer` adds up only the 20 largest similarities of an item (`max_nbrs`); ours adds up all that were
  kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose

import truelike as tl
from truelike.errors import UnknownIdError

WHOLE = list(range(100))
# list, relevant items, k; our recall, precision, ndcg, mrr; LensKit's recall, precision, ndcg
HAND = {
    "all": ([1, 3], [1, 3], 2, (1, 1, 1, 1), (1, 1, 1)),
    "a short list": ([1], [1, 3], 2, (1 / 2, 1 / 2, 0.6131472, 1), (1 / 2, 1, 1 / 2)),
    "more places": ([1, 2, 3, 4], [1, 3, 5], 4, (2 / 3, 1 / 2, 0.7039181, 1), (2 / 3, 1 / 2, 0.6199062)),
    "no hit": ([1, 2, 3, 4], [5, 6, 7], 4, (0, 0, 0, 0), (0, 0, 0)),
    "the last": ([1, 2, 3, 4], [4, 5, 6, 7, 8], 4, (1 / 5, 1 / 4, 0.1681280, 1 / 4), (1 / 4, 1 / 4, 0.1596970)),
    "the second": ([1, 2, 3], [2], 3, (1, 1 / 3, 0.6309298, 1 / 2), (1, 1 / 3, 1)),
    "beyond k": ([1, 2, 3], [3], 2, (0, 0, 0, 0), (0, 0, 0)),
    "many relevant": ([1, 0, 150, 3, 10], WHOLE, 5, (0.04, 0.8, 0.8304199, 1), (0.8, 0.8, 0.8228758)),
    "a long list": ([1, 0, 150, 3, 10, 30, 4], WHOLE, 5, (0.04, 0.8, 0.8304199, 1), (0.8, 0.8, 0.8228758)),
    "half a list": ([1, 0, 150, 3, 10], WHOLE, 10, (0.04, 0.4, 0.5388857, 1), (0.4, 0.8, 0.5577466)),
}


@pytest.mark.parametrize("case", HAND)
def test_metrics_by_hand(case: str, measure: Any) -> None:
    listed, relevant, k, expected, theirs = HAND[case]
    ours = measure([listed], [relevant], k, n_items=200)
    found = [ours[f"{metric}@{k}"][0] for metric in ("recall", "precision", "ndcg", "mrr")]
    assert_allclose(found, expected, atol=5e-5)
    assert ours[f"hit_rate@{k}"][0] == (expected[0] > 0)
    found = [ours[f"{metric}@{k}"][0] for metric in ("capped_recall", "clipped_ndcg")]
    assert_allclose(found, [theirs[0], theirs[2]], atol=5e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", HAND)
def test_metrics_of_lenskit_by_hand(case: str) -> None:
    metrics = pytest.importorskip("lenskit.metrics")
    data = pytest.importorskip("lenskit.data")
    listed, relevant, k, _, expected = HAND[case]
    lists = data.ItemList(listed, ordered=True), data.ItemList(relevant)
    found = [each(n=k).measure_list(*lists) for each in (metrics.Recall, metrics.Precision, metrics.NDCG)]
    assert_allclose(found, expected, atol=5e-5)


@pytest.mark.parametrize("k", [1, 3, 5, 8])
def test_its_metrics_follow_from_ours(k: int, measure: Any, trials: Any) -> None:
    lists, relevant, _ = trials
    ours, length = measure(lists, relevant, (k, 12)), np.array([min(k, len(each)) for each in lists])
    expected = {
        "Hit": ours[f"hit_rate@{k}"],
        "RecipRank": ours[f"mrr@{k}"],
        "Recall": ours[f"capped_recall@{k}"],
        "Precision": ours[f"precision@{k}"] * k / length,
        "AveragePrecision": ours[f"capped_map@{k}"]
        * ours[f"possible@{k}"]
        / np.minimum(ours["possible@12"], length),
    }
    assert (k == 1) == np.allclose(ours[f"clipped_ndcg@{k}"], ours[f"ndcg@{k}"])
    pairs = list(zip(lists, relevant, strict=True))
    metrics, data = pytest.importorskip("lenskit.metrics.ranking"), pytest.importorskip("lenskit.data")

    def theirs(metric: Any) -> list[float]:
        return [metric.measure_list(data.ItemList(one, ordered=True), data.ItemList(two)) for one, two in pairs]

    for name, values in expected.items():
        assert_allclose(theirs(getattr(metrics, name)(n=k)), values, atol=1e-9, err_msg=name)
    assert_allclose(theirs(metrics.NDCG(n=k)), ours[f"clipped_ndcg@{k}"], atol=1e-9)
    assert_allclose(
        theirs(metrics.NDCG(n=k, weight=metrics.LogRankWeight(offset=1))), ours[f"ndcg@{k}"], atol=1e-9
    )


def test_users_without_a_relevant_item_are_left_out(measure: Any) -> None:
    ours = measure([[1, 2], [1, 2], [3]], [[1], [], [4]], 2)
    assert ours["recall@2"].tolist() == [1.0, 0.0]


def test_a_new_user_with_the_history_of_a_known_one_gets_the_same_scores(log: Any, tmp_path: Path) -> None:
    model = tl.IALS(factors=5, cg_steps=8, epochs=25).fit(tl.read(log))
    for user in (0, 20, 149):
        known = model.recommend(user, k=20)
        new = model.recommend_from_items(log[[user]].indices.tolist(), k=20)
        assert_allclose(new["score"].to_numpy(), known["score"].to_numpy(), atol=0.01)
        assert len(set(new["item_id"]) & set(known["item_id"])) >= 19
    with pytest.raises(UnknownIdError):
        model.score(999, 3)
    with pytest.raises(UnknownIdError):
        model.score(0, [3, 999])
    model.save(tmp_path / "model")
    loaded = tl.load(tmp_path / "model")
    assert (loaded.user_factors_ == model.user_factors_).all()
    assert (loaded.item_factors_ == model.item_factors_).all()


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_a_split_at_a_time_leaks_nothing(share: float) -> None:
    rng = np.random.default_rng(4)
    rows = pl.DataFrame(
        {
            "user": rng.integers(0, 40, 2000),
            "item": rng.integers(0, 30, 2000),
            "time": rng.integers(0, 10**6, 2000),
        }
    )
    data = tl.read(rows, time="time")
    split = tl.splits.temporal(data, validation=share, test=share)
    last = [part.times.max() for part in (split.train, split.validation)]
    assert last[0] < split.validation.times.min()
    assert last[1] < split.test.times.min()
    sizes = [part.n_interactions / data.n_interactions for part in (split.validation, split.test)]
    assert_allclose(sizes, share, atol=0.01)
    per_user = tl.splits.by_user(data, validation=0, test=share, by="time")
    train, test = per_user.train.to_frame(), per_user.test.to_frame()
    both = train.group_by("user_id").agg(pl.max("time")).join(test, on="user_id", suffix="_of_test")
    assert (both["time"] <= both["time_of_test"]).all()
    held = data.interactions_per_user() * share
    found = per_user.test.interactions_per_user()
    assert (np.abs(found - held) <= 1).all()
