"""`truelike evaluate`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from truelike.cli.inputs import impressions_from, open_data, open_model, open_new_users
from truelike.cli.messages import say
from truelike.cli.options import (
    PARTS,
    Group,
    Jobs,
    OnCluster,
    OutputTable,
    Read,
    SeenByKind,
    listed,
    number_or_text,
    option,
    read_options,
    seen_by,
)
from truelike.cli.output import check_output, drawn, emit, show, write

if TYPE_CHECKING:
    import polars as pl

    from truelike.evaluation.result import Evaluation


def evaluate(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... LOG",
            help="Model directories or files of lists, then a split directory, a test log or a block directory.",
        ),
    ],
    read: Annotated[Read, Group(read_options, ("titles", *PARTS))],
    part: Annotated[Literal["validation", "test"], option("Part of a split to evaluate on.")] = "test",
    seen: Annotated[
        Literal["train", "validation"] | None,
        option(
            "Leave training items, or also the validation items of a split, out of the lists. Default: validation for "
            "the test part of a split, else train."
        ),
    ] = None,
    exclude_seen: SeenByKind = None,
    ks: Annotated[str, option("Lengths of the lists.", "K,K,...")] = "2,5,10,20",
    metrics: Annotated[
        str | None, option("Metrics, e.g. ndcg,recall. Default: all but capped_recall.", "NAME,NAME,...")
    ] = None,
    measure: Annotated[
        str | None, option("What several models are compared by, e.g. ndcg@20. Default: NDCG of the longest list.")
    ] = None,
    propensity: Annotated[
        str | None,
        option(
            "Also weight held-out rows by 1 / propensity: a file with user, item and propensity (or item and "
            "propensity), or a power of the popularity in training, e.g. popularity^0.5.",
            "FILE|popularity^P|NUMBER",
        ),
    ] = None,
    propensity_clip: Annotated[
        float | None, option("Raise smaller propensities to this one. Default: none.", "SHARE")
    ] = None,
    impressions: Annotated[
        str | None,
        option(
            "Score on held-out impressions instead of lists: pairs that were shown; LOG says which were taken.",
            "FILE",
        ),
    ] = None,
    output: OutputTable = None,
    comparison: Annotated[Path | None, option("Write the comparison of several models to a file.", "FILE")] = None,
    per_user: Annotated[Path | None, option("Write the metrics of each user to a file.", "FILE")] = None,
    n_jobs: Jobs = -1,
    cluster: OnCluster = None,
) -> None:
    """Evaluate saved models on held-out interactions.

    LOG is a split directory, or a log or block directory of test rows. A terminal shows one row per metric and one
    column per list length. Pipes and files get one row per measure, with a 95 % interval. Several models are
    also compared user by user with a paired t-test.

    A file in place of a model has lists from elsewhere: user, item, and rank or score.

    Of a split with new users (`truelike data split --by new-users`), a model is given the histories.

    With --propensity, the metrics are also estimated for all held-out likes, shown or not. A file gets the columns
    weighted, weighted_low, weighted_high, unweighted and effective_sample_size.

    For example:
    ```
    truelike evaluate model/ split/ --ks 5,20
    truelike evaluate model/ test.csv
    truelike evaluate model/ lists.parquet split/
    truelike evaluate a/ b/ split/ --measure ndcg@20 --comparison compared.csv
    truelike evaluate model/ split/ --propensity popularity^0.5 -o estimates.jsonl
    truelike evaluate model/ held-out.csv --impressions held-out-impressions.csv
    ```
    """
    import polars as pl

    import truelike as tl
    from truelike.data.frames import text_for_uuids
    from truelike.evaluation.result import USUAL_METRICS

    if len(paths) < 2:
        raise typer.BadParameter("expected model directories and then LOG: truelike evaluate model/ split/")
    *models, source = paths
    lengths = _lengths(ks)
    chosen = list(USUAL_METRICS) if metrics is None else listed(metrics)
    names = _names(models)
    compared = _compared_by(measure, chosen, lengths, impressions) if len(models) > 1 else ""
    for file in (output, comparison, per_user):
        check_output(file)
    if part == "validation" and seen == "validation":
        raise typer.BadParameter("--seen validation would leave out what --part validation is to find")
    of_known_users: dict[str, Any] = {
        "impressions": impressions is not None, "cluster": cluster, "propensity": number_or_text(propensity),
        "propensity_clip": propensity_clip,
    }  # fmt: skip
    how: dict[str, Any] = {"ks": lengths, "metrics": chosen, "n_jobs": n_jobs}
    measure_model: Callable[..., Evaluation] = tl.evaluate
    train = None  # which files of lists do not know
    if (new := open_new_users(source, read)) is not None:
        _refuse(
            {"seen": seen, "exclude_seen": exclude_seen, **of_known_users},
            f"{source} has new users",
            "for known ones",
        )
        _refuse_lists(models, source)
        held_out, measure_model = getattr(new, part), tl.evaluate_new_users
    else:
        data = open_data(source, read, blocks=True)
        held_out = _held_out(data, part, impressions, models[0], read)
        train = data.train if isinstance(data, tl.Split) and part == "validation" else None
        how |= {"seen": seen, "exclude_seen": seen_by(exclude_seen), **of_known_users}
    results = []
    for path, name in zip(models, names, strict=True):
        if Path(path).is_file():
            _refuse({"exclude_seen": exclude_seen, **of_known_users}, f"{path} is a file of lists", "for models")
            result = tl.evaluate_lists(
                path, held_out, train=train, seen=seen, ks=lengths, metrics=metrics and chosen, name=name
            )
        else:
            result = _of_model(measure_model, path, name if len(models) > 1 else None, held_out, **how)
        results.append(result)
    _put(results, output)
    if per_user is not None:
        each = [text_for_uuids(r.per_user()).with_columns(pl.lit(r.model).alias("model")) for r in results]
        write(pl.concat(each), per_user)
    if len(results) > 1:
        table = tl.compare_means(results, compared)
        say(drawn(table, title="Compared user by user (paired t-test, Holm's correction)").rstrip("\n"))
        if comparison is not None:
            write(table, comparison)


def _of_model(
    measure_model: Callable[..., Evaluation], path: str, name: str | None, held_out: Any, **options: Any
) -> Evaluation:
    """Evaluate a saved model; one of several has the name of its directory, too."""
    model = open_model(path)
    if hasattr(model, "choice_"):
        say(f"{path}: {model.choice_.model}, chosen by AutoRecommender: {model.choice_.reason}")
    result = measure_model(model, held_out, name=f"{model.name} ({name})" if name else model.name, **options)
    for note in result.notes:
        say(f"{result.model}: {note}")
    return result


def _refuse(options: dict[str, Any], given: str, what: str) -> None:
    """Raise an error for options that have no use."""
    for name, value in options.items():
        if value not in (None, False):
            raise typer.BadParameter(f"{given}, and --{name.replace('_', '-')} is {what}: leave it out")


def _refuse_lists(paths: list[str], source: str) -> None:
    """Raise an error for files of lists beside new users."""
    for path in paths:
        if Path(path).is_file():
            raise typer.BadParameter(f"{path} is a file of lists, and {source} has new users: give models")


def _held_out(data: Any, part: str, source: str | None, model: str, read: Read) -> Any:
    """What to evaluate on: a split, of which the test part, or its validation part, or the interactions of a log.

    With a file of impressions, interactions with these, over the users and items of a model.
    """
    import truelike as tl

    if source is None:
        return data.validation if part == "validation" and isinstance(data, tl.Split) else data
    held_out = getattr(data, part) if isinstance(data, tl.Split) else data
    train = open_model(model).train_
    of_rows = {name: read[name] for name in ("user", "item", "on_bad_rows", "format", "separator", "header", "encoding")
               if name in read}  # fmt: skip
    return tl.read(held_out.recode(train.users, train.items)[0], impressions=impressions_from(source), **of_rows)


def _put(results: list[Evaluation], output: Path | None) -> None:
    """Show the tables of each result in a terminal, or write one table of all."""
    import polars as pl

    if output is not None or not sys.stdout.isatty():
        emit(pl.concat([_table(result) for result in results], how="diagonal"), output=output)
        return
    for result in results:
        without = f", without {' and '.join(result.left_out)} items" if result.left_out else ""
        table = result.summary().drop("left_out", strict=False)
        show(table, title=f"{result.model}, {len(result.users):,} users{without}")
        if result.propensity is not None:
            about = f"weighted by 1 / propensity ({result.propensity.about()})"
            show(result.propensity.estimates().drop("model", "effective_sample_size"), title=about)


def _table(result: Evaluation) -> pl.DataFrame:
    """One row per measure, with the weighted estimates if there are any."""
    table: pl.DataFrame = result.intervals()
    if result.propensity is None:
        return table
    names = {"value": "weighted", "low": "weighted_low", "high": "weighted_high"}
    estimates: pl.DataFrame = result.propensity.estimates().drop("model").rename(names)
    return table.join(estimates, on=["metric", "k"], how="left", maintain_order="left", nulls_equal=True)


def _lengths(text: str) -> list[int]:
    try:
        lengths = [int(number) for number in text.split(",")]
    except ValueError:
        lengths = []
    if not lengths or min(lengths) < 1:
        raise typer.BadParameter(f"--ks is {text!r}; expected whole numbers, at least 1, e.g. 2,5,10,20")
    return lengths


def _names(models: list[str]) -> list[str]:
    """The names of the directories, or the whole paths where names are the same."""
    names = [Path(model).resolve().name for model in models]
    names = names if len(set(names)) == len(names) else models
    if len(set(names)) < len(names):
        raise typer.BadParameter(f"a model was given twice: {', '.join(models)}")
    return names


def _compared_by(measure: str | None, metrics: list[str], lengths: list[int], impressions: str | None) -> str:
    """The measure to compare by: the given one, or by default NDCG of the longest list."""
    from truelike.evaluation.metrics import METRICS

    if impressions is not None:
        return measure or "shown_auc"
    each = [name for name in metrics if name in METRICS] or ["ndcg"]
    measured = [f"{name}@{k}" for name in each for k in lengths]
    if measure is None:
        return f"{'ndcg' if 'ndcg' in each else each[0]}@{max(lengths)}"
    if measure not in measured:
        raise typer.BadParameter(
            f"--measure is {measure!r}; with these --ks and --metrics, expected one of {', '.join(measured)}"
        )
    return measure
