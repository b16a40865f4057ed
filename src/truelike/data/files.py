"""Log files as tables of text: a fast reader that gives up at the first doubt, and a careful one.

The fast reader is polars'. Where it fails, or meets a row that lacks an id, the file is read once more by
the careful one, line by line, which knows exactly which lines are bad and why.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeGuard

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.columns import Columns
from truelike.data.frames import missing
from truelike.errors import DataError, ParameterError

FORMATS = {".csv": "csv", ".tsv": "tsv", ".txt": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
           ".json": "jsonl", ".parquet": "parquet", ".pq": "parquet"}  # fmt: skip
CHUNK = 100_000  # rows that the careful reader holds at once
BLOCK = 2**24  # bytes
MOST_LINES = 1_000  # of one quoted field: a quote open for longer was meant otherwise
GUESSED_SEPARATORS = ",\t;|"
SHORT = "__short__"
UNCLOSED = "unexpected end of data"  # how csv says that a quote is still open


@dataclass
class Table:
    """The needed columns, the number of each row, and what is wrong with the rows that are not there."""

    frame: pl.DataFrame
    columns: Columns
    numbers: Callable[[], NDArray[np.int64]]  # asked for only when a row is bad: a long log has many
    bad: dict[int, str] = field(default_factory=dict)
    text: bool = True
    unit: str = "line"


def read_file(
    path: Path,
    choose: Callable[[list[str]], Columns],
    *,
    format: str | None,
    separator: str | None,
    header: bool,
) -> Table:
    """Read the columns that `choose` picks among those of a CSV, TSV, JSONL or Parquet file."""
    _check(path, format, separator)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    zipped = suffixes[-1:] == [".gz"]
    named = suffixes[:-1] if zipped else suffixes
    kind = format or FORMATS.get(named[-1] if named else "")
    try:
        if kind == "parquet":
            return _parquet(path, zipped, choose)
        if kind == "jsonl":
            return _json_lines(path, zipped, choose)
        if kind in ("csv", "tsv"):
            mark = separator or ("\t" if kind == "tsv" else None)
            return _delimited(path, zipped, choose, mark, header)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{str(path)!r} is not a whole gzip file ({error}): fetch it again") from error
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error}") from error
    raise DataError(
        f"the kind of {path.name!r} is not known by its name; it ends in none of "
        f"{', '.join(FORMATS)} (or these with .gz). Say format='csv', 'tsv', 'jsonl' or 'parquet'."
    )


class _Enough(Exception):  # noqa: N818 - nothing went wrong
    """All that was to be known is known."""


def column_names(
    path: Path, *, format: str | None = None, separator: str | None = None, header: bool = True
) -> list[str]:
    """The names of a file's columns, without reading its rows."""
    found: list[str] = []

    def choose(names: list[str]) -> Columns:
        found.extend(names)
        raise _Enough

    with contextlib.suppress(_Enough):
        read_file(path, choose, format=format, separator=separator, header=header)
    return found


def refuse_address(source: Any) -> None:
    """Say that files are read here, where the address of one was given."""
    if isinstance(source, str) and re.match(r"[A-Za-z][\w+.-]*://", source):
        raise DataError(f"{source!r} is an address; files are read here. Download it first, and name the file.")


def _check(path: Path, format: str | None, separator: str | None) -> None:
    if format is not None and format not in FORMATS.values():
        raise ParameterError(f"format is {format!r}; it is 'csv', 'tsv', 'jsonl' or 'parquet'")
    if separator is not None and (len(separator) != 1 or not separator.isascii()):
        raise ParameterError(f"separator is {separator!r}; it is one ASCII character")
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a directory; a file is read here")
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}")
    if path.stat().st_size == 0:
        raise DataError(f"the file {str(path)!r} is empty")


def _parquet(path: Path, zipped: bool, choose: Callable[[list[str]], Columns]) -> Table:
    source: Any = io.BytesIO(gzip.decompress(path.read_bytes())) if zipped else path
    try:
        columns = choose(pl.scan_parquet(source).collect_schema().names())
        frame = pl.scan_parquet(source).select(columns.needed()).collect()
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{str(path)!r} cannot be read as Parquet: {error}") from error
    return Table(frame, columns, lambda: np.arange(len(frame)), text=False, unit="row")


# --- CSV and TSV ---------------------------------------------------------------------------------


