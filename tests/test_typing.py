"""Type checkers and IDEs see every public name, and what methods return."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import truelike as tl

USES = """
import polars as pl
import truelike as tl

{names}

data = tl.read([("ann", "tea"), ("bob", "milk")])
split = tl.splits.by_user(data, seed=0)
model = tl.NBPO(factors=8).fit(split)
reveal_type(data)
reveal_type(split.train)
reveal_type(model)
reveal_type(tl.load("model"))
reveal_type(tl.load("model").recommend(["ann"], k=3))
reveal_type(tl.evaluate(model, split.test))
reveal_type(tl.AutoRecommender().fit(data))
"""
REVEALED = (
    "truelike.data.dataset.Dataset",
    "truelike.data.dataset.Dataset",
    "truelike.models.sampled_mf.NBPO",
    "truelike.models.base.Recommender",
    "DataFrame",
    "truelike.evaluation",
    "truelike.selection.auto.AutoRecommender",
)


def mypy(code: str, place: Path) -> subprocess.CompletedProcess[str]:
    (place / "uses.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", str(place / "uses.py")]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])


def test_mypy_knows_every_public_name_and_what_methods_return(tmp_path: Path) -> None:
    done = mypy(USES.format(names="\n".join(f"tl.{name}" for name in sorted(tl.__all__))), tmp_path)
    assert done.returncode == 0, done.stdout
    revealed = [line for line in done.stdout.splitlines() if "Revealed type" in line]
    assert len(revealed) == len(REVEALED)
    for line, expected in zip(revealed, REVEALED, strict=True):
        assert expected in line


def test_mypy_refuses_a_name_that_is_not_public(tmp_path: Path) -> None:
    done = mypy("import truelike as tl\n\ntl.Recomender\n", tmp_path)
    assert 'no attribute "Recomender"' in done.stdout
