"""`recommend_to` writes what `recommend` returns, in blocks, and continues after a kill."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import truelike as tl
from truelike.errors import ParameterError, StorageError, UnknownIdError
from truelike.models import batch
from truelike.ranking import on_cluster

Model = Any
NOWHERE = "127.0.0.1:1"  # no test here may start Ray outside a network namespace


@pytest.fixture(scope="module")
def model() -> Model:
    data = tl.synthetic.World(n_users=130, n_items=70, seed=2).dataset()
    return tl.IALS(factors=4, epochs=2).fit(data.with_titles({n: f"title {n}" for n in range(70)}), progress=False)


def left_in(place: Path) -> list[str]:
    return sorted(each.name for each in place.iterdir())


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The blocks that were computed."""
    found: list[int] = []
    frame = batch.Lists.frame
    monkeypatch.setattr(
        batch.Lists, "frame", lambda lists, n, *ranked: (found.append(n), frame(lists, n, *ranked))[1]
    )
    return found


@pytest.fixture
def stopped(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed: list[int]
) -> Callable[..., Path]:
    """Stop a run after some blocks, as a kill does, and return the directory of the parts."""

    def stop(after: int = 3, **options: Any) -> Path:
        write = batch._Parts.write

        def write_some(parts: Any, number: int, frame: pl.DataFrame) -> None:
            if number == after:
                raise KeyboardInterrupt
            write(parts, number, frame)

        with monkeypatch.context() as patch:
            patch.setattr(batch._Parts, "write", write_some)
            with pytest.raises(KeyboardInterrupt):
                model.recommend_to(tmp_path / "lists.parquet", **{"k": 5, "block_size": 20, **options})
        directory = tmp_path / ".lists.parquet.parts"
        assert len(list(directory.glob("*.parquet"))) == after
        computed.clear()
        return directory

    return stop


@pytest.mark.parametrize("name", ["IALS", "NBPO", "ItemKNN", "EASE"])
@pytest.mark.parametrize("block_size", [None, 1, 37, 130])
def test_the_file_holds_what_recommend_returns(
    fitted: Any, tmp_path: Path, name: str, block_size: int | None
) -> None:
    model = fitted(name)
    items = list(model.train_.items)
    path = tmp_path / "new" / "lists.parquet"
    for options in (
        {"k": 3},
        {"k": 7, "candidates": items[::2], "exclude": items[4:6], "exclude_seen": False},
        {"k": 2, "users": [*list(model.train_.users)[5:20], "nobody"], "on_unknown": "popular"},
    ):
        rows = model.recommend_to(path, block_size=block_size, **options)
        expected = model.recommend(**options)
        assert pl.read_parquet(path).equals(expected)
        assert rows == len(expected)
        assert left_in(path.parent) == ["lists.parquet"]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
def test_text_is_written_block_by_block_with_one_header(model: Model, tmp_path: Path, ending: str) -> None:
    whole, parts = tmp_path / f"whole{ending}", tmp_path / f"parts{ending}"
    assert model.recommend_to(whole, k=3, titles=True) == model.recommend_to(parts, k=3, titles=True, block_size=7)
    assert whole.read_bytes() == parts.read_bytes()
    assert left_in(tmp_path) == [parts.name, whole.name]
    if ending == ".csv":
        assert whole.read_text() == model.recommend(k=3, titles=True).write_csv()


def test_a_stopped_run_continues_to_the_same_bytes(
    model: Model, tmp_path: Path, stopped: Any, computed: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    model.recommend_to(tmp_path / "other.parquet", k=5, block_size=20)
    stopped()
    with caplog.at_level("INFO", logger="truelike"):
        model.recommend_to(tmp_path / "lists.parquet", k=5, block_size=20, n_jobs=1)
    assert computed == [3, 4, 5, 6]
    assert "continuing at user 60 of 130" in caplog.text
    assert (tmp_path / "lists.parquet").read_bytes() == (tmp_path / "other.parquet").read_bytes()
    assert left_in(tmp_path) == ["lists.parquet", "other.parquet"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k": 6}, "other options (k)"),
        ({"exclude_seen": False}, "other options (exclude_seen)"),
        ({"candidates": [1, 2, 3]}, "other options (candidates and exclude)"),
        ({"titles": True}, "other options (titles)"),
        ({"users": list(range(130))}, "other options (users)"),
        ({"block_size": 21}, "other options (block_size)"),
    ],
)
def test_parts_with_other_options_are_not_used(
    model: Model, tmp_path: Path, stopped: Any, computed: list[int], caplog: Any, options: Any, said: str
) -> None:
    stopped()
    options = {"k": 5, "block_size": 20, **options}
    with caplog.at_level("INFO", logger="truelike"):
        model.recommend_to(tmp_path / "lists.parquet", **options)
    assert said in caplog.text
    assert computed == list(range(7))
    options.pop("block_size")
    assert pl.read_parquet(tmp_path / "lists.parquet").equals(model.recommend(**options))
    assert left_in(tmp_path) == ["lists.parquet"]


