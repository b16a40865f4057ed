"""`truelike compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from truelike.cli.inputs import open_data
from truelike.cli.messages import say
from truelike.cli.options import OnCluster, Reading, SearchSeed, Workers, listed, option, parse_settings
from truelike.cli.output import check_output, emit, show, write

if TYPE_CHECKING:
    import polars as pl

    from truelike.selection.comparison import Comparison
    from truelike.selection.comparisons import Comparisons
    from truelike.selection.variants import Variant

REPORT = "report.html"


def compare(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG...",
            help="One or more datasets: CSV, TSV, JSONL or Parquet files of interactions, split directories, or names "
            "of public datasets.",
            show_default=False,
        ),
    ],
    read: Reading,
    models: Annotated[
        str | None,
        option(
            "Models, e.g. BPR,ItemKNN,NeuMF:objective=NBPO. Default: all except networks.",
            "NAME,NAME,...",
            "--models",
            "-m",
        ),
    ] = None,
    metric: Annotated[
        str, option("Metric to tune and choose by on validation, and to rank by on test.")
    ] = "ndcg@20",
    by: Annotated[
        Literal["time", "random"] | None,
        option("Hold out each user's last interactions (time) or random ones. Default: time if LOG has times."),
    ] = None,
    seen: Annotated[
        Literal["train", "validation"],
        option("Leave training items, or also validation items, out of the lists on test."),
    ] = "validation",
    trials: Annotated[int, option("Number of candidates of each model.", "N", min=1)] = 18,
    seeds: Annotated[int, option("Number of final runs of each model.", "N", min=1)] = 3,
    set_: Annotated[
        list[str] | None,
        option(
            "Parameter that is not searched, of all models that have it. Can be repeated.",
            "NAME=VALUE",
            "--set",
            "-s",
        ),
    ] = None,
    directory: Annotated[
        Path, option("Keep all runs here; a stopped comparison continues.", "DIRECTORY", "--directory", "-d")
    ] = Path("comparison"),
    output: Annotated[
        Path | None, option("HTML page. Default: report.html in the directory.", "FILE", "--output", "-o")
    ] = None,
    table: Annotated[
        Path | None, option("Write the table to a .csv, .tsv, .jsonl or .parquet file.", "FILE")
    ] = None,
    lists: Annotated[
        int | None,
        option("Keep the lists of the final runs, of this length, as TREC files in the directory.", "N", min=1),
    ] = None,
    manifest: Annotated[
        Path | None,
        option("Run a comparison again: take models and settings from its manifest.json.", "FILE"),
    ] = None,
    seed: SearchSeed = 0,
    n_workers: Workers = -1,
    cluster: OnCluster = None,
) -> None:
    """Find out which model suits a dataset.

    All models are tuned with the same budget on validation and evaluated once on the test part. The best on validation
    is the one to use; the others are tested against it. Of a log, the last
    10 % of each user's interactions are the test part, and the 10 % before them the validation part; without times
    they are drawn at random. A split directory is used as it is. `truelike data split` makes one, also from files of
    your own. The table goes to stdout, the plots to an HTML page, and the settings of the best model to best.toml.

    Of several datasets the table has each of them and the mean rank, and each has a directory with its own page.

    For example:
    ```
    truelike compare purchases.csv
    truelike compare split/ --models ItemKNN,BPR,NBPO
    truelike compare movies/ books/ music/ --seeds 5
    truelike compare purchases.csv --manifest comparison/manifest.json -d again/
    ```
    """
    import truelike as tl
    from truelike.report import page_path, require_report_extra
    from truelike.selection.plan import chosen_models

    names = None if models is None else listed(models)
    pairs = parse_settings(set_)
    if manifest is None:
        chosen = chosen_models(names)
        fixed = _parse(chosen, pairs)
    elif names or pairs:
        raise typer.BadParameter("--manifest has all models and settings: leave out --models and --set")
    else:
        fixed = {}
    check_output(table)
    if output is not None:
        page_path(output)  # before the work, not after it
        require_report_extra()
    several = {name: open_data(log, read) for name, log in _names(logs).items()}
    what = ", ".join(model.name for model in chosen) if manifest is None else f"the models of {manifest}"
    say(f"comparing {what} on {', '.join(map(str, several.values()))}")
    try:
        found: Any = tl.compare(
            several if len(several) > 1 else several.popitem()[1], names, metric=metric, by=by, seen=seen,
            n_trials=trials, seeds=seeds, directory=directory, n_workers=n_workers, seed=seed, cluster=cluster,
            lists=lists, manifest=manifest, **fixed,
        )  # fmt: skip
    except KeyboardInterrupt:
        say(f"finished trials are kept in {directory}: the same command continues the comparison")
        raise
    page = output or directory / REPORT
    if len(logs) == 1:
        _report_one(found, logs[0], read, table, page)
    else:
        _report_several(found, logs, read, table, page)


def _names(logs: list[str]) -> dict[str, str]:
    """The names of datasets: those of their files and directories, or as they were given where two are the same.

    >>> _names(["data/ml.csv", "books/"]), _names(["a/log.csv", "b/log.csv"])
    ({'ml': 'data/ml.csv', 'books': 'books/'}, {'a/log.csv': 'a/log.csv', 'b/log.csv': 'b/log.csv'})
    """
    short = [Path(log).name.partition(".")[0] or log for log in logs]
    names = short if len(set(short)) == len(logs) else logs
    if len(set(names)) < len(logs):
        raise typer.BadParameter(f"a dataset is given twice: {', '.join(logs)}")
    return dict(zip(names, logs, strict=True))


def _report_one(found: Comparison, log: str, read: dict[str, Any], table: Path | None, page: Path) -> None:
    """Write the table, the page and the conclusion of one dataset."""
    from truelike.selection.comparison_page import shown, split_used

    found.source, found.read = log, read
    found.write_config()
    wide = shown(found)
    narrow = wide.select([name for name in wide.columns if not name.startswith("coverage")])
    _emit(found.frame, narrow, "Results on the test part, against the best on validation", table)
    _write_page(found, page)
    say(split_used(found))
    say(found.sentence)


def _report_several(
    found: Comparisons, logs: list[str], read: dict[str, Any], table: Path | None, page: Path
) -> None:
    """Write the table, the pages and the conclusion of several datasets."""
    from truelike.selection.comparisons_page import shown

    for each, log in zip(found.values(), logs, strict=True):
        each.source, each.read = log, read
    _emit(found.frame, shown(found), f"{found.plan.metric} on the test parts", table)
    for each in found.values():
        assert each.directory is not None
        each.write_config()
        _write_page(each, each.directory / REPORT)
    _write_page(found, page)
    say(found.sentence)


def _emit(frame: pl.DataFrame, shown: pl.DataFrame, title: str, table: Path | None) -> None:
    """Print the table, for people in a terminal and as CSV in a pipe, and write it to a file."""
    if sys.stdout.isatty():
        show(shown, title=title)
    else:
        emit(frame)
    if table is not None:
        write(frame, table)


def _parse(models: list[Variant], pairs: dict[str, str]) -> dict[str, Any]:
    """Settings in the types of the models that have them; `tl.compare` rejects those that no model has."""
    from truelike.core.parameters import parameter_fields, parse

    found: dict[str, Any] = dict(pairs)
    for model in models:
        known = {f.name for f in parameter_fields(model.model_class)}
        found.update(parse(model.model_class, {name: value for name, value in pairs.items() if name in known}))
    return found


def _write_page(found: Comparison | Comparisons, path: Path) -> None:
    """Write the HTML page if the packages for it are installed."""
    from truelike.errors import MissingExtraError

    try:
        say(f"wrote {found.write(path)}")
    except MissingExtraError as error:
        say(f"the HTML page is not written: {error}")
