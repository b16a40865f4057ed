from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import truelike as tl
from truelike.data.checks import check_trainable
from truelike.data.dataset import Dataset
from truelike.data.ids import Ids
from truelike.errors import DataError

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
def test_the_matrix_is_canonical_csr_of_summed_weights_and_last_times(
    rows: list[tuple[int, int, int, int]],
) -> None:
    data = dataset(rows)
    expected = np.zeros((6, 8))
    last: dict[tuple[int, int], int] = {}
    for user, item, weight, time in rows:
        expected[user, item] += weight
        last[user, item] = max(time, last.get((user, item), time))
    assert (data.matrix.toarray() == expected).all()
    assert data.matrix.indices.dtype == data.matrix.indptr.dtype == np.int32
    assert data.matrix.data.dtype == np.float32
    data.matrix.check_format(full_check=True)
    for row in range(6):
        assert (np.diff(data.matrix.indices[data.matrix.indptr[row] : data.matrix.indptr[row + 1]]) > 0).all()
    assert data.times is not None
    assert data.times.tolist() == [last[pair] for pair in sorted(last)]
    assert data.n_rows == sum(row[2] for row in rows)


@given(ROWS, st.data())
def test_selecting_keeps_exactly_the_marked_entries(
    rows: list[tuple[int, int, int, int]], draws: st.DataObject
) -> None:
    data = dataset(rows)
    n = data.n_interactions
    mask = np.array(draws.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool)
    part, rest = data.select(mask), data.select(~mask)
    assert part.n_interactions == mask.sum()
    assert (part.matrix.toarray() + rest.matrix.toarray() == data.matrix.toarray()).all()
    assert part.times is not None
    assert data.times is not None
    assert part.times.tolist() == data.times[mask].tolist()


@given(ROWS, st.lists(st.booleans(), min_size=6, max_size=6), st.lists(st.booleans(), min_size=8, max_size=8))
def test_restricting_keeps_the_block_of_marked_users_and_items(
    rows: list[tuple[int, int, int, int]], keep_users: list[bool], keep_items: list[bool]
) -> None:
    data = dataset(rows).with_titles({n: f"item {n}" for n in range(8)})
    users, items = np.array(keep_users), np.array(keep_items)
    part = data.restrict(users, items)
    assert (part.matrix.toarray() == data.matrix.toarray()[users][:, items]).all()
    assert part.users.values.to_list() == np.flatnonzero(users).tolist()
    assert part.titles is not None
    assert part.titles.to_list() == [f"item {n}" for n in np.flatnonzero(items)]


@given(ROWS)
def test_recoding_keeps_the_pairs_the_other_dataset_knows_and_counts_the_others(
    rows: list[tuple[int, int, int, int]],
) -> None:
    data = dataset(rows)
    users = Ids(Ids.range(8, "user").values[3:], "int", "user")
    recoded, unknown = data.recode(users, data.items)
    assert (recoded.matrix.toarray()[:3] == data.matrix.toarray()[3:]).all()
    assert recoded.n_interactions + unknown == data.n_interactions
    if data.times is not None:
        assert recoded.times is not None
        assert recoded.times.tolist() == data.times[data.user_of_entry >= 3].tolist()
    text, _ = data.recode(
        users, Ids(pl.Series([str(item) for item in sorted(map(str, data.items))]), "str", "item")
    )
    assert sorted(text.to_frame().rows()) == sorted(
        (user, str(item), *rest) for user, item, *rest in recoded.to_frame().rows()
    )
    same, none = data.recode(data.users, data.items)
    assert (same.matrix.toarray() == data.matrix.toarray()).all()
    assert none == 0


def test_counts_and_sparsity_are_those_of_the_pairs() -> None:
    data = tl.read([("a", "x"), ("a", "x"), ("a", "y"), ("b", "x"), ("c", "z")])
    assert (data.n_users, data.n_items, data.n_interactions, data.n_rows) == (3, 3, 4, 5.0)
    assert data.interactions_per_user().tolist() == [2, 1, 1]
    assert data.popularity().tolist() == [2, 1, 1]
    assert data.user_of_entry.tolist() == [0, 0, 1, 2]
    assert data.sparsity == pytest.approx(5 / 9)
    assert [
        tl.read(rows, weight=2).has_weights for rows in ([(1, 2, 1), (3, 4, 1)], [(1, 2, 0.5), (3, 4, 1)])
    ] == [0, 1]
    assert data.has_weights
    assert "4 interactions, 3 users, 3 items, sparsity 55.5556%" in repr(data)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, 2), (1, 3)], r"only one user, 1\. .*tl\.read\(\.\.\., user="),
        ([(1, 2), (3, 2)], r"only one item, 2\. .*tl\.read\(\.\.\., item="),
    ],
)
def test_a_dataset_of_one_user_or_item_can_be_read_but_not_trained_on(
    rows: list[tuple[int, int]], message: str
) -> None:
    data = tl.read(rows)
    assert data.n_interactions == 2
    with pytest.raises(DataError, match=message):
        check_trainable(data)
    check_trainable(tl.read([(1, 2), (3, 4)]))
    with pytest.raises(DataError, match="dataset is empty"):
        check_trainable(dataset([]))


def test_notebooks_show_counts_and_the_first_rows_with_escaped_ids() -> None:
    rows = [("<b>ann</b>", f"i{n}", 1, 1_577_836_800 + n) for n in range(9)]
    html = tl.read(rows, name="shop & co").with_titles({"i0": "Tea"})._repr_html_()
    for text in (
        "<td>9</td>",
        "&lt;b&gt;ann&lt;/b&gt;",
        "shop &amp; co",
        "100.0000%",
        "2020-01-01",
        "<td>Tea</td>",
    ):
        assert text in html
    assert "<b>ann" not in html
    assert ("i4" in html, "i5" in html) == (True, False)
    split = tl.Split(tl.read([(1, 2), (1, 3), (2, 2)]), None, tl.read([(2, 3)]))
    assert "2 users, 2 items" in split._repr_html_()
    assert "<td>train</td><td>3</td><td>2</td><td>2</td>" in split._repr_html_()