def test_parts_of_another_model_are_not_used_and_those_of_a_loaded_copy_are(
    model: Model, tmp_path: Path, stopped: Any, computed: list[int], caplog: Any
) -> None:
    stopped()
    model.save(tmp_path / "model")
    again = tl.load(tmp_path / "model")
    again.recommend_to(tmp_path / "lists.parquet", k=5, block_size=20)
    assert computed == [3, 4, 5, 6]
    stopped()
    other = tl.IALS(factors=4, epochs=3).fit(model.train_, progress=False)
    with caplog.at_level("INFO", logger="truelike"):
        other.recommend_to(tmp_path / "lists.parquet", k=5, block_size=20)
    assert "belong to another model" in caplog.text
    assert computed == list(range(7))
    assert pl.read_parquet(tmp_path / "lists.parquet").equals(other.recommend(k=5))


def test_a_damaged_part_is_computed_again(
    model: Model, tmp_path: Path, stopped: Any, computed: list[int], caplog: Any
) -> None:
    directory = stopped()
    first, second, third = sorted(directory.glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:-20])
    content = bytearray(third.read_bytes())
    content[len(content) // 2] ^= 1
    third.write_bytes(content)
    with caplog.at_level("INFO", logger="truelike"):
        model.recommend_to(tmp_path / "lists.parquet", k=5, block_size=20)
    assert computed == [0, 2, 3, 4, 5, 6]
    assert caplog.text.count("is damaged; it is computed again") == 2
    assert pl.read_parquet(tmp_path / "lists.parquet").equals(model.recommend(k=5))
    assert second.name not in left_in(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", '{"options": 3}', None])
def test_a_damaged_description_of_the_parts_means_all_anew(
    model: Model, tmp_path: Path, stopped: Any, computed: list[int], content: str | None
) -> None:
    description = stopped() / "batch.json"
    assert json.loads(description.read_text())["options"]["k"] == 5
    description.unlink() if content is None else description.write_text(content)
    model.recommend_to(tmp_path / "lists.parquet", k=5, block_size=20)
    assert computed == list(range(7))
    assert left_in(tmp_path) == ["lists.parquet"]


def test_a_run_that_stopped_before_the_merge_only_merges(
    model: Model, tmp_path: Path, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pl, "scan_parquet", lambda _: SimpleNamespace(sink_parquet=full))
        with pytest.raises(
            StorageError, match=r"cannot write .*lists.parquet.*No space left.*nothing was written"
        ):
            model.recommend_to(tmp_path / "lists.parquet", block_size=50)
    assert left_in(tmp_path) == [".lists.parquet.parts"]
    computed.clear()
    model.recommend_to(tmp_path / "lists.parquet", block_size=50)
    assert computed == []
    assert pl.read_parquet(tmp_path / "lists.parquet").equals(model.recommend())


def test_two_processes_do_not_write_the_same_file(model: Model, tmp_path: Path, stopped: Any) -> None:
    pytest.importorskip("fcntl", reason="there are no such locks on Windows")
    from truelike.core.files import lock_directory

    unlock = lock_directory(stopped(), "")
    with pytest.raises(StorageError, match="another process is writing"):
        model.recommend_to(tmp_path / "lists.parquet", k=5, block_size=20)
    unlock()
    model.recommend_to(tmp_path / "lists.parquet", k=5, block_size=20)


def test_files_of_others_are_not_removed(model: Model, tmp_path: Path, stopped: Any) -> None:
    mine = stopped() / "diary.txt"
    mine.write_text("dear diary")
    with pytest.raises(StorageError, match=r"holds other files: diary.txt"):
        model.recommend_to(tmp_path / "lists.parquet", k=5, block_size=20)
    assert mine.exists()


def test_a_place_that_cannot_be_written_is_an_error_before_the_work(
    model: Model, tmp_path: Path, computed: list[int]
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "directory.parquet").mkdir()
    for path, error in (
        (tmp_path / "lists.xlsx", ParameterError),
        (tmp_path / "directory.parquet", StorageError),
        (tmp_path / "file" / "lists.parquet", StorageError),
        (None, StorageError),
        (tmp_path / f"{'x' * 300}.parquet", StorageError),
    ):
        with pytest.raises(error):
            model.recommend_to(path)
    assert computed == []
    (tmp_path / ".lists.parquet.parts").write_text("a file in its place")
    with pytest.raises(StorageError, match=r"cannot write .*lists\.parquet.*nothing was written"):
        model.recommend_to(tmp_path / "lists.parquet", block_size=20)


def test_wrong_arguments_are_refused(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "lists.parquet"
    for wrong in ({"k": 0}, {"block_size": 0}, {"block_size": 2.5}, {"on_unknown": "x"}, {"titles": 1}):
        with pytest.raises(ParameterError):
            model.recommend_to(path, **wrong)
    with pytest.raises(UnknownIdError):
        model.recommend_to(path, ["nobody"])
    assert left_in(tmp_path) == []


def test_nobody_and_empty_lists_are_files_without_rows(model: Model, tmp_path: Path) -> None:
    for options in ({"users": []}, {"users": [1, 2], "exclude": list(model.train_.items), "block_size": 1}):
        assert model.recommend_to(tmp_path / "lists.parquet", **options) == 0
        found = pl.read_parquet(tmp_path / "lists.parquet")
        assert found.columns == ["user_id", "item_id", "score", "rank"]
        assert len(found) == 0


def test_uuids_are_text(tmp_path: Path) -> None:
    who, what = ([uuid.UUID(int=n + shift) for n in range(6)] for shift in (0, 100))
    model = tl.ItemPop().fit(tl.read([(u, i) for n, u in enumerate(who) for i in what[n % 3 :]]))
    for users in (None, [*who[:3], uuid.UUID(int=77)]):
        model.recommend_to(tmp_path / "lists.parquet", users, k=1, on_unknown="popular", block_size=2)
        found = pl.read_parquet(tmp_path / "lists.parquet")
        expected = model.recommend(users, k=1, on_unknown="popular")
        for column in ("user_id", "item_id"):
            assert found[column].to_list() == [str(value) for value in expected[column]]


def test_a_model_that_cannot_be_saved_is_written_from_the_start(tmp_path: Path, computed: list[int]) -> None:
    class Own(tl.ItemPop):
        def _arrays(self) -> Any:
            raise StorageError("no arrays")

    model = Own().fit(tl.synthetic.World(n_users=50, n_items=40).dataset())
    model.recommend_to(tmp_path / "lists.parquet", block_size=20)
    assert pl.read_parquet(tmp_path / "lists.parquet").equals(model.recommend())


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A cluster that computes in this process; the sizes of the pieces that it was given."""
    sizes: list[int] = []

    def map_here(_: Any, work: Any, pieces: Any, shared: Any = ()) -> Any:
        for piece in pieces:
            sizes.append(len(piece[1]))
            yield work(*shared, *piece, n_jobs=1)

    monkeypatch.setattr(on_cluster, "map_on", map_here)
    return sizes


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
@pytest.mark.parametrize(
    "options",
    [
        {"k": 5},
        {"k": 200, "titles": True},
        {"k": 5, "exclude_seen": False, "candidates": range(3, 60)},
        {"k": 2, "users": [7, 3, "nobody", 3], "on_unknown": "popular"},
        {"k": 2, "users": [7, 3, "nobody", 3], "on_unknown": "skip"},
        {"k": 2, "users": []},
        {"k": 5, "exclude": {7: [1, 2, 3], 55: range(30)}},
        {"k": 5, "exclude": {7: [1, 2, 3], 55: [4]}, "exclude_seen": False},
        {"k": 2, "users": [7, 3, "nobody", 3], "on_unknown": "popular", "exclude": {3: [5, 6], "nobody": [0, 1]}},
        {"k": 5, "rules": tl.Rules(filter="n > 20", items=pl.DataFrame({"item": range(70), "n": range(70)}))},
    ],
)
def test_lists_of_a_cluster_have_the_same_bytes(
    model: Model, tmp_path: Path, here: list[int], ending: str, options: Any
) -> None:
    own, found = tmp_path / f"own{ending}", tmp_path / f"found{ending}"
    rows = model.recommend_to(own, block_size=50, **options)
    assert here == []
    assert model.recommend_to(found, block_size=50, cluster=NOWHERE, **options) == rows
    assert found.read_bytes() == own.read_bytes()
    if "users" not in options:
        assert here == [50, 50, 30]


def test_rules_that_rank_each_user_are_refused_on_a_cluster(model: Model, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="other than a filter"):
        model.recommend_to(tmp_path / "lists.csv", cluster=NOWHERE, rules=tl.Rules(pins={3: 1}))


def test_a_stopped_run_continues_on_a_cluster(model: Model, tmp_path: Path, stopped: Any, here: list[int]) -> None:
    model.recommend_to(tmp_path / "other.parquet", k=5, block_size=20)
    stopped()
    model.recommend_to(tmp_path / "lists.parquet", k=5, block_size=20, cluster=NOWHERE)
    assert here == [20, 20, 20, 10]
    assert (tmp_path / "lists.parquet").read_bytes() == (tmp_path / "other.parquet").read_bytes()
    stopped(cluster=NOWHERE)
    model.recommend_to(tmp_path / "lists.parquet", k=5, block_size=20)
    assert (tmp_path / "lists.parquet").read_bytes() == (tmp_path / "other.parquet").read_bytes()
