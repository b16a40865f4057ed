"""`truelike recommend`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from truelike.cli.inputs import open_model, open_part, read_ids, reads_log, split_ids
from truelike.cli.messages import say
from truelike.cli.options import N_JOBS, OUTPUT_TABLE, runs_on_cluster
from truelike.cli.output import check_output, emit, put

FOR_WHOM = "For whom"


class OnUnknown(StrEnum):
    """What to do with ids that are not in the training data."""

    RAISE = "raise"
    POPULAR = "popular"
    SKIP = "skip"


@runs_on_cluster
@reads_log(without=("time", "weight", "k_core"))
def recommend(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Directory of a saved model.", show_default=False)
    ],
    read: dict[str, Any],
    users: Annotated[
        str | None,
        typer.Option(
            "--users", "-u", metavar="ID,ID,...", rich_help_panel=FOR_WHOM, help="Users; -: read ids from stdin."
        ),
    ] = None,
    users_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=FOR_WHOM, help="Users: one id a line, or a table with a user column."
        ),
    ] = None,
    all_users: Annotated[
        bool,
        typer.Option("--all", "--all-users", rich_help_panel=FOR_WHOM, help="All users of the training data."),
    ] = False,
    from_items: Annotated[
        str | None,
        typer.Option(
            metavar="ID,ID,...", rich_help_panel=FOR_WHOM, help="A new user who interacted with these items."
        ),
    ] = None,
    histories: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", rich_help_panel=FOR_WHOM, help="Many new users: a log of their interactions."
        ),
    ] = None,
    similar_to: Annotated[
        str | None,
        typer.Option(metavar="ID,ID,...", rich_help_panel=FOR_WHOM, help="Items: find items similar to each."),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", metavar="N", min=1, help="Number of items in each list.")] = 10,
    candidates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Recommend only these items: one id a line, or a table with an item column."
        ),
    ] = None,
    exclude: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Never recommend these items; a file as for --candidates.")
    ] = None,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Also recommend items that the user interacted with.")
    ] = False,
    on_unknown: Annotated[
        OnUnknown,
        typer.Option(help="An id that is not in the training data: stop, return popular items, or skip it."),
    ] = OnUnknown.RAISE,
    output: Annotated[Path | None, OUTPUT_TABLE] = None,
    block_size: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Number of users that are computed and written at a time; about 500,000 rows."
        ),
    ] = None,
    n_jobs: Annotated[int, N_JOBS] = -1,
    cluster: Any = None,
) -> None:
    """Recommend items with a saved model.

    Say for whom with one of --users, --users-file, --all, --from-items, --histories and --similar-to. A column
    `title` is added if the model has titles, or with --titles.

    Lists of users are written block by block, so that any number of users needs little memory. If the command is
    killed while it writes a Parquet file, the same command continues where it stopped.

    For example:
    ```
    truelike recommend model/ --users alice,bob -k 5
    truelike recommend model/ --all --candidates in-stock.txt -o lists.parquet
    truelike recommend model/ --histories new-users.csv --titles items.csv
    ```
    """
    given = [users is not None, users_file is not None, all_users, from_items is not None, histories is not None,
             similar_to is not None]  # fmt: skip
    if sum(given) != 1:
        raise typer.BadParameter(
            "expected one of --users, --users-file, --all, --from-items, --histories and --similar-to"
        )
    if cluster is not None and (output is None or not any(given[:3])):
        raise typer.BadParameter(
            "--cluster is for lists of users in a file: give --all, --users or --users-file, and --output"
        )
    from truelike.data.frames import text_for_uuids

    check_output(output)
    encoding = read.get("encoding", "utf-8")
    allowed = {
        "candidates": None if candidates is None else read_ids(candidates, "item", encoding),
        "exclude": None if exclude is None else read_ids(exclude, "item", encoding),
    }
    loaded = open_model(model, titles=read.get("titles"), encoding=encoding)
    shared = {
        "k": k, "on_unknown": str(on_unknown), "titles": loaded.train_.titles is not None, **allowed,
    }  # fmt: skip
    if similar_to is not None:
        found = loaded.similar_items(split_ids(similar_to), n_jobs=n_jobs, **shared)
    elif from_items is not None:
        found = loaded.recommend_from_items(split_ids(from_items), exclude_seen=not include_seen, **shared)
    elif histories is not None:
        rows = open_part(histories, "--histories", read)
        found = loaded.recommend_from_items(rows, exclude_seen=not include_seen, **shared)
    else:
        asked = None if all_users else _users(users, users_file, encoding)
        shared |= {"exclude_seen": not include_seen, "n_jobs": n_jobs}
        if output is not None:
            rows = loaded.recommend_to(output, asked, block_size=block_size, cluster=cluster, **shared)
            say(f"wrote {rows:,} rows to {output}")
            return
        if not sys.stdout.isatty():
            _stream(loaded, asked, block_size=block_size, **shared)
            return
        found = loaded.recommend(asked, **shared)
    emit(text_for_uuids(found), output=output)


def _stream(model: Any, users: Any, **options: Any) -> None:
    """Print the lists as CSV, block by block."""
    from truelike.models.batch import Lists

    for number, frame in enumerate(Lists(model, users, **options)):
        put(frame.write_csv(include_header=number == 0))


def _users(text: str | None, file: Path | None, encoding: str) -> list[str]:
    """Ids of users from the option, stdin or a file."""
    if file is not None:
        return read_ids(file, "user", encoding)
    if text == "-":
        return [line.strip() for line in sys.stdin if line.strip()]
    return split_ids(str(text))
