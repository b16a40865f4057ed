"""`truelike data`: fetch, list, describe, split."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from truelike.cli.inputs import open_data, open_part
from truelike.cli.messages import say
from truelike.cli.options import Group, Log, Read, Reading, command, option, read_options, share_or_file
from truelike.cli.output import emit, put, show
from truelike.errors import ParameterError

if TYPE_CHECKING:
    from truelike.data.dataset import Dataset
    from truelike.data.splits import Split


Strategy = Literal["random", "user", "user-time", "leave-one-out", "temporal"]


def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a dataset; see `truelike data list`.")],
) -> None:
    """Download a public dataset into the cache and check it. The paths of its files are printed.

    For example:
    ```
    truelike data fetch ml-1m
    ```
    """
    import truelike as tl

    for path in tl.datasets.fetch(name):
        put(f"{path}\n")
    say(f"{name}: {tl.datasets.load(name)}")


def list_() -> None:
    """List the public datasets, and which of them are in the cache.

    For example:
    ```
    truelike data list
    ```
    """
    import polars as pl

    from truelike.datasets import SOURCES, cache_directory

    rows = []
    for name, source in SOURCES.items():
        is_cached = all((cache_directory() / file.path).is_file() for file in source.files)
        rows.append((name, source.about, source.terms, "yes" if is_cached else "no"))
    emit(pl.DataFrame(rows, schema=["name", "description", "terms", "cached"], orient="row"))


def describe(log: Log, read: Annotated[Read, Group(read_options, ("titles",))]) -> None:
    """Describe a dataset: its size, its sparsity, and how interactions are spread over users and items.

    The parts of a split are described together.

    For example:
    ```
    truelike data describe purchases.csv --min-rating 4
    ```
    """
    import polars as pl

    import truelike as tl
    from truelike.data.describe import table_1

    data = open_data(log, read)
    if isinstance(data, tl.Split):
        say(f"{data}; all parts together:")
        data = data.train.merge(data.validation).merge(data.test)
    line, properties = table_1(data), tl.describe(data)
    if sys.stdout.isatty():
        show(pl.DataFrame([line]))
        show(properties)
    else:  # one table, so that a program can read it
        emit(pl.concat([pl.DataFrame({"property": list(line), "value": list(line.values())}), properties]))


def split(
    log: Log,
    output: Annotated[Path, option("Directory of the split.", "DIRECTORY", "--output", "-o")],
    read: Reading,
    by: Annotated[
        Strategy,
        option(
            "Hold out a share of each user's interactions, drawn at random (user) or the last ones (user-time); "
            "of all interactions, drawn at random (random) or the last ones (temporal); or one or two of each user."
        ),
    ] = "user",
    validation: Annotated[
        str | None, option("Share of the validation part, or its file. Default: 0.1.", "SHARE|FILE")
    ] = None,
    test: Annotated[str | None, option("Share of the test part, or its file. Default: 0.1.", "SHARE|FILE")] = None,
    seed: Annotated[int, option("Seed of the draw.")] = 0,
    item_guard: Annotated[
        int, option("With --by user and user-time: interactions of an item that stay in training.", "N", min=0)
    ] = 0,
) -> None:
    """Write a split directory: training, validation and test part.

    A log is split with --by. To use a split of your own, give LOG as the training part and the others as files.
    Their rows of users and items that are not in the training part are dropped and counted.

    For example:
    ```
    truelike data split purchases.csv -o split/ --by user --seed 0
    truelike data split train.csv --validation validation.csv --test test.csv -o split/
    ```
    """
    import truelike as tl
    from truelike.core.files import check_place
    from truelike.data.splits import FILES

    parts = {"--validation": share_or_file("--validation", validation), "--test": share_or_file("--test", test)}
    files = {option: part for option, part in parts.items() if isinstance(part, str)}
    if files and any(isinstance(part, float) for part in parts.values()):
        raise typer.BadParameter("--validation and --test are both shares or both files")
    check_place(output, FILES)
    data = open_data(log, read)
    if isinstance(data, tl.Split):
        raise ParameterError(f"{log!r} is split already: {data}")
    if files:
        held_out = {option.strip("-"): open_part(part, option, read) for option, part in files.items()}
        made = tl.Split(data, **held_out, info={"strategy": "own files"})
    else:
        shares = {option.strip("-"): part for option, part in parts.items() if isinstance(part, float)}
        made = _split(data, by, shares, seed, item_guard)
    made.save(output)
    say(f"{made}")
    say(f"wrote {output}")


def _split(data: Dataset, by: Strategy, shares: dict[str, float], seed: int, item_guard: int) -> Split:
    """Split a dataset, and report what was dropped."""
    from truelike import splits

    if by == "random":
        made = splits.random(data, **shares, seed=seed)
    elif by == "temporal":
        made = splits.temporal(data, **shares)
    elif by == "leave-one-out":
        made = splits.leave_one_out(data, seed=seed)
    else:
        made = splits.by_user(
            data, **shares, by="time" if by == "user-time" else "random", seed=seed, item_guard=item_guard
        )
    dropped = made.info["dropped"]
    if any(dropped.values()):
        say(
            f"dropped, because they have no interaction in the training part: {dropped['users']:,} users and "
            f"{dropped['items']:,} items, with {dropped['validation_rows']:,} validation and "
            f"{dropped['test_rows']:,} test interactions"
        )
    return made


app = typer.Typer(help="Fetch, describe and split data.", no_args_is_help=True, rich_markup_mode="markdown")
for name, each in (("fetch", fetch), ("list", list_), ("describe", describe), ("split", split)):
    app.command(name)(command(each))
