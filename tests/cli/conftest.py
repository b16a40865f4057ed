"""The command line, run in this process, and the files it is run on."""

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

    @property
    def table(self) -> pl.DataFrame:
        """The CSV on stdout."""
        return pl.read_csv(io.StringIO(self.out))

    @property
    def usage_error(self) -> str:
        """The message of typer, without its box."""
        return " ".join(self.err.replace("\u2502", " ").split())


Run = Callable[..., Result]
WORLD = tl.synthetic.World(n_users=120, n_items=60, seed=1)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `truelike` with arguments, as the shell would, in this process."""

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


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a log, its parts, a split, a model, titles and impressions. Tests only read it."""
    place = tmp_path_factory.mktemp("files")
    log = WORLD.dataset().to_frame().select(pl.format("u{}", "user_id").alias("user_id"), "item_id")
    log.write_csv(place / "log.csv")
    split = tl.splits.by_user(tl.read(place / "log.csv"), validation=0.1, test=0.1, seed=0)
    split.save(place / "split")
    for name, part in zip(("train", "validation", "test"), split.parts, strict=True):
        part.to_frame().select("user_id", "item_id").write_csv(place / f"{name}.csv")
    tl.ItemKNN(neighbors=20).fit(split.train).save(place / "model")
    titles = pl.DataFrame({"item_id": range(60), "title": [f"Café {n}" for n in range(60)]})
    titles.write_csv(place / "titles.csv")
    shown = WORLD.impressions().to_frame()
    shown.select(pl.format("u{}", "user_id").alias("user_id"), "item_id").write_csv(place / "shown.csv")
    return place


@pytest.fixture
def log(files: Path) -> Path:
    return files / "log.csv"


@pytest.fixture
def split(files: Path) -> Path:
    return files / "split"


@pytest.fixture
def model(files: Path) -> Path:
    return files / "model"
