"""Dates in text that begin with the day or the month: which of them, by all values of a column."""

from __future__ import annotations

from typing import Literal

import polars as pl

from truelike.errors import DataError, ParameterError, quoted, some

DateOrder = Literal["day-first", "month-first"]
ORDERS = ("day-first", "month-first")
BEGINNING = r"^(?<text>(?<first>\d{1,2})(?<separator>[/.\-])(?<second>\d{1,2}))[/.\-]"  # 03/04/2026
WHOLE = r"^(\d{1,2})[/.\-](\d{1,2})[/.\-](\d{4})"
LONGEST_BEGINNING = 6  # letters


def check_order(order: object) -> None:
    """Raise unless an order of day and month is known, or None."""
    if order is not None and order not in ORDERS:
        raise ParameterError(f'dates is {order!r}; expected "day-first" (03/04 is 3 April) or "month-first"')


def beginnings(texts: pl.Series) -> pl.DataFrame:
    """The different beginnings of dates that begin with the day or the month: text, first, separator, second.

    >>> beginnings(pl.Series(["03/04/2026 10:00", "2026-04-03", "03/04/2025"])).rows()
    [('03/04', 3, '/', 4)]
    """
    heads = texts.str.slice(0, LONGEST_BEGINNING).unique()
    parts = heads.str.extract_groups(BEGINNING).struct.unnest().drop_nulls()
    return parts.with_columns(pl.col("first", "second").cast(pl.Int64)).sort("text")


def order_of(found: pl.DataFrame, asked: DateOrder | None, column: str) -> DateOrder | None:
    """Whether the dates of a column begin with the day or the month; None if they begin with neither.

    A value above 12 decides for all. Without one, dates with dots begin with the day, as everywhere where they are
    written with dots; others are an error.

    >>> order_of(beginnings(pl.Series(["03/04/2026", "04/13/2026"])), None, "date")
    'month-first'
    """
    if not len(found):
        return None
    if asked is not None:
        return asked
    months_second, months_first = found.filter(pl.col("first") > 12), found.filter(pl.col("second") > 12)
    remedy = 'Pass dates="day-first" or dates="month-first".'
    if len(months_second) and len(months_first):
        raise DataError(
            f"the column {quoted(column)} has dates that begin with the day ({months_second['text'][0]}) and others "
            f"that begin with the month ({months_first['text'][0]}). {remedy} The others are bad rows then."
        )
    if len(months_first):
        return "month-first"
    open_to_both = found.filter((pl.col("first") != pl.col("second")) & (pl.col("separator") != "."))["text"]
    if len(months_second) or not len(open_to_both):
        return "day-first"
    raise DataError(
        f"the dates of the column {quoted(column)} may begin with the day or with the month, and no value tells: "
        f"{some(map(repr, open_to_both), 3)}. {remedy}"
    )


def in_iso(texts: pl.Series, order: DateOrder | None) -> pl.Series:
    """Dates in text with the year first.

    >>> in_iso(pl.Series(["03/04/2026 10:00", "2026-04-03"]), "month-first").to_list()
    ['2026-03-04 10:00', '2026-04-03']
    """
    if order is None:
        return texts
    return texts.str.replace(WHOLE, "${3}-${2}-${1}" if order == "day-first" else "${3}-${1}-${2}")
