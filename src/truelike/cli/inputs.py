"""What commands read: logs, split directories, public datasets, models, lists of ids and config files."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import typer

from truelike.cli.messages import say
from truelike.cli.options import Options, add_options
from truelike.errors import DataError, ParameterError, some

if TYPE_CHECKING:
    from truelike.data.blocks.blocks import Blocks
    from truelike.data.dataset import Dataset
    from truelike.data.splits import Split

LOG = typer.Argument(
    metavar="LOG",
    help="A CSV, TSV, JSONL or Parquet file of interactions, a split directory, or the name of a public dataset.",
    show_default=False,
)


class OnBadRows(StrEnum):
    """What to do with rows that cannot be read."""

    RAISE = "raise"
    DROP = "drop"


class Format(StrEnum):
    """Formats of files."""

    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    PARQUET = "parquet"


def _option(kind: Any, flag: str, help: str, **more: Any) -> tuple[Any, Any]:
    default = False if kind is bool else None
    return kind, typer.Option(default, flag, help=help, rich_help_panel="Reading files", **more)


# by the argument of `tl.read` that each is passed to; k_core is applied afterwards
READING: Options = {
    "user": _option(str | None, "--user", "Name or position of the user column."),
    "item": _option(str | None, "--item", "Name or position of the item column."),
    "rating": _option(str | None, "--rating", "Name or position of the rating column."),
    "time": _option(str | None, "--time", "Name or position of the time column."),
    "weight": _option(str | None, "--weight", "Name or position of the weight column."),
    "min_rating": _option(float | None, "--min-rating", "Use only rows with at least this rating."),
    "k_core": _option(
        int | None, "--k-core", "Keep users and items with at least this many interactions.", min=1, metavar="N"
    ),
    "format": _option(Format | None, "--format", "Format of a file whose name does not tell."),
    "separator": _option(str | None, "--separator", "Separator of a CSV file; guessed by default."),
    "no_header": _option(bool, "--no-header", "The first line is a row; columns are named 0, 1, ..."),
    "encoding": _option(str | None, "--encoding", "Encoding, e.g. latin-1; utf-8 by default."),
    "on_bad_rows": _option(
        OnBadRows | None, "--on-bad-rows", "Stop at rows that cannot be read (default), or drop them."
    ),
    "titles": _option(Path | None, "--titles", "File with item ids and titles, to show with recommendations."),
    "kind": _option(
        str | None, "--kind", "Name or position of the column that says what a row is: view, buy, ..."
    ),
    "kinds": _option(
        str | None, "--kinds", "Weight of each kind; of impressions: shown.", metavar="view=0.2,buy=1,seen=shown"
    ),
    "target": _option(str | None, "--target", "The kind to recommend by. Default: all with a positive weight."),
    "items": _option(Path | None, "--items", "Table of item ids and features, and maybe titles.", metavar="FILE"),
    "users": _option(Path | None, "--users", "Table of user ids and features.", metavar="FILE"),
    "impressions": _option(
        str | None,
        "--impressions",
        "What was shown to whom: a row for each showing, or a column count or propensity; position and time are used "
        "if present. Or a block directory.",
        metavar="FILE|DIRECTORY",
    ),
}
COLUMNS = ("user", "item", "rating", "time", "weight")
PARTS = ("items", "users", "impressions")  # what a dataset carries beside the rows
NOT_OF_ROWS = ("k_core", "titles", *PARTS)  # options of a dataset, not of each file that is read for it


def reads_log(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of READING to a command, which gets the given ones as a dict `read`."""
    options = {name: option for name, option in READING.items() if name not in without}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        return add_options(command, options, lambda given: {"read": _keywords(given)}, replaced="read")

    return decorate


