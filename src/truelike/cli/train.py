"""`truelike train`."""

from __future__ import annotations

import time as clock
from pathlib import Path
from typing import Annotated

import typer

from truelike.cli.inputs import (
    DROP_BAD,
    ITEM,
    LOG,
    MIN_RATING,
    NO_HEADER,
    TIME,
    USER,
    open_data,
    read_config,
    reading,
    settings,
)
from truelike.cli.output import say
from truelike.errors import ParameterError


def train(
    log: Annotated[str | None, LOG] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")] = Path("model"),
    model: Annotated[str | None, typer.Option("--model", "-m", help="ItemPop, ItemKNN, ...")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="A parameter of the model, name=value.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A TOML file: data, model, [parameters], [read].")
    ] = None,
    user: str | None = USER,
    item: str | None = ITEM,
    time: str | None = TIME,
    min_rating: float | None = MIN_RATING,
    drop_bad_rows: bool = DROP_BAD,
    no_header: bool = NO_HEADER,
) -> None:
    """Train a model on a log, or on the training part of a split, and save it.

    Example: `truelike train purchases.csv --model ItemKNN --set neighbors=100 -o model/`
    """
    import truelike as tl
    from truelike.models import model_class
    from truelike.parameters import parse

    file = read_config(config)
    source = log or file.get("data")
    if source is None:
        raise ParameterError("say which log to train on: truelike train LOG, or data = ... in the config")
    keywords = {**file.get("read", {}), **reading(user, item, time, min_rating, drop_bad_rows, no_header)}
    kind = model_class(model or file.get("model", "ItemKNN"))
    chosen = parse(kind, {**file.get("parameters", {}), **settings(set_ or [])})
    data = open_data(source, keywords)
    made = kind(**chosen)
    say(f"training {made} on {data}")
    started = clock.perf_counter()
    metrics = {}
    if isinstance(data, tl.Split):
        made.fit(data.train, validation=data.validation)
        if data.validation.n_interactions:
            measured = tl.evaluate(made, data.validation)
            metrics = {f"validation {name}": value for name, value in measured.means().items()}
            say(f"validation: {_short(measured)}")
    else:
        made.fit(data)
    made.save(output, metrics=metrics)
    say(f"trained in {clock.perf_counter() - started:.1f} s; wrote {output}")


def _short(measured: object) -> str:
    return str(measured).partition(": ")[2].removesuffix(", ...)")
