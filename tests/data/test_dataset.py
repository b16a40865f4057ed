import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import truelike as tl
from truelike.data.dataset import Dataset, stable_order
from truelike.data.ids import Ids
from truelike.errors import DataError, UnknownIdError

ROWS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 7), st.integers(1, 9), st.integers(-5, 5)), max_size=40
)


def dataset(rows: list[tuple[int, int, int, int]]) -> Dataset:
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    users, items = table[:, 0].astype(np.int32), table[:, 1].astype(np.int32)
    weights = table[:, 2].astype(float)
    return Dataset.from_pairs(
        Ids.range(6, "user"), Ids.range(8, "item"), users, items, weights=weights, times=table[:, 3]
    )


@given(ROWS)
def test_the_matrix_is_canonical_csr_of_summed_weights_and_first_times(
    rows: list[tuple[int, int, int, int]],
) -> None:
    log = dataset(rows)
    expected = np.zeros((6, 8))
    first: dict[tuple[int, int], int] = {}
    for user, item, weight, time in rows:
        expected[user, item] += weight
        first[user, item] = min(time, first.get((user, item), time))
    assert (log.matrix.toarray() == expected).all()
    assert log.matrix.indices.dtype == log.matrix.indptr.dtype == np.int32
    assert log.matrix.data.dtype == np.float32
    log.matrix.check_format(full_check=True)
    for row in range(6):
        assert (np.diff(log.matrix.indices[log.matrix.indptr[row] : log.matrix.indptr[row + 1]]) > 0).all()
    assert log.times is not None
    assert log.times.tolist() == [first[pair] for pair in sorted(first)]
    assert log.n_rows == sum(row[2] for row in rows)


@given(ROWS, st.data())
def test_selecting_keeps_exactly_the_marked_entries(
    rows: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    log = dataset(rows)
    n = log.n_interactions
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool)
    part, rest = log.select(mask), log.select(~mask)
    assert part.n_interactions == mask.sum()
    assert (part.matrix.toarray() + rest.matrix.toarray() == log.matrix.toarray()).all()
    assert part.times is not None
    assert log.times is not None
    assert part.times.tolist() == log.times[mask].tolist()


@given(ROWS, st.lists(st.booleans(), min_size=6, max_size=6), st.lists(st.booleans(), min_size=8, max_size=8))
def test_restricting_keeps_the_block_of_marked_users_and_items(
    rows: list[tuple[int, int, int, int]], keep_users: list[bool], keep_items: list[bool]
) -> None:
    log = dataset(rows).with_titles({n: f"item {n}" for n in range(8)})
    users, items = np.array(keep_users), np.array(keep_items)
    part = log.restrict(users, items)
    assert (part.matrix.toarray() == log.matrix.toarray()[users][:, items]).all()
    assert part.users.values.to_list() == np.flatnonzero(users).tolist()
    assert part.titles is not None
    assert part.titles.to_list() == [f"item {n}" for n in np.flatnonzero(items)]


@given(ROWS)
def test_recoding_keeps_the_pairs_the_other_log_knows_and_counts_the_others(
    rows: list[tuple[int, int, int, int]],
) -> None:
    log = dataset(rows)
    users = Ids(Ids.range(8, "user").values[3:], "int", "user")
    recoded, unknown = log.recode(users, log.items)
    assert (recoded.matrix.toarray()[:3] == log.matrix.toarray()[3:]).all()
    assert recoded.n_interactions + unknown == log.n_interactions
    same, none = log.recode(log.users, log.items)
    assert (same.matrix.toarray() == log.matrix.toarray()).all()
    assert none == 0


@given(st.lists(st.integers(0, 9)))
def test_ordering_by_counting_is_the_stable_argsort(codes: list[int]) -> None:
    array = np.array(codes, dtype=np.int32)
    assert stable_order(array, 10).tolist() == np.argsort(array, kind="stable").tolist()


def test_counts_and_sparsity_are_those_of_the_pairs() -> None:
    log = tl.read([("a", "x"), ("a", "x"), ("a", "y"), ("b", "x"), ("c", "z")])
    assert (log.n_users, log.n_items, log.n_interactions, log.n_rows) == (3, 3, 4, 5.0)
    assert log.rows_per_user().tolist() == [2, 1, 1]
    assert log.popularity().tolist() == [2, 1, 1]
    assert log.user_of_entry.tolist() == [0, 0, 1, 2]
    assert log.sparsity == pytest.approx(5 / 9)
    assert "4 interactions, 3 users, 3 items, sparsity 55.5556%" in repr(log)


def test_what_a_user_has_seen_is_given_in_the_callers_ids() -> None:
    log = tl.read([("a", "x"), ("a", "y"), ("b", "x")])
    assert log.seen("a").to_list() == ["x", "y"]
    with pytest.raises(UnknownIdError, match="'eve'"):
        log.seen("eve")


@pytest.mark.parametrize("items", [["x", "y"], [3, 5], [uuid.UUID(int=1), uuid.UUID(int=2)]])
def test_titles_are_found_by_the_callers_ids_and_default_to_them(items: list[object]) -> None:
    log = tl.read([("a", items[0]), ("b", items[1])]).with_titles({items[0]: "the first", "else": "unused"})
    assert log.titles is not None
    assert log.titles.to_list() == ["the first", str(items[1])]


def test_a_log_of_no_rows_is_not_usable() -> None:
    from truelike.data.dataset import check_usable

    with pytest.raises(DataError, match="log is empty"):
        check_usable(dataset([]))
