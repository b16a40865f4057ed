"""The files of a log of any size: found, checked, and text files turned into Parquet, which databases read.

Text files are read by the readers of `truelike.data.files`, a part at a time. So their rows, and what is bad about
them, are those of `tl.read`.
"""

from __future__ import annotations

import glob
import gzip
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from truelike.data.columns import Columns
from truelike.data.files import (
    EVERY_FIELD,
    FAST_READER_FAILS,
    FORMATS,
    MOST_LINES,
    Text,
    check_file,
    check_parquet_name,
    chosen_columns,
    csv_rows,
    first_row,
    name_of,
    needed_fields,
    null_for_empty,
    scan_every_field,
    text_frame,
)
from truelike.data.frames import POLARS_ERRORS
from truelike.data.interactions import dates, microseconds
from truelike.data.parquet_check import damage
from truelike.data.written_dates import DateOrder, beginnings, order_of
from truelike.errors import DataError, quoted, some

CHUNK = 1_000_000  # rows that the careful reader holds at once
TIMES = 4_000_000  # texts of times that are parsed at once
MOST_SHOWN = 5  # bad rows in a message
MOST_BAD_TIMES = 10_000  # different texts that are no times
ADDRESS = re.compile(r"[A-Za-z][\w+.-]*://")
Choose = Callable[[list[str]], Columns]


@dataclass
class BadRows:
    """How many rows are bad, and where the first of them are."""

    total: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, where: str, reason: str) -> None:
        """Count a bad row."""
        self.total += 1
        if len(self.first) < MOST_SHOWN:
            self.first.append(f"{where} {reason}")

    def __str__(self) -> str:
        more = self.total - len(self.first)
        return "; ".join([*self.first, *[f"and {more:,} more"] * (more > 0)])


@dataclass
class TextFile:
    """A CSV or TSV file, and what it takes to read it."""

    text: Text
    separator: str
    names: list[str]
    columns: Columns

    def rows(self, bad: BadRows | None = None) -> Iterator[tuple[int, list[str]]]:
        """(line, needed fields) of each row that can be read; the others are counted."""
        positions = [self.names.index(name) for name in self.columns.needed()]
        with self.text.lines() as lines:
            rows = csv_rows(lines, self.separator, len(self.names), True, self.text)
            for line, row in needed_fields(rows, self.columns, positions):
                if not isinstance(row, str):
                    yield line, row
                elif bad is not None:
                    bad.add(f"line {line} of {quoted(self.text.path.name)}", row)


@dataclass
class LogFiles:
    """A log: the Parquet files to read, its columns, and rows that are bad already."""

    parquet: list[str]
    columns: Columns
    text: bool = False
    hive: bool = False  # whether needed columns are in the names of directories, as key=value
    bad: BadRows = field(default_factory=BadRows)
    origins: dict[str, tuple[TextFile, int]] = field(default_factory=dict)  # of a Parquet file: text, first row

    def add(self, file: Path, source: TextFile, first: int) -> None:
        """Add a Parquet file that has the rows of a text file from number `first` on."""
        self.parquet.append(str(file))
        self.origins[str(file)] = (source, first)

    def stored(self, column: str) -> str:
        """The name of a column in the Parquet files."""
        return own_name(self.columns, column) if self.text else column

    def where(self, file: str, row: int) -> str:
        """The place of a row, for a message."""
        if file not in self.origins:
            return f"row {row} (counted from 0) of {quoted(Path(file).name)}"
        text, first = self.origins[file]
        line = next(islice(text.rows(), first + row, None))[0]
        return f"line {line} of {quoted(text.text.path.name)}"


def own_name(columns: Columns, name: str) -> str:
    """The name of a column of a text file in the Parquet file: databases do not tell User from user."""
    return f"c{columns.needed().index(name)}"


