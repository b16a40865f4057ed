"""Speed of `truelike serve` beside a bare FastAPI route, with a million items, and its memory under a long load.

    python benchmarks/serve.py [--quick] [--only lists,million,soak] [--model DIR] [--soak SECONDS] [--rounds N]

lists: MovieLens 1M, IALS with 128 factors, exact lists of 20 items, with 1 and 2 workers. In alternating rounds, as
many requests as possible are sent to the server and to a FastAPI route that returns constant bytes of the same size
(uvicorn, uvloop, httptools, as many workers). The ratio is asked to be at least .50, and p99 at half of the peak below
20 ms. Beside it, the processor time of a request in the server's processes, which other work disturbs less.

million: 1,000,000 items with 64 factors, --index ivf: recall@20 as the server measured it, asked to be at least .95,
and p99 at half of the peak, asked to be below 30 ms. The factors are made: users and items gather around 200 common
tastes, with noise of .7 of their size, and popular items are longer (`make_model` of batch.py). With --noise, the same
with factors that are nothing but noise: no groups are in them that an index could find.

soak: all kinds of requests at half of their peak for --soak seconds (default 60; asked: 600), with events. The resident
memory of all processes after a tenth of the time (at most a minute) and at the end, asked to be within 5 %.

The load comes from one more process on the same machine (load_generator.py). Percentiles are of an open loop: requests
are sent by a schedule, and times are from the schedule. The figures mean something on an idle machine only.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from batch import make_model
from common import arguments, load_split, machine

import truelike as tl

BARE = """
import os
from fastapi import FastAPI, Response
app = FastAPI()
content = b"x" * int(os.environ["BARE_BYTES"])
@app.get("/v1/recommend")
async def recommend():
    return Response(content, media_type="application/json")
"""
CONNECTIONS = 16
KINDS = {
    "recommend": 60,
    "batch": 5,
    "similar": 10,
    "events": 5,
    "explain": 10,
    "history": 10,
}  # of a soak, of 100


class Running:
    """A server process on a port of this machine."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.port, self._log = process, port, log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            content: bytes = answer.read()
        return content

    def processor_seconds(self) -> float:
        """Seconds of the processor that all processes have taken."""
        main = psutil.Process(self.process.pid)
        times = [each.cpu_times() for each in (main, *main.children(recursive=True))]
        return sum(each.user + each.system for each in times)

    def resident(self) -> dict[str, float]:
        """MB of each process: supervisor, then workers."""
        main = psutil.Process(self.process.pid)
        everyone = [main, *main.children(recursive=True)]
        names = ["supervisor", *(f"worker {n}" for n in range(1, len(everyone)))]
        return {name: each.memory_info().rss / 1e6 for name, each in zip(names, everyone, strict=True)}


@contextlib.contextmanager
def server(place: Path, model: Path, *options: str) -> Iterator[Running]:
    """A running `truelike serve`."""
    log = place / f"serve-{time.monotonic_ns()}.log"
    command = [sys.executable, "-m", "truelike", "serve", f"m={model}", "--port", "0", *options]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, "TMPDIR": str(place)})
    try:
        until = time.monotonic() + 900
        while (port := re.search(r"serving on http://[\d.]+:(\d+)", log.read_text(errors="replace"))) is None:
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the server did not start: {log.read_text(errors='replace')}")
            time.sleep(0.1)
        yield Running(process, int(port[1]), log)
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def bare_server(place: Path, workers: int, n_bytes: int) -> Iterator[Running]:
    """A FastAPI route that returns constant bytes."""
    (place / "bare_app.py").write_text(BARE)
    log, port = place / "bare.log", free_port()
    command = [
        sys.executable, "-m", "uvicorn", "bare_app:app", "--app-dir", str(place), "--port", str(port), "--workers",
        str(workers), "--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning",
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, "BARE_BYTES": str(n_bytes)})
    running = Running(process, port, log)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                assert len(running.get("/v1/recommend")) == n_bytes
                break
            time.sleep(0.1)
        time.sleep(2)  # all workers
        yield running
    finally:
        process.terminate()
        process.wait(60)


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def get(path: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def post(path: str, body: Any) -> str:
    text = json.dumps(body)
    head = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(text.encode())}\r\n\r\n"
    return f"POST {path} HTTP/1.1\r\n{head}{text}"


