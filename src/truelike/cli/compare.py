"""`truelike compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from truelike.cli.inputs import open_data
from truelike.cli.messages import say
from truelike.cli.options import Log, OnCluster, Reading, SearchSeed, Workers, listed, option, parse_settings
from truelike.cli.output import check_output, emit, show, write

if TYPE_CHECKING:
    from truelike.selection.comparison import Comparison
    from truelike.selection.variants import Variant


def compare(
    log: Log,
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

    For example:
    ```
    truelike compare purchases.csv
    truelike compare split/ --models ItemKNN,BPR,NBPO
    ```
    """
    import truelike as tl
    from truelike.report import require_report_extra
    from truelike.selection.comparison_page import shown, split_used
    from truelike.selection.plan import chosen_models

    names = None if models is None else listed(models)
    chosen = chosen_models(names)
    fixed = _parse(chosen, parse_settings(set_))
    check_output(table)
    if output is not None:
        require_report_extra()  # before the work, not after it
    data = open_data(log, read)
    say(f"comparing {', '.join(model.name for model in chosen)} on {data}")
    try:
        found = tl.compare(
            data, names, metric=metric, by=by, seen=seen, n_trials=trials,
            seeds=seeds, directory=directory, n_workers=n_workers, seed=seed, cluster=cluster, **fixed,
        )  # fmt: skip
    except KeyboardInterrupt:
        say(f"finished trials are kept in {directory}: the same command continues the comparison")
        raise
    found.source, found.read = log, read
    found.write_config()
    if sys.stdout.isatty():
        wide = shown(found)
        narrow = [name for name in wide.columns if not name.startswith("coverage")]
        show(wide.select(narrow), title="Results on the test part, against the best on validation")
    else:
        emit(found.frame)
    if table is not None:
        write(found.frame, table)
    _write_page(found, output or directory / "report.html")
    say(split_used(found))
    say(found.sentence)


def _parse(models: list[Variant], pairs: dict[str, str]) -> dict[str, Any]:
    """Settings in the types of the models that have them; `tl.compare` rejects those that no model has."""
    from truelike.core.parameters import parameter_fields, parse

    found: dict[str, Any] = dict(pairs)
    for model in models:
        known = {f.name for f in parameter_fields(model.model_class)}
        found.update(parse(model.model_class, {name: value for name, value in pairs.items() if name in known}))
    return found


def _write_page(found: Comparison, path: Path) -> None:
    """Write the HTML page if the packages for it are installed."""
    from truelike.errors import MissingExtraError

    try:
        say(f"wrote {found.write(path)}")
    except MissingExtraError as error:
        say(f"the HTML page is not written: {error}")
