"""The page in Debian's Chromium, served by the real command, with small models."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
import pytest
from servers import Server

import truelike as tl

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MARKUP = "<img src=x onerror=alert(1)> & <b>bold</b>"
LONG = "A very long title that goes on and on, " * 6 + "Donaudampfschifffahrtsgesellschaftskapitaen" * 3


@dataclass
class Watched:
    """What a page did that it should not do, and what a test expects of it nevertheless."""

    page: Any
    server: Server
    expected: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.errors.append("an alert"), dialog.dismiss()))
        self.page.on("request", self._request)

    def _request(self, request: Any) -> None:
        address = urlsplit(request.url)
        if address.scheme != "data" and f"{address.scheme}://{address.netloc}" != self.server.url:
            self.strangers.append(request.url)

    def expect(self, pattern: str) -> None:
        """Chromium prints every answer that is an error; such a line is expected."""
        self.expected.append(pattern)

    def check(self) -> None:
        errors = [line for line in self.errors if not any(re.search(each, line) for each in self.expected)]
        assert not errors
        assert not self.strangers


@pytest.fixture(scope="module")  # while it runs, asyncio.run of any other test in this process fails
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the models `als`, `nbpo` and `knn`, a table of items and titles with markup."""
    place = tmp_path_factory.mktemp("page")
    data = tl.synthetic.World(n_users=300, n_items=120, seed=0).dataset()
    split = tl.splits.by_user(data, validation=0.1, test=0.1, seed=0)
    als = tl.IALS(factors=8, epochs=4).fit(split)
    als.save(place / "als", metrics={"test ndcg@20": 0.25})
    tl.NBPO(factors=8, flip_factors=4, epochs=3).fit(split.train).save(place / "nbpo")
    tl.ItemKNN().fit(split).save(place / "knn")
    shown = tl.synthetic.World(n_users=300, n_items=120, seed=0).impressions()
    informed = tl.ImpressionMF(factors=8, steps=60)
    informed.fit(tl.read(data, impressions=shown.recode(data.users, data.items)[0]))
    informed.save(place / "informed")
    ids = [str(item) for item in data.items.values]
    popular = str(als.recommend_from_items([data.items.values[0]], k=1)["item_id"][0])
    titles = [f"Song no. {item}" for item in ids]
    titles[ids.index(popular)] = MARKUP
    titles[0] = LONG
    pl.DataFrame({"item_id": ids, "title": titles}).write_csv(place / "titles.csv")
    genres = ["Jazz" if n % 2 else "Folk" for n in range(len(ids))]
    table = {"item_id": ids, "genre": genres, "price": [n % 50 for n in range(len(ids))]}
    pl.DataFrame(table).write_csv(place / "items.csv")
    return place


@pytest.fixture(scope="module")
def servers(made: Path, browser: Any) -> Iterator[tuple[Server, Server]]:
    """A server of two models, with events and a table of items; and one of one model, with a key, without events."""
    more = ["--titles", made / "titles.csv", "--watch", "0", "--workers", "1"]
    kept = ["--events", made / "events", "--items", made / "items.csv"]
    with (
        Server(made, made / "als", made / "nbpo", *kept, *more) as main,
        Server(made, made / "knn", *more, key="k" * 20) as locked,
    ):
        yield main, locked


def _open(browser: Any, server: Server, **options: Any) -> Iterator[Watched]:
    settings = {"viewport": {"width": 1280, "height": 900}, "base_url": server.url, **options}
    context = browser.new_context(**settings)
    context.set_default_timeout(20_000)
    watched = Watched(context.new_page(), server)
    yield watched
    context.close()
    watched.check()


@pytest.fixture
def watched(browser: Any, servers: tuple[Server, Server]) -> Iterator[Watched]:
    """A desktop page of the server with two models."""
    yield from _open(browser, servers[0])


@pytest.fixture(scope="module")
def informed_server(made: Path, browser: Any) -> Iterator[Server]:
    """A server of a model that was trained with impressions."""
    with Server(made, made / "informed", "--titles", made / "titles.csv", "--workers", "1") as server:
        yield server


@pytest.fixture
def informed(browser: Any, informed_server: Server) -> Iterator[Watched]:
    """A desktop page of the server whose model has probabilities."""
    yield from _open(browser, informed_server)


@pytest.fixture
def phone(browser: Any, servers: tuple[Server, Server]) -> Iterator[Watched]:
    """A phone page of the server with two models."""
    yield from _open(browser, servers[0], viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)


@pytest.fixture
def locked(browser: Any, servers: tuple[Server, Server]) -> Iterator[Watched]:
    """A desktop page of the server that needs a key, keeps no events and has one model."""
    yield from _open(browser, servers[1])
