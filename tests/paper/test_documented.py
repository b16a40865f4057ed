"""The results in docs/paper/: what they say can be run again."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

import truelike as tl
from truelike.data import sources
from truelike.models import model_class
from truelike.parameters import parse

PLACE = Path(__file__).parents[2] / "docs" / "paper"


def recorded(data: str) -> list[dict]:  # type: ignore[type-arg]
    text = (PLACE / "runs" / data / "final" / "trials.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", ["nbpo", "bpr"])
def test_a_tuned_setting_gives_its_recorded_figures_again_bit_for_bit(name: str) -> None:
    path = PLACE / "settings" / f"amazon-{name}.toml"
    if not path.exists():
        pytest.skip(f"there is no {path.name} in docs/paper/settings yet")
    config = tomllib.loads(path.read_text())
    if not all((sources.cache_directory() / f.path).is_file() for f in sources.SOURCES[config["data"]].files):
        pytest.skip(f"{config['data']} is not in the cache: truelike data fetch {config['data']}")
    split = tl.datasets.load(config["data"])
    kind = model_class(config["model"])
    model = kind(**parse(kind, config["parameters"]))
    model.fit(split.train, validation=split.validation)
    keep = {key: value for key, value in model.get_params().items() if key not in ("n_jobs", "patience")}
    [match] = [
        record
        for record in recorded("amazon")
        if record["model"] == config["model"]
        and {**kind(**record["parameters"]).get_params(), "n_jobs": None}.items() >= keep.items()
    ]
    assert tl.evaluate(model, split.validation, metrics=["f1", "ndcg"]).means() == match["validation"]
    assert tl.evaluate(model, split.test, metrics=["f1", "ndcg"]).means() == match["test"]
