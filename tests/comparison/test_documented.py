"""The figures in docs/comparison come again from the settings beside them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import truelike as tl
from truelike.errors import FetchError
from truelike.tuning.trials import Trial, run

PLACE = Path(__file__).parents[2] / "docs" / "comparison"


@pytest.fixture(scope="module")
def split() -> Any:
    try:
        return tl.datasets.load("amazon-electronics-14core", progress=False)
    except FetchError as error:
        pytest.skip(f"the Amazon split is not here: {error}")


@pytest.mark.parametrize("name", ["SoftmaxMF-factors-512", "IALS", "EASE"])
def test_a_setting_gives_its_recorded_figures_again(name: str, split: Any) -> None:
    """To the bit on the machine that they were made on; another processor's BLAS may round otherwise."""
    settings = tomllib.loads((PLACE / "settings" / f"amazon-{name}.toml").read_text(encoding="utf-8"))
    given = {name: None if value == "none" else value for name, value in settings["parameters"].items()}
    trial = Trial(settings["model"], given, test=True, metric="ndcg@20")
    lines = (PLACE / "runs" / "amazon" / "final" / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    recorded = {record["key"]: record for record in map(json.loads, lines)}
    found, _ = run(trial, split)
    for measure, value in recorded[trial.key]["test"].items():
        assert found["test"][measure] == pytest.approx(value, rel=0.03), measure
