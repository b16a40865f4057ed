"""What a database does for a block directory: it checks the rows, finds the items, and puts users into groups.

DuckDB works on files of any size within a limit of memory: what does not fit is written to a scratch directory. Tables
are exchanged as Parquet files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from truelike.core.parallel import in_background
from truelike.data.blocks.sources import (
    ADDRESS,
    MOST_BAD_TIMES,
    READINGS,
    BadRows,
    Choose,
    LogFiles,
    check_parquet,
    read_text_times,
)
from truelike.data.columns import Columns
from truelike.data.frames import repeated
from truelike.data.ids import Kind, check_count, normalise
from truelike.data.interactions import LARGEST, SMALLEST, as_integers, parse_times, warn_of_zeros
from truelike.data.written_dates import DateOrder
from truelike.errors import (
    DataError,
    DataWarning,
    MissingExtraError,
    StorageError,
    TooLargeError,
    quoted,
    some,
    warn,
)

SHARE = 0.6  # of the memory that DuckDB may use: it does not count all that it takes
INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
WIDE = {"UBIGINT", "HUGEINT", "UHUGEINT"}
FLOATS = {"FLOAT", "DOUBLE"}
NUMBER = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"  # what polars reads as a number
EMPTY = (
    "the dataset is empty: no row is left. Check that it is the right file, and that min_rating is not too high."
)
REASONS = ("user", "item", "time", "weight", "rating")


def duckdb() -> Any:
    """The package; an error that says how to install it."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError('block directories of files need DuckDB: pip install "truelike[big]"') from error
    return duckdb


@dataclass(frozen=True)
class Connection:
    """A connection whose queries Ctrl-C ends at once."""

    own: Any

    def execute(self, query: str) -> Any:
        """The result of a query."""
        try:
            return in_background(lambda: self.own.execute(query))
        except KeyboardInterrupt:
            self.own.interrupt()
            raise


@contextmanager
def connected(scratch: Path, memory: int, threads: int, *, network: bool = False) -> Iterator[Connection]:
    """A connection to a database in memory that spills to `scratch`, with errors that say what to do."""
    package = duckdb()
    try:
        with package.connect(":memory:") as connection:
            settings: dict[str, Any] = {
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": network,
                "enable_progress_bar": False,
                "memory_limit": f"{int(SHARE * memory / 1e6)}MB",
                "preserve_insertion_order": False,
                "temp_directory": str(scratch / "spilled"),
                "threads": threads,
            }
            for name, value in settings.items():
                connection.execute(f"SET {name} = {text(value) if isinstance(value, str) else value}")
            yield Connection(connection)
    except package.OutOfMemoryException as error:
        if "max_temp_directory_size" in str(error) or "No space left" in str(error):
            raise _full(scratch, error) from error
        raise TooLargeError(
            f"memory={memory / 1e9:.3g} GB is too little for this log ({_first_line(error)}). Give more, e.g. "
            f'memory="{max(1, round(2 * memory / 1e9))}GB".'
        ) from error
    except package.IOException as error:
        if "No space left" in str(error) or "disk" in str(error).lower():
            raise _full(scratch, error) from error
        raise DataError(f"the log cannot be read: {_first_line(error)}. Fetch or write the file again.") from error
    except package.Error as error:
        raise DataError(f"the log cannot be read: {_first_line(error)}") from error


def _full(scratch: Path, error: Exception) -> StorageError:
    return StorageError(
        f"the disk of {str(scratch.parent)!r} is full ({_first_line(error)}). Free some space, or name a directory on "
        "another disk with scratch=..."
    )


def _first_line(error: Exception) -> str:
    return some([str(error).strip().splitlines()[0] if str(error).strip() else error], longest=300)


def text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def path(file: str) -> str:
    """The path of a file in SQL, where it is a pattern; so is an address.

    >>> path("log[1].parquet"), path("s3://logs/*.parquet")
    ("'log[[]1].parquet'", "'s3://logs/*.parquet'")
    """
    return text(file if ADDRESS.match(file) else re.sub(r"[*?[]", r"[\g<0>]", file))


def name(value: str) -> str:
    """A name in SQL."""
    return '"' + value.replace('"', '""') + '"'


