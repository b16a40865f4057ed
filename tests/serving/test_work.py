"""The work of a request is limited: requests for much work do not keep others waiting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from servers import Load, Server

import truelike as tl

pytestmark = pytest.mark.slow

N_ITEMS = 300_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server with many items, one worker and little time."""
    place = tmp_path_factory.mktemp("large")
    pairs = pl.DataFrame({"user_id": [n % 1_000 for n in range(N_ITEMS)], "item_id": range(N_ITEMS)})
    tl.ItemPop().fit(tl.read(pairs), progress=False).save(place / "model")
    names = pl.DataFrame({"item_id": range(N_ITEMS), "name": [f"{n} {'name' * 20}" for n in range(N_ITEMS)]})
    names.write_parquet(place / "items.parquet")
    options = ("--workers", "1", "--items", place / "items.parquet", "--timeout", "8")
    with Server(place, place / "model", *options) as running:
        yield running


def test_heavy_filters_do_not_keep_others_waiting(large: Any) -> None:
    def ask(made: Any, number: int) -> str:
        texts = [" or ".join(f"name contains x{number}y{m}z{k}" for k in range(70)) for m in range(20)]
        body = {"user": "1", "boosts": [{"filter": text, "add": 1} for text in texts]}
        return str(large.ask("/v1/recommend", body, through=made).status)

    with Load(large, ask, 6, 60.0) as load:
        for _ in range(10):
            assert large.ask("/v1/similar?item=7").status == 200
    assert set(load.counts) <= {"422", "504"}, load.counts
