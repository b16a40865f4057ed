"""What a verb is given: a log file, the name of a public data set, or the directory of a split."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from truelike.errors import DataError, ParameterError

if TYPE_CHECKING:
    from truelike.data.dataset import Dataset
    from truelike.data.splits import Split

LOG = typer.Argument(help="A log file, the name of a public data set (see `truelike data list`), or a split.")
USER = typer.Option(None, help="The column of the user.", rich_help_panel="Reading the log")
ITEM = typer.Option(None, help="The column of the item.", rich_help_panel="Reading the log")
TIME = typer.Option(None, help="The column of the time.", rich_help_panel="Reading the log")
MIN_RATING = typer.Option(None, help="Only rows rated at least this.", rich_help_panel="Reading the log")
DROP_BAD = typer.Option(
    False,
    "--drop-bad-rows",
    help="Leave bad rows out instead of stopping.",
    rich_help_panel="Reading the log",
)
NO_HEADER = typer.Option(
    False, "--no-header", help="The first line is data, not names.", rich_help_panel="Reading the log"
)


def reading(
    user: str | None, item: str | None, time: str | None, min_rating: float | None, drop: bool, bare: bool
) -> dict[str, Any]:
    """The options above as keywords of `tl.read`; only what was asked for."""
    asked: dict[str, Any] = {"user": user, "item": item, "time": time, "min_rating": min_rating}
    asked = {name: value for name, value in asked.items() if value is not None}
    if drop:
        asked["on_bad_rows"] = "drop"
    if bare:
        asked["header"] = False
        for name in ("user", "item", "time"):
            if name in asked:
                asked[name] = int(asked[name]) if asked[name].isdigit() else asked[name]
    return asked


def open_data(given: str, keywords: dict[str, Any]) -> Dataset | Split:
    """A Dataset or a Split from whatever was named."""
    import truelike as tl

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


def open_model(directory: str | Path) -> Any:
    """A saved model that answers in polars frames, whatever library it was trained from."""
    from dataclasses import replace

    import truelike as tl

    model = tl.load(directory)
    model.__dict__["train_"] = replace(model.train_, library="polars")
    return model


def whole_log(data: Dataset | Split) -> Dataset:
    """The log itself; of a split, its training part."""
    from truelike.data.splits import Split

    return data.train if isinstance(data, Split) else data


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
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{str(path)!r} is not TOML: {error}") from error
    unknown = sorted(set(config) - {"data", "model", "parameters", "read"})
    if unknown:
        raise ParameterError(
            f"{str(path)!r} has unknown keys: {', '.join(unknown)}. Known are data, model, parameters, read"
        )
    return config
