"""Who is judged, on what, and how the result is shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import truelike as tl
from truelike.errors import DataError, DataWarning, NotFittedError, ParameterError
from truelike.evaluation.evaluate import ALL, LIST_METRICS
from truelike.evaluation.significance import bootstrap_interval

TRAIN = [("ann", "tea"), ("bob", "tea"), ("bob", "milk"), ("eve", "rum"), ("eve", "tea"), ("joe", "gin")]
AUTHORS = "amazon-electronics-14core"


@pytest.fixture(scope="module")
def split() -> Any:
    return tl.split.by_user(tl.synthetic.World(n_users=300, n_items=120, seed=2).log(), seed=0)


@pytest.fixture(scope="module")
def result(split: Any) -> Any:
    return tl.evaluate(tl.ItemKNN().fit(split.train), split.test, ks=(5, 10))


@pytest.fixture
def pop() -> Any:
    return tl.ItemPop().fit(tl.read(TRAIN))


def test_users_without_a_test_item_are_left_out(pop: Any) -> None:
    result = tl.evaluate(pop, tl.read([("ann", "milk"), ("eve", "gin")]), ks=(2,))
    assert result.users.to_list() == ["ann", "eve"]
    assert len(result.values["f1@2"]) == 2


def test_unknown_users_and_items_are_left_out_with_a_warning(pop: Any) -> None:
    test = tl.read([("ann", "milk"), ("ann", "water"), ("stranger", "tea")])
    with pytest.warns(DataWarning, match="2 of 3 test rows"):
        result = tl.evaluate(pop, test, ks=(2,))
    assert result.users.to_list() == ["ann"]
    assert result.values["hit_rate@2"].tolist() == [1.0]
    with pytest.warns(DataWarning):
        assert tl.evaluate(pop, test, ks=(4,))["recall@4"] == 1.0


def test_known_ids_give_no_warning(pop: Any) -> None:
    assert tl.evaluate(pop, tl.read([("ann", "milk"), ("eve", "gin")]), ks=(4,))["recall@4"] == 1.0


def test_what_was_seen_in_training_is_not_relevant(pop: Any) -> None:
    alone = tl.evaluate(pop, tl.read([("bob", "rum"), ("eve", "gin")]), ks=(3,))
    again = tl.evaluate(
        pop,
        tl.read([("bob", "rum"), ("bob", "tea"), ("bob", "milk"), ("eve", "gin"), ("ann", "tea")]),
        ks=(3,),
    )
    assert again.users.to_list() == alone.users.to_list()
    assert again.means() == alone.means()
    assert again["recall@3"] == 1.0


def test_a_training_vote_of_weight_0_is_seen_like_any_other() -> None:
    log = tl.read([(0, 0), (0, 1), (1, 0), (1, 2)])
    log.matrix.data[1] = 0.0
    model = tl.ItemPop().fit(log)
    result = tl.evaluate(model, tl.read([(0, 1), (0, 2), (1, 1)]), ks=(3,))
    assert result.values["recall@3"].tolist() == [1.0, 1.0]


def test_the_order_of_the_test_rows_does_not_matter(split: Any, result: Any) -> None:
    rows = split.test.to_frame().sample(fraction=1.0, shuffle=True, seed=1)
    shuffled = tl.evaluate(tl.ItemKNN().fit(split.train), tl.read(rows), ks=(5, 10))
    assert shuffled.means() == result.means()
    assert shuffled.users.to_list() == result.users.to_list()


def test_the_number_of_threads_never_shows(split: Any, result: Any) -> None:
    model = tl.ItemKNN().fit(split.train)
    for n_jobs in (1, 2, 3):
        again = tl.evaluate(model, split.test, ks=(5, 10), n_jobs=n_jobs)
        assert again.totals == result.totals
        for name, values in result.values.items():
            assert_array_equal(again.values[name], values)


def test_a_shorter_list_is_the_head_of_a_longer_one(split: Any, result: Any) -> None:
    short = tl.evaluate(tl.ItemKNN().fit(split.train), split.test, ks=(5,))
    assert {name: result[name] for name in short.means()} == short.means()


def test_means_are_over_users_and_all_measures_are_there(result: Any) -> None:
    means = result.means()
    assert set(means) == {f"{metric}@{k}" for metric in ALL for k in (5, 10)}
    assert means["ndcg@10"] == result["ndcg@10"] == result.values["ndcg@10"].mean()
    assert means["coverage@5"] == result.totals["coverage@5"]


def test_a_measure_that_was_not_taken_is_an_error_that_lists_those_that_were(result: Any) -> None:
    with pytest.raises(KeyError, match=r"ndcg@7.*was not measured.*ndcg@10"):
        result["ndcg@7"]


def test_the_frame_of_users_has_a_row_a_user_and_a_column_a_measure(result: Any) -> None:
    frame = result.per_user()
    assert frame.columns == ["user_id", *result.values]
    assert frame["user_id"].to_list() == result.users.to_list()
    assert_array_equal(frame["f1@5"].to_numpy(), result.values["f1@5"])


def test_the_summary_has_a_row_a_measure_with_an_interval_around_the_mean(result: Any) -> None:
    frame = result.summary()
    assert frame.columns == ["model", "metric", "k", "value", "low", "high"]
    assert frame["model"].unique().to_list() == ["ItemKNN"]
    assert len(frame) == len(ALL) * 2
    judged = frame.filter(~pl.col("metric").is_in(["coverage"]))
    assert (judged["low"] <= judged["value"]).all()
    assert (judged["value"] <= judged["high"]).all()
    row = frame.row(by_predicate=(pl.col("metric") == "ndcg") & (pl.col("k") == 10), named=True)
    assert row["value"] == result["ndcg@10"]
    assert row["low"] < row["value"] < row["high"]


def test_coverage_is_of_all_lists_together_and_has_no_interval(split: Any) -> None:
    result = tl.evaluate(tl.ItemPop().fit(split.train), split.test, ks=(5,), metrics=["coverage"])
    (row,) = result.summary().rows(named=True)
    assert row["value"] == result["coverage@5"]
    assert (row["low"], row["high"]) == (None, None)


def test_more_confidence_gives_a_wider_interval_and_the_same_seed_the_same_one(result: Any) -> None:
    def width(**keywords: Any) -> float:
        row = result.summary(**keywords).row(0, named=True)
        return float(row["high"] - row["low"])

    assert width(confidence=0.5) < width(confidence=0.95) < width(confidence=0.999)
    assert width(seed=1) == width(seed=1) != width(seed=2)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    draws = rng.exponential(size=(200, 300))
    low, high = bootstrap_interval(draws, confidence=0.9, resamples=400)
    assert 0.85 < ((low < 1.0) & (high > 1.0)).mean() < 0.95


def test_the_interval_is_that_of_scipys_bootstrap() -> None:
    from scipy import stats

    values = np.random.default_rng(1).gamma(2.0, size=400)
    low, high = bootstrap_interval(values[:, None], resamples=4_000)
    expected = stats.bootstrap((values,), np.mean, n_resamples=4_000, method="percentile", rng=0)
    assert_allclose([low[0], high[0]], expected.confidence_interval, atol=0.01)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (pd.DataFrame(TRAIN, columns=["user", "item"]), pd.DataFrame),
        (pl.DataFrame(TRAIN, schema=["user", "item"], orient="row"), pl.DataFrame),
        (pa.table({"user": [u for u, _ in TRAIN], "item": [i for _, i in TRAIN]}), pa.Table),
        (TRAIN, pl.DataFrame),
    ],
)
def test_frames_come_back_in_the_library_of_the_training_rows(rows: Any, kind: type) -> None:
    model = tl.ItemPop().fit(tl.read(rows))
    result = tl.evaluate(model, tl.read([("ann", "milk"), ("eve", "gin")]), ks=(2,))
    assert isinstance(result.per_user(), kind)
    assert isinstance(result.summary(), kind)


def test_only_the_metrics_asked_for_are_measured(split: Any) -> None:
    model = tl.ItemPop().fit(split.train)
    one = tl.evaluate(model, split.test, ks=(5,), metrics="f1")
    some = tl.evaluate(model, split.test, ks=(5,), metrics=["f1", "novelty"])
    assert list(one.means()) == ["f1@5"]
    assert list(some.means()) == ["f1@5", "novelty@5"]
    assert not set(one.means()) & {f"{name}@5" for name in LIST_METRICS}


@pytest.mark.parametrize("ks", [(), (0,), (5, -1), (2.5,), ("5",), (True,), (float("nan"),), "ab"])
def test_wrong_list_lengths_are_an_error(pop: Any, ks: Any) -> None:
    with pytest.raises(ParameterError, match=r"ks is .*whole numbers from 1 up"):
        tl.evaluate(pop, tl.read(TRAIN), ks=ks)


@pytest.mark.parametrize("ks", [[10, 5, 5], np.array([5, 10]), (np.int32(5), 10)])
def test_list_lengths_come_in_any_order_and_kind(split: Any, ks: Any) -> None:
    result = tl.evaluate(tl.ItemPop().fit(split.train), split.test, ks=ks, metrics=["f1"])
    assert list(result.values) == ["f1@5", "f1@10"]


def test_one_list_length_needs_no_list(split: Any) -> None:
    result = tl.evaluate(tl.ItemPop().fit(split.train), split.test, ks=5, metrics=["f1"])
    assert list(result.values) == ["f1@5"]


@pytest.mark.parametrize("metrics", [["f1", "accuracy"], [], "auc"])
def test_wrong_metrics_are_an_error_that_lists_the_right_ones(pop: Any, metrics: Any) -> None:
    with pytest.raises(ParameterError, match=r"metrics is .*one or more of f1, precision"):
        tl.evaluate(pop, tl.read(TRAIN), metrics=metrics)


def test_a_test_set_without_a_relevant_item_is_an_error(pop: Any) -> None:
    with pytest.raises(DataError, match="no user of the test set"):
        tl.evaluate(pop, tl.read(TRAIN))
    with pytest.warns(DataWarning), pytest.raises(DataError, match="no user of the test set"):
        tl.evaluate(pop, tl.read([("x", "y"), ("z", "w")]))


def test_rows_that_are_not_read_yet_are_an_error_that_says_how(pop: Any) -> None:
    with pytest.raises(DataError, match=r"DataFrame.*tl\.read"):
        tl.evaluate(pop, pl.DataFrame({"user": ["ann"], "item": ["milk"]}))


def test_an_unfitted_model_cannot_be_judged() -> None:
    with pytest.raises(NotFittedError):
        tl.evaluate(tl.ItemPop(), tl.read(TRAIN))


def test_the_short_form_shows_dots_only_where_something_is_left_out(result: Any, pop: Any) -> None:
    assert repr(result).startswith("Evaluation(ItemKNN, ")
    assert repr(result).endswith("...)")
    one = tl.evaluate(pop, tl.read([("ann", "milk"), ("eve", "gin")]), ks=(4,), metrics=["recall"])
    assert repr(one) == "Evaluation(ItemPop, 2 users: recall@4 1.0000)"


def test_item_popularity_on_the_authors_split_gives_the_known_figures() -> None:
    cached = tl.datasets.cache_directory() / AUTHORS / "train_data.json"
    if not cached.is_file():
        pytest.skip(
            f"{AUTHORS} is not in the cache: run ../shared/bin/fetch-data or truelike data fetch {AUTHORS}"
        )
    split = tl.datasets.load(AUTHORS)
    result = tl.evaluate(tl.ItemPop().fit(split.train), split.validation, metrics=["f1", "ndcg"])
    f1 = [result[f"f1@{k}"] for k in (2, 5, 10, 20)]
    ndcg = [result[f"ndcg@{k}"] for k in (2, 5, 10, 20)]
    assert_allclose(f1, [0.01667, 0.02114, 0.02433, 0.02071], rtol=0, atol=5e-6)
    assert_allclose(ndcg, [0.02182, 0.02732, 0.03915, 0.04882], rtol=0, atol=5e-6)


def test_a_model_may_be_given_a_name(split: Any) -> None:
    result = tl.evaluate(tl.ItemPop().fit(split.train), split.test, ks=5, name="most voted")
    assert result.model == "most voted"
    assert set(result.summary()["model"]) == {"most voted"}


def test_a_measure_that_was_not_taken_is_a_parameter_error_too(result: Any) -> None:
    with pytest.raises(ParameterError, match=r"^'nope' was not measured"):
        result["nope"]


def test_what_is_no_model_or_no_test_set_is_an_error_that_says_what_to_give(split: Any, pop: Any) -> None:
    wrong: Any = "model"
    with pytest.raises(ParameterError, match="takes a fitted model, not str"):
        tl.evaluate(wrong, split.test)
    with pytest.raises(DataError, match=r"not Split: say split\.test"):
        tl.evaluate(pop, split)
    with pytest.raises(DataError, match=r"not Split: say split\.train"):
        pop.fit(split)
    with pytest.raises(ParameterError, match="metrics is 5"):
        tl.evaluate(pop, split.test, metrics=5)  # type: ignore[arg-type]
