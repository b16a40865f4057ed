"""Moments as they are written (dates, text, numbers) and as the whole numbers of `Dataset.times`."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.errors import DataError, ParameterError

MICROSECONDS = 10**6  # per second
UNITS: dict[int, Literal["s", "ms", "us", "ns"]] = {1: "s", 10**3: "ms", MICROSECONDS: "us", 10**9: "ns"}
SECONDS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
DURATION = re.compile(r"(?=.*[1-9])(\d+(?:\.\d+)?) ?(s|min|h|d|w)")
A_DURATION = 'a length of time such as "7d", "12h" or "30min", or a number above 0 in the units of the times'
YEAR_1990, YEAR_2100 = 631_152_000, 4_102_444_800  # seconds since 1970


def units_per_second(times: NDArray[np.int64]) -> int | None:
    """How many units of some times are a second; None if they do not look like times since 1970.

    The last time tells: it is between 1990 and 2100 in seconds, milliseconds, microseconds or nanoseconds. So a wrong
    time, such as 0, does not matter.

    >>> units_per_second(np.array([0, 1_577_836_800])), units_per_second(np.array([3, 9]))
    (1, None)
    """
    last = int(times.max(initial=0))
    return next((units for units in UNITS if YEAR_1990 <= last // units <= YEAR_2100), None)


def as_dates(times: NDArray[np.int64]) -> pl.Series:
    """Times as dates in UTC where they are microseconds since 1970, as dates are read; others as they are.

    >>> as_dates(np.array([1_577_836_800_000_000])).dtype, as_dates(np.array([3, 9])).dtype
    (Datetime(time_unit='us', time_zone=None), Int64)
    """
    series = pl.Series(times)
    return series.cast(pl.Datetime("us")) if units_per_second(times) == MICROSECONDS else series


def is_duration(value: Any) -> bool:
    """Whether a value is a length of time such as "7d", or a number above 0."""
    if isinstance(value, str):
        return DURATION.fullmatch(value.strip()) is not None
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def duration(name: str, value: str | float, times: NDArray[np.int64]) -> float:
    """A length of time in the units of some times. A number is in these units already.

    >>> duration("half_life", "7d", np.array([1_577_836_800])), duration("half_life", 3, np.array([3, 9]))
    (604800.0, 3.0)
    """
    if not is_duration(value):
        raise ParameterError(f"{name} is {value!r}; expected {A_DURATION}")
    if not isinstance(value, str):
        return float(value)
    found = DURATION.fullmatch(value.strip())
    assert found is not None
    units = units_per_second(times)
    if units is None:
        raise DataError(
            f"{name} is {value!r}, and the times of this dataset are {time_range(times)}, which are no times since "
            "1970. Give a number in their units."
        )
    return float(found[1]) * SECONDS[found[2]] * units


def in_units_of(times: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Times in the units of others; as they are, if some do not look like times since 1970.

    >>> in_units_of(np.array([1_577_836_800_123]), np.array([1_577_836_800])), in_units_of(np.array([3]), np.array([9]))
    (array([1577836800]), array([3]))
    """
    mine = units_per_second(times) if len(times) else None
    theirs = units_per_second(known)
    if mine is None or theirs is None:
        return times
    return times * (theirs // mine) if theirs > mine else times // (mine // theirs)


def time_range(times: NDArray[np.int64]) -> str:
    """The first and the last time; as dates where they are seconds, or parts of seconds, since 1970.

    >>> time_range(np.array([1_577_836_800, 1_600_000_000])), time_range(np.array([3, 9]))
    ('2020-01-01 to 2020-09-13', '3 to 9')
    """
    first, last, units = int(times.min()), int(times.max()), units_per_second(times)
    if units is None:
        return f"{first} to {last}"
    return " to ".join(f"{datetime.fromtimestamp(time // units, UTC):%Y-%m-%d}" for time in (first, last))


def moment(name: str, value: Any, times: NDArray[np.int64]) -> int:
    """A moment in the units of some times.

    A number is in these units already. A date, or an ISO date in text, is in UTC unless it has a time zone.

    >>> times = np.array([1_577_836_800, 1_600_000_000])
    >>> moment("test_from", "2020-03-01", times), moment("test_from", 1_583_020_800, times)
    (1583020800, 1583020800)
    """
    if isinstance(value, str) and value.strip().removeprefix("-").isdecimal():
        value = int(value)
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ParameterError(f"{name} is {value}; expected a time")
        return math.ceil(value)
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError as error:
            raise ParameterError(
                f'{name} is {value!r}; expected a date such as "2024-05-01" or "2024-05-01T12:00", or a number in '
                "the units of the times"
            ) from error
    if not isinstance(value, date):
        raise ParameterError(f"{name} is {value!r}; expected a date, an ISO date in text, or a number")
    units = units_per_second(times)
    if units is None:
        raise DataError(
            f"{name} is a date, and the times of this dataset are {time_range(times)}, which are no times since "
            "1970. Give a number in their units."
        )
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    value = value.replace(tzinfo=UTC) if value.tzinfo is None else value
    since = value - datetime(1970, 1, 1, tzinfo=UTC)
    microseconds: int = (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    return -(-microseconds * units // 10**6)  # rounded up: what is not before the moment is at or after it
