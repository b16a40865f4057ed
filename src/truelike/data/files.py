"""Files as tables of text: a fast reader, and a careful one that names bad lines.

The fast reader is that of polars. Where it fails, or where a row lacks an id, the careful reader reads the file
again, line by line, and says which lines are bad and why.
"""

from __future__ import annotations

import codecs
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
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any, Generic, Protocol, TypeGuard, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.frames import missing
from truelike.errors import DataError, DataWarning, ParameterError, some, warn

FORMATS = {".csv": "csv", ".tsv": "tsv", ".txt": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
           ".json": "jsonl", ".parquet": "parquet", ".pq": "parquet"}  # fmt: skip
CHUNK = 100_000  # rows that the careful reader holds at once
BLOCK = 2**24  # bytes
MOST_LINES = 1_000  # of one quoted field: a quote that is open for longer was not meant as one
GUESSED_SEPARATORS = ",\t;|"
SHORT = "__short__"
UNCLOSED = "unexpected end of data"  # csv's message where a quote is still open


class Wanted(Protocol):
    """The columns to read."""

    def needed(self) -> list[str]:
        """Every column that is read."""

    def required(self) -> list[str]:
        """The columns without which a row is bad."""


W = TypeVar("W", bound=Wanted)


@dataclass
class Table(Generic[W]):
    """The wanted columns of a file, the number of each row, and the reasons why other rows are bad."""

    frame: pl.DataFrame
    columns: W
    numbers: Callable[[], NDArray[np.int64]]  # computed only where a row is bad: a large file has many rows
    bad: dict[int, str] = field(default_factory=dict)
    text: bool = True
    unit: str = "line"


def read_file(
    path: Path,
    choose: Callable[[list[str]], W],
    *,
    format: str | None = None,
    separator: str | None = None,
    header: bool = True,
    encoding: str = "utf-8",
) -> Table[W]:
    """Read the columns that `choose` picks by their names from a CSV, TSV, JSONL or Parquet file."""
    _check(path, format, separator)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    zipped = suffixes[-1:] == [".gz"]
    named = suffixes[:-1] if zipped else suffixes
    kind = format or FORMATS.get(named[-1] if named else "")
    text = _Text(path, zipped, _codec(encoding))
    try:
        if kind == "parquet":
            return _parquet(path, zipped, choose)
        if kind == "jsonl":
            return _json_lines(text, choose)
        if kind in ("csv", "tsv"):
            return _delimited(text, choose, separator or ("\t" if kind == "tsv" else None), header)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{str(path)!r} is not a whole gzip file ({error}). Fetch it again.") from error
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error}") from error
    except UnicodeError as error:
        raise DataError(f"{str(path)!r} is not {text.label} text ({error}). {ENCODING}") from error
    raise DataError(
        f"the format of {path.name!r} is not known: its name ends in none of {', '.join(FORMATS)} (or these with "
        ".gz). Pass format='csv', 'tsv', 'jsonl' or 'parquet'."
    )


class _Done(Exception):  # noqa: N818 - not an error
    """Ends the reading of a file after its header."""


def column_names(path: Path, **how: Any) -> list[str]:
    """The names of a file's columns, without reading its rows; `how` is what `read_file` takes."""
    found: list[str] = []

    def choose(names: list[str]) -> Any:
        found.extend(names)
        raise _Done

    with contextlib.suppress(_Done):
        read_file(path, choose, **how)
    return found


def refuse_address(source: Any) -> None:
    """Raise an error where an internet address was given instead of a file."""
    if isinstance(source, str) and re.match(r"[A-Za-z][\w+.-]*://", source):
        raise DataError(f"{source!r} is an address; only files can be read. Download it and pass its path.")


# --- text in any encoding ------------------------------------------------------------------------

ENCODING = 'Name the encoding of the file, e.g. encoding="latin-1", "cp1252" or "utf-16".'


def _codec(encoding: Any) -> str:
    """Python's name of an encoding."""
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # base64 and the like are known to Python, but do not encode text
    except (LookupError, TypeError) as error:
        raise ParameterError(
            f"encoding is {encoding!r}, which is not an encoding of text that Python knows. Examples are "
            '"utf-8", "latin-1", "cp1252" and "utf-16".'
        ) from error
    return "utf-8" if name in ("ascii", "utf-8-sig") else name


