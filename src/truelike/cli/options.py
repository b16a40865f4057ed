"""Options that several commands share, each declared once, and what makes a function a command with them."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from truelike.core.progress import logger

if TYPE_CHECKING:
    from truelike.cluster import Cluster

Read = dict[str, Any]  # arguments of `tl.read`, and k_core, which is applied afterwards
COLUMNS = ("user", "item", "rating", "time", "weight")
PARTS = ("items", "users", "impressions")  # what a dataset carries beside the rows


def option(
    help: str,
    metavar: str | None = None,
    *flags: str,
    panel: str | None = None,
    min: float | None = None,
    max: float | None = None,
) -> Any:
    """An option: what it does, what stands for its value, and its flags where they are not the parameter's name."""
    return typer.Option(*flags, help=help, metavar=metavar, rich_help_panel=panel, min=min, max=max)


_messages = functools.partial(option, panel="Messages")


def set_verbosity(
    quiet: Annotated[bool, _messages("Print warnings and errors only.", None, "--quiet", "-q")] = False,
    verbose: Annotated[
        bool,
        _messages("Print the time of each line, details, and the traceback of an error.", None, "--verbose", "-v"),
    ] = False,
) -> None:
    """Set what is printed."""
    if quiet and verbose:
        raise typer.BadParameter("--quiet and --verbose exclude each other")
    logger.setLevel(logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO)


@dataclass(frozen=True)
class Group:
    """Options that are one argument of a command: those of the function `collect`, which returns the argument."""

    collect: Callable[..., object]
    without: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The options by name."""
        parameters = inspect.signature(self.collect, eval_str=True).parameters
        return {name: each for name, each in parameters.items() if name not in self.without}


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A function for typer, in which each group of options is taken apart, with --quiet and --verbose."""
    parameters, groups = [], {}
    for each in inspect.signature(function, eval_str=True).parameters.values():
        group = next((part for part in get_args(each.annotation) if isinstance(part, Group)), None)
        if group is None:
            parameters.append(each)
        else:
            groups[each.name] = group
    verbosity = Group(set_verbosity)
    for group in (*groups.values(), verbosity):
        parameters += group.options.values()

    def collected(group: Group, given: dict[str, object]) -> object:
        return group.collect(**{option: given.pop(option) for option in group.options})

    @functools.wraps(function)
    def run(**given: object) -> None:
        collected(verbosity, given)
        arguments = {name: collected(group, given) for name, group in groups.items()}
        function(**given, **arguments)

    options = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in options}
    return run


def refuse(wrong: Mapping[str, object]) -> None:
    """Raise an error of usage: the first of the messages that is true."""
    for message, is_wrong in wrong.items():
        if is_wrong:
            raise typer.BadParameter(message)


# --- of a log -------------------------------------------------------------------------------------

LOG = typer.Argument(
    metavar="LOG",
    help="A CSV, TSV, JSONL or Parquet file of interactions, a split directory, or the name of a public dataset.",
    show_default=False,
)
Log = Annotated[str, LOG]


_reading = functools.partial(option, panel="Reading files")


def read_options(
    user: Annotated[str | None, _reading("Name or position of the user column.")] = None,
    item: Annotated[str | None, _reading("Name or position of the item column.")] = None,
    rating: Annotated[str | None, _reading("Name or position of the rating column.")] = None,
    time: Annotated[str | None, _reading("Name or position of the time column.")] = None,
    weight: Annotated[str | None, _reading("Name or position of the weight column.")] = None,
    min_rating: Annotated[float | None, _reading("Use only rows with at least this rating.")] = None,
    k_core: Annotated[
        int | None, _reading("Keep users and items with at least this many interactions.", "N", min=1)
    ] = None,
    format: Annotated[
        Literal["csv", "tsv", "jsonl", "parquet"] | None, _reading("Format of a file whose name does not tell.")
    ] = None,
    separator: Annotated[str | None, _reading("Separator of a CSV file; guessed by default.")] = None,
    no_header: Annotated[
        bool, _reading("The first line is a row; columns are named 0, 1, ...", None, "--no-header")
    ] = False,
    encoding: Annotated[str | None, _reading("Encoding, e.g. latin-1; utf-8 by default.")] = None,
    dates: Annotated[
        Literal["day-first", "month-first"] | None,
        _reading("What 03/04/2026 begins with. Default: a value above 12 tells, or it is an error."),
    ] = None,
    on_bad_rows: Annotated[
        Literal["raise", "drop"] | None, _reading("Stop at rows that cannot be read (default), or drop them.")
    ] = None,
    titles: Annotated[
        str | None, _reading("File with item ids and titles, to show with recommendations.", "FILE")
    ] = None,
    kind: Annotated[
        str | None, _reading("Name or position of the column that says what a row is: view, buy, ...")
    ] = None,
    kinds: Annotated[
        str | None,
        _reading(
            "What each kind means: a weight, the name of a column of weights, learned, or negative, cancels, shown, "
            "ignored. Or a TOML file with a schema. By default usual words have their usual meaning.",
            "view=0.2,buy=1,refund=cancels|FILE",
        ),
    ] = None,
    target: Annotated[
        str | None, _reading("The kind to recommend by. Default: all with a positive weight.")
    ] = None,
    items: Annotated[str | None, _reading("Table of item ids and features, and maybe titles.", "FILE")] = None,
    users: Annotated[str | None, _reading("Table of user ids and features.", "FILE")] = None,
    impressions: Annotated[
        str | None,
        _reading(
            "What was shown to whom: a row for each showing, or a column count or propensity; position and time "
            "are used if present. Or a block directory.",
            "FILE|DIRECTORY",
        ),
    ] = None,
) -> Read:
    """The options that were given, as arguments of `tl.read`."""
    found: Read = {name: value for name, value in locals().items() if value not in (None, False)}
    if kinds is not None:
        found["kinds"] = _kinds(kinds)
    if separator in ("\\t", "tab"):
        found["separator"] = "\t"
    if found.pop("no_header", False):
        found["header"] = False
        found.update({name: int(found[name]) for name in (*COLUMNS, "kind") if str(found.get(name, "")).isdigit()})
    return found


