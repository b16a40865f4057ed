"""`truelike train`."""

from __future__ import annotations

import time as clock
from pathlib import Path
from typing import Annotated, Any

import typer

from truelike.cli.inputs import LOG, open_data, open_impressions, read_config, reads_a_log, settings
from truelike.cli.output import say


@reads_a_log
def train(
    read: dict[str, Any],
    log: Annotated[str | None, LOG] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")] = Path("model"),
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Such as NBPO or EASE; chosen by the log where not given.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="A parameter of the model, name=value.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A TOML file: data, model, [parameters], [read].")
    ] = None,
    impressions: Annotated[
        str | None,
        typer.Option(help="What was shown to whom: a log file, with a column `propensity` or without."),
    ] = None,
    user_features: Annotated[
        Path | None,
        typer.Option(exists=True, help="A table of the users, CSV or Parquet: ids and whatever is known; for FM."),
    ] = None,
    item_features: Annotated[
        Path | None, typer.Option(exists=True, help="The same of the items; for FM and ACF.")
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(
            help="The share of the votes to find the number of epochs with, before all are trained on; "
            "0.1 for a whole log whose epochs are not set."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Write the state of the training here, every 10 epochs or 5 minutes.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from --checkpoint, where it stopped.")] = False,
) -> None:
    """Train a model on a log, or on the training part of a split, and save it.

    Without --model the one is taken that ranked best on logs of this size and shape. Example:
    `truelike train purchases.csv -o model/`, or `truelike train purchases.csv --model NBPO --set factors=100`
    """
    import truelike as tl
    from truelike.models import build, variant
    from truelike.models.default import choose, needed_for
    from truelike.storage import check_model_place

    file = read_config(config)
    source = log or file.get("data")
    if source is None:
        raise typer.BadParameter("say which log to train on: truelike train LOG, or data = ... in the config")
    keywords = {**file.get("read", {}), **read}
    both = {"user": user_features, "item": item_features}
    features = {side: path for side, path in both.items() if path is not None}
    beside = {"impressions": impressions, **{f"{side}_features": path for side, path in features.items()}}
    named = model or file.get("model") or needed_for(beside)
    given = {**file.get("parameters", {}), **settings(set_ or [])}
    made = None if named is None else build(named, given)
    if made is not None:  # a mistake is told before the log is read
        _check(made, checkpoint, resume, impressions, features)
    _check_share(validation, impressions)
    check_model_place(output)
    data = open_data(source, keywords)
    if made is None:
        chosen, reason = choose(data.train if isinstance(data, tl.Split) else data)
        made = build(chosen, given)
        say(f"{made}: {reason}")
    how = _check(made, checkpoint, resume, impressions, features)
    if impressions is not None:
        how["impressions"] = open_impressions(impressions, keywords, data)
    say(f"training {made} on {data}")
    log_of, held_out = _parts(data, validation, made, {*given, *how, *(variant(named)[1] if named else ())})
    started = clock.perf_counter()
    made.fit(log_of, validation=held_out, **how)
    say(f"trained in {clock.perf_counter() - started:.1f} s")
    metrics = {}
    if isinstance(held_out, float):
        metrics = _found(made)
    elif held_out is not None and held_out is not None and held_out.n_interactions:
        measured = tl.evaluate(made, held_out)
        metrics = {f"validation {name}": value for name, value in measured.means().items()}
        say(f"validation: {', '.join(f'{name} {measured[name]:.4f}' for name in ('f1@2', 'ndcg@20'))}")
    made.save(output, metrics=metrics)
    say(f"wrote {output}")


def _check_share(validation: float | None, impressions: str | None) -> None:
    from truelike.data.checks import check_share

    if validation is not None:
        check_share("validation", validation)
    if validation and impressions is not None:
        raise typer.BadParameter("with impressions a held-out vote looks like a dislike: train on a split")


def _parts(data: Any, validation: float | None, model: Any, said: set[str]) -> tuple[Any, Any]:
    """What to train on, and what to choose an epoch by: a part of a split, or a share of the log."""
    from truelike.data.splits import Split
    from truelike.models.default import usual_validation
    from truelike.models.iterative import IterativeModel

    if isinstance(data, Split) and data.validation.n_interactions:
        if validation is not None:
            raise typer.BadParameter("a split has a validation part: --validation is for a whole log")
        return data.train, data.validation
    log = data.train if isinstance(data, Split) else data
    if not isinstance(model, IterativeModel):
        if validation is not None:
            say(f"{model.name} is trained in one go: there are no epochs to find by --validation")
        return log, None
    return log, usual_validation(log, said) if validation is None else validation


def _found(model: Any) -> dict[str, float]:
    """What the search for the number of epochs gave."""
    if model.search_history_ is None:
        return {}
    epochs, value = len(model.history_), max(model.search_history_[model.monitor])
    say(f"{epochs} epochs, which were best on votes that were held out: {model.monitor} {value:.4f}")
    return {"epochs": epochs, f"held-out {model.monitor}": value}


def _check(
    model: Any, checkpoint: Path | None, resume: bool, impressions: str | None, features: dict[str, Path]
) -> dict[str, Any]:
    """What `fit` is told beside the log, if the model can use it."""
    if impressions is not None and not model.takes_impressions:
        raise typer.BadParameter(f"{model.name} cannot use --impressions: say --model ExactNBPO")
    for side in features:
        if side not in model.takes_features:
            raise typer.BadParameter(f"{model.name} cannot use --{side}-features: say --model FM")
    return {**_stops(model, checkpoint, resume), **{f"{side}_features": path for side, path in features.items()}}


def _stops(model: Any, checkpoint: Path | None, resume: bool) -> dict[str, Any]:
    """What `fit` is told of checkpoints; models that do not iterate have none."""
    from truelike.models.iterative import IterativeModel

    if resume and checkpoint is None:
        raise typer.BadParameter("--resume goes on from a checkpoint: name its directory with --checkpoint")
    if checkpoint is None:
        return {}
    if not isinstance(model, IterativeModel):
        raise typer.BadParameter(f"{model.name} is trained in one go: it has no checkpoints")
    return {"checkpoint": checkpoint, "resume": resume}
