"""Negatives follow their sampling distribution, and are never training positives."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import chisquare

import truelike as tl
from truelike import objectives
from truelike.core import randomness
from truelike.engines.sgd.engine import SampledEngine
from truelike.engines.sgd.negative_sampling import Source, draw_negatives, positive_bits
from truelike.engines.sgd.samples import Samples, SGDSettings
from truelike.engines.tables import Tables
from truelike.errors import DataError, ParameterError
from truelike.negatives import (
    AHNS,
    Hard,
    Negatives,
    Popularity,
    Uniform,
    alias_table,
    check_choice,
    is_distribution,
    parse,
)
from truelike.selection import references
from truelike.selection.trials import Trial

DISTRIBUTIONS = {"uniform": Uniform(), "popularity^0.5": Popularity(0.5), "popularity": Popularity()}


def draw(distribution: Negatives, popularity: Any, positives: Any, n: int, seed: int = 0) -> Any:
    key = np.uint64(randomness.key(seed, "test"))
    entry, n_items = np.array([3], dtype=np.int32), len(popularity)
    items, indptr = np.asarray(positives, dtype=np.int32), np.array([0, len(positives)], dtype=np.int32)
    bits, tables = positive_bits(indptr, items, n_items), distribution.tables(popularity)
    source = Source(np.zeros(4, dtype=np.int32), items, indptr, bits, np.uint64(n_items), *tables)
    return draw_negatives(key, entry, n, source)[0]


def p_value(items: Any, probabilities: Any) -> float:
    """The p-value of the counts of the items. Items of probability 0 must not occur."""
    counts, possible = np.bincount(items, minlength=len(probabilities)), probabilities > 0
    assert counts[~possible].sum() == 0
    return float(chisquare(counts[possible], probabilities[possible] * len(items)).pvalue)


def make_engine(
    train: Any, distribution: Negatives, tables: Tables, n_negatives: int, batch_size: int
) -> SampledEngine:
    settings = SGDSettings(0.1, 1.0, 0.0, 0.0, "epoch", n_negatives, batch_size, "file", "once")
    return SampledEngine(train, tables, objectives.BPO, distribution, settings, seed=4, n_jobs=1)


# --- distributions --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_draws_follow_the_distribution(name: str, seed: int) -> None:
    popularity = np.random.default_rng(seed).zipf(1.5, 150).clip(1, 500)
    positives = np.sort(np.random.default_rng(seed + 10).choice(150, 60, replace=False))
    items = draw(DISTRIBUTIONS[name], popularity, positives, 60_000, seed)
    assert p_value(items, DISTRIBUTIONS[name].probabilities(popularity, positives)) > 1e-4
    others = [distribution for other, distribution in DISTRIBUTIONS.items() if other != name]
    for other in others:  # the test can distinguish the distributions
        assert p_value(items, other.probabilities(popularity, positives)) < 1e-9


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("left", [[1_999], [0], [7, 1_204], [0, 1_999], [3, 4, 900]])
def test_draws_for_a_user_with_nearly_all_items_follow_the_distribution(name: str, left: list[int]) -> None:
    popularity = np.arange(2_000) % 17 + 1
    positives = np.setdiff1d(np.arange(2_000), left)
    items = draw(DISTRIBUTIONS[name], popularity, positives, 4_000)
    assert set(items) == set(left)
    if len(left) > 1:
        assert p_value(items, DISTRIBUTIONS[name].probabilities(popularity, positives)) > 1e-4


def test_an_item_without_interactions_can_be_drawn_but_rarely_under_popularity() -> None:
    popularity = np.array([4, 0, 4, 4])
    assert_allclose(Uniform().probabilities(popularity, np.array([0])), [0, 1 / 3, 1 / 3, 1 / 3])
    rare = Popularity().probabilities(popularity, np.array([0]))
    assert 0 < rare[1] < 1e-9
    assert set(draw(Popularity(), popularity, [0, 2, 3], 5)) == {1}


@given(st.integers(0, 2**32 - 1), st.integers(2, 600), st.sampled_from(list(DISTRIBUTIONS)))
@examples(max_examples=80)
def test_a_draw_is_never_a_positive(seed: int, n_items: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    positives = np.flatnonzero(rng.random(n_items) < rng.random())
    positives = positives[: n_items - 1]
    items = draw(DISTRIBUTIONS[name], rng.integers(1, 50, n_items), positives, 300, seed)
    assert not np.isin(items, positives).any()
    assert ((items >= 0) & (items < n_items)).all()


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=300), st.sampled_from([0.3, 1.0, 2.0, -1.0]))
def test_the_alias_table_represents_the_weights(popularity: list[int], alpha: float) -> None:
    distribution = Popularity(alpha)
    keep, alias, weights = alias_table(distribution.shares(np.array(popularity)))
    mass = keep.astype(np.float64)
    np.add.at(mass, alias, 1 - keep.astype(np.float64))
    assert_allclose(mass / len(popularity), weights, atol=2e-7 / len(popularity) * max(1, len(popularity) ** 0.5))
    assert_allclose(weights, distribution.shares(np.array(popularity)))
    assert weights.sum() == pytest.approx(1)
    assert ((keep >= 0) & (keep <= 1)).all()


# --- draws of the training loops ------------------------------------------------------------------


def two_users(n_items: int, n_positives: int) -> Any:
    """User 0 has n_positives items, and user 1 has all others."""
    observed = np.zeros((2, n_items), dtype=np.float32)
    observed[0, np.random.default_rng(1).choice(n_items, n_positives, replace=False)] = 1
    observed[1, observed[0] == 0] = 1
    return tl.read(sparse.csr_array(observed))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize(("n_negatives", "batch_size"), [(50, 5_000), (3, 7), (1, 1)])
@pytest.mark.parametrize(("n_items", "n_positives"), [(900, 400), (900, 880), (900, 20)])
def test_the_training_loops_draw_the_same_as_samples(
    name: str, n_negatives: int, batch_size: int, n_items: int, n_positives: int
) -> None:
    """Also where the bit table has fewer bits than there are items, and items share a bit."""
    train = two_users(n_items, n_positives)
    engine = make_engine(train, DISTRIBUTIONS[name], Tables.zeros(2, n_items, 3, 0), n_negatives, batch_size)
    engine.epoch(2)
    last = (train.n_interactions - 1) // batch_size * batch_size
    entries = np.arange(last, train.n_interactions, dtype=np.int32)
    found = engine._batch_samples.item[: len(entries) * (n_negatives + 1)]
    expected = engine.samples.draw(np.uint64(randomness.key(4, "negatives", 2)), entries)
    assert_array_equal(np.sort(found), np.sort([*train.matrix.indices[entries], *expected.ravel()]))


@pytest.mark.parametrize("candidates", [2, 5, 10])
def test_a_hard_negative_is_the_best_scored_of_n_uniform_draws(candidates: int) -> None:
    """The best of n draws of m unobserved items is the t-th best with probability (1-t/m)^n - (1-(t+1)/m)^n."""
    train = two_users(700, 660)
    scores = np.random.default_rng(2).permutation(700).astype(np.float32)
    tables = Tables.zeros(2, 700, 1, 0)
    tables.user_factors[:], tables.item_factors[:] = 1e-3, 1e-3 * scores[:, None]
    engine = make_engine(train, Hard(candidates), tables, 50, train.n_interactions)
    engine.epoch(0)
    # with 50 negatives a block of the loops is one positive and its negatives
    items = engine._batch_samples.item.reshape(-1, 51)[:660, 1:].ravel()
    positives = train.matrix.indices[:660]
    unobserved = np.setdiff1d(np.arange(700), positives)
    best_first = unobserved[np.argsort(-scores[unobserved])]
    worse = (1 - np.arange(41) / 40) ** candidates
    assert not np.isin(items, positives).any()
    expected = (worse[:-1] - worse[1:]) * len(items)
    counts = np.bincount(items, minlength=700)[best_first]
    frequent = expected >= 5  # the chi-square test needs counts: the rare items are counted together
    expected, counts = (np.append(each[frequent], each[~frequent].sum()) for each in (expected, counts))
    if expected[-1] < 5:
        expected, counts = expected[:-1], counts[:-1]
    assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-4


def test_a_user_who_interacted_with_every_item_is_an_error_that_names_them() -> None:
    rows = [("glutton", item) for item in "abcd"] + [("ann", "a"), ("bob", "b"), ("bob", "d")]
    for model in (tl.BPR(), tl.NBPO(negatives="popularity"), tl.BPO(negatives="hard")):
        with pytest.raises(DataError, match=r"'glutton' interacted with all 4 items.*Leave such users out"):
            model.fit(tl.read(rows))


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("uniform", Uniform()),
        ("popularity", Popularity(alpha=1.0)),
        ("popularity^0.75", Popularity(alpha=0.75)),
        ("hard", Hard(candidates=5)),
        ("hard:12", Hard(candidates=12)),
        ("ahns", AHNS(16, 1.0, 0.1, -2.0)),
        ("ahns:8:0.5:0.2:-3", AHNS(candidates=8, alpha=0.5, beta=0.2, p=-3.0)),
        (Popularity(0.5), Popularity(alpha=0.5)),
    ],
)
def test_parse_accepts_names_and_distributions(name: Any, distribution: Negatives) -> None:
    assert parse(name) == distribution == parse(distribution.name)
    assert is_distribution(name)


@pytest.mark.parametrize(
    "wrong",
    ["", "Uniform", "popular", "popularity0.5", "popularity^x", "popularity^nan", "popularity^inf",
     "hard:0", "hard:-2", "hard:1.5", "hardly", "ahns:0", "ahns:4:-1",
     "ahns:4:1:1:0", "ahns:4:1:1:-2:9", "all", None, 5, 0.5, ["uniform"]],
)  # fmt: skip
def test_any_other_value_is_an_error_that_lists_the_names(wrong: Any) -> None:
    with pytest.raises(ParameterError, match=r'negatives is .*"uniform", "popularity".*"hard:N"'):
        parse(wrong)
    assert not is_distribution(wrong)
    if wrong is not None:  # the default of a preset
        with pytest.raises(ParameterError, match="negatives"):
            tl.BPR(negatives=wrong)


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (Popularity, float("nan"), "alpha must be finite"),
        (Popularity, float("inf"), "alpha must be finite"),
        (Hard, 0, "candidates must be a whole number, at least 1"),
        (Hard, 2.5, "candidates must be a whole number, at least 1"),
        (AHNS, True, "candidates must be a whole number, at least 1"),
        (partial(AHNS, 4, 1.0), float("nan"), "beta above 0"),
        (partial(AHNS, 4), -0.1, "alpha must be at least 0"),
    ],
)
def test_invalid_parameters_of_a_distribution_are_an_error(kind: Any, wrong: float, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        kind(wrong)


# --- a sampler of one's own -----------------------------------------------------------------------


@dataclass(frozen=True)
class Head(Negatives):
    """Items with at least so many interactions."""

    least: int = 3

    def weights(self, popularity: Any) -> Any:
        return popularity >= self.least


@dataclass(frozen=True)
class Steep(Popularity):
    """A subclass of a sampler that has a name of its own."""


def test_a_sampler_of_ones_own_keeps_its_identity(tmp_path: Path) -> None:
    data = tl.synthetic.World(n_users=60, n_items=40, seed=1).dataset()
    model = tl.BPR(factors=8, epochs=2, negatives=Head(4)).fit(data, progress=False)
    assert Head(4).name == "own: Head(least=4)"
    assert Steep(1.0).name == "own: Steep(alpha=1.0)"
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    assert again.negatives == "own: Head(least=4)"
    assert again.recommend(3).equals(model.recommend(3))
    for learn in (lambda: again.fit(data), lambda: again.recommend_from_items([1, 2])):
        with pytest.raises(ParameterError, match=r"Head\(least=4\) is of a class of your own.*negatives="):
            learn()
    whole = tl.load(tmp_path / "model", negatives=Head(4))
    assert whole.recommend_from_items([1, 2]).equals(model.recommend_from_items([1, 2]))


def test_a_sampler_of_ones_own_draws_by_its_weights() -> None:
    popularity, positives = np.array([9, 1, 4, 3, 0, 5]), np.array([0])
    items = draw(Head(3), popularity, positives, 3_000)
    assert set(items) == {2, 3, 5}
    assert p_value(items, Head(3).probabilities(popularity, positives)) > 1e-4


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1.0, 2.0], "a number for each of the 3 items"),
        ([1.0, -2.0, 3.0], "at least 0"),
        ([1.0, np.nan, 3.0], "finite"),
        ([0, 0, 0], "are 0 for all 3 items"),
    ],
)
def test_wrong_weights_are_an_error_that_shows_them(returned: Any, message: str) -> None:
    class Wrong(Negatives):
        def weights(self, popularity: Any) -> Any:
            return np.array(returned)

    with pytest.raises(ParameterError, match=rf"weights\(popularity\) of .*Wrong\(\).*{message}"):
        Wrong().shares(np.arange(3))


@pytest.mark.parametrize(
    ("weights", "message"),
    [(lambda self: 1, "takes 1 positional argument"), (lambda self, popularity: "many", "'many'")],
)
def test_weights_that_fail_are_an_error_that_says_why(weights: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=rf"weights\(popularity\) of .*Wrong.* fails: .*{message}"):
        type("Wrong", (Negatives,), {"weights": weights})().shares(np.arange(3))


def test_candidates_count_for_the_expected_time_and_not_for_the_memory_of_the_loss() -> None:
    data = tl.synthetic.World(n_users=60, n_items=40, seed=1).dataset()
    for kind in (tl.BPR, partial(tl.SampledListMF, corrected=False)):
        few, many = (kind(negatives=Hard(n)).expected_seconds(data) for n in (1, 1_000))
        assert many > 100 * few
    settings = SGDSettings(0.1, 1.0, 0.0, 0.0, "epoch", 3, 10, "file", "once")
    first, many = (Samples(data, negatives, settings, seed=4) for negatives in (Hard(1), Hard(10**12)))
    assert_array_equal(first.loss_samples[2], many.loss_samples[2])


@dataclass(frozen=True)
class Undrawn(Negatives):
    """Has a priority, and leaves draws at 1."""

    def priority(self, r_i: Any, r_j: Any, u: Any) -> Any:
        return -r_j


@pytest.mark.parametrize("negatives", [Undrawn(), type("Popular", (Popularity, Undrawn), {})()])
def test_a_priority_without_draws_is_an_error(negatives: Any) -> None:
    data = tl.synthetic.World(n_users=60, n_items=40, seed=1).dataset()
    with pytest.raises(ParameterError, match=r"has a priority, but draws one candidate.*write `draws = 5`"):
        tl.BPR(factors=2, epochs=1, negatives=negatives).fit(data)


def test_a_sampler_that_is_no_dataclass_says_so() -> None:
    class Forgotten(Negatives):
        least: int = 3

    class Child(Forgotten):
        pass

    for kind in (Forgotten, Child):
        with pytest.raises(ParameterError, match=r"'least', as Forgotten is not.*@dataclass\(frozen=True\) above"):
            kind(least=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'lest'"):
        Head(lest=4)  # type: ignore[call-arg]
    assert copy.deepcopy(Head(4)) == Head(4)


def test_draws_may_be_an_attribute_of_the_class_and_one_may_be_asked_for() -> None:
    class Drawn(Undrawn):
        draws = 2

    for sampler in (Drawn(), AHNS(1), Hard(1), Uniform()):
        check_choice(sampler, np.asarray)


def test_a_sampler_of_ones_own_is_a_part_of_the_key_and_the_name_of_a_trial() -> None:
    def key(negatives: Any) -> str:
        return Trial(tl.BPR, {"negatives": negatives}).key

    assert len({key(each) for each in (Head(3), Head(4), Steep(1.0), "popularity")}) == 4
    assert key(Head(3)) == key(Head(3))
    assert Trial(tl.BPR(negatives=Head(4))).name == "BPR:negatives=Head(least=4)"


def test_a_sampler_of_a_module_reaches_a_worker_process() -> None:
    message = references.encode(Head(4))
    assert references.decode(json.loads(json.dumps(message))) == Head(4)

    class Local(Negatives):
        pass

    with pytest.raises(references.NotImportableError, match="defined in a function"):
        references.encode(Local())
