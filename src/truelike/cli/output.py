"""How verbs speak: words to stderr; tables to a terminal, CSV to a pipe, Parquet, CSV or JSONL to a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truelike.errors import ParameterError, StorageError

if TYPE_CHECKING:
    import polars as pl


class ReaderGone(Exception):  # noqa: N818 - nothing went wrong
    """Nobody reads our output any more (`| head`)."""


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
        put(frame.write_csv())


def put(text: str) -> None:
    """Write to stdout at once, so that what goes wrong with it is known here."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # what is left in the buffer would be tried once more, and fail, when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise ReaderGone from error
        raise StorageError(f"the output cannot be written: {error.strerror}") from error


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


def show(frame: pl.DataFrame, *, title: str = "", digits: int = 4, aside: bool = False) -> None:
    """A table for people, on stdout, or `aside` on stderr."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from truelike.report.cells import cell, digits_of

    table = Table(title=Text(title) if title else None, title_justify="left", title_style="bold")
    for name, dtype in frame.schema.items():
        table.add_column(Text(name), justify="right" if dtype.is_numeric() else "left")
    places = [digits_of(name, digits) for name in frame.columns]
    for row in frame.iter_rows():
        # as Text, so that an id such as "[/red]" is not taken for markup
        table.add_row(*(Text(cell(value, n)) for value, n in zip(row, places, strict=True)))
    console = Console(stderr=aside)
    if not console.is_terminal:
        console.width = 110
    with console.capture() as drawn:
        console.print(table)
    if aside:
        say(drawn.get().rstrip("\n"))
    else:
        put(drawn.get())