def _keywords(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as plain values for `tl.read`."""
    found = {name: value for name, value in given.items() if value not in (None, False)}
    for name in ("format", "on_bad_rows", "titles", "items", "users"):
        if name in found:
            found[name] = str(found[name])
    if "kinds" in found:
        found["kinds"] = _kinds(found["kinds"])
    if "separator" in found:
        found["separator"] = {"\\t": "\t", "tab": "\t"}.get(found["separator"], found["separator"])
    if found.pop("no_header", False):
        found["header"] = False
        found.update({name: int(found[name]) for name in (*COLUMNS, "kind") if str(found.get(name, "")).isdigit()})
    return found


def _kinds(text: str) -> dict[str, float | str]:
    """The kinds of a log.

    >>> _kinds("view=0.2, buy=1, seen=shown")
    {'view': 0.2, 'buy': 1.0, 'seen': 'shown'}
    """
    found: dict[str, float | str] = {}
    for pair in text.split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        try:
            found[name] = "shown" if value == "shown" else float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise typer.BadParameter(
                f"--kinds is {text!r}; expected numbers by kind, e.g. view=0.2,buy=1,seen=shown"
            )
    return found


def open_blocks(source: str) -> Blocks | None:
    """A block directory; None for what is none."""
    import truelike as tl
    from truelike.data.blocks.format import DESCRIPTION

    return tl.blocks.open(source) if _is(Path.is_file, Path(source) / DESCRIPTION) else None


@overload
def open_data(source: str, read: Mapping[str, Any], *, strict: bool = True) -> Dataset | Split: ...
@overload
def open_data(
    source: str, read: Mapping[str, Any], *, strict: bool = True, blocks: Literal[True]
) -> Dataset | Split | Blocks: ...
def open_data(
    source: str, read: Mapping[str, Any], *, strict: bool = True, blocks: bool = False
) -> Dataset | Split | Blocks:
    """Open a file, a split directory, a public dataset or, with `blocks`, a block directory.

    Parameters
    ----------
    source
        What was given on the command line.
    read
        The options of READING that were given.
    strict
        Raise an error for options that `source` has no use for. Set it to False where another file is read with
        the same options.
    blocks
        Whether the command takes block directories.
    """
    import truelike as tl
    from truelike.data.files import refuse_address

    refuse_address(source)
    if (found := open_blocks(source)) is not None:
        if not blocks:
            raise ParameterError(
                f"{source!r} is a block directory; `truelike train` and `truelike evaluate` take one. Give a log or a "
                "split directory here."
            )
        if "k_core" in read:
            raise ParameterError(
                f"{source!r} is a block directory, of which --k-core cannot be taken: build it of users and items with "
                "enough interactions"
            )
        of_blocks = {name: value for name, value in read.items() if name != "impressions"}
        with_titles: Blocks = _with_titles(found, source, "a block directory", of_blocks, strict)
        return with_titles.with_impressions(read["impressions"]) if "impressions" in read else with_titles
    path, of_rows = Path(source), {name: value for name, value in read.items() if name != "k_core"}
    if "impressions" in of_rows:
        of_rows["impressions"] = impressions_from(of_rows["impressions"])
    data: Dataset | Split
    parts = {name: of_rows[name] for name in PARTS if name in of_rows}
    others = {name: value for name, value in of_rows.items() if name not in PARTS}
    if _is(Path.is_dir, path):
        data = _with_parts(_with_titles(tl.Split.load(path), source, "a split directory", others, strict), parts)
    elif _is(Path.exists, path):
        data = tl.read(path, **of_rows)
    elif source in tl.datasets.names():
        data = _with_parts(
            _with_titles(tl.datasets.load(source), source, "a public dataset", others, strict), parts
        )
    else:
        raise DataError(
            f"there is no file, split directory or public dataset {some([repr(source)])}. The public datasets are "
            f"{', '.join(tl.datasets.names())}."
        )
    return _core(data, source, read["k_core"]) if "k_core" in read else data


def _is(question: Callable[[Path], bool], path: Path) -> bool:
    """The answer of a path; False for one that no system can have: too long, or with a NUL."""
    try:
        return question(path)
    except (OSError, ValueError):
        return False


def _with_titles(data: Any, source: str, what: str, of_rows: Mapping[str, Any], strict: bool) -> Any:
    """Data that is not read from rows, with titles from a file where one was given."""
    unused = [f"--{name.replace('_', '-')}" for name in of_rows if name not in ("titles", "encoding")]
    if unused and strict:
        flags = ", ".join("--no-header" if flag == "--header" else flag for flag in unused)
        raise ParameterError(f"{source!r} is {what}, which {flags} cannot change: use it with a file")
    if "titles" not in of_rows:
        return data
    return data.with_titles(of_rows["titles"], encoding=of_rows.get("encoding", "utf-8"))


def _with_parts(data: Any, parts: Mapping[str, Any]) -> Any:
    """Data with features and impressions. Of a split, the training part has none of a held-out pair."""
    import truelike as tl

    if not parts:
        return data
    if not isinstance(data, tl.Split):
        return tl.read(data, **parts)
    return tl.Split(tl.read(data.train, **parts), data.validation, data.test, info=data.info)


def _core(data: Dataset | Split, source: str, k: int) -> Dataset:
    import truelike as tl

    if isinstance(data, tl.Split):
        raise ParameterError(
            f"{source!r} is split already, so its k-core cannot be taken. Use --k-core when the split is made: "
            "truelike data split LOG --k-core ... -o split/"
        )
    core, report = tl.k_core(data, user=k, item=k)
    say(str(report))
    return core


def open_part(source: str, option: str, read: Mapping[str, Any]) -> Dataset:
    """Open a log that is a part of a split or lists impressions: no split directory, no k-core, no titles."""
    from truelike.data.splits import Split

    of_rows = {name: value for name, value in read.items() if name not in NOT_OF_ROWS}
    part = open_data(source, of_rows, strict=False)
    if isinstance(part, Split):
        raise ParameterError(f"{option} is {source!r}, a split; expected a log")
    return part


def impressions_from(source: str) -> Any:
    """What `tl.read` takes as impressions: a file, a public dataset or the blocks of a directory."""
    import truelike as tl

    if (blocks := open_blocks(source)) is not None:
        return blocks
    return tl.datasets.load(source) if source in tl.datasets.names() else Path(source)


def share_or_file(option: str, text: str | None) -> float | str | None:
    """The value of an option that takes a share, such as 0.1, or a file.

    >>> share_or_file("--validation", "0.1"), share_or_file("--validation", "held-out.csv")
    (0.1, 'held-out.csv')
    """
    from truelike.data.checks import check_share

    if text is None:
        return None
    try:
        share = float(text)
    except ValueError:
        return text
    check_share(option, share)
    return share


def open_model(directory: str | Path, *, titles: str | None = None, encoding: str = "utf-8") -> Any:
    """A saved model that returns polars frames, whatever library it was trained with; with titles from a file."""
    import truelike as tl

    model = tl.load(directory)
    train = model.train_
    if isinstance(train, tl.Dataset):  # blocks have no other
        train = train.with_parts(library="polars")
    if titles is not None:
        train = train.with_titles(titles, encoding=encoding)
    model._assign(train, {name: value for name, value in model._state.items() if name != "train_"})
    return model


def whole_dataset(data: Dataset | Split) -> Dataset:
    """The dataset; of a split, its three parts together."""
    from truelike.data.splits import Split

    return data.train.merge(data.validation).merge(data.test) if isinstance(data, Split) else data


# --- lists of ids ---------------------------------------------------------------------------------


def split_ids(text: str) -> list[str]:
    """Ids that are separated by commas.

    >>> split_ids("alice, bob,")
    ['alice', 'bob']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def read_ids(path: Path, role: str, encoding: str = "utf-8") -> list[str]:
    """Ids of users or items: a column of a CSV, TSV, JSONL or Parquet file, or the lines of any other file.

    A table must have a column with a common name, such as user_id, or one column only. A CSV or TSV file of one
    column may lack a header.
    """
    from truelike.data.columns import recognised
    from truelike.data.files import FORMATS, Picked, column_names, read_file

    if FORMATS.get(path.suffix.lower()) is None or path.suffix.lower() == ".txt":
        return read_lines(path, encoding)
    names = column_names(path, encoding=encoding)
    chosen = recognised(names, role)
    if chosen is None and len(names) == 1:
        if FORMATS[path.suffix.lower()] in ("csv", "tsv"):
            return read_lines(path, encoding)
        chosen = names[0]
    if chosen is None:
        raise DataError(
            f"no column of {str(path)!r} looks like the {role}: it has {', '.join(names)}. Rename one to {role}_id."
        )
    table = read_file(path, lambda _: Picked([chosen]), encoding=encoding)
    return [str(value) for value in table.frame[chosen] if value not in (None, "")]


def read_lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """The lines of a text file that are not blank."""
    return [line.strip() for line in _text(path, encoding).splitlines() if line.strip()]


def _text(path: Path, encoding: str = "utf-8") -> str:
    try:
        return path.read_text(encoding=encoding).removeprefix("\ufeff")
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{str(path)!r} is not {encoding} text: {error.reason} at byte {error.start}") from error
    except LookupError as error:
        raise ParameterError(f"--encoding is {encoding!r}, which is not a known encoding of text") from error


# --- parameters and config files ------------------------------------------------------------------

_CONFIG: dict[str, tuple[type, ...]] = {"data": (str,), "model": (str,), "parameters": (dict,), "read": (dict,)}
_CONFIG_READ: dict[str, tuple[type, ...]] = {
    **dict.fromkeys((*COLUMNS, "kind"), (str, int)),
    **dict.fromkeys(
        ("on_bad_rows", "format", "separator", "encoding", "titles", "name", "target", *PARTS), (str,)
    ),
    "kinds": (dict,),
    "min_rating": (int, float),
    "k_core": (int,),
    "header": (bool,),
}
_TYPES = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """The values of --set.

    >>> parse_settings(["neighbors=50"])
    {'neighbors': '50'}
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set is {pair!r}; expected name=value, e.g. --set factors=64")
        found[name.strip().replace("-", "_")] = value.strip()
    return found


def read_config(path: Path | None) -> dict[str, Any]:
    """Read a TOML file with `data`, `model` and the tables [parameters] and [read]."""
    if path is None:
        return {}
    try:
        config = tomllib.loads(_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:  # nested too deeply
        raise DataError(f"{str(path)!r} is not TOML that can be read: {error}") from error
    _check_table(config, _CONFIG, f"{str(path)!r}")
    _check_table(config.get("read", {}), _CONFIG_READ, f"[read] of {str(path)!r}")
    return config


def _check_table(table: dict[str, Any], allowed: dict[str, tuple[type, ...]], where: str) -> None:
    unknown = sorted(set(table) - set(allowed))
    if unknown:
        raise ParameterError(f"{where} has unknown keys: {', '.join(unknown)}. Known are {', '.join(allowed)}.")
    for key, value in table.items():
        if type(value) not in allowed[key]:
            expected = " or ".join(_TYPES[kind] for kind in allowed[key])
            raise ParameterError(f"{key} in {where} is {value!r}; expected {expected}")
