"""Which users are evaluated, on which items, and how the result is shown."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import truelike as tl
from truelike.errors import DataError, DataWarning, NotFittedError, ParameterError
from truelike.evaluation import measure as module
from truelike.evaluation import pairs
from truelike.evaluation.baseline import popularity_baseline
from truelike.evaluation.result import LIST_METRICS, USUAL_METRICS

TRAIN = [("ann", "tea"), ("bob", "tea"), ("bob", "milk"), ("eve", "rum"), ("eve", "tea"), ("joe", "gin")]
AUTHORS = "amazon-electronics-14core"


@pytest.fixture(scope="module")
def split() -> Any:
    return tl.splits.by_user(tl.synthetic.World(n_users=300, n_items=120, seed=2).dataset(), seed=0)


@pytest.fixture(scope="module")
def result(split: Any) -> Any:
    return tl.evaluate(tl.ItemKNN().fit(split.train), split.test, ks=(5, 10))


@pytest.fixture
def pop() -> Any:
    return tl.ItemPop().fit(tl.read(TRAIN))


def test_unknown_users_and_items_are_left_out_with_a_warning(pop: Any) -> None:
    test = tl.read([("ann", "milk"), ("ann", "water"), ("unknown", "tea")])
    with pytest.warns(DataWarning, match="2 of 3 test rows"):
        result = tl.evaluate(pop, test, ks=(3,))
    assert result.users.to_list() == ["ann"]
    assert result.values["hit_rate@3"].tolist() == [1.0]
    with pytest.warns(DataWarning):
        assert tl.evaluate(pop, test, ks=(4,))["recall@4"] == 1.0


def test_items_seen_in_training_are_not_relevant(pop: Any) -> None:
    alone = tl.evaluate(pop, tl.read([("bob", "rum"), ("eve", "gin")]), ks=(3,))
    again = tl.evaluate(
        pop,
        tl.read([("bob", "rum"), ("bob", "tea"), ("bob", "milk"), ("eve", "gin"), ("ann", "tea")]),
        ks=(3,),
    )
    assert again.users.to_list() == alone.users.to_list()
    assert again.means() == alone.means()
    assert again["recall@3"] == 1.0


def test_the_order_of_the_test_rows_does_not_matter(split: Any, result: Any) -> None:
    rows = split.test.to_frame().sample(fraction=1.0, shuffle=True, seed=1)
    shuffled = tl.evaluate(tl.ItemKNN().fit(split.train), tl.read(rows), ks=(5, 10))
    assert shuffled.means() == result.means()
    assert shuffled.users.to_list() == result.users.to_list()


def test_the_number_of_threads_does_not_change_the_result(split: Any, result: Any) -> None:
    model = tl.ItemKNN().fit(split.train)
    for n_jobs in (1, 2, 3):
        again = tl.evaluate(model, split.test, ks=(5, 10), n_jobs=n_jobs)
        assert again.totals == result.totals
        for name, values in result.values.items():
            assert_array_equal(again.values[name], values)


def test_means_are_over_users_and_contain_all_measures(result: Any) -> None:
    means = result.means()
    assert set(means) == {f"{metric}@{k}" for metric in USUAL_METRICS for k in (5, 10)}
    assert means["ndcg@10"] == result["ndcg@10"] == result.values["ndcg@10"].mean()
    assert means["coverage@5"] == result.totals["coverage@5"]


def test_an_unknown_measure_is_a_key_error_that_lists_the_known_ones(result: Any) -> None:
    with pytest.raises(KeyError, match=r"^'ndcg@7' was not measured; available: ndcg@5, ndcg@10, recall@5"):
        result["ndcg@7"]


def test_per_user_has_one_row_per_user_and_one_column_per_measure(result: Any) -> None:
    frame = result.per_user()
    assert frame.columns == ["user_id", *result.values]
    assert frame["user_id"].to_list() == result.users.to_list()
    assert_array_equal(frame["f1@5"].to_numpy(), result.values["f1@5"])


def test_the_summary_has_one_row_per_metric_and_one_column_per_list_length(result: Any) -> None:
    frame = result.summary()
    assert frame.columns == ["metric", "@5", "@10", "left_out"]
    assert tuple(frame["metric"]) == USUAL_METRICS
    for metric, *values in frame.drop("left_out").iter_rows():
        assert values == [result[f"{metric}@{k}"] for k in (5, 10)]


def test_the_summary_lists_ndcg_first_in_any_order_of_metrics(split: Any, result: Any) -> None:
    assert result.summary()["metric"][0] == "ndcg"
    metrics = ["novelty", "f1", "ndcg", "recall"]
    some = tl.evaluate(tl.ItemPop().fit(split.train), split.test, ks=(20, 5), metrics=metrics)
    assert some.summary()["metric"].to_list() == ["ndcg", "recall", "f1", "novelty"]
    assert repr(some).partition(": ")[2].startswith("ndcg@5 ")
    assert list(some.values) == [
        f"{metric}@{k}" for metric in ("f1", "ndcg", "recall", "novelty") for k in (5, 20)
    ]


def test_measures_without_a_list_length_are_in_a_column_of_their_own() -> None:
    world = tl.synthetic.World(n_users=100, n_items=60)
    result = tl.evaluate(tl.ItemPop().fit(world.dataset()), truth=world.truth(), ks=(5, 10))
    frame = result.summary()
    assert frame.columns == ["metric", "@5", "@10", "value"]
    assert frame["metric"].to_list() == ["truth_auc", "truth_ndcg", "hidden_share"]
    assert frame["value"].to_list() == [result["truth_auc"], None, result["hidden_share"]]
    assert frame["@5"].to_list() == [None, result["truth_ndcg@5"], None]
    assert "value" not in tl.evaluate(tl.ItemPop().fit(world.dataset()), world.true_likes()).summary().columns


def test_a_notebook_shows_a_table_with_intervals(result: Any) -> None:
    html = result._repr_html_()
    assert html.count("<tr>") == 1 + len(USUAL_METRICS)
    assert html.index("ndcg") < html.index("recall")
    row = result.intervals().row(0, named=True)
    assert (row["metric"], row["k"]) == ("ndcg", 5)
    assert f"<td>{row['value']:.4f} ({row['low']:.4f} to {row['high']:.4f})</td>" in html
    assert f"{result['coverage@5']:.4f}</td>" in html, "coverage has no interval"
    named = tl.Evaluation("<b>", result.users, result.values)
    assert "&lt;b&gt;" in named._repr_html_()


def test_intervals_have_one_row_per_measure_with_an_interval_around_the_mean(result: Any) -> None:
    frame = result.intervals()
    assert frame.columns == ["model", "metric", "k", "value", "low", "high", "left_out"]
    assert frame["model"].unique().to_list() == ["ItemKNN"]
    assert len(frame) == len(USUAL_METRICS) * 2
    assert frame["metric"].unique(maintain_order=True).to_list() == list(USUAL_METRICS)
    with_interval = frame.filter(~pl.col("metric").is_in(["coverage"]))
    assert (with_interval["low"] <= with_interval["value"]).all()
    assert (with_interval["value"] <= with_interval["high"]).all()
    assert frame.filter(metric="coverage").select("low", "high").rows() == [(None, None)] * 2
    row = frame.row(by_predicate=(pl.col("metric") == "ndcg") & (pl.col("k") == 10), named=True)
    assert row["value"] == result["ndcg@10"]
    assert row["low"] < row["value"] < row["high"]


def test_more_confidence_gives_a_wider_interval(result: Any) -> None:
    def width(confidence: float) -> float:
        row = result.intervals(confidence=confidence).row(0, named=True)
        return float(row["high"] - row["low"])

    assert width(0.5) < width(0.95) < width(0.999)


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
    assert isinstance(result.intervals(), kind)


def test_a_split_is_evaluated_on_its_test_part(split: Any, result: Any) -> None:
    model = tl.ItemKNN().fit(split.train)
    assert tl.evaluate(model, split, seen="train", ks=(5, 10)).means() == result.means()


def test_only_the_requested_metrics_are_measured(split: Any) -> None:
    model = tl.ItemPop().fit(split.train)
    one = tl.evaluate(model, split.test, ks=(5,), metrics="f1")
    some = tl.evaluate(model, split.test, ks=(5,), metrics=["f1", "novelty"])
    assert list(one.means()) == ["f1@5"]
    assert list(some.means()) == ["f1@5", "novelty@5"]
    assert not set(one.means()) & {f"{name}@5" for name in LIST_METRICS}


def test_a_metric_of_ones_own_gets_the_hits_and_the_number_of_relevant_items(split: Any) -> None:
    model, given = tl.ItemKNN().fit(split.train), {}

    def my_recall(hits: Any, relevant: Any, k: int) -> Any:
        given[k] = hits.shape, relevant.shape, set(np.unique(hits))
        found = hits.sum(axis=1) / relevant
        hits[:], relevant[:] = -1, -1  # spoils nothing
        return found

    result = tl.evaluate(model, split, ks=(5, 10), metrics=["novelty", my_recall, "recall"])
    n = len(result.users)
    assert given == {k: ((n, k), (n,), {0.0, 1.0}) for k in (5, 10)}
    assert list(result.values) == [
        "my_recall@5",
        "my_recall@10",
        "recall@5",
        "recall@10",
        "novelty@5",
        "novelty@10",
    ]
    for k in (5, 10):
        assert_array_equal(result.values[f"my_recall@{k}"], result.values[f"recall@{k}"])
    assert result.summary()["metric"].to_list() == ["recall", "novelty", "my_recall"]
    popular = tl.evaluate(tl.ItemPop().fit(split.train), split, ks=5, metrics=my_recall)
    assert tl.compare_means([result, popular], "my_recall@5")["difference"][0] > 0
    long = tl.evaluate(model, split, ks=200, metrics=[my_recall])
    assert given[200][0] == (n, 200), "there are only 120 items"
    assert long["my_recall@200"] == 1.0


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda hits: hits, r"an array of float64 of the shape \(2, 3\)"),
        (lambda hits: hits.sum(), r"an array of float64 of the shape \(\)"),
        (lambda hits: ["good"] * len(hits), r"an array of <U4"),
        (lambda hits: hits[:, 0] / 0, r"values that are not finite for k = 3; .* each of the 2 users"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_metric_of_ones_own_must_return_a_finite_number_for_each_user(
    pop: Any, returned: Any, words: str
) -> None:
    def bad(hits: Any, relevant: Any, k: int) -> Any:
        return returned(hits)

    with pytest.raises(ParameterError, match=rf"the metric bad returned {words}"):
        tl.evaluate(pop, tl.read([("ann", "milk"), ("eve", "gin")]), ks=3, metrics=bad)


def test_a_metric_of_ones_own_needs_a_name_of_its_own(pop: Any) -> None:
    def recall(hits: Any, relevant: Any, k: int) -> Any:
        return hits[:, 0]

    def truth_ndcg(hits: Any, relevant: Any, k: int) -> Any:
        return hits[:, 0]

    def hidden_ndcg(hits: Any, relevant: Any, k: int) -> Any:
        return hits[:, 0]

    test = tl.read([("ann", "milk")])
    for metric in (recall, truth_ndcg, hidden_ndcg):
        with pytest.raises(ParameterError, match=f"another metric with the name {metric.__name__}"):
            tl.evaluate(pop, test, metrics=[metric])
    with pytest.raises(ParameterError, match="'<lambda>' is no name"):
        tl.evaluate(pop, test, metrics=[lambda hits, relevant, k: hits[:, 0]])
    with pytest.raises(ParameterError, match="'partial' is no name"):
        tl.evaluate(pop, test, metrics=[partial(recall)])


@pytest.mark.parametrize("ks", [(), (0,), (5, -1), (2.5,), ("5",), (True,), (float("nan"),), "ab"])
def test_wrong_list_lengths_are_an_error(pop: Any, ks: Any) -> None:
    with pytest.raises(ParameterError, match=r"ks is .*must be one or more whole numbers from 1 up"):
        tl.evaluate(pop, tl.read(TRAIN), ks=ks)


@pytest.mark.parametrize("metrics", [["f1", "accuracy"], [], "auc", 5, [["f1"]], [None, "f1"]])
def test_wrong_metrics_are_an_error_that_lists_the_right_ones(pop: Any, metrics: Any) -> None:
    with pytest.raises(ParameterError, match=r"metrics is .*one or more of ndcg, recall"):
        tl.evaluate(pop, tl.read(TRAIN), metrics=metrics)


@pytest.mark.parametrize("ks", [[10, 5, 5], np.array([5, 10]), (np.int32(5), 10)])
def test_list_lengths_may_be_given_in_any_order_and_type(split: Any, ks: Any) -> None:
    result = tl.evaluate(tl.ItemPop().fit(split.train), split.test, ks=ks, metrics=["f1"])
    assert list(result.values) == ["f1@5", "f1@10"]


def test_a_test_set_without_a_relevant_item_is_an_error(pop: Any) -> None:
    with pytest.raises(DataError, match="no user of the held-out part"):
        tl.evaluate(pop, tl.read(TRAIN))
    with pytest.warns(DataWarning), pytest.raises(DataError, match="no user of the held-out part"):
        tl.evaluate(pop, tl.read([("x", "y"), ("z", "w")]))


def test_the_repr_leads_with_ndcg_and_has_dots_only_if_measures_are_left_out(result: Any, pop: Any) -> None:
    users = f"{len(result.users):,} users"
    assert repr(result).startswith(f"Evaluation(ItemKNN, {users}: ndcg@5 {result['ndcg@5']:.4f}, ndcg@10 ")
    assert repr(result).endswith("...; left out: train)")
    one = tl.evaluate(pop, tl.read([("ann", "milk"), ("eve", "gin")]), ks=(4,), metrics=["recall"])
    assert repr(one) == "Evaluation(ItemPop, 2 users: recall@4 1.0000; left out: train)"


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
    assert_allclose(f1, [0.01667, 0.02092, 0.02433, 0.02088], rtol=0, atol=5e-6)
    assert_allclose(ndcg, [0.02182, 0.02717, 0.03903, 0.04891], rtol=0, atol=5e-6)


def test_a_model_may_be_given_a_name(split: Any) -> None:
    result = tl.evaluate(tl.ItemPop().fit(split.train), split.test, ks=5, name="most popular")
    assert result.model == "most popular"
    assert set(result.intervals()["model"]) == {"most popular"}


def test_a_value_that_is_not_a_model_is_an_error_that_says_what_to_give(split: Any, pop: Any) -> None:
    wrong: Any = "model"
    with pytest.raises(ParameterError, match=r"takes a fitted model, not str; .*tl\.load\(directory\)"):
        tl.evaluate(wrong, split.test)
    kind: Any = tl.ItemPop
    with pytest.raises(ParameterError, match=r"not the class ItemPop; .*ItemPop\(\)\.fit\(train\)"):
        tl.evaluate(kind, split.test)
    with pytest.raises(NotFittedError):
        tl.evaluate(tl.ItemPop(), tl.read(TRAIN))
    frame: Any = pl.DataFrame({"user": ["ann"], "item": ["milk"]})
    with pytest.raises(DataError, match=r"DataFrame.*tl\.read"):
        tl.evaluate(pop, frame)


# --- what is left out ------------------------------------------------------------------------------


def independent_ndcg(model: Any, split: Any, left_out: list[Any], k: int) -> dict[Any, float]:
    """NDCG of each user, by loops over all scores: items of the given parts are neither listed nor relevant."""
    train, found = split.train, {}
    for user in range(train.n_users):
        seen = {int(item) for part in left_out for item in part.items_of(user)}
        relevant = {int(item) for item in split.test.items_of(user)} - seen
        if not relevant:
            continue
        scores = model.scorer.score_users(np.array([user], dtype=np.int32))[0]
        order = sorted(set(range(train.n_items)) - seen, key=lambda i: (-scores[i], model.scorer.ties[i]))[:k]
        gains = [1 / np.log2(rank + 2) for rank in range(k)]
        best = sum(gains[: min(k, len(relevant))])
        found[train.users[user]] = sum(g for g, i in zip(gains, order, strict=True) if i in relevant) / best
    return found


@pytest.mark.parametrize("model", [tl.ItemKNN(), tl.IALS(factors=4, epochs=2)], ids=lambda model: model.name)
def test_validation_items_of_a_split_are_neither_listed_nor_relevant(split: Any, model: Any) -> None:
    model = model.fit(split.train)
    train, validation = split.train, split.validation
    protocols: list[tuple[dict[str, Any], list[Any], tuple[str, ...]]] = [
        ({}, [train, validation], ("train", "validation")),
        ({"seen": "validation"}, [train, validation], ("train", "validation")),
        ({"seen": "train"}, [train], ("train",)),
        ({"seen": tl.read(validation.to_frame())}, [train, validation], ("train", "earlier")),
    ]
    means = []
    for given, left_out, name in protocols:
        expected = independent_ndcg(model, split, left_out, 10)
        result = tl.evaluate(model, split, ks=10, metrics="ndcg", **given)
        assert result.users.to_list() == list(expected)
        assert_allclose(result.values["ndcg@10"], list(expected.values()), rtol=0, atol=1e-12)
        assert result.left_out == name
        means.append(result["ndcg@10"])
    assert means[0] == means[1] == means[3] > means[2]


def test_a_dataset_alone_has_no_validation_items_to_leave_out(split: Any, pop: Any) -> None:
    model = tl.ItemPop().fit(split.train)
    assert tl.evaluate(model, split.test, ks=5).left_out == ("train",)
    given = tl.evaluate(model, split.test, seen=split.validation, ks=5)
    assert given.means() == tl.evaluate(model, split, ks=5).means()
    with pytest.raises(ParameterError, match=r"test is a Dataset.*seen=split\.validation"):
        tl.evaluate(model, split.test, seen="validation")
    without = tl.Split(split.train, None, split.test)
    assert tl.evaluate(model, without, ks=5).left_out == ("train",), "there is no validation item"


def test_what_cannot_be_left_out_is_an_error(split: Any, pop: Any) -> None:
    model = tl.ItemPop().fit(split.train)
    wrong: Any = "test"
    with pytest.raises(ParameterError, match=r"seen is 'test'; it must be"):
        tl.evaluate(model, split, seen=wrong)
    frame: Any = split.validation.to_frame()
    with pytest.raises(DataError, match=r"seen takes a Dataset, not DataFrame"):
        tl.evaluate(model, split, seen=frame)
    with pytest.raises(ParameterError, match=r"seen is for the lists of a test set"):
        tl.evaluate(model, truth=tl.Truth(split.test), seen="train")
    with pytest.warns(DataWarning, match="none of the 1 interactions of seen"):
        result = tl.evaluate(pop, tl.read([("ann", "milk")]), seen=tl.read([("x", "y")]), ks=2)
    assert result.left_out == ("train",)


def test_users_whose_test_items_were_all_seen_before_are_left_out(pop: Any) -> None:
    test = tl.read([("ann", "milk"), ("eve", "gin"), ("eve", "milk")])
    result = tl.evaluate(pop, test, seen=tl.read([("ann", "milk"), ("eve", "milk")]), ks=1)
    assert result.users.to_list() == ["eve"]
    assert result["recall@1"] == 1.0
    with pytest.raises(DataError, match="no user of the held-out part"):
        tl.evaluate(pop, tl.read([("ann", "milk")]), seen=tl.read([("ann", "milk")]))


def test_the_result_says_everywhere_what_was_left_out(split: Any) -> None:
    result = tl.evaluate(tl.ItemPop().fit(split.train), split, ks=5, metrics="ndcg")
    assert "; left out: train, validation)" in repr(result)
    assert "Left out of the lists: train, validation" in result._repr_html_()
    for frame in (result.summary(), result.intervals()):
        assert frame["left_out"].to_list() == ["train, validation"]


# --- the popularity baseline ----------------------------------------------------------------------


@pytest.mark.parametrize("measure", ["ndcg@1", "ndcg@20", "f1@2", "recall@10", "map@5", "mrr@7", "hit_rate@500"])
def test_the_popularity_baseline_is_the_value_of_itempop(split: Any, measure: str) -> None:
    metric, _, k = measure.partition("@")
    evaluation = tl.evaluate(tl.ItemPop().fit(split.train), split.validation, ks=int(k), metrics=metric)
    assert popularity_baseline(split.train, split.validation, measure) == pytest.approx(
        evaluation[measure], abs=1e-12
    )


def test_the_popularity_baseline_leaves_out_items_seen_in_training(pop: Any) -> None:
    train = pop.train_
    held_out = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "gin")]).recode(train.users, train.items)[0]
    with_seen = popularity_baseline(train, held_out, "ndcg@2")
    assert with_seen == pytest.approx(tl.evaluate(pop, held_out, ks=2)["ndcg@2"], abs=1e-12)
    nothing_new = tl.read([("ann", "tea"), ("bob", "milk")]).recode(train.users, train.items)[0]
    assert np.isnan(popularity_baseline(train, nothing_new, "ndcg@2"))


@pytest.mark.parametrize("at_once", [1, 7, 64])
@pytest.mark.parametrize("name", ["IALS", "ItemKNN"])
def test_chunks_of_users_do_not_change_a_bit(
    split: Any, monkeypatch: pytest.MonkeyPatch, name: str, at_once: int
) -> None:
    model = {"IALS": tl.IALS(factors=4, epochs=2), "ItemKNN": tl.ItemKNN()}[name].fit(split.train)
    expected = tl.evaluate(model, split.test, ks=(3, 20))
    for place in (module, pairs):
        monkeypatch.setattr(place, "USERS_AT_ONCE", at_once)
    result = tl.evaluate(model, split.test, ks=(3, 20))
    assert result.totals == expected.totals
    assert {name: each.tobytes() for name, each in result.values.items()} == {
        name: each.tobytes() for name, each in expected.values.items()
    }


@pytest.mark.parametrize("n_blocks", [1, 4])
def test_a_block_directory_is_evaluated_block_by_block(
    split: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_blocks: int
) -> None:
    model = tl.ItemKNN().fit(split.train)
    blocks = tl.blocks.build(split.test, tmp_path / "test", blocks=n_blocks, progress=False)
    expected = tl.evaluate(model, split.test)
    if n_blocks > 1:
        monkeypatch.setattr(tl.blocks.Blocks, "to_dataset", None)
    found = tl.evaluate(model, blocks)
    assert found.users.equals(expected.users)
    assert found.totals == expected.totals
    for measure, values in expected.values.items():
        assert_array_equal(found.values[measure], values)


def test_blocks_with_unknown_ids_and_ids_of_another_type(tmp_path: Path) -> None:
    train = [(str(user), item) for user in (5, 10, 9, 100, 7) for item in ("tea", f"own {user}")]
    model = tl.ItemPop().fit(tl.read(train))
    rows = [(user, f"own {other}") for user, other in ((5, 9), (7, 5), (9, 10), (10, 5), (100, 7), (77, 5))]
    test = tl.read([*rows, (5, "water")])
    assert test.users.kind == "int"
    blocks = tl.blocks.build(test, tmp_path / "test", blocks=3, progress=False)
    with pytest.warns(DataWarning, match="2 of 7 test rows"):
        expected = tl.evaluate(model, test, ks=(3,))
    with pytest.warns(DataWarning, match="2 of 7 test rows") as warned:
        found = tl.evaluate(model, blocks, ks=(3,))
    assert len(warned) == 1
    assert found.users.to_list() == expected.users.to_list() == ["10", "100", "5", "7", "9"]
    assert_array_equal(found.values["ndcg@3"], expected.values["ndcg@3"])


def test_a_model_of_blocks_is_evaluated_like_one_of_a_dataset(split: Any, tmp_path: Path) -> None:
    blocks = tl.blocks.build(split.train, tmp_path / "train", blocks=3, progress=False)
    model = tl.IALS(factors=4, epochs=2).fit(blocks, progress=False)
    assert model.train_ is blocks
    expected = tl.evaluate(model.with_learned(split.train, model.learned), split.test, ks=(5,))
    assert tl.evaluate(model, split.test, ks=(5,)).means() == expected.means()
    expected = tl.evaluate(model.with_learned(split.train, model.learned), split, ks=(5,))
    assert tl.evaluate(model, split, ks=(5,)).means() == expected.means()
    assert expected.left_out == ("train", "validation")
