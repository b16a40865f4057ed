from __future__ import annotations

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
from truelike.errors import DataError

ROWS = {
    "movie": [7, 3, 5],
    "genres": [["war", "drama"], [], ["drama"]],
    "language": ["fr", "", "en"],
    "old": [True, False, None],
    "minutes": [90.0, None, 110.0],
}


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


def test_files_are_read_too(tmp_path: Path) -> None:
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


def test_rows_that_come_later_are_read_as_those_before() -> None:
    first = Features.read(pl.DataFrame(ROWS), "item")
    later = pl.DataFrame({"minutes": [120], "movie": [1], "language": ["fr"], "genres": [["war"]], "old": [None]})
    more = Features.read(later, "item", like=first.columns)
    assert dense(more)["minutes"] == [2.0]
    both = first.and_also(more)
    assert both.ids.values.to_list() == [1, 3, 5, 7]
    assert dense(both)["genres=war"] == [1.0, 0.0, 0.0, 0.5]
    again = both.and_also(Features.read(later.with_columns(movie=pl.lit(5)), "item", like=first.columns))
    assert dense(again)["genres=drama"] == [0.0, 0.0, 0.0, 0.5]


def test_what_is_wrong_is_named() -> None:
    table = pl.DataFrame(ROWS)
    first = Features.read(table, "item")
    for wrong, words in (
        (table.with_columns(movie=pl.Series([1, 1, 2])), "the item 1 has more than one row of features"),
        (table.with_columns(movie=pl.Series([1, None, 2])), "row 2 of the item features has no id"),
        (table.select("movie"), r"a column of ids, 'movie', and no other"),
        (
            table.with_columns(minutes=pl.Series([1.0, np.inf, 2.0])),
            "'minutes' of the item features holds",
        ),
        ([(1, 2)], "item features are a table with a column of ids and one or more others.*not list"),
    ):
        with pytest.raises(DataError, match=words):
            Features.read(wrong, "item")
    with pytest.raises(DataError, match="'minutes' of the item features has words; in training it had numbers"):
        Features.read(table.with_columns(minutes=pl.lit("long")), "item", like=first.columns)
    with pytest.raises(DataError, match=r"the item 3 has language='es', which was not among the 2 values"):
        Features.read(table.with_columns(language=pl.Series(["fr", "es", "en"])), "item", like=first.columns)
    with pytest.raises(DataError, match="the item 8, 9 of the log has no row"):
        first.of(Ids(pl.Series([3, 8, 9]), "int", "item"))


def test_they_come_back_from_arrays_of_numbers() -> None:
    first = Features.read(pl.DataFrame(ROWS), "item")
    arrays = {name: array.copy() for name, array in first.arrays().items()}
    assert all(array.dtype.kind in "fiu" for array in arrays.values())
    again = Features.restored(arrays, first.ids)
    assert again.columns == first.columns
    assert again.digest() == first.digest()
    arrays["indices"][0] = 99
    with pytest.raises(ValueError, match=r"indices|column"):
        Features.restored(arrays, first.ids)


words = st.lists(st.sampled_from("abcde"), max_size=4)


@given(st.lists(st.tuples(words, st.none() | st.floats(-1e6, 1e6)), min_size=1, max_size=12), st.randoms())
def test_the_order_of_rows_never_matters_and_words_share_one(rows: Any, random: Any) -> None:
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
