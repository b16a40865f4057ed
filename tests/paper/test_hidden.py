"""The study of hidden likes, on small worlds."""

from __future__ import annotations

from pathlib import Path

import pytest

from truelike.errors import DataError
from truelike.paper import hidden
from truelike.paper.protocol import Plan


def test_a_fit_is_a_row_and_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, lines = Plan("world", seeds=2, quick=True), []
    monkeypatch.setattr(hidden, "KNOWN", {"world": "synthetic worlds"})
    hidden.run(tmp_path, plan, say=lines.append)
    found = hidden.read(tmp_path)
    assert found.select("seed", "settings").rows() == [
        (seed, label) for seed in (0, 1) for label in ("the release's", "truelike's defaults")
    ]
    assert found["posterior"].is_between(0, 1).all()
    monkeypatch.setattr(hidden, "fit", lambda *_, **__: pytest.fail("a known fit was repeated"))
    hidden.run(tmp_path, plan, say=lines.append)
    assert lines == []


def test_data_that_cannot_be_had_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(name: str, *_: object, **__: object) -> tuple[float, float]:
        if name == "coat":
            raise DataError("no network")
        return 0.6, 0.7

    lines: list[str] = []
    monkeypatch.setattr(hidden, "fit", fit)
    hidden.run(tmp_path, Plan("world", seeds=1), say=lines.append)
    assert lines == [
        f"hidden likes, Coat, {label}, seed 0: no network" for label in ("the release's", "truelike's defaults")
    ]
    assert set(hidden.read(tmp_path)["data"]) == {"world"}
