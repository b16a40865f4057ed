"""Snapshots of small models and a service in this process; small models and real servers as processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from servers import Server, make_models

import truelike as tl
from truelike.serving import loader
from truelike.serving.events import EventStore
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
        loader.load(known, name, place / "snapshot")
        return ServedModel(place / "snapshot")

    return make


@pytest.fixture(scope="session")
def ials(data: tl.Dataset) -> Any:
    return tl.IALS(factors=8, epochs=3).fit(data, progress=False)


@pytest.fixture(scope="session")
def served(snapshot: Callable[..., ServedModel], ials: Any) -> ServedModel:
    return snapshot(ials)


@pytest.fixture(scope="session")
def shown(data: tl.Dataset) -> tl.Dataset:
    """Impressions of the users and items of the data."""
    frame = tl.synthetic.World(n_users=120, n_items=N_ITEMS, seed=1).impressions().to_frame()
    rows = frame.select(pl.format("u{}", "user_id").alias("user_id"), pl.format("i{}", "item_id").alias("item_id"))
    return tl.read(rows).recode(data.users, data.items)[0]


@pytest.fixture
def service(served: ServedModel, tmp_path: Path) -> Service:
    """A service of one model that keeps events."""
    return Service([served], [1.0], EventStore(tmp_path / "events"))


# --- real servers ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directories of small models, by name; and `items`, a table of their items."""
    place = tmp_path_factory.mktemp("models")
    return {**make_models(place), "items": place / "items.csv"}


@pytest.fixture(scope="session")
def server(saved: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server with two models, two workers, events, attributes and tight limits. Tests share it."""
    place = tmp_path_factory.mktemp("server")
    options = ("--workers", "2", "--events", place / "events", "--items", saved["items"], "--timeout", "2")
    with Server(place, saved["first"], saved["second"], *options, "--shares", "75,25") as running:
        yield running
