"""The examples run as they stand, and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    if "torch" in example.read_text():
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")
    done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ndcg" in done.stdout or "f1" in done.stdout
    assert "item_id" in done.stdout