@dataclass(frozen=True)
class _Text:
    """A text file, gzipped or not, in some encoding."""

    path: Path
    zipped: bool
    encoding: str

    @property
    def label(self) -> str:
        return "UTF-8" if self.encoding == "utf-8" else self.encoding

    @property
    def undecodable(self) -> str:
        """The reason why a line with undecodable bytes is bad."""
        return f'is not {self.label} (pass the encoding of the file, e.g. encoding="latin-1")'

    def lines(self, errors: str = "surrogateescape") -> IO[str]:
        """The text. An undecodable byte becomes a lone surrogate, which `_undecodable` finds."""
        opener: Any = gzip.open if self.zipped else open
        codec = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
        handle: IO[str] = opener(self.path, "rt", encoding=codec, errors=errors, newline="")
        return handle

    def as_utf8(self) -> Path | io.BytesIO:
        """The file for polars, which reads UTF-8 and unpacks gzip: the file itself, or a copy in memory."""
        return self.path if self.encoding == "utf-8" else io.BytesIO(self._copy)

    def bytes(self) -> IO[bytes]:
        """The bytes of the text in UTF-8."""
        if self.encoding != "utf-8":
            return io.BytesIO(self._copy)
        opener: Any = gzip.open if self.zipped else open
        handle: IO[bytes] = opener(self.path, "rb")
        return handle

    @cached_property
    def _copy(self) -> Any:
        copy = io.BytesIO()
        with self.lines(errors="strict") as text:
            while block := text.read(BLOCK):
                copy.write(block.encode())
        return copy.getvalue()


def _check(path: Path, format: str | None, separator: str | None) -> None:
    if format is not None and format not in FORMATS.values():
        raise ParameterError(f"format is {format!r}; expected 'csv', 'tsv', 'jsonl' or 'parquet'")
    if separator is not None and (len(separator) != 1 or not separator.isascii()):
        raise ParameterError(f"separator is {separator!r}; expected one ASCII character")
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a directory; expected a file")
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}")
    if path.stat().st_size == 0:
        raise DataError(f"the file {str(path)!r} is empty")


# --- Parquet -------------------------------------------------------------------------------------


def _parquet(path: Path, zipped: bool, choose: Callable[[list[str]], W]) -> Table[W]:
    source: Any = io.BytesIO(gzip.decompress(path.read_bytes())) if zipped else path
    try:
        columns = choose(pl.scan_parquet(source).collect_schema().names())
        frame = pl.scan_parquet(source).select(columns.needed()).collect()
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{str(path)!r} cannot be read as Parquet: {error}") from error
    return Table(frame, columns, lambda: np.arange(len(frame)), text=False, unit="row")


# --- CSV and TSV ---------------------------------------------------------------------------------


def _delimited(text: _Text, choose: Callable[[list[str]], W], separator: str | None, header: bool) -> Table[W]:
    with text.lines() as lines:
        first = lines.readline().lstrip("\ufeff").rstrip("\r\n")
    if not first.strip():
        raise DataError(f"the first line of {str(text.path)!r} is blank; expected a header or a row")
    if _undecodable(first):
        raise DataError(
            f"{str(text.path)!r} is not {text.label} text: line 1 cannot be decoded. {ENCODING} "
            "Is it another kind of file?"
        )
    separator = separator or _guess_separator(first)
    fields = next(csv.reader([first], delimiter=separator), [])
    names = fields if header else [str(position) for position in range(len(fields))]
    columns = _chosen(names, choose, text.path, header)
    try:
        frame = _fast_delimited(text, columns, names, separator, header)
    except (pl.exceptions.PolarsError, OSError, UnicodeError):
        frame = None

    def numbers() -> NDArray[np.int64]:
        with text.lines() as lines:
            return np.array([line for line, _ in _csv_rows(lines, separator, len(names), header, text)])

    # a row without its last field may be cut short, or that field may be empty
    if _has_all(frame, columns) and (not frame[SHORT].any() or _lines_are_whole(text, separator, len(names))):
        return Table(frame.drop(SHORT), columns, numbers)
    with text.lines() as lines:
        rows = _csv_rows(lines, separator, len(names), header, text)
        return _carefully(rows, columns, [names.index(name) for name in columns.needed()])


def _chosen(names: list[str], choose: Callable[[list[str]], W], path: Path, header: bool) -> W:
    """The columns to read; an error or a warning names `header=False` where the header looks like a row."""
    row = header and looks_like_data(names)
    remedy = "If it is a row, pass header=False: columns are then named by position, e.g. user=0, item=1."
    found = f"the first line of {str(path)!r} looks like data, not like a header: {some(names, 8)}. {remedy}"
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        error = f"{str(path)!r} has more than one column named {', '.join(repeated)}"
        raise DataError(found if row else f"{error}. Rename all but one of them.")
    try:
        columns = choose(names)
    except DataError as error:
        if row:
            raise DataError(found) from error
        raise
    if row and any(_is_number(name) for name in columns.required()):
        warn(found, DataWarning)
    return columns


def looks_like_data(names: list[str]) -> bool:
    """Whether at least half of the fields of a header are numbers, other than the 0, 1, ... of pandas.

    >>> looks_like_data(["196", "242", "3"]), looks_like_data(["0", "1"]), looks_like_data(["user", "item", "20"])
    (True, False, False)
    """
    numbers = [name for name in names if _is_number(name)]
    by_position = numbers == [str(n) for n in range(len(numbers))]
    return bool(numbers) and not by_position and 2 * len(numbers) >= len(names)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\s*[-+]?\d+(\.\d*)?([eE][-+]?\d+)?\s*", text) is not None


