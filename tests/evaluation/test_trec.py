"""Lists as TREC files: what reads them computes the same figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike.errors import DataError, ParameterError, StorageError

RUN = ["user_id", "q0", "item_id", "rank", "score", "name"]


@pytest.fixture(scope="module")
def split() -> Any:
    return tl.splits.by_user(tl.synthetic.World(n_users=150, n_items=80, seed=2).dataset(), seed=0)


@pytest.fixture(scope="module")
def model(split: Any) -> Any:
    return tl.ItemKNN(neighbors=3).fit(split.train)  # most scores are 0: ties


def read(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, separator=" ", has_header=False, new_columns=RUN)


@pytest.mark.parametrize("seen", ["train", "validation"])
def test_the_lists_have_the_figures_of_the_model(split: Any, model: Any, seen: Any, tmp_path: Path) -> None:
    run, qrels = tl.write_trec(model, split, tmp_path, k=20, seen=seen)
    expected = tl.evaluate(model, split, seen=seen)
    rows = read(run).select("user_id", "item_id", "score")
    assert tl.evaluate_lists(rows, split, seen=seen).means() == expected.means()
    relevant = [line.split() for line in qrels.read_text().splitlines()]
    assert {int(user) for user, *_ in relevant} == set(expected.users)
    assert {(zero, one) for _, zero, _, one in relevant} == {("0", "1")}


def test_scores_fall_also_as_float32_so_that_readers_keep_the_order(
    split: Any, model: Any, tmp_path: Path
) -> None:
    run, _ = tl.write_trec(model, split, tmp_path, k=20, name="few neighbours")
    assert run.name == "few neighbours.txt"
    lines = [line.split() for line in run.read_text().splitlines()]
    assert {len(line) for line in lines} == {6}
    assert {line[5] for line in lines} == {"few_neighbours"}
    for user in {line[0] for line in lines}:
        own = [line for line in lines if line[0] == user]
        assert [int(line[3]) for line in own] == list(range(1, len(own) + 1))
        scores = np.array([line[4] for line in own], dtype=np.float32)
        assert (np.diff(scores) < 0).all()


@pytest.mark.slow  # ranx
@pytest.mark.filterwarnings("ignore:unsafe cast")  # of ranx
@pytest.mark.parametrize("kind", [tl.ItemKNN(neighbors=3), tl.BPR(epochs=2, factors=4)])
def test_ranx_computes_the_same_figures(split: Any, kind: Any, tmp_path: Path) -> None:
    ranx = pytest.importorskip("ranx")
    fitted = tl.clone(kind).fit(split.train)
    run, qrels = tl.write_trec(fitted, split, tmp_path)
    found = ranx.evaluate(
        ranx.Qrels.from_file(str(qrels)), ranx.Run.from_file(str(run)), ["ndcg@20", "recall@20", "mrr@20"]
    )
    expected = tl.evaluate(fitted, split, ks=20)
    for measure, value in found.items():
        assert value == pytest.approx(expected[measure], abs=1e-9), measure


def test_text_ids_are_written_as_they_are(tmp_path: Path) -> None:
    train = tl.read([("ann", "tea"), ("ann", "50%"), ("zoë", "tea"), ("zoë", '"gin",x')])
    split = tl.Split(train, None, tl.read([("ann", '"gin",x'), ("zoë", "50%")]))
    run, qrels = tl.write_trec(tl.ItemPop().fit(train), split, tmp_path)
    assert qrels.read_text(encoding="utf-8").splitlines() == ['ann 0 "gin",x 1', "zoë 0 50% 1"]
    assert [line.split()[:4] for line in run.read_text(encoding="utf-8").splitlines()] == [
        ["ann", "Q0", '"gin",x', "1"], ["zoë", "Q0", "50%", "1"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ([("ann", "green tea"), ("bob", "rum")], "1 of 2 item ids are empty or have a space.*'green tea'"),
        ([("ann\tb", "tea"), ("bob", "rum")], "1 of 2 user ids"),
    ],
)
def test_ids_that_a_file_cannot_hold_are_refused(train: Any, words: str, tmp_path: Path) -> None:
    data = tl.read(train)
    model = tl.ItemPop().fit(data)
    with pytest.raises(DataError, match=words):
        tl.write_trec(model, data, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_no_model_or_length_is_an_error(split: Any, model: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="write_trec takes a fitted model, not str"):
        tl.write_trec("model/", split, tmp_path)
    with pytest.raises(ParameterError, match="k is 0"):
        tl.write_trec(model, split, tmp_path, k=0)
    for name in (5, "", " "):
        with pytest.raises(ParameterError, match=r"the name of the lists is .*expected a text"):
            tl.write_trec(model, split, tmp_path, name=name)
    with pytest.raises(ParameterError, match=r"'Qrels'; qrels\.txt has the relevant items"):
        tl.write_trec(model, split, tmp_path, name="Qrels")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write .*file"):
        tl.write_trec(model, split, tmp_path / "file")
