"""Events: in order, once, for all processes; errors that say what is wrong; and the way back into the training."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl
from truelike.errors import DataWarning, ParameterError, StorageError
from truelike.serving import events as module
from truelike.serving.event_data import with_events
from truelike.serving.events import (
    FILE,
    MOST_READ,
    SCHEMA,
    Event,
    EventStore,
    EventsUnavailableError,
    export_events,
    forget_events,
    prune_events,
    read_events,
)

NOW = int(time.time())
DAY = 86_400


def event(user: str, item: str, kind: str = "click", when: int = NOW) -> Event:
    return Event(user, item, kind, 10**6 * when, None, "main", "abc")


def frame(*events: Event) -> pl.DataFrame:
    return pl.DataFrame(list(events), schema=SCHEMA, orient="row")


def items(store: EventStore, user: str = "ann", **more: Any) -> list[str]:
    return [each.item for each in store.of(user, **more)]


def test_events_come_back_in_their_order_and_once(tmp_path: Path) -> None:
    store = EventStore(tmp_path / "new" / "events")
    for n in range(5):
        store.append([event("ann", f"i{n}"), event("bob", f"j{n}")])
    expected = [name for n in range(5) for name in (f"i{n}", f"j{n}")]
    assert items(store) == expected[::2]
    assert items(store, "bob") == expected[1::2]
    found = read_events(store.directory)
    assert found["item_id"].to_list() == expected
    assert found["time"].to_list() == [datetime.fromtimestamp(NOW, UTC)] * 10
    assert found.schema == pl.Schema(SCHEMA)
    assert export_events(store.directory, tmp_path / "out.parquet") == 10
    assert pl.read_parquet(tmp_path / "out.parquet").equals(found)


def test_another_store_of_the_directory_sees_them(tmp_path: Path) -> None:
    one, two = EventStore(tmp_path), EventStore(tmp_path)
    one.append([event("ann", "a")])
    assert items(two) == ["a"]
    two.append([event("ann", "b")])
    one.append([event("ann", "c")])
    assert items(one) == items(two) == ["a", "b", "c"]
    one.close()
    two.close()
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert items(EventStore(tmp_path)) == ["a", "b", "c"]


def test_a_file_without_the_index_gets_one(tmp_path: Path) -> None:
    store = EventStore(tmp_path)
    store.append([event("ann", "a"), event("ann", "b")])
    with contextlib.closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("DROP INDEX events_by_user_and_type")
    store = EventStore(tmp_path)
    assert items(store) == ["a", "b"]
    plan = store._reader.execute(f"EXPLAIN QUERY PLAN {module._OF_USER}", ("ann", "[]", 1)).fetchall()
    assert "USING INDEX events_by_user_and_type" in str(plan)


def test_events_are_kept_all_or_none(tmp_path: Path) -> None:
    store = EventStore(tmp_path)
    with pytest.raises(sqlite3.IntegrityError):
        store.append([event("ann", "a"), event("ann", None)])  # type: ignore[arg-type]
    store.append([event("ann", "b")])
    assert items(store) == ["b"]


def test_stores_that_are_opened_at_once_make_one_file(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        stores = list(threads.map(EventStore, [tmp_path] * 8))
        list(threads.map(lambda store: store.append([event("ann", "a")]), stores))
    assert read_events(tmp_path).height == 8


def test_a_file_whose_last_page_is_not_there_yet_is_ours(tmp_path: Path) -> None:
    """So it is for a moment while another process writes its WAL back. If it stays so, it is damaged."""
    store = EventStore(tmp_path)
    store.append([event(f"user {number}", "a") for number in range(500)])
    store.close()
    os.truncate(store.path, store.path.stat().st_size - 4096)
    with pytest.raises(StorageError, match=r"is damaged: .*recover"):
        EventStore(tmp_path)


def test_another_process_does_not_end_the_locks_of_this_one(tmp_path: Path) -> None:
    """To open and close the file beside SQLite would do so, and the last one that closes it removes the WAL."""
    store = EventStore(tmp_path)
    store.append([event("ann", "a")])
    read_events(tmp_path)
    other = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA page_count').fetchone()"
    subprocess.run([sys.executable, "-c", other, store.path], check=True)
    assert (tmp_path / f"{FILE}-wal").exists()
    store.append([event("ann", "b")])
    store.close()
    assert items(EventStore(tmp_path)) == ["a", "b"]


def other_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE events (name TEXT)")


def damaged_page(path: Path) -> None:
    store = EventStore(path.parent)
    store.append([event("ann", f"item {n}") for n in range(1_000)])
    store.close()
    content = path.read_bytes()
    path.write_bytes(content[:8_192] + b"damaged!" * 2_048 + content[24_576:])


def cut_off(path: Path) -> None:
    damaged_page(path)
    path.write_bytes(path.read_bytes()[:6_000])


def of_another_version(path: Path) -> None:
    EventStore(path.parent).close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 7")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("user,item\nann,tea\n"), "not a file of events"),
        (lambda path: path.write_bytes(b"SQLite format 3"), "not a file of events"),
        (other_database, "not a file of events"),
        (damaged_page, "damaged"),
        (cut_off, "damaged"),
        (of_another_version, "has version 7 of the event store; this truelike reads 2"),
    ],
)
def test_a_file_that_is_not_ours_or_damaged_is_an_error_and_stays_as_it_is(
    make: Any, message: str, tmp_path: Path
) -> None:
    path = tmp_path / FILE
    make(path)
    before = path.read_bytes()
    with pytest.raises(StorageError, match=message) as found:
        EventStore(tmp_path).check()
    assert not isinstance(found.value, EventsUnavailableError)
    with pytest.raises(StorageError, match=message):
        read_events(tmp_path)
    assert path.read_bytes() == before


def test_a_file_appears_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another process reads, or a killed one leaves, is a complete file or none."""
    seen: list[list[str]] = []
    link = os.link

    def watched(source: Path, target: Path) -> None:
        seen.append([path.name for path in tmp_path.iterdir() if path.is_file()])
        with contextlib.closing(sqlite3.connect(source)) as connection:
            assert connection.execute("PRAGMA application_id").fetchone() == (module.APPLICATION,)
            assert connection.execute("SELECT * FROM events").fetchall() == []
        link(source, target)

    monkeypatch.setattr("os.link", watched)
    EventStore(tmp_path).close()
    assert seen == [[]]
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_an_empty_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    with pytest.raises(StorageError, match="not a file of events"):
        EventStore(tmp_path)
    assert (tmp_path / FILE).stat().st_size == 0


