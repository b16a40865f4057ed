"""kill -9 of servers under load: no event that was acknowledged is lost, no worker stays behind, the rest serves on.

    python tests/hostile/serve_kills.py --kills 50

Three trials. All processes of a server are killed while events are written, and it is started again: each event that
was answered with 201 is there, once. One worker is killed under load: only its own connections fail, and another worker
comes. Processes append to, read and compact one directory of events, and compaction is killed: no event is lost or
doubled.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from servers import Load, Server, make_models

from truelike.serving.events import EventLog, Recent, _files, read_events

WRITER = """
import sys
from truelike.serving.events import EventLog
log = EventLog(sys.argv[1])
for n in range(int(sys.argv[3])):
    rows = [(sys.argv[2], f"{sys.argv[2]}-{n}-{part}", "click", None, None, "m", "v") for part in range(2)]
    log.append(rows)
    print(n, flush=True)
    for _ in log.read_new():
        pass
"""
COMPACTOR = """
import sys
from truelike.serving.events import EventLog
log = EventLog(sys.argv[1])
print("ready", flush=True)
while True:
    log.compact(at_least=4)
"""


def kill_servers(place: Path, model: Path, times: int, draw: random.Random, workers: int = 2) -> Counter[str]:
    """Kill all processes while events are written, as often as asked. Counts events and checks them."""
    events = place / "events"
    acknowledged: set[str] = set()
    sent: set[str] = set()
    counts: Counter[str] = Counter()
    server = Server(place, model, "--workers", str(workers), "--events", events)
    try:
        for turn in range(times):
            mine: dict[str, list[str]] = {}

            def write(made: http.client.HTTPConnection, number: int, turn: int = turn, mine: Any = mine) -> str:
                user, items = f"u{turn}-{number % 4}", [f"e{turn}-{number}-{part}" for part in range(3)]
                sent.update(items)
                body = {"events": [{"user": user, "item": item, "type": "like"} for item in items]}
                status = server.ask("/v1/events", body, through=made).status
                if status == 201:
                    acknowledged.update(items)
                    mine.setdefault(user, []).extend(items)
                return str(status)

            with Load(server, write, 4, 30.0) as load:
                time.sleep(draw.uniform(0.1, 0.8))
                server.kill()
            assert set(load.counts) <= {
                "201", "RemoteDisconnected", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError",
                "BadStatusLine", "IncompleteRead",
            }, load.counts  # fmt: skip
            found = read_events(events)["item_id"].to_list()
            assert len(found) == len(set(found)), "an event is there twice"
            lost = acknowledged - set(found)
            assert not lost, f"{len(lost)} events were acknowledged and are lost, e.g. {sorted(lost)[:3]}"
            assert set(found) <= sent
            server.start()
            for user, items in mine.items():
                told = server.ask(f"/v1/history?user={user}&limit=1000").json
                assert set(items[-400:]) <= {each["item"] for each in told["items"]}
            counts["kills"] += 1
            counts["acknowledged events"] = len(acknowledged)
    finally:
        server.stop()
    left = [path.name for path in events.iterdir() if path.name.startswith(".")]
    counts["files that were not finished"] = len(left)
    return counts


def kill_supervisor(place: Path, model: Path) -> float:
    """Kill the supervisor alone; the seconds until all workers have ended."""
    server = Server(place, model, "--workers", "2")
    try:
        workers = server.workers()
        assert len(workers) == 2
        server.process.kill()
        server.process.wait()
        started = time.monotonic()
        gone, alive = psutil.wait_procs(workers, 20)
        assert not alive, f"{len(alive)} workers stay without a supervisor"
        assert len(gone) == 2
        return time.monotonic() - started
    finally:
        server.kill()


def kill_workers(place: Path, model: Path, times: int, pause: float = 0.0) -> Counter[str]:
    """Kill one of two workers under load, as often as asked. Counts the answers."""
    total: Counter[str] = Counter()
    connections = 8
    acknowledged: list[str] = []
    with Server(place, model, "--workers", "2", "--events", place / "worker-events") as server:
        users = server.ask("/v1/users").json["users"]

        def ask(made: http.client.HTTPConnection, number: int) -> str:
            if number % 5 == 0:
                item = f"e{number}-{time.monotonic_ns()}"
                body = {"events": [{"user": f"u{number % 50}", "item": item}]}
                status = server.ask("/v1/events", body, through=made).status
                if status == 201:
                    acknowledged.append(item)
                return str(status)
            return str(server.ask(f"/v1/recommend?user={users[number % 20]}", through=made).status)

        for _ in range(times):
            before = {worker.pid for worker in server.workers()}
            with Load(server, ask, connections, 60.0, pause) as load:
                time.sleep(0.3)
                psutil.Process(min(before)).send_signal(signal.SIGKILL)
                killed = time.monotonic()
                while True:  # until another worker answers
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        answering = server.ask("/readyz").json["worker"]
                        if answering not in before:
                            break
                    assert time.monotonic() - killed < 60
                total["milliseconds without the second worker"] += round(1_000 * (time.monotonic() - killed))
            total["kills"] += 1
            good = load.counts["200"] + load.counts["201"]
            failed = load.counts.total() - good
            assert failed <= connections, load.counts  # a request of each connection of the killed worker at most
            total["answered"] += good
            total["failed"] += failed
        assert len(server.workers()) == 2
    found = read_events(place / "worker-events")["item_id"].to_list()
    assert len(found) == len(set(found))
    assert set(acknowledged) <= set(found)
    total["acknowledged events"] = len(acknowledged)
    return total


def compact_beside_writers(place: Path, appends: int, draw: random.Random, writers: int = 2) -> Counter[str]:
    """Append, read and compact in several processes, and kill the one that compacts. Counts what was done."""
    directory = place / "compacted-events"
    log, counts = EventLog(directory), Counter[str]()
    recent = Recent()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(directory), f"w{n}", str(appends)], stdout=subprocess.PIPE
        )
        for n in range(writers)
    ]

    def compactor() -> subprocess.Popen[bytes]:
        started = subprocess.Popen([sys.executable, "-c", COMPACTOR, str(directory)], stdout=subprocess.PIPE)
        assert started.stdout is not None
        assert started.stdout.readline() == b"ready\n"
        return started

    compacting, last = [compactor(), compactor()], 0
    try:
        killed = time.monotonic()
        while any(writer.poll() is None for writer in running):
            found = read_events(log.directory)["item_id"].to_list()
            assert len(found) == len(set(found)), "an event is there twice"
            assert len(found) >= last, "events were there and are not"
            last = len(found)
            for frame in log.read_new():
                recent.take(frame)
            counts["reads beside writers"] += 1
            if time.monotonic() - killed > draw.uniform(0.05, 0.3):
                compacting[0].kill()
                compacting[0].communicate()
                compacting = [compacting[1], compactor()]
                killed = time.monotonic()
                counts["kills of a compaction"] += 1
    finally:
        for process in (*compacting, *running):
            process.kill()
            process.communicate()
    assert all(writer.returncode == 0 for writer in running)
    expected = [f"w{n}-{turn}-{part}" for n in range(writers) for turn in range(appends) for part in range(2)]
    for each in (log, EventLog(directory)):  # as it was, and after a restart
        found = read_events(each.directory)["item_id"].to_list()
        assert sorted(found) == sorted(expected)
        for n in range(writers):  # the events of a process in their order
            mine = [item for item in found if item.startswith(f"w{n}-")]
            assert mine == expected[2 * appends * n : 2 * appends * (n + 1)]
        for frame in each.read_new():
            recent.take(frame)
    for n in range(writers):
        assert list(recent.of(f"w{n}")) == expected[2 * appends * n : 2 * appends * (n + 1)][-500:]
    counts["events"] = len(expected)
    log.compact(at_least=1)
    assert sorted(read_events(log.directory)["item_id"].to_list()) == sorted(expected)
    numbered = list(directory.glob("events-*"))
    assert [file.path for file in _files(log.directory)] == sorted(numbered), "files that others cover were left"
    counts["files in the end"] = len(numbered)
    return counts


def main() -> None:
    """Kill as often as asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)

    def show(name: str, counts: Counter[str]) -> None:
        print(f"{name}: {json.dumps(counts)}", flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        model = make_models(place)["popular"]
        show("compaction", compact_beside_writers(place, 1_000, draw))
        show("one worker killed", kill_workers(place, model, max(1, arguments.kills // 10)))
        print(f"supervisor killed: its workers ended after {kill_supervisor(place, model):.1f} s", flush=True)
        show("all processes killed", kill_servers(place, model, arguments.kills, draw))


if __name__ == "__main__":
    main()
