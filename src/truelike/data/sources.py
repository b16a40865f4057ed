"""Public data sets: where they are, how to know them, how to read them.

`load("ml-1m")` finds the file in `$TRUELIKE_DATA` (or the user's cache), downloads it if it is not there,
checks it, and gives a Dataset; data that comes split gives a Split. A download is written aside and
renamed when it is whole, so a file in the cache is never half of one.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from truelike.data.dataset import Dataset
from truelike.data.filters import k_core
from truelike.data.ids import Ids
from truelike.data.interactions import read
from truelike.data.splits import Split, by_user
from truelike.data.truth import Truth
from truelike.errors import FetchError, ParameterError

# what a damaged file can cause in the readers of archives, tables and JSON (a DataError is a ValueError)
UNREADABLE = (
    EOFError, IndexError, KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile, zlib.error,
    pl.exceptions.PolarsError,
)  # fmt: skip


@dataclass(frozen=True)
class File:
    """One file of a data set: its place in the cache, its address, its SHA-256 where that is known."""

    path: str
    url: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Source:
    """A public data set."""

    about: str
    terms: str
    files: tuple[File, ...]
    parse: Callable[[list[Path]], Any]
    counts: dict[str, int] = field(default_factory=dict)


# --- parsers -------------------------------------------------------------------------------------


def _movielens_1m(paths: list[Path]) -> Dataset:
    return _movielens(paths[0], "ml-1m/ratings.dat", b"::", "ml-1m/movies.dat", "::")


def _movielens_1m_split(paths: list[Path]) -> Split:
    return by_user(_movielens_1m(paths), validation=0.1, test=0.1, seed=0)


def _movielens_100k(paths: list[Path]) -> Dataset:
    return _movielens(paths[0], "ml-100k/u.data", b"\t", "ml-100k/u.item", "|")


def _movielens(archive: Path, ratings: str, mark: bytes, movies: str, movie_mark: str) -> Dataset:
    """Ratings are votes; titles come along, so that a recommendation can be read."""
    with zipfile.ZipFile(archive) as bundle:
        table = bundle.read(ratings).replace(mark, b"\t")
        listed = bundle.read(movies).decode("latin-1")
    names = ["user", "item", "rating", "time"]
    frame = pl.read_csv(io.BytesIO(table), separator="\t", has_header=False, new_columns=names)
    fields = (line.split(movie_mark) for line in listed.splitlines() if line)
    return read(frame).with_titles({int(number): title for number, title, *_ in fields})


def _amazon_5core(paths: list[Path]) -> Dataset:
    return read(paths[0], user="reviewerID", item="asin", time="unixReviewTime")


def _amazon_14core(paths: list[Path]) -> Dataset:
    return k_core(_amazon_5core(paths), user=14, item=14).dataset


def _authors_split(paths: list[Path]) -> Split:
    return Split.load(paths[0].parent)


def _coat(paths: list[Path]) -> Split:
    """Ratings of at least 4 are likes. Train: what users chose to rate; test: drawn at random for them."""
    train, test = (_coat_part(path) for path in paths)
    empty = train.select(np.zeros(train.n_interactions, dtype=bool))
    return Split(train, empty, test, {"strategy": "coat", "min_rating": 4})


def _coat_impressions(paths: list[Path]) -> Dataset:
    """Who rated a coat was shown it, whatever the rating."""
    return _coat_part(paths[0], min_rating=1)


def _coat_part(path: Path, min_rating: int = 4) -> Dataset:
    ratings = np.loadtxt(path, dtype=np.int32)
    users, items = np.nonzero(ratings >= min_rating)
    ids = Ids.range(ratings.shape[0], "user"), Ids.range(ratings.shape[1], "item")
    return Dataset.from_pairs(*ids, users.astype(np.int32), items.astype(np.int32), name="coat")


# --- the list ------------------------------------------------------------------------------------

_GROUPLENS = "https://files.grouplens.org/datasets/movielens/"
_MOVIELENS_1M = File(
    "ml-1m.zip",
    _GROUPLENS + "ml-1m.zip",
    "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
)
_ELECTRONICS = File(
    "reviews_Electronics_5.json.gz",
    "http://snap.stanford.edu/data/amazon/productGraph/categoryFiles/reviews_Electronics_5.json.gz",
)
_AUTHORS = (
    "https://raw.githubusercontent.com/Wenhui-Yu/NBPO/f83a06f34c19089bef811886f27553b8e1d0f81a/dataset/amazon/"
)
_COAT = (
    File("coat/train.ascii", None, "a87bd9e7eaf3b89f976df3f25d4aa5d5d871be8a00b58947df9e6e015559bd37"),
    File("coat/test.ascii", None, "de6714ab105a5e0be8166be7fd313901b29f9a09c3bea307901457d1d71847e6"),
)

SOURCES: dict[str, Source] = {
    "ml-1m": Source(
        "MovieLens 1M: ratings of films, with titles",
        "GroupLens: research use, no redistribution",
        (_MOVIELENS_1M,),
        _movielens_1m,
        {"interactions": 1_000_209, "users": 6_040, "items": 3_706},
    ),
    "ml-1m-split": Source(
        "MovieLens 1M split by user into 80, 10 and 10 %, as the paper's experiments here use it",
        "GroupLens: research use, no redistribution",
        (_MOVIELENS_1M,),
        _movielens_1m_split,
        {"interactions": 800_309, "users": 6_040, "items": 3_678},
    ),
    "ml-100k": Source(
        "MovieLens 100K: ratings of films, with titles",
        "GroupLens: research use, no redistribution",
        (File("ml-100k.zip", _GROUPLENS + "ml-100k.zip"),),
        _movielens_100k,
        {"interactions": 100_000, "users": 943, "items": 1_682},
    ),
    "amazon-electronics-5core": Source(
        "Amazon Electronics reviews, users and items with at least 5",
        "McAuley et al.: research use",
        (_ELECTRONICS,),
        _amazon_5core,
        {"interactions": 1_689_188, "users": 192_403, "items": 63_001},
    ),
    "amazon-electronics-14core-log": Source(
        "the 14-core of Amazon Electronics as an unsplit log, taken from the 5-core",
        "McAuley et al.: research use",
        (_ELECTRONICS,),
        _amazon_14core,
    ),
    "amazon-electronics-14core": Source(
        "the paper authors' own split of the 14-core of Amazon Electronics",
        "the paper's public repository; no licence stated",
        tuple(
            File(f"amazon-electronics-14core/{part}_data.json", f"{_AUTHORS}{part}_data.json", digest)
            for part, digest in (
                ("train", "9feb28fdce1eceb15bcb6700a4bbda85ccffef9ef6878d1f908dfd50e4f0de0a"),
                ("validation", "550a4128b8c4c761b352c93304c21556f6c247d6ea988e171c3bf11fb4fb65b7"),
                ("test", "974a2774ef047aecbde3e5118a7138dac80ebe29a3d034952a7f0a49ed2b0911"),
            )
        ),
        _authors_split,
        {"interactions": 31_887, "users": 1_435, "items": 1_522},
    ),
    "coat": Source(
        "Coat: self-selected ratings to train on, randomly exposed ones to test",
        "public mirror; no licence stated",
        _COAT,
        _coat,
        {"interactions": 1_905, "users": 290, "items": 300},
    ),
    "coat-impressions": Source(
        "all that users of Coat rated by their own choice, liked or not: what they were shown",
        "public mirror; no licence stated",
        _COAT,
        _coat_impressions,
        {"interactions": 6_960, "users": 290, "items": 300},
    ),
}


# --- finding, fetching, loading ------------------------------------------------------------------


def cache_directory() -> Path:
    """Where data sets are kept: `$TRUELIKE_DATA`, or `truelike` in the user's cache directory."""
    chosen = os.environ.get("TRUELIKE_DATA")
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("truelike"))


