"""Text files as tables of text: a fast reader, and a careful one that names bad lines.

The fast reader is that of polars. The careful one reads line by line with `csv` and `json` of Python, and says which
lines are bad and why. Both give the same table. The careful one is asked where a scan of a CSV file (`scan.py`) or the
table of the fast one shows that they may differ, and where a row is bad. It defines what a valid row is:

- A line ends in LF, CRLF or CR. The text is in the given encoding; one byte order mark at its start is skipped.
- CSV: a line that is empty is skipped. A field in double quotes may have separators, line ends and doubled quotes,
  and must end at its closing quote. In any other field a quote is a letter like others. A row has as many fields as
  the first one, on at most `MOST_LINES` lines. Where a row that begins on a line cannot be parsed, that line is bad,
  and reading goes on with the next one.
- JSON: a line of white space is skipped. A line is one object, in which no key is repeated: of repeated ones, either
  counts. A value that is read is text, a finite number, true or false. Numbers become text without an exponent and
  without a fraction of zero.
- Empty text, an absent key, null and NaN are missing values. A row needs a value in each required column.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import json
import os
import re
import stat
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Generic, Protocol, TypedDict, TypeVar, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.core.files import is_utf8
from truelike.core.memory import check_memory
from truelike.core.parallel import SharedSetting
from truelike.data.frames import POLARS_ERRORS, missing, repeated
from truelike.data.parquet_check import damage
from truelike.data.scan import csv_is_plain, lone_carriage_return
from truelike.errors import DataError, DataWarning, ParameterError, quoted, some, warn

FAST_READER_FAILS = (*POLARS_ERRORS, OSError, TypeError, ValueError)  # ValueError: also of encodings
# without push-down every field of a line is parsed, so a line with too many fields is found
EVERY_FIELD = pl.QueryOptFlags(projection_pushdown=False)
FORMATS = {".csv": "csv", ".tsv": "tsv", ".txt": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
           ".json": "jsonl", ".parquet": "parquet", ".pq": "parquet"}  # fmt: skip
CHUNK = 100_000  # rows that the careful reader holds at once
BLOCK = 2**18  # bytes that are scanned at once: they fit into the cache of a core
MOST_LINES = 1_000  # of one quoted field: a quote that is open for longer was not meant as one
LONGEST_FIELD = 2**31 - 1  # letters, instead of the 131,072 of the module csv
GUESSED_SEPARATORS = ",\t;|"
BYTES_OF_NUMBER, BYTES_OF_TEXT = 24, 40  # that a value of a Parquet file takes while it is read; measured
SMALL = 2**28  # bytes up to which the available memory is not looked at
UNCLOSED = "unexpected end of data"  # csv's message where a quote is still open
_field_limit = SharedSetting(csv.field_size_limit, csv.field_size_limit)


class Wanted(Protocol):
    """The columns to read."""

    def needed(self) -> list[str]:
        """Every column that is read."""

    def required(self) -> list[str]:
        """The columns without which a row is bad."""


@dataclass(frozen=True)
class Picked:
    """Columns to read. The first one has ids, without which a row is bad."""

    names: list[str]

    def needed(self) -> list[str]:
        """All of them."""
        return self.names

    def required(self) -> list[str]:
        """The first one."""
        return self.names[:1]


class Form(TypedDict, total=False):
    """What is to be known of a file: see `tl.read`."""

    format: str | None
    separator: str | None
    header: bool
    encoding: str


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


def read_file(path: Path, choose: Callable[[list[str]], W], **form: Unpack[Form]) -> Table[W]:
    """Read the columns that `choose` picks by their names from a CSV, TSV, JSONL or Parquet file."""
    separator, header = form.get("separator"), form.get("header", True)
    _check_arguments(form.get("format"), separator)
    text = Text(path, zipped=path.suffix.lower() == ".gz", encoding=_codec(form.get("encoding", "utf-8")))
    named = [suffix.lower() for suffix in path.suffixes[: -1 if text.zipped else None]]
    kind = form.get("format") or FORMATS.get(named[-1] if named else "")
    try:
        check_file(path)
        if kind == "parquet":
            return _parquet(path, text.zipped, choose)
        if kind == "jsonl":
            return _json_lines(text, choose)
        if kind in ("csv", "tsv"):
            return _delimited(text, choose, separator or ("\t" if kind == "tsv" else None), header)
    except DataError:
        raise
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{quoted(path)} is not a whole gzip file ({error}). Fetch it again.") from error
    except OSError as error:
        raise DataError(f"{quoted(path)} cannot be read: {error.strerror or error}") from error
    except UnicodeError as error:
        raise DataError(f"{quoted(path)} is not {text.label} text ({error}). {ENCODING}") from error
    raise DataError(
        f"the format of {quoted(path.name)} is not known: its name ends in none of {', '.join(FORMATS)} (or these "
        "with .gz). Pass format='csv', 'tsv', 'jsonl' or 'parquet'."
    )


def read_picked(
    path: Path, choose: Callable[[list[str]], Picked], what: str, **form: Unpack[Form]
) -> Table[Picked]:
    """Read columns of a file in which no row may be bad; `what` it has is for the message."""
    table = read_file(path, choose, **form)
    if table.bad:
        line, reason = min(table.bad.items())
        raise DataError(
            f"{len(table.bad):,} {table.unit}s of the {what} in {quoted(path)} are bad: {table.unit} {line} "
            f"{reason}{' and others' * (len(table.bad) > 1)}. Fix the file, or pass a frame."
        )
    return table


class _Done(Exception):  # noqa: N818 - not an error
    """Ends the reading of a file after its header."""


def column_names(path: Path, **form: Unpack[Form]) -> list[str]:
    """The names of a file's columns, without reading its rows."""
    found: list[str] = []

    def choose(names: list[str]) -> Picked:
        found.extend(names)
        raise _Done

    with contextlib.suppress(_Done):
        read_file(path, choose, **form)
    return found


