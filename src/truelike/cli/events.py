"""`truelike events`: export, prune and delete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from truelike.cli.messages import say
from truelike.cli.options import command, option


def export(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIRECTORY", help="Directory of `truelike serve --events`.", show_default=False),
    ],
    output: Annotated[Path, option("Parquet file.", "FILE", "--output", "-o")],
) -> None:
    """Write the events that a server kept into a Parquet file. The server may run meanwhile.

    For example:
    ```
    truelike events export events/ -o events.parquet
    ```
    """
    from truelike.serving.events import export_events

    say(f"wrote {export_events(directory, output):,} events to {output}")


def prune(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIRECTORY", help="Directory of `truelike serve --events`.", show_default=False),
    ],
    days: Annotated[float, option("Days for which events are kept.", "DAYS", min=0.0, max=36_500)],
) -> None:
    """Delete the oldest events that a server kept. The server may run meanwhile.

    For example:
    ```
    truelike events prune events/ --days 400
    ```
    """
    from truelike.serving.events import prune_events

    say(f"deleted {prune_events(directory, days):,} events of {directory}")


def delete(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIRECTORY", help="Directory of `truelike serve --events`.", show_default=False),
    ],
    user: Annotated[list[str], option("Id of a user. Can be repeated.", "ID", "--user")],
) -> None:
    """Delete all events of a user, so that the file has no trace of them. The server may run meanwhile.

    For example:
    ```
    truelike events delete events/ --user alice
    ```
    """
    from truelike.serving.events import forget_events

    say(f"deleted {forget_events(directory, user):,} events of {directory}")


app = typer.Typer(
    help="Events that `truelike serve --events` kept.", no_args_is_help=True, rich_markup_mode="markdown"
)
app.command()(command(export))
app.command()(command(prune))
app.command()(command(delete))
