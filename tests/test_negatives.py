"""Negatives are drawn by their law, and are never a training positive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import chisquare

import truelike as tl
from truelike import objectives, randomness
from truelike.errors import DataError, ParameterError
from truelike.negatives import Hard, Negatives, Popularity, Uniform, is_law, parse
from truelike.training.drawing import draw_for, vote_bits
from truelike.training.sampled import SampledEngine
from truelike.training.samples import Recipe
from truelike.training.tables import Tables

LAWS = {"uniform": Uniform(), "popularity^0.5": Popularity(0.5), "popularity": Popularity()}


def drawn(law: Negatives, popularity: Any, voted: Any, n: int, seed: int = 0) -> Any:
    key = np.uint64(randomness.key(seed, "test"))
    entry, n_items = np.array([3], dtype=np.int32), len(popularity)
    mine, indptr = np.asarray(voted, dtype=np.int32), np.array([0, len(voted)], dtype=np.int32)
    log = (np.zeros(4, dtype=np.int32), mine, indptr, vote_bits(indptr, mine, n_items), n_items)
    return draw_for(key, entry, n, *log, *law.tables(popularity))[0]


def p_value(items: Any, law: Any) -> float:
    """Of the counts of the items that can be drawn; the others must not be there at all."""
    counts = np.bincount(items, minlength=len(law))
    assert counts[law == 0].sum() == 0
    return float(chisquare(counts[law > 0], law[law > 0] * len(items)).pvalue)


def engine_of(train: Any, law: Negatives, tables: Tables, n_negatives: int, batch_size: int) -> SampledEngine:
    recipe = Recipe(0.1, 1.0, 0.0, 0.0, "epoch", "all", n_negatives, batch_size, "file", "once")
    return SampledEngine(train, tables, objectives.BPO, law, recipe, seed=4, n_jobs=1)


# --- the law --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("seed", range(3))
def test_draws_follow_the_law(name: str, seed: int) -> None:
    popularity = np.random.default_rng(seed).zipf(1.5, 150).clip(1, 500)
    voted = np.sort(np.random.default_rng(seed + 10).choice(150, 60, replace=False))
    items = drawn(LAWS[name], popularity, voted, 60_000, seed)
    assert p_value(items, LAWS[name].law(popularity, voted)) > 1e-4
    others = [law for other, law in LAWS.items() if other != name]
    for other in others:  # and the test can tell one law from another
        assert p_value(items, other.law(popularity, voted)) < 1e-9


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("left", [[1_999], [0], [7, 1_204], [0, 1_999], [3, 4, 900]])
def test_who_voted_for_nearly_everything_still_gets_the_law(name: str, left: list[int]) -> None:
    popularity = np.arange(2_000) % 17 + 1
    voted = np.setdiff1d(np.arange(2_000), left)
    items = drawn(LAWS[name], popularity, voted, 4_000)
    law = LAWS[name].law(popularity, voted)
    assert set(items) == set(left)
    if len(left) > 1:
        assert p_value(items, law) > 1e-4


def test_an_item_that_nobody_voted_for_is_a_negative_too_but_rarely_under_popularity() -> None:
    popularity = np.array([4, 0, 4, 4])
    assert_allclose(Uniform().law(popularity, np.array([0])), [0, 1 / 3, 1 / 3, 1 / 3])
    rare = Popularity().law(popularity, np.array([0]))
    assert 0 < rare[1] < 1e-9
    assert set(drawn(Popularity(), popularity, [0, 2, 3], 5)) == {1}


@given(st.integers(0, 2**32 - 1), st.integers(2, 600), st.sampled_from(list(LAWS)))
@settings(max_examples=80)
def test_no_draw_is_ever_a_positive(seed: int, n_items: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    voted = np.flatnonzero(rng.random(n_items) < rng.random())
    voted = voted[: n_items - 1]
    items = drawn(LAWS[name], rng.integers(1, 50, n_items), voted, 300, seed)
    assert not np.isin(items, voted).any()
    assert ((items >= 0) & (items < n_items)).all()


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=300), st.sampled_from([0.3, 1.0, 2.0, -1.0]))
def test_the_alias_table_holds_exactly_the_weights(popularity: list[int], alpha: float) -> None:
    law = Popularity(alpha)
    keep, alias, weights = law.tables(np.array(popularity))
    mass = keep.astype(np.float64)
    np.add.at(mass, alias, 1 - keep.astype(np.float64))
    assert_allclose(mass / len(popularity), weights, atol=2e-7 / len(popularity) * max(1, len(popularity) ** 0.5))
    assert_allclose(weights, law.weights(np.array(popularity)))
    assert weights.sum() == pytest.approx(1)
    assert ((keep >= 0) & (keep <= 1)).all()


def test_the_uniform_law_needs_no_table() -> None:
    assert [len(part) for part in Uniform().tables(np.arange(9))] == [0, 0, 0]


# --- as training draws them -----------------------------------------------------------------------


def one_reader(n_items: int, n_voted: int) -> Any:
    """User 0 has many votes, user 1 has one of each of the others' items, so that all items are known."""
    votes = np.zeros((2, n_items), dtype=np.float32)
    votes[0, np.random.default_rng(1).choice(n_items, n_voted, replace=False)] = 1
    votes[1, votes[0] == 0] = 1
    return tl.read(sparse.csr_array(votes))


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize(("n_negatives", "batch_size"), [(50, 5_000), (3, 7), (1, 1)])
@pytest.mark.parametrize(("n_items", "n_voted"), [(900, 400), (900, 880), (900, 20)])
def test_the_training_loops_draw_what_the_samples_tell(
    name: str, n_negatives: int, batch_size: int, n_items: int, n_voted: int
) -> None:
    """A list with a bit for each item and a list with fewer bits are looked up in two ways."""
    train = one_reader(n_items, n_voted)
    engine = engine_of(train, LAWS[name], Tables.zeros(2, n_items, 3, 0), n_negatives, batch_size)
    engine.epoch(2)
    last = (train.n_interactions - 1) // batch_size * batch_size
    entries = np.arange(last, train.n_interactions, dtype=np.int32)
    found = engine._room["sample_item"][: len(entries) * (n_negatives + 1)]
    drawn = engine.samples.drawn(np.uint64(randomness.key(4, "negatives", 2)), entries)
    assert_array_equal(np.sort(found), np.sort([*train.matrix.indices[entries], *drawn.ravel()]))


