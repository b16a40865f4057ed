"""Options that several commands share: added to a command's signature, where typer finds them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import typer

Options = Mapping[str, tuple[Any, Any]]  # by parameter: its type and its typer.Option

N_JOBS = typer.Option(
    "--n-jobs", metavar="N", help="Number of threads; -1: all cores. Does not change the result."
)
N_WORKERS = typer.Option("--n-workers", metavar="N", help="Number of processes; -1: one for each core.")
OUTPUT_TABLE = typer.Option(
    "--output", "-o", metavar="FILE", help="Write the table to a .csv, .tsv, .jsonl or .parquet file."
)

CLUSTER_PANEL = "On a cluster"
# collected into the argument `cluster` of a command
CLUSTER: Options = {
    "cluster": (
        str | None,
        typer.Option(
            None,
            "--cluster",
            metavar="local|auto|HOST:PORT",
            help="Use a Ray cluster: start one on this machine, take the one it belongs to, or that at an address.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ),
    "workers": (
        int | None,
        typer.Option(None, "--workers", metavar="N", min=1, help="Workers.", rich_help_panel=CLUSTER_PANEL),
    ),
    "threads": (
        int | None,
        typer.Option(
            None, "--threads", metavar="N", min=1, help="Threads of each.", rich_help_panel=CLUSTER_PANEL
        ),
    ),
}


def add_options(
    command: Callable[..., None],
    options: Options,
    collect: Callable[[dict[str, Any]], dict[str, Any]],
    replaced: str | None = None,
) -> Callable[..., None]:
    """Return a command with more options.

    Parameters
    ----------
    command
        The function of the command.
    options
        What to add.
    collect
        Called with the values of the added options; returns keyword arguments for `command`.
    replaced
        A parameter of `command` that `collect` returns, so that it is no option itself.
    """
    own = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for each in inspect.signature(command, eval_str=True).parameters.values()
        if each.name != replaced
    ]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]

    @functools.wraps(command)
    def extended(**given: Any) -> None:
        values = {name: given.pop(name) for name in options}
        command(**collect(values), **given)

    extended.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    extended.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
    return extended


def runs_on_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Add --cluster, --workers and --threads to a command, which gets them as `cluster`; None without --cluster."""
    return add_options(command, CLUSTER, lambda given: {"cluster": _cluster(**given)}, replaced="cluster")


def _cluster(cluster: str | None, workers: int | None, threads: int | None) -> Any:
    from truelike.cluster import Cluster

    if cluster is not None:
        return Cluster(cluster, workers, threads)
    for option, value in (("--workers", workers), ("--threads", threads)):
        if value is not None:
            raise typer.BadParameter(f"{option} is for a cluster: give --cluster local, auto or HOST:PORT, too")
    return None
