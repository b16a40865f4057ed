import datetime as dt
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import truelike as tl
from truelike.data.frames import to_series
from truelike.errors import DataError, DataWarning, ParameterError

PAIRS = [(7, 1), (9, 2), (7, 3), (7, 1)]
TABLE = {"user": [7, 9, 7, 7], "item": [1, 2, 3, 1]}
JANUARY_2020 = 1_577_836_800_000_000


def rows_of(data: tl.Dataset) -> list[tuple[Any, ...]]:
    users = data.users.take(data.user_of_entry).to_list()
    items = data.items.take(data.matrix.indices).to_list()
    times = [None] * len(users) if data.times is None else data.times.tolist()
    return list(zip(users, items, data.matrix.data.tolist(), times, strict=True))


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(pd.DataFrame(TABLE), id="pandas"),
        pytest.param(pd.DataFrame(TABLE).convert_dtypes(), id="pandas-nullable"),
        pytest.param(pd.DataFrame(TABLE).convert_dtypes(dtype_backend="pyarrow"), id="pandas-pyarrow"),
        pytest.param(pl.DataFrame(TABLE), id="polars"),
        pytest.param(pl.LazyFrame(TABLE), id="polars-lazy"),
        pytest.param(pa.table(TABLE), id="pyarrow"),
        pytest.param(np.array(PAIRS), id="array"),
        pytest.param(np.array(PAIRS, dtype=float), id="array-of-floats"),
        pytest.param((np.array(TABLE["user"]), np.array(TABLE["item"])), id="pair-of-arrays"),
        pytest.param((pd.Series(TABLE["user"]), pl.Series(TABLE["item"])), id="pair-of-series"),
        pytest.param(PAIRS, id="tuples"),
        pytest.param([list(pair) for pair in PAIRS], id="lists"),
        pytest.param([{"user": user, "item": item} for user, item in PAIRS], id="dicts"),
    ],
)
def test_every_source_gives_the_same_dataset(source: Any) -> None:
    data = tl.read(source)
    assert rows_of(data) == [(7, 1, 2.0, None), (7, 3, 1.0, None), (9, 2, 1.0, None)]
    assert data.users.kind == data.items.kind == "int"


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_matrix, sparse.coo_array, sparse.csc_matrix])
def test_a_sparse_matrix_is_read_by_its_row_and_column_numbers(make: Any) -> None:
    data = tl.read(make(np.array([[0, 2, 1], [0, 0, 0], [1, 0, 0]])))
    assert rows_of(data) == [(0, 1, 2.0, None), (0, 2, 1.0, None), (2, 0, 1.0, None)]
    assert (data.n_users, data.n_items) == (3, 3)


@pytest.mark.parametrize(
    ("library", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("pyarrow", pa.table)]
)
def test_frames_come_back_in_the_library_they_came_in(library: str, kind: Any) -> None:
    data = tl.read(kind(TABLE | {"time": [4, 3, 2, 1]}))
    frame = data.to_frame()
    assert isinstance(frame, pa.Table if library == "pyarrow" else kind)
    columns = pl.DataFrame(frame).to_dict(as_series=False)
    assert columns == {
        "user_id": [7, 7, 9],
        "item_id": [1, 3, 2],
        "weight": [2.0, 1.0, 1.0],
        "time": [4, 2, 3],
    }


@given(
    st.permutations([("a", "x", 1, 30), ("a", "y", 2, 20), ("b", "x", 3, 10), ("a", "x", 4, 5), ("c", "z", 5, 1)])
)
def test_the_order_of_rows_never_matters(rows: list[tuple[str, str, int, int]]) -> None:
    expected = [("a", "x", 2.0, 30), ("a", "y", 1.0, 20), ("b", "x", 1.0, 10), ("c", "z", 1.0, 1)]
    assert rows_of(tl.read(rows)) == expected


@given(st.lists(st.tuples(st.integers(-9, 9), st.text(min_size=1, max_size=2)), min_size=1))
def test_every_pair_is_there_once_and_its_weight_is_how_often_it_came(rows: list[tuple[int, str]]) -> None:
    found = {(user, item): weight for user, item, weight, _ in rows_of(tl.read(rows))}
    assert found == {row: rows.count(row) for row in rows}


