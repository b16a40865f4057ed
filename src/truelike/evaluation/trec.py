"""Lists and relevant items as TREC files (run and qrels), which ranx, trec_eval and others read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.files import file_name, replacing_file
from truelike.data.blocks.blocks import Blocks
from truelike.data.checks import check_dataset, check_number
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes, Ids
from truelike.data.splits import Split
from truelike.errors import DataError, ParameterError
from truelike.evaluation.evaluate import ModelLists
from truelike.evaluation.measure import chunks
from truelike.evaluation.protocol import Ranker, check_ranker
from truelike.evaluation.seen import Seen, SeenParts

LENGTH = 100  # of lists
QRELS = "qrels.txt"


class Lists(NamedTuple):
    """Lists of some users, and what is relevant to them: row numbers of items (-1 where a list is shorter), scores."""

    users: Codes
    items: Codes
    scores: NDArray[np.float32]
    relevant: sparse.csr_array


def write_trec(
    model: Any,
    test: Dataset | Split | Blocks,
    directory: str | Path,
    *,
    k: int = LENGTH,
    seen: Dataset | SeenParts | None = None,
    name: str | None = None,
    n_jobs: int | None = -1,
) -> tuple[Path, Path]:
    """Write the lists of a model and the relevant items as TREC files, for ranx, trec_eval and others.

    They are the lists that `tl.evaluate` measures, of the users with a relevant item, so that a program that reads them
    computes the same figures. These programs order by the score, so equal scores are written with the smallest
    differences that keep the order of the list.

    Parameters
    ----------
    model
        A fitted model.
    test, seen
        As in `tl.evaluate`.
    directory
        Where the files are written: `qrels.txt` (user 0 item 1), which is the same for all models, and one named after
        the model (user Q0 item rank score name).
    k
        The list length.
    name
        The name of the model in the file, and of the file; None: its class.
    n_jobs
        Number of threads; -1: all cores. It does not change the result.

    Returns
    -------
    run, qrels
        The paths of the lists and of the relevant items.

    Examples
    --------
    >>> import tempfile, truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=50, n_items=40).dataset(), seed=0)
    >>> model = tl.ItemPop().fit(split.train)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     run, qrels = tl.write_trec(model, split, place, k=5)
    ...     run.name, qrels.name, run.read_text().split()[1::2][:3]
    ('ItemPop.txt', 'qrels.txt', ['Q0', '1', 'ItemPop'])
    """
    check_ranker(model, "write_trec")
    check_dataset(test.test if isinstance(test, Split) else test, "write_trec", part="test")
    check_number("k", k, low=1, whole=True)
    users, items = model.train_.users, model.train_.items
    check_words(users)
    check_words(items)
    name = model.name if name is None else name
    run, qrels = Path(directory) / run_file(name), Path(directory) / QRELS
    with replacing_file(run) as of_run, replacing_file(qrels) as of_qrels:
        for each in lists_of(model, test, k, seen=seen, n_jobs=n_jobs):
            append_run(of_run, each, users, items, name)
            append_qrels(of_qrels, each, users, items)
    return run, qrels


def lists_of(
    model: Ranker,
    test: Dataset | Split | Blocks,
    k: int,
    *,
    seen: Dataset | SeenParts | None = None,
    n_jobs: int | None = -1,
) -> Iterator[Lists]:
    """The lists that `tl.evaluate` measures, with their scores, for some users at a time."""
    source = ModelLists(model, Seen.of(model.train_, test, seen), n_jobs, None)
    for users, relevant in chunks(source, test.test if isinstance(test, Split) else test):
        best = source.scorer.top_k(users, k, seen=source.seen, n_jobs=n_jobs)
        yield Lists(users, best.items, best.scores, relevant)


def append_run(path: Path, lists: Lists, users: Ids, items: Ids, name: str) -> None:
    """Append lists as lines "user Q0 item rank score name"."""
    row, place = np.nonzero(lists.items >= 0)
    frame = pl.DataFrame(
        {
            "user": _words(users, lists.users)[row],
            "Q0": pl.repeat("Q0", len(row), eager=True),
            "item": _words(items, lists.items[row, place]),
            "rank": place + 1,
            "score": falling(lists.scores)[row, place],
            "name": pl.repeat(re.sub(r"\s+", "_", name), len(row), eager=True),
        }
    )
    _append(path, frame)


def append_qrels(path: Path, lists: Lists, users: Ids, items: Ids) -> None:
    """Append the relevant items as lines "user 0 item 1"."""
    row = np.repeat(np.arange(len(lists.users)), np.diff(lists.relevant.indptr))
    frame = pl.DataFrame({"user": _words(users, lists.users)[row], "item": _words(items, lists.relevant.indices)})
    _append(path, frame.select("user", pl.lit(0), "item", pl.lit(1).alias("relevance")))


def run_file(name: str) -> str:
    """The file of the lists of a model, by its name; an error for a name that leads to no file of its own.

    >>> run_file("BPR, 5 negatives")
    'BPR, 5 negatives.txt'
    """
    if not isinstance(name, str) or not name.strip():
        raise ParameterError(f"the name of the lists is {name!r}; expected a text")
    if name.lower() == Path(QRELS).stem:
        raise ParameterError(
            f"the name of the lists is {name!r}; {QRELS} has the relevant items: give another name"
        )
    return f"{file_name(name)}.txt"


def check_words(ids: Ids) -> None:
    """Raise an error for ids that a TREC file cannot hold: its columns are separated by spaces."""
    texts = ids.values.cast(pl.String)
    wrong = texts.filter(texts.str.contains(r"\s") | (texts == ""))
    if len(wrong):
        raise DataError(
            f"{len(wrong):,} of {len(ids):,} {ids.what} ids are empty or have a space, a tab or a line break, such as "
            f"{wrong[0]!r}. The columns of TREC files are separated by spaces: give the {ids.what}s other ids, such "
            "as numbers, when you read the data."
        )


def falling(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores that fall along each row: where one does not, the next smaller float32 of the one before.

    >>> falling(np.array([[2, 2, 1]], dtype=np.float32)).tolist()
    [[2.0, 1.9999998807907104, 1.0]]
    """
    found = scores.astype(np.float32)
    for place in range(1, found.shape[1]):
        found[:, place] = np.minimum(found[:, place], np.nextafter(found[:, place - 1], np.float32(-np.inf)))
    return found


def _words(ids: Ids, codes: Codes) -> pl.Series:
    return ids.values.cast(pl.String)[codes]


def _append(path: Path, frame: pl.DataFrame) -> None:
    with path.open("ab") as file:
        frame.write_csv(file, include_header=False, separator=" ", quote_style="never")
