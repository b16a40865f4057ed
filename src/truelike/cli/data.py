"""`truelike data`: fetch, list, describe, split."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from truelike.cli.inputs import open_data, open_part
from truelike.cli.messages import say
from truelike.cli.options import Group, Log, Read, Reading, command, number_or_text, option, read_options
from truelike.cli.output import emit, put, show
from truelike.errors import ParameterError

if TYPE_CHECKING:
    from truelike.data.new_users import NewUserSplit
    from truelike.data.splits import Split


Strategy = Literal[
    "user", "user-time", "random", "k-fold", "last-n", "leave-one-out", "temporal", "at-date", "new-users",
    "new-users-time",
]  # fmt: skip
# the others have the name of their function
FUNCTIONS = {"user": "by_user", "user-time": "by_user", "new-users": "new_users", "new-users-time": "new_users"}


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

    Of a file, duplicated rows are counted. Users who are far more active than all others are named. Nothing is removed.
    The parts of a split are described together.

    For example:
    ```
    truelike data describe purchases.csv --min-rating 4
    ```
    """
    import polars as pl

    import truelike as tl
    from truelike.data.describe import duplicated_rows, table_1

    data = open_data(log, read)
    if isinstance(data, tl.Split):
        say(f"{data}; all parts together:")
        data = data.train.merge(data.validation).merge(data.test)
    line, properties = table_1(data), tl.describe(data)
    if Path(log).is_file():
        duplicated = {"property": "duplicated rows", "value": duplicated_rows(log, read)}
        properties = pl.concat([pl.DataFrame([duplicated]), properties])
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
            "of all interactions, drawn at random (random) or the last ones (temporal); in turn (k-fold); the last "
            "--n of each user (last-n); one or two of each user (leave-one-out); all from a date on (at-date); or "
            "whole users, of whom the model is given some interactions, drawn at random (new-users) or the first ones "
            "(new-users-time)."
        ),
    ] = "user",
    validation: Annotated[
        str | None,
        option(
            "Share of the validation part, or its file; of last-n, a number; of new-users, a share or a number of "
            "users. Default: 0.1.",
            "SHARE|FILE",
        ),
    ] = None,
    test: Annotated[str | None, option("Share of the test part, or its file. Default: 0.1.", "SHARE|FILE")] = None,
    seed: Annotated[int | None, option("Seed of the draw. Default: 0.")] = None,
    rounding: Annotated[
        Literal["nearest", "random"] | None,
        option("With --by user and user-time: how a share of few interactions is rounded. Default: nearest."),
    ] = None,
    item_guard: Annotated[
        int | None,
        option("With --by user and user-time: interactions of an item that stay in training.", "N", min=0),
    ] = None,
    n: Annotated[int | None, option("With --by last-n: test interactions of each user. Default: 1.", "N")] = None,
    history: Annotated[
        float | None,
        option(
            "With --by new-users and new-users-time: the share of a held-out user's interactions that the model is "
            "given. Default: 0.8.",
            "SHARE",
        ),
    ] = None,
    k: Annotated[
        int | None,
        option("With --by k-fold: the folds, in the directories 0, 1, ... of the output. Default: 5.", "K"),
    ] = None,
    validation_from: Annotated[
        str | None, option("With --by at-date: when the validation part begins. Default: there is none.", "DATE")
    ] = None,
    test_from: Annotated[
        str | None, option("With --by at-date: when the test part begins: a date, or a number as in LOG.", "DATE")
    ] = None,
) -> None:
    """Write a split directory: training, validation and test part.

    A log is split with --by. To use a split of your own, give LOG as the training part and the others as files.
    Their rows of users and items that are not in the training part are dropped and counted.

    For example:
    ```
    truelike data split purchases.csv -o split/ --by user --seed 0
    truelike data split purchases.csv -o split/ --by at-date --test-from 2024-06-01
    truelike data split purchases.csv -o split/ --by new-users --test 500 --history 0.8
    truelike data split train.csv --validation validation.csv --test test.csv -o split/
    ```
    """
    import truelike as tl
    from truelike.core.files import check_place
    from truelike.data import new_users, splits

    parts = {"--validation": number_or_text(validation), "--test": number_or_text(test)}
    files = {option: part for option, part in parts.items() if isinstance(part, str)}
    if files and any(isinstance(part, float) for part in parts.values()):
        raise typer.BadParameter("--validation and --test are both shares or both files")
    given = {
        "validation": parts["--validation"], "test": parts["--test"], "seed": seed, "rounding": rounding,
        "item_guard": item_guard, "n": n, "history": history, "k": k, "validation_from": validation_from,
        "test_from": test_from,
    }  # fmt: skip
    arguments = {} if files else _arguments(by, given)
    places = [output / str(fold) for fold in range(k or 5)] if by == "k-fold" else [output]
    for place in places:
        check_place(place, new_users.FILES if function_of(by) == "new_users" and not files else splits.FILES)
    data = open_data(log, read)
    if isinstance(data, tl.Split):
        raise ParameterError(f"{log!r} is split already: {data}")
    if files:
        held_out = {option.strip("-"): open_part(part, option, read) for option, part in files.items()}
        made: Any = tl.Split(data, **held_out, info={"strategy": "own files"})
    else:
        made = getattr(tl.splits, function_of(by))(data, **arguments)
    for place, each in zip(places, made if isinstance(made, list) else [made], strict=True):
        _say_what_is_left_out(each)
        each.save(place)
        say(f"{each}")
        say(f"wrote {place}")


def _arguments(by: Strategy, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the function that splits; an error for an option that it does not have."""
    from truelike import splits

    given = {name: value for name, value in given.items() if value is not None}
    known = inspect.signature(getattr(splits, function_of(by))).parameters
    for name, value in given.items():
        if name not in known:
            raise typer.BadParameter(f"--{name.replace('_', '-')} is not an option of --by {by}")
        if isinstance(value, float) and value.is_integer():
            given[name] = int(value)
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in (*given, "data"):
            raise typer.BadParameter(f"--by {by} needs --{name.replace('_', '-')}")
    return {**given, "by": "time" if by.endswith("-time") else "random"} if by in FUNCTIONS else given


def function_of(by: Strategy) -> str:
    """The function of `tl.splits` that makes a split."""
    return FUNCTIONS.get(by, by.replace("-", "_"))


def _say_what_is_left_out(made: Split | NewUserSplit) -> None:
    """Report what was dropped, and who is never tested."""
    dropped = made.info["dropped"]
    if any(dropped.values()):
        say(
            f"dropped, because the training part does not know them or their items: {dropped['users']:,} users and "
            f"{dropped['items']:,} items, with {dropped['validation_rows']:,} validation and "
            f"{dropped['test_rows']:,} test interactions"
        )
    if few := made.info.get("users_never_tested"):
        hint = "; --rounding random tests those with two or more" * (made.info.get("rounding") == "nearest")
        say(f"{few:,} users have too few interactions to be tested{hint}")


app = typer.Typer(help="Fetch, describe and split data.", no_args_is_help=True, rich_markup_mode="markdown")
for name, each in (("fetch", fetch), ("list", list_), ("describe", describe), ("split", split)):
    app.command(name)(command(each))
