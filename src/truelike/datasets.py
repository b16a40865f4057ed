"""Public datasets: download, check and load them by name.

`load("ml-1m")` finds the file in `$TRUELIKE_DATA` (or the user's cache), downloads it if it is missing, checks it
and returns a Dataset, or a Split if the data comes split. A download gets its final name only when it is complete,
so the cache never has incomplete files.

>>> import truelike as tl
>>> tl.datasets.names()[:3]
['ml-1m', 'ml-1m-split', 'ml-100k']
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, overload

import numpy as np
import polars as pl

from truelike.core.forks import check_not_forked
from truelike.data.dataset import Dataset
from truelike.data.filters import k_core
from truelike.data.frames import POLARS_ERRORS
from truelike.data.ids import Ids
from truelike.data.read import read
from truelike.data.splits import Split
from truelike.data.strategies import by_user
from truelike.data.truth import Truth
from truelike.errors import FetchError, ParameterError

__all__ = ["cache_directory", "coat_truth", "fetch", "load", "movielens_features", "names"]


def __dir__() -> list[str]:
    return sorted(__all__)


# errors of the readers of archives, tables and JSON on a damaged file (a DataError is a ValueError)
UNREADABLE = (
    EOFError, IndexError, KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile, zlib.error,
    *POLARS_ERRORS,
)  # fmt: skip


@dataclass(frozen=True)
class File:
    """One file of a dataset: its path in the cache, its address, and its SHA-256 if known."""

    path: str
    url: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Source:
    """A public dataset."""

    about: str
    terms: str
    files: tuple[File, ...]
    parse: Callable[[list[Path]], Dataset | Split]
    counts: dict[str, int] = field(default_factory=dict)


# --- parsers -------------------------------------------------------------------------------------


def _movielens(paths: list[Path], ratings: str, mark: bytes, movies: str, movie_mark: str) -> Dataset:
    """All ratings as interactions, with the titles of the films."""
    with zipfile.ZipFile(paths[0]) as bundle:
        table = bundle.read(ratings).replace(mark, b"\t")
        listed = bundle.read(movies).decode("latin-1")
    names = ["user", "item", "rating", "time"]
    frame = pl.read_csv(io.BytesIO(table), separator="\t", has_header=False, new_columns=names)
    fields = (line.split(movie_mark) for line in listed.splitlines() if line)
    return read(frame).with_titles({int(number): title for number, title, *_ in fields})


_movielens_1m = partial(
    _movielens, ratings="ml-1m/ratings.dat", mark=b"::", movies="ml-1m/movies.dat", movie_mark="::"
)
_movielens_100k = partial(
    _movielens, ratings="ml-100k/u.data", mark=b"\t", movies="ml-100k/u.item", movie_mark="|"
)


def _amazon_5core(paths: list[Path]) -> Dataset:
    return read(paths[0], user="reviewerID", item="asin", time="unixReviewTime")


def _amazon_14core(paths: list[Path]) -> Dataset:
    return k_core(_amazon_5core(paths), user=14, item=14).dataset


def _coat(paths: list[Path]) -> Split:
    """Ratings of at least 4. Users chose the coats of the training part; those of the test part were drawn."""
    train, test = (_coat_part(path) for path in paths)
    empty = train.select(np.zeros(train.n_interactions, dtype=bool))
    test = test.with_parts(users=train.users, items=train.items)
    # in the published data, a user may have rated the same coat in both parts: not worth a warning
    return Split.unchecked(train, empty, test, {"strategy": "coat", "min_rating": 4})


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
        lambda paths: by_user(_movielens_1m(paths), validation=0.1, test=0.1, seed=0),
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
        "the 14-core of Amazon Electronics, not split, made from the 5-core",
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
        lambda paths: Split.load(paths[0].parent),
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
        "Coat: all pairs that users rated by their own choice, liked or not, as impressions",
        "public mirror; no licence stated",
        _COAT,
        lambda paths: _coat_part(paths[0], min_rating=1),  # who rated a coat has seen it
        {"interactions": 6_960, "users": 290, "items": 300},
    ),
}


SplitName = Literal["ml-1m-split", "amazon-electronics-14core", "coat"]
UnsplitName = Literal[
    "ml-1m", "ml-100k", "amazon-electronics-5core", "amazon-electronics-14core-log", "coat-impressions"
]

# --- finding, fetching, loading ------------------------------------------------------------------


def cache_directory() -> Path:
    """The directory of downloaded files: `$TRUELIKE_DATA`, or `truelike` in the user's cache directory."""
    import pooch

    chosen = os.environ.get("TRUELIKE_DATA")
    return Path(chosen).expanduser() if chosen else Path(pooch.os_cache("truelike"))