Reading = Annotated[Read, Group(read_options)]


def _kinds(text: str) -> dict[str, float | str] | str:
    """The kinds of a log, or the file that declares them.

    >>> _kinds("view=0.2, buy=quantity, seen=shown"), _kinds("shop.toml")
    ({'view': 0.2, 'buy': 'quantity', 'seen': 'shown'}, 'shop.toml')
    """
    if "=" not in text and text.lower().endswith(".toml"):
        return text
    found: dict[str, float | str] = {}
    for pair in text.split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not (name and equals and value):
            raise typer.BadParameter(
                f"--kinds is {text!r}; expected what each kind means, e.g. view=0.2,buy=1,refund=cancels,seen=shown, "
                "or a TOML file"
            )
        number = number_or_text(value)
        found[name] = value if number is None else number
    return found


# --- of a model and its search --------------------------------------------------------------------

Settings = Annotated[
    list[str] | None, option("Parameter of the model. Can be repeated.", "NAME=VALUE", "--set", "-s")
]
Fixed = Annotated[
    list[str] | None, option("Parameter that is not searched. Can be repeated.", "NAME=VALUE", "--set", "-s")
]
SearchSeed = Annotated[int, option("Seed of the split of a log, of the search and of the models.")]


def parse_settings(pairs: list[str] | None) -> dict[str, str]:
    """The values of --set.

    >>> parse_settings(["neighbors=50"])
    {'neighbors': '50'}
    """
    found = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set is {pair!r}; expected name=value, e.g. --set factors=64")
        found[name.strip().replace("-", "_")] = value.strip()
    return found


def listed(text: str) -> list[str]:
    """Values that are separated by commas.

    >>> listed("alice, bob,")
    ['alice', 'bob']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


SeenByKind = Annotated[
    str | None,
    option(
        "By which kinds of events, and for how long, an item is seen: no; a period; or kinds, each maybe with a "
        "period. Default: by the schema of the training data, or by all interactions.",
        "no|30d|buy=30d,dislike",
    ),
]


def seen_by(text: str | None) -> bool | str | dict[str, bool | str]:
    """The value of --exclude-seen, as `Recommender.recommend` takes it.

    >>> seen_by(None), seen_by("no"), seen_by("30d"), seen_by("buy=30d, dislike")
    (True, False, '30d', {'buy': '30d', 'dislike': True})
    """
    if text is None:
        return True
    if text.strip().lower() in ("no", "none", "false"):
        return False
    if "=" not in text and "," not in text and text.strip()[:1].isdigit():
        return text.strip()
    pairs = (part.partition("=") for part in listed(text))
    return {name.strip(): period.strip() if equals else True for name, equals, period in pairs}


def share_or_file(option: str, text: str | None) -> float | str | None:
    """The value of an option that takes a share, such as 0.1, or a file.

    >>> share_or_file("--validation", "0.1"), share_or_file("--validation", "held-out.csv")
    (0.1, 'held-out.csv')
    """
    from truelike.data.checks import check_share

    value = number_or_text(text)
    if isinstance(value, float):
        check_share(option, value)
    return value


def number_or_text(text: str | None) -> float | str | None:
    """A number where the text is one."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


# --- of the machine and the output ----------------------------------------------------------------

Jobs = Annotated[int, option("Number of threads; -1: all cores. Does not change the result.", "N")]
Workers = Annotated[int, option("Number of processes; -1: one for each core.", "N")]
OutputTable = Annotated[
    Path | None, option("Write the table to a .csv, .tsv, .jsonl or .parquet file.", "FILE", "--output", "-o")
]


_cluster = functools.partial(option, panel="On a cluster")


def cluster_options(
    cluster: Annotated[
        str | None,
        _cluster(
            "Use a Ray cluster: start one on this machine, take the one it belongs to, or that at an address.",
            "local|auto|HOST:PORT",
        ),
    ] = None,
    workers: Annotated[int | None, _cluster("Workers.", "N", min=1)] = None,
    threads: Annotated[int | None, _cluster("Threads of each.", "N", min=1)] = None,
) -> object:
    """The cluster; None without --cluster."""
    if cluster is not None:
        from truelike.cluster import Cluster

        return Cluster(cluster, workers, threads)
    for option, value in (("--workers", workers), ("--threads", threads)):
        if value is not None:
            raise typer.BadParameter(f"{option} is for a cluster: give --cluster local, auto or HOST:PORT, too")
    return None


OnCluster = Annotated["Cluster | None", Group(cluster_options)]