def generate(
    running: Running,
    requests: list[str],
    seconds: float,
    rate: float | None = None,
    connections: int = CONNECTIONS,
) -> dict[str, Any]:
    """Send requests from a process of its own, and return its figures."""
    orders = {
        "port": running.port, "connections": connections if rate is None else 4 * connections, "seconds": seconds,
        "rate": rate, "requests": requests, "seed": 0,
    }  # fmt: skip
    taken = running.processor_seconds()
    generator = Path(__file__).with_name("load_generator.py")
    done = subprocess.run(
        [sys.executable, str(generator)], input=json.dumps(orders).encode(), capture_output=True, check=True,
        timeout=seconds + 60,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    found["microseconds"] = 1e6 * (running.processor_seconds() - taken) / max(1, found["requests"])
    if found["errors"] or found["unanswered"]:
        print(f"    errors: {found['errors']}, not answered: {found['unanswered']}", flush=True)
    return found


def percentiles(running: Running, requests: list[str], rate: float, seconds: float, asked: float) -> None:
    found = generate(running, requests, seconds, rate)
    verdict = "" if not asked else f"; asked: p99 < {asked:g}: {'yes' if found['p99'] < asked else 'NO'}"
    print(
        f"    at {rate:,.0f} a second, half of the peak: p50 {found['p50']:.2f}, p90 {found['p90']:.2f}, "
        f"p99 {found['p99']:.2f}, p99.9 {found['p999']:.2f}, most {found['most']:.1f} ms{verdict}",
        flush=True,
    )


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


# --- (a) lists ------------------------------------------------------------------------------------


def movielens(place: Path, quick: bool) -> Path:
    model = place / "movielens-128"
    split = load_split("ml-1m-split", quick)
    tl.IALS(factors=8 if quick else 128).fit(split, progress=False).save(model)
    return model


def lists(place: Path, model: Path, given: Any) -> None:
    """Requests a second beside a bare route, and percentiles at half of the peak."""
    users = tl.load(model).train_.users.values.to_list()
    drawn = random.Random(0).sample(users, min(1_000, len(users)))
    requests = [get(f"/v1/recommend?user={user}&k=20") for user in drawn]
    for workers in (1, 2):
        with server(place, model, "--workers", str(workers), "--index", "exact") as own:
            n_bytes = len(own.get(f"/v1/recommend?user={drawn[0]}&k=20"))
            with bare_server(place, workers, n_bytes) as bare:
                for each in (own, bare):
                    generate(each, requests, min(2.0, given.seconds))  # warm
                rounds = [
                    [generate(each, requests, given.seconds) for each in (own, bare)] for _ in range(given.rounds)
                ]
            peak, plain = (statistics.median(each[n]["a_second"] for each in rounds) for n in (0, 1))
            taken, taken_bare = (statistics.median(each[n]["microseconds"] for each in rounds) for n in (0, 1))
            ratios = [mine["a_second"] / other["a_second"] for mine, other in rounds]
            print(
                f"{workers} workers, {n_bytes:,} bytes, {given.rounds} rounds, {load()}:\n"
                f"    truelike {peak:,.0f}, bare FastAPI route {plain:,.0f} requests a second; ratio "
                f"{peak / plain:.2f} ({min(ratios):.2f} to {max(ratios):.2f}); asked: at least .50: "
                f"{'yes' if peak / plain >= 0.5 else 'NO'}\n"
                f"    processor time of a request: {taken:.0f} and {taken_bare:.0f} microseconds, "
                f"ratio {taken_bare / taken:.2f}",
                flush=True,
            )
            percentiles(own, requests, peak / 2, 3 * given.seconds, 20)


# --- (b) a million items --------------------------------------------------------------------------


def make_noise(place: Path, n_users: int, n_items: int, factors: int) -> None:
    """A model whose factors are nothing but noise: that of `make_model`, with other factors."""
    make_model(place, n_users, n_items, factors)
    model = tl.load(place)
    rng = np.random.default_rng(1)
    for table in (model.user_factors_, model.item_factors_):
        table[:] = rng.normal(scale=0.3 / np.sqrt(factors), size=table.shape)
    model.save(place)


def million(place: Path, given: Any) -> None:
    """An approximate index for a million items."""
    n_users, n_items, factors = (2_000, 20_000, 16) if given.quick else (20_000, 1_000_000, 64)
    kinds = {"tastes and popularity": make_model, **({"noise": make_noise} if given.noise else {})}
    for name, make in kinds.items():
        model = place / f"{make.__name__}-{n_items}"
        if not (model / "model.json").exists():
            make(model, n_users, n_items, factors)
        drawn = random.Random(0).sample(range(n_users), 1_000)
        requests = [get(f"/v1/recommend?user={user}&k=20") for user in drawn]
        started = time.monotonic()
        with server(place, model, "--workers", "2", "--index", "ivf") as own:
            print(f"{name}: {n_items:,} items, {factors} factors, ready after {time.monotonic() - started:.0f} s")
            print("    " + next(line for line in own.log.splitlines() if line.startswith("m: ")), flush=True)
            generate(own, requests, min(2.0, given.seconds))
            peak = generate(own, requests, 2 * given.seconds)["a_second"]
            print(f"    2 workers: {peak:,.0f} requests a second, {load()}", flush=True)
            percentiles(own, requests, peak / 2, 3 * given.seconds, 30)
            print(f"    memory, with mapped files: {rounded(own.resident())} MB", flush=True)


# --- (c) a long load ------------------------------------------------------------------------------


def soak(place: Path, model: Path, given: Any) -> None:
    """All kinds of requests for a long time: the memory must not grow."""
    loaded = tl.load(model).train_
    users, items = loaded.users.values.to_list(), loaded.items.values.to_list()
    draw = random.Random(0)
    some, things = draw.sample(users, min(500, len(users))), draw.sample(items, min(500, len(items)))
    makers = {
        "recommend": lambda: get(f"/v1/recommend?user={draw.choice(some)}&k=20"),
        "batch": lambda: post("/v1/recommend/batch", {"users": [str(u) for u in draw.sample(some, 20)]}),
        "similar": lambda: get(f"/v1/similar?item={draw.choice(things)}&k=20"),
        "events": lambda: post(
            "/v1/events", {"events": [{"user": str(draw.choice(some[:50])), "item": str(draw.choice(things))}]}
        ),
        "explain": lambda: get(f"/v1/explain?user={draw.choice(some)}&item={draw.choice(things)}"),
        "history": lambda: get(f"/v1/history?user={draw.choice(some)}"),
    }
    requests = [makers[kind]() for kind, share in KINDS.items() for _ in range(40 * share)]
    draw.shuffle(requests)
    with server(place, model, "--workers", "2", "--events", str(place / "events")) as own:
        peak = generate(own, requests, given.seconds)["a_second"]
        print(f"soak: all kinds of requests, 2 workers, peak {peak:,.0f} requests a second, {load()}", flush=True)
        early = min(60.0, given.soak / 10)
        found = generate(own, requests, early, peak / 2)
        before = own.resident()
        print(f"    after {early:.0f} s: {sum(before.values()):.1f} MB {rounded(before)}", flush=True)
        left = given.soak - early
        while left > 0:
            found = generate(own, requests, min(60.0, left), peak / 2)
            left -= 60.0
            now = own.resident()
            print(
                f"    after {given.soak - max(0.0, left):.0f} s: {sum(now.values()):.1f} MB {rounded(now)}; "
                f"{found['a_second']:,.0f} a second, p99 {found['p99']:.1f} ms",
                flush=True,
            )
        growth = sum(now.values()) / sum(before.values()) - 1
        size = sum(file.stat().st_size for file in (place / "events").iterdir())
        print(
            f"    memory grew by {100 * growth:.1f} %; asked: within 5 %: {'yes' if abs(growth) <= 0.05 else 'NO'}; "
            f"{size / 1e6:.1f} MB of events",
            flush=True,
        )
        if "Traceback" in own.log:
            print(f"    THE LOG HAS ERRORS: {own.log[-2000:]}")
    print(f"    runtime directories that were left: {len(list(place.glob('truelike-*')))}", flush=True)


def rounded(sizes: dict[str, float]) -> str:
    return ", ".join(f"{name} {size:.0f}" for name, size in sizes.items())


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", default="lists,million,soak")
    parser.add_argument("--model", type=Path, help="a saved model of MovieLens 1M with 128 factors")
    parser.add_argument("--directory", type=Path, help="keep the made models here; default: a temporary directory")
    parser.add_argument("--noise", action="store_true", help="a million items whose factors are noise, too")
    parser.add_argument("--soak", type=float, default=60.0, help="seconds")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a round")
    given = parser.parse_args()
    if given.quick:
        given.soak, given.rounds, given.seconds = 4.0, 1, 0.5
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        kept = given.directory or place
        kept.mkdir(parents=True, exist_ok=True)
        parts = given.only.split(",")
        model = given.model
        if model is None and ("lists" in parts or "soak" in parts):
            model = movielens(kept, given.quick)
        if "lists" in parts:
            lists(place, model, given)
        if "million" in parts:
            million(kept, given)
        if "soak" in parts:
            soak(place, model, given)


if __name__ == "__main__":
    main()
