"""No command runs a module that lies beside the log, in its own process or in one that it starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import truelike as tl

pytestmark = pytest.mark.slow
MODULES = (
    "polars", "numpy", "scipy", "numba", "duckdb", "loky", "cloudpickle", "psutil", "json", "typing", "random",
)  # fmt: skip
COMMANDS = (
    "train log.csv --model ItemKNN -o model",
    "blocks log.csv -o blocks",
    "tune log.csv --model ItemKNN --trials 2 -d trials",
    "compare log.csv --models ItemPop,ItemKNN --trials 2 -d comparison",
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.partition(" ")[0])
def test_no_module_beside_the_log_is_run(command: str, tmp_path: Path) -> None:
    place, mark = tmp_path / "log", tmp_path / "imported"
    place.mkdir()
    tl.synthetic.World(n_users=60, n_items=40).dataset().to_frame().write_csv(place / "log.csv")
    for name in MODULES:
        (place / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write('{name} ')\n")
    # -P, as the command `truelike` is without the directory; processes that it starts do not inherit it
    done = subprocess.run(
        [sys.executable, "-P", "-m", "truelike", *command.split()],
        cwd=place, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert (done.returncode, mark.read_text() if mark.exists() else "") == (0, ""), done.stderr