def _delimited(
    path: Path,
    zipped: bool,
    choose: Callable[[list[str]], Columns],
    separator: str | None,
    header: bool,
) -> Table:
    with _open(path, zipped) as lines:
        first = lines.readline().lstrip("\ufeff").rstrip("\r\n")
    if not first.strip():
        raise DataError(f"the first line of {str(path)!r} is blank; a header or a row is expected there")
    if _undecodable(first):
        raise DataError(f"{str(path)!r} is not UTF-8 text, at line 1. Is it another kind of file?")
    separator = separator or _guess_separator(first)
    names = next(csv.reader([first], delimiter=separator), [])
    if not header:
        names = [str(position) for position in range(len(names))]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{str(path)!r} has more than one column named {', '.join(repeated)}")
    columns = choose(names)
    try:
        frame = _fast_delimited(path, columns, names, separator, header)
    except (pl.exceptions.PolarsError, OSError):
        frame = None

    def numbers() -> NDArray[np.int64]:
        with _open(path, zipped) as lines:
            return np.array([line for line, _ in _csv_rows(lines, separator, len(names), header)])

    # a row without its last field may be cut short, or that field may just be empty
    if _has_all(frame, columns) and (
        not frame[SHORT].any() or _lines_are_whole(path, zipped, separator, len(names))
    ):
        return Table(frame.drop(SHORT), columns, numbers)
    with _open(path, zipped) as lines:
        rows = _csv_rows(lines, separator, len(names), header)
        return _carefully(rows, columns, [names.index(name) for name in columns.needed()])


def _guess_separator(first: str) -> str:
    return max(GUESSED_SEPARATORS, key=first.count)


def _fast_delimited(path: Path, columns: Columns, names: list[str], separator: str, header: bool) -> pl.DataFrame:
    table = pl.scan_csv(path, separator=separator, has_header=header, infer_schema=False, new_columns=names)
    wanted = table.select(*columns.needed(), pl.col(names[-1]).is_null().alias(SHORT))
    # without push-down every field of a line is parsed, so a line with too many is noticed
    whole_lines = pl.QueryOptFlags(projection_pushdown=False)
    return wanted.collect(engine="streaming", optimizations=whole_lines)


def _has_all(frame: pl.DataFrame | None, columns: Columns) -> TypeGuard[pl.DataFrame]:
    """Whether the fast reader got through, and no row lacks what it must have."""
    return frame is not None and not any(missing(frame[name]).any() for name in columns.required())


def _lines_are_whole(path: Path, zipped: bool, separator: str, width: int) -> bool:
    """Whether every line has all its separators; False too where quotes make that hard to see."""
    opener: Any = gzip.open if zipped else open
    rest = b""
    with opener(path, "rb") as handle:
        while block := handle.read(BLOCK):
            lines, end, rest = (rest + block).rpartition(b"\n")
            if not _separators_fit(lines + end, separator, width - 1):
                return False
    return not rest or _separators_fit(rest + b"\n", separator, width - 1)


def _separators_fit(lines: bytes, separator: str, n: int) -> bool:
    if b'"' in lines or lines.count(b"\r") != lines.count(b"\r\n"):
        return False
    letters = np.frombuffer(lines, dtype=np.uint8)
    ends = np.flatnonzero(letters == ord("\n"))
    marks = np.flatnonzero(letters == ord(separator))
    expected = n * np.arange(1, len(ends) + 1)
    return len(marks) == n * len(ends) and bool((np.searchsorted(marks, ends) == expected).all())


def _csv_rows(lines: IO[str], separator: str, width: int, header: bool) -> Iterator[tuple[int, list[str] | str]]:
    """(line number, fields or what is wrong) for each line that is not blank."""
    for line, fields in _csv_records(lines, separator):
        if not fields or (header and line == 1):
            continue
        if isinstance(fields, str):
            yield line, fields
        elif len(fields) != width:
            yield line, f"has {len(fields)} field{'s' * (len(fields) != 1)} instead of {width}"
        elif _undecodable("".join(fields)):
            yield line, "is not UTF-8"
        else:
            yield line, fields


def _csv_records(lines: IO[str], separator: str) -> Iterator[tuple[int, list[str] | str]]:
    """(number of its first line, fields or what is wrong) for each record.

    A quoted field may go on over several lines. Where its end is not found, only the line that opens it
    is bad: the lines read in search of the end are read again, each for itself.
    """
    ahead: deque[str] = deque()  # lines that no record has used yet
    number, size = 1, CHUNK  # of the first of them; how many are parsed at once
    while True:
        ahead.extend(islice(lines, max(0, size - len(ahead))))
        if not ahead:
            return
        reader = csv.reader(islice(ahead, size), delimiter=separator, strict=True)
        used = 0
        try:
            for fields in reader:
                if reader.line_num - used > MOST_LINES:
                    raise csv.Error(UNCLOSED)  # noqa: TRY301 - handled as the other way to find this out
                yield number + used, fields
                used = reader.line_num
            size = min(2 * size, CHUNK)
        except csv.Error as error:
            # the end of a field that begins late in a batch is looked for again, from its record on
            if used == 0 or UNCLOSED not in str(error):
                yield number + used, _reason(error, reader.line_num - used)
                used += 1
            size = MOST_LINES
        for _ in range(used):
            ahead.popleft()
        number += used