@pytest.mark.parametrize("candidates", [2, 5, 10])
def test_a_hard_negative_is_the_best_scored_of_n_uniform_draws(candidates: int) -> None:
    """Among m unvoted items the best of n draws is the t-th best with (1 - t/m)^n - (1 - (t + 1)/m)^n."""
    train = one_reader(700, 660)
    scores = np.random.default_rng(2).permutation(700).astype(np.float32)
    tables = Tables.zeros(2, 700, 1, 0)
    tables.user_factors[:], tables.item_factors[:] = 1e-3, 1e-3 * scores[:, None]
    engine = engine_of(train, Hard(candidates), tables, 50, train.n_interactions)
    engine.epoch(0)
    items = (
        engine._room["sample_item"].reshape(-1, 51)[:660, 1:].ravel()
    )  # with 50 negatives a block is a positive
    voted = train.matrix.indices[:660]
    unvoted = np.setdiff1d(np.arange(700), voted)
    best_first = unvoted[np.argsort(-scores[unvoted])]
    share = (1 - np.arange(41) / 40) ** candidates
    law = np.zeros(700)
    law[best_first] = share[:-1] - share[1:]
    frequent = law * len(items) >= 5  # chi-square needs counts: the worst items go into one
    binned = np.append(best_first[frequent[best_first]], -1)
    counts = np.array([np.sum(items == item) for item in binned[:-1]])
    expected = law[binned[:-1]] * len(items)
    rest = np.array([len(items) - counts.sum(), len(items) - expected.sum()])
    assert not np.isin(items, voted).any()
    observed = np.append(counts, rest[0]) if rest[1] >= 5 else counts * expected.sum() / counts.sum()
    wanted = np.append(expected, rest[1]) if rest[1] >= 5 else expected
    assert chisquare(observed, wanted).pvalue > 1e-4


def test_a_user_who_voted_for_everything_is_an_error_that_names_them() -> None:
    rows = [("glutton", item) for item in "abcd"] + [("ann", "a"), ("bob", "b"), ("bob", "d")]
    for model in (tl.BPR(), tl.NBPO(negatives="popularity"), tl.BPO(negatives="hard")):
        with pytest.raises(DataError, match=r"'glutton' voted for all 4 items.*[Ll]eave them out"):
            model.fit(tl.read(rows))


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("uniform", Negatives()),
        ("popularity", Negatives(alpha=1.0)),
        ("popularity^0.75", Negatives(alpha=0.75)),
        ("hard", Negatives(candidates=5)),
        ("hard:12", Negatives(candidates=12)),
        (Popularity(0.5), Negatives(alpha=0.5)),
    ],
)
def test_a_law_goes_by_its_name_or_itself(name: Any, law: Negatives) -> None:
    assert parse(name) == law
    assert is_law(name)


@pytest.mark.parametrize(
    "wrong",
    ["", "Uniform", "popular", "popularity0.5", "popularity^x", "popularity^nan", "popularity^inf",
     "hard:0", "hard:-2", "hard:1.5", "hardly", 5, 0.5, ["uniform"]],
)  # fmt: skip
def test_what_is_no_law_is_an_error_that_lists_the_laws(wrong: Any) -> None:
    with pytest.raises(ParameterError, match=r'negatives is .*"uniform", "popularity".*"hard:N"'):
        parse(wrong)
    assert not is_law(wrong)
    with pytest.raises(ParameterError, match="negatives"):
        tl.BPR(negatives=wrong)


@pytest.mark.parametrize("wrong", [{"alpha": float("nan")}, {"alpha": float("inf")}, {"candidates": 0}])
def test_a_law_without_sense_cannot_be_made(wrong: Any) -> None:
    with pytest.raises(ParameterError, match="alpha must be finite, and candidates at least 1"):
        Negatives(**wrong)
