from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelike.data.features import Features
from truelike.data.ids import Ids
from truelike.errors import DataError, DataWarning, ParameterError

ROWS = {
    "movie": [7, 3, 5],
    "genres": [["war", "drama"], [], ["drama"]],
    "language": ["fr", "", "en"],
    "old": [True, False, None],
    "minutes": [90.0, None, 110.0],
}


def items_of(values: list[int]) -> Ids:
    return Ids(pl.Series(values), "int", "item")


def dense(features: Features) -> dict[str, list[float]]:
    return dict(zip(features.names, features.matrix.toarray().T.tolist(), strict=True))


def test_words_lists_of_words_and_numbers_become_features_in_the_order_of_the_ids() -> None:
    features = Features.read(pl.DataFrame(ROWS), "item")
    assert features.ids.values.to_list() == [3, 5, 7]
    assert dense(features) == {
        "genres=drama": [0.0, 1.0, 0.5],
        "genres=war": [0.0, 0.0, 0.5],
        "language=en": [0.0, 1.0, 0.0],
        "language=fr": [0.0, 0.0, 1.0],
        "old=false": [1.0, 0.0, 0.0],
        "old=true": [0.0, 0.0, 1.0],
        "minutes": [0.0, 1.0, -1.0],
    }


@pytest.mark.parametrize("library", [pl.DataFrame, pd.DataFrame, pa.table])
def test_frames_of_any_library_are_read_alike(library: Any) -> None:
    expected = Features.read(pl.DataFrame(ROWS), "item")
    found = Features.read(library(ROWS), "item")
    assert found.names == expected.names
    assert np.array_equal(found.matrix.toarray(), expected.matrix.toarray())


def test_files_are_read(tmp_path: Path) -> None:
    table = pl.DataFrame(ROWS).drop("genres")
    table.write_csv(tmp_path / "items.csv")
    table.write_parquet(tmp_path / "items.parquet")
    for name in ("items.csv", "items.parquet"):
        assert Features.read(tmp_path / name, "item").matrix.toarray().shape == (3, 5)
    with pytest.raises(DataError, match=r"the item features cannot be read from '.*nothing.csv'"):
        Features.read(str(tmp_path / "nothing.csv"), "item")


def test_the_column_of_ids_is_found_by_its_name_or_is_the_first() -> None:
    assert Features.read(pl.DataFrame({"kind": ["a", "b"], "item_id": [2, 1]}), "item").names == [
        "kind=a",
        "kind=b",
    ]
    assert Features.read(pl.DataFrame({"who": ["x", "y"], "age": [2, 1]}), "user").ids.values.to_list() == [
        "x",
        "y",
    ]


def test_further_rows_are_read_in_the_same_way() -> None:
    first = Features.read(pl.DataFrame(ROWS), "item")
    later = pl.DataFrame({"minutes": [120], "movie": [1], "language": ["fr"], "genres": [["war"]], "old": [None]})
    more = Features.read(later, "item", like=first.columns)
    assert dense(more)["minutes"] == [2.0]
    both = first.updated_with(more)
    assert both.ids.values.to_list() == [1, 3, 5, 7]
    assert dense(both)["genres=war"] == [1.0, 0.0, 0.0, 0.5]
    again = both.updated_with(Features.read(later.with_columns(movie=pl.lit(5)), "item", like=first.columns))
    assert dense(again)["genres=drama"] == [0.0, 0.0, 0.0, 0.5]


def test_errors_name_what_is_wrong() -> None:
    table = pl.DataFrame(ROWS)
    first = Features.read(table, "item")
    for wrong, words in (
        (table.with_columns(movie=pl.Series([1, 1, 2])), "the item 1 has more than one row of features"),
        (table.with_columns(movie=pl.Series([1, None, 2])), "row 2 of the item features has no id"),
        (table.select("movie"), r"a column of ids, 'movie', and no other"),
        (
            table.with_columns(minutes=pl.Series([1.0, np.inf, 2.0])),
            "'minutes' of the item features has a number that is not finite",
        ),
        ([(1, 2)], "item features are list; expected a pandas, polars or pyarrow frame"),
    ):
        with pytest.raises(DataError, match=words):
            Features.read(wrong, "item")
    with pytest.raises(DataError, match="'minutes' of the item features has words; in training it had numbers"):
        Features.read(table.with_columns(minutes=pl.lit("long")), "item", like=first.columns)
    with pytest.raises(DataError, match=r"the item 3 has language='es', which was not among the 2 values"):
        Features.read(table.with_columns(language=pl.Series(["fr", "es", "en"])), "item", like=first.columns)
    assert first.of(items_of([3, 7])).matrix.shape == (2, 7)


def test_ids_without_a_row_are_an_error_that_names_them_and_the_option() -> None:
    features, items = Features.read(pl.DataFrame(ROWS), "item"), items_of([3, 8, 9])
    with pytest.raises(DataError, match=r'2 of 3 items .* the items 8, 9\. .*missing_features="zeros"'):
        features.of(items)
    with pytest.raises(ParameterError, match="missing_features is 'skip'"):
        features.of(items, missing="skip")  # type: ignore[arg-type]
    filled = features.of(items, missing="zeros")
    assert features.missing_ids(items) == [8, 9]
    assert filled.ids == items
    assert (filled.matrix.dtype, filled.columns) == (np.float32, features.columns)
    assert np.array_equal(filled.matrix.toarray()[:1], features.of(items_of([3])).matrix.toarray())
    assert not filled.matrix.toarray()[1:].any()


