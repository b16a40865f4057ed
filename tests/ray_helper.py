"""Run Ray where only the loopback interface exists: tests that need a cluster run a script in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}


def missing() -> str | None:
    """Why tests with Ray cannot run here; None if they can."""
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed"
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "a network namespace needs root"
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            return f"{program} is missing, which a network namespace needs"
    return _refused()


def _refused() -> str | None:
    """Why this machine refuses a network namespace, as some containers do; None if it does not."""
    tried = subprocess.run(
        [str(ROOT / "tools" / "loopback"), "true"], capture_output=True, text=True, timeout=30, check=False
    )
    return f"a network namespace is refused: {tried.stderr.strip()}" if tried.returncode else None


def run_isolated(arguments: list[str], *, timeout: float = 120, env: dict[str, str] | None = None) -> str:
    """Run Python with these arguments where only the loopback interface exists; its stdout.

    Skips the test where that is not possible. All processes that the script leaves behind are ended.
    """
    if reason := missing():
        pytest.skip(reason)
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    settings = {**os.environ, **SETTINGS, "PYTHONPATH": path, **(env or {})}
    command = [str(ROOT / "tools" / "loopback"), sys.executable, *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=settings,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _end(process.pid)
        out, err = process.communicate()
        raise AssertionError(
            f"{arguments} did not end within {timeout} seconds\nstdout:\n{out}\nstderr:\n{err}"
        ) from None
    finally:
        _end(process.pid)
    assert process.returncode == 0, f"{arguments} ended with {process.returncode}\nstdout:\n{out}\nstderr:\n{err}"
    return out


def _end(session: int) -> None:
    """End what is left of a session that was started here: Ray's processes have groups of their own in it."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            about = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(about[3]) == session:
                os.kill(int(entry.name), signal.SIGKILL)
        except (OSError, ValueError, IndexError):  # it has ended meanwhile
            continue
