"""`truelike compare`."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from truelike.cli.inputs import LOG, open_data, reads_a_log, settings
from truelike.cli.output import emit, say, show, write


@reads_a_log
def compare(
    read: dict[str, Any],
    log: Annotated[str, LOG],
    models: Annotated[
        str | None,
        typer.Option(
            "--models", "-m", help="Such as BPR,ItemKNN,NeuMF:objective=NBPO; all but networks where not given."
        ),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="What models are tuned by on validation and ranked by on test.")
    ] = "ndcg@20",
    trials: Annotated[int | None, typer.Option(help="Candidates of each model; 18 where not given.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Instead: the time of each model for the search, in one process.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Final runs of each model.")] = 3,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", help="A parameter that is not searched, name=value, of models that have it."),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--directory", "-d", help="Keep all runs here; a stopped comparison goes on.")
    ] = Path("comparison"),
    seed: Annotated[
        int, typer.Option(help="Of the split, where the log is whole, of the search and the models.")
    ] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes; one for each core.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page; report.html in the directory if not given.")
    ] = None,
    table: Annotated[Path | None, typer.Option(help="Write the table here, too (.csv, .parquet, .jsonl).")] = None,
) -> None:
    """Find out which model suits a log: tune all alike, judge them on the test part, say which to use.

    A whole log is split by user first. The table goes to stdout, the plots to one HTML page.
    Example: `truelike compare purchases.csv --models ItemKNN,BPR,NBPO`
    """
    import truelike as tl
    from truelike.comparison.compare import chosen_models, with_default
    from truelike.comparison.report import shown
    from truelike.report import require_report_extra

    names = chosen_models(None if models is None else [name.strip() for name in models.split(",")])
    fixed = _parsed(names, settings(set_ or []))
    if output is not None:
        require_report_extra()  # before the work, not after it
    data = open_data(log, read)
    if models is None:
        names = with_default(names, data, fixed)
    say(f"comparing {', '.join(names)} on {data}")
    try:
        found = tl.compare(
            data, names, metric=metric, n_trials=trials, minutes=minutes, seeds=seeds,
            directory=directory, jobs=jobs, seed=seed, report=_Progress(metric), **fixed,
        )  # fmt: skip
    except KeyboardInterrupt:
        say(f"what is finished is kept in {directory}: the same command goes on from there")
        raise
    found.source, found.read = log, read
    found.write_config()
    if sys.stdout.isatty():
        narrow = [name for name in shown(found).columns if not name.startswith("coverage")]
        show(shown(found).select(narrow), title="On the test part; =: not worse than the best beyond chance")
    else:
        emit(found.frame)
    if table is not None:
        write(found.frame, table)
        say(f"wrote {table}")
    _write_page(found, output or directory / "report.html")
    say(found.sentence)


class _Progress:
    """A line for each run."""

    def __init__(self, metric: str) -> None:
        self.metric, self.count = metric, 0

    def __call__(self, record: dict[str, Any]) -> None:
        from truelike.tuning.trials import score

        self.count += 1
        if "error" in record:
            words = record["error"]
        elif "test" in record:
            words = f"{self.metric} {record['test'][self.metric]:.4f} on test"
        else:
            words = f"{self.metric} {score(record, self.metric):.4f} on validation"
        say(f"{self.count:4}  {record['model']:<12}  {record['seconds']:7.1f} s  {words}")


def _parsed(names: list[str], pairs: dict[str, str]) -> dict[str, Any]:
    """Settings as the types of the models that have them; what none has is left for `tl.compare` to refuse."""
    from truelike.models import variant
    from truelike.parameters import parse

    found: dict[str, Any] = dict(pairs)
    for kind, _ in map(variant, names):
        known = {f.name for f in fields(kind)}
        found.update(parse(kind, {name: value for name, value in pairs.items() if name in known}))
    return found


def _write_page(found: Any, path: Path) -> None:
    """The page where the [report] extra is there; the table was printed in any case."""
    from truelike.errors import MissingExtraError

    try:
        say(f"wrote {found.write(path)}")
    except MissingExtraError as error:
        say(f"no page was written: {error}")
