"""Filters: the items that fit, errors that say where, and nothing that runs."""

from __future__ import annotations

import math
import operator
import time
from datetime import date
from datetime import time as clock
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelike.data.ids import Ids
from truelike.errors import DataError, FilterError
from truelike.rules.budget import limited
from truelike.rules.filters import DEEPEST, LONGEST, Filters
from truelike.rules.items_table import aligned, read_items_table

TABLE = pl.DataFrame(
    {
        "category": ["tea", "rum", "tea", None],
        "price": [3.5, 20.0, 40.0, None],
        "stock": [0, 5, 7, 2],
        "organic": [True, False, None, True],
        "tags": [["hot", "drink"], ["drink"], [], None],
        "since": [date(2020, 1, 1), date(2024, 5, 1), date(2025, 1, 1), None],
        "with space": ["a", "b", "c", "d"],
    }
)
FILTERS = Filters(TABLE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("category = tea", [1, 0, 1, 0]),
        ("category = 'tea' and price < 20", [1, 0, 0, 0]),
        ('category == "tea" AND price <= 40', [1, 0, 1, 0]),
        ("category != tea", [0, 1, 0, 0]),
        ("category <> tea", [0, 1, 0, 0]),
        ("not category = tea", [0, 1, 0, 1]),
        ("category in (tea, 'rum')", [1, 1, 1, 0]),
        ("category not in (tea)", [0, 1, 0, 0]),
        ("price > 3.5 or stock = 2", [0, 1, 1, 1]),
        ("price >= -1e3 and (stock = 0 or stock = 7)", [1, 0, 1, 0]),
        ("organic = true", [1, 0, 0, 1]),
        ("category is null", [0, 0, 0, 1]),
        ("category is not null", [1, 1, 1, 0]),
        ("tags contains drink", [1, 1, 0, 0]),
        ("tags not contains hot", [0, 1, 1, 0]),
        ("category contains e", [1, 0, 1, 0]),
        ("since >= '2024-05-01'", [0, 1, 1, 0]),
        ("'with space' = b", [0, 1, 0, 0]),
        ("price < 20 and category = tea or stock = 2", [1, 0, 0, 1]),
        ("stock = 5.0", [0, 1, 0, 0]),
        ("stock < 99999999999999999999", [1, 1, 1, 1]),
        ("category = 'te\\'a'", [0, 0, 0, 0]),
        ("stock in (" + ",".join(["1"] * 900) + ")", [0, 0, 0, 0]),
    ],
)
def test_the_items_that_fit(text: str, expected: list[int]) -> None:
    assert FILTERS.mask(text).tolist() == [bool(fits) for fits in expected]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("category", "ends"),
        ("category =", "ends; expected a value"),
        ("= tea", "the name of a column"),
        ("colour = red", "no column 'colour'. They have category"),
        ("price = tea", "has numbers"),
        ("organic = maybe", "true and false"),
        ("since > tomorrow", "has times"),
        ("tags = hot", "tags contains hot"),
        ("stock contains 3", "for texts and lists"),
        ("category = tea tea", "at letter 16"),
        ("category in tea", "expected `(`"),
        ("category is tea", "`null`"),
        ("price < 20 & stock > 1", "'& stock > ' at letter 12"),
        ("category = 'tea", "at letter 12"),
        ("(" * (DEEPEST + 5) + "stock = 1" + ")" * (DEEPEST + 5), "parentheses"),
        ("not " * 200 + "stock = 1", "parentheses"),
        (" or ".join(["stock = 1"] * 101), "more than 100 comparisons"),
        ("x" * (LONGEST + 1), "at most 2,000"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_where(text: str, words: str) -> None:
    with pytest.raises(FilterError) as error:
        FILTERS.mask(text)
    assert words in str(error.value)


def test_a_list_of_values_is_what_its_comparisons_are() -> None:
    values = {
        "stock": ["5", "0", "5.0", "7.5", "999999999999999999", "1e30"],
        "price": ["3.5", "20", "-0"],
        "category": ["tea", "'r um'", "null"],
        "organic": ["true", "TRUE"],
        "since": ["'2024-05-01'", "'2025-01-01'"],
    }
    for column, texts in values.items():
        for n in range(1, len(texts) + 1):
            alone = np.any([FILTERS.mask(f"{column} = {text}") for text in texts[:n]], axis=0)
            assert FILTERS.mask(f"{column} in ({','.join(texts[:n])})").tolist() == alone.tolist()


def test_the_filters_of_a_request_have_one_budget() -> None:
    def texts(n: int) -> list[str]:  # of 20 comparisons each
        return [" or ".join(f"stock = {20 * m + k}" for k in range(20)) for m in range(n)]

    for _ in range(2):  # computed, and kept from before
        with limited(math.inf):
            for text in texts(5) * 3:
                FILTERS.mask(text)
            with pytest.raises(FilterError, match="more than 100 comparisons in all"):
                FILTERS.mask("price < 3")
    slow = Filters(pl.DataFrame({"name": ["a" * 100] * 50_000}))
    started = time.monotonic()
    with limited(started + 0.02), pytest.raises(TimeoutError):
        slow.mask(" or ".join(f"name contains b{n}" for n in range(80)))


@given(st.text(max_size=60))
def test_any_text_is_a_mask_or_an_error(text: str) -> None:
    try:
        mask = FILTERS.mask(text)
    except FilterError as error:
        message = str(error)
    else:
        message = ""
        assert mask.shape == (4,)
    assert len(message) < 400


STOCK = TABLE["stock"].to_numpy()
SIGNS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
LEAVES = st.tuples(st.sampled_from(list(SIGNS)), st.integers(-1, 8)).map(
    lambda leaf: (f"stock {leaf[0]} {leaf[1]}", SIGNS[leaf[0]](STOCK, leaf[1]))
)
TREES = st.recursive(  # the text of a filter, and which items fit
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda one: (f"not ({one[0]})", ~one[1])),
        st.tuples(inner, inner).map(lambda two: (f"({two[0][0]}) and ({two[1][0]})", two[0][1] & two[1][1])),
        st.tuples(inner, inner).map(lambda two: (f"({two[0][0]}) or ({two[1][0]})", two[0][1] | two[1][1])),
    ),
    max_leaves=8,
)


