"""The command line: one verb a file. Data on stdout, words on stderr, exit codes 0, 1 and 2."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import typer

from truelike._version import __version__
from truelike.cli import compare, data, demo, evaluate, paper, recommend, train, tune
from truelike.cli.output import ReaderGone, say
from truelike.errors import DataWarning, TruelikeError

STOPPED = 130

app = typer.Typer(
    help="Top-N recommendation from purchases, clicks and likes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo.demo)
app.add_typer(data.app, name="data")
app.command()(train.train)
app.command()(tune.tune)
app.command()(compare.compare)
app.command()(evaluate.evaluate)
app.command()(recommend.recommend)
app.add_typer(paper.app, name="paper")


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


# what messages of the library call something else than the command line does
OPTIONS = {
    'on_bad_rows="drop"': "--drop-bad-rows",
    "header=False": "--no-header",
    "format='csv', 'tsv', 'jsonl' or 'parquet'": "--format csv, tsv, jsonl or parquet",
    'on_unknown="popular" or "skip"': "--on-unknown popular or skip",
    "read(..., time=...)": "--time",
    "split.by_user": "--by user",
    "k_core(log, user=5, item=5)": "--k-core 5",
    "min_rating": "--min-rating",
    **{f"{name}=...": f"--{name}" for name in ("user", "item", "rating", "time")},
}


def main() -> None:
    """Run the command line: errors that truelike foresees are one line, not a traceback."""
    warnings.simplefilter("always", DataWarning)
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        app()
    except TruelikeError as error:
        say(f"error: {_in_options(str(error))}")
        sys.exit(1)
    except ReaderGone:
        sys.exit(0)
    except SystemExit as stop:
        if stop.code == STOPPED:  # typer's answer to Ctrl-C, which it gives without a word
            say("stopped")
        raise


def _in_options(message: str) -> str:
    for keyword, option in OPTIONS.items():
        message = message.replace(keyword, option)
    return message


def _show_warning(message: Any, category: type[Warning], *_: Any) -> None:
    if issubclass(category, DataWarning):
        say(f"warning: {_in_options(str(message))}")
