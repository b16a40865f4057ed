"""What a verb is given: a log file, the name of a public data set, or the directory of a split."""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from truelike.errors import DataError, ParameterError

if TYPE_CHECKING:
    from truelike.data.dataset import Dataset
    from truelike.data.splits import Split

LOG = typer.Argument(help="A log file, the name of a public data set (see `truelike data list`), or a split.")


def _option(kind: Any, flag: str, help: str) -> tuple[Any, Any]:
    default = False if kind is bool else None
    return kind, typer.Option(default, flag, help=help, rich_help_panel="Reading the log")


# the options of every verb that reads a log, by the keyword of `tl.read` that they are for
READING = {
    "user": _option(str | None, "--user", "The column of the user."),
    "item": _option(str | None, "--item", "The column of the item."),
    "rating": _option(str | None, "--rating", "The column of the rating."),
    "time": _option(str | None, "--time", "The column of the time."),
    "min_rating": _option(float | None, "--min-rating", "Only rows rated at least this."),
    "format": _option(str | None, "--format", "csv, tsv, jsonl or parquet, where the name does not tell."),
    "separator": _option(str | None, "--separator", "What stands between fields, where it is not found out."),
    "on_bad_rows": _option(bool, "--drop-bad-rows", "Leave bad rows out instead of stopping."),
    "header": _option(bool, "--no-header", "The first line is data, not names; columns are 0, 1, ..."),
}
KEYWORDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("user", "item", "rating", "time", "weight"), (str, int)),
    **dict.fromkeys(("on_bad_rows", "format", "separator", "name"), (str,)),
    "min_rating": (int, float),
    "header": (bool,),
}


def reads_a_log(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options above; it gets them as `read`, the keywords of `tl.read`."""
    own = inspect.signature(verb, eval_str=True)
    kept = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for each in own.parameters.values()
        if each.name != "read"
    ]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in READING.items()
    ]

    @functools.wraps(verb)
    def with_options(**given: Any) -> None:
        asked = {name: given.pop(name) for name in READING}
        verb(**given, read=_keywords(asked))

    with_options.__signature__ = inspect.Signature([*kept, *options])  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in (*kept, *options)}
    return with_options


def _keywords(asked: dict[str, Any]) -> dict[str, Any]:
    """Only what was asked for, in the words of `tl.read`."""
    found = {name: value for name, value in asked.items() if value not in (None, False)}
    if "on_bad_rows" in found:
        found["on_bad_rows"] = "drop"
    if "separator" in found:
        found["separator"] = {"\\t": "\t", "tab": "\t"}.get(found["separator"], found["separator"])
    if "header" in found:
        found["header"] = False
        for name in ("user", "item", "rating", "time"):
            if name in found:
                found[name] = int(found[name]) if found[name].isdigit() else found[name]
    return found


def open_data(given: str, keywords: dict[str, Any]) -> Dataset | Split:
    """A Dataset or a Split from whatever was named."""
    import truelike as tl
    from truelike.data.files import refuse_address

    refuse_address(given)
    path = Path(given)
    if path.is_dir():
        return tl.Split.load(path)
    if not path.exists() and given in tl.datasets.names():
        return tl.datasets.load(given)  # type: ignore[no-any-return]
    if not path.exists():
        raise DataError(
            f"there is no file, split or public data set {given!r}; the public ones are "
            f"{', '.join(tl.datasets.names())}"
        )
    return tl.read(path, **keywords)


def open_impressions(given: str, keywords: dict[str, Any], data: Dataset | Split) -> Any:
    """Impressions from a file or a public data set, for a fit on a log or on the training part of a split."""
    import truelike as tl
    from truelike.data.files import column_names

    path, of_files = Path(given), ("format", "separator", "header")
    # ratings and times are those of votes
    reading = {name: keywords[name] for name in ("user", "item", "on_bad_rows", *of_files) if name in keywords}
    likely = path.is_file() and "propensity" in column_names(
        path, **{name: reading[name] for name in of_files if name in reading}
    )
    shown = open_data(given, {**reading, "weight": "propensity"} if likely else reading)
    if isinstance(shown, tl.Split):
        raise ParameterError(f"--impressions is {given!r}, a split; it is a log of what was shown to whom")
    if isinstance(data, tl.Split):
        return data.impressions(shown, weight="propensity" if likely else "count")
    return shown.to_frame().rename({"weight": "propensity"}) if likely else shown


def open_model(directory: str | Path) -> Any:
    """A saved model that answers in polars frames, whatever library it was trained from."""
    from dataclasses import replace

    import truelike as tl

    model = tl.load(directory)
    model.__dict__["train_"] = replace(model.train_, library="polars")
    return model


def whole_log(data: Dataset | Split) -> Dataset:
    """The log itself; of a split, its three parts together."""
    from truelike.data.splits import Split

    return data.train.merge(data.validation).merge(data.test) if isinstance(data, Split) else data


def settings(pairs: list[str]) -> dict[str, str]:
    """`--set name=value`, several times.

    >>> settings(["neighbors=50"])
    {'neighbors': '50'}
    """
    found = {}
    for pair in pairs:
        name, mark, value = pair.partition("=")
        if not mark:
            raise ParameterError(f"--set takes name=value, not {pair!r}")
        found[name.strip().replace("-", "_")] = value.strip()
    return found


def read_config(path: Path | None) -> dict[str, Any]:
    """A TOML file with `data`, `model`, and tables [parameters] and [read]; nothing else."""
    if path is None:
        return {}
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{str(path)!r} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{str(path)!r} is not TOML: {error}") from error
    top: dict[str, tuple[type, ...]] = {"data": (str,), "model": (str,), "parameters": (dict,), "read": (dict,)}
    _check_table(config, top, f"{str(path)!r}")
    _check_table(config.get("read", {}), KEYWORDS, f"[read] in {str(path)!r}")
    return config


def _check_table(table: dict[str, Any], allowed: dict[str, tuple[type, ...]], where: str) -> None:
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}
    unknown = sorted(set(table) - set(allowed))
    if unknown:
        raise ParameterError(f"{where} has unknown keys: {', '.join(unknown)}. Known are {', '.join(allowed)}")
    for key, value in table.items():
        if type(value) not in allowed[key]:
            expected = " or ".join(words[kind] for kind in allowed[key])
            raise ParameterError(f"{key} in {where} is {value!r}; it is {expected}")
