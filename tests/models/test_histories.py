"""A history gets the list that a user of the training data with this history has, weights and times included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import truelike as tl
from truelike.engines.weights import TrainedCounts, interaction_weights
from truelike.errors import DataError, ParameterError, UnknownIdError

N_USERS, N_ITEMS, START = 150, 80, 1_600_000_000
COUNTS = {"weighting": "linear", "recency": "user", "half_life": 0.3}
# models whose row of a trained user is the solution for the history, and so the row that fold-in finds
CLOSED = {
    "IALS, linear": tl.IALS(factors=8, solver="cholesky", epochs=4, relaxation=1, weighting="linear"),
    "IALS, user": tl.IALS(factors=8, solver="cholesky", epochs=4, relaxation=1, recency="user", half_life=0.2),
    "IALS, global": tl.IALS(factors=8, solver="cholesky", epochs=4, relaxation=1, recency="global", half_life=0.2),
    "EASE": tl.EASE(weighting="linear"),
    "EASE with neighbors": tl.EASE(weighting="log", neighbors=20),
    "EDLAE": tl.EDLAE(weighting="linear"),
    "ItemKNN": tl.ItemKNN(weighting="linear", neighbors=30),
    "Blend": tl.Blend(first="EASE:weighting=linear", second="ItemKNN:weighting=log"),
    "Blend with a part that counts all the same": tl.Blend(first="EASE:weighting=linear", second="ItemKNN"),
}


@pytest.fixture(scope="module")
def data() -> tl.Dataset:
    """Users of three tastes; weights from 1 to 20, most of them small, and times over a year."""
    rng = np.random.default_rng(0)
    taste = np.arange(N_ITEMS)[None, :] % 3 == np.arange(N_USERS)[:, None] % 3
    users, items = np.nonzero(rng.random((N_USERS, N_ITEMS)) < np.where(taste, 0.4, 0.08))
    weights = np.minimum(rng.geometric(0.3, len(users)), 20)
    times = START + rng.integers(0, 365 * 86_400, len(users))
    frame = pl.DataFrame({"user_id": users, "item_id": items, "weight": weights, "time": times})
    return tl.read(frame, weight="weight")


def frame_of(data: tl.Dataset, user: Any) -> pl.DataFrame:
    frame: pl.DataFrame = data.to_frame().filter(pl.col("user_id") == user)
    return frame


def overlap(lists: pl.DataFrame, others: pl.DataFrame, k: int = 10) -> float:
    keys = ["user_id", "item_id"]
    return lists.join(others, on=keys).height / lists.height


# --- the same list ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.filterwarnings("ignore:.*do not count. Pass weighting")
def test_a_folded_in_user_is_the_trained_user(name: str, data: tl.Dataset) -> None:
    model = tl.clone(CLOSED[name]).fit(data, progress=False)
    if isinstance(model, tl.IALS):  # the rows of its last epoch are those for the items before
        alone = model.scorer.history_vectors(model.scorer.counted(data.matrix, data.times))
        model = model.with_learned(data, {**model.learned, "tables_": with_users(model.tables_, alone)})
    trained, folded = model.recommend(k=10), model.recommend_from_items(data, k=10)
    assert overlap(trained, folded) == 1.0
    assert_array_equal(trained["item_id"], folded["item_id"])
    assert_allclose(trained["score"], folded["score"], rtol=1e-5, atol=1e-6)
    plain = model.recommend_from_items({user: data.seen(user) for user in data.users}, k=10)
    assert overlap(trained, plain) < 0.97, "weights and times change lists"


def with_users(tables: Any, users: Any) -> Any:
    from truelike.engines.tables import Tables

    found = Tables(tables.users.copy(), tables.items, tables.factors, tables.flip_factors)
    found.user_factors[:] = users
    return found


@pytest.mark.parametrize("how", [{"weighting": "linear"}, {"recency": "user"}, {"recency": "global"}], ids=str)
@pytest.mark.parametrize("kind", [tl.IALS, tl.ExactBPO, tl.SoftmaxMF])
@pytest.mark.filterwarnings("ignore:.*do not count. Pass weighting")
def test_lists_of_trained_rows_are_as_near_as_without_weights(kind: Any, how: Any, data: tl.Dataset) -> None:
    """These models leave a row near the solution, and item vectors move on: fold-in is as near as without weights."""
    settings = {"factors": 8, "epochs": 30}
    near = {}
    for name, given in (("plain", {}), ("counted", {**how, "half_life": 0.2})):
        model = kind(**settings, **given).fit(data, progress=False)
        near[name] = overlap(model.recommend(k=10), model.recommend_from_items(data, k=10))
    assert near["plain"] > 0.9
    assert near["counted"] > near["plain"] - 0.05


# --- how a history counts ---------------------------------------------------------------------------


@pytest.mark.parametrize("weighting", ["none", "log", "linear"])
@pytest.mark.parametrize("recency", ["none", "user", "global"])
def test_the_histories_of_the_training_data_count_as_in_training(
    weighting: Any, recency: Any, data: tl.Dataset
) -> None:
    expected = interaction_weights(data, weighting, recency, 0.3)
    counts = TrainedCounts(data, weighting, recency, 0.3)
    found = counts.of(data.matrix, data.times).data
    assert_array_equal(found, np.ones(data.n_interactions) if expected is None else expected)
    for user in (0, 7):
        mine = slice(*data.matrix.indptr[user : user + 2])
        assert_array_equal(counts.of(*data.history_of(user)).data, found[mine])


@pytest.mark.parametrize("recency", ["user", "global"])
def test_they_count_so_on_blocks_too(recency: Any, data: tl.Dataset, tmp_path: Path) -> None:
    blocks = tl.blocks.build(data, tmp_path / "blocks", blocks=3, progress=False)
    one, other = (TrainedCounts(train, "log", recency, 0.3) for train in (data, blocks))
    for user in (0, 70, 149):
        history, times = blocks.history_of(user)
        assert_array_equal(history.toarray(), data.history_of(user)[0].toarray())
        assert_allclose(other.of(history, times).data, one.of(*data.history_of(user)).data, rtol=1e-6)


def test_without_times_an_interaction_is_as_recent_as_one_is_on_average(data: tl.Dataset) -> None:
    row, _ = data.history_of(3)
    by_age = TrainedCounts(data, "linear", "user", 0.2).of(row)
    assert_array_equal(by_age.data, TrainedCounts(data, "linear").of(row).data)
    assert_array_equal(TrainedCounts(data, "none", "global", 0.2).of(row).data, 1.0)


def test_what_is_later_than_the_training_data_has_no_age(data: tl.Dataset) -> None:
    counts, row = TrainedCounts(data, "none", "global", 0.2), data.history_of(3)[0]
    last = np.full(row.nnz, data.times.max())  # type: ignore[union-attr]
    assert_array_equal(counts.of(row, last + 10**7).data, counts.of(row, last).data)
    assert_array_equal(counts.of(row, last * 1_000).data, counts.of(row, last).data, "milliseconds")
    assert counts.of(row, last - 10**7).data.max() < counts.of(row, last).data.min()


# --- what a history may be --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(data: tl.Dataset) -> Any:
    return tl.IALS(factors=8, epochs=4, **COUNTS).fit(data, progress=False)


@pytest.mark.parametrize(
    "to", [pl.DataFrame, pl.DataFrame.to_pandas, pl.DataFrame.to_arrow], ids=["polars", "pandas", "arrow"]
)
def test_a_frame_of_one_user_or_of_many_is_as_a_dataset(to: Any, model: Any, data: tl.Dataset) -> None:
    expected = model.recommend_from_items(data, k=5).filter(pl.col("user_id").is_in([4, 9]))
    both = pl.concat([frame_of(data, 9), frame_of(data, 4)]).sample(fraction=1, shuffle=True, seed=0)
    found = pl.DataFrame(model.recommend_from_items(to(both), k=5))
    assert found.equals(expected)
    one = to(frame_of(data, 4).drop("user_id"))
    found = model.recommend_from_items(one, k=5)
    assert type(found) is {pl.DataFrame: pl.DataFrame}.get(to, type(one))
    assert pl.DataFrame(found).equals(expected.filter(pl.col("user_id") == 4).drop("user_id"))


def test_a_list_is_the_frame_of_its_rows(model: Any) -> None:
    listed = model.recommend_from_items([3, 8, 3, 21])
    assert listed.equals(model.recommend_from_items(pl.DataFrame({"item_id": [3, 8, 3, 21]})))
    merged = pl.DataFrame({"item_id": [3, 8, 21], "weight": [2, 1, 1]})
    assert listed.equals(model.recommend_from_items(merged))
    assert not listed.equals(model.recommend_from_items([3, 8, 21]))


def test_unknown_items_of_a_dataset_are_an_error_or_skipped(model: Any, data: tl.Dataset) -> None:
    known = frame_of(data, 4).drop("user_id")
    more = pl.concat([known, known.head(1).with_columns(item_id=pl.lit(999, dtype=pl.Int64))])
    with pytest.raises(UnknownIdError, match="item 999"):
        model.recommend_from_items(more)
    for on_unknown in ("skip", "popular"):
        found = model.recommend_from_items(more, on_unknown=on_unknown)
        assert found.equals(model.recommend_from_items(known))


def test_a_frame_that_cannot_be_read_is_an_error(model: Any) -> None:
    with pytest.raises(DataError, match="no column looks like the item"):
        model.recommend_from_items(pl.DataFrame({"price": [1, 2]}))
    with pytest.raises(DataError, match="weight"):
        model.recommend_from_items(pl.DataFrame({"item_id": [1, 2], "weight": ["1", "much"]}))


# --- explanations, new users ------------------------------------------------------------------------


def test_an_explanation_of_a_history_has_its_weights_and_times(model: Any, data: tl.Dataset) -> None:
    trained = model.explain(4, [1, 30], k=40)
    for history in (frame_of(data, 4), frame_of(data, 4).drop("user_id"), frame_of(data, 4).to_pandas()):
        found = pl.DataFrame(model.explain_from_items(history, [1, 30], k=40))
        assert found.equals(trained)
    plain = model.explain_from_items(data.seen(4), [1, 30], k=40)
    assert not plain["contribution"].equals(trained["contribution"])
    with pytest.raises(ParameterError, match="takes the history of one user; 150 users were given"):
        model.explain_from_items(data, 1)


@pytest.mark.parametrize("name", ["EASE", "Blend", "IALS, linear"])
def test_contributions_add_up_to_the_score(name: str, data: tl.Dataset) -> None:
    model = tl.clone(CLOSED[name]).fit(data, progress=False)
    history = frame_of(data, 4)
    found = model.explain_from_items(history, [1, 30], k=80)
    scores = model.recommend_from_items(history, k=80, exclude_seen=False)
    score = dict(zip(scores["item_id"], scores["score"], strict=True))
    total = found.group_by("item_id", maintain_order=True).agg(pl.col("contribution").sum())["contribution"]
    difference = np.array([score[1], score[30]]) - total
    assert_allclose(difference, difference[0], atol=1e-4)
    if name != "Blend":
        assert_allclose(difference, 0.0, atol=1e-4)


@pytest.mark.parametrize("kind", [tl.BPO, tl.BPR, tl.SoftmaxMF, tl.ExactBPO])
def test_the_interactions_that_are_left_out_count_as_in_the_history(kind: Any, data: tl.Dataset) -> None:
    how = {"factors": 6, "epochs": 3, "weighting": "linear"}
    scorer = kind(**how).fit(data, progress=False).scorer
    history = scorer.counted(*data.history_of(4))
    places, items = np.arange(history.nnz, dtype=np.int32), np.arange(N_ITEMS, dtype=np.int32)
    found = scorer.left_out_scores(history, places, items)
    expected = tl.Scorer.left_out_scores(scorer, history, places, items)
    lost = expected[:1] - expected[1:]
    assert_allclose(found[:1] - found[1:], lost, atol=6e-3 * np.abs(lost).max())


def test_new_users_are_evaluated_with_the_weights_and_times_of_their_histories(data: tl.Dataset) -> None:
    split = tl.splits.new_users(data, validation=0, test=40)
    model = tl.IALS(factors=8, epochs=4, **COUNTS).fit(split.train, progress=False)
    lists = model.recommend_from_items(split.test.history, k=10)
    hits = lists.join(split.test.targets.to_frame(), on=["user_id", "item_id"]).height
    found = tl.evaluate_new_users(model, split, ks=10, metrics="precision")
    assert_allclose(found["precision@10"], hits / 10 / split.test.targets.n_users, rtol=1e-6)
