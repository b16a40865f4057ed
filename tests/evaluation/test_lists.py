"""Lists from elsewhere have the metrics that a model with the same lists has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal

import truelike as tl
from truelike.errors import DataError, DataWarning, ParameterError
from truelike.evaluation import measure
from truelike.evaluation.result import LIST_METRICS

TRAIN = [("ann", "tea"), ("bob", "tea"), ("bob", "milk"), ("eve", "rum"), ("eve", "tea"), ("joe", "gin")]
TEST = [("ann", "milk"), ("ann", "gin"), ("eve", "gin")]


@pytest.fixture(scope="module")
def split() -> Any:
    return tl.splits.by_user(tl.synthetic.World(n_users=300, n_items=120, seed=2).dataset(), seed=0)


@pytest.fixture(scope="module")
def model(split: Any) -> Any:
    return tl.ItemKNN().fit(split.train)


@pytest.fixture(scope="module")
def lists(split: Any, model: Any) -> pl.DataFrame:
    """All items that a user has not in training, so that nothing is cut off if more is left out."""
    found: pl.DataFrame = model.recommend(split.train.users, k=120)
    return found


def small() -> Any:
    return tl.Split(tl.read(TRAIN), None, tl.read(TEST))


@pytest.mark.parametrize("seen", ["train", "validation"])
@pytest.mark.parametrize("columns", [("rank",), ("score",), ("score", "rank"), ()])
def test_lists_of_a_model_have_the_metrics_of_the_model(
    split: Any, model: Any, lists: pl.DataFrame, seen: Any, columns: tuple[str, ...]
) -> None:
    expected = tl.evaluate(model, split, seen=seen)
    rows = lists.select("user_id", "item_id", *columns)
    if columns:
        rows = rows.sample(fraction=1.0, shuffle=True, seed=1)
    if seen == "validation":
        with pytest.warns(DataWarning, match=r"interacted with before \(train, validation\); they are removed"):
            result = tl.evaluate_lists(rows, split, seen=seen)
    else:
        result = tl.evaluate_lists(rows, split, seen=seen)
    assert result.left_out == expected.left_out
    assert result.users.to_list() == expected.users.to_list()
    assert result.means() == expected.means()
    assert tl.compare_means([expected, result], "ndcg@20")["difference"].to_list() == [0.0]


@pytest.mark.filterwarnings("ignore:.*they are removed")
def test_chunks_of_users_do_not_change_a_bit(
    split: Any, lists: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = tl.evaluate_lists(lists, split)
    monkeypatch.setattr(measure, "USERS_AT_ONCE", 7)
    found = tl.evaluate_lists(lists, split)
    assert found.totals == expected.totals
    for name, values in expected.values.items():
        assert_array_equal(found.values[name], values)


def test_a_file_and_other_frames_are_read_and_results_come_back_in_the_library(tmp_path: Path) -> None:
    rows = pl.DataFrame({"userId": ["ann", "ann", "eve"], "movieId": ["gin", "rum", "gin"], "Rank": [1, 2, 1]})
    expected = tl.evaluate_lists(rows, small(), ks=2)
    assert expected.values["recall@2"].tolist() == [0.5, 1.0]
    rows.write_csv(tmp_path / "lists.csv")
    for given in (
        tmp_path / "lists.csv",
        rows.to_pandas(),
        [("ann", "gin", 9.5), ("ann", "rum", 1), ("eve", "gin", 0)],
    ):
        assert tl.evaluate_lists(given, small(), ks=2).means() == expected.means()
    assert isinstance(tl.evaluate_lists(rows.to_pandas(), small(), ks=2).per_user(), pd.DataFrame)


def test_users_without_a_list_count_with_zeros() -> None:
    with pytest.warns(DataWarning, match="1 of 2 evaluated users have no list; they count with zeros"):
        result = tl.evaluate_lists([("eve", "gin")], small(), ks=1, metrics=["recall", "ndcg", "novelty"])
    assert result.users.to_list() == ["ann", "eve"]
    assert result.values["recall@1"].tolist() == result.values["ndcg@1"].tolist() == [0.0, 1.0]


def test_an_item_in_a_list_twice_counts_at_its_first_place() -> None:
    rows = [
        ("ann", "milk", 1.0),
        ("ann", "rum", 3.0),
        ("ann", "milk", 2.0),
        ("ann", "gin", 0.5),
        ("eve", "gin", 1.0),
    ]
    with pytest.warns(DataWarning, match="1 of 5 rows of the lists repeat an item"):
        result = tl.evaluate_lists(rows, small(), ks=(2, 3), metrics="recall")
    assert result.values["recall@2"].tolist() == [0.5, 1.0]
    assert result.values["recall@3"].tolist() == [1.0, 1.0]


def test_seen_items_are_counted_and_removed_and_others_move_up() -> None:
    rows = [
        ("ann", "tea", 3.0),
        ("ann", "milk", 2.0),
        ("eve", "rum", 9.0),
        ("eve", "tea", 8.0),
        ("eve", "gin", 7.0),
    ]
    with pytest.warns(DataWarning, match=r"3 of 5 rows .* interacted with before \(train\); they are removed"):
        result = tl.evaluate_lists(rows, small(), ks=1, metrics="mrr")
    assert result.values["mrr@1"].tolist() == [1.0, 1.0]
    without = tl.evaluate_lists(rows, tl.read(TEST), ks=3, metrics="mrr")
    assert without.values["mrr@3"].tolist() == [1 / 2, 1 / 3], "without training data nothing is known to be seen"


def test_unknown_items_keep_their_places_as_misses() -> None:
    rows = [("ann", "water", 2.0), ("ann", "milk", 1.0), ("eve", "gin", 1.0), ("stranger", "gin", 1.0)]
    with pytest.warns(DataWarning, match="1 of 4 rows of the lists have an item that is not in the training data"):
        result = tl.evaluate_lists(rows, small(), ks=2, metrics="mrr")
    assert result.users.to_list() == ["ann", "eve"]
    assert result.values["mrr@2"].tolist() == [0.5, 1.0]


def test_equal_scores_do_not_depend_on_the_order_of_rows_nor_prefer_relevant_items() -> None:
    """Of 200 users, each has one relevant item among 20 with the same score: hits are as frequent as by chance."""
    rng = np.random.default_rng(0)
    rows = [(f"user {n}", f"item {i}", 1.0) for n in range(200) for i in rng.choice(400, 20, replace=False)]
    test = tl.read([rows[20 * n + 7][:2] for n in range(200)])
    first = tl.evaluate_lists(rows, test, ks=5, metrics="recall")
    shuffled = tl.evaluate_lists([rows[n] for n in rng.permutation(len(rows))], test, ks=5, metrics="recall")
    assert first.means() == shuffled.means()
    assert 0.15 < first["recall@5"] < 0.35


def test_equal_scores_are_ordered_as_in_lists_of_models(split: Any) -> None:
    popular = tl.ItemPop().fit(split.train)
    rows = popular.recommend(split.train.users, k=120)
    expected = tl.evaluate(popular, split.test)
    shuffled = rows.drop("rank").sample(fraction=1.0, shuffle=True, seed=3)
    assert tl.evaluate_lists(shuffled, split.test, train=split.train).means() == expected.means()


def test_lists_are_ordered_by_the_score_and_not_by_a_rating_beside_it() -> None:
    rows = [("ann", "gin", 0.2), ("ann", "milk", 0.9), ("eve", "gin", 0.1)]
    for name in ("score", "Prediction", "rating"):
        frame = pl.DataFrame(rows, schema=["user", "item", name], orient="row")
        beside = frame.with_columns(**({} if name == "rating" else {"rating": -pl.col(name)}))
        result = tl.evaluate_lists(beside, tl.read([("ann", "milk"), ("eve", "gin")]), ks=1, metrics="recall")
        assert result["recall@1"] == 1.0
    with pytest.warns(DataWarning, match="no column rank or score, so the rows .* not used are 'est'"):
        tl.evaluate_lists(frame.rename({"rating": "est"}), tl.read(TEST), ks=1)


def test_lists_that_are_all_shorter_than_k_are_a_warning(lists: pl.DataFrame, split: Any) -> None:
    short = lists.filter(pl.col("rank") <= 5)
    with pytest.warns(DataWarning, match="the longest list has 5 items, and metrics at 20 are asked for"):
        result = tl.evaluate_lists(short, split, seen="train")
    assert result["recall@20"] == result["recall@5"]
    assert result["precision@20"] == pytest.approx(result["precision@5"] / 4)


def test_without_training_data_there_are_no_metrics_of_popularity_and_the_catalogue(
    split: Any, lists: Any
) -> None:
    result = tl.evaluate_lists(lists, split.test)
    assert result.left_out == ()
    assert "left out" not in repr(result)
    assert not {name.partition("@")[0] for name in result.means()} & set(LIST_METRICS)
    assert result["ndcg@20"] == tl.evaluate_lists(lists, split.test, train=split.train)["ndcg@20"]
    for metrics in ("coverage", ["ndcg", "coverage"]):
        with pytest.raises(ParameterError, match="coverage depends on the training data"):
            tl.evaluate_lists(lists, split.test, metrics=metrics)


def test_blocks_and_ids_of_another_type(tmp_path: Path) -> None:
    train = tl.read([(str(user), item) for user in (5, 10, 9) for item in ("tea", f"own {user}")])
    test = [("5", "own 9"), ("9", "own 10"), ("10", "own 5")]
    blocks = tl.blocks.build(tl.read(test), tmp_path / "test", blocks=2, progress=False)
    rows = pd.DataFrame({"user": [5, 9, 10], "item": ["own 9", "own 10", "own 9"]})
    for given in (tl.read(test), blocks):
        result = tl.evaluate_lists(rows, given, train=train, ks=1, metrics="recall")
        assert dict(zip(result.users, result.values["recall@1"], strict=True)) == {"5": 1.0, "9": 1.0, "10": 0.0}


@pytest.mark.parametrize(
    ("rows", "given", "error", "words"),
    [
        ([("x", "tea", 1.0)], {}, DataError, r"none of the 1 users of the lists is in the training data.*'x'"),
        ([("ann", "y", 1.0)], {}, DataError, r"none of the 1 items of the lists is in the training data.*'y'"),
        ([("ann", "tea", float("nan"))], {}, DataError, r"no usable score.*\. Fix it\.$"),
        (pl.DataFrame({"user": ["ann"], "item": ["tea"], "rank": [None]}), {}, DataError, "no usable rank"),
        ([("ann", None, 1.0)], {}, DataError, "has no item"),
        ([("ann", "tea", 1.0)], {}, DataError, r"all 1 rows of the lists .* interacted with before \(train\)"),
        (
            pl.DataFrame({"user": ["ann"], "score": [1.0]}),
            {},
            DataError,
            "no column looks like the item: .*item_id",
        ),
        (
            pl.DataFrame({"user": [], "item": []}, schema={"user": pl.String, "item": pl.String}),
            {},
            DataError,
            "empty",
        ),
        ([("ann", "milk", 1.0)], {"train": tl.read(TRAIN)}, ParameterError, "train is given, and test is a split"),
        ([("ann", "milk", 1.0)], {"metrics": "auc"}, ParameterError, "metrics is 'auc'"),
        ([("ann", "milk", 1.0)], {"ks": 0}, ParameterError, "ks is 0"),
        ([("ann", "milk", 1.0)], {"seen": "test"}, ParameterError, "seen is 'test'"),
    ],
)
def test_lists_that_cannot_be_evaluated_are_an_error(rows: Any, given: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        tl.evaluate_lists(rows, small(), **given)


def test_what_is_no_test_set_is_an_error() -> None:
    frame: Any = pl.DataFrame({"user": ["ann"], "item": ["milk"]})
    with pytest.raises(DataError, match=r"evaluate_lists takes a Dataset, not DataFrame"):
        tl.evaluate_lists([("ann", "milk")], frame)
    with pytest.raises(ParameterError, match="seen is given without train"):
        tl.evaluate_lists([("ann", "milk")], tl.read(TEST), seen="train")
