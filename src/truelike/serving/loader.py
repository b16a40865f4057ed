"""The loader: a process that reads a model, checks it, measures it and writes its snapshot.

A snapshot is a model as it is served, in a directory that only truelike writes to: the model, the item factors in the
layout of the ranking, the attributes of the items, and maybe an approximate index.

It runs beside the workers, so that a broken or huge model cannot harm them. Its answer is one line of JSON on stdout.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.core.array_files import Arrays, write_arrays
from truelike.data.ids import Codes
from truelike.data.seen import NAME
from truelike.errors import DataWarning, MissingExtraError, StorageError, TruelikeError
from truelike.models.base import Recommender
from truelike.models.explain import MOST_LEFT_OUT
from truelike.models.registry import load_described
from truelike.ranking.factor_ranker import FactorRanker
from truelike.rules.items_table import aligned, read_items_table
from truelike.rules.rules import Rules
from truelike.serving.index import SAMPLE, ApproximateIndex
from truelike.serving.schemas import Answer, RankOptions
from truelike.serving.served_model import ABOUT, ARRAYS, INDEX, ITEMS, ServedModel
from truelike.serving.settings import Settings, write_json
from truelike.storage import model_version

CHECKED = 20  # users whose lists are compared with those of the model
EXPLAINED = 3  # interactions with which an explanation is timed
KEPT = ("class", "parameters", "metrics", "saved", "library_version", "choice", "history")  # of the model's own
FEW = 5  # users with fewer interactions count as such in the card


def write_snapshot(
    directory: Path,
    source: Path,
    name: str,
    table: pl.DataFrame | None = None,
    titles: str | None = None,
    rules: Answer | None = None,
) -> Recommender:
    """Read a model from the directory `source`, and write its snapshot. Returns the model.

    The table has attributes of items, as `read_items_table` returns them. Its column `title` has titles for a model
    that has none; those of the file `titles` come first. `rules` are those of every list.
    """
    model, about = load_described(source, in_memory=True)  # the workers need all histories, and share them
    if titles is not None:
        model.set_titles(titles)
    train = model.train_
    attributes, lacking = (None, 0) if table is None else aligned(table, train.items)
    if attributes is not None and "title" in attributes.columns and train.titles is None:
        texts = attributes["title"].cast(pl.String).fill_null(train.items.values.cast(pl.String))
        model.set_titles((train.items.values, texts))
    directory.mkdir(parents=True)
    model.save(directory / "model", metrics=about["metrics"])
    write_arrays(directory / ARRAYS, _arrays(model))
    if attributes is not None:
        attributes.write_parquet(directory / ITEMS)
    description = {
        **{key: about.get(key) for key in KEPT},
        "name": name,
        "version": _version(model_version(about), model, attributes, rules),
        "loaded": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": {**about["data"], **_statistics(model)},
        "warnings": [f"{lacking:,} of {train.n_items:,} items are not in the table of items"] if lacking else [],
    }
    write_json(directory / ABOUT, description)
    return model


def _version(version: str, model: Recommender, attributes: pl.DataFrame | None, rules: Answer | None) -> str:
    """The version of a model, which titles, attributes and rules change, too: lists and answers do."""
    columns = [
        column
        for column in (model.train_.titles, *(() if attributes is None else attributes))
        if column is not None
    ]
    if attributes is None and not columns and rules is None:
        return version
    content = hashlib.sha256(version.encode())
    if rules is not None:
        content.update(json.dumps(rules, sort_keys=True).encode())
    for column in columns:
        content.update(f"{column.name} {column.dtype}".encode())
        content.update(column.hash(seed=0).to_numpy().tobytes())
    return content.hexdigest()[: len(version)]


def _statistics(model: Recommender) -> Answer:
    train = model.train_
    counts, popularity = train.interactions_per_user(), train.popularity()
    most = np.sort(popularity)[::-1][: max(1, train.n_items // 100)]
    return {
        "sparsity": train.sparsity,
        "interactions_per_user": {"median": float(np.median(counts)), "most": int(counts.max())},
        f"users_with_fewer_than_{FEW}": float((counts < FEW).mean()),
        "share_of_the_most_popular_1_percent": float(most.sum() / max(1, popularity.sum())),
    }


def _arrays(model: Recommender) -> Arrays:
    train = model.train_
    found: Arrays = {
        "popularity": train.popularity().astype(np.int64),
        "examples": _examples(train.interactions_per_user()),
        "ties": model.scorer.ties,
    }
    if "times" in train.carries:
        found["trending"] = model.scorer.trending
    ranker, unit = model.scorer.ranker(), model.scorer.similarity_vectors
    if ranker is not None:
        found["by_factor"] = ranker.by_factor
    if unit is not None:
        found["unit_by_factor"] = FactorRanker(unit).by_factor
    return found


def _examples(counts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Some users to look at first: with more interactions than most, but not the extremes."""
    usual = np.quantile(counts, 0.75)
    return np.argsort(np.abs(counts - usual), kind="stable")[:20].astype(np.int32)