# --- columns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "item"),
    [("userId", "movieId"), ("ReviewerID", "asin"), ("User-ID", "ISBN"), ("User Id", " Item ")],
)
def test_common_column_names_are_recognised(user: str, item: str) -> None:
    data = tl.read(pd.DataFrame({item: [1, 2], "noise": [5, 6], user: [7, 9]}))
    assert [row[:2] for row in rows_of(data)] == [(7, 1), (9, 2)]


@pytest.mark.parametrize(("user", "item"), [("who", "what"), (2, 0), ("who", 0)])
def test_columns_are_named_or_given_by_position(user: Any, item: Any) -> None:
    data = tl.read(pd.DataFrame({"what": [1, 2], "user": [5, 6], "who": [7, 9]}), user=user, item=item)
    assert [row[:2] for row in rows_of(data)] == [(7, 1), (9, 2)]
    numbered = tl.read(pd.DataFrame(PAIRS), user=1, item=0)
    assert [row[:2] for row in rows_of(numbered)] == [(1, 7), (2, 9), (3, 7)]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "no column looks like the user: the table has 'a', 'b'.*user=.*header=False"),
        ({"user": "a"}, "no column looks like the item"),
        ({"user": "z", "item": "a"}, "no column 'z'; the table has 'a', 'b'"),
        ({"user": 5, "item": "a"}, "no column 5"),
        ({"user": "a", "item": "a"}, "the same column"),
        ({"user": "a", "item": "b", "min_rating": 3}, "no column looks like the rating.*rating="),
        ({"user": "a", "item": "b", "weight": "w"}, "no column 'w'"),
    ],
)
def test_a_missing_column_is_named_with_those_there_are(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        tl.read(pd.DataFrame({"a": [1, 2], "b": [3, 4]}), **asked)


# --- weights and ratings ---------------------------------------------------------------------------

RATED = pd.DataFrame({"user": [1, 1, 2, 3], "item": [1, 1, 2, 2], "rating": [5.0, 1.0, 4.0, 3.5]})


def test_a_row_is_an_interaction_whatever_its_rating_without_min_rating() -> None:
    assert [row[:3] for row in rows_of(tl.read(RATED))] == [(1, 1, 2.0), (2, 2, 1.0), (3, 2, 1.0)]
    assert [row[:3] for row in rows_of(tl.read(RATED, min_rating=4))] == [(1, 1, 1.0), (2, 2, 1.0)]
    data = tl.read(sparse.csr_array(np.array([[-1, 4], [5, 3]])), min_rating=4)
    assert rows_of(data) == [(0, 1, 1.0, None), (1, 0, 1.0, None)]


def test_a_rating_that_is_no_number_makes_the_row_bad_only_where_ratings_are_used() -> None:
    rows = RATED.assign(rating=["5", "x", "4", None])
    assert tl.read(rows).n_interactions == 3
    with pytest.raises(DataError, match=r"2 rows are bad: rows 1, 3 .*no usable rating"):
        tl.read(rows, min_rating=1)


def test_weights_add_up_and_a_row_of_weight_zero_is_not_an_interaction() -> None:
    rows = pd.DataFrame({"user": [1, 1, 2, 2], "item": [1, 1, 2, 1], "plays": [2.5, 3, 1, 0]})
    with pytest.warns(DataWarning, match="left out 1 row of weight 0"):
        data = tl.read(rows, weight="plays")
    assert [row[:3] for row in rows_of(data)] == [(1, 1, 5.5), (2, 2, 1.0)]


def test_what_is_lost_with_zeros_is_counted_for_ids_of_several_types() -> None:
    rows = [{"user": 1, "item": "x", "weight": 0}, {"user": "a", "item": 2, "weight": 1}]
    with pytest.warns(
        DataWarning, match="left out 1 row of weight 0 .* and so 1 user and 1 item without another row"
    ):
        assert tl.read(rows).n_interactions == 1


def test_what_is_lost_with_rows_of_weight_zero_is_counted() -> None:
    rows = {"user": [*"aabcc"], "item": [1, 2, 1, 3, 1], "qty": [2, 0, 0, 0, 1], "stars": [5, 5, 5, 1, 5]}
    message = r"left out 3 rows of weight 0 \(column 'qty'\), and so 1 user and 2 items without another row"
    with pytest.warns(DataWarning, match=message):
        assert rows_of(tl.read(pl.DataFrame(rows), weight="qty")) == [("a", 1, 2.0, None), ("c", 1, 1.0, None)]
    with pytest.warns(DataWarning, match=r"left out 2 rows .* 1 user and 1 item without"):  # the third is not good
        tl.read(pl.DataFrame(rows), weight="qty", min_rating=2, rating="stars")


def test_ids_of_any_kind_are_counted_and_wrong_ones_are_an_error() -> None:
    rows: dict[str, list[Any]] = {"item": [1, 2, 2], "weight": [1, 0, 0]}
    for users in ([7, 8, 8], [7.0, 8.0, 8.0], [*"abb"], [uuid.UUID(int=n) for n in (7, 8, 8)]):
        with pytest.warns(DataWarning, match="left out 2 rows .* 1 user and 1 item without"):
            tl.read(
                [dict(zip(["user", *rows], row, strict=True)) for row in zip(users, *rows.values(), strict=True)]
            )
    with pytest.raises(DataError, match="the user ids are of type Series; all must be strings"):
        tl.read(pl.DataFrame({"user": [[1], [2], [2]], **rows}))


def test_a_column_weight_is_recognised_so_that_a_frame_of_a_dataset_is_the_dataset() -> None:
    data = tl.read([("ann", "tea"), ("ann", "tea"), ("bob", "rum")])
    again = tl.read(data.to_frame())
    assert again.has_weights
    assert rows_of(again) == rows_of(data)
    rows = pl.DataFrame({"user": [1, 2], "item": [1, 2], "Weight": [2.5, 1.0], "qty": [3, 4]})
    assert tl.read(rows).matrix.data.tolist() == [2.5, 1.0]
    assert tl.read(rows, weight="qty").matrix.data.tolist() == [3.0, 4.0]
    kinds = rows.with_columns(event=pl.Series(["buy", "view"]))
    assert tl.read(kinds, kind="event", kinds={"buy": 1, "view": 1}).matrix.data.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("library", [pl.DataFrame, pd.DataFrame, pa.table])
def test_a_frame_of_a_dataset_has_the_times_that_were_read(library: Any) -> None:
    days = [dt.datetime(2026, 4, 3, 10, 30), dt.datetime(2026, 5, 6)]
    data = tl.read(library({"user": [1, 2], "item": [1, 2], "time": days}))
    frame = data.to_frame()
    assert to_series(frame["time"]).to_list() == days
    assert rows_of(tl.read(frame)) == rows_of(data)
    numbers = tl.read(library({"user": [1, 2], "item": [1, 2], "time": [7, 1_600_000_000]}))
    assert to_series(numbers.to_frame()["time"]).to_list() == [7, 1_600_000_000]


# --- bad rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [None, float("nan"), "", pd.NA, pd.NaT])
@pytest.mark.parametrize("library", [pd.DataFrame, list])
def test_a_missing_id_is_an_error_that_names_the_row_and_the_remedy(missing: Any, library: Any) -> None:
    rows = [{"user": "a", "item": "x"}, {"user": missing, "item": "y"}, {"user": "b", "item": "z"}]
    with pytest.raises(DataError, match=r'row 1 \(counted from 0\) has no user.*on_bad_rows="drop"'):
        tl.read(library(rows))
    with pytest.warns(DataWarning, match=r"dropped 1 bad row: row 1 "):
        data = tl.read(library(rows), on_bad_rows="drop")
    assert [row[:2] for row in rows_of(data)] == [("a", "x"), ("b", "z")]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "x"), ("b", "y", 3), ("c", "z"), ("d",)], "row 1 .* 3 values.*; row 3 .* 1 value where"),
        ([("a", "x"), None, ("c", "z"), 5], "rows 1, 3 .*are not a tuple"),
        ([{"user": "a", "item": "x"}, None, {"user": "c", "item": "z"}, {"item": "x"}], "row 1 .*not a dict"),
    ],
)
def test_rows_of_another_shape_are_bad_rows(rows: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=f"2 rows are bad: .*{message}"):
        tl.read(rows)
    with pytest.warns(DataWarning, match="dropped 2 bad rows"):
        data = tl.read(rows, on_bad_rows="drop")
    assert [row[:2] for row in rows_of(data)] == [("a", "x"), ("c", "z")]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "dataset is empty"),
        (pd.DataFrame({"user": [], "item": []}), "dataset is empty"),
        (np.empty((0, 2)), "dataset is empty"),
        (sparse.csr_array((3, 3)), "dataset is empty"),
        (np.zeros((3, 5)), "array has 5 columns"),
        ([(1,), (2,)], "two to four values"),
        ((np.arange(2), np.arange(3)), "differ in length"),
        (sparse.coo_array(np.arange(3)), "1 dimension"),
        (None, "cannot read rows from NoneType"),
        (iter([]), "cannot read rows from list_iterator"),
        (pd.DataFrame([[1, 2, 3]], columns=["user", "item", "user"]), "same name"),
        ("https://example.org/log.csv", "is an address; only files can be read"),
        (pl.LazyFrame(TABLE).select("nothing"), "LazyFrame cannot be collected: .*nothing"),
        (sparse.csr_array(np.array([[1j, 0.0]])), "of the type complex128; expected real numbers"),
        (sparse.coo_array(([1.0], ([0], [0])), shape=(2**40, 2)), "1,099,511,627,776 users .* 2,147,483,647"),
        *(
            (
                sparse.csr_array(np.array([[1.0, value], [1.0, 0.0]])),
                r"negative, not finite, or beyond float32, at \(0, 1.*min_rating",
            )
            for value in (np.inf, np.nan, 1e39, 1e-60, -1.0)
        ),
        *(
            (np.array([[value, 1.0], [2.0, 3.0]]), "with a fraction, or too large")
            for value in (1.5, np.inf, 1e300)
        ),
        *(
            (list(zip(ids, "xy", strict=True)), "Turn them into strings first")
            for ids in ([object(), object()], [b"\xff", b"x"], [(1, 2), (3, 4)], [{"a": 1}, {"a": 2}])
        ),
        ([("a\ud800", "x"), ("b", "y")], "half of a character"),
        (
            [(None, "x"), ("b", "y", 3), ("c", "z"), ("d", None)],
            "row 0 .*no user.*; row 1 .*3 values.*; row 3 .*no item",
        ),
    ],
)
def test_a_source_that_cannot_be_read_is_an_error(source: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        tl.read(source)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"min_rating": 6}, "min_rating is not too high"),
        ({"weight": "big"}, r"add up to 6e\+38; .* Divide all"),
    ],
)
def test_what_is_left_of_a_source_may_be_an_error(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        tl.read(RATED.assign(big=3e38), **asked)


@pytest.mark.parametrize(
    "asked", [{"on_bad_rows": "ignore"}, {"min_rating": "4"}, {"min_rating": float("nan")}, {"min_rating": [3]}]
)
def test_an_impossible_argument_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=f"{next(iter(asked))} is"):
        tl.read([(1, 2, 3)], **asked)


