"""`truelike tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from truelike.cli.inputs import LOG, open_data, reads_a_log, settings
from truelike.cli.output import emit, put, say


@reads_a_log
def tune(
    read: dict[str, Any],
    log: Annotated[str, LOG],
    model: Annotated[str, typer.Option("--model", "-m", help="What to tune.")] = "NBPO",
    search: Annotated[str, typer.Option(help="halving, optuna or paper (its grids).")] = "halving",
    metric: Annotated[str, typer.Option(help="What is best, on validation.")] = "ndcg@20",
    trials: Annotated[int, typer.Option(help="Candidates of halving and optuna.")] = 54,
    set_: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="A parameter that is not searched, name=value.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--directory", "-d", help="Keep the trials here; a stopped search goes on.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Of the split, where the log is whole, of the search and the models.")
    ] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes; one for each core.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the table of all trials here.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Write the best as TOML for `truelike train --config`.")
    ] = None,
) -> None:
    """Find the parameters of a model that are best on validation; a whole log is split by user first.

    The test part of a split is not looked at. Example: `truelike tune split/ --model BPR --config bpr.toml`
    """
    import truelike as tl
    from truelike.models import model_class
    from truelike.parameters import parse
    from truelike.tuning.trials import score, toml
    from truelike.tuning.trials import settings as settings_of

    kind = model_class(model)
    fixed = parse(kind, settings(set_ or []))
    data = open_data(log, read)
    whole = not isinstance(data, tl.Split)
    if not isinstance(data, tl.Split):
        data = tl.split.by_user(data, validation=0.1, test=0.1, seed=seed)
        say(f"split by user: {data.train.n_interactions:,} rows to train on, a tenth each to tune and to test")
    count = 0

    def report(record: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        say(f"{count:4}  {metric} {score(record, metric):.4f}  {record['seconds']:6.1f} s  {_short(record)}")

    found = tl.tune(
        kind.__name__, data.train, data.validation, search=search, metric=metric, n_trials=trials,  # type: ignore[arg-type]
        directory=directory, jobs=jobs, seed=seed, report=report, **fixed,
    )  # fmt: skip
    say(f"best: {metric} {found.score:.4f} with {found.make()}")
    about, best = [f"{metric} on validation: {found.score!r}"], settings_of(found.make())
    if whole and found.best.get("best_epoch"):
        about.append("of the best epoch of a split of this log; the whole log is trained for as many")
        best["epochs"] = found.best["best_epoch"]
    text = toml(log, kind.__name__, best, about, read)
    if config is not None:
        from truelike.files import replacing_file

        with replacing_file(config) as fresh:
            fresh.write_text(text, encoding="utf-8")
        say(f"wrote {config}")
    if output is not None:
        emit(found.trials, output=output)
    if config is None and output is None:
        put(text)


def _short(record: dict[str, Any]) -> str:
    hidden = ("monitor", "seed", "recipe", "patience")
    return " ".join(f"{name}={value}" for name, value in record["parameters"].items() if name not in hidden)
