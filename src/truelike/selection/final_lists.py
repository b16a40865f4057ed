"""The lists of the final runs of a comparison as TREC files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from truelike.core.files import replacing_file
from truelike.data.checks import check_number
from truelike.data.splits import Split
from truelike.errors import ParameterError
from truelike.evaluation.pairs import relevant_items
from truelike.evaluation.seen import Seen
from truelike.evaluation.trec import QRELS, Lists, append_qrels, append_run, check_words, run_file
from truelike.selection.executor import Executor
from truelike.selection.trials import Trial

DIRECTORY = "trec"


def check_lists(n_listed: int | None, directory: object) -> int:
    """The length of the lists to keep, 0 for None; an error if there is no place for them."""
    if n_listed is None:
        return 0
    check_number("lists", n_listed, low=1, whole=True)
    if directory is None:
        raise ParameterError(f"lists is {n_listed}, and they are kept in the directory: pass directory=, too")
    return n_listed


def check_files(split: Split, names: Sequence[str]) -> None:
    """Raise an error for ids that TREC files cannot hold, and for names of models that no file can have."""
    check_words(split.train.users)
    check_words(split.train.items)
    for name in names:
        run_file(name)


def write_lists(directory: Path, split: Split, trials: Sequence[Trial], executor: Executor) -> None:
    """Write `qrels.txt` and a run file for each trial, named after its model and its seed."""
    train = split.train
    test = split.test.recode(train.users, train.items)[0]
    relevant = relevant_items(Seen.of(train, split, trials[0].seen), test)
    users = np.flatnonzero(np.diff(relevant.indptr)).astype(np.int32)
    of_users = relevant[users]
    for trial in trials:
        _, *names = trial.kept
        items, scores = (executor.array(trial, name) for name in names)
        seed = f" seed {trial.parameters['seed']}" if "seed" in trial.parameters else ""
        name = f"{trial.name}{seed}"
        lists = Lists(users, items, scores, of_users)
        with replacing_file(directory / run_file(name)) as fresh:
            append_run(fresh, lists, train.users, train.items, name)
    with replacing_file(directory / QRELS) as fresh:
        append_qrels(fresh, lists, train.users, train.items)