def refuse_address(source: object) -> None:
    """Raise an error where an internet address was given instead of a file."""
    if isinstance(source, str) and re.match(r"[A-Za-z][\w+.-]*://", source):
        raise DataError(f"{quoted(source)} is an address; only files can be read. Download it and pass its path.")


def name_of(file: str | Path) -> str:
    r"""The name of a dataset from that of its file, as text.

    >>> name_of("logs/log.csv.gz"), name_of("caf\udce9.csv")
    ('log', 'caf?')
    """
    return Path(file).name.split(".")[0].encode(errors="replace").decode()


def as_path(source: str | os.PathLike[str]) -> Path:
    """The path of a file, as it was given."""
    try:
        return Path(source)
    except TypeError as error:
        raise DataError(
            f"{quoted(source)} is not a path of text ({error}). Pass a str or a pathlib.Path."
        ) from error


# --- text in any encoding ------------------------------------------------------------------------

ENCODING = 'Name the encoding of the file, e.g. encoding="latin-1", "cp1252" or "utf-16".'


def _codec(encoding: str) -> str:
    """Python's name of an encoding."""
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # base64 and the like are known to Python, but do not encode text
        b"".decode(name)
    except (LookupError, TypeError, ValueError) as error:
        raise ParameterError(
            f"encoding is {encoding!r}, which is not an encoding of text that Python knows. Examples are "
            '"utf-8", "latin-1", "cp1252" and "utf-16".'
        ) from error
    return "utf-8" if name in ("ascii", "utf-8-sig") else name


