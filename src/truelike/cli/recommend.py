"""`truelike recommend`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from truelike.cli.inputs import open_model
from truelike.cli.output import emit, plain
from truelike.errors import DataError


def recommend(
    model: Annotated[Path, typer.Argument(help="The directory of a saved model.")],
    users: Annotated[str | None, typer.Option("--users", "-u", help="Ids with commas, or - for stdin.")] = None,
    users_file: Annotated[Path | None, typer.Option(help="A file with one user id a line.")] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Every user of the training log.")] = False,
    from_items: Annotated[
        str | None, typer.Option(help="For a stranger: ids of items they voted for, with commas.")
    ] = None,
    like: Annotated[str | None, typer.Option(help="Items like these: ids with commas.")] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="How many items each.")] = 10,
    exclude: Annotated[str | None, typer.Option(help="Never these items: ids with commas.")] = None,
    include_seen: Annotated[bool, typer.Option(help="Also what the user has voted for.")] = False,
    on_unknown: Annotated[str, typer.Option(help="An unknown id: raise, popular or skip.")] = "raise",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .csv, .tsv, .jsonl or .parquet file.")
    ] = None,
) -> None:
    """Recommend items to users, to a stranger, or items like an item. CSV on stdout when piped.

    Example: `truelike recommend model/ --users alice,bob -k 5`
    """
    given = [users is not None, users_file is not None, everyone, from_items is not None, like is not None]
    if sum(given) != 1:
        raise typer.BadParameter("say one of --users, --users-file, --all, --from-items or --like")
    if k < 1:
        raise typer.BadParameter(f"-k is {k}; it is a whole number from 1 up")
    if on_unknown not in ("raise", "popular", "skip"):
        raise typer.BadParameter(f"--on-unknown is {on_unknown!r}; it is raise, popular or skip")
    ready = open_model(model)
    shared = {
        "k": k,
        "exclude": None if exclude is None else _ids(exclude),
        "on_unknown": on_unknown,
        "titles": True,
    }
    if from_items is not None:
        found = ready.recommend_from_items(_ids(from_items), exclude_seen=not include_seen, **shared)
    elif like is not None:
        found = ready.similar_items(_ids(like), **shared)
    else:
        if everyone:
            asked = ready.train_.users.values
        elif users_file is not None:
            asked = _lines(users_file)
        else:
            asked = [line.strip() for line in sys.stdin if line.strip()] if users == "-" else _ids(str(users))
        found = ready.recommend(asked, exclude_seen=not include_seen, **shared)
    emit(plain(found), output=output)


def _ids(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{str(path)!r} is not UTF-8 text: {error.reason} at byte {error.start}") from error
