"""The exposure study runs and continues."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def study() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("exposure")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.mark.slow
def test_the_study_runs_and_continues(study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ("ImpressionMF, impressions", "ItemPop", "IALS", "ImpressionMF, true propensities")
    few = [each for each in study.CONTENDERS if each.name in kept]
    monkeypatch.setattr(study, "CONTENDERS", few)
    log = study.Log(tmp_path / "runs.jsonl")
    study.run(log, quick=True, seeds=2)
    rows = dict(log.rows)
    again = study.Log(tmp_path / "runs.jsonl")
    monkeypatch.setattr(study.Contender, "build", None)  # nothing is left to fit
    study.run(again, quick=True, seeds=2)
    assert list(again.rows) == list(rows)
    study.report(again, tmp_path)
    table = pl.read_csv(tmp_path / "scores.csv")
    assert set(table["model"]) == {*kept, *study.WORLDS}
    assert (table["seeds"] == 2).all()
    for name in ("strengths", "reliability", "real"):
        assert (tmp_path / f"{name}.svg").exists()
