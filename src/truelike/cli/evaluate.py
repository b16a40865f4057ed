"""`truelike evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from truelike.cli.inputs import open_data, open_model, reads_a_log
from truelike.cli.output import emit, plain, say, show, write


@reads_a_log
def evaluate(
    paths: Annotated[list[str], typer.Argument(metavar="MODEL... SPLIT", help="Models, then what to judge by.")],
    read: dict[str, Any],
    part: Annotated[str, typer.Option(help="Of a split: validation or test.")] = "test",
    ks: Annotated[str, typer.Option(help="Lengths of the lists.")] = "2,5,10,20",
    metrics: Annotated[str | None, typer.Option(help="Such as f1,ndcg; all where not given.")] = None,
    measure: Annotated[
        str | None,
        typer.Option(help="What several models are compared by; NDCG of the longest list if not given."),
    ] = None,
    comparison: Annotated[
        Path | None, typer.Option(help="Write the comparison here (.csv, .parquet, .jsonl).")
    ] = None,
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
    from truelike.evaluation.evaluate import ALL

    if len(paths) < 2:
        raise typer.BadParameter("give one or more model directories and then a split, e.g. model/ split/")
    if part not in ("validation", "test"):
        raise typer.BadParameter(f"--part is {part!r}; it is validation or test")
    *models, source = paths
    lengths = _numbers(ks)
    chosen = list(ALL) if metrics is None else [name.strip() for name in metrics.split(",")]
    names = _names(models)
    compared = _compared_by(measure, chosen, lengths) if len(models) > 1 else ""
    data = open_data(source, read)
    held_out = getattr(data, part) if isinstance(data, tl.Split) else data
    results = []
    for path, name in zip(models, names, strict=True):
        model = open_model(path)
        called = model.name if len(models) == 1 else f"{model.name} ({name})"
        results.append(tl.evaluate(model, held_out, ks=lengths, metrics=chosen, name=called))
    emit(pl.concat([result.summary() for result in results]), output=output)
    if per_user is not None:
        each = [plain(r.per_user()).with_columns(pl.lit(r.model).alias("model")) for r in results]
        write(pl.concat(each), per_user)
        say(f"wrote {per_user}")
    if len(results) > 1:
        table = tl.compare_means(results, compared)
        show(table, title="Compared user by user (paired t-test, Holm-corrected)", aside=True)
        if comparison is not None:
            write(table, comparison)
            say(f"wrote {comparison}")


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter(f"--ks is {text!r}; it is whole numbers from 1 up with commas, e.g. 2,5,10,20")
    return numbers


def _names(models: list[str]) -> list[str]:
    """Models are told apart by the names of their directories, or by the whole paths where those are alike."""
    names = [Path(model).resolve().name for model in models]
    names = names if len(set(names)) == len(names) else models
    if len(set(names)) < len(names):
        raise typer.BadParameter(f"a model was given twice: {', '.join(models)}")
    return names


def _compared_by(measure: str | None, metrics: list[str], lengths: list[int]) -> str:
    """The measure that was asked for, if every user will have it; else NDCG of the longest list."""
    from truelike.evaluation.metrics import METRICS

    each = [name for name in metrics if name in METRICS] or ["ndcg"]
    measured = [f"{name}@{k}" for name in each for k in lengths]
    if measure is None:
        return f"{'ndcg' if 'ndcg' in each else each[0]}@{max(lengths)}"
    if measure not in measured:
        raise typer.BadParameter(
            f"--measure is {measure!r}; with these --ks and --metrics it is one of {', '.join(measured)}"
        )
    return measure
