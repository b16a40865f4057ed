"""How verbs speak: words to stderr; tables to a terminal, CSV to a pipe, Parquet, CSV or JSONL to a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truelike.errors import ParameterError

if TYPE_CHECKING:
    import polars as pl


def say(text: str) -> None:
    """Say something to the person at the terminal."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def emit(frame: pl.DataFrame, *, output: Path | None = None, title: str = "", digits: int = 4) -> None:
    """Put a frame where it was asked for."""
    if output is not None:
        write(frame, output)
        say(f"wrote {len(frame):,} rows to {output}")
    elif sys.stdout.isatty():
        show(frame, title=title, digits=digits)
    else:
        sys.stdout.write(frame.write_csv())


def plain(frame: pl.DataFrame) -> pl.DataFrame:
    """UUID objects as text: files and terminals have no other way."""
    import polars as pl

    objects = [name for name, dtype in frame.schema.items() if dtype == pl.Object]
    return frame.with_columns([pl.Series(name, [str(v) for v in frame[name]]) for name in objects])


def write(frame: pl.DataFrame, output: Path) -> None:
    """Write a frame in the format that the name ends in."""
    from truelike.files import replacing_file

    writers: dict[str, Any] = {
        ".csv": frame.write_csv,
        ".tsv": lambda path: frame.write_csv(path, separator="\t"),
        ".jsonl": frame.write_ndjson,
        ".parquet": frame.write_parquet,
    }
    if output.suffix not in writers:
        raise ParameterError(f"{str(output)!r} ends in none of {', '.join(writers)}")
    with replacing_file(output) as fresh:
        writers[output.suffix](fresh)


def show(frame: pl.DataFrame, *, title: str = "", digits: int = 4) -> None:
    """A table for people, on stdout."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", title_style="bold")
    for name, dtype in frame.schema.items():
        table.add_column(name, justify="right" if dtype.is_numeric() else "left")
    for row in frame.iter_rows():
        table.add_row(*(_cell(value, digits) for value in row))
    console = Console()
    if not console.is_terminal:
        console.width = 110
    console.print(table)


def _cell(value: Any, digits: int) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)