def test_what_is_no_damage_is_said_as_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT", 0.1)
    (tmp_path / "file").write_text("")
    with pytest.raises(EventsUnavailableError, match="Not a directory"):
        EventStore(tmp_path / "file" / "events")
    with pytest.raises(StorageError, match=r"no events in .*nowhere"):
        read_events(tmp_path / "nowhere")
    store = EventStore(tmp_path / "events")
    store.check()
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EventsUnavailableError, match="database is locked"):
            store.append([event("ann", "a")])
        assert items(store) == []  # others read meanwhile
    (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count = {pages}")  # a full disk, as SQLite sees it
    with pytest.raises(EventsUnavailableError, match="disk is full"):
        store.append([event("ann", f"long {n}" * 100) for n in range(100)])
    store.append([event("ann", "b")])
    store.path.rename(tmp_path / "moved")
    with pytest.raises(EventsUnavailableError, match="No such file"):
        store.append([event("ann", "c")])
    store.path.touch()
    with pytest.raises(EventsUnavailableError, match="another file is in its place"):
        store.append([event("ann", "c")])
    (tmp_path / "moved").replace(store.path)
    store.append([event("ann", "d")])
    assert items(store) == ["b", "d"]


def test_a_directory_that_is_read_only_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EventStore(tmp_path)
    store.append([event("ann", "a")])
    monkeypatch.setattr("os.access", lambda *_: False)
    assert read_events(tmp_path).height == 1, "beside a server"
    store.close()
    assert read_events(tmp_path).height == 1
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_some_types_are_left_out_and_what_is_read_is_bounded(tmp_path: Path) -> None:
    store = EventStore(tmp_path)
    store.append([event("ann", f"i{n}") for n in range(MOST_READ + 5)])
    store.append([event("ann", "seen", "view") for _ in range(MOST_READ)])
    assert items(store) == ["seen"] * MOST_READ
    assert items(store, leave_out=("view",)) == [f"i{n}" for n in range(5, MOST_READ + 5)]


def test_an_event_with_an_id_is_kept_once(tmp_path: Path) -> None:
    one, two = EventStore(tmp_path), EventStore(tmp_path)
    bought = event("ann", "tea", "buy")._replace(event_id="order 7")
    assert one.append([bought, event("ann", "rum"), bought]) == [True, True, False]
    assert two.append([bought._replace(item_id="gin"), event("ann", "rum")]) == [False, True]
    assert items(one) == ["tea", "rum", "rum"]
    assert read_events(tmp_path)["event_id"].to_list() == ["order 7", None, None]


def test_a_file_of_an_older_version_is_read_and_brought_up_to_date(tmp_path: Path) -> None:
    """Version 1 had neither quantities nor ids."""
    columns = ", ".join(Event._fields[:7])
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        connection.execute(f"PRAGMA application_id = {module.APPLICATION}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(
            "CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT NOT NULL, "
            "item_id TEXT NOT NULL, type TEXT NOT NULL, time INTEGER, request_id TEXT, model TEXT, version TEXT)"
        )
        connection.execute("CREATE INDEX events_of_users ON events (user_id) WHERE type NOT IN ('view')")
        connection.execute(f"INSERT INTO events ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", event("ann", "tea")[:7])
    before = read_events(tmp_path)
    assert before.select("item_id", "quantity").rows() == [("tea", None)]
    store = EventStore(tmp_path)
    store.append([event("ann", "rum")._replace(quantity=2.0)])
    assert [(each.item, each.quantity) for each in store.of("ann")] == [("tea", None), ("rum", 2.0)]
    assert read_events(tmp_path).head(1).equals(before)


@pytest.mark.parametrize("days", [-1.0, float("nan"), 1e9])
def test_days_that_are_none_are_refused(days: float, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="days is"):
        prune_events(tmp_path, days)


def test_old_events_are_deleted_and_nothing_comes_back(tmp_path: Path) -> None:
    store = EventStore(tmp_path)
    old = [event("ann", f"i{n}", when=NOW - 400 * DAY) for n in range(25_000)]
    store.append([*old, event("ann", "tea"), event("ann", "tea", "remove", NOW - 400 * DAY), event("ann", "rum")])
    assert prune_events(tmp_path, 365) == len(old)
    assert read_events(tmp_path)["item_id"].to_list() == ["tea", "tea", "rum"]
    assert items(store) == ["tea", "tea", "rum"]
    assert prune_events(tmp_path, 365) == 0
    assert prune_events(tmp_path, 0) == 3
    store.append([event("ann", "gin")])
    assert items(store) == ["gin"]
    with pytest.raises(StorageError, match="no events in"):
        prune_events(tmp_path / "nowhere", 1)


def test_no_byte_of_a_user_is_left_while_others_have_the_file_open(tmp_path: Path) -> None:
    """Neither of events that were pruned, nor in the WAL."""
    name = "alice-7f3a"
    store, other = EventStore(tmp_path), EventStore(tmp_path)
    for n in range(200):
        when = NOW - 400 * DAY * (n < 50)
        store.append([event(user, f"i{n}", when=when) for user in (name, "bob", "eve")])
    assert prune_events(tmp_path, 365) == 150
    assert name.encode() in store.path.read_bytes() + store.path.with_name(f"{FILE}-wal").read_bytes()
    assert forget_events(tmp_path, [name, "eve", "nobody"]) == 300
    assert set(read_events(tmp_path)["user_id"]) == {"bob"}
    assert items(store, name) == items(other, name) == []
    for path in tmp_path.iterdir():
        assert name.encode() not in path.read_bytes(), path
    store.append([event(name, "new")])
    assert items(other, name) == ["new"]
    numbers = store._reader.execute("SELECT count(DISTINCT number), count(*), max(number) FROM events").fetchone()
    assert numbers[0] == numbers[1], "no number is used twice"
    assert numbers[2] == 601
    with pytest.raises(StorageError, match="no events in"):
        forget_events(tmp_path / "nowhere", [name])


def test_events_become_training_data_with_new_users_and_items() -> None:
    data = tl.read([("ann", "tea"), ("bob", "rum")]).with_titles({"tea": "Green tea"})
    merged = with_events(
        data, frame(event("ann", "rum"), event("eve", "gin"), event("bob", "tea"), event("bob", "tea", "remove"))
    )
    assert merged.to_frame().select("user_id", "item_id").rows() == [
        ("ann", "rum"), ("ann", "tea"), ("bob", "rum"), ("eve", "gin"),
    ]  # fmt: skip
    assert dict(zip(merged.items, merged.titles.to_list(), strict=True))["tea"] == "Green tea"  # type: ignore[union-attr]


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_times_of_events_have_the_unit_of_the_log(unit: int) -> None:
    data = tl.read([("ann", "tea", 1, (NOW - 100) * unit)])
    merged = with_events(data, frame(event("ann", "rum")))
    assert sorted(merged.times) == [(NOW - 100) * unit, NOW * unit]  # type: ignore[type-var, arg-type]


def test_ids_that_are_numbers_stay_numbers() -> None:
    data = tl.read([(1, 7), (2, 8)])
    merged = with_events(data, frame(event("2", "7"), event("30", "9")))
    assert list(merged.users) == [1, 2, 30]
    assert list(merged.items) == [7, 8, 9]
    odd = frame(event("ann", "7"), event("007", "7"), event("7", "x"), event("2", "8"), event("  ", "8"))
    with pytest.warns(DataWarning, match=r"4 of 5 events are skipped.*\('ann', '7'\)"):
        merged = with_events(data, odd)
    assert merged.to_frame().select("user_id", "item_id").rows() == [(1, 7), (2, 8)]
    with pytest.warns(DataWarning, match="1 of 1 events are skipped"):
        assert with_events(data, frame(event("ann", "7"))) is data
