"""Snapshots of small models, and a service in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import truelike as tl
from truelike.serving.events import EventLog
from truelike.serving.loader import load
from truelike.serving.served_model import ServedModel
from truelike.serving.service import Service
from truelike.serving.settings import Settings

N_ITEMS = 60


@pytest.fixture(scope="session")
def data() -> tl.Dataset:
    """Interactions with ids that are texts, and with titles."""
    frame = tl.synthetic.World(n_users=120, n_items=N_ITEMS, seed=1).dataset().to_frame()
    rows = frame.select(pl.format("u{}", "user_id").alias("user_id"), pl.format("i{}", "item_id").alias("item_id"))
    found = tl.read(rows)
    return found.with_titles({item: f"The {item} <b>" for item in found.items})


@pytest.fixture(scope="session")
def items_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of attributes."""
    place = tmp_path_factory.mktemp("items") / "items.csv"
    numbers = list(range(N_ITEMS - 5))  # some items have no attributes
    pl.DataFrame(
        {
            "item_id": [f"i{n}" for n in numbers],
            "category": [("tea", "rum", "milk")[n % 3] for n in numbers],
            "price": [n / 2 for n in numbers],
            "organic": [n % 2 == 0 for n in numbers],
        }
    ).write_csv(place)
    return place


@pytest.fixture(scope="session")
def snapshot(tmp_path_factory: pytest.TempPathFactory, items_file: Path) -> Callable[..., ServedModel]:
    """Save a fitted model, write its snapshot as a server does, and open it."""

    def make(model: Any, name: str = "main", **settings: Any) -> ServedModel:
        place = tmp_path_factory.mktemp("model")
        model.save(place / "model", metrics={"ndcg@20": 0.25})
        known = Settings(models={name: str(place / "model")}, shares=[1], items=str(items_file), **settings)
        load(known, name, place / "snapshot")
        return ServedModel(place / "snapshot")

    return make


@pytest.fixture(scope="session")
def ials(data: tl.Dataset) -> Any:
    return tl.IALS(factors=8, epochs=3).fit(data, progress=False)


@pytest.fixture(scope="session")
def served(snapshot: Callable[..., ServedModel], ials: Any) -> ServedModel:
    return snapshot(ials)


@pytest.fixture
def service(served: ServedModel, tmp_path: Path) -> Service:
    """A service of one model that keeps events."""
    return Service([served], [1.0], EventLog(tmp_path / "events"))
