"""What commands read: logs, split directories, public datasets, models, lists of ids and config files."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from truelike.cli.messages import say
from truelike.cli.options import COLUMNS, PARTS, Read
from truelike.errors import DataError, ParameterError, some

if TYPE_CHECKING:
    from truelike.data.blocks.blocks import Blocks
    from truelike.data.dataset import Dataset
    from truelike.data.new_users import NewUserSplit
    from truelike.data.splits import Split

Source = TypeVar("Source", bound="Dataset | Split | Blocks")
NOT_OF_ROWS = ("k_core", "titles", *PARTS)  # options of a dataset, not of each file that is read for it


def open_blocks(source: str) -> Blocks | None:
    """A block directory; None for what is none."""
    import truelike as tl
    from truelike.data.blocks.format import DESCRIPTION

    return tl.blocks.open(source) if _is(Path.is_file, Path(source) / DESCRIPTION) else None


def open_new_users(source: str, read: Read) -> NewUserSplit | None:
    """A split of whole users; None for what is none."""
    import truelike as tl
    from truelike.data.new_users import DESCRIPTION

    if not _is(Path.is_file, Path(source) / DESCRIPTION):
        return None
    _refuse_options(read, source, "a split directory")
    return tl.NewUserSplit.load(source)


@overload
def open_data(source: str, read: Read, *, strict: bool = True) -> Dataset | Split: ...
@overload
def open_data(
    source: str, read: Read, *, strict: bool = True, blocks: Literal[True]
) -> Dataset | Split | Blocks: ...
def open_data(source: str, read: Read, *, strict: bool = True, blocks: bool = False) -> Dataset | Split | Blocks:
    """Open a file, a split directory, a public dataset or, with `blocks`, a block directory.

    Options that `source` has no use for are an error, unless `strict` is False: where another file is read with them.
    """
    import truelike as tl
    from truelike.data.files import refuse_address

    refuse_address(source)
    read, path = dict(read), Path(source)
    parts = {name: read.pop(name) for name in PARTS if name in read}
    if (found := open_blocks(source)) is not None:
        return _open_of_blocks(found, source, {**read, **parts}, strict, blocks)
    k = read.pop("k_core", None)
    if "impressions" in parts:
        parts["impressions"] = impressions_from(parts["impressions"])
    data: Dataset | Split
    if (new := open_new_users(source, read)) is not None:
        say(f"{source}: whole users are held out; what follows is of the training part")
        data = _with_parts(new.train, parts)
    elif _is(Path.is_dir, path):
        data = _with_parts(_with_titles(tl.Split.load(path), source, "a split directory", read, strict), parts)
    elif _is(Path.exists, path):
        data = tl.read(path, **read, **parts)
    elif source in tl.datasets.names():
        public = tl.datasets.load(source)
        data = _with_parts(_with_titles(public, source, "a public dataset", read, strict), parts)
    else:
        raise DataError(
            f"there is no file, split directory or public dataset {some([repr(source)])}. The public datasets are "
            f"{', '.join(tl.datasets.names())}."
        )
    return data if k is None else _core(data, source, k)


def _open_of_blocks(found: Blocks, source: str, read: Read, strict: bool, allowed: bool) -> Blocks:
    if not allowed:
        raise ParameterError(
            f"{source!r} is a block directory; `truelike train` and `truelike evaluate` take one. Give a log or a "
            "split directory here."
        )
    if "k_core" in read:
        raise ParameterError(
            f"{source!r} is a block directory, of which --k-core cannot be taken: build it of users and items with "
            "enough interactions"
        )
    impressions = read.pop("impressions", None)
    with_titles = _with_titles(found, source, "a block directory", read, strict)
    return with_titles if impressions is None else with_titles.with_impressions(impressions)


def _is(question: Callable[[Path], bool], path: Path) -> bool:
    """The answer of a path; False for one that no system can have: too long, or with a NUL."""
    try:
        return question(path)
    except (OSError, ValueError):
        return False


def _with_titles(data: Source, source: str, what: str, of_rows: Read, strict: bool) -> Source:
    """Data that is not read from rows, with titles from a file where one was given."""
    if strict:
        _refuse_options([name for name in of_rows if name not in ("titles", "encoding")], source, what)
    if "titles" not in of_rows:
        return data
    return cast("Source", data.with_titles(of_rows["titles"], encoding=of_rows.get("encoding", "utf-8")))


def _refuse_options(unused: Iterable[str], source: str, what: str) -> None:
    """Raise an error for options of reading, if there are any."""
    flags = ", ".join("--no-header" if name == "header" else f"--{name.replace('_', '-')}" for name in unused)
    if flags:
        raise ParameterError(f"{source!r} is {what}, which {flags} cannot change: use it with a file")


def _with_parts(data: Dataset | Split, parts: Read) -> Dataset | Split:
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


def open_part(source: str, option: str, read: Read) -> Dataset:
    """Open a log that is a part of a split or lists impressions: no split directory, no k-core, no titles."""
    from truelike.data.splits import Split

    of_rows = {name: value for name, value in read.items() if name not in NOT_OF_ROWS}
    part = open_data(source, of_rows, strict=False)
    if isinstance(part, Split):
        raise ParameterError(f"{option} is {source!r}, a split; expected a log")
    return part


def impressions_from(source: str) -> Blocks | Dataset | Split | Path:
    """What `tl.read` takes as impressions: a file, a public dataset or the blocks of a directory."""
    import truelike as tl

    if (blocks := open_blocks(source)) is not None:
        return blocks
    return tl.datasets.load(source) if source in tl.datasets.names() else Path(source)


def open_model(directory: str | Path, *, titles: str | None = None, encoding: str = "utf-8") -> Any:
    """A saved model that returns polars frames, whatever library it was trained with; with titles from a file."""
    import truelike as tl

    model = tl.load(directory)
    train = model.train_
    if isinstance(train, tl.Dataset):  # blocks have no other
        train = train.with_parts(library="polars")
    if titles is not None:
        train = train.with_titles(titles, encoding=encoding)
    return model.with_train(train)


# --- lists of ids ---------------------------------------------------------------------------------


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


def read_exclude(path: Path, encoding: str = "utf-8") -> Any:
    """Ids of items, for all users; of a table with columns of users and of items, the items of each user."""
    from truelike.data.columns import recognised
    from truelike.data.files import FORMATS, Picked, column_names, read_file

    if FORMATS.get(path.suffix.lower()) is not None and path.suffix.lower() != ".txt":
        names = column_names(path, encoding=encoding)
        user, item = recognised(names, "user"), recognised(names, "item")
        if user is not None and item is not None:
            table = read_file(path, lambda _: Picked([user, item]), encoding=encoding).frame
            return table.rename({user: "user_id", item: "item_id"})
    return read_ids(path, "item", encoding)


def read_lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """The lines of a text file that are not blank."""
    return [line.strip() for line in _text(path, encoding).splitlines() if line.strip()]


def _text(path: Path, encoding: str = "utf-8") -> str:
    from truelike.data.files import check_file

    try:
        check_file(path, empty=True)
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
    "kinds": (dict, str),
    "min_rating": (int, float),
    "k_core": (int,),
    "header": (bool,),
}
_TYPES = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}


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