@dataclass
class Checked:
    """What a look at all rows found."""

    items: pl.Series
    kinds: dict[str, Kind]
    rows: int  # that were read
    kept: int  # that are interactions
    dropped: int  # that are bad


@dataclass
class LogTable:
    """The rows of a log in SQL, by the rules of `tl.read`."""

    connection: Connection
    log: LogFiles
    scratch: Path
    min_rating: float | None
    dates: DateOrder | None = None

    def __post_init__(self) -> None:
        columns = self.log.columns
        self.types, self.time = self._types(), ""  # of the needed columns; how times that are text are read
        for role, column in (("user", columns.user), ("item", columns.item)):
            kind = self.types[column]
            if kind not in INTEGERS | WIDE | FLOATS | {"VARCHAR", "BOOLEAN", "UUID"} and kind[:4] != "ENUM":
                raise DataError(
                    f"the {role} ids (column {quoted(column)}) are of the type {some([kind])}; all must be strings, "
                    "or integers, or UUIDs. Turn them into strings first."
                )
        self.timed, self.bad_times = columns.time is not None, ""
        self.user_key = self._as_id(columns.user, "u")
        if columns.time is not None and self.types[columns.time] == "VARCHAR":
            self._settle_times(columns.time)

    # --- the source ------------------------------------------------------------------------------

    def _source(self, files: list[str], more: str = "") -> str:
        listed = "[" + ", ".join(map(path, files)) + "]"
        hive = str(self.log.hive).lower()
        return f"read_parquet({listed}, union_by_name = true, hive_partitioning = {hive}{more})"

    def _types(self) -> dict[str, str]:
        """The type of each needed column; an error if that of ids differs between files."""
        needed = {column: self.log.stored(column) for column in self.log.columns.needed()}
        first: dict[str, str] = {}
        for file in self.log.parquet:
            types = described(self.connection, self._source([file]))
            for column, stored in needed.items():
                if stored not in types:
                    raise DataError(
                        f"there is no column {quoted(column)} in {quoted(file)}; it has {some(types, 20)}"
                    )
                before = first.setdefault(column, types[stored])
                if (before != types[stored]) and not {before, types[stored]} <= INTEGERS:
                    raise DataError(
                        f"the column {quoted(column)} is of the type {types[stored]} in {quoted(file)} and {before} in "
                        f"{quoted(self.log.parquet[0])}. Write all files with the same types."
                    )
        whole = described(self.connection, self._source(self.log.parquet))
        return {column: whole[stored] for column, stored in needed.items()}

    def _as_id(self, column: str, alias: str) -> str:
        """An id as it is written: as a 64-bit integer or as text, or as it is if all rows have to be known first."""
        kind = self.types[column]
        if kind in INTEGERS:
            return f"CAST({alias} AS BIGINT)"
        return alias if kind in WIDE | FLOATS else f"CAST({alias} AS VARCHAR)"

    def _missing(self, column: str, alias: str) -> str:
        kind = self.types[column]
        if kind == "VARCHAR":
            return f"({alias} IS NULL OR {alias} = '')"
        return f"({alias} IS NULL OR isnan({alias}))" if kind in FLOATS else f"({alias} IS NULL)"

    # --- times -----------------------------------------------------------------------------------

    def _settle_times(self, column: str) -> None:
        self.time, unread = read_text_times(self.log, column, self.dates)
        if unread is None and not self.log.columns.time_guessed:
            raise DataError(
                f"the column {quoted(column)} cannot be read as times: it has more than {MOST_BAD_TIMES:,} different "
                "values that are none. Name the right column with time=..."
            )
        if unread is None:
            self._no_times(column, "many")
        elif unread:
            target = self.scratch / "bad-times.parquet"
            pl.DataFrame({"t": unread}, schema={"t": pl.String}).write_parquet(target)
            self.bad_times = f" OR t IN (SELECT t FROM read_parquet({path(str(target))}))"

    def _no_times(self, column: str, count: str) -> None:
        self.timed = False
        warn(
            f"the column {quoted(column)} looks like a time, but {count} of its values cannot be read as one, so times "
            "are not used. Name the right column with time=...",
            DataWarning,
        )

    def _no_time(self) -> str:
        """Whether a row has no time that can be read."""
        kind = self.types[str(self.log.columns.time)]
        if kind == "VARCHAR":
            return f"(t IS NULL{self.bad_times})"
        if kind in FLOATS:
            return "(NOT coalesce(isfinite(t) AND abs(t * 1e6) < 9223372036854775808, false))"
        if kind in INTEGERS | WIDE:
            return "(TRY_CAST(t AS BIGINT) IS NULL)"
        return "(t IS NULL)" if kind in ("DATE", "BOOLEAN") or kind.startswith("TIMESTAMP") else "true"

    # --- numbers ---------------------------------------------------------------------------------

    def _number(self, column: str, alias: str) -> str:
        """A rating or weight as a number; NULL if it is none."""
        kind = self.types[column]
        if kind == "VARCHAR":
            return f"CASE WHEN regexp_full_match({alias}, {text(NUMBER)}) THEN TRY_CAST({alias} AS DOUBLE) END"
        if kind in INTEGERS | WIDE | FLOATS | {"BOOLEAN"} or kind.startswith("DECIMAL"):
            return f"CAST({alias} AS DOUBLE)"
        return "CAST(NULL AS DOUBLE)"

    def _rows(self, *, numbered: bool = False) -> str:
        """A query of the rows, with the reason why each is bad (0: it is good), and whether it is kept.

        `zero` says whether a row would be kept if its weight were not 0.
        """
        columns = self.log.columns
        roles = {"u": columns.user, "i": columns.item, "r": columns.rating, "t": columns.time, "w": columns.weight}
        selected = [
            f"{name(self.log.stored(column))} AS {alias}" for alias, column in roles.items() if column is not None
        ]
        more = ", filename = true, file_row_number = true" if numbered else ""
        if numbered:
            selected += ["filename AS file", "file_row_number AS row"]
        whys = [self._missing(columns.user, "u"), self._missing(columns.item, "i"), "false", "false", "false"]
        kept, zero, computed = ["why = 0"], ["why = 0"], ["*"]
        if self.timed and not columns.time_guessed:
            whys[2] = self._no_time()
        if columns.weight is not None:
            computed.append(f"{self._number(columns.weight, 'w')} AS wx")
            whys[3] = (
                f"(wx IS NULL OR NOT isfinite(wx) OR wx < 0 OR wx > {LARGEST!r} OR (wx > 0 AND wx < {SMALLEST!r}))"
            )
            kept.append("wx > 0")
            zero.append("wx = 0")
        if self.min_rating is not None:
            computed.append(f"{self._number(str(columns.rating), 'r')} AS rx")
            whys[4] = "(rx IS NULL OR NOT isfinite(rx))"
            kept.append(f"rx >= {float(self.min_rating)!r}")
            zero.append(kept[-1])
        cases = " ".join(f"WHEN {why} THEN {number}" for number, why in enumerate(whys, 1))
        inner = f"SELECT {', '.join(selected)} FROM {self._source(self.log.parquet, more)}"
        is_zero = "false" if columns.weight is None else " AND ".join(zero)
        return (
            f"SELECT *, {' AND '.join(kept)} AS kept, {is_zero} AS zero FROM (SELECT *, CASE {cases} ELSE 0 END AS why "
            f"FROM (SELECT {', '.join(computed)} FROM ({inner})))"
        )

    # --- the two passes --------------------------------------------------------------------------

    def check(self, on_bad_rows: str) -> Checked:
        """Look at all rows: which are bad, and the items of the others. The ids of users get their type."""
        columns, user_kind = self.log.columns, self.types[self.log.columns.user]
        odd = "false"  # users that are no 64-bit integers
        if user_kind in FLOATS:
            odd = "NOT coalesce(isfinite(u) AND u = trunc(u) AND abs(u) < 9223372036854775808, false)"
        elif user_kind in WIDE:
            odd = "TRY_CAST(u AS BIGINT) IS NULL"
        elif self.log.text:
            odd = "CAST(TRY_CAST(u AS BIGINT) AS VARCHAR) IS DISTINCT FROM u"
        timeless = f"why NOT IN (1, 2) AND {self._no_time()}" if self.timed and columns.time_guessed else "false"
        target = self.scratch / "items.parquet"
        self.connection.execute(
            f"COPY (SELECT CASE WHEN kept THEN {self._as_id(columns.item, 'i')} END AS item, why, count(*) AS n, "
            f"count(*) FILTER (kept AND {odd}) AS odd, count(*) FILTER ({timeless}) AS timeless, "
            "count(*) FILTER (zero) AS zero, "
            f"bool_or(kept) AS kept FROM ({self._rows()}) GROUP BY ALL) TO {text(str(target))} (FORMAT parquet)"
        )
        found = pl.read_parquet(target, glob=False)
        if wrong := int(found["timeless"].sum()):
            self._no_times(str(columns.time), f"{wrong:,}")
        bad, kept = found.filter(pl.col("why") > 0), found.filter("kept")
        n_bad = self.log.bad.total + int(bad["n"].sum())
        if n_bad:
            self._report(n_bad, on_bad_rows, in_table=len(bad) > 0)
        if zero := int(found["zero"].sum()):
            self._warn_of_zeros(zero)
        if not len(kept):
            raise DataError(EMPTY)
        user = self._settle_users(bool(kept["odd"].sum()))
        items, kind = self._settle_items(kept["item"])
        rows = self.log.bad.total + int(found["n"].sum())
        return Checked(items, {"user": user, "item": kind}, rows, int(kept["n"].sum()), n_bad)

    def _warn_of_zeros(self, n: int) -> None:
        """Say how many users and items are lost with the rows of weight 0."""
        lost = {
            role: self.connection.execute(
                f"SELECT count(*) FROM (SELECT {key} FROM ({self._rows()}) WHERE kept OR zero GROUP BY {key} "
                "HAVING NOT bool_or(kept))"
            ).fetchall()[0][0]
            for role, key in (("users", "u"), ("items", "i"))
        }
        warn_of_zeros(n, str(self.log.columns.weight), **lost)

    def _settle_users(self, odd: bool) -> Kind:
        kind = self.types[self.log.columns.user]
        if kind in FLOATS and odd:
            query = (
                f"SELECT u FROM ({self._rows()}) WHERE kept AND (u <> trunc(u) OR abs(u) >= 9223372036854775808)"
            )
            wrong = self.connection.execute(f"{query} LIMIT 3").fetchall()
            normalise(pl.Series([float(value) for (value,) in wrong], dtype=pl.Float64), "user")  # raises
        if kind in WIDE | FLOATS or self.log.text:
            self.user_key = f"CAST(u AS {'VARCHAR' if odd and kind not in FLOATS else 'BIGINT'})"
            return "str" if odd and kind not in FLOATS else "int"
        return "int" if kind in INTEGERS else "uuid" if kind == "UUID" else "str"

    def _settle_items(self, keys: pl.Series) -> tuple[pl.Series, Kind]:
        """The sorted ids of the items and their kind. The numbers of the items are written for `group`."""
        values, kind = normalise(keys, "item")
        if self.log.text and kind == "str":
            kind = as_integers(values, np.empty(0, dtype=np.int32))[2]
            values = values.cast(pl.Int64) if kind == "int" else values
        if self.types[self.log.columns.item] == "UUID":
            kind = "uuid"
        check_count(len(values), "items")
        numbered = pl.DataFrame({"key": keys, "id": values}).sort("id").with_row_index("code")
        codes = numbered.select("key", pl.col("code").cast(pl.Int32))
        codes.write_parquet(self.scratch / "codes.parquet")
        return numbered["id"].alias("item_id"), kind

    def _report(self, n_bad: int, on_bad_rows: str, *, in_table: bool) -> None:
        """An error that tells of the bad rows; a warning where they are to be dropped."""
        shown = BadRows(n_bad, list(self.log.bad.first))
        if in_table:
            query = f"SELECT file, row, why FROM ({self._rows(numbered=True)}) WHERE why > 0 ORDER BY file, row LIMIT 5"
            for file, row, why in self.connection.execute(query).fetchall():
                role = REASONS[why - 1]
                usable = "" if role in ("user", "item") else "usable "
                column = quoted(getattr(self.log.columns, role))
                shown.first.append(f"{self.log.where(file, row)} has no {usable}{role} (column {column})")
            del shown.first[5:]
        report_bad_rows(shown, on_bad_rows)

    def group(self, target: Path, groups: int, flush: int) -> None:
        """Write the kept rows as (user id, number of the item, ...), the rows of a user in one group."""
        columns = self.log.columns
        ordered = columns.weight is not None  # the rounding of a sum depends on the order of the rows
        selected = [f"{self.user_key} AS u", "code AS i", *["w", "file", "row"] * ordered]
        if self.timed:
            selected.append("CAST(t AS VARCHAR) AS t" if self.types[str(columns.time)].startswith("ENUM") else "t")
        self.connection.execute(f"SET partitioned_write_flush_threshold = {flush}")
        self.connection.execute(f"SET partitioned_write_max_open_files = {max(100, groups)}")
        codes = path(str(self.scratch / "codes.parquet"))
        self.connection.execute(
            f"COPY (SELECT {', '.join(selected)}, hash({self.user_key}) % {groups} AS part "
            f"FROM (SELECT * FROM ({self._rows(numbered=ordered)}) WHERE kept) "
            f"JOIN read_parquet({codes}) AS codes ON {self._as_id(columns.item, 'i')} = codes.key) "
            f"TO {text(str(target))} (FORMAT parquet, PARTITION_BY (part), COMPRESSION uncompressed)"
        )

    def times(self, series: pl.Series) -> pl.Series:
        """The times of rows as whole numbers."""
        return READINGS[self.time](series) if self.time else parse_times(series)