def load(name: str, *, progress: bool = True) -> Any:
    """Load a public data set: a Dataset, or a Split where it comes split.

    Parameters
    ----------
    name
        One of `names()`.
    progress
        Show a bar while downloading (only on a terminal).
    """
    source = _source(name)
    paths = fetch(name, progress=progress)
    try:
        found = source.parse(paths)
    except UNREADABLE as error:
        raise FetchError(
            f"{str(paths[0])!r} cannot be read as {name}: {error}. Delete it, and it is fetched again."
        ) from error
    return _named(_checked(found, name, source, paths), name)


def coat_truth(*, progress: bool = True) -> Truth:
    """What users of Coat said of 16 coats each that were drawn at random: liked from a rating of 4 on, or not.

    Its training part, self-selected, is `load("coat").train`; what users were shown there, liked or not, is
    `load("coat-impressions")`.
    """
    drawn = fetch("coat", progress=progress)[1]
    likes, judged = (replace(_coat_part(drawn, min_rating=least), name="coat") for least in (4, 1))
    return Truth(likes, judged)


def movielens_features(*, progress: bool = True) -> dict[str, pl.DataFrame]:
    """What MovieLens 1M tells of users and films, as `fit` takes it: `tl.FM().fit(log, **movielens_features())`.

    Of users gender, age group and occupation (a code); of films genres and decade.
    """
    archive = fetch("ml-1m", progress=progress)[0]
    with zipfile.ZipFile(archive) as bundle:
        people, films = (
            [line.split("::") for line in bundle.read(f"ml-1m/{name}.dat").decode("latin-1").splitlines()]
            for name in ("users", "movies")
        )
    users = {
        "user_id": [int(row[0]) for row in people],
        **{name: [row[n] for row in people] for n, name in enumerate(("gender", "age", "occupation"), start=1)},
    }
    items = {
        "item_id": [int(row[0]) for row in films],
        "genres": [row[2].split("|") for row in films],
        "decade": [f"{row[1][-5:-2]}0s" for row in films],  # of "Toy Story (1995)"
    }
    return {"user_features": pl.DataFrame(users), "item_features": pl.DataFrame(items)}


