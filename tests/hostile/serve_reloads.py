"""New models under full load: no request fails, and a broken model is refused while the old one serves on.

    python tests/hostile/serve_reloads.py --swaps 20

Each swap puts another model in the place of the served one: by `model.save` alone, which the server sees, by SIGHUP, or
by POST /v1/admin/reload. Between swaps, broken directories are put there.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from servers import KEY, Load, Server, make_models

WATCH = 0.3  # seconds


def version_of(server: Server) -> str:
    found: str = server.ask("/readyz").json["models"]["served"]
    return found


def save(source: Path, served: Path) -> None:
    """Save a model in the place of the served one."""
    import truelike as tl

    tl.load(source).save(served)


def swap(server: Server, source: Path, served: Path, how: str) -> None:
    """Put a model in the place of the served one, and wait until all workers serve it."""
    generation = server.ask("/readyz").json["generation"]
    save(source, served)
    if how == "SIGHUP":
        server.main.send_signal(signal.SIGHUP)
    elif how == "POST":
        answer = server.ask("/v1/admin/reload", {})
        assert answer.status == 200, answer.body
    wait_for_workers(server, lambda state: state["generation"] > generation and not state["problems"])
    if how == "POST":
        assert answer.json["models"] == server.ask("/readyz").json["models"]


def wait_for_workers(server: Server, fits: Callable[[Any], bool], patience: float = 90.0) -> None:
    """Wait until the state of every worker fits."""
    missing = {worker.pid for worker in server.workers()}
    until = time.monotonic() + patience
    while missing:
        state = server.ask("/readyz").json
        if fits(state):
            missing.discard(state["worker"])
        assert time.monotonic() < until, f"{state}; the log: {server.log()[-2000:]}"
        time.sleep(0.01)


# --- broken models --------------------------------------------------------------------------------


def cut_arrays(served: Path, _: Path) -> None:
    path = served / "arrays.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def other_ids(served: Path, other: Path) -> None:
    shutil.copy(other / "items.parquet", served / "items.parquet")


def half_copied(served: Path, other: Path) -> None:
    """`cp` of another model that has come to the middle of its largest file, and stops."""
    shutil.copy(other / "model.json", served / "model.json")
    content = (other / "arrays.safetensors").read_bytes()
    (served / "arrays.safetensors").write_bytes(content[: len(content) // 2])


BROKEN = (cut_arrays, other_ids, half_copied)


def refuse(server: Server, served: Path, other: Path, breaks: Callable[[Path, Path], None]) -> None:
    """Break the model, and wait until all workers say so. The version stays."""
    before = version_of(server)
    logged = len(server.log())
    breaks(served, other)
    wait_for_workers(server, lambda state: "served" in state["problems"] and state["models"]["served"] == before)
    problem = server.ask("/readyz").json["problems"]["served"]
    assert str(served) in problem, problem
    assert "was refused" in server.log()[logged:]
    answer = server.ask("/v1/admin/reload", {})
    assert answer.status == 409
    assert str(served) in answer.json["problems"]["served"]
    assert answer.json["models"]["served"] == before


# --- all of it ------------------------------------------------------------------------------------


def swap_under_load(place: Path, swaps: int, n_broken: int, pause: float = 0.0) -> Counter[str]:
    """Swap and break models under load. Counts requests, swaps and refusals; no request may fail."""
    models = make_models(place)
    served = place / "served"
    save(models["first"], served)
    lists: dict[tuple[str, str], bytes] = {}
    counts: Counter[str] = Counter()

    def ask(made: http.client.HTTPConnection, number: int) -> str:
        user = users[number % len(users)]
        answer = server.ask(f"/v1/recommend?user={user}&k=5", headers={"x-request-id": "same"}, through=made)
        if answer.status != 200:
            return str(answer.status)
        first = lists.setdefault((user, answer.json["version"]), answer.body)
        return "answered" if answer.body == first else "another list of the same version"

    with Server(place, served, "--workers", "2", "--watch", str(WATCH), key=KEY) as server:
        users = server.ask("/v1/users").json["users"]
        with Load(server, ask, 4, 60.0 + 60 * (swaps + n_broken), pause) as load:
            breaks = iter(BROKEN * n_broken)
            for number in range(swaps):
                source = models["second"] if number % 2 == 0 else models["first"]
                before = version_of(server)
                swap(server, source, served, ("save", "SIGHUP", "POST")[number % 3])
                assert version_of(server) != before
                counts["swaps"] += 1
                if number < n_broken:
                    refuse(server, served, models["other_items"], next(breaks))
                    counts["refused"] += 1
    assert set(load.counts) == {"answered"}, load.counts
    assert len({version for _, version in lists}) == 2
    assert "Traceback" not in server.log(), server.log()[-3000:]
    return counts + Counter({"requests": load.counts["answered"]})


def main() -> None:
    """Swap as often as asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swaps", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = swap_under_load(Path(place), arguments.swaps, len(BROKEN))
    print(f"no request failed: {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    main()