@given(TREES)
def test_a_filter_is_what_it_says(tree: tuple[str, Any]) -> None:
    assert FILTERS.mask(tree[0]).tolist() == tree[1].tolist()


def test_columns_of_every_type_are_compared_or_refused(tmp_path: Path) -> None:
    table = pl.DataFrame(
        {
            "item_id": [1, 2],
            "small": pl.Series([1, 2], dtype=pl.UInt8),
            "huge": pl.Series([1, 2**64 - 1], dtype=pl.UInt64),
            "money": pl.Series(["1.50", "2.25"]).cast(pl.Decimal(10, 2)),
            "nothing": pl.Series([None, None]),
            "flag": [True, False],
            "numbers": [[1, 2], [3]],
            "kind": pl.Series(["a", "b"], dtype=pl.Categorical),
            "clock": [clock(9), clock(18)],
        }
    )
    table.write_parquet(tmp_path / "items.parquet")
    filters = Filters(
        aligned(read_items_table(tmp_path / "items.parquet"), Ids(pl.Series([1, 2]), "int", "item"))[0]
    )
    expected = {
        "small = 300": [0, 0], "small > -1": [1, 1], "huge > 5": [0, 1], "money < 2": [1, 0], "money = 2.25": [0, 1],
        "nothing = 1": [0, 0], "nothing is null": [1, 1], "flag = true": [1, 0], "numbers contains 3": [0, 1],
        "kind = b": [0, 1], "clock > '12:00:00'": [0, 1],
    }  # fmt: skip
    for text, fits in expected.items():
        assert filters.mask(text).tolist() == [bool(fit) for fit in fits], text
    for text in ("flag < true", *(f"numbers contains {value}" for value in ("1.5", 20 * "9", "x"))):
        with pytest.raises(FilterError):
            filters.mask(text)
    table.with_columns(pl.duration(days=1).alias("wait")).write_parquet(tmp_path / "items.parquet")
    with pytest.raises(DataError, match="'wait'"):
        read_items_table(tmp_path / "items.parquet")