# --- ids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids",
    [
        ["007", "7", "ann"],
        ["äöü", "日本", "🙂"],
        [-3, 0, 2**62],
        [uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)],
    ],
)
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_ids_come_back_as_they_were_given(ids: list[Any], library: Any) -> None:
    data = tl.read(library({"user": pl.Series(ids).to_list(), "item": ids}))
    assert [row[:2] for row in rows_of(data)] == [(each, each) for each in sorted(ids)]
    assert {type(row[0]) for row in rows_of(data)} == {type(ids[0])}


def test_whole_numbers_that_pandas_made_floats_are_integers_again() -> None:
    rows = pd.DataFrame({"user": [1.0, 2.0, np.nan], "item": [1, 2, 3]})
    with pytest.warns(DataWarning, match="dropped 1"):
        data = tl.read(rows, on_bad_rows="drop")
    assert data.users.values.to_list() == [1, 2]
    assert data.users.kind == "int"


# --- times -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([5, 6], [5, 6]),
        ([5.25, 6.5], [5_250_000, 6_500_000]),
        (["5", "6"], [5, 6]),
        (["5.25", "6"], [5_250_000, 6_000_000]),
        (["2020-01-01", "2020-01-01 00:00:01"], [JANUARY_2020, JANUARY_2020 + 1_000_000]),
        (["2020-01-01T00:00:00Z", "2020-01-01T01:00:00.5Z"], [JANUARY_2020, JANUARY_2020 + 3_600_500_000]),
        ([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 0, 1)], [JANUARY_2020, JANUARY_2020 + 60_000_000]),
        ([dt.date(2020, 1, 1), dt.date(2020, 1, 2)], [JANUARY_2020, JANUARY_2020 + 86_400_000_000]),
    ],
)
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_times_of_every_kind_become_whole_numbers(times: Any, expected: list[int], library: Any) -> None:
    data = tl.read(library({"user": [1, 2], "item": [1, 2], "time": times}))
    assert data.times is not None
    assert data.times.tolist() == expected


