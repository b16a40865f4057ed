"""The settings in results/comparison are valid, and the recorded figures are reproduced from them."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import truelike as tl
from truelike import datasets as sources
from truelike.core.parameters import parse

RESULTS = Path(__file__).parents[2] / "results" / "comparison"
RECORDED = json.loads((Path(__file__).parent / "data" / "recorded.json").read_text(encoding="utf-8"))
DATA = "amazon-electronics-14core"

if not RESULTS.is_dir():
    pytest.skip("results/ is not part of a source distribution", allow_module_level=True)


def model_of(path: Path) -> Any:
    config = tomllib.loads(path.read_text(encoding="utf-8"))
    kind = getattr(tl, config["model"])
    return kind(**parse(kind, config["parameters"]))


@pytest.fixture(scope="module")
def split() -> Any:
    if not all((sources.cache_directory() / file.path).is_file() for file in sources.SOURCES[DATA].files):
        pytest.skip(f"{DATA} is not in the cache: truelike data fetch {DATA}")
    return tl.datasets.load(DATA, progress=False)


@pytest.mark.parametrize(
    "path", sorted(RESULTS.rglob("settings/*.toml")), ids=lambda path: path.relative_to(RESULTS).as_posix()
)
def test_a_settings_file_makes_its_model(path: Path) -> None:
    assert type(model_of(path)).__name__ in path.stem


def test_the_table_holds_the_recorded_figures() -> None:
    with (RESULTS / "amazon.csv").open(encoding="utf-8", newline="") as file:
        table = {row["model"]: row for row in csv.DictReader(file)}
    for measure in ("ndcg@20", "ndcg@5", "f1@5", "f1@20"):
        assert float(table["EASE"][measure]) == pytest.approx(RECORDED["EASE"][measure], rel=1e-6)
        assert float(table["IALS"][measure]) == pytest.approx(RECORDED["IALS"][measure], rel=0.03)  # 10 seeds


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_setting_reproduces_its_recorded_figures(name: str, split: Any) -> None:
    """Bit-identical on the machine they were recorded on; the BLAS of another processor may round differently."""
    model = model_of(RESULTS / "settings" / f"amazon-{name}.toml")
    watched = {"validation": split.validation} if hasattr(model, "metric") else {}
    model.fit(split.train, **watched, progress=False)
    found = tl.evaluate(model, split.test, ks=(2, 5, 10, 20), metrics=["f1", "ndcg"]).means()
    assert found == pytest.approx(RECORDED[name], rel=0.03)
