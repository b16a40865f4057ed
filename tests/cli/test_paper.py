from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
QUICK_RUN = "This is a quick run, not a reproduction"


def test_a_quick_run_says_so_at_the_start_and_the_end(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        "truelike.paper.experiments.run",
        lambda plan, split, directory, *, n_workers, say: asked.append((plan.data, n_workers)),
    )
    done = run("paper", "run", "--quick", "--data", "world", "-d", tmp_path / "runs", "--n-workers", 2)
    assert done.code == 0, done.err
    assert asked == [("world", 2)]
    lines = done.err.splitlines()
    assert lines[0].startswith(QUICK_RUN)
    assert lines[-2].startswith(QUICK_RUN)
    assert lines[-1].endswith(f"truelike paper report -d {tmp_path / 'runs'}")


def test_quick_and_full_runs_do_not_share_a_directory(run: Run, tmp_path: Path) -> None:
    (tmp_path / "quick").touch()
    found = run("paper", "run", "-d", tmp_path, "--data", "amazon")
    assert found.code == 1
    assert "results of a quick run" in found.err