def names() -> list[str]:
    """The public data sets that are known.

    >>> names()[:2]
    ['ml-1m', 'ml-1m-split']
    """
    return list(SOURCES)


def fetch(name: str, *, progress: bool = True) -> list[Path]:
    """Make sure that the files of a data set are in the cache, and whole; return their paths."""
    return [_ensure(file, name, progress) for file in _source(name).files]


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise ParameterError(f"there is no data set {name!r}; there are {', '.join(SOURCES)}")
    return SOURCES[name]


def _ensure(file: File, name: str, progress: bool) -> Path:
    path = cache_directory() / file.path
    if path.is_file():
        if file.sha256 is not None and _sha256(path) != file.sha256:
            raise FetchError(
                f"{str(path)!r} is not the file that {name} is made of (its SHA-256 differs: it was cut off, "
                "or changed). Delete it, and it is fetched again."
            )
        return path
    if file.url is None:
        raise FetchError(f"{name} has no lasting address. Put the file {file.path} at {str(path)!r}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _download(file.url, path, file.sha256, progress)
    except Exception as error:  # the network, the disk, a wrong checksum: one remedy for all
        raise FetchError(
            f"{name} could not be fetched ({type(error).__name__}: {error}). Get {file.url} by other means, "
            f"put it at {str(path)!r} and try again; or set TRUELIKE_DATA to a directory that has it."
        ) from error
    return path


def _download(url: str, path: Path, sha256: str | None, progress: bool) -> None:
    """Fetch to a temporary file beside `path` and rename it when it is whole and right (pooch does)."""
    import pooch

    from truelike.progress import Download

    downloader = pooch.HTTPDownloader(progressbar=Download(path.name, show=progress), timeout=30)
    known = None if sha256 is None else f"sha256:{sha256}"
    logger = pooch.get_logger()
    logger.setLevel("ERROR")
    pooch.retrieve(url, known, fname=path.name, path=path.parent, downloader=downloader)


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _checked(found: Any, name: str, source: Source, paths: list[Path]) -> Any:
    """Compare with the published counts, which is the only check where no SHA-256 is known."""
    log: Dataset = found.train if isinstance(found, Split) else found
    measured = {"interactions": log.n_interactions, "users": log.n_users, "items": log.n_items}
    for what, count in source.counts.items():
        if measured[what] != count:
            raise FetchError(
                f"{name} has {measured[what]:,} {what} where {count:,} are published: {str(paths[0])!r} is "
                "cut off or not the right file. Delete it, and it is fetched again."
            )
    return found


def _named(found: Any, name: str) -> Any:
    if isinstance(found, Split):
        train, validation, test = (replace(part, name=name) for part in found.parts)
        return Split(train, validation, test, found.info)
    return replace(found, name=name)
