"""kill -9 of servers under load: no event that was acknowledged is lost, no worker stays behind, the rest serves on.

    python tests/hostile/serve_kills.py --kills 50

Three trials. All processes of a server are killed while events are written, and it is started again: each event that
was answered with 201 is there, once. One worker is killed under load: only its own connections fail, and another worker
comes. Processes append to one store of events and read it, and some are killed: no event is lost or doubled, and all
readers see the same order.
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
from servers import PATIENCE, Load, Server, make_models

from truelike.serving.events import EventStore, read_events

WRITER = """
import sys
from truelike.serving.events import Event, EventStore
store = EventStore(sys.argv[1])
for n in range(int(sys.argv[3])):
    store.append([Event(sys.argv[2], f"{sys.argv[2]}-{n}-{part}", "click") for part in range(2)])
    print(n, flush=True)
    assert store.of(sys.argv[2])[-1].item == f"{sys.argv[2]}-{n}-1"
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
            assert {each for each in load.counts if each.isdigit()} <= {"201"}, load.counts  # others broke
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
    assert [path.name for path in events.iterdir()] == ["events.sqlite"]
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
        gone, alive = psutil.wait_procs(workers, PATIENCE)
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
            with Load(server, ask, connections, PATIENCE, pause) as load:
                time.sleep(0.3)
                psutil.Process(min(before)).send_signal(signal.SIGKILL)
                killed = time.monotonic()
                while True:  # until another worker answers
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        answering = server.ask("/readyz").json["worker"]
                        if answering not in before:
                            break
                    assert time.monotonic() - killed < PATIENCE
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


def kill_writers(place: Path, appends: int, times: int, draw: random.Random) -> Counter[str]:
    """Append and read in several processes, and kill one, as often as asked. Counts what was done."""
    directory, counts, told = place / "written-events", Counter[str](), Counter[str]()
    store = EventStore(directory)
    followed: list[str] = []

    def writer(number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", WRITER, str(directory), f"w{number}", str(appends)]
        return subprocess.Popen(command, stdout=subprocess.PIPE)

    def follow() -> list[str]:
        found = read_events(directory)["item_id"].to_list()
        assert found[: len(followed)] == followed, "a reader sees another order"
        followed[:] = found
        counts["reads beside writers"] += 1
        return found

    def end(number: int, process: subprocess.Popen[bytes]) -> None:
        said, _ = process.communicate()
        told[f"w{number}"] = said.count(b"\n")

    lasting = [(number, writer(number)) for number in range(2)]
    for number in range(2, 2 + times):
        killed = writer(number)
        assert killed.stdout is not None
        killed.stdout.readline()
        until = time.monotonic() + draw.uniform(0.0, 0.3)
        while time.monotonic() < until:
            follow()
        killed.kill()
        end(number, killed)
        told[f"w{number}"] += 1  # the line that was read
        counts["kills of a writer"] += 1
    for number, process in lasting:
        end(number, process)
        assert process.returncode == 0
        assert told[f"w{number}"] == appends
    found = follow()
    assert found == followed
    assert len(found) == len(set(found)), "an event is there twice"
    for name, n in told.items():
        mine = [item for item in found if item.startswith(f"{name}-")]
        assert mine == [f"{name}-{turn}-{part}" for turn in range(len(mine) // 2) for part in range(2)]
        assert 0 <= len(mine) // 2 - n <= 1, "each that was acknowledged, and at most one that was being written"
    counts["events"] = len(found)
    store.close()
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
        show("writers killed", kill_writers(place, 1_000, arguments.kills // 2, draw))
        show("one worker killed", kill_workers(place, model, max(1, arguments.kills // 10)))
        print(f"supervisor killed: its workers ended after {kill_supervisor(place, model):.1f} s", flush=True)
        show("all processes killed", kill_servers(place, model, arguments.kills, draw))


if __name__ == "__main__":
    main()