def _reason(error: csv.Error, lines: int) -> str:
    unclosed = lines > 1 or UNCLOSED in str(error)
    return "has a quote that is not closed" if unclosed else f"cannot be parsed ({error})"


def _undecodable(text: str) -> bool:
    """Whether a text holds bytes that are not UTF-8, or half of a character."""
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


# --- JSON lines ----------------------------------------------------------------------------------


def _json_lines(path: Path, zipped: bool, choose: Callable[[list[str]], Columns]) -> Table:
    with _open(path, zipped) as lines:
        head = list(islice(_json_rows(lines), 100))
    names = dict.fromkeys(name for _, row in head if isinstance(row, dict) for name in row)
    if not names:
        found = f"line {head[0][0]} {head[0][1]}" if head else "all lines are blank"
        raise DataError(f"{str(path)!r} has no JSON object in its first lines, one to a line: {found}")
    columns = choose(list(names))
    needed = columns.needed()
    try:
        frame = pl.scan_ndjson(path, schema=dict.fromkeys(needed, pl.String)).collect()
    except (pl.exceptions.PolarsError, OSError):
        frame = None

    def numbers() -> NDArray[np.int64]:
        with _open(path, zipped) as lines:
            return np.array([line for line, _ in _filled(lines)])

    # of half a character polars makes a NUL
    if _has_all(frame, columns) and not any(frame[name].str.contains("\0", literal=True).any() for name in needed):
        return Table(frame, columns, numbers)
    with _open(path, zipped) as lines:
        rows = (
            (line, row if isinstance(row, str) else _json_values(row, needed)) for line, row in _json_rows(lines)
        )
        return _carefully(rows, columns, list(range(len(needed))))


def _filled(lines: IO[str]) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def _json_rows(lines: IO[str]) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in _filled(lines):
        if _undecodable(line):
            yield number, "is not UTF-8"
            continue
        try:
            row = json.loads(line.strip())
        except (ValueError, RecursionError) as error:
            yield number, f"is not JSON ({getattr(error, 'msg', error)})"
            continue
        yield number, row if isinstance(row, dict) else "is not a JSON object"


def _json_values(row: dict[str, Any], names: list[str]) -> list[str] | str:
    values = [_text(row.get(name)) for name in names]
    return "holds half of a character" if any(map(_undecodable, values)) else values


def _text(value: Any) -> str:
    """A value the way the fast reader writes it; missing and NaN as nothing."""
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return value if isinstance(value, str) else json.dumps(value)


# --- the careful reader --------------------------------------------------------------------------


def _carefully(rows: Iterator[tuple[int, list[str] | str]], columns: Columns, positions: list[int]) -> Table:
    """Collect the good rows, and name the bad ones by their line."""
    names, required = columns.needed(), columns.required()
    needed = dict(zip(names, positions, strict=True))
    bad: dict[int, str] = {}
    lines: list[int] = []
    chunks = [pl.DataFrame(schema=dict.fromkeys(names, pl.String))]
    cells: dict[str, list[str]] = {name: [] for name in names}
    taken = [(cells[name].append, position) for name, position in needed.items()]
    for line, row in rows:
        if isinstance(row, str):
            bad[line] = row
            continue
        if "" in row:
            lacking = next((name for name in required if row[needed[name]] == ""), None)
            if lacking is not None:
                bad[line] = f"has no {lacking}"
                continue
        for append, position in taken:
            append(row[position])
        lines.append(line)
        if len(lines) % CHUNK == 0:  # as text of its own each cell takes much more room
            chunks.append(pl.DataFrame(cells, schema=chunks[0].schema))
            for column in cells.values():
                column.clear()
    chunks.append(pl.DataFrame(cells, schema=chunks[0].schema))
    return Table(pl.concat(chunks), columns, lambda: np.array(lines, dtype=np.int64), bad)


def _open(path: Path, zipped: bool) -> IO[str]:
    opener: Any = gzip.open if zipped else open
    handle: IO[str] = opener(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
    return handle
