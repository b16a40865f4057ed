import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from truelike.data.frames import to_series
from truelike.data.ids import Ids, encode, normalise, one_or_many
from truelike.errors import DataError, UnknownIdError

INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
UUID = uuid.UUID(int=1)
KINDS = st.one_of(*(st.lists(ids, min_size=1, max_size=30) for ids in (INTEGERS, TEXTS, st.uuids())))


def id_map(values: list[Any]) -> Ids:
    series, kind = normalise(to_series(values), "user")
    return Ids(encode(series)[0], kind, "user")


@given(KINDS, KINDS)
def test_an_id_is_known_exactly_if_it_was_given(values: list[Any], others: list[Any]) -> None:
    assume(type(values[0]) is type(others[0]))
    assert (id_map(values).codes(others) >= 0).tolist() == [other in values for other in others]


@given(KINDS)
def test_encoding_gives_sorted_distinct_values_and_the_place_of_each(values: list[Any]) -> None:
    series, _ = normalise(to_series(values), "user")
    distinct, codes = encode(series)
    assert distinct.to_list() == sorted(
        set(series.to_list()), key=lambda v: v.encode() if isinstance(v, str) else v
    )
    assert distinct.gather(codes).to_list() == series.to_list()


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        (["ann", "bob"], "eve"),
        (["ann", "bob"], 7),
        ([7, 8], 9),
        ([7, 8], "x"),
        ([7, 8], "007"),
        ([7, 8], None),
        ([7, 8], uuid.UUID(int=7)),
        ([uuid.UUID(int=1)], uuid.UUID(int=2)),
    ],
)
def test_an_unknown_id_is_minus_one_or_an_error_that_names_it(known: list[Any], asked: Any) -> None:
    ids = id_map(known)
    assert ids.codes(asked).tolist() == [-1]
    with pytest.raises(UnknownIdError) as caught:
        ids.known(asked)
    assert repr(asked) in str(caught.value)
    assert f"{len(known)} users" in str(caught.value).replace(",", "")
    assert repr(id_map(list(range(9)))) == "Ids(9 users: 0, 1, 2, 3, 4 and 4 more)"


@pytest.mark.parametrize(
    ("known", "asked"),
    [([7, 8], "7"), ([7, 8], 7.0), (["7", "8"], 7), ([7, 8], np.int16(7)), ([UUID, uuid.UUID(int=9)], str(UUID))],
)
def test_an_id_and_its_plain_text_are_the_same_id(known: list[Any], asked: Any) -> None:
    assert id_map(known).known(asked).tolist() == [0]


def test_id_maps_are_equal_by_their_values() -> None:
    assert id_map([1, 2]) == id_map([2, 1, 1])
    assert id_map([1, 2]) != id_map([1, 3])
    assert id_map([1, 2]) != id_map(["1", "2"])
    assert id_map([1, 2]) != [1, 2]


@pytest.mark.parametrize("ids", ["ab", 5, 5.0, None, np.int64(3), uuid.UUID(int=1)])
def test_a_single_id_is_a_list_of_one(ids: Any) -> None:
    assert one_or_many(ids) == [ids]


@pytest.mark.parametrize("ids", [(1, 2), {1: 0, 2: 0}, range(1, 3), iter([1, 2])])
def test_any_iterable_is_many_ids(ids: Any) -> None:
    assert one_or_many(ids) == [1, 2]


# --- ids are a sequence -----------------------------------------------------------------------------


@given(KINDS)
def test_ids_are_a_sequence_of_what_the_caller_gave(values: list[Any]) -> None:
    ids = id_map(values)
    expected = ids.take(np.arange(len(ids), dtype=np.int32)).to_list()
    assert list(ids) == expected
    assert [ids[n] for n in range(len(ids))] == expected
    assert (ids[0], ids[-1]) == (expected[0], expected[-1])
    assert type(ids[0]) is type(values[0])
    assert ids[1:3] == expected[1:3]
    assert ids[::-1] == expected[::-1]
    assert all(value in ids for value in values)
    assert to_series(one_or_many(ids)).to_list() == to_series(ids).to_list() == expected
    assert ids.codes(ids).tolist() == list(range(len(ids)))
    assert ids.codes([]).tolist() == []
    with pytest.raises(IndexError, match=f"there are {len(ids)} users"):
        ids[len(ids)]
    assert isinstance(ids, Sequence)


@pytest.mark.parametrize("absent", [9, "eve", None, 1.5, [1, 2], {"a": 1}, object(), uuid.UUID(int=9)])
def test_what_is_not_an_id_is_not_in_the_sequence(absent: Any) -> None:
    assert absent not in id_map([1, 2])


@pytest.mark.parametrize(
    "series",
    [
        pl.Series([1, 2], dtype=pl.Duration("us")),
        pl.Series([None, None], dtype=pl.Duration("ms")),
        pl.Series([b"a"]),
        pl.Series([[1]]),
        pl.Series([{"a": 1}]),
        pl.Series([1], dtype=pl.Int8).reshape((1, 1)),
        to_series([7, UUID]),
    ],
)
def test_ids_of_other_types_are_refused(series: pl.Series) -> None:
    with pytest.raises(DataError, match=r"the user ids are of type .*Turn them into strings"):
        normalise(series, "user")


@pytest.mark.parametrize("dtype", [pl.UInt64, pl.Int128, pl.UInt128])
def test_integers_of_any_size_are_ids(dtype: Any) -> None:
    assert normalise(pl.Series([1, 2**62], dtype=dtype), "user")[1] == "int"
    values, kind = normalise(pl.Series([1, 2**63], dtype=dtype), "user")
    assert (values.to_list(), kind) == (["1", str(2**63)], "str")


def test_masked_ids_are_not_known() -> None:
    ids = Ids(pl.Series([1, 2]), "int", "item")
    masked = np.ma.MaskedArray([1, 2, 2], mask=[0, 1, 0])
    assert ids.codes(masked).tolist() == ids.codes(list(masked)).tolist() == [0, -1, 1]
    assert ids.codes(np.ma.masked).tolist() == [-1]
    assert ids.codes(np.array(2)).tolist() == [1]
    with pytest.raises(UnknownIdError, match="the item None is not among"):
        ids.known(masked)
    with pytest.raises(DataError, match="masked array with the shape"):
        ids.codes(np.ma.MaskedArray([[1, 2]]))


def test_a_panic_of_polars_is_an_error_of_truelike(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: Any, **__: Any) -> None:
        raise pl.exceptions.PanicException("not yet implemented")

    monkeypatch.setattr("truelike.data.frames._to_series", panic)
    with pytest.raises(
        DataError, match="the column 'user' cannot be read as a column of values: not yet implemented"
    ):
        to_series([1, 2], "user")
