"""kill -9 of servers; `tests/hostile/serve_kills.py` does the same more often."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import serve_kills
from servers import Server

pytestmark = pytest.mark.slow


def test_no_acknowledged_event_is_lost_if_all_processes_are_killed(tmp_path: Path, saved: dict[str, Path]) -> None:
    counts = serve_kills.kill_servers(tmp_path, saved["popular"], 5, random.Random(0), workers=1)
    assert counts["kills"] == 5
    assert counts["acknowledged events"] > 5


def test_the_other_worker_serves_on_if_one_is_killed(tmp_path: Path, saved: dict[str, Path]) -> None:
    counts = serve_kills.kill_workers(tmp_path, saved["popular"], 1, pause=0.01)
    assert counts["answered"] > 20


def test_workers_end_without_their_supervisor_and_the_next_one_removes_what_it_left(
    tmp_path: Path, saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    serve_kills.kill_supervisor(tmp_path, saved["popular"])
    (left,) = temporary.glob("truelike-*")
    stranger = temporary / "truelike-of-somebody-else"
    stranger.mkdir()
    with Server(tmp_path, saved["popular"], "--workers", "1"):
        assert not left.exists()
        assert stranger.exists()
        assert len(list(temporary.iterdir())) == 2
    assert list(temporary.iterdir()) == [stranger]


def test_no_event_is_lost_or_doubled_if_one_of_several_writers_is_killed(tmp_path: Path) -> None:
    counts = serve_kills.kill_writers(tmp_path, 150, 3, random.Random(0))
    assert counts["kills of a writer"] == 3
    assert counts["events"] > 600