def load(settings: Settings, name: str, directory: Path) -> Answer:
    """Write the snapshot of a model, and return its description."""
    table = None if settings.items is None else read_items_table(settings.items)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = write_snapshot(
            directory, Path(settings.models[name]), name, table, settings.titles, settings.rules
        )
    served = ServedModel(directory)
    check(served, model)
    rules = served.bound(RankOptions(), None if settings.rules is None else Rules.of(settings.rules))
    said = [] if rules is None else [f"rules: {text}" for text in rules.warnings]
    ranking = measure(served, settings, directory)
    more = {"warnings": [*served.about["warnings"], *said]}
    about = {**served.about, **more, "ranking": ranking, "explain_milliseconds": explain_milliseconds(served)}
    write_json(directory / ABOUT, about)
    ServedModel(directory)  # as the workers do
    return about


def _some_users(served: ServedModel) -> Codes:
    """Users over all of them."""
    return np.unique(np.linspace(0, len(served.users) - 1, CHECKED).astype(np.int32))


def check(served: ServedModel, model: Recommender) -> None:
    """Compare lists of the snapshot with those of the model, and run what a worker will run."""
    users, scorer = _some_users(served), model.scorer
    # dot products have the same bits in blocks; networks may round differently, and are asked as they are served
    blocks = [users] if scorer.vectors is not None else np.split(users, len(users))
    expected = [scorer.top_k(block, 10, n_jobs=1) for block in blocks]
    lists = [pair for best in expected for pair in zip(best.items, best.scores, strict=True)]
    options = RankOptions(k=10, exclude_seen=[NAME])  # what else is seen depends on the time
    for user, (items, scores) in zip(users.tolist(), lists, strict=True):
        found = served.recommend(served.who(user), options)
        right = [int(item) for item in items if item >= 0]
        if [place.item for place in found] != right or not np.isfinite(scores[items >= 0]).all():
            raise StorageError(
                f"the snapshot lists other items than the model for the user {served.users[user]!r}"
            )


def measure(served: ServedModel, settings: Settings, directory: Path) -> Answer:
    """How long a list takes; with an index, where it is needed and good enough."""
    times = []
    for user in _some_users(served).tolist():
        started = time.perf_counter()
        served.recommend(served.who(user), RankOptions(k=20))
        times.append(1_000 * (time.perf_counter() - started))
    taken = float(np.median(times))
    exact: Answer = {"kind": "exact", "milliseconds": taken}
    if settings.index == "exact" or (settings.index == "auto" and taken <= settings.slow_ms):
        return exact
    if served.ranker is None or served.vectors is None:
        return {**exact, "note": "no index: the scores of this model are no dot products"}
    try:
        index = ApproximateIndex.build(served.vectors.items, served.vectors.bias)
    except MissingExtraError as error:
        if settings.index == "ivf":
            raise
        return {**exact, "note": f"lists take {taken:.0f} ms; {error}"}
    rows = np.random.default_rng(0).permutation(len(served.users))[: 2 * SAMPLE]
    figures = index.tune(np.ascontiguousarray(served.vectors.users[rows]), served.ranker, settings.min_recall)
    if figures["recall_at_20"] < settings.min_recall:
        return {**exact, **figures, "note": f"index refused: recall@20 is below {settings.min_recall:g}"}
    if figures["index_milliseconds"] > figures["exact_milliseconds"] and settings.index == "auto":
        return {**exact, **figures, "note": "index refused: exact lists are as fast"}
    index.write(directory / INDEX)
    return {**figures, "kind": "ivf", "milliseconds": figures["index_milliseconds"]}


def explain_milliseconds(served: ServedModel) -> float:
    """How long the explanation of an item takes for a usual user: measured with few interactions, which scale."""
    seen = served.interactions(int(served.examples[0]))
    few = seen[:EXPLAINED]
    item = np.array([int(np.argmax(served.popularity))], dtype=np.int32)
    if not len(few):
        return 0.0
    served.explain(served.new_user(few), item)  # compiles
    started = time.perf_counter()
    method = served.explain(served.new_user(few), item).method
    milliseconds = 1_000 * (time.perf_counter() - started)
    scale = min(len(seen), MOST_LEFT_OUT) / len(few) if method == "leave_one_out" else 1.0
    return float(milliseconds * scale)


def main(name: str, directory: str) -> None:
    """Load a model, by the settings on stdin, and print what became of it."""
    answer: Answer
    try:
        answer = {"about": load(Settings.load(sys.stdin.read()), name, Path(directory))}
    except Exception as error:
        kind, known = type(error).__name__, isinstance(error, (TruelikeError, OSError, MemoryError))
        answer = {"error": (str(error) or kind) if known else f"{kind}: {error}"}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
