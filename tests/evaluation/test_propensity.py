"""Metrics weighted by inverse propensities: the estimates, their intervals, and what is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose

import truelike as tl
from truelike.core import randomness
from truelike.errors import DataError, DataWarning, ParameterError, UnknownMeasureError
from truelike.evaluation.propensity import ratio_interval


@pytest.fixture(scope="module")
def split() -> Any:
    return tl.splits.by_user(tl.synthetic.World(n_users=900, n_items=120, seed=2).dataset(), seed=0)


@pytest.fixture(scope="module")
def model(split: Any) -> Any:
    return tl.ItemKNN().fit(split.train)


def frame_of(data: Any, value: Any) -> pl.DataFrame:
    return data.to_frame().select("user_id", "item_id", pl.lit(value).alias("propensity"))


def varied(data: Any) -> pl.DataFrame:
    noise = randomness.uniform(7, np.arange(data.n_interactions))
    return data.to_frame().select("user_id", "item_id", pl.Series("propensity", 0.1 + 0.9 * noise))


# --- the estimate -----------------------------------------------------------------------------------------------


def test_estimates_are_weighted_means_of_the_gains_of_all_interactions(split: Any, model: Any) -> None:
    propensity = varied(split.test)
    found = tl.evaluate(model, split.test, propensity=propensity, ks=(5, 20)).propensity
    lists = model.recommend(split.train.users[:], k=20)
    joined = propensity.join(lists.select("user_id", "item_id", "rank"), on=["user_id", "item_id"], how="left")
    weight, rank = 1 / joined["propensity"].to_numpy(), joined["rank"].fill_null(10**9).to_numpy()
    assert_allclose(found["recall@5"], weight[rank <= 5].sum() / weight.sum())
    assert_allclose(found["mrr@20"], (weight / rank * (rank <= 20)).sum() / weight.sum())
    assert_allclose(found["ndcg@20"], (weight / np.log2(rank + 1.0) * (rank <= 20)).sum() / weight.sum())
    assert_allclose(found.unweighted["recall@5"], (rank <= 5).mean())
    assert_allclose(found.effective_sample_size, weight.sum() ** 2 / (weight**2).sum())
    assert found.n_interactions == split.test.n_interactions
    assert found.n_left_out == found.n_clipped == 0


def test_with_one_interaction_a_user_and_equal_weights_the_metrics_are_the_usual_ones(model: Any) -> None:
    train = model.train_
    unseen = [(u, next(i for i in range(0, 120, 7) if i not in set(train.seen(u)))) for u in train.users[:200]]
    result = tl.evaluate(model, tl.read(unseen), propensity=0.3)
    for measure in result.propensity.gains:
        assert_allclose(result.propensity[measure], result[measure])


def test_a_common_factor_of_all_propensities_cancels(split: Any, model: Any) -> None:
    given = varied(split.test)
    a, b = (
        tl.evaluate(model, split.test, propensity=each, ks=20).propensity
        for each in (given, given.with_columns(pl.col("propensity") / 10))
    )
    for measure in a.gains:
        assert_allclose(a[measure], b[measure])
        assert_allclose(a.interval(measure), b.interval(measure))


def test_the_forms_of_propensities_agree(split: Any, model: Any, tmp_path: Path) -> None:
    test = split.test
    popularity = split.train.popularity()
    values = (popularity / popularity.max()) ** 0.5
    of_items = pl.DataFrame({"item_id": list(split.train.items), "propensity": values}).filter(
        pl.col("propensity") > 0
    )
    of_pairs = test.to_frame().select("user_id", "item_id").join(of_items, on="item_id")
    of_pairs.write_csv(tmp_path / "pairs.csv")
    of_items.rename({"item_id": "Product ID"}).write_csv(tmp_path / "items.csv")
    as_dataset = tl.read(of_pairs, weight="propensity")
    expected = tl.evaluate(model, test, propensity="popularity^0.5", ks=5).propensity
    assert expected.evidence == "assumed: popularity^0.5"
    for given, evidence in (
        (of_items, "given by item"),
        (of_pairs, "given by pair"),
        (of_pairs.to_pandas(), "given by pair"),
        (of_pairs.to_arrow(), "given by pair"),
        (of_pairs.rows(), "given by pair"),
        (pl.concat([of_pairs, of_pairs]), "given by pair"),
        (tmp_path / "pairs.csv", "given by pair"),
        (str(tmp_path / "items.csv"), "given by item"),
        (as_dataset, "given by pair"),
    ):
        found = tl.evaluate(model, test, propensity=given, ks=5).propensity
        assert found.evidence == evidence
        for measure in expected.gains:
            assert_allclose(found[measure], expected[measure], rtol=1e-6)


def test_neither_threads_nor_chunks_change_the_estimates(
    split: Any, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = tl.evaluate(model, split.test, propensity=varied(split.test)).propensity
    monkeypatch.setattr("truelike.evaluation.measure.USERS_AT_ONCE", 17)
    found = tl.evaluate(model, split.test, propensity=varied(split.test), n_jobs=1).propensity
    for measure, gains in expected.gains.items():
        assert_allclose(found.gains[measure], gains, rtol=0)


def test_clipping_raises_small_propensities_and_counts_them(split: Any, model: Any) -> None:
    given = varied(split.test)
    clipped = tl.evaluate(model, split.test, propensity=given, propensity_clip=0.5).propensity
    by_hand = given.with_columns(pl.col("propensity").clip(lower_bound=0.5))
    expected = tl.evaluate(model, split.test, propensity=by_hand).propensity
    assert_allclose(clipped["ndcg@20"], expected["ndcg@20"])
    assert clipped.n_clipped == (given["propensity"] < 0.5).sum()
    assert clipped.smallest == 0.5
    assert "propensities clipped to 0.5" in repr(clipped)


# --- the interval -----------------------------------------------------------------------------------------------


def test_the_interval_is_that_of_the_mean_where_all_weights_are_equal() -> None:
    from scipy import stats

    values = randomness.uniform(3, np.arange(500))
    low, high = ratio_interval(values, np.ones(500), 500)
    t = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert_allclose((low, high), (t.low, t.high), rtol=2e-3)


def test_without_any_hit_the_interval_is_not_empty() -> None:
    low, high = ratio_interval(np.zeros(30), np.ones(30), 30)
    assert low == 0
    assert_allclose(high, 1 - 0.025 ** (1 / 30))
    assert ratio_interval(np.zeros(1), np.ones(1), 1) == (0, 1)


def test_more_confidence_is_a_wider_interval(split: Any, model: Any) -> None:
    found = tl.evaluate(model, split.test, propensity=0.5).propensity
    (a, b), (c, d) = (found.interval("ndcg@20", confidence=each) for each in (0.8, 0.99))
    assert c < a < found["ndcg@20"] < b < d
    with pytest.raises(ParameterError, match="confidence is 2"):
        found.interval("ndcg@20", confidence=2)


def test_intervals_cover_the_truth_of_a_world_and_those_without_weights_do_not() -> None:
    n_users, n_items, repetitions = 5_000, 200, 60
    world = tl.synthetic.World(
        n_users=n_users, n_items=n_items, impressions_per_user=60, exposure_skew=1.2, seed=5
    )
    likes, impressions = world.true_likes(), world.impressions()
    pair = likes.user_of_entry.astype(np.int64) * n_items + likes.matrix.indices
    shown = np.isin(pair, impressions.user_of_entry.astype(np.int64) * n_items + impressions.matrix.indices)
    held_out = randomness.uniform(11, pair) < 0.3
    model = tl.IALS(factors=8).fit(likes.select(~held_out & shown), progress=False)
    likes, pair = likes.select(held_out), pair[held_out]
    users, items = likes.user_of_entry, likes.matrix.indices
    propensity = 1 - world.flip_probability(users, items)
    options: dict[str, Any] = {"ks": (5, 20), "metrics": ["ndcg", "recall", "mrr"], "n_jobs": 1}
    truth = tl.evaluate(model, likes, propensity=1.0, **options).propensity
    covered, plain = dict.fromkeys(truth.gains, 0), dict.fromkeys(truth.gains, 0)
    for repetition in range(repetitions):
        mine = randomness.uniform(randomness.key(repetition, "users"), np.arange(n_users)) < 0.2
        drawn = randomness.uniform(randomness.key(repetition, "shown"), pair) < propensity
        mask = drawn & mine[users]
        frame = pl.DataFrame({"user_id": users[mask], "item_id": items[mask], "propensity": propensity[mask]})
        some = likes.select(mask)
        found = tl.evaluate(model, some, propensity=frame, **options).propensity
        unweighted = tl.evaluate(model, some, propensity=1.0, **options).propensity
        for measure, of_all in ((measure, truth[measure]) for measure in truth.gains):
            low, high = found.interval(measure)
            covered[measure] += low <= of_all <= high
            low, high = unweighted.interval(measure)
            plain[measure] += low <= of_all <= high
    # a binomial of 60 trials at .95 is 52 to 60 with probability .996
    assert all(52 <= n <= 60 for n in covered.values()), covered
    assert all(n <= 5 for n in plain.values()), plain


# --- what is shown ----------------------------------------------------------------------------------------------


def test_the_estimates_are_a_frame_and_are_shown(split: Any, model: Any) -> None:
    result = tl.evaluate(
        model, split.test, propensity=varied(split.test), ks=(5, 20), metrics=["ndcg", "coverage"]
    )
    found = result.propensity
    table = found.estimates()
    assert table["metric"].to_list() == ["ndcg", "ndcg"]
    assert table["k"].to_list() == [5, 20]
    assert (table["low"] < table["value"]).all()
    assert (table["value"] < table["high"]).all()
    assert "given by pair, effective sample size" in repr(found)
    assert repr(found) in repr(result)
    assert "ndcg@20" in found._repr_html_()
    assert found._repr_html_() in result._repr_html_()
    with pytest.raises(UnknownMeasureError, match=r"'recall@5' was not estimated; available: ndcg@5"):
        found["recall@5"]
    of_pandas = tl.ItemPop().fit(split.train.with_parts(library="pandas"))
    frame = tl.evaluate(of_pandas, split.test, propensity=0.5).propensity.estimates()
    assert isinstance(frame, pd.DataFrame)


# --- errors and warnings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0.0, -0.1, 1.5])
def test_propensities_outside_0_to_1_are_an_error_with_a_count_and_an_example(
    split: Any, model: Any, wrong: float
) -> None:
    given = frame_of(split.test, 0.5)
    bad = given.with_columns(pl.when(pl.int_range(pl.len()) < 3).then(wrong).otherwise(0.5).alias("propensity"))
    user, item = given.row(0)[:2]
    n = split.test.n_interactions
    words = (
        rf"^3 of {n:,} propensities are outside \(0, 1\], such as {wrong:g} of user {user}, item {item}\. A prop"
    )
    with pytest.raises(DataError, match=words):
        tl.evaluate(model, split.test, propensity=bad)
    with pytest.raises(DataError, match=r"outside \(0, 1\], such as"):
        tl.evaluate(model, split.test, propensity=wrong)
    items = pl.DataFrame({"item_id": [3, 5], "propensity": [0.2, wrong]})
    with pytest.raises(DataError, match=r"^1 of 2 propensities are outside \(0, 1\], such as .* of item 5"):
        tl.evaluate(model, split.test, propensity=items)


def test_a_propensity_that_is_no_number_is_an_error_that_names_the_row(
    split: Any, model: Any, tmp_path: Path
) -> None:
    (tmp_path / "p.csv").write_text("user_id,item_id,propensity\n0,1,0.5\n0,2,high\n0,3,\n")
    with pytest.raises(DataError, match=r"2 rows are bad: lines 3, 4 have no usable propensity"):
        tl.evaluate(model, split.test, propensity=tmp_path / "p.csv")


def test_held_out_interactions_without_a_propensity_are_counted_or_an_error(split: Any, model: Any) -> None:
    given = varied(split.test)
    with pytest.warns(
        DataWarning, match=r"^7 of .* held-out interactions have no propensity, such as user 2, item"
    ):
        found = tl.evaluate(model, split.test, propensity=given[7:]).propensity
    assert found.n_left_out == 7
    assert "7 interactions without a propensity left out" in repr(found)
    others = pl.DataFrame({"user_id": [0], "item_id": [int(split.train.seen(0)[0])], "propensity": [0.5]})
    n = split.test.n_interactions
    with pytest.raises(DataError, match=rf"^{n:,} of {n:,} held-out interactions have no propensity"):
        tl.evaluate(model, split.test, propensity=others)


def test_a_pair_with_two_propensities_is_an_error(split: Any, model: Any) -> None:
    given = frame_of(split.test, 0.5)
    twice = pl.concat([given, given[:2].with_columns(pl.lit(0.25).alias("propensity"))])
    user, item = given.row(0)[:2]
    words = rf"^2 rows give a pair another propensity .* user {user}, item {item}: 0.5 and 0.25"
    with pytest.raises(DataError, match=words):
        tl.evaluate(model, split.test, propensity=twice)


def test_unknown_ids_are_counted_in_a_warning_or_an_error(split: Any, model: Any) -> None:
    given = varied(split.test)
    more = pl.DataFrame({"user_id": [0, 10**6], "item_id": [10**6, 0], "propensity": [0.5, 0.5]})
    with pytest.warns(
        DataWarning, match=r"^2 of .* propensities are of a user or an item that the model does not"
    ):
        found = tl.evaluate(model, split.test, propensity=pl.concat([given, more])).propensity
    assert found.n_interactions == split.test.n_interactions
    with pytest.raises(DataError, match="none of the 2 propensities is of a user or an item that the model knows"):
        tl.evaluate(model, split.test, propensity=more)


def test_few_effective_interactions_are_a_warning(split: Any, model: Any) -> None:
    given = varied(split.test).with_columns(
        pl.when(pl.int_range(pl.len()) == 0).then(1e-4).otherwise(pl.col("propensity")).alias("propensity")
    )
    with pytest.warns(DataWarning, match=r"effective sample size .* is 1 of .* with propensities down to 0.0001"):
        tl.evaluate(model, split.test, propensity=given)


def test_wrong_arguments(split: Any, model: Any, tmp_path: Path) -> None:
    test = split.test
    with pytest.raises(DataError, match="no column 'propensity'; the table has 'user_id', 'item_id', 'weight'"):
        tl.evaluate(model, test, propensity=test.to_frame())
    with pytest.raises(DataError, match="cannot read rows from Blocks"):
        tl.evaluate(model, test, propensity=tl.blocks.build(test, tmp_path / "b"))
    with pytest.raises(ParameterError, match="propensity_clip is given without propensity"):
        tl.evaluate(model, test, propensity_clip=0.1)
    for clip in (0, -1, 2, "x"):
        with pytest.raises(ParameterError, match="propensity_clip is"):
            tl.evaluate(model, test, propensity=0.5, propensity_clip=clip)
    with pytest.raises(ParameterError, match=r"test is None: leave propensity out"):
        tl.evaluate(model, truth=test, propensity=0.5)
    with pytest.raises(ParameterError, match="of which no one depends on the held-out interactions"):
        tl.evaluate(model, test, propensity=0.5, metrics="coverage")
    with pytest.raises(ParameterError, match="expected a power such as"):
        tl.evaluate(model, test, propensity="popularity^1.2.3")