def test_a_column_that_cannot_be_a_feature_is_an_error_that_names_it() -> None:
    ids = {"item": [1, 2]}
    for wrong in (
        {"seen": [date(2020, 1, 1), date(2021, 1, 1)]},
        {"seen": [[0.1, 0.2], [0.3, 0.4]]},
        {"seen": [[["a"]], [["b"]]]},
        {"seen": [{"x": 1}, {"x": 2}]},
    ):
        with pytest.raises(DataError, match=r"the column 'seen' of the item features is of type .*Features are"):
            Features.read(pl.DataFrame({**ids, **wrong}), "item")
    with pytest.raises(DataError, match="have no columns"):
        Features.read(pl.DataFrame(), "item")
    with pytest.raises(DataError, match=r"cannot be read|too large"):
        Features.read(pl.DataFrame({**ids, "size": [1.7e308, 1.7e308]}), "item")


def test_a_text_with_bars_is_a_list_and_a_row_of_missing_values_has_no_features() -> None:
    first = Features.read(pl.DataFrame({"item": [1, 2], "kind": ["a|b", "b"], "size": [1.0, 3.0]}), "item")
    assert dense(first) == {"kind=a": [0.5, 0.0], "kind=b": [0.5, 1.0], "size": [-1.0, 1.0]}
    with pytest.warns(DataWarning, match=r"'title' of the item features has 100 different words in 100 rows"):
        Features.read(pl.DataFrame({"item": range(100), "title": [f"film {n}" for n in range(100)]}), "item")
    later = pl.DataFrame({"item": [3], "kind": [None], "size": [None]})
    assert Features.read(later, "item", like=first.columns).matrix.nnz == 0


def test_ids_of_a_file_are_those_of_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("item,kind\n007,a\n10,b\n9,a\n")
    known = Features.read(tmp_path / "items.csv", "item")
    assert known.ids.values.to_list() == ["007", "10", "9"]
    with pytest.raises(DataError, match=r"ids such as '007', the dataset has ids such as 9"):
        known.with_kind_of(Ids(pl.Series([9, 10]), "int", "item"))
    (tmp_path / "items.csv").write_text("item,kind\n10,b\n9,a\n")
    numbered = Features.read(tmp_path / "items.csv", "item").with_kind_of(Ids(pl.Series([9]), "int", "item"))
    assert numbered.ids.values.to_list() == [9, 10]
    assert dense(numbered)["kind=a"] == [1.0, 0.0]
    indexed = pd.DataFrame({"kind": ["a", "b"]}, index=pd.Index([5, 4], name="item"))
    assert Features.read(indexed, "item").ids.values.to_list() == [4, 5]


words = st.lists(st.sampled_from("abcde"), max_size=4)


@given(st.lists(st.tuples(words, st.none() | st.floats(-1e6, 1e6)), min_size=1, max_size=12), st.randoms())
def test_the_order_of_rows_does_not_matter_and_words_of_a_row_sum_to_one(rows: Any, random: Any) -> None:
    table = pl.DataFrame(
        {"item": list(range(len(rows))), "kind": [kind for kind, _ in rows], "size": [size for _, size in rows]},
        schema={"item": pl.Int64, "kind": pl.List(pl.String), "size": pl.Float64},
    )
    order = list(range(len(rows)))
    random.shuffle(order)
    one, other = Features.read(table, "item"), Features.read(table[order], "item")
    assert one.names == other.names
    np.testing.assert_allclose(one.matrix.toarray(), other.matrix.toarray(), rtol=1e-5, atol=1e-6)
    shares = one.matrix.toarray()[:, : len(one.columns[0].names)].sum(axis=1)
    np.testing.assert_allclose(shares, [1.0 if kind else 0.0 for kind, _ in rows], atol=1e-6)
    assert np.isfinite(one.matrix.data).all()


def test_a_file_of_features_follows_the_definition_of_a_valid_row(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_bytes(b'item,kind,year,\n007,"a ""b""",1990,\n7,12" c,1991.5,\n')
    features = Features.read(path, "item")
    assert list(features.ids) == ["007", "7"]
    assert features.names == ['kind=12" c', 'kind=a "b"', "year"]
    path.write_bytes(b"item,kind\n1,a\n2\n3,b,c\n")
    with pytest.raises(
        DataError, match=r"2 lines of the item features in .* are bad: line 3 has 1 field instead of 2 and"
    ):
        Features.read(path, "item")


def test_a_column_of_numbers_in_a_file_may_be_words_of_training(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("item,size\n1,7\n2,8\n")
    columns = Features.read(pl.DataFrame({"item": [1, 2], "size": ["7", "8"]}), "item").columns
    assert Features.read(path, "item", like=columns).names == ["size=7", "size=8"]
