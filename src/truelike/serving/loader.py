"""The loader: a process that reads a model, checks it, measures it and writes its snapshot.

It runs beside the workers, so that a broken or huge model cannot harm them. Its answer is one line of JSON on stdout.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from truelike.data.ids import Codes
from truelike.errors import DataWarning, MissingExtraError, StorageError, TruelikeError
from truelike.models.base import Recommender
from truelike.models.explain import MOST_LEFT_OUT
from truelike.serving.index import SAMPLE, ApproximateIndex
from truelike.serving.items_table import read_items_table
from truelike.serving.schemas import Answer, RankOptions
from truelike.serving.served_model import NO_ITEMS, ServedModel
from truelike.serving.settings import Settings
from truelike.serving.snapshot import ABOUT, INDEX, write_json, write_snapshot

CHECKED = 20  # users whose lists are compared with those of the model
FEW = 3  # interactions with which an explanation is timed


def load(settings: Settings, name: str, directory: Path) -> Answer:
    """Write the snapshot of a model, and return its description."""
    table = None if settings.items is None else read_items_table(settings.items)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = write_snapshot(directory, Path(settings.models[name]), name, table, settings.titles)
    served = ServedModel(directory)
    check(served, model)
    ranking = measure(served, settings, directory)
    about = {**served.about, "ranking": ranking, "explain_milliseconds": explain_milliseconds(served)}
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
    for user, (items, scores) in zip(users.tolist(), lists, strict=True):
        found = served.recommend(served.who(user, NO_ITEMS), RankOptions(k=10))
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
        served.recommend(served.who(user, NO_ITEMS), RankOptions(k=20))
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
    seen = served.seen(int(served.examples[0]))
    few = seen[:FEW]
    item = np.array([int(np.argmax(served.popularity))], dtype=np.int32)
    if not len(few):
        return 0.0
    served.explain(served.new_user(few), item)  # compiles
    started = time.perf_counter()
    method = served.explain(served.new_user(few), item).method
    milliseconds = 1_000 * (time.perf_counter() - started)
    scale = min(len(seen), MOST_LEFT_OUT) / len(few) if method == "leave_one_out" else 1.0
    return float(milliseconds * scale)


def main(runtime: str, name: str, directory: str) -> None:
    """Load a model and print what became of it."""
    answer: Answer
    try:
        answer = {"about": load(Settings.read(Path(runtime)), name, Path(directory))}
    except Exception as error:
        kind, known = type(error).__name__, isinstance(error, (TruelikeError, OSError, MemoryError))
        answer = {"error": (str(error) or kind) if known else f"{kind}: {error}"}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
