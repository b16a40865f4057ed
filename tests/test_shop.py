"""A messy shop from its files to lists, rules, a service with events, and the next training, by the command line."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from servers import Server

import truelike as tl
from truelike.data.schema import Schema
from truelike.serving.event_data import with_events
from truelike.serving.events import read_events

pytestmark = pytest.mark.slow
TEA, COFFEE = ([f"{what}{n}" for n in range(12)] for what in ("tea", "coffee"))
TODAY = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
SCHEMA = """
column = "event"

[kinds]
view = {weight = "learned", seen = "2d"}
buy = {role = "target", weight = "quantity", seen = "60d"}
refund = {role = "cancels", weight = "quantity"}
dislike = "negative"
shown = "shown"
newsletter = "ignored"
"""
RULES = """
filter = "stock > 0"
pins = {tea11 = 1}

[at_most]
brand = 4
"""


def days_ago(days: int) -> str:
    return f"{TODAY - timedelta(days=days):%d.%m.%Y}"  # as Germans write it


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, rng = tmp_path_factory.mktemp("shop"), np.random.default_rng(0)
    lines = ["customer;product;event;quantity;date"]
    for number in range(160):
        mine = TEA if number % 2 else COFFEE
        for item in rng.permutation(mine)[:6]:
            lines.append(f"c{number};{item};view;;{days_ago(int(rng.integers(40, 90)))}")
            lines.append(f"c{number};{item};buy;{rng.integers(1, 4)};{days_ago(int(rng.integers(20, 90)))}")
        lines.append(f"c{number};{rng.choice(TEA + COFFEE)};shown;;{days_ago(30)}")
    lines += [
        f"anna;tea1;buy;2;{days_ago(20)}",
        f"anna;tea2;buy;1;{days_ago(80)}",  # long ago
        f"anna;coffee3;buy;1;{days_ago(15)}",
        f"anna;coffee3;refund;1;{days_ago(12)}",  # sent back
        f"anna;tea4;dislike;;{days_ago(10)}",
        f"anna;tea9;view;;{days_ago(1)}",
        f"anna;tea0;newsletter;;{days_ago(1)}",
    ]
    (place / "events.csv").write_text("\n".join(lines))
    products = ["product;brand;stock"]
    products += [
        f"{item};{'leaf' if item in TEA else 'bean'};{0 if item == 'tea5' else 9}" for item in TEA + COFFEE
    ]
    (place / "products.csv").write_text("\n".join(products))
    (place / "shop.toml").write_text(SCHEMA)
    (place / "rules.toml").write_text(RULES)
    train(place, "model")
    return place


def truelike(place: Path, *arguments: object) -> str:
    command = [sys.executable, "-m", "truelike", *map(str, arguments)]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def train(place: Path, model: str, *more: object) -> str:
    return truelike(
        place, "train", "events.csv", "--kinds", "shop.toml", "--items", "products.csv", "-m", "IALS",
        "-s", "factors=8", "-s", "weighting=linear", "-s", "epochs=4", "-o", model, *more,
    )  # fmt: skip


def listed(answer: Any) -> list[str]:
    return [each["item"] for each in answer["items"]]


def test_lists_are_what_a_shopkeeper_expects(shop: Path) -> None:
    model = tl.load(shop / "model")
    assert model.train_.schema == Schema.load(shop / "shop.toml")
    assert sorted(model.train_.seen("anna")) == ["tea1", "tea2"], "the coffee was sent back"
    found = model.recommend("anna", k=24)["item_id"].to_list()
    assert set(TEA + COFFEE) - set(found) == {"tea1", "tea4", "coffee3", "tea9"}
    assert set(found[:6]) <= set(TEA)
    again = truelike(shop, "recommend", "model", "--users", "anna", "-k", 24, "--exclude-seen", "dislike,buy=10d")
    assert "tea4" not in again
    assert all(f"anna,{item}," in again for item in ("tea1", "tea2", "tea9", "coffee3"))


def test_rules_are_kept(shop: Path) -> None:
    out = shop / "lists.parquet"
    truelike(
        shop, "recommend", "model", "--all", "-k", 6, "--rules", "rules.toml", "--items", "products.csv", "-o", out
    )
    lists = pl.read_parquet(out)
    assert "tea5" not in lists["item_id"]
    assert (lists.filter(pl.col("rank") == 1)["item_id"] == "tea11").all()
    leaves = lists.filter(pl.col("item_id").is_in(TEA)).group_by("user_id").len()
    assert leaves["len"].max() <= 4 + 1  # a pin may be one more


def test_events_change_lists_and_the_next_training_alike(shop: Path) -> None:
    def post(server: Server, *events: dict[str, Any], status: int = 201) -> Any:
        answer = server.ask("/v1/events", {"events": [{"user": "anna", **event} for event in events]})
        assert answer.status == status, answer.json
        return answer.json

    def ask(server: Server, user: str = "anna", **options: Any) -> Any:
        return server.ask("/v1/recommend", {"user": user, "k": 24, **options}).json

    options = ("--events", "events", "--workers", "1", "--items", shop / "products.csv")
    with Server(shop, shop / "model", *(shop / each if each == "events" else each for each in options)) as server:
        before = ask(server)
        assert before["source"] == "model"
        assert set(TEA + COFFEE) - set(listed(before)) == {"tea1", "tea4", "coffee3", "tea9"}

        post(server, {"item": "coffee1", "type": "dislike"}, {"item": "coffee2", "type": "view"})
        after = ask(server)
        scores = [{each["item"]: each["score"] for each in answer["items"]} for answer in (before, after)]
        assert set(scores[0]) - set(scores[1]) == {"coffee1", "coffee2"}, "disliked and viewed"
        assert all(scores[1][item] == scores[0][item] for item in scores[1]), "no score changed"

        bought = {"item": "coffee5", "type": "buy", "quantity": 3, "id": "order 1"}
        assert post(server, bought)["duplicates"] == 0
        assert post(server, bought)["duplicates"] == 1, "a retry counts once"
        with_coffee = ask(server)
        assert with_coffee["source"] == "fold_in"
        assert "coffee5" not in listed(with_coffee)
        more = {each["item"]: each["score"] for each in with_coffee["items"]}
        assert np.mean([more[each] - scores[1][each] for each in COFFEE if each in more]) > 0

        post(server, {"item": "coffee5", "type": "refund", "quantity": 3})
        back = ask(server)
        assert back["source"] == "model"
        assert listed(back) == [item for item in listed(after) if item != "coffee5"], "it is not offered again"

        post(server, {"item": "tea1", "type": "remove"})
        assert "tea1" in listed(ask(server)), "it was never bought"
        lately = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
        post(server, {"user": "zoe", "item": "coffee7", "type": "buy", "time": lately})
        zoe = ask(server, "zoe")
        assert (zoe["source"], zoe["events"]) == ("fold_in", 1)
        assert set(listed(zoe)[:5]) <= set(COFFEE)

        refused = post(server, {"item": "tea1", "type": "zorp"}, status=422)
        assert "'zorp' is no kind of events" in str(refused)
        assert "dislike" in str(refused)
        post(server, {"item": "tea1", "type": "buy", "time": time.time() + 3 * 86_400}, status=422)
        post(server, {"item": "tea1", "type": "buy", "quantity": -1}, status=422)

    said = train(shop, "next", "--events", "events")
    assert "events" in said
    train_ = tl.load(shop / "next").train_
    assert sorted(train_.seen("anna")) == ["tea2"]
    assert train_.seen("zoe").to_list() == ["coffee7"]
    assert set(train_.to_frame("dislike").filter(pl.col("user_id") == "anna")["item_id"]) == {"tea4", "coffee1"}
    data = tl.read(shop / "events.csv", kinds=shop / "shop.toml", items=shop / "products.csv")
    same = with_events(data, read_events(shop / "events"))
    assert same.to_frame().equals(train_.to_frame())
