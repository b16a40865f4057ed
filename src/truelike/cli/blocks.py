"""`truelike blocks`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from truelike.cli.messages import say
from truelike.cli.options import Group, Read, option, read_options
from truelike.cli.output import emit

OTHERS = ("k_core", "format", "separator", "no_header", "encoding", "kind", "kinds", "target")


def blocks(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG...",
            help="Parquet files, or CSV or TSV files (also with .gz); a directory of them, also with subdirectories "
            "named key=value; or a pattern in quotes, such as 'log/*.parquet'.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, option("Directory of the blocks.", "DIRECTORY", "--output", "-o")],
    read: Annotated[Read, Group(read_options, OTHERS)],
    blocks: Annotated[
        int | None,
        option("Number of blocks. Default: one for 20 million interactions.", "N", "--blocks", "-b", min=1),
    ] = None,
    min_user: Annotated[int, option("Drop users with fewer items, as long as there are any.", "N", min=0)] = 0,
    min_item: Annotated[int, option("Drop items with fewer users, as long as there are any.", "N", min=0)] = 0,
    memory: Annotated[
        str | None, option("Memory to use, e.g. 8GB. Default: half of what is available.", "SIZE")
    ] = None,
    scratch: Annotated[
        Path | None,
        option(
            "Directory for temporary files, about as large as the log. Default: beside the output.", "DIRECTORY"
        ),
    ] = None,
) -> None:
    """Write a block directory: interactions that need not fit into memory, for training block by block.

    A block has the interactions of some users. The log may be of any size. What does not fit into memory is written to
    temporary files.

    For example:
    ```
    truelike blocks purchases.parquet -o blocks/
    truelike blocks 'log/*.parquet' -o blocks/ --blocks 50 --memory 8GB --min-user 5 --min-item 5
    ```
    """
    import polars as pl

    from truelike.data.blocks.build import build

    report = build(
        logs if len(logs) > 1 else logs[0], output,
        blocks=blocks, min_user=min_user, min_item=min_item, memory=memory, scratch=scratch, **read,
    ).report  # fmt: skip
    assert report is not None
    figures = {
        "users": report.users,
        "items": report.items,
        "interactions": report.interactions,
        "blocks": report.blocks,
        "rows": report.rows,
        "dropped rows": report.dropped,
        "seconds": round(report.seconds, 1),
        "bytes": sum(path.stat().st_size for path in output.rglob("*")),
    }
    emit(pl.DataFrame([figures]))
    say(f"wrote {output}")
