import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import truelike as tl
from truelike.errors import DataError, ParameterError

Pair = tuple[int, int]
LEAST = st.integers(1, 4)
PAIRS = st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=50)


def naive_core(pairs: set[Pair], user: int, item: int) -> set[Pair]:
    """Drop one weak pair after another, until there is none."""
    left = set(pairs)
    while True:
        weak = [
            (u, i)
            for u, i in sorted(left)
            if sum(other == u for other, _ in left) < user or sum(other == i for _, other in left) < item
        ]
        if not weak:
            return left
        left.remove(weak[0])


def pairs_of(data: tl.Dataset) -> set[Pair]:
    frame = data.to_frame()
    return set(zip(frame["user_id"].to_list(), frame["item_id"].to_list(), strict=True))


@given(PAIRS, LEAST, LEAST)
def test_the_core_is_the_largest_part_that_is_dense_enough(pairs: set[Pair], user: int, item: int) -> None:
    expected = naive_core(pairs, user, item)
    if not expected:
        with pytest.raises(DataError, match=f"nothing is left .* in its {user}/{item}-core.*fewer interactions"):
            tl.k_core(tl.read(list(pairs)), user=user, item=item)
        return
    core, report = tl.k_core(tl.read(list(pairs)), user=user, item=item)
    assert pairs_of(core) == expected
    assert (core.interactions_per_user() >= user).all()
    assert (core.popularity() >= item).all()
    assert report.users == (len({u for u, _ in pairs}), len({u for u, _ in expected}))
    assert report.items == (len({i for _, i in pairs}), len({i for _, i in expected}))
    assert report.interactions == (len(pairs), len(expected))


@given(PAIRS, LEAST, LEAST, st.randoms())
def test_the_core_does_not_depend_on_the_order_of_rows_and_is_its_own_core(
    pairs: set[Pair], user: int, item: int, random: object
) -> None:
    assume(naive_core(pairs, user, item))
    shuffled = sorted(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    core = tl.k_core(tl.read(shuffled), user=user, item=item).dataset
    assert core.to_frame().equals(tl.k_core(tl.read(sorted(pairs)), user=user, item=item).dataset.to_frame())
    again, report = tl.k_core(core, user=user, item=item)
    assert again.to_frame().equals(core.to_frame())
    assert report.rounds == 1


def test_a_chain_is_undone_link_by_link_and_the_report_counts_the_rounds() -> None:
    square = [(user, item) for user in "ab" for item in "xy"]
    chain = [("c", "y"), ("c", "z"), ("d", "z"), ("d", "w")]
    core, report = tl.k_core(tl.read(square + chain), user=2, item=2)
    assert core.users.values.to_list() == ["a", "b"]
    # round 1 drops w, round 2 d, round 3 z, round 4 c; round 5 finds nothing more
    assert report.rounds == 5
    assert str(report) == "2/2-core after 5 rounds: 2 of 4 users, 2 of 4 items, 4 of 8 interactions"


def test_a_least_number_of_zero_asks_for_nothing() -> None:
    data = tl.read([(1, 1), (2, 1), (3, 2)])
    assert tl.k_core(data, user=0, item=0).dataset.to_frame().equals(data.to_frame())
    assert tl.k_core(data, user=0, item=2).dataset.matrix.toarray().tolist() == [[1], [1], [0]]
    with pytest.raises(ParameterError, match="user is -1"):
        tl.k_core(data, user=-1)


def test_weights_times_and_titles_stay_with_their_rows() -> None:
    rows = [(1, 1, 1, 9), (1, 1, 1, 8), (1, 2, 1, 7), (2, 1, 1, 6), (2, 2, 1, 5), (3, 3, 1, 4)]
    data = tl.read(rows).with_titles({1: "one", 2: "two", 3: "three"})
    core = tl.k_core(data, user=2, item=2).dataset
    assert core.matrix.toarray().tolist() == [[2, 1], [1, 1]]
    assert core.times is not None
    assert core.times.tolist() == [9, 7, 6, 5]
    assert core.titles is not None
    assert core.titles.to_list() == ["one", "two"]
    assert data.n_interactions == 5
