"""Events: in order, once, for all readers, whatever is compacted meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import truelike as tl
from truelike.errors import DataWarning, StorageError
from truelike.serving.event_data import interactions, with_events
from truelike.serving.events import MOST_OF_A_USER, SCHEMA, EventLog, Recent, read_events

WHEN = datetime.now(UTC).replace(microsecond=0)


def row(user: str, item: str, kind: str = "click", when: datetime = WHEN) -> tuple[Any, ...]:
    return (user, item, kind, when, None, "main", "abc")


def frame(*rows: tuple[Any, ...]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


def items(log: EventLog) -> list[str]:
    return [item for each in log.read_new() for item in each["item_id"]]


def test_events_come_back_in_their_order_and_once(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for n in range(5):
        assert log.append([row("ann", f"i{n}"), row("bob", f"j{n}")]) == n + 1
    expected = [name for n in range(5) for name in (f"i{n}", f"j{n}")]
    assert items(log) == expected
    assert items(log) == []
    assert read_events(tmp_path)["item_id"].to_list() == expected
    assert read_events(tmp_path)["time"].to_list() == [WHEN] * 10
    assert read_events(tmp_path).schema == pl.Schema(SCHEMA)


def test_another_log_of_the_directory_sees_them(tmp_path: Path) -> None:
    one, two = EventLog(tmp_path), EventLog(tmp_path)
    one.append([row("ann", "a")])
    assert items(two) == ["a"]
    two.append([row("ann", "b")])
    one.append([row("ann", "c")])
    assert items(one) == ["a", "b", "c"]
    assert items(two) == ["b", "c"]


def test_compaction_keeps_all_events_in_one_file(tmp_path: Path) -> None:
    log, reader, late = EventLog(tmp_path), EventLog(tmp_path), EventLog(tmp_path)
    for n in range(4):
        log.append([row("ann", f"i{n}")])
    assert items(reader) == ["i0", "i1", "i2", "i3"]
    assert log.compact(at_least=5) == 0
    assert log.compact(at_least=4) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "compacted", "events-000000000001-000000000004.parquet",
    ]  # fmt: skip
    log.append([row("ann", "i4")])  # a log that has read nothing does not take a number that was compacted
    assert items(reader) == ["i4"]
    assert items(late) == ["i0", "i1", "i2", "i3", "i4"]
    log.append([row("ann", "i5")])
    assert log.compact(at_least=2) == 3, "the older file is not much larger, so it is rewritten"
    assert read_events(tmp_path)["item_id"].to_list() == [f"i{n}" for n in range(6)]
    assert items(EventLog(tmp_path)) == [f"i{n}" for n in range(6)]


def test_files_that_a_killed_compaction_left_are_ignored(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for n in range(3):
        log.append([row("ann", f"i{n}")])
    old = (tmp_path / "events-000000000002.parquet").read_bytes()
    log.compact(at_least=2)
    (tmp_path / "events-000000000002.parquet").write_bytes(old)  # as if it had not been removed yet
    (tmp_path / "compacted").write_bytes(b"")  # nor the number written
    again = EventLog(tmp_path)
    again.append([row("ann", "i3")])
    assert read_events(tmp_path)["item_id"].to_list() == ["i0", "i1", "i2", "i3"]
    assert items(EventLog(tmp_path)) == ["i0", "i1", "i2", "i3"]


def test_a_damaged_file_does_not_stop_the_service_and_stops_a_training(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.append([row("ann", "a")])
    (tmp_path / "events-000000000002.parquet").write_bytes(b"PAR1 garbage PAR1")
    log.append([row("ann", "c")])
    assert items(EventLog(tmp_path)) == ["a", "c"]
    with pytest.raises(StorageError, match="events-000000000002"):
        read_events(tmp_path)


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be kept"):
        EventLog(tmp_path / "file" / "events")
    with pytest.raises(StorageError, match="no directory of events"):
        read_events(tmp_path / "nowhere")


ACTION = st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from(["click", "like", "remove"]))


@given(st.lists(ACTION, max_size=30))
def test_what_counts_now_is_what_was_not_taken_back(actions: list[tuple[str, str, str]]) -> None:
    last = {(user, item): kind for user, item, kind in actions}
    expected = {pair for pair, kind in last.items() if kind != "remove"}
    recent = Recent()
    recent.take(frame(*(row(*action) for action in actions)))
    assert {(user, item) for user in "abc" for item in recent.of(user)} == expected
    assert recent.pairs == len(expected)
    assert set(interactions(frame(*(row(*a) for a in actions))).select("user_id", "item_id").rows()) == expected


def test_memory_is_bounded() -> None:
    recent = Recent(most_pairs=100)
    for n in range(1_000):
        recent.add(f"u{n}", "a", "click")
    assert recent.pairs == 100
    assert recent.of("u0") == {}
    assert recent.of("u999") == {"a": "click"}
    recent = Recent()
    for n in range(2 * MOST_OF_A_USER):
        recent.add("ann", f"i{n}", "click")
    assert len(recent.of("ann")) == MOST_OF_A_USER
    assert f"i{2 * MOST_OF_A_USER - 1}" in recent.of("ann")


def test_events_become_training_data_with_new_users_and_items() -> None:
    data = tl.read([("ann", "tea"), ("bob", "rum")]).with_titles({"tea": "Green tea"})
    merged = with_events(
        data, frame(row("ann", "rum"), row("eve", "gin"), row("bob", "tea"), row("bob", "tea", "remove"))
    )
    assert merged.to_frame().select("user_id", "item_id").rows() == [
        ("ann", "rum"), ("ann", "tea"), ("bob", "rum"), ("eve", "gin"),
    ]  # fmt: skip
    assert dict(zip(merged.items, merged.titles.to_list(), strict=True))["tea"] == "Green tea"  # type: ignore[union-attr]


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_times_of_events_have_the_unit_of_the_log(unit: int) -> None:
    seconds = int(WHEN.timestamp())
    data = tl.read([("ann", "tea", 1, (seconds - 100) * unit)])
    merged = with_events(data, frame(row("ann", "rum")))
    assert sorted(merged.times) == [(seconds - 100) * unit, seconds * unit]  # type: ignore[type-var, arg-type]


def test_ids_that_are_numbers_stay_numbers() -> None:
    data = tl.read([(1, 7), (2, 8)])
    merged = with_events(data, frame(row("2", "7"), row("30", "9")))
    assert list(merged.users) == [1, 2, 30]
    assert list(merged.items) == [7, 8, 9]
    odd = frame(row("ann", "7"), row("007", "7"), row("7", "x"), row("2", "8"), row("  ", "8"))
    with pytest.warns(DataWarning, match=r"4 of 5 events are skipped.*\('ann', '7'\)"):
        merged = with_events(data, odd)
    assert merged.to_frame().select("user_id", "item_id").rows() == [(1, 7), (2, 8)]
    with pytest.warns(DataWarning, match="1 of 1 events are skipped"):
        assert with_events(data, frame(row("ann", "7"))) is data


def test_views_are_kept_and_do_not_count(tmp_path: Path) -> None:
    events = frame(row("ann", "tea", "view"), row("ann", "rum", "click"))
    recent = Recent()
    recent.take(events)
    assert recent.of("ann") == {"rum": "click"}
    assert interactions(events)["item_id"].to_list() == ["rum"]


def test_old_events_do_not_count_in_lists() -> None:
    recent = Recent(days=30)
    recent.take(
        frame(row("ann", "tea", when=WHEN - timedelta(days=31)), row("ann", "rum", when=WHEN - timedelta(days=1)))
    )
    assert recent.of("ann") == {"rum": "click"}


def test_a_file_that_was_moved_away_hides_no_others(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for n in range(3):
        log.append([row("ann", f"i{n}")])
    (tmp_path / "events-000000000002.parquet").unlink()
    again = EventLog(tmp_path)
    assert again.append([row("ann", "i3")]) == 4
    assert items(again) == ["i0", "i2", "i3"]


def test_a_damaged_file_is_not_compacted(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for n in range(4):
        log.append([row("ann", f"i{n}")])
    (tmp_path / "events-000000000002.parquet").write_bytes(b"damaged")
    assert log.compact(at_least=2) == 2
    assert sorted(path.name for path in tmp_path.glob("events-*")) == [
        "events-000000000001.parquet", "events-000000000002.parquet", "events-000000000003-000000000004.parquet",
    ]  # fmt: skip
    assert items(EventLog(tmp_path)) == ["i0", "i2", "i3"]


def test_a_place_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    log = EventLog(tmp_path)
    log.check()
    monkeypatch.setattr("os.link", no_links)
    with pytest.raises(StorageError, match="hard links"):
        log.check()
    assert [path.name for path in tmp_path.iterdir()] == ["compacted"]
