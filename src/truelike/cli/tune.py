"""`truelike tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from truelike.cli.inputs import open_data
from truelike.cli.messages import say
from truelike.cli.options import Fixed, Log, OnCluster, Reading, SearchSeed, Workers, option, parse_settings
from truelike.cli.output import check_output, put, write


def tune(
    log: Log,
    read: Reading,
    model: Annotated[str, option("Name of the model.", "NAME", "--model", "-m")] = "NBPO",
    search: Annotated[
        Literal["halving", "optuna", "paper"],
        option("Successive halving, Optuna (TPE), or the grids of the paper."),
    ] = "halving",
    metric: Annotated[str, option("Metric to maximize on validation.")] = "ndcg@20",
    trials: Annotated[int, option("Number of candidates of halving and optuna.", "N", min=1)] = 54,
    set_: Fixed = None,
    directory: Annotated[
        Path | None, option("Keep trials here; a stopped search continues.", "DIRECTORY", "--directory", "-d")
    ] = None,
    config: Annotated[
        Path | None, option("Write the best settings for `train --config`.", "FILE", "--config", "-c")
    ] = None,
    output: Annotated[Path | None, option("Write the table of all trials.", "FILE", "--output", "-o")] = None,
    seed: SearchSeed = 0,
    n_workers: Workers = -1,
    cluster: OnCluster = None,
) -> None:
    """Search for the parameters of a model that are best on validation.

    A log is split as `truelike compare` does it: the last 10 % of each user's interactions are not used, and the 10 %
    before them are the validation part; without times they are drawn at random. Of a split directory, the training
    and the validation part are used; the test part is not. `truelike data split` makes a split directory, also from
    files of your own. The best settings are printed as TOML unless --config or --output is given.

    For example:
    ```
    truelike tune split/ --model BPR --config bpr.toml
    truelike train --config bpr.toml -o model/
    ```
    """
    import truelike as tl
    from truelike.core.files import refuse_special, replacing_file
    from truelike.core.parameters import parse
    from truelike.models.registry import variant
    from truelike.selection.trials import settings, toml

    kind, own = variant(model)
    fixed = {**own, **parse(kind, parse_settings(set_))}
    check_output(output)
    if config is not None:
        refuse_special(config)
    data = open_data(log, read)
    split = data if isinstance(data, tl.Split) else tl.splits.by_user(data, by=None, seed=seed)
    if data is not split:
        order = "in the order of time" if split.info["by"] == "time" else "at random"
        say(f"LOG is split by user, {order}: 80 % for training, 10 % for validation; the rest is not used")
    say(f"tuning {kind.__name__} on {split}")
    try:
        found = tl.tune(
            kind, split, search=search, metric=metric, n_trials=trials, directory=directory,
            n_workers=n_workers, seed=seed, cluster=cluster, **fixed,
        )  # fmt: skip
    except KeyboardInterrupt:
        if directory is not None:
            say(f"finished trials are kept in {directory}: the same command continues the search")
        raise
    best = found.make()
    say(f"best: {metric} {found.score:.4f} on validation with {best!r}")
    about, parameters = [f"{metric} on validation: {found.score!r}"], settings(best)
    if data is not split and found.best.get("best_epoch"):
        about.append("epochs: the best epoch on a split of the log; the whole log is trained as long")
        parameters["epochs"] = found.best["best_epoch"]
    text = toml(log, kind.__name__, parameters, about, read)
    if config is not None:
        with replacing_file(config) as fresh:
            fresh.write_text(text, encoding="utf-8")
        say(f"wrote {config}")
    if output is not None:
        write(found.trials, output)
    if config is None and output is None:
        put(text)