def find(source: Any) -> tuple[list[str], str, str]:
    """The files of a source, sorted; their format; and a name.

    >>> find("no/such/file.csv")
    Traceback (most recent call last):
    ...
    truelike.errors.DataError: there is no file 'no/such/file.csv'
    """
    given = [source] if isinstance(source, (str, os.PathLike)) else source
    is_list = isinstance(given, Sequence) and len(given) > 0
    if not is_list or not all(isinstance(each, (str, os.PathLike)) for each in given):
        raise DataError(
            f"the log is {type(source).__name__}; expected a Dataset, the path of a Parquet or CSV file or of a "
            "directory of them, a pattern such as 'log/*.parquet', or a list of paths"
        )
    files = list(dict.fromkeys(file for each in given for file in _files_of(os.fspath(each))))
    formats = {_format(file) for file in files}
    if len(formats) > 1:
        raise DataError(
            f"the log has files of several formats: {some(sorted(formats))}. Give those of one format at a time."
        )
    first = Path(os.fspath(given[0]))
    name = name_of(files[0] if len(given) > 1 or set("*?[") & set(first.name) else first)
    if formats == {"parquet"}:
        for file in files:
            check_parquet_name(file)
    return files, formats.pop(), name


def _files_of(given: str) -> list[str]:
    """The files of a path, a directory or a pattern."""
    if ADDRESS.match(given):
        return [given]
    path, is_pattern = Path(given), bool(set("*?[") & set(given))
    try:
        if path.is_dir():
            found = sorted(str(each) for each in path.rglob("*") if _is_data(each, path))
        elif is_pattern and not path.exists():
            found = sorted(each for each in glob.glob(given, recursive=True) if Path(each).is_file())  # noqa: PTH207
        else:
            check_file(path)
            return [given]
    except OSError as error:
        raise DataError(f"{quoted(given)} cannot be read: {error.strerror or error}") from error
    if not found:
        raise DataError(
            f"no file matches {quoted(given)}" if is_pattern else f"there are no files in {quoted(given)}"
        )
    return found


def _is_data(path: Path, root: Path) -> bool:
    """Whether a path is a file that is not hidden and not like _SUCCESS."""
    return path.is_file() and not any(part[0] in "._" for part in path.relative_to(root).parts)


def _format(file: str) -> str:
    suffixes = [suffix.lower() for suffix in Path(file).suffixes]
    zipped = suffixes[-1:] == [".gz"]
    named = suffixes[: -1 if zipped else None]
    kind = FORMATS.get(named[-1] if named else "")
    if kind == "parquet" and not zipped:
        return "parquet"
    if kind in ("csv", "tsv") and not ADDRESS.match(file):
        return "csv"
    raise DataError(
        f"{quoted(file)} cannot be read: expected Parquet files (.parquet, .pq), or CSV or TSV files on this machine "
        "(.csv, .tsv, .txt, also with .gz). Convert it, or name the files one by one."
    )


# --- Parquet -------------------------------------------------------------------------------------


def check_parquet(files: list[str], columns: Columns) -> None:
    """Raise an error for a file that is damaged. Only its footer and the headers of its pages are read."""
    for file in files:
        if ADDRESS.match(file):
            continue
        path = Path(file)
        check_file(path)
        try:
            with path.open("rb") as handle:
                wrong = damage(handle, set(columns.needed()))
        except OSError as error:
            raise DataError(f"{quoted(path)} cannot be read: {error.strerror or error}") from error
        if wrong:
            raise DataError(f"{quoted(path)} is damaged: {wrong}. Fetch or write it again.")


# --- CSV and TSV ---------------------------------------------------------------------------------


def from_text(files: list[str], choose: Choose, scratch: Path) -> LogFiles:
    """Write the needed columns of text files to Parquet files in `scratch`, a part of a file at a time."""
    log: LogFiles | None = None
    for number, path in enumerate(map(Path, files)):
        try:
            check_file(path)
            text = Text(path, zipped=path.suffix.lower() == ".gz", encoding="utf-8")
            tabs = ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]]
            separator, names = first_row(text, "\t" if tabs else None)
            columns = chosen_columns(names, choose, path, True)
            log = log or LogFiles([], columns, text=True)
            if columns != log.columns:
                raise DataError(
                    f"{quoted(path)} has the columns {some(columns.needed())}, and {quoted(files[0])} has "
                    f"{some(log.columns.needed())}. Name the columns, or give files with the same header."
                )
            _convert(TextFile(text, separator, names, columns), log, scratch / f"text-{number:05}")
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"{quoted(path)} is not a whole gzip file ({error}). Fetch it again.") from error
    assert log is not None  # a log has a file
    return log


