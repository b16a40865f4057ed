"""The command line: one file per command. Data goes to stdout, messages go to stderr.

Exit codes: 0 success, 1 error, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import sys

import typer

from truelike._version import __version__
from truelike.cli import blocks, compare, data, demo, evaluate, events, paper, recommend, serve, train, tune
from truelike.cli.messages import fail, messages
from truelike.cli.options import command
from truelike.cli.output import ReaderGone
from truelike.errors import TruelikeError

INTERRUPTED = 130

app = typer.Typer(
    help="Top-N recommendation from implicit feedback: purchases, clicks, likes.",
    epilog="`truelike COMMAND --help` explains a command. Results are tables in a terminal and CSV in a pipe.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(command(demo.demo))
app.add_typer(data.app, name="data")
for each in (
    train.train, evaluate.evaluate, recommend.recommend, serve.serve, tune.tune, compare.compare,
    blocks.blocks,
):  # fmt: skip
    app.command()(command(each))
app.add_typer(events.app, name="events")
app.add_typer(paper.app, name="paper")


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line. Errors that truelike raises on purpose are one line, not a traceback.

    An interrupt is raised as KeyboardInterrupt, for `truelike.__main__`.
    """
    with messages():
        try:
            app(prog_name="truelike")
        except TruelikeError as error:
            fail(error)
            sys.exit(1)
        except ReaderGone:
            sys.exit(0)
        except (OSError, MemoryError) as error:  # the system's, e.g. a name that is too long
            fail(error)
            sys.exit(1)
        except SystemExit as stop:
            if stop.code == INTERRUPTED:  # typer exits so after Ctrl-C, without a message
                raise KeyboardInterrupt from None
            raise