@dataclass(frozen=True)
class Text:
    """A text file, gzipped or not, in some encoding."""

    path: Path
    zipped: bool
    encoding: str

    @property
    def label(self) -> str:
        """The encoding in messages."""
        return "UTF-8" if self.encoding == "utf-8" else self.encoding

    @property
    def undecodable(self) -> str:
        """The reason why a line with undecodable bytes is bad."""
        return f'is not {self.label} (pass the encoding of the file, e.g. encoding="latin-1")'

    @contextlib.contextmanager
    def lines(self) -> Iterator[Iterator[str]]:
        """The lines, with their ends. An undecodable byte becomes a lone surrogate, which `_undecodable` finds."""
        with self._open("surrogateescape") as handle:
            first = next(handle, "")
            yield chain([first.removeprefix("\ufeff")] * bool(first), handle)

    def _open(self, errors: str) -> IO[str]:
        if "_utf8" in self.__dict__ and self.encoding == "utf-8":
            return io.TextIOWrapper(io.BytesIO(self._utf8), "utf-8", errors, newline="")
        opener: Any = gzip.open if self.zipped else open
        handle: IO[str] = opener(self.path, "rt", encoding=self.encoding, errors=errors, newline="")
        return handle

    def for_polars(self) -> Path | io.BytesIO:
        """The text in UTF-8: the file itself, or a copy in memory."""
        return self.path.absolute() if self._is_utf8 else io.BytesIO(self._utf8)

    def blocks(self) -> Iterator[bytes]:
        """The text in UTF-8 in blocks of whole lines."""
        with self.path.open("rb") if self._is_utf8 else io.BytesIO(self._utf8) as handle:
            while block := handle.read(BLOCK):
                yield block + handle.readline()

    def forget(self) -> None:
        """Free the copy in memory."""
        self.__dict__.pop("_utf8", None)

    @property
    def _is_utf8(self) -> bool:
        return self.encoding == "utf-8" and not self.zipped

    @cached_property
    def _utf8(self) -> bytes:
        if self.encoding == "utf-8":
            return gzip.decompress(self.path.read_bytes())
        copy = io.BytesIO()
        with self._open("strict") as text:
            while block := text.read(BLOCK):
                copy.write(block.encode())
        return copy.getvalue()


def _check_arguments(format: object, separator: object) -> None:
    if format is not None and format not in FORMATS.values():
        raise ParameterError(f"format is {format!r}; expected 'csv', 'tsv', 'jsonl' or 'parquet'")
    if separator is None:
        return
    if not isinstance(separator, str) or len(separator) != 1 or not separator.isascii() or separator in '"\r\n\0':
        raise ParameterError(
            f"separator is {separator!r}; expected one ASCII character, which is no quote and no line end"
        )


