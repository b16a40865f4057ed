"""The command line: one verb a file. Data on stdout, words on stderr, exit codes 0, 1 and 2."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import typer

from truelike._version import __version__
from truelike.cli import data, demo, evaluate, recommend, train
from truelike.cli.output import say
from truelike.errors import DataWarning, TruelikeError

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
app.command()(evaluate.evaluate)
app.command()(recommend.recommend)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line: errors that truelike foresees are one line, not a traceback."""
    warnings.simplefilter("always", DataWarning)
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        app()
    except TruelikeError as error:
        say(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        say("stopped")
        sys.exit(130)
    except BrokenPipeError:
        # the reader of our output has gone (`| head`): not an error, and nothing more can be written
        sys.stdout = None
        sys.exit(0)


def _show_warning(message: Any, category: type[Warning], *_: Any) -> None:
    if issubclass(category, DataWarning):
        say(f"warning: {message}")
