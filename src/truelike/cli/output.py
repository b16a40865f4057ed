"""Data on stdout: tables in a terminal, CSV in a pipe; Parquet, CSV, TSV or JSONL in a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truelike.cli.messages import say
from truelike.errors import StorageError

if TYPE_CHECKING:
    import polars as pl

ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")
LONG_NAME = 30  # characters; longer names of models are wrapped
WIDTH = 110  # of a table that is not shown in a terminal


class ReaderGone(Exception):  # noqa: N818 - not an error
    """The reader of the output has closed it (`| head`)."""


def emit(frame: pl.DataFrame, *, output: Path | None = None, title: str = "", digits: int = 4) -> None:
    """Write a frame to a file, or show it in a terminal, or print it as CSV."""
    if output is not None:
        write(frame, output)
    elif sys.stdout.isatty():
        show(frame, title=title, digits=digits)
    else:
        put(frame.write_csv())


def put(text: str) -> None:
    """Write to stdout and flush, so that an error occurs here and not when Python ends."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Python flushes the buffer again at its end, which would fail once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise ReaderGone from error
        raise StorageError(f"the output cannot be written: {error.strerror}") from error


def check_output(output: Path | None) -> None:
    """Raise an error before the work for a file that could not be written after it."""
    from truelike.core.files import check_file

    if output is not None:
        check_file(output, ENDINGS)


def write(frame: pl.DataFrame, output: Path) -> None:
    """Write a frame in the format that the name ends in."""
    from truelike.core.files import replacing_file

    check_output(output)
    writers: dict[str, Any] = {
        ".csv": frame.write_csv,
        ".tsv": lambda path: frame.write_csv(path, separator="\t"),
        ".jsonl": frame.write_ndjson,
        ".parquet": frame.write_parquet,
    }
    with replacing_file(output) as fresh:
        writers[output.suffix](fresh)
    say(f"wrote {len(frame):,} rows to {output}")


def show(frame: pl.DataFrame, *, title: str = "", digits: int = 4) -> None:
    """Print a table of rounded figures on stdout."""
    put(drawn(frame, title=title, digits=digits))


def drawn(frame: pl.DataFrame, *, title: str = "", digits: int = 4) -> str:
    """A table of rounded figures as text."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from truelike.report import cell, digits_of

    table = Table(title=Text(title) if title else None, title_justify="left", title_style="bold")
    places = [digits_of(name, digits) for name in frame.columns]
    rows = [[cell(value, n) for value, n in zip(row, places, strict=True)] for row in frame.iter_rows()]
    for number, (name, dtype) in enumerate(frame.schema.items()):
        # in a narrow terminal text is wrapped, and figures are never cut
        is_number = dtype.is_numeric()
        header = name.replace(" ", "\n") if is_number else name
        longest = max(map(len, [*header.splitlines(), *(row[number] for row in rows)]), default=0)
        table.add_column(
            Text(header),
            justify="right" if is_number else "left",
            no_wrap=is_number or (name == "model" and longest <= LONG_NAME),
            min_width=longest if is_number else None,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(Text, row))  # as Text, so that an id such as "[/red]" is not taken for markup
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    with console.capture() as captured:
        console.print(table)
    return captured.get()
