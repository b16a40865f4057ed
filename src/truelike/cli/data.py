"""`truelike data`: fetch, list, describe, split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from truelike.cli.inputs import LOG, open_data, reads_a_log, whole_log
from truelike.cli.output import emit, put, say, show
from truelike.errors import ParameterError

WAYS = ("random", "user", "leave-one-out", "temporal")

app = typer.Typer(help="Fetch, look at and split data.", no_args_is_help=True)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="A public data set; see `truelike data list`.")],
) -> None:
    """Download a public data set into the cache, and check it.

    Example: `truelike data fetch ml-1m`
    """
    import truelike as tl

    for path in tl.datasets.fetch(name):
        put(f"{path}\n")
    say(f"{name}: {tl.datasets.load(name)}")


@app.command("list")
def list_() -> None:
    """List the public data sets, and which are here already.

    Example: `truelike data list`
    """
    import polars as pl

    from truelike.data.sources import SOURCES, cache_directory

    rows = []
    for name, source in SOURCES.items():
        here = all((cache_directory() / file.path).is_file() for file in source.files)
        rows.append((name, source.about, source.terms, "here" if here else ""))
    emit(pl.DataFrame(rows, schema=["name", "what", "terms", "cache"], orient="row"))


@app.command()
@reads_a_log
def describe(
    log: Annotated[str, LOG],
    read: dict[str, Any],
    k_core: Annotated[int, typer.Option(help="Look at the k-core of the log.")] = 0,
) -> None:
    """Print the line of the paper's Table 1, then the long tail and the rows per user; of a split, as a whole.

    Example: `truelike data describe purchases.csv`
    """
    import sys

    import polars as pl

    import truelike as tl
    from truelike.data.describe import table_1

    data = open_data(log, read)
    found = _cored(whole_log(data), k_core)
    if isinstance(data, tl.Split):
        say(f"{data}; its three parts together:")
    line = table_1(found)
    if sys.stdout.isatty():
        show(pl.DataFrame([line]))
        show(tl.describe(found))
    else:  # one table, so that a program can read it
        emit(pl.concat([pl.DataFrame({"property": list(line), "value": list(line.values())}), tl.describe(found)]))


@app.command()
@reads_a_log
def split(
    log: Annotated[str, LOG],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")],
    read: dict[str, Any],
    by: Annotated[str, typer.Option(help="random, user, leave-one-out or temporal.")] = "user",
    validation: Annotated[float, typer.Option(help="The share for validation.")] = 0.1,
    test: Annotated[float, typer.Option(help="The share for test.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Decides the draw.")] = 0,
    item_guard: Annotated[int, typer.Option(help="By user: rows an item keeps for training.")] = 0,
    k_core: Annotated[int, typer.Option(help="Take the k-core of the log first.")] = 0,
) -> None:
    """Split a log into train, validation and test, and write it as a directory.

    Example: `truelike data split purchases.csv -o split/ --by user --seed 0`
    """
    import truelike as tl

    if by not in WAYS:
        raise typer.BadParameter(f"--by is {by!r}; it is one of {', '.join(WAYS)}")
    data = open_data(log, read)
    if isinstance(data, tl.Split):
        raise ParameterError(f"{log} is split already: {data}")
    found = _cored(data, k_core)
    shares: dict[str, Any] = {"validation": validation, "test": test}
    ways: dict[str, Any] = {
        "random": lambda: tl.split.random(found, **shares, seed=seed),
        "user": lambda: tl.split.by_user(found, **shares, seed=seed, item_guard=item_guard),
        "leave-one-out": lambda: tl.split.leave_one_out(found, seed=seed),
        "temporal": lambda: tl.split.temporal(found, **shares),
    }
    made = ways[by]()
    made.save(output)
    say(f"{made}")
    cold = made.info["dropped_cold"]
    if any(cold.values()):
        say(
            f"dropped for want of a training row: {cold['users']:,} users and {cold['items']:,} items, with "
            f"{cold['validation_rows']:,} validation and {cold['test_rows']:,} test rows"
        )
    say(f"wrote {output}")


def _cored(log: Any, k: int) -> Any:
    import truelike as tl

    if not k:
        return log
    core, report = tl.k_core(log, user=k, item=k)
    say(str(report))
    return core
