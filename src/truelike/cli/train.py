"""`truelike train`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truelike.cli.inputs import open_blocks, open_data, open_part, read_config
from truelike.cli.messages import say, warn
from truelike.cli.options import (
    LOG,
    Jobs,
    OnCluster,
    Read,
    Reading,
    Settings,
    option,
    parse_settings,
    refuse,
    share_or_file,
)
from truelike.core.parameters import parameter_fields
from truelike.errors import DataError, ParameterError

if TYPE_CHECKING:
    from truelike.data.blocks.blocks import Blocks
    from truelike.data.dataset import Dataset
    from truelike.data.splits import Split
    from truelike.models.base import Recommender

    Data = Dataset | Split | Blocks


def train(
    read: Reading,
    log: Annotated[str | None, LOG] = None,
    output: Annotated[Path, option("Directory of the model.", "DIRECTORY", "--output", "-o")] = Path("model"),
    model: Annotated[
        str | None,
        option(
            "Model, such as NBPO or EASE. Default: the best on held-out interactions.", "NAME", "--model", "-m"
        ),
    ] = None,
    set_: Settings = None,
    budget: Annotated[
        str | None,
        option("How much to try before a model is chosen. Default: normal.", "quick|normal|thorough|SECONDS"),
    ] = None,
    config: Annotated[
        Path | None, option("TOML file with data, model, [parameters] and [read].", "FILE", "--config", "-c")
    ] = None,
    validation: Annotated[
        str | None,
        option(
            "Held-out interactions, to keep the best epoch by; or a share of LOG to find the number of epochs "
            "with, before training on all of LOG. Default for a log whose epochs are not set: 0.1.",
            "FILE|SHARE",
        ),
    ] = None,
    events: Annotated[
        Path | None,
        option("Add the events that `truelike serve --events DIRECTORY` kept to the training data.", "DIRECTORY"),
    ] = None,
    checkpoint: Annotated[
        Path | None, option("Directory for checkpoints, written every 10 epochs or 5 minutes.", "DIRECTORY")
    ] = None,
    resume: Annotated[bool, option("Continue from the checkpoint.", None, "--resume")] = False,
    n_jobs: Jobs = -1,
    cluster: OnCluster = None,
) -> None:
    """Train a model and save it.

    LOG is a log, or a split directory, of which the training and the validation part are used. Without --model,
    models and settings are compared on held-out interactions, and the best is trained; the choice and its reason are
    printed.

    LOG may also be a block directory, which need not fit into memory. Of several blocks, IALS and SampledMF with its
    presets have one at a time in memory, or train them on a cluster with --cluster. The default is IALS then.

    For example:
    ```
    truelike train purchases.csv -o model/
    truelike train purchases.csv --budget thorough -o model/
    truelike train purchases.csv --model NBPO --set factors=100 -o model/
    truelike train train.csv --validation validation.csv -o model/
    truelike train purchases.csv --events events/ -o model/
    truelike train purchases.csv --impressions shown.parquet -o model/
    truelike train blocks/ --model IALS --validation validation.csv --cluster auto -o model/
    truelike train blocks/ --model ImpressionMF -o model/
    truelike train events.csv --kind event --kinds view=0.2,buy=1,seen=shown --target buy --items products.csv -o model/
    ```
    """
    import truelike as tl
    from truelike.engines.options import FitOptions
    from truelike.models.base import check_options
    from truelike.storage import check_model_place

    file = read_config(config)
    source = log or file.get("data")
    if source is None:
        raise typer.BadParameter("LOG is missing: truelike train LOG, or `data` in the config file")
    held_out = share_or_file("--validation", validation)
    keywords = {**file.get("read", {}), **read}
    name, blocks = model or file.get("model"), open_blocks(source)
    n_blocks = 0 if blocks is None else len(blocks)
    is_share, several = isinstance(held_out, float), n_blocks > 1
    refuse({
        "--resume needs --checkpoint, the directory to continue from": resume and checkpoint is None,
        "with --impressions, a held-out interaction would count as a dislike: use --validation with a file, or a split "
        "directory": is_share and held_out and "impressions" in keywords,
        "--cluster trains on a block directory, and LOG is none: write one with `truelike blocks LOG -o blocks/`":
            blocks is None and cluster is not None,
        "LOG is a block directory, to which --events cannot be added: build the blocks of the log and the events":
            blocks is not None and events is not None,
        "LOG has several blocks, of which --validation cannot hold out a share: give it a file of held-out "
        "interactions": several and is_share,
        f"--budget is for the choice of a model, and the model is {name}: leave one out":
            budget is not None and name is not None and _class_name(name) != "AutoRecommender",
        "--budget is for the choice of a model, which is not made for several blocks: leave it out":
            budget is not None and name is None and several,
    })  # fmt: skip
    given = {**file.get("parameters", {}), **parse_settings(set_)}
    if budget is not None:
        given["budget"] = budget
    if name is None and several:
        name = "IALS"
        say(
            f"{source} has {n_blocks} blocks, and AutoRecommender needs all interactions in memory, so IALS is "
            "trained; --model names another model"
        )
    made = _build(name, given, n_jobs)
    options: dict[str, Any] = {"checkpoint": checkpoint, "resume": resume}
    check_options(made, FitOptions(**options))  # before the log is read
    check_model_place(output)

    # options that a block directory has no use for may be those of another file
    strict = not (blocks is not None and isinstance(held_out, str))
    data = _with_events(open_data(source, keywords, strict=strict, blocks=True), events)
    data, part = _with_validation(data, held_out, source, keywords)
    options["cluster"] = cluster
    say(f"training {made!r} on {data}")
    started = time.perf_counter()
    if part is not None:
        made.fit(data, validation=part, **options)
        metrics = _evaluate(made, part, n_jobs)
    else:
        dataset = data.train if isinstance(data, tl.Split) else data
        made.fit(dataset, validation=_share(held_out, made, dataset), **options)
        metrics = _held_out(made)
    say(f"trained in {time.perf_counter() - started:.1f} s")
    made.save(output, metrics=metrics)
    chosen = f" ({made.choice_.model}, chosen by AutoRecommender)" if isinstance(made, tl.AutoRecommender) else ""
    say(f"wrote {output}{chosen}")


def _class_name(name: str) -> str:
    return name.partition(":")[0].strip()


def _build(name: str | None, given: dict[str, Any], n_jobs: int) -> Any:
    """The model by its name; without one, an AutoRecommender."""
    from truelike.models.registry import build, model_class

    known = {f.name for f in parameter_fields(model_class(_class_name(name or "AutoRecommender")))}
    unknown = [parameter for parameter in given if parameter not in known]
    if name is None and unknown:
        raise ParameterError(
            f"{unknown[0]} is a parameter of some models only: name a model with --model, e.g. "
            f"--model NBPO --set {unknown[0]}={given[unknown[0]]}"
        )
    of_threads = {"n_jobs": n_jobs} if n_jobs != -1 and "n_jobs" in known else {}
    return build(name or "AutoRecommender", {**of_threads, **given})


def _with_events(data: Data, directory: Path | None) -> Data:
    """The data with events added; of a split, to its training part."""
    import truelike as tl

    before = data.train if isinstance(data, tl.Split) else data
    if directory is None or not isinstance(before, tl.Dataset):
        return data
    from truelike.serving.event_data import with_events
    from truelike.serving.events import read_events

    found = read_events(directory)
    train = with_events(before, found)
    say(
        f"{found.height:,} events of {directory} were read: {before.n_interactions:,} interactions became "
        f"{train.n_interactions:,}"
    )
    return tl.Split(train, data.validation, data.test) if isinstance(data, tl.Split) else train


def _with_validation(
    data: Data, held_out: float | str | None, source: str, read: Read
) -> tuple[Data, Dataset | None]:
    """The data and its validation part, from a file if one was given; None: it has none."""
    import truelike as tl

    if isinstance(held_out, str):
        if isinstance(data, tl.Split):
            raise typer.BadParameter(
                "LOG is a split directory, which has a validation part: leave out --validation"
            )
        part = open_part(held_out, "--validation", read)
        if not isinstance(data, tl.Dataset):  # blocks
            return data, part
        data = tl.Split(data, part)
    if not isinstance(data, tl.Split) or not data.validation.n_interactions:
        return data, None
    if isinstance(held_out, float):
        raise typer.BadParameter(f"{source!r} has a validation part: --validation with a share is for a log")
    return data, data.validation


def _share(given: float | str | None, model: Any, dataset: Any) -> float | None:
    """The share of the interactions to find the number of epochs with; None: train for all epochs.

    An AutoRecommender decides it itself. Of other models, it is a tenth unless the epochs were set.
    """
    import truelike as tl
    from truelike.data.blocks.blocks import Blocks
    from truelike.selection.auto import usual_validation

    if not model.iterative:
        if given is not None:
            say(f"{model.name} is not trained in epochs: --validation is not used")
        return None
    if given is not None or isinstance(model, tl.AutoRecommender):
        return None if given is None else float(given)
    if isinstance(dataset, Blocks) and len(dataset) > 1:
        return None  # a share cannot be held out
    is_set = "epochs" in model.given or ("shown" in model.uses and dataset.shown is not None)
    return None if is_set else usual_validation(dataset)


def _evaluate(model: Recommender, validation: Dataset, n_jobs: int) -> dict[str, float]:
    """The metrics on the validation part."""
    import truelike as tl

    try:
        measured = tl.evaluate(model, validation, n_jobs=n_jobs)
    except DataError as error:  # the model is saved all the same
        warn(f"no metrics on the validation part: {error}")
        return {}
    say(f"validation: {', '.join(f'{name} {measured[name]:.4f}' for name in ('ndcg@20', 'f1@2'))}")
    return {f"validation {name}": value for name, value in measured.means().items()}


def _held_out(model: Any) -> dict[str, float]:
    """The metric on the interactions that `fit` held out, and the number of epochs if it was found with them."""
    choice = getattr(model, "choice_", None)
    if choice is not None:
        return {f"held-out {choice.metric}": value for name, value, _ in choice.trials if name == choice.trial}
    search = getattr(model, "search_history_", None)
    if search is None:
        return {}
    return {"epochs": len(model.history_), f"held-out {model.metric}": max(search[model.metric])}