def _guess_separator(first: str) -> str:
    return max(GUESSED_SEPARATORS, key=first.count)


def _fast_delimited(text: _Text, columns: Wanted, names: list[str], separator: str, header: bool) -> pl.DataFrame:
    table = pl.scan_csv(
        text.as_utf8(), separator=separator, has_header=header, infer_schema=False, new_columns=names
    )
    wanted = table.select(*columns.needed(), pl.col(names[-1]).is_null().alias(SHORT))
    # without push-down every field of a line is parsed, so a line with too many fields is found
    whole_lines = pl.QueryOptFlags(projection_pushdown=False)
    return wanted.collect(engine="streaming", optimizations=whole_lines)


def _has_all(frame: pl.DataFrame | None, columns: Wanted) -> TypeGuard[pl.DataFrame]:
    """Whether the fast reader succeeded and no row lacks a required value."""
    return frame is not None and not any(missing(frame[name]).any() for name in columns.required())


def _lines_are_whole(text: _Text, separator: str, width: int) -> bool:
    """Whether every line has all its separators; also False where quotes make that hard to tell."""
    rest = b""
    with text.bytes() as handle:
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


def _csv_rows(
    lines: IO[str], separator: str, width: int, header: bool, text: _Text
) -> Iterator[tuple[int, list[str] | str]]:
    """(line number, fields or why it is bad) of each line that is not blank."""
    for line, fields in _csv_records(lines, separator):
        if not fields or (header and line == 1):
            continue
        if isinstance(fields, str):
            yield line, fields
        elif len(fields) != width:
            yield line, f"has {len(fields)} field{'s' * (len(fields) != 1)} instead of {width}"
        elif _undecodable("".join(fields)):
            yield line, text.undecodable
        else:
            yield line, fields


def _csv_records(lines: IO[str], separator: str) -> Iterator[tuple[int, list[str] | str]]:
    """(number of its first line, fields or why it is bad) of each record.

    A quoted field may span several lines. Where its end is not found, only the line that opens it is bad: the
    lines that were searched for the end are read again, one by one.
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
                    raise csv.Error(UNCLOSED)  # noqa: TRY301 - handled like an error of csv
                yield number + used, fields
                used = reader.line_num
            size = min(2 * size, CHUNK)
        except csv.Error as error:
            # where a field begins late in a batch, its end is searched again from the start of its record
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
    """Whether a text has undecodable bytes, or half of a character."""
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


# --- JSON lines ----------------------------------------------------------------------------------


def _json_lines(text: _Text, choose: Callable[[list[str]], W]) -> Table[W]:
    with text.lines() as lines:
        head = list(islice(_json_rows(lines, text), 100))
    names = dict.fromkeys(name for _, row in head if isinstance(row, dict) for name in row)
    if not names:
        found = f"line {head[0][0]} {head[0][1]}" if head else "all lines are blank"
        raise DataError(
            f"{str(text.path)!r} has no JSON object in its first lines; expected one per line: {found}"
        )
    columns = choose(list(names))
    needed = columns.needed()
    try:
        frame = pl.scan_ndjson(text.as_utf8(), schema=dict.fromkeys(needed, pl.String)).collect()
    except (pl.exceptions.PolarsError, OSError, UnicodeError):
        frame = None

    def numbers() -> NDArray[np.int64]:
        with text.lines() as lines:
            return np.array([line for line, _ in _filled(lines)])

    # polars turns half of a character into a NUL
    if _has_all(frame, columns) and not any(frame[name].str.contains("\0", literal=True).any() for name in needed):
        return Table(frame, columns, numbers)
    with text.lines() as lines:
        rows = (
            (line, row if isinstance(row, str) else _json_values(row, needed))
            for line, row in _json_rows(lines, text)
        )
        return _carefully(rows, columns, list(range(len(needed))))


def _filled(lines: IO[str]) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def _json_rows(lines: IO[str], text: _Text) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in _filled(lines):
        if _undecodable(line):
            yield number, text.undecodable
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
    """A value as the fast reader writes it; empty text for a missing one and NaN."""
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return value if isinstance(value, str) else json.dumps(value)


# --- the careful reader --------------------------------------------------------------------------


def _carefully(rows: Iterator[tuple[int, list[str] | str]], columns: W, positions: list[int]) -> Table[W]:
    """Collect the good rows, and the reason of each bad one by its line."""
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
        if len(lines) % CHUNK == 0:  # Python's strings take much more memory than a frame
            chunks.append(pl.DataFrame(cells, schema=chunks[0].schema))
            for column in cells.values():
                column.clear()
    chunks.append(pl.DataFrame(cells, schema=chunks[0].schema))
    return Table(pl.concat(chunks), columns, lambda: np.array(lines, dtype=np.int64), bad)