# --- the boundary to compiled code ----------------------------------------------------------------


def test_the_arrays_of_a_dataset_cannot_be_written_to() -> None:
    data = tl.read([("ann", "tea", 1, 5), ("bob", "rum", 1, 6), ("bob", "tea", 1, 7)])
    for array in (
        *(getattr(data.matrix, name) for name in ("data", "indices", "indptr")),
        data.user_of_entry,
        data.times,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 99


def test_what_is_done_to_the_matrix_does_not_reach_the_dataset() -> None:
    data = tl.read([("ann", "tea"), ("bob", "rum"), ("bob", "tea")])
    matrix = data.matrix
    matrix.indptr = np.array([0, 10**6, 10**6], dtype=np.int32)
    matrix.indices = np.full(3, 10**6, dtype=np.int32)
    assert data.matrix.toarray().tolist() == [[0, 1], [1, 1]]
    assert tl.ItemKNN().fit(data).recommend("ann").rows()[0][:2] == ("ann", "rum")


def valid() -> dict[str, Any]:
    return {
        "data": np.ones(3, np.float32),
        "indices": np.array([1, 0, 1], np.int32),
        "indptr": np.array([0, 1, 3], np.int32),
    }


@pytest.mark.parametrize(
    "change",
    [
        {"indptr": [0, 1, 10**6]}, {"indptr": [0, 2, 1]}, {"indptr": [1, 1, 3]}, {"indptr": [0, -5, 3]},
        {"indices": [1, 0, 10**6]}, {"indices": [-1, 0, 1]}, {"indices": [1, 1, 0]}, {"indices": [1, 1, 1]},
        {"data": [1, 1, np.nan]}, {"data": [1, 1, np.inf]}, {"data": [1, 1, -1]}, {"data": [1, 1, 0]},
        {"data": [1, 1, 1e300]},
    ],
    ids=str,
)  # fmt: skip
def test_a_matrix_that_would_lead_outside_an_array_is_refused(change: Any) -> None:
    users, items = Ids.range(2, "user"), Ids.range(2, "item")
    parts = valid()
    assert tl.Dataset(users, items, sparse.csr_array(tuple(parts.values()), shape=(2, 2))).n_interactions == 3
    matrix = sparse.csr_array(tuple(parts.values()), shape=(2, 2))
    for name, value in change.items():
        setattr(matrix, name, np.array(value, dtype=np.float64 if name == "data" else np.int32))
    with pytest.raises(DataError, match="the matrix of a Dataset"):
        tl.Dataset(users, items, matrix)


def test_a_matrix_of_another_shape_or_kind_is_refused() -> None:
    users, items = Ids.range(2, "user"), Ids.range(2, "item")
    for matrix in (sparse.csr_array((3, 2)), np.eye(2), sparse.coo_array((2, 2)), None):
        with pytest.raises(DataError, match="the matrix of a Dataset"):
            tl.Dataset(users, items, matrix)
    with pytest.raises(DataError, match="the times of a Dataset"):
        tl.Dataset(users, items, sparse.csr_array(np.eye(2)), times=np.zeros(3, dtype=np.int64))


def test_a_dataset_has_memory_of_its_own() -> None:
    matrix = sparse.csr_array(tuple(valid().values()), shape=(2, 2))
    data = tl.Dataset(Ids.range(2, "user"), Ids.range(2, "item"), matrix)
    matrix.indices[:] = 10**6
    assert data.matrix.indices.tolist() == [1, 0, 1]


MASKS: list[Any] = [
    [True, False],
    np.array([0, 1]),
    np.ones(3, bool),
    np.ma.array([True, True], mask=[1, 0]),
    None,
]


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: type(mask).__name__)
def test_a_mask_that_is_none_is_refused(mask: Any) -> None:
    data, every = tl.read([("ann", "tea"), ("bob", "gin")]), np.ones(2, bool)
    for call in (data.select, lambda mask: data.restrict(mask, every), lambda mask: data.restrict(every, mask)):
        with pytest.raises(DataError, match="the mask of"):
            call(mask)


@given(ROWS, ROWS)
def test_merged_datasets_are_the_dataset_of_all_rows(
    rows: list[tuple[int, int, int, int]], more: list[tuple[int, int, int, int]]
) -> None:
    merged, whole = dataset(rows).merge(dataset(more)), dataset(rows + more)
    assert merged.to_frame().equals(whole.to_frame())


def test_without_times_on_both_sides_a_merged_dataset_has_none() -> None:
    timed = tl.read([("ann", "tea", 1, 5), ("bob", "gin", 1, 6)])
    assert timed.merge(tl.read([("ann", "gin"), ("bob", "tea")])).times is None


def test_datasets_of_other_ids_are_not_merged() -> None:
    with pytest.raises(DataError, match="other users or items"):
        tl.read([("ann", "tea"), ("bob", "gin")]).merge(tl.read([("zoe", "rum"), ("eve", "gin")]))


@pytest.mark.parametrize("codes", [[0, 5], [-1, 0], [0.0, 1.0], [0, 1, 1]])
def test_row_numbers_of_other_ids_are_refused(codes: Any) -> None:
    users, items = Ids.range(2, "user"), Ids.range(2, "item")
    with pytest.raises(DataError, match="row numbers"):
        Dataset.from_pairs(users, items, np.array(codes), np.array([0, 1], dtype=np.int32))
