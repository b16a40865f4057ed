import tracemalloc
from itertools import islice, pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike import synthetic
from truelike.errors import ParameterError

SMALL = tl.synthetic.World(n_users=300, n_items=80, impressions_per_user=60, seed=4)
EVERYONE = np.repeat(np.arange(300, dtype=np.int32), 80)
EVERYTHING = np.tile(np.arange(80, dtype=np.int32), 300)


def test_a_world_is_always_the_same() -> None:
    again = tl.synthetic.World(n_users=300, n_items=80, impressions_per_user=60, seed=4).dataset()
    assert again.to_frame().equals(SMALL.dataset().to_frame())
    some = np.random.default_rng(0).permutation(len(EVERYONE))[:500]
    assert np.array_equal(SMALL.likes(EVERYONE[some], EVERYTHING[some]), SMALL.likes(EVERYONE, EVERYTHING)[some])
    other = tl.synthetic.World(n_users=300, n_items=80, impressions_per_user=60, seed=5)
    assert not other.dataset().to_frame().equals(again.to_frame())
    assert (again.n_users, again.n_items) == (300, 80)
    assert again.titles is not None
    assert again.titles.n_unique() == 80


def test_a_pair_is_observed_exactly_if_it_is_liked_and_shown() -> None:
    liked = SMALL.true_likes().matrix.toarray() > 0
    shown = SMALL.impressions().matrix.toarray() > 0
    assert np.array_equal(SMALL.dataset().matrix.toarray() > 0, liked & shown)
    assert np.array_equal(liked.ravel(), SMALL.likes(EVERYONE, EVERYTHING))
    assert (liked & ~shown).any()
    assert (shown & ~liked).any()


def test_the_flip_probability_is_how_often_an_item_was_never_shown() -> None:
    never, variance, expected = np.zeros(80), np.zeros(80), np.zeros(80)
    for seed in range(10):
        world = tl.synthetic.World(n_users=300, n_items=80, impressions_per_user=60, seed=seed)
        flips = world.flip_probability(EVERYONE, EVERYTHING).reshape(300, 80)
        order = np.argsort(flips.mean(axis=0))  # items by how visible they are: alike in every world
        never += (world.impressions().matrix.toarray() == 0).sum(axis=0)[order]
        expected += flips.sum(axis=0)[order]
        variance += (flips * (1 - flips)).sum(axis=0)[order]
    # users are independent, so each count is a sum of independent draws: normal, with this variance;
    # of 80 such scores the largest is below 4.5 but for one seed in two thousand
    scores = (never - expected) / np.sqrt(variance)
    assert np.abs(scores).max() < 4.5
    assert 0.6 < scores.std() < 1.4
    # impressions of one item displace those of others, so counts of one user are negatively correlated and
    # their sum varies less than that of independent counts
    assert abs((never - expected).sum()) < 4 * np.sqrt(variance.sum())


@pytest.mark.parametrize("rate", [0.01, 0.08, 0.3])
def test_about_the_asked_share_of_pairs_is_liked(rate: float) -> None:
    world = tl.synthetic.World(n_users=1_000, n_items=400, like_rate=rate, seed=2)
    share = world.true_likes().n_interactions / 400_000
    # the offset is fitted on 20,000 pairs, whose probabilities spread by at most sqrt(rate)
    assert share == pytest.approx(rate, abs=5 * np.sqrt(rate / 20_000))


def test_likes_follow_their_probability() -> None:
    probability = SMALL.like_probability(EVERYONE, EVERYTHING)
    liked = SMALL.likes(EVERYONE, EVERYTHING)
    edges = np.quantile(probability, [0, 0.5, 0.8, 0.95, 1])
    for low, high in pairwise(edges):
        inside = (probability >= low) & (probability <= high)
        error = np.sqrt((probability * (1 - probability))[inside].sum()) / inside.sum()
        assert abs(liked[inside].mean() - probability[inside].mean()) < 4.5 * error


def test_blocks_make_up_the_whole_dataset_whatever_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SMALL.dataset().matrix.toarray() > 0
    monkeypatch.setattr(synthetic, "BLOCK", 37)
    streamed = np.zeros((300, 80), dtype=bool)
    last = -1
    for users, items in SMALL.interactions_in_blocks():
        assert users.min() > last
        last = int(users.max())
        assert not streamed[users, items].any()
        streamed[users, items] = True
    assert np.array_equal(streamed, whole)


