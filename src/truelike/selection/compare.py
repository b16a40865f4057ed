"""`tl.compare`: all models on one split, tuned alike, evaluated once on the test part."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, overload

from truelike.cluster import Cluster, as_cluster
from truelike.core import progress
from truelike.data.dataset import Dataset
from truelike.data.splits import Split
from truelike.errors import DataError, ParameterError, muted
from truelike.evaluation.seen import SeenParts
from truelike.selection.comparing import Place, check_data, compare_on
from truelike.selection.comparison import Comparison
from truelike.selection.comparisons import Comparisons
from truelike.selection.final_lists import check_lists
from truelike.selection.manifest import MANIFEST, Manifest
from truelike.selection.plan import By, Models, Plan, chosen_models
from truelike.selection.trials import Record
from truelike.selection.tune import checked_workers
from truelike.selection.variants import Parameters

Data = Dataset | Split


@overload
def compare(
    data: Data,
    models: Models | None = None,
    *,
    metric: str = "ndcg@20",
    by: By = None,
    seen: SeenParts = "validation",
    n_trials: int = 18,
    seeds: int = 3,
    directory: str | Path | None = None,
    n_workers: int | None = -1,
    seed: int = 0,
    report: Callable[[Record], None] | None = None,
    cluster: str | Cluster | None = None,
    lists: int | None = None,
    manifest: str | Path | Manifest | None = None,
    **fixed: Any,
) -> Comparison: ...
@overload
def compare(
    data: Mapping[str, Data],
    models: Models | None = None,
    *,
    metric: str = "ndcg@20",
    by: By = None,
    seen: SeenParts = "validation",
    n_trials: int = 18,
    seeds: int = 3,
    directory: str | Path | None = None,
    n_workers: int | None = -1,
    seed: int = 0,
    report: Callable[[Record], None] | None = None,
    cluster: str | Cluster | None = None,
    lists: int | None = None,
    manifest: str | Path | Manifest | None = None,
    **fixed: Any,
) -> Comparisons: ...
def compare(
    data: Data | Mapping[str, Data],
    models: Models | None = None,
    *,
    metric: str = "ndcg@20",
    by: By = None,
    seen: SeenParts = "validation",
    n_trials: int = 18,
    seeds: int = 3,
    directory: str | Path | None = None,
    n_workers: int | None = -1,
    seed: int = 0,
    report: Callable[[Record], None] | None = None,
    cluster: str | Cluster | None = None,
    lists: int | None = None,
    manifest: str | Path | Manifest | None = None,
    **fixed: Any,
) -> Comparison | Comparisons:
    """Find out which model suits a dataset: tune each alike on validation, then evaluate all on the test part.

    The best model is the one that is best on validation. The others are tested against it on the test part.

    Parameters
    ----------
    data
        A dataset, of which 10 % of each user's interactions are held out for validation and 10 % for test, with
        fractions rounded at random, or a split. `Comparison.split` is the split that was used. Or several of them by
        names of your own: `{"ml": dataset, "amazon": split}`; the result is then `Comparisons`.
    models
        Names such as "NBPO" or "NeuMF:objective=NBPO", classes, also of your own, or unfitted models, whose
        parameters are fixed where they differ from the defaults. A mapping gives them names of your own:
        `{"BPR, 5 negatives": tl.BPR(n_negatives=5), "BPR": "BPR"}`. None is every model except the networks.
    metric
        The metric on validation that parameters, epochs and the best model are chosen by, and the metric on test that
        models are ranked and tested by.
    by
        Which interactions of a dataset are held out: by "time" the last ones of each user, or "random" ones. None:
        by time if the dataset has times. To hold out all interactions after one point in time, pass
        `tl.splits.temporal(data)`; most users may then have none to be tested on, or none to train on.
    seen
        What is left out of the lists on the test part, and does not count as relevant: "validation", the training and
        the validation items of a user, or "train", the training items alone. On validation only training items are.
    n_trials
        Number of candidates of each model, run by successive halving as in `tl.tune`. The first candidate is the
        defaults. A model with nothing to search has one candidate.
    seeds
        Number of final runs of a model whose result depends on a seed.
    directory
        Where all trials are kept. Called again with the same directory, a stopped comparison continues.
    n_workers
        Number of processes; -1 is one for each core, None is 1. Each trial has one thread. Changes no result except
        times. A class that other processes cannot import, such as one of a notebook, is run in this process.
    seed
        Seed of the split, the search and the models.
    report
        Called with the record of each trial that was run.
    cluster
        Run trials on a Ray cluster in place of processes: "local" starts one on this machine, "auto" takes the one
        that this machine belongs to, or its address. With `tl.Cluster(..., threads=2)` each trial has two threads;
        by default one. A trial whose worker is lost is run again. Changes no result except times.
    lists
        Keep the lists of the final runs, of this length, and write them and the relevant items to `trec/` in the
        directory, for ranx and trec_eval, as `tl.write_trec` does. None: they are not kept.
    manifest
        The `manifest.json` of an earlier comparison, or its `manifest`, which is run again: it has all settings and
        models, so none of them is given. A setting other than the default is an error; one that is the default cannot
        be told from none, and is that of the manifest. `lists`, `directory`, `n_workers` and `cluster` are not in it.
        Data with another hash is an error, and versions that differ are said. Models with a class or a function of
        your own are passed again, under the same names. A manifest holds no code.
    **fixed
        Parameters that are not searched, for the models that have them, such as `epochs=30`.

    Returns
    -------
    Comparison or Comparisons
        The best model, the table of all and the page of plots; of several datasets, the ranks over them, too.

    Examples
    --------
    >>> import truelike as tl
    >>> data = tl.synthetic.World(n_users=150, n_items=80).dataset()
    >>> found = tl.compare(data, ["ItemPop", "ItemKNN"], n_trials=2, n_workers=1)
    >>> found.best in found.sentence
    True
    >>> found.table.columns[:4]
    ['model', 'ndcg@20', 'ndcg@20 low', 'ndcg@20 high']
    """
    settings: Parameters = {
        "metric": metric, "by": by, "seen": seen, "n_trials": n_trials, "seeds": seeds, "seed": seed
    }  # fmt: skip
    several = _several(data)
    known = _known(manifest)
    plan = _plan(models, settings, fixed, known)
    place = Place(
        None if directory is None else Path(directory),
        checked_workers(n_workers),
        report,
        as_cluster(cluster),
        check_lists(lists, directory),
    )
    splits = _splits(several, plan)
    if known is not None:
        known.check(plan, splits)
    of_datasets = {name: isinstance(each, Dataset) for name, each in several.items()}
    for name, split in splits.items():
        with _named(name):
            check_data(split, plan, place)
    if not isinstance(data, Mapping):
        return compare_on(splits[""], plan, place, from_dataset=of_datasets[""])
    comparisons = {}
    for name, split in splits.items():
        progress.note(f"comparing on {name}")
        with _named(name):
            comparisons[name] = compare_on(split, plan, place.within(name), from_dataset=of_datasets[name])
    found = Comparisons(comparisons, plan, place.directory)
    if place.directory is not None:
        found.manifest.write(place.directory / MANIFEST)
    return found


def _known(manifest: object) -> Manifest | None:
    """The manifest that was given, as a file or as it is."""
    if manifest is None or isinstance(manifest, Manifest):
        return manifest
    if not isinstance(manifest, str | os.PathLike):
        raise ParameterError(
            f"manifest is a {type(manifest).__name__}; expected {MANIFEST} of an earlier comparison, or its `manifest`"
        )
    return Manifest.read(Path(manifest))


def _plan(models: Models | None, settings: Parameters, fixed: Parameters, known: Manifest | None) -> Plan:
    """The plan of the arguments, or that of a manifest, beside which no setting is given."""
    if known is None:
        return Plan(chosen_models(models), **settings, fixed=fixed)
    defaults = {each.name: each.default for each in fields(Plan)}
    for name, value in settings.items():
        if value != defaults[name]:
            raise ParameterError(f"{name} is {value!r}, and the manifest has all settings: leave {name} out")
    return known.plan(models, fixed)


def _several(data: Data | Mapping[str, Data]) -> Mapping[str, Data]:
    """The datasets by their names, which are texts; one alone has none."""
    if not isinstance(data, Mapping):
        return {"": data}
    if not data:
        raise DataError("no dataset is given; expected one, or a mapping such as {'ml': split, 'amazon': dataset}")
    for name in data:
        if not isinstance(name, str) or not name.strip():
            raise ParameterError(f"the name of a dataset is {name!r}; expected a text")
    return data


def _splits(several: Mapping[str, Data], plan: Plan) -> dict[str, Split]:
    """The split of each dataset, which has the name that was given."""
    found = {}
    for name, each in several.items():
        with _named(name):
            split = plan.split(each)
            with muted():  # the split has warned already
                found[name] = replace(split, train=split.train.with_parts(name=name)) if name else split
    return found


@contextmanager
def _named(name: str) -> Iterator[None]:
    """A context whose errors of data begin with the name of the dataset, if it has one."""
    try:
        yield
    except DataError as error:
        if not name:
            raise
        raise DataError(f"{name}: {error}") from error