def report_bad_rows(bad: BadRows, on_bad_rows: str) -> None:
    """An error that tells of the bad rows; a warning where they are to be dropped."""
    if not bad.total:
        return
    if on_bad_rows == "drop":
        warn(f"dropped {bad.total:,} bad row{'s' * (bad.total > 1)}: {bad}.", DataWarning)
        return
    are, them = ("row is", "it") if bad.total == 1 else ("rows are", "them")
    raise DataError(f'{bad.total:,} {are} bad: {bad}. Fix {them}, or pass on_bad_rows="drop" to read the others.')


def described(connection: Connection, source: str) -> dict[str, str]:
    """The types of the columns of a source, by their names."""
    rows = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    return {row[0]: row[1] for row in rows}


def open_parquet(connection: Connection, files: list[str], choose: Choose) -> LogFiles:
    """The columns of Parquet files, which are checked.

    A directory named key=value is a column only where no file has it.
    """
    check_parquet(files, Columns("", ""))
    names: dict[str, None] = {}
    for file in files:
        own = list(described(connection, f"read_parquet({path(file)}, hive_partitioning = false)"))
        if twice := repeated(each.lower() for each in own):
            raise DataError(
                f"{quoted(file)} has more than one column named {some(twice)}. Rename all but one of them."
            )
        names.update(dict.fromkeys(own))
    keys = dict.fromkeys(part.partition("=")[0] for file in files for part in Path(file).parts[:-1] if "=" in part)
    columns = choose(list({**names, **keys}))
    needed = columns.needed()
    log = LogFiles(files, columns, hive=any(each not in names for each in needed))
    known = {each.lower() for each in keys}
    if log.hive and (both := [each for each in needed if each in names and each.lower() in known]):
        raise DataError(
            f"the column {some(both)} is in the files and, with other values maybe, in the names of their directories. "
            "Move the files to directories without it."
        )
    check_parquet(files, columns)
    return log


def sort_users(scratch: Path, memory: int, threads: int, sources: list[Path], target: Path) -> None:
    """Write the users of all groups in the order of their ids."""
    with connected(scratch, memory, threads) as connection:
        listed = ", ".join(path(str(source)) for source in sources)
        connection.execute("SET preserve_insertion_order = true")
        connection.execute(
            f"COPY (SELECT * FROM read_parquet([{listed}]) ORDER BY u) TO {text(str(target))} (FORMAT parquet)"
        )