@overload
def load(name: UnsplitName, *, progress: bool = True) -> Dataset: ...
@overload
def load(name: SplitName, *, progress: bool = True) -> Split: ...
@overload
def load(name: str, *, progress: bool = True) -> Dataset | Split: ...
def load(name: str, *, progress: bool = True) -> Dataset | Split:
    """Load a public dataset: a Dataset, or a Split if it comes split. It is downloaded if it is missing.

    Parameters
    ----------
    name
        One of `names()`.
    progress
        Show the progress of the download.
    """
    source = _source(name)
    paths = fetch(name, progress=progress)
    try:
        found = source.parse(paths)
    except UNREADABLE as error:
        raise FetchError(
            f"{str(paths[0])!r} cannot be read as {name}: {error}. Delete it; then it is downloaded again."
        ) from error
    _checked(found, name, source, paths)
    if isinstance(found, Split):
        train, validation, test = (part.with_parts(name=name) for part in found.parts)
        return Split.unchecked(train, validation, test, found.info)
    return found.with_parts(name=name)


def coat_truth(*, progress: bool = True) -> Truth:
    """The ratings of Coat on 16 randomly drawn coats per user, as true labels: liked from a rating of 4.

    `load("coat").train` has the self-selected ratings to train on, and `load("coat-impressions")` all pairs that
    users rated by their own choice, liked or not.
    """
    drawn = fetch("coat", progress=progress)[1]
    likes, judged = (_coat_part(drawn, min_rating=least).with_parts(name="coat") for least in (4, 1))
    return Truth(likes, judged)


def movielens_features(*, progress: bool = True) -> dict[str, pl.DataFrame]:
    """Features of the users and films of MovieLens 1M, for `items=` and `users=` of `tl.read`.

    Users have gender, age group and occupation (a code); films have genres and a decade.
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
    """The names of the public datasets."""
    return list(SOURCES)


def fetch(name: str, *, progress: bool = True) -> list[Path]:
    """Download the files of a dataset unless they are in the cache, check them and return their paths."""
    check_not_forked()
    return [_ensure(file, name, progress) for file in _source(name).files]


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise ParameterError(f"there is no dataset {name!r}; there are {', '.join(SOURCES)}")
    return SOURCES[name]


def _ensure(file: File, name: str, progress: bool) -> Path:
    import pooch

    from truelike.core.progress import Download

    path = cache_directory() / file.path
    if path.is_file():
        if file.sha256 is not None and pooch.file_hash(str(path)) != file.sha256:
            raise FetchError(
                f"{str(path)!r} is not the published file of {name}: its SHA-256 differs, so it is incomplete "
                "or changed. Delete it; then it is downloaded again."
            )
        return path
    if file.url is None:
        raise FetchError(
            f"{name} cannot be downloaded: it has no permanent address. Put the file {file.path} at {str(path)!r}."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        downloader = pooch.HTTPDownloader(progressbar=Download(path.name, show=progress), timeout=30)
        known = None if file.sha256 is None else f"sha256:{file.sha256}"
        pooch.get_logger().setLevel("ERROR")
        # to a temporary file, which is renamed when it is complete and correct
        pooch.retrieve(file.url, known, fname=path.name, path=path.parent, downloader=downloader)
    except Exception as error:  # network, disk or checksum: the remedy is the same
        raise FetchError(
            f"{name} could not be downloaded ({type(error).__name__}: {error}). Get {file.url} by other means, "
            f"put it at {str(path)!r} and try again; or set TRUELIKE_DATA to a directory that has it."
        ) from error
    return path


def _checked(found: Dataset | Split, name: str, source: Source, paths: list[Path]) -> None:
    """Compare with the published counts, the only check where no SHA-256 is known."""
    data = found.train if isinstance(found, Split) else found
    measured = {"interactions": data.n_interactions, "users": data.n_users, "items": data.n_items}
    for what, count in source.counts.items():
        if measured[what] != count:
            raise FetchError(
                f"{name} has {measured[what]:,} {what} where {count:,} are published: {str(paths[0])!r} is "
                "incomplete or not the right file. Delete it; then it is downloaded again."
            )