def _convert(source: TextFile, log: LogFiles, target: Path) -> None:
    plain = source.text
    if plain.zipped:
        plain = Text(target.with_suffix(".csv"), zipped=False, encoding="utf-8")
        with gzip.open(source.text.path, "rb") as packed, plain.path.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 2**20)
    file = target.with_suffix(".parquet")
    if _fast(source, plain, file):
        log.add(file, source, 0)
    else:
        _carefully(source, log, target)
    if plain is not source.text:
        plain.path.unlink()


def _fast(source: TextFile, plain: Text, target: Path) -> bool:
    """Convert by polars; False where the careful reader has to look at the file, as in `truelike.data.files`."""
    from truelike.data.scan import csv_is_plain

    width, needed = len(source.names), source.columns.needed()
    try:
        if not csv_is_plain(plain.blocks(), source.separator, width, MOST_LINES):
            return False
        wanted = (
            scan_every_field(plain.path.absolute(), source.separator, width)
            .slice(1)
            .select(
                null_for_empty(str(source.names.index(name))).alias(own_name(source.columns, name))
                for name in needed
            )
        )
        wanted.sink_parquet(target, compression="lz4", engine="streaming", optimizations=EVERY_FIELD)
        written = pl.scan_parquet(target, glob=False)
        lacking = [pl.col(own_name(source.columns, name)).is_null().any() for name in source.columns.required()]
        return not any(written.select(lacking).collect(engine="streaming").row(0))
    except FAST_READER_FAILS as error:
        if "No space left" in str(error):
            raise
        return False


def _carefully(source: TextFile, log: LogFiles, target: Path) -> None:
    """Convert line by line, and count the lines that cannot be read."""
    names = [own_name(source.columns, name) for name in source.columns.needed()]
    rows, first = source.rows(log.bad), 0
    while part := [row for _, row in islice(rows, CHUNK)]:
        file = Path(f"{target}-{first}.parquet")
        text_frame(part, names).write_parquet(file, compression="lz4")
        log.add(file, source, first)
        first += len(part)


# --- times that are text -------------------------------------------------------------------------

READINGS: dict[str, Callable[[pl.Series], pl.Series]] = {
    "whole numbers": lambda texts: texts.cast(pl.Int64, strict=False),
    "seconds": lambda texts: microseconds(texts.cast(pl.Float64, strict=False)),
    "dates": dates,
    "day-first": partial(dates, order="day-first"),
    "month-first": partial(dates, order="month-first"),
}


def read_text_times(log: LogFiles, column: str, order: DateOrder | None) -> tuple[str, list[str] | None]:
    """How to read times that are text, and the texts that cannot be read so: the rules of `tl.read`.

    None instead of the texts if there are too many different ones.
    """
    named, column = column, log.stored(column)
    numbers = ["whole numbers", "seconds"]
    nulls, n = _count_unread(log, column, numbers)
    how = min(numbers, key=nulls.__getitem__)
    if 2 * nulls[how] >= n and nulls[how]:
        found = pl.concat(beginnings(texts) for texts in _texts(log, column))
        as_dates = order_of(found.unique().sort("text"), order, named) or "dates"
        of_dates, _ = _count_unread(log, column, [as_dates])
        nulls |= of_dates
        how = min((how, as_dates), key=nulls.__getitem__)
    unread: set[str] = set()
    if nulls[how]:
        for texts in _texts(log, column):
            unread.update(texts.filter(READINGS[how](texts).is_null() & texts.is_not_null()).unique())
            if len(unread) > MOST_BAD_TIMES:
                return how, None
    return how, sorted(unread)


def _count_unread(log: LogFiles, column: str, readings: list[str]) -> tuple[dict[str, int], int]:
    nulls, n = dict.fromkeys(readings, 0), 0
    for texts in _texts(log, column):
        n += len(texts)
        for how in readings:
            nulls[how] += READINGS[how](texts).null_count()
    return nulls, n


def _texts(log: LogFiles, column: str) -> Iterator[pl.Series]:
    for file in log.parquet:
        table = pl.scan_parquet(file, glob=False, hive_partitioning=log.hive)
        try:
            for first in range(0, table.select(pl.len()).collect().item(), TIMES):
                yield table.select(pl.col(column).cast(pl.String)).slice(first, TIMES).collect()[column]
        except POLARS_ERRORS as error:
            raise DataError(f"{quoted(file)} cannot be read: {some([error], longest=300)}") from error
