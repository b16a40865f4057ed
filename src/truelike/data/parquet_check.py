"""A check of the counts in a Parquet file before polars reads it.

polars allocates memory for as many values as a file says it has. Where a damaged file says 2^58, the process is
aborted, which no exception handler can prevent: polars 2.1.0, the newest, did so for three bits of each of eight files,
the signs of the counts in the headers of their pages. So the counts in the footer and in these headers are compared
with each other first. Only these few bytes are read.

The format is described at https://parquet.apache.org/docs/file-format/: structs of Thrift's compact protocol, in which
fields have numbers instead of names.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Any

HEADER = 2**16  # bytes in which the header of a page is expected
MOST_VALUES = 2**31 - 1
BOOL_TRUE, BOOL_FALSE, BYTE, DOUBLE, BINARY, LIST, STRUCT = (
    1,
    2,
    3,
    7,
    8,
    9,
    12,
)  # and integers; Parquet has no others
UNEXPECTED = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)


def damage(file: IO[bytes], columns: set[str] | None = None) -> str | None:
    """What is wrong with the counts of the given columns; None if nothing is, or if it is no Parquet file.

    >>> import io, polars as pl
    >>> written = io.BytesIO()
    >>> pl.DataFrame({"user": [1, 2]}).write_parquet(written)
    >>> damage(written)
    """
    try:
        return next(_damages(file, columns), None)
    except UNEXPECTED:
        return "its footer, or the header of a page, cannot be understood"


def _damages(file: IO[bytes], columns: set[str] | None) -> Iterator[str]:
    size = file.seek(0, 2)
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or not 0 < length <= size - 12:
        return  # polars says what is wrong
    end = file.seek(size - 8 - length)
    about = _struct(io.BytesIO(file.read(length)))
    rows = [group[3] for group in about[4]]
    if not all(0 <= n <= MOST_VALUES for n in rows) or sum(rows) != about[3]:
        yield f"it says that it has {about[3]:,} rows, in parts of {', '.join(map(str, rows[:5]))}"
    for group in about[4]:
        for chunk in group[1]:
            path = [part.decode() for part in chunk[3][3]]
            if columns is None or path[0] in columns:
                yield from _damages_of_column(file, end, path, chunk[3], group[3])


def _damages_of_column(
    file: IO[bytes], end: int, path: list[str], about: dict[int, Any], rows: int
) -> Iterator[str]:
    name = ".".join(path)[:80]
    values, size = about[5], about[7]
    if values == rows == 0:  # no pages
        return
    place = min(about[9], about.get(11) or about[9])
    if not (4 <= place <= place + size <= end):
        yield f"its column {name!r} is not inside of the file"
        return
    if not 0 <= values <= MOST_VALUES or (len(path) == 1 and values != rows):
        yield f"its column {name!r} has {values:,} values in {rows:,} rows"
    stop, left = place + size, values
    while place < stop and left > 0:
        page, length = _page_header(file, place, stop)
        kind, unpacked, packed = page[1], page[2], page[3]
        place += length + packed
        details = page.get({DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_V2: 8}.get(kind, 0), {1: 0})
        levels = (details.get(5, 0), details.get(6, 0)) if kind == DATA_PAGE_V2 else ()
        most = 8 * unpacked if kind == DICTIONARY_PAGE else left
        if packed < 0 or unpacked < 0 or place > stop or any(not 0 <= each <= packed for each in levels):
            yield f"a page of its column {name!r} has {packed:,} bytes"
            return
        if not 0 <= details[1] <= most:
            yield f"a page of its column {name!r} has {details[1]:,} values; at most {most:,} are possible"
            return
        left -= details[1] if kind in (DATA_PAGE, DATA_PAGE_V2) else 0


def _page_header(file: IO[bytes], place: int, stop: int) -> tuple[dict[int, Any], int]:
    """The header of a page and its length."""
    for most in (HEADER, stop - place):  # it may have long statistics
        file.seek(place)
        head = io.BytesIO(file.read(min(most, stop - place)))
        try:
            return _struct(head), head.tell()
        except IndexError:
            if most >= stop - place:
                raise
    raise IndexError(place)


# --- the compact protocol ------------------------------------------------------------------------


def _take(data: IO[bytes], n: int) -> bytes:
    found = data.read(n)
    if len(found) < n:
        raise IndexError(n)
    return found


def _varint(data: IO[bytes]) -> int:
    value = 0
    for shift in range(0, 71, 7):
        byte = _take(data, 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ValueError(value)


def _number(data: IO[bytes]) -> int:
    value = _varint(data)
    return (value >> 1) ^ -(value & 1)


def _struct(data: IO[bytes]) -> dict[int, Any]:
    fields: dict[int, Any] = {}
    number = 0
    while head := _take(data, 1)[0]:
        number = number + (head >> 4) if head >> 4 else _number(data)
        kind = head & 15
        fields[number] = kind == BOOL_TRUE if kind in (BOOL_TRUE, BOOL_FALSE) else _value(data, kind)
    return fields


def _value(data: IO[bytes], kind: int) -> Any:
    if kind == LIST:
        head = _take(data, 1)[0]
        n = _varint(data) if head >> 4 == 15 else head >> 4
        return [_value(data, head & 15) for _ in range(n)]
    if kind == BINARY:
        return _take(data, _varint(data))
    if kind in (BOOL_TRUE, BOOL_FALSE, BYTE):
        return _take(data, 1)[0]
    if kind == DOUBLE:
        return _take(data, 8)
    if kind == STRUCT:
        return _struct(data)
    if 4 <= kind <= 6:
        return _number(data)
    raise ValueError(kind)