APRIL_3, MARCH_4 = 1_775_174_400_000_000, 1_772_582_400_000_000


@pytest.mark.parametrize("source", ["frame", "csv", "pandas"])
@pytest.mark.parametrize(
    ("texts", "first"),
    [
        (["03/04/2026", "13/04/2026"], APRIL_3),
        (["03-04-2026 00:00:00", "28-02-2026 09:10"], APRIL_3),
        (["3.4.2026", "5.6.2026"], APRIL_3),  # dots
        (["03/04/2026", "04/13/2026"], MARCH_4),
        (["03.04.2026", "04.13.2026"], MARCH_4),
        (["3/4/2026 00:00", "12/31/2026 23:59"], MARCH_4),
    ],
)
def test_a_value_above_12_tells_whether_the_day_or_the_month_is_first(
    texts: list[str], first: int, source: str, tmp_path: Path
) -> None:
    assert first_time(texts, source, tmp_path) == first


@pytest.mark.parametrize("source", ["frame", "csv", "pandas"])
@pytest.mark.parametrize("texts", [["03/04/2026", "05/06/2026"], ["3-4-2026 10:00", "5-6-2026 10:00"]])
def test_dates_whose_day_no_value_tells_are_an_error(texts: list[str], source: str, tmp_path: Path) -> None:
    message = r"may begin with the day or with the month, and no value tells: '0?3.0?4', .*dates=\"day-first\" or "
    for asked in ({}, {"time": "date"}):
        with pytest.raises(DataError, match=message):
            first_time(texts, source, tmp_path, **asked)
    day = 86_400_000_000
    found = [first_time(texts, source, tmp_path, dates=order) // day for order in ("day-first", "month-first")]
    assert found == [APRIL_3 // day, MARCH_4 // day]
    assert first_time(["04/04/2026", "05/05/2026"], source, tmp_path) == APRIL_3 + day


def test_dates_of_both_orders_in_one_column_are_an_error_that_names_one_of_each(tmp_path: Path) -> None:
    texts = ["25/12/2026", "12/24/2026", "01/02/2026"]
    with pytest.raises(
        DataError, match=r"begin with the day \(25/12\).* begin with the month \(12/24\).*bad rows"
    ):
        first_time(texts, "frame", tmp_path)
    with pytest.warns(DataWarning, match="dropped 1 bad row: row 1"):
        first_time(texts, "frame", tmp_path, dates="day-first", time="date", on_bad_rows="drop")
    with pytest.raises(ParameterError, match=r"dates is 'german'; expected \"day-first\""):
        first_time(texts, "frame", tmp_path, dates="german")
    assert first_time(["2026-04-03", "2026-05-06"], "frame", tmp_path, dates="month-first") == APRIL_3


def first_time(texts: list[str], source: str, place: Path, **how: Any) -> int:
    """The time of the first row of a log with dates in text."""
    table = pl.DataFrame({"user": range(len(texts)), "item": range(len(texts)), "date": texts})
    table.write_csv(place / "log.csv")
    data = tl.read({"frame": table, "csv": place / "log.csv", "pandas": table.to_pandas()}[source], **how)
    assert data.times is not None
    return int(data.times[0])


@pytest.mark.parametrize(
    "texts",
    [
        ["2026-04-03T10:00:00+02:00", "2026-12-03T10:00:00+01:00"],  # as a zone with summer time writes them
        ["2026-04-03T08:00:00Z", "2026-12-03T10:00:00+01:00"],
        ["2026-04-03 10:00:00+0200", "2026-12-03 10:00:00+0100"],
    ],
)
def test_text_of_several_zones_is_the_same_instant(texts: list[str], tmp_path: Path) -> None:
    at_8, at_9 = (dt.datetime(2026, month, 3, hour, tzinfo=dt.UTC) for month, hour in ((4, 8), (12, 9)))
    for source in ("frame", "csv", "pandas"):
        assert first_time(texts, source, tmp_path) == at_8.timestamp() * 1e6
        assert first_time(texts[::-1], source, tmp_path) == at_9.timestamp() * 1e6


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_numpy_times_of_every_unit_are_the_same(unit: str) -> None:
    times = np.array(["2020-01-01", "2020-01-01T00:00:01"], dtype=f"M8[{unit}]")
    data = tl.read((np.array([1, 2]), np.array([1, 2]), np.array([5, 5]), times))
    assert data.times is not None
    assert data.times.tolist() == [JANUARY_2020, JANUARY_2020 + 1_000_000]


@pytest.mark.parametrize("library", ["pandas", "pandas of several zones", "polars", "pyarrow"])
def test_times_with_a_zone_are_the_same_instant_in_every_library(library: str) -> None:
    noon = pd.to_datetime(["2020-01-01 01:00", "2020-01-01 02:00"]).tz_localize("Europe/Berlin")
    rows = pd.DataFrame({"user": [1, 2], "item": [1, 2], "time": noon})
    mixed = [noon[0], noon[1].tz_convert("Asia/Tokyo")]
    frames = {
        "pandas": rows,
        "pandas of several zones": rows.assign(time=pd.Series(mixed, dtype=object)),
        "polars": pl.from_pandas(rows),
        "pyarrow": pa.Table.from_pandas(rows),
    }
    data = tl.read(frames[library])
    assert data.times is not None
    assert data.times.tolist() == [JANUARY_2020, JANUARY_2020 + 3_600_000_000]


@pytest.mark.parametrize(
    "times",
    [["5", "soon"], [5.0, np.nan], [dt.timedelta(1), dt.timedelta(2)], [dt.time(1), dt.time(2)], [[1], [2]]],
)
def test_a_guessed_time_column_that_cannot_be_used_is_left_out_with_a_warning(times: list[Any]) -> None:
    with pytest.warns(DataWarning, match=r"'time' looks like a time.*not used.*time="):
        data = tl.read(pl.DataFrame({"user": [1, 2], "item": [1, 2], "time": times}))
    assert data.times is None
    assert data.n_interactions == 2


@pytest.mark.parametrize("times", [["5", "soon", "7"], ["2020-01-01", "soon", "2020-01-02"], [1.5, None, 2.5]])
def test_only_the_rows_without_a_time_are_bad_where_the_column_was_named(times: list[Any]) -> None:
    rows = pl.DataFrame({"user": [1, 2, 3], "item": [1, 2, 3], "time": times})
    with pytest.raises(DataError, match=r"^1 row is bad: row 1 \(counted from 0\) has no usable time"):
        tl.read(rows, time="time")
    with pytest.warns(DataWarning, match="dropped 1 bad row"):
        data = tl.read(rows, time="time", on_bad_rows="drop")
    assert data.users.values.to_list() == [1, 3]
    assert data.times is not None


def test_a_tuple_of_tuples_holds_rows_and_a_tuple_of_lists_columns() -> None:
    rows = ((1, 2), (2, 3), (5, 6))
    assert tl.read(rows).users.values.to_list() == tl.read(list(rows)).users.values.to_list() == [1, 2, 5]
    assert tl.read(rows[:2]).users.values.to_list() == [1, 2]
    for make in (list, np.array, pd.Series, pl.Series):
        assert tl.read((make([1, 2, 5]), make([2, 3, 6]))).users.values.to_list() == [1, 2, 5]
    assert tl.read(({"user": 1, "item": 2}, {"user": 2, "item": 3})).n_users == 2


# --- values that cannot be stored -------------------------------------------------------------------


@pytest.mark.parametrize("weight", [float("inf"), float("nan"), 1e39, -1e39, 1e300, 1e-60])
def test_a_weight_that_float32_does_not_have_is_a_bad_row(weight: float, tmp_path: Path) -> None:
    table = pl.DataFrame({"user": ["a", "b"], "item": [1, 2], "weight": [2.0, weight]})
    table.write_csv(tmp_path / "log.csv")
    for source, where in ((table, "row 1 .counted from 0."), (tmp_path / "log.csv", "line 3")):
        with pytest.raises(DataError, match=f"1 row is bad: {where} has no usable weight"):
            tl.read(source, weight="weight")
        with pytest.warns(DataWarning, match="dropped 1 bad row"):
            assert tl.read(source, weight="weight", on_bad_rows="drop").matrix.data.tolist() == [2.0]


def test_more_rows_than_int32_counts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truelike.data.ids.MOST", 3)
    with pytest.raises(DataError, match="4 rows were given; at most 3 are possible"):
        tl.read(PAIRS)
    with pytest.raises(DataError, match="4 rows were given; at most 3 are possible"):
        tl.read(sparse.csr_array(np.ones((2, 2))))
    assert tl.read(PAIRS[:3]).n_interactions == 3


@pytest.mark.parametrize("name", ["__time__", "__weight__", "__short__", "short", "0", ""])
@pytest.mark.parametrize("kind", ["frame", "csv", "dicts"])
def test_no_name_of_a_column_is_reserved(name: str, kind: str, tmp_path: Path) -> None:
    table = pl.DataFrame({"item": [1, 2], name: ["a", "b"], "time": [5, 6], "w": [2.0, 3.0]})
    table.write_csv(tmp_path / "log.csv")
    source = {"frame": table, "csv": tmp_path / "log.csv", "dicts": table.to_dicts()}[kind]
    assert rows_of(tl.read(source, user=name, weight="w")) == [("a", 1, 2.0, 5), ("b", 2, 3.0, 6)]
    odd = table.rename({"time": name, name: "who"})
    assert rows_of(tl.read(odd, user="who", time=name, weight="w")) == [("a", 1, 2.0, 5), ("b", 2, 3.0, 6)]


def test_a_masked_value_is_missing() -> None:
    pairs = np.ma.MaskedArray(PAIRS, mask=[(0, 0), (0, 1), (1, 0), (0, 0)])
    users, items = pairs.T
    words = np.ma.MaskedArray(["a", "b", "c", "d"], mask=[0, 1, 1, 0])
    for source in (pairs, (users, items), (list(users), list(items))):
        with pytest.raises(DataError, match=r"row 1 .* has no item.*; row 2 .* has no user"):
            tl.read(source)
        with pytest.warns(DataWarning, match="dropped 2 bad rows"):
            assert rows_of(tl.read(source, on_bad_rows="drop")) == [(7, 1, 2.0, None)]
    with pytest.warns(DataWarning, match="dropped 2 bad rows"):
        assert list(tl.read((words, items.data), on_bad_rows="drop").users) == ["a", "d"]


def test_lists_and_structs_are_no_ratings_and_no_times() -> None:
    table = pl.DataFrame({"user": [1, 2], "item": [3, 4], "rating": [[1.0], [2.0]], "when": [{"a": 1}, {"a": 2}]})
    with pytest.raises(DataError, match=r"2 rows are bad.*no usable rating"):
        tl.read(table, min_rating=1)
    with pytest.raises(DataError, match=r"2 rows are bad.*no usable time"):
        tl.read(table, time="when")
    times = np.ma.MaskedArray(np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"), mask=[0, 1])
    with pytest.raises(DataError, match=r"row 1 .* has no usable time"):
        tl.read((np.array([1, 2]), np.array([3, 4]), np.array([0, 0]), times), time="time")