def check_file(path: Path, *, empty: bool = False) -> None:
    """Raise an error if there is no regular file, or an empty one. A pipe or a device could be read forever."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:  # ValueError: a NUL in the name
        raise DataError(f"there is no file {quoted(path)}") from error
    if stat.S_ISDIR(found.st_mode):
        raise DataError(f"{quoted(path)} is a directory; expected a file")
    if not stat.S_ISREG(found.st_mode):
        raise DataError(
            f"{quoted(path)} is a pipe, a socket or a device; expected a regular file. Copy its content to one."
        )
    if found.st_size == 0 and not empty:
        raise DataError(f"the file {quoted(path)} is empty")


# --- Parquet -------------------------------------------------------------------------------------


def check_parquet_name(path: str | Path) -> None:
    """Raise an error for a Parquet file whose name is no text: neither polars nor DuckDB can open it."""
    if not is_utf8(path):
        raise DataError(f"{quoted(path)} cannot be read: its name is not valid UTF-8. Rename the file.")


def _check_rows(path: Path, table: pl.LazyFrame) -> None:
    """Raise an error if there is no memory for the rows: a small file may have many, and polars ends the process."""
    rows = int(table.select(pl.len()).collect().item())
    kinds = table.collect_schema().dtypes()
    needed = rows * sum(BYTES_OF_TEXT if kind in (pl.String, pl.Binary) else BYTES_OF_NUMBER for kind in kinds)
    if needed > SMALL:
        instead = "Use a larger machine, or fewer rows; `truelike blocks` reads files of any size."
        check_memory(needed, f"reading the {rows:,} rows of {quoted(path)}", instead)


def _parquet(path: Path, zipped: bool, choose: Callable[[list[str]], W]) -> Table[W]:
    if not zipped:
        check_parquet_name(path)
    source = io.BytesIO(gzip.decompress(path.read_bytes())) if zipped else path.absolute()
    try:
        table = pl.scan_parquet(source, glob=False, hive_partitioning=False)
        columns = choose(table.collect_schema().names())
        with path.open("rb") if isinstance(source, Path) else contextlib.nullcontext(source) as file:
            if wrong := damage(file, set(columns.needed())):
                raise DataError(f"{quoted(path)} is damaged: {wrong}. Fetch or write it again.")
            file.seek(0)
        wanted = table.select(columns.needed())
        _check_rows(path, wanted)
        frame = wanted.collect()
    except POLARS_ERRORS as error:
        raise DataError(
            f"{quoted(path)} cannot be read as Parquet: {some([error], longest=300)}. Is it a whole Parquet file? "
            "Fetch or write it again."
        ) from error
    return Table(frame, columns, lambda: np.arange(len(frame)), text=False, unit="row")


# --- CSV and TSV ---------------------------------------------------------------------------------


def _delimited(text: Text, choose: Callable[[list[str]], W], separator: str | None, header: bool) -> Table[W]:
    separator, fields = first_row(text, separator)
    names = fields if header else [str(position) for position in range(len(fields))]
    columns = chosen_columns(names, choose, text.path, header)
    places = dict(zip(names, range(len(names)), strict=True))
    positions = [places[name] for name in columns.needed()]
    frame = _fast_csv(text, columns, positions, len(names), separator, header)
    return _read(
        text, columns, positions, frame, lambda lines: csv_rows(lines, separator, len(names), header, text)
    )


def _read(
    text: Text,
    columns: W,
    positions: list[int],
    frame: pl.DataFrame | None,
    rows: Callable[[Iterator[str]], Iterator[tuple[int, list[str] | str]]],
) -> Table[W]:
    """The table of the fast reader, or where it has none, that of the careful one, of some rows of the lines."""
    if frame is None:
        with text.lines() as lines:
            return _carefully(rows(lines), columns, positions)
    text.forget()

    def numbers() -> NDArray[np.int64]:
        with text.lines() as lines:
            return np.fromiter((line for line, _ in rows(lines)), dtype=np.int64)

    return Table(frame, columns, numbers)


def first_row(text: Text, separator: str | None) -> tuple[str, list[str]]:
    """The separator, and the fields of the first row, which may be a header."""
    with text.lines() as lines:
        first = next(lines, "")
        if not first.strip():
            raise DataError(f"the first line of {quoted(text.path)} is blank; expected a header or a row")
        separator = separator or max(GUESSED_SEPARATORS, key=first.count)
        _, fields = next(_csv_records(chain([first], lines), separator))
    if _undecodable(first if isinstance(fields, str) else "".join(fields)):
        raise DataError(
            f"{quoted(text.path)} is not {text.label} text: line 1 cannot be decoded. {ENCODING} "
            "Is it another kind of file?"
        )
    if isinstance(fields, str):
        raise DataError(f"the first line of {quoted(text.path)} {fields}. Fix it.")
    return separator, fields


def chosen_columns(names: list[str], choose: Callable[[list[str]], W], path: Path, header: bool) -> W:
    """The columns to read; an error or a warning names `header=False` where the header looks like a row."""
    row = header and looks_like_data(names)
    remedy = "If it is a row, pass header=False: columns are then named by position, e.g. user=0, item=1."
    found = f"the first line of {quoted(path)} looks like data, not like a header: {some(names, 8)}. {remedy}"
    if twice := repeated(names):
        error = f"{quoted(path)} has more than one column named {some(twice)}"
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


def _fast_csv(
    text: Text, columns: Wanted, positions: list[int], width: int, separator: str, header: bool
) -> pl.DataFrame | None:
    """The table by polars; None where the careful reader has to look at the file."""
    try:
        if not csv_is_plain(text.blocks(), separator, width, MOST_LINES):
            return None
        names = dict(zip(map(str, positions), columns.needed(), strict=True))
        wanted = scan_every_field(text.for_polars(), separator, width).select(list(names)).slice(int(header))
        frame = wanted.collect(engine="streaming", optimizations=EVERY_FIELD).rename(names)
    except FAST_READER_FAILS:
        return None
    return _complete(frame, columns)


def scan_every_field(source: Path | io.BytesIO, separator: str, width: int) -> pl.LazyFrame:
    """The rows of a CSV file, the header among them, as text; columns are named by position."""
    return pl.scan_csv(
        source,
        separator=separator,
        has_header=False,  # its names would have to be those of the schema
        schema={str(position): pl.String for position in range(width)},
        glob=False,
    )


def _complete(frame: pl.DataFrame, columns: Wanted) -> pl.DataFrame | None:
    """The table of a fast reader with null for empty text; None if a row lacks a required value."""
    if any(missing(frame[name]).any() for name in columns.required()):
        return None
    others = set(columns.needed()) - set(columns.required())
    return frame.with_columns(null_for_empty(name) for name in others)


def null_for_empty(name: str) -> pl.Expr:
    """A column of text with null for empty text."""
    return pl.when(pl.col(name) != "").then(pl.col(name)).alias(name)


def csv_rows(
    lines: Iterator[str], separator: str, width: int, header: bool, text: Text
) -> Iterator[tuple[int, list[str] | str]]:
    """(line number, fields or why it is bad) of each line that is not blank."""
    for line, fields in _csv_records(lines, separator):
        if header and line == 1:
            continue
        if isinstance(fields, str):
            yield line, fields
        elif len(fields) != width:
            yield line, f"has {len(fields)} field{'s' * (len(fields) != 1)} instead of {width}"
        elif _undecodable("".join(fields)):
            yield line, text.undecodable
        else:
            yield line, fields


def _csv_records(lines: Iterator[str], separator: str) -> Iterator[tuple[int, list[str] | str]]:
    """(number of its first line, fields or why it is bad) of each record.

    A quoted field may span several lines. Where its end is not found, only the line that opens it is bad: the
    lines that were searched for the end are read again.
    """
    ahead: deque[str] = deque()  # lines that no record has used yet
    number = 1
    with _field_limit.changed(LONGEST_FIELD):
        while ahead or _another(ahead, lines):
            text, used = ahead[0].rstrip("\r\n"), 1
            fields: list[str] | str = text.split(separator)
            if '"' in text:
                ahead_or_next = (ahead[n] for n in range(MOST_LINES) if n < len(ahead) or _another(ahead, lines))
                reader = csv.reader(ahead_or_next, delimiter=separator, strict=True)
                try:
                    fields = next(reader)
                    used = reader.line_num
                except csv.Error as error:
                    fields = _reason(error, reader.line_num)
            if text:
                yield number, fields
            for _ in range(used):
                ahead.popleft()
            number += used


def _another(ahead: deque[str], lines: Iterator[str]) -> bool:
    """Whether there was another line, which is now ahead."""
    known = len(ahead)
    ahead.extend(islice(lines, 1))
    return len(ahead) > known


def _reason(error: csv.Error, lines: int) -> str:
    unclosed = lines > 1 or UNCLOSED in str(error)
    return "has a quote that is not closed" if unclosed else f"cannot be parsed ({error})"


def _undecodable(text: str) -> bool:
    """Whether a text has undecodable bytes, or half of a character."""
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


# --- JSON lines ----------------------------------------------------------------------------------


def _json_lines(text: Text, choose: Callable[[list[str]], W]) -> Table[W]:
    with text.lines() as lines:
        head = list(islice(_json_rows(lines, text), 100))
    names = dict.fromkeys(name for _, row in head if isinstance(row, dict) for name in row)
    if not names:
        found = f"line {head[0][0]} {head[0][1]}" if head else "all lines are blank"
        raise DataError(
            f"{quoted(text.path)} has no JSON object in its first lines; expected one per line: {found}"
        )
    columns = choose(list(names))
    needed = columns.needed()

    def rows(lines: Iterator[str]) -> Iterator[tuple[int, list[str] | str]]:
        for line, row in _json_rows(lines, text):
            yield line, row if isinstance(row, str) else _json_values(row, needed)

    return _read(text, columns, list(range(len(needed))), _fast_json(text, columns), rows)


def _fast_json(text: Text, columns: Wanted) -> pl.DataFrame | None:
    """The table by polars; None where the careful reader has to look at the file."""
    try:
        if any(map(lone_carriage_return, text.blocks())):
            return None
        source = text.for_polars()
        if isinstance(source, Path) and set("*?[") & set(str(source)):  # a pattern for polars
            source = io.BytesIO(source.read_bytes())
        frame = pl.scan_ndjson(source, schema=dict.fromkeys(columns.needed(), pl.String)).collect()
    except FAST_READER_FAILS:
        return None
    return None if any(map(_differs, frame)) else _complete(frame, columns)


def _differs(column: pl.Series) -> bool:
    """Whether polars may have written a value in its own way: a list, an object, a long number, half a character."""
    odd = column.str.contains(r"^[\[{]|\x00")
    long = column.filter(column.str.len_bytes() > 18)
    numbers = long.filter(long.str.contains(r"^-?[0-9]+$"))
    return bool(odd.any()) or numbers.cast(pl.Int64, strict=False).null_count() > 0


def _json_rows(lines: Iterable[str], text: Text) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
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
    for name, value in zip(names, values, strict=True):
        if value is None:
            return f"has a list, an object or a number that is not finite in the column {name!r}"
        if _undecodable(value):
            return "holds half of a character"
    return values  # type: ignore[return-value]


def _text(value: Any) -> str | None:
    """A value as the fast reader writes it; empty text for a missing one and NaN; None for one that cannot be read.

    >>> [_text(value) for value in ("a", 7, 2.50, 3.0, 1e-7, True, None, float("nan"), [1])]
    ['a', '7', '2.5', '3', '0.0000001', 'true', '', '', None]
    """
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        text = repr(value)
        return None if "inf" in text else (f"{Decimal(text):f}" if "e" in text else text).removesuffix(".0")
    return json.dumps(value) if isinstance(value, int) else None


# --- the careful reader --------------------------------------------------------------------------


def needed_fields(
    rows: Iterable[tuple[int, list[str] | str]], columns: Wanted, positions: list[int]
) -> Iterator[tuple[int, list[str] | str]]:
    """(line, needed fields or why it is bad) of each row."""
    names = columns.needed()
    required = [(name, positions[names.index(name)]) for name in columns.required()]
    for line, row in rows:
        lacking = [] if isinstance(row, str) else [name for name, position in required if not row[position]]
        if lacking:
            yield line, f"has no {lacking[0]}"
        else:
            yield line, row if isinstance(row, str) else [row[position] for position in positions]


def _carefully(rows: Iterable[tuple[int, list[str] | str]], columns: W, positions: list[int]) -> Table[W]:
    """Collect the good rows, and the reason of each bad one by its line."""
    names = columns.needed()
    bad: dict[int, str] = {}
    lines: list[int] = []
    part: list[list[str]] = []
    chunks: list[pl.DataFrame] = []
    for line, row in needed_fields(rows, columns, positions):
        if isinstance(row, str):
            bad[line] = row
            continue
        part.append(row)
        lines.append(line)
        if len(part) == CHUNK:  # Python's strings take much more memory than a frame
            chunks.append(text_frame(part, names))
            part = []
    chunks.append(text_frame(part, names))
    return Table(pl.concat(chunks), columns, lambda: np.array(lines, dtype=np.int64), bad)


def text_frame(rows: list[list[str]], names: list[str]) -> pl.DataFrame:
    """Rows of text as a frame, with null for empty text."""
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    return frame.with_columns(null_for_empty(name) for name in names)
