import gzip
import hashlib
import io
import json
import os
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import truelike as tl
from truelike import datasets as sources
from truelike.datasets import File, Source
from truelike.errors import DataError, FetchError, ParameterError

CSV = b"user,item\n" + b"".join(f"u{n % 7},i{n % 5}\n".encode() for n in range(35))


class Server(ThreadingHTTPServer):
    """Serves bodies by path, counts the requests, and may promise more than it sends."""

    bodies: dict[str, bytes]
    asked: list[str]
    promised: int = 0


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append(self.path)
        if self.path not in server.bodies:
            self.send_error(404)
            return
        body = server.bodies[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + server.promised))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """No output."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.bodies, running.asked = {"/log.csv": CSV}, []
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRUELIKE_DATA", str(tmp_path / "cache"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


def offer(
    monkeypatch: pytest.MonkeyPatch,
    url: str | None,
    *,
    sha256: str | None = None,
    path: str = "fake/log.csv",
    **rest: Any,
) -> None:
    rest.setdefault("parse", lambda paths: tl.read(paths[0]))
    source = Source("fake", "none", (File(path, url, sha256),), **rest)
    monkeypatch.setitem(sources.SOURCES, "fake", source)


def address(server: Server, path: str = "/log.csv") -> str:
    return f"http://127.0.0.1:{server.server_address[1]}{path}"


def files_in(place: Path) -> list[str]:
    return sorted(path.name for path in place.rglob("*") if path.is_file()) if place.exists() else []


def test_a_download_lands_in_the_cache_and_is_fetched_once(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, address(server), sha256=hashlib.sha256(CSV).hexdigest(), counts={"users": 7, "items": 5})
    data = tl.datasets.load("fake")
    assert (data.n_interactions, data.name) == (35, "fake")
    assert (cache / "fake" / "log.csv").read_bytes() == CSV
    assert files_in(cache) == ["log.csv"]
    assert tl.datasets.load("fake").n_interactions == 35
    assert server.asked == ["/log.csv"]


@pytest.mark.parametrize(
    ("path", "promised", "sha256", "message"),
    [
        ("/log.csv", 1_000, hashlib.sha256(CSV).hexdigest(), r"fake could not be downloaded.*by other means"),
        ("/log.csv", 1_000, None, r"fake could not be downloaded.*by other means"),
        ("/log.csv", 0, "0" * 64, "could not be downloaded"),
        ("/gone.csv", 0, None, "404"),
    ],
    ids=["cut off, checksum", "cut off, no checksum", "wrong checksum", "gone"],
)
def test_a_download_that_fails_leaves_nothing(
    server: Server,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    promised: int,
    sha256: Any,
    message: str,
) -> None:
    server.promised = promised
    offer(monkeypatch, address(server, path), sha256=sha256)
    with pytest.raises(FetchError, match=message):
        tl.datasets.load("fake")
    assert files_in(cache) == []


def test_a_changed_file_in_the_cache_is_named_and_left_alone(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "fake").mkdir(parents=True)
    (cache / "fake" / "log.csv").write_bytes(b"something else")
    offer(monkeypatch, address(server), sha256=hashlib.sha256(CSV).hexdigest())
    with pytest.raises(FetchError, match=r"log\.csv.*SHA-256 differs.*Delete it"):
        tl.datasets.load("fake")
    assert (cache / "fake" / "log.csv").read_bytes() == b"something else"
    assert server.asked == []


def test_without_a_network_the_error_says_which_file_to_put_where(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_address[1]
    offer(monkeypatch, f"http://127.0.0.1:{port}/log.csv")
    with pytest.raises(FetchError) as caught:
        tl.datasets.load("fake")
    for part in (f"http://127.0.0.1:{port}/log.csv", str(cache / "fake" / "log.csv"), "TRUELIKE_DATA"):
        assert part in str(caught.value)
    assert files_in(cache) == []
    offer(monkeypatch, None)
    with pytest.raises(FetchError) as caught:
        tl.datasets.load("fake")
    assert f"Put the file fake/log.csv at {str(cache / 'fake' / 'log.csv')!r}" in str(caught.value)


def test_a_cache_that_cannot_be_written_is_an_error(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path(tempfile.mkdtemp())
    place.chmod(0o555)
    monkeypatch.setenv("TRUELIKE_DATA", str(place))
    offer(monkeypatch, address(server))
    root = os.geteuid() == 0
    try:
        if root:  # permissions do not bind root
            os.seteuid(65534)
        with pytest.raises(FetchError, match=r"Permission denied.*TRUELIKE_DATA"):
            tl.datasets.fetch("fake")
    finally:
        if root:
            os.seteuid(0)
        left = files_in(place)
        place.chmod(0o755)
        shutil.rmtree(place)
    assert left == []


@pytest.mark.parametrize(
    ("counts", "message"), [({"interactions": 36}, "35 interactions where 36"), ({"items": 4}, "5 items")]
)
def test_other_counts_than_the_published_are_an_error(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, counts: dict[str, int], message: str
) -> None:
    offer(monkeypatch, address(server), counts=counts)
    with pytest.raises(FetchError, match=f"{message}.*Delete it"):
        tl.datasets.load("fake")


# --- parsers -----------------------------------------------------------------------------------------


def movielens(directory: str, ratings: str, movies: str, texts: tuple[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in zip((ratings, movies), texts, strict=True):
            bundle.writestr(f"{directory}/{name}", text.encode("latin-1"))
    return buffer.getvalue()


ML_1M = movielens(
    "ml-1m",
    "ratings.dat",
    "movies.dat",
    ("1::10::5::978300760\n2::20::1::978300761\n", "10::Amélie (2001)::Drama\n"),
)
ML_100K = movielens(
    "ml-100k",
    "u.data",
    "u.item",
    ("1\t10\t5\t881250949\n2\t20\t1\t881250950\n", "10|Amélie (2001)|01-Jan-2001||x\n"),
)


@pytest.mark.parametrize(
    ("parse", "content"), [(sources._movielens_1m, ML_1M), (sources._movielens_100k, ML_100K)]
)
def test_movielens_is_read_with_its_titles(tmp_path: Path, parse: Any, content: bytes) -> None:
    (tmp_path / "ml.zip").write_bytes(content)
    data = parse([tmp_path / "ml.zip"])
    assert data.items.values.to_list() == [10, 20]
    assert data.titles.to_list() == ["Amélie (2001)", "20"]
    assert data.times is not None


@pytest.mark.parametrize(
    "content",
    [
        b"no zip",
        ML_1M[:-40],
        ML_1M.replace(b"ml-1m/ratings.dat", b"ml-1m/Ratings.dat"),
        ML_1M[:60] + b"\xff" * 8 + ML_1M[68:],
        movielens("ml-1m", "ratings.dat", "movies.dat", ("1::2\n", "10::A\n")),
        movielens("ml-1m", "ratings.dat", "movies.dat", ("1::10::5::9\n2::20::1::9\n", "x\n")),
    ],
    ids=["no zip", "cut", "other names", "damaged", "too few columns", "bad titles"],
)
def test_a_corrupt_archive_is_an_error_that_says_to_delete_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    cache.mkdir()
    (cache / "ml.zip").write_bytes(content)
    offer(monkeypatch, None, path="ml.zip", parse=sources._movielens_1m)
    with pytest.raises(FetchError, match=r"ml\.zip' cannot be read as fake.*Delete it"):
        tl.datasets.load("fake")


def test_amazon_reviews_are_read_from_gzipped_json_lines(tmp_path: Path) -> None:
    reviews = [
        {"reviewerID": "A1", "asin": "0001", "unixReviewTime": 5, "overall": 1.0, "reviewText": "so\nso"},
        {"reviewerID": "A2", "asin": "0002", "unixReviewTime": 7, "overall": 5.0},
    ]
    path = tmp_path / "reviews.json.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(review) + "\n" for review in reviews).encode()))
    data = sources._amazon_5core([path])
    assert data.to_frame().rows() == [("A1", "0001", 1.0, 5), ("A2", "0002", 1.0, 7)]
    with pytest.raises(DataError, match="14/14-core"):
        sources._amazon_14core([path])
    with pytest.raises(ParameterError, match="no dataset 'ml-2m'; there are ml-1m"):
        tl.datasets.load("ml-2m")


# --- the real ones, where they are ---------------------------------------------------------------------


def real(name: str, command: str) -> Any:
    missing = [
        file.path for file in sources.SOURCES[name].files if not (sources.cache_directory() / file.path).is_file()
    ]
    if missing:
        pytest.skip(f"{missing[0]} is not in {sources.cache_directory()}; get it with {command}")
    return tl.datasets.load(name)


def test_movielens_tells_of_its_users_and_films() -> None:
    data = real("ml-1m", "truelike data fetch ml-1m")
    assert (data.n_users, data.n_items, data.n_interactions) == (6_040, 3_706, 1_000_209)
    assert data.titles[int(data.items.known(1)[0])] == "Toy Story (1995)"
    assert data.times is not None
    features = tl.datasets.movielens_features()
    users, items = features["user_features"], features["item_features"]
    assert users.row(0) == (1, "F", "1", "10")
    assert items.row(0) == (1, ["Animation", "Children's", "Comedy"], "1990s")
    assert set(data.items.values) <= set(items["item_id"])
    assert set(data.users.values) <= set(users["user_id"])
    assert users["age"].n_unique() == 7
    assert items["genres"].explode().n_unique() == 18
