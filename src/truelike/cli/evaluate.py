"""`truelike evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from truelike.cli.inputs import open_data, open_model
from truelike.cli.output import emit, plain, say, write
from truelike.errors import ParameterError


def evaluate(
    paths: Annotated[
        list[str], typer.Argument(metavar="MODEL... SPLIT", help="Models, then what to judge by.")
    ],
    part: Annotated[str, typer.Option(help="Of a split: validation or test.")] = "test",
    ks: Annotated[str, typer.Option(help="Lengths of the lists.")] = "2,5,10,20",
    metrics: Annotated[str | None, typer.Option(help="Such as f1,ndcg; all where not given.")] = None,
    measure: Annotated[str, typer.Option(help="What several models are compared by.")] = "ndcg@20",
    per_user: Annotated[
        Path | None, typer.Option(help="Write the value of each user here (.csv, .parquet, .jsonl).")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the table here.")] = None,
) -> None:
    """Judge one or more saved models on the held-out part of a split (or on a log of test rows).

    Example: `truelike evaluate model/ split/ --ks 5,10`
    """
    import polars as pl

    import truelike as tl

    if len(paths) < 2:
        raise ParameterError("give one or more model directories and then a split, e.g. model/ split/")
    *models, source = paths
    data = open_data(source, {})
    if part not in ("validation", "test"):
        raise ParameterError(f"--part is {part!r}; it is validation or test")
    held_out = getattr(data, part) if isinstance(data, tl.Split) else data
    lengths = _numbers(ks)
    chosen: dict[str, Any] = {} if metrics is None else {"metrics": [m.strip() for m in metrics.split(",")]}
    results = []
    for name in models:
        result = tl.evaluate(open_model(name), held_out, ks=lengths, **chosen)
        results.append(result if len(models) == 1 else _called(result, Path(name).name))
    emit(pl.concat([result.summary() for result in results]), output=output)
    if per_user is not None:
        each = [plain(r.per_user()).with_columns(pl.lit(r.model).alias("model")) for r in results]
        write(pl.concat(each), per_user)
        say(f"wrote {per_user}")
    if len(results) > 1 and measure in results[0].values:
        say("compared user by user (paired t-test, Holm-corrected):")
        emit(tl.compare_means(results, measure))


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ParameterError(f"--ks is {text!r}; it is whole numbers with commas, e.g. 2,5,10,20") from None


def _called(result: Any, name: str) -> Any:
    """Two models of one kind are told apart by their directories."""
    from dataclasses import replace

    return replace(result, model=f"{result.model} ({name})")
