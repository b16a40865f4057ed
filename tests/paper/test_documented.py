"""The settings in results/paper are valid, and the recorded figures are reproduced from them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import truelike as tl
from truelike import datasets as sources
from truelike.core.parameters import parse

SETTINGS = Path(__file__).parents[2] / "results" / "paper" / "settings"
RECORDED = json.loads((Path(__file__).parent / "data" / "recorded.json").read_text(encoding="utf-8"))

if not SETTINGS.is_dir():
    pytest.skip("results/ is not part of a source distribution", allow_module_level=True)


def model_of(config: dict[str, Any]) -> Any:
    kind = getattr(tl, config["model"])
    return kind(**parse(kind, config["parameters"]))


def config_of(name: str) -> dict[str, Any]:
    return tomllib.loads((SETTINGS / f"{name}.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(path.stem for path in SETTINGS.glob("*.toml")))
def test_a_settings_file_makes_its_model(name: str) -> None:
    config = config_of(name)
    assert config["data"] in sources.SOURCES
    assert type(model_of(config)).__name__ == config["model"]


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_setting_reproduces_its_recorded_figures_bit_for_bit(name: str) -> None:
    config = config_of(name)
    if not all((sources.cache_directory() / f.path).is_file() for f in sources.SOURCES[config["data"]].files):
        pytest.skip(f"{config['data']} is not in the cache: truelike data fetch {config['data']}")
    split = tl.datasets.load(config["data"], progress=False)
    model = model_of(config).fit(split.train, validation=split.validation, progress=False)
    for part in ("validation", "test"):
        found = tl.evaluate(model, getattr(split, part), ks=(2, 5, 10, 20), metrics=["f1", "ndcg"]).means()
        assert found == RECORDED[name][part], part
