"""The command line, run as the shell would, and what it is run on."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

import truelike as tl
from truelike.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line as the shell would, in this process."""

    def call(*arguments: object, stdin: str = "") -> Result:
        monkeypatch.setattr(sys, "argv", ["truelike", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    frame = tl.synthetic.World(n_users=120, n_items=60, seed=1).log().to_frame()
    path = tmp_path / "log.csv"
    frame.select(pl.format("u{}", "user_id").alias("user_id"), "item_id").write_csv(path)
    return path


@pytest.fixture
def split_directory(run: Run, log_file: Path, tmp_path: Path) -> Path:
    place = tmp_path / "split"
    assert run("data", "split", log_file, "-o", place).code == 0
    return place


@pytest.fixture
def model_directory(run: Run, split_directory: Path, tmp_path: Path) -> Path:
    place = tmp_path / "model"
    assert run("train", split_directory, "--model", "item-knn", "--set", "neighbors=20", "-o", place).code == 0
    return place
