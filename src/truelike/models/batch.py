"""The lists of many users, computed block by block and written to a file.

A Parquet file is written in parts: each block of users is a file in a directory beside the output, and at the end the
parts are merged into it. A run that was killed leaves its parts, and the same call continues with them. `batch.json`
says which model and which options they belong to. The name of a part holds the CRC-32 of its content.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import secrets
import shutil
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
from scipy import sparse

from truelike._version import __version__
from truelike.cluster import Cluster
from truelike.core.files import TEMPORARY, check_file, lock_directory, replacing_file
from truelike.core.forks import check_not_forked
from truelike.core.progress import logger, note, progress_bar
from truelike.data.blocks.blocks import Blocks
from truelike.data.checks import check_number
from truelike.data.frames import text_for_uuids
from truelike.data.ids import Codes, one_or_many
from truelike.data.seen import SeenBy, SeenRules, seen_of
from truelike.engines.callbacks import SECONDS_BETWEEN_LINES, readable_seconds
from truelike.errors import ParameterError, StorageError, some
from truelike.models.exclusions import LeftOut, split_exclude
from truelike.models.histories import codes_of
from truelike.models.lists import allowed_items, best_items, check, echo, frame_of
from truelike.models.ruled import bound
from truelike.ranking.on_cluster import check_dot_product, top_k_on_cluster
from truelike.ranking.top_k import TopK

if TYPE_CHECKING:
    from truelike.models.base import Recommender
    from truelike.models.histories import OnUnknown
    from truelike.models.label_noise import Likes
    from truelike.models.lists import Answers, Exclude, OneOrMany
    from truelike.rules.rules import Rules

ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")
ROWS = 500_000  # of a block, about: a part has some megabytes, and little is lost by a kill
FEWEST_USERS = 1_024  # of a block
ROW_GROUP = 250_000  # rows of the Parquet file that a reader takes at once
FORMAT = 1
MANIFEST, LOCK = "batch.json", "lock"
PART = re.compile(r"(\d{6,})-([0-9a-f]{8})\.parquet")


class Lists:
    """The lists of many users, block by block. The arguments are those of `recommend_to`.

    With `probability`, of a model that has `like_probability`, they have the columns probability and evidence, too.
    With `hidden_likes` they are those of `model.hidden_likes`.
    """

    def __init__(
        self,
        model: Answers,
        users: OneOrMany | None,
        k: int,
        *,
        candidates: OneOrMany | None,
        exclude: Exclude | None,
        exclude_seen: SeenBy,
        on_unknown: OnUnknown,
        titles: bool,
        n_jobs: int | None,
        block_size: int | None,
        cluster: Cluster | None = None,
        probability: bool = False,
        hidden_likes: bool = False,
        rules: Rules | None = None,
    ) -> None:
        check_not_forked()
        train = model.train_
        check(train, k, on_unknown, titles)
        if block_size is not None:
            check_number("block_size", block_size, low=1, whole=True)
        known = train.users
        self.model, self.scorer, self.k, self.titles, self.n_jobs = model, model.scorer, k, titles, n_jobs
        self.seen, self.on_unknown, self.cluster = seen_of(train, exclude_seen), on_unknown, cluster
        self.seen_by = dict(SeenRules.of(exclude_seen, train.schema).seconds)
        self.probability, self.hidden_likes = probability, hidden_likes
        if cluster is not None:
            check_dot_product(model.name, self.scorer.vectors)
        self.ids: pl.Series | None = None  # None: all users of the training data
        if users is None:
            self.codes = np.arange(len(known), dtype=np.int32)
        else:
            asked = one_or_many(users)
            self.codes = codes_of(known, asked, on_unknown)
            self.ids = text_for_uuids(echo(asked, known))
        self.rules = bound(rules, train, k)
        if cluster is not None and self.rules is not None and self.rules.arranges:
            raise ParameterError("rules other than a filter are not computed on a cluster. Leave one of both out.")
        for_all, own = split_exclude(train, exclude, users if self.ids is None else self.ids)
        if own is not None and hidden_likes:
            raise ParameterError("lists of hidden likes exclude the same items for all: give one list of items")
        self.excluded = None if own is None else own.of(known.values if self.ids is None else self.ids)
        self.allowed = allowed_items(train, candidates, for_all, self.rules)
        self.block_size = int(block_size or max(FEWEST_USERS, ROWS // k))
        self.ranker = None if cluster is not None or hidden_likes else self.scorer.ranker()

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.codes)

    def __len__(self) -> int:
        return max(1, -(-self.n_users // self.block_size))  # without a user, one block without rows

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return self.frames(range(len(self)))

    def frames(self, numbers: Sequence[int]) -> Generator[pl.DataFrame, None, None]:
        """The lists of some blocks, one after another; on a cluster, some are computed at the same time."""
        if self.cluster is None:
            yield from map(self.frame, numbers)
            return
        known = (codes[codes >= 0] for codes in map(self._codes, numbers))
        seen = self.seen
        if self.excluded is not None:
            there = self.codes >= 0
            seen = LeftOut(seen, self.codes[there], self.excluded[there])
        found = top_k_on_cluster(
            self.cluster, self.scorer.vectors, seen, known, self.k,
            allowed=self.allowed, ties=self.scorer.ties,
        )  # fmt: skip
        with contextlib.closing(found):
            for number, ranked in zip(numbers, found, strict=True):
                yield self.frame(number, ranked)

    def end(self, number: int) -> int:
        """Number of users up to the end of a block."""
        return min(self.n_users, (number + 1) * self.block_size)

    def frame(self, number: int, ranked: TopK | None = None) -> pl.DataFrame:
        """The lists of a block: user_id, item_id, score, rank, and title if asked for. UUIDs are text.

        `ranked` are the lists of its known users, where they are computed already.
        """
        codes = self._codes(number)
        model: Any = self.model
        if self.hidden_likes:
            likes: Likes = model.likes
            found = likes.top_k(codes, self.k, allowed=self.allowed, titles=self.titles, n_jobs=self.n_jobs)
            return text_for_uuids(found)
        best = best_items(
            self.scorer, codes, self.k,
            seen=self.seen, allowed=self.allowed, on_unknown=self.on_unknown, n_jobs=self.n_jobs,
            ranker=self.ranker, ranked=ranked, excluded=self._of_block(self.excluded, number), rules=self.rules,
        )  # fmt: skip
        ids = model.train_.users.stored(codes) if self.ids is None else self._asked(number)
        train = model.train_
        found = frame_of({"user_id": ids}, best, train.items, titles=train.titles if self.titles else None)
        if self.probability:
            own_scores = self.rules is None or not self.rules.changes_scores
            found = with_probability(model, found, trained=True, own_scores=own_scores)
        return text_for_uuids(found)

    def _codes(self, number: int) -> Codes:
        """The row numbers of the users of a block; -1 is a user who is not known."""
        return self.codes[number * self.block_size : self.end(number)]

    def _of_block(self, excluded: sparse.csr_array | None, number: int) -> sparse.csr_array | None:
        return None if excluded is None else excluded[number * self.block_size : self.end(number)]

    def _asked(self, number: int) -> pl.Series:
        assert self.ids is not None
        return self.ids.slice(number * self.block_size, self.block_size)

    def identity(self) -> dict[str, Any]:
        """What decides the result, with hashes of what is large: the model, the options, the block size."""
        return {
            "format": FORMAT,
            "library_version": __version__,
            "model": identity_of(cast("Recommender", self.model)),
            "options": {
                "k": int(self.k),
                "users": "all" if self.ids is None else _hash(self.ids),
                "candidates and exclude": None if self.allowed is None else _hash(self.allowed),
                "exclude_seen": self.seen_by,
                "on_unknown": self.on_unknown,
                "titles": bool(self.titles),
                "block_size": self.block_size,
                **({} if self.excluded is None else {"exclude by user": _hash_of_csr(self.excluded)}),
                **({} if self.rules is None else {"rules": self.rules.digest()}),
                **({"probability": True} if self.probability else {}),
                **({"hidden likes": True} if self.hidden_likes else {}),
            },
        }


def with_probability(model: Any, frame: pl.DataFrame, *, trained: bool, own_scores: bool = True) -> pl.DataFrame:
    """Lists of a model that has `like_probability`, with p(like) and its evidence.

    `trained`: the lists are those of users of the training data, as they were trained. `own_scores`: the scores are
    those of the model.
    """
    scores = frame["score"].to_numpy() if own_scores else None
    if trained:
        pairs = model.train_.users.known(frame["user_id"]), model.train_.items.known(frame["item_id"])
        found = model.likes.of_pairs(*pairs, scores)
    else:
        found = model.likes.of_scores(scores)
    return frame.with_columns(pl.Series("probability", found), pl.lit(model.evidence).alias("evidence"))


def write_lists(lists: Lists, path: str | Path, *, progress: bool) -> int:
    """Write the lists to a file in the format that its name ends in, and return the number of rows."""
    place = check_file(path, ENDINGS)
    if place.suffix == ".parquet":
        return _write_parquet(lists, place, progress)
    rows, frames, bar = 0, lists.frames(range(len(lists))), _progress(lists.n_users, 0, show=progress)
    with replacing_file(place) as fresh, bar as shown, fresh.open("wb") as file, contextlib.closing(frames):
        for number, frame in enumerate(frames):
            write_text(frame, file, place.suffix, header=number == 0)
            rows += len(frame)
            shown(lists.end(number))
    return rows


def write_text(frame: pl.DataFrame, file: Any, ending: str, *, header: bool) -> None:
    """Write rows to an open file as CSV, TSV or JSONL."""
    if ending == ".jsonl":
        frame.write_ndjson(file)
    else:
        frame.write_csv(file, include_header=header, separator="\t" if ending == ".tsv" else ",")


def _write_parquet(lists: Lists, path: Path, progress: bool) -> int:
    if len(lists) == 1 and not _directory(path).exists():
        [frame] = lists
        with replacing_file(path) as fresh:
            frame.write_parquet(fresh, row_group_size=ROW_GROUP)
        return len(frame)
    with _Parts(path, lists.identity()) as parts:
        missing = [number for number in range(len(lists)) if number not in parts]
        first = 0 if not missing else missing[0] * lists.block_size
        if not missing:
            note(f"all {lists.n_users:,} users are computed already; the parts are merged")
        elif first or len(missing) < len(lists):
            note(f"continuing at user {first:,} of {lists.n_users:,}")
        frames = lists.frames(missing)
        with _progress(lists.n_users, first, show=progress) as shown, contextlib.closing(frames):
            for number, frame in zip(missing, frames, strict=True):
                parts.write(number, frame)
                shown(lists.end(number))
        return parts.merge()


def _directory(path: Path) -> Path:
    return path.with_name(f".{path.name}.parts")


class _Parts:
    """The parts of a Parquet file, in a directory beside it: a context, in which no other process writes there.

    `identity` is what decides the result. Parts with another one are removed.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path, self.identity = path, identity
        self.directory = _directory(path)
        self.files: dict[int, Path] = {}

    def __enter__(self) -> _Parts:
        try:
            self._open()
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"cannot write {str(self.path)!r}: {error}; nothing was written") from error
        return self

    def _open(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._refuse_others()
        self.unlock = lock_directory(
            self.directory, f"another process is writing {str(self.path)!r}; wait for it, or name another file"
        )
        try:
            found = self._manifest()
            if found != self.identity:
                self._start_anew(found)
            self._find()
        except BaseException:
            self.unlock()
            raise

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None and self.files:
            note(
                f"{len(self.files):,} parts are kept in {str(self.directory)!r}; the same call continues with them"
            )
        elif kind is not None:
            self._remove()
        self.unlock()

    def __contains__(self, number: object) -> bool:
        return number in self.files

    def _refuse_others(self) -> None:
        """Raise if the directory holds files that were not written here."""
        others = sorted(
            each.name
            for each in self.directory.iterdir()
            if not (each.name in (MANIFEST, LOCK) or PART.fullmatch(each.name) or TEMPORARY.fullmatch(each.name))
        )
        if others:
            raise StorageError(
                f"{str(self.directory)!r} is where the parts of {str(self.path)!r} are kept, and it holds other "
                f"files: {some(others)}. Remove them, or name another output."
            )

    def _manifest(self) -> Any:
        try:
            return json.loads((self.directory / MANIFEST).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # not there, or damaged
            return None

    def _start_anew(self, found: Any) -> None:
        left = [each for each in self.directory.iterdir() if each.name != LOCK]
        if any(PART.fullmatch(each.name) for each in left):
            why = _difference(found, self.identity)
            note(f"the parts of an earlier run {why}; they are removed, and all users are computed again")
        for each in left:
            each.unlink()
        with replacing_file(self.directory / MANIFEST) as fresh:
            fresh.write_text(json.dumps(self.identity, indent=2) + "\n", encoding="utf-8")

    def _find(self) -> None:
        """Find the parts whose content is as it was written, and remove the others."""
        for each in sorted(self.directory.iterdir()):
            named = PART.fullmatch(each.name)
            if named and f"{zlib.crc32(each.read_bytes()):08x}" == named[2]:
                self.files[int(named[1])] = each
            elif named:
                note(f"the part {str(each)!r} is damaged; it is computed again")
                each.unlink()

    def write(self, number: int, frame: pl.DataFrame) -> None:
        """Write a part, whole or not at all."""
        content = io.BytesIO()
        frame.write_parquet(content)
        place = self.directory / f"{number:06}-{zlib.crc32(content.getbuffer()):08x}.parquet"
        with replacing_file(place) as fresh:
            fresh.write_bytes(content.getbuffer())
        self.files[number] = place

    def merge(self) -> int:
        """Merge the parts into the file, which is then put in its place, and remove them; returns the rows."""
        whole = pl.scan_parquet([self.files[number] for number in sorted(self.files)])
        with replacing_file(self.path) as fresh:
            whole.sink_parquet(fresh, row_group_size=ROW_GROUP, maintain_order=True)
        rows = int(pl.scan_parquet(self.path).select(pl.len()).collect().item())
        self._remove()
        return rows

    def _remove(self) -> None:
        self.files = {}
        shutil.rmtree(self.directory, ignore_errors=True)


def _difference(found: Any, expected: Mapping[str, Any]) -> str:
    """How the parts of an earlier run differ from those that are to be written, for a message."""
    if not isinstance(found, dict) or not isinstance(found.get("options"), dict):
        return "have no description that can be read"
    now, before = expected["options"], found["options"]
    options = [name for name in {**now, **before} if now.get(name) != before.get(name)]
    if found.get("model") != expected["model"] or not options:
        return "belong to another model or version"
    return f"were computed with other options ({', '.join(options)})"


def identity_of(model: Recommender) -> str:
    """A hash of all that a model's lists follow from: its class, parameters, arrays, training data and titles."""
    written, train = model._written(), model.train_
    try:
        arrays = written._arrays()
    except StorageError:  # a model of the caller's own that cannot be saved: no two runs are known to be the same
        return secrets.token_hex(16)
    digest = hashlib.sha256()
    train.digest_into(digest)
    ids = (
        () if isinstance(train, Blocks) else (train.users.values, train.items.values)
    )  # those of blocks are in it
    ignored = ("n_jobs", "device")
    about = {
        "class": type(written).__name__,
        "parameters": {name: v for name, v in written._saved_parameters().items() if name not in ignored},
        "arrays": {name: _hash(array) for name, array in arrays.items()},
        "train": digest.hexdigest(),
        "ids": [_hash(values) for values in ids],
        "titles": None if train.titles is None else _hash(train.titles),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=repr).encode()).hexdigest()


def _hash(values: Any) -> str:
    """A hash of an array or a series."""
    if isinstance(values, pl.Series) and not values.dtype.is_numeric():
        texts = [str(value).encode() for value in values.to_list()]
        lengths = np.array([len(text) for text in texts], dtype=np.int64)
        return hashlib.sha256(lengths.tobytes() + b"".join(texts)).hexdigest()
    array = np.ascontiguousarray(values)
    about = f"{array.dtype.str} {array.shape}".encode()
    return hashlib.sha256(about + hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest()).hexdigest()


def _hash_of_csr(matrix: sparse.csr_array) -> str:
    """A hash of the pairs of a CSR."""
    return _hash(np.concatenate([matrix.indptr, matrix.indices]).astype(np.int64))


@contextlib.contextmanager
def _progress(n_users: int, first: int, *, show: bool) -> Iterator[Callable[[int], None]]:
    """A bar in a terminal or notebook, log lines elsewhere. Call the result with the number of users done."""
    bar, started = progress_bar("recommending", show=show), time.monotonic()
    task, said = bar.add_task("", total=n_users, completed=first, words=""), started

    def shown(done: int) -> None:
        nonlocal said
        now, words = time.monotonic(), f"{done:,} of {n_users:,} users"
        if done < n_users:
            words += f", {readable_seconds((now - started) / max(1, done - first) * (n_users - done))} left"
        bar.update(task, completed=done, words=words)
        if show and bar.disable and done < n_users and now - said >= SECONDS_BETWEEN_LINES:
            said = now
            logger.info(words)

    bar.start()
    try:
        yield shown
    finally:
        with contextlib.suppress(Exception):  # of the terminal
            bar.stop()
