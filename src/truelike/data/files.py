"""Log files as tables of text: a fast reader that gives up at the first doubt, and a careful one.

The fast reader is polars'. Where it fails, or meets a row that lacks something, the file is read once
more by the careful one, line by line, which knows exactly which lines are bad and why.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.columns import Columns
from truelike.errors import DataError

FORMATS = {".csv": "csv", ".tsv": "tsv", ".txt": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
           ".json": "jsonl", ".parquet": "parquet", ".pq": "parquet"}  # fmt: skip
CHUNK = 200_000
GUESSED_SEPARATORS = ",\t;|"
SHORT = "__short__"


@dataclass
class Table:
    """The needed columns, the line of each row (counted from 1), and what is wrong with other lines."""

    frame: pl.DataFrame
    columns: Columns
    lines: NDArray[np.int64]
    bad: dict[int, str] = field(default_factory=dict)
    text: bool = True


def read_file(
    path: Path,
    choose: Callable[[list[str]], Columns],
    *,
    format: str | None,
    separator: str | None,
    header: bool,
) -> Table:
    """Read the columns that `choose` picks among those of a CSV, TSV, JSONL or Parquet file."""
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}")
    if path.stat().st_size == 0:
        raise DataError(f"the file {str(path)!r} is empty")
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
    except (gzip.BadGzipFile, EOFError) as error:
        raise DataError(f"{str(path)!r} is not a whole gzip file ({error}): fetch it again") from error
    raise DataError(
        f"the kind of {path.name!r} is not known by its name; it ends in none of "
        f"{', '.join(FORMATS)} (or these with .gz). Say format='csv', 'tsv', 'jsonl' or 'parquet'."
    )


def _parquet(path: Path, zipped: bool, choose: Callable[[list[str]], Columns]) -> Table:
    source: Any = io.BytesIO(gzip.decompress(path.read_bytes())) if zipped else path
    try:
        columns = choose(pl.scan_parquet(source).collect_schema().names())
        frame = pl.scan_parquet(source).select(columns.needed()).collect()
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{str(path)!r} cannot be read as Parquet: {error}") from error
    return Table(frame, columns, np.arange(len(frame)) + 1, text=False)


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
    except pl.exceptions.PolarsError:
        frame = None
    if frame is not None and not _doubtful(frame, columns):
        return Table(frame.drop(SHORT), columns, np.arange(len(frame)) + 1 + header)
    with _open(path, zipped) as lines:
        rows = _csv_rows(lines, separator, len(names), header)
        return _carefully(rows, columns, [names.index(name) for name in columns.needed()])


def _guess_separator(first: str) -> str:
    return max(GUESSED_SEPARATORS, key=first.count)


def _fast_delimited(
    path: Path, columns: Columns, names: list[str], separator: str, header: bool
) -> pl.DataFrame:
    table = pl.scan_csv(path, separator=separator, has_header=header, infer_schema=False, new_columns=names)
    wanted = table.select(*columns.needed(), pl.col(names[-1]).is_null().alias(SHORT))
    # without push-down every field of a line is parsed, so a line with too many is noticed
    whole_lines = pl.QueryOptFlags(projection_pushdown=False)
    return wanted.collect(engine="streaming", optimizations=whole_lines)


def _doubtful(frame: pl.DataFrame, columns: Columns) -> bool:
    """Whether some line may lack a field: blank, cut short, or without an id."""
    if frame[SHORT].any():
        return True
    return any(_missing(frame[name]).any() for name in columns.needed())


def _missing(series: pl.Series) -> pl.Series:
    empty = series.is_null()
    return empty | (series == "").fill_null(False) if series.dtype == pl.String else empty


def _csv_rows(
    lines: IO[str], separator: str, width: int, header: bool
) -> Iterator[tuple[int, list[str] | str]]:
    """(line number, fields or what is wrong) for each line that is not blank."""
    reader = csv.reader(lines, delimiter=separator)
    start = 1
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield start, f"cannot be parsed ({error})"
            start = reader.line_num + 1
            continue
        if fields is None:
            return
        line, start = start, reader.line_num + 1
        if not fields or (header and line == 1):
            continue
        if len(fields) != width:
            yield line, f"has {len(fields)} fields instead of {width}"
        elif any(_undecodable(text) for text in fields):
            yield line, "is not UTF-8"
        else:
            yield line, fields


def _undecodable(text: str) -> bool:
    return not text.isascii() and any("\udc80" <= letter <= "\udcff" for letter in text)


# --- JSON lines ----------------------------------------------------------------------------------


def _json_lines(path: Path, zipped: bool, choose: Callable[[list[str]], Columns]) -> Table:
    with _open(path, zipped) as lines:
        names: dict[str, None] = {}
        for _, row in islice(_json_rows(lines), 100):
            names.update(dict.fromkeys(row) if isinstance(row, dict) else {})
    columns = choose(list(names))
    try:
        schema = dict.fromkeys(columns.needed(), pl.String)
        frame = pl.scan_ndjson(path, schema=schema).collect()
    except pl.exceptions.PolarsError:
        frame = None
    if frame is not None and not any(_missing(frame[name]).any() for name in columns.needed()):
        return Table(frame, columns, np.arange(len(frame)) + 1)
    with _open(path, zipped) as lines:
        rows = (
            (
                line,
                [_text(row.get(name)) for name in columns.needed()] if isinstance(row, dict) else row,
            )
            for line, row in _json_rows(lines)
        )
        return _carefully(rows, columns, list(range(len(columns.needed()))))


def _json_rows(lines: IO[str]) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            yield number, f"is not JSON ({error})"
            continue
        yield number, row if isinstance(row, dict) else "is not a JSON object"


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


# --- the careful reader --------------------------------------------------------------------------


def _carefully(rows: Iterator[tuple[int, list[str] | str]], columns: Columns, positions: list[int]) -> Table:
    """Collect the good rows in chunks, and name the bad ones by their line."""
    names = columns.needed()
    bad: dict[int, str] = {}
    lines: list[int] = []
    chunks: list[pl.DataFrame] = []
    while chunk := list(islice(rows, CHUNK)):
        kept: list[list[str]] = []
        for line, row in chunk:
            if isinstance(row, str):
                bad[line] = row
                continue
            values = [row[position] for position in positions]
            lacking = next((n for n, value in zip(names, values, strict=True) if value == ""), None)
            if lacking is None or lacking not in (columns.user, columns.item, columns.rating):
                kept.append(values)
                lines.append(line)
            else:
                bad[line] = f"has no {lacking}"
        schema = dict.fromkeys(names, pl.String)
        chunks.append(pl.DataFrame(kept, schema=schema, orient="row"))
    frame = pl.concat(chunks) if chunks else pl.DataFrame(schema=dict.fromkeys(names, pl.String))
    return Table(frame, columns, np.array(lines, dtype=np.int64), bad)


def _open(path: Path, zipped: bool) -> IO[str]:
    opener: Any = gzip.open if zipped else open
    handle: IO[str] = opener(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
    return handle