def test_a_world_too_large_to_hold_is_streamed_in_parts() -> None:
    world = tl.synthetic.World(n_users=200_000, n_items=100_000, impressions_per_user=20)
    tracemalloc.start()
    try:
        blocks = list(islice(world.interactions_in_blocks(), 2))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [len(users) > 0 for users, _ in blocks] == [True, True]
    assert blocks[1][0].min() >= synthetic.BLOCK
    assert peak < 400e6  # all pairs would take 20 GB
    with pytest.raises(ParameterError, match="too large to list"):
        world.true_likes()


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_users": 1},
        {"n_items": 0},
        {"like_rate": 0},
        {"like_rate": 0.9},
        {"taste": -1},
        {"taste": float("nan")},
        {"n_users": "5"},
        {"n_items": 5.5},
        {"taste": None},
        {"seed": None},
        {"seed": "x"},
    ],
)
def test_a_wrong_parameter_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=f"{next(iter(wrong))} is {next(iter(wrong.values()))!r}"):
        tl.synthetic.World(**wrong)


def test_titles_name_the_genre_of_each_item() -> None:
    world = tl.synthetic.World(n_users=50, n_items=40, n_clusters=20)
    items = np.arange(40, dtype=np.int32)
    titles = world.dataset().titles
    assert titles is not None
    assert [title.rsplit(" no. ", 1)[0] for title in titles] == world.genre(items)
    assert len(set(world.tastes(0, n=20))) == 20


def test_labels_are_given_for_lists_of_ids_in_range_only() -> None:
    world = tl.synthetic.World(n_users=50, n_items=40)
    assert world.likes([1, 2], [3, 4]).tolist() == world.likes(np.array([1, 2]), np.array([3, 4])).tolist()
    assert world.flip_probability(1, 3).shape == world.like_probability([1], [3]).shape == (1,)
    for users, items in (([50], [0]), ([0], [-1]), ([0.5], [1]), (["a"], [1])):
        with pytest.raises(ParameterError, match="whole numbers from 0 to"):
            world.likes(users, items)


def test_a_log_of_impressions_has_the_likes_that_were_noticed_at_their_first_notice() -> None:
    data, shown = SMALL.impression_log()
    assert (data.matrix != SMALL.dataset().matrix).nnz == 0
    pairs = shown.group_by("user_id", "item_id").agg(pl.col("time").min(), pl.len())
    counts = SMALL.impressions().to_frame().join(pairs, on=["user_id", "item_id"])
    assert len(counts) == len(pairs)
    assert (counts["weight"] == counts["len"]).all()
    firsts = data.to_frame().join(pairs, on=["user_id", "item_id"])
    assert (firsts["time"] == firsts["time_right"]).all()


def test_likes_that_are_missed_are_hidden_and_good_items_come_first() -> None:
    data, shown = SMALL.impression_log(0.5, examination=[1.0, 0.2])
    assert 0 < data.n_interactions < SMALL.dataset().n_interactions
    assert shown["position"].unique().sort().to_list() == [1, 2]
    quality = SMALL._quality[shown["item_id"].to_numpy()]
    first = shown["position"].to_numpy() == 1
    assert quality[first].mean() > quality[~first].mean() + 0.2
    taken = data.to_frame().join(shown, on=["user_id", "item_id", "time"])
    assert len(taken) == data.n_interactions
    assert (taken["position"] == 1).mean() > 0.75
    assert SMALL.impression_log(1.0)[0].n_interactions == 0


@pytest.mark.parametrize("wrong", [{"miss_rate": 1.5}, {"examination": [0.5, -1]}, {"examination": []}])
def test_miss_rates_of_a_world_are_probabilities(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        SMALL.impression_log(**wrong)


def test_a_recommender_shows_what_is_liked() -> None:
    plain = tl.synthetic.World(n_users=300, n_items=120, impressions_per_user=60, seed=4)
    world = tl.synthetic.World(n_users=300, n_items=120, impressions_per_user=60, exposure_taste=0.8, seed=4)
    everything = [each.ravel() for each in np.indices((300, 120))]
    assert np.array_equal(world.likes(*everything), plain.likes(*everything))
    assert world.dataset().n_interactions > 1.3 * plain.dataset().n_interactions
    expected = (1 - world.flip_probability(*everything)).reshape(300, 120)
    shown = world.impressions().csr.toarray() > 0
    assert expected.sum() == pytest.approx(shown.sum(), rel=0.03)
    likely = expected > np.median(expected)
    assert shown[likely].mean() == pytest.approx(expected[likely].mean(), abs=0.02)
