"""What a server depends on fails: its runtime directory, its processes, descriptors. It serves on, and says so."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest
from serve_faults import TOLD, Trial, full, small_disk, wait
from serve_reloads import save
from servers import KEY, Server

from truelike.serving.channel import BEAT, SILENT
from truelike.serving.supervisor import LOOK

pytestmark = pytest.mark.slow

LIST = "/v1/recommend?user=1"


def problems(server: Any) -> Any:
    return server.ask("/readyz").json["problems"]


def test_a_cleaner_removes_the_runtime_directory_and_the_next_model_is_served(
    tmp_path: Path, saved: dict[str, Path]
) -> None:
    place = tmp_path / "run"
    place.mkdir()
    served = tmp_path / "served"
    save(saved["popular"], served)
    with Server(
        tmp_path, served, "--workers", "2", "--watch", "0.3", "--runtime-directory", place, key=KEY
    ) as server:
        (runtime,) = place.iterdir()
        assert runtime.stat().st_mode & 0o777 == 0o700
        version = server.ask("/readyz").json["models"]["served"]
        for path in sorted(runtime.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        wait(lambda: "removed from the runtime directory" in server.log())
        wait(lambda: not problems(server))
        save(saved["first"], served)
        wait(lambda: server.ask("/readyz").json["models"]["served"] != version)
        assert server.ask("/v1/admin/reload", {}).status == 200
        (runtime,) = place.iterdir()
        shutil.rmtree(runtime, ignore_errors=True)
        wait(lambda: server.log().count("removed from the runtime directory") > 1)
        wait(lambda: not problems(server))
        worker = server.workers()[0]
        worker.kill()
        wait(lambda: len(server.workers()) == 2 and not worker.is_running() and not problems(server))
        assert server.ask(LIST).status == 200
    assert list(place.iterdir()) == []


def test_silence_is_told_in_time() -> None:
    """What the constants allow; `serve_faults.py` measures it."""
    assert SILENT + BEAT + 2 * LOOK < TOLD


def test_a_stopped_worker_is_told_and_replaced(tmp_path: Path, saved: dict[str, Path]) -> None:
    with Server(tmp_path, saved["popular"], "--workers", "2") as server:
        stopped = server.workers()[0]
        stopped.send_signal(signal.SIGSTOP)
        with server.connection() as through:
            while server.ask("/readyz", through=through).json["worker"] == stopped.pid:
                pass
            wait(lambda: "workers" in server.ask("/readyz", through=through).json["problems"])
            wait(lambda: not server.ask("/readyz", through=through).json["problems"])
        assert stopped.pid not in {worker.pid for worker in server.workers()}
        assert len(server.workers()) == 2


def test_a_stopped_supervisor_is_told(tmp_path: Path, saved: dict[str, Path]) -> None:
    with Server(tmp_path, saved["popular"], "--workers", "1") as server:
        assert server.ask("/readyz").json["age"] >= 0
        server.main.send_signal(signal.SIGSTOP)
        wait(lambda: "supervisor" in problems(server))
        assert server.ask("/readyz").json["degraded"]
        assert server.ask(LIST).status == 200
        server.main.send_signal(signal.SIGCONT)
        wait(lambda: not problems(server))


def test_a_loader_that_hangs_is_ended(tmp_path: Path, saved: dict[str, Path]) -> None:
    options = ("--workers", "1", "--watch", "0", "--load-timeout", "45")
    with Server(tmp_path, saved["popular"], *options, key=KEY) as server:
        server.main.send_signal(signal.SIGHUP)

        def loaders() -> list[psutil.Process]:
            return [each for each in server.main.children() if "truelike.serving.loader" in each.cmdline()]

        wait(lambda: len(loaders()) == 1)
        loaders()[0].send_signal(signal.SIGSTOP)
        wait(lambda: "was not loaded within 45 s" in str(problems(server)))
        assert server.ask("/v1/admin/reload", {}).status == 200
        assert not problems(server)


def test_more_connections_than_descriptors(tmp_path: Path, saved: dict[str, Path]) -> None:
    served = tmp_path / "served"
    save(saved["popular"], served)
    with Server(tmp_path, served, "--workers", "1", "--watch", "0.3") as server:
        (worker,) = server.workers()
        server.main.rlimit(psutil.RLIMIT_NOFILE, (128, 128))  # the next worker has it, too
        worker.kill()
        wait(lambda: server.workers() not in ([], [worker]))
        wait(lambda: server.ask("/readyz").status == 200)
        version = server.ask("/readyz").json["models"]["served"]
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        try:
            for _ in range(10):
                assert server.ask(LIST).status == 200
            save(saved["first"], served)
            wait(lambda: server.ask("/readyz").json["models"]["served"] != version)
        finally:
            for made in idle:
                made.close()


def test_systemd_is_told_that_the_server_is_ready_alive_and_stopping(
    tmp_path: Path, saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with Server(tmp_path, saved["popular"], "--workers", "1") as server:
            said = [systemd.recv(100) for _ in range(4)]
            assert set(said) == {b"READY=1", b"WATCHDOG=1"}
            (worker,) = server.workers()
            assert "NOTIFY_SOCKET" not in worker.environ()
        while systemd.recv(100) != b"STOPPING=1":
            pass


def test_nothing_is_lost_and_all_is_told_under_load(tmp_path: Path, saved: dict[str, Path]) -> None:
    """`tests/hostile/serve_faults.py` does the same more often."""
    trial = Trial(tmp_path, saved)
    try:
        counts = trial.run(1)
    except OSError as error:
        pytest.skip(str(error))
    assert counts["turns"] == 1
    assert counts["list 200"] > 20
    assert counts["acknowledged"] > 20


def test_workers_start_while_the_runtime_directory_is_full(tmp_path: Path, saved: dict[str, Path]) -> None:
    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(small_disk(tmp_path / "run"))
        except OSError as error:
            pytest.skip(str(error))
        options = ("--workers", "2", "--runtime-directory", place)
        with Server(tmp_path, saved["popular"], *options, key=KEY) as server, full(place):
            for worker in server.workers():
                worker.kill()
                wait(lambda worker=worker: len({each.pid for each in server.workers()} - {worker.pid}) == 2)
            wait(lambda: not problems(server))
            for _ in range(20):
                assert server.ask(LIST).status == 200
            assert b"truelike_requests_total" in server.ask("/metrics").body
