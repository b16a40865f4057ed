"""`build`: a block directory of a log of any size.

1. DuckDB looks at all rows, counts the bad ones, and finds the items. They fit into memory.
2. DuckDB writes the rows to scratch files, in groups of users by the hash of their ids.
3. Each group is loaded: repeated pairs are merged as in a `Dataset`, and the group becomes a CSR.
4. The k-core, if there is one, is found by looking at all groups until no user and no item is dropped.
5. DuckDB sorts the users. A block has the users of a range of ids, and each group has those in a contiguous part.
"""

from __future__ import annotations

import os
import re
import shutil
import time as clock
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.files import as_place, check_place, scratch_directory
from truelike.core.forks import check_not_forked
from truelike.core.memory import available_memory
from truelike.core.progress import note
from truelike.data.blocks.blocks import Blocks, BuildReport
from truelike.data.blocks.format import ITEMS, OWN_FILES, SHOWN, block_bounds, writing
from truelike.data.blocks.kernels import merge_rows, number_by_hash
from truelike.data.blocks.sources import ADDRESS, Choose, LogFiles, find, from_text
from truelike.data.blocks.tables import (
    EMPTY,
    Checked,
    LogTable,
    connected,
    duckdb,
    open_parquet,
    report_bad_rows,
    sort_users,
)
from truelike.data.checks import check_not_empty, check_number
from truelike.data.columns import Columns, choose, recognised
from truelike.data.dataset import Dataset
from truelike.data.features import read_features
from truelike.data.files import column_names
from truelike.data.filters import k_core
from truelike.data.ids import Codes, Ids, Kind, check_count, encode
from truelike.data.interactions import cast
from truelike.data.part_files import write_entries, write_features
from truelike.data.read import read
from truelike.data.titles import titles_of
from truelike.data.written_dates import DateOrder, check_order
from truelike.errors import DataError, ParameterError

INTERACTIONS_PER_BLOCK = 20_000_000  # about, by default
BYTES_PER_ROW = 250  # of memory that a group of users takes while it is loaded, at most
MOST_WORKERS = 4  # groups that are loaded at once
SMALLEST_GROUP, LARGEST_GROUP, MOST_GROUPS = 100_000, 16_000_000, 500  # rows, rows, groups
LEAST_MEMORY = 50_000_000
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Dataset


def build(
    source: Source,
    directory: str | os.PathLike[str],
    *,
    blocks: int | None = None,
    user: str | int | None = None,
    item: str | int | None = None,
    rating: str | int | None = None,
    time: str | int | None = None,
    weight: str | int | None = None,
    min_rating: float | None = None,
    dates: DateOrder | None = None,
    on_bad_rows: Literal["raise", "drop"] = "raise",
    min_user: int = 0,
    min_item: int = 0,
    memory: str | int | None = None,
    scratch: str | os.PathLike[str] | None = None,
    titles: Any = None,
    items: Any = None,
    users: Any = None,
    impressions: Source | None = None,
    name: str | None = None,
    progress: bool = True,
) -> Blocks:
    """Write a block directory of a log that need not fit into memory, and open it. An older one is replaced.

    The result has the same users, items and interactions as ``tl.read`` of the same rows.

    Parameters
    ----------
    source
        The path of a Parquet, CSV or TSV file (text also gzipped, with .gz); a directory of such files, also with
        subdirectories named key=value; a pattern such as ``"log/*.parquet"``; a list of paths; or a `Dataset`. Parquet
        files may have an address such as "s3://..."; DuckDB's extension httpfs must be installed then.
    directory
        Where to write it. It may have an older block directory, and no other files.
    blocks
        The number of blocks. By default there are about 20 million interactions in a block.
    user, item, rating, time, weight, min_rating, dates, on_bad_rows
        As in `tl.read`.
    min_user, min_item
        Drop users with fewer items and items with fewer users than this, until there are none, as `tl.k_core` does.
    memory
        The memory to use, e.g. "4GB" or a number of bytes. By default half of what is available.
    scratch
        A directory for what does not fit into memory. By default it is beside `directory`. It takes about as much
        space as the log.
    titles
        Names of the items for people to read, as in `tl.read`.
    items, users
        Tables of features, as in `tl.read`, which must fit into memory. Of files, the rows of users and items without
        interactions are left out.
    impressions
        What was shown to whom: files as `source`, maybe with a column `count`, or a `Dataset` whose weights are counts.
    name
        The name of the data in tables. By default that of the file or the directory.
    progress
        Log a line for each step.

    Examples
    --------
    >>> import tempfile, truelike as tl
    >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("eve", "rum")])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     tl.blocks.build(data, place + "/blocks", blocks=2, progress=False)
    Blocks(4 interactions, 3 users, 3 items, 2 blocks)
    """
    check_not_forked()
    started = clock.perf_counter()
    if blocks is not None:
        check_number("blocks", blocks, low=1, whole=True)
    for parameter, given in (("min_user", min_user), ("min_item", min_item)):
        check_number(parameter, given, low=0, whole=True)
    if on_bad_rows not in ("raise", "drop"):
        raise ParameterError(f'on_bad_rows is {on_bad_rows!r}; expected "raise" or "drop"')
    if min_rating is not None:
        check_number("min_rating", min_rating)
    check_order(dates)
    limit = max(LEAST_MEMORY, available_memory() // 2) if memory is None else parse_memory(memory)
    directory = as_place(directory)
    check_place(directory, own=OWN_FILES)
    least, tell = (min_user, min_item), note if progress else lambda _: None
    asked: dict[str, Any] = {"user": user, "item": item, "rating": rating, "time": time, "weight": weight}
    if isinstance(source, Dataset):
        given_too = {**asked, "min_rating": min_rating, "dates": dates}
        if unused := [key for key, value in given_too.items() if value is not None]:
            raise ParameterError(
                f"a Dataset was given, which {', '.join(unused)} cannot change: use it with a file"
            )
        source = read(source, items=items, users=users, impressions=impressions, titles=titles)
        made = _of_dataset(source, directory, blocks, least, name)
    else:
        duckdb()
        files, kind, found_name = find(source)

        def settle(names: list[str]) -> Columns:
            return choose(names, **asked, needs_rating=min_rating is not None)

        def further(place: Path) -> list[str]:
            names = _write_features(place, items, users)
            if impressions is None:
                return names
            how: dict[str, Any] = {"dates": dates, "on_bad_rows": on_bad_rows, "memory": limit, "scratch": scratch}
            counts = _count_column(impressions)
            build(impressions, place / SHOWN, user=user, item=item, weight=counts, progress=progress, **how)
            return [*names, SHOWN]

        with scratch_directory(directory, scratch) as place:
            work = _Work(place, limit, tell)
            work.group(files, kind, settle, min_rating, dates, on_bad_rows)
            made = work.write(directory, blocks, least, titles, name or found_name, further)
    report = replace(made, seconds=clock.perf_counter() - started)
    tell(
        f"wrote {report.interactions:,} interactions of {report.users:,} users with {report.items:,} items in "
        f"{report.blocks:,} blocks to {str(directory)!r} ({report.seconds:,.0f} s)"
    )
    return Blocks(directory, report=report)


def _count_column(source: Any) -> str | None:
    """The column of a log of impressions that says how often a pair was shown; None: each row is one showing."""
    if isinstance(source, Dataset):
        return None
    files, kind, _ = find(source)
    names = list(pl.read_parquet_schema(files[0])) if kind == "parquet" else column_names(Path(files[0]))
    return recognised(names, "count")


def _write_features(place: Path, items: Any, users: Any) -> list[str]:
    """Write the features of the users and items of a block directory."""
    found: dict[str, Any] = {"item_features": None, "user_features": None, "schema": None}
    for side, source, files in (("item", items, [ITEMS]), ("user", users, sorted(place.glob("users-*.parquet")))):
        if source is not None:
            ids = pl.concat([pl.read_parquet(place / file, columns=[f"{side}_id"]) for file in files]).to_series()
            like = Ids(ids, "int" if ids.dtype == pl.Int64 else "str", side)
            read_table = read_features(source, like)
            if read_table.table is not None:
                found[f"{side}_features"] = read_table.table.recode(read_table.ids.codes(ids))
    return write_features(SimpleNamespace(**found), place)


def parse_memory(given: str | int) -> int:
    """A number of bytes from a text such as "4GB".

    >>> parse_memory("4GB"), parse_memory("500 MB"), parse_memory("1.5GiB"), parse_memory(10**9)
    (4000000000, 500000000, 1610612736, 1000000000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", str(given).lower())
    if found is None or isinstance(given, (bool, float)):
        raise ParameterError(f'memory is {given!r}; expected a number of bytes, or a text such as "4GB"')
    number, unit, binary = found.groups()
    factor = 1024 ** list(UNITS).index(unit) if binary else UNITS[unit]
    limit = int(float(number) * factor)
    if limit < LEAST_MEMORY:
        raise ParameterError(f"memory is {given!r}; expected at least {LEAST_MEMORY // 10**6} MB")
    return limit


def _number_of_blocks(asked: int | None, n_users: int, n_interactions: int) -> int:
    """The number of blocks; an error if there are fewer users."""
    if asked is None:
        return max(1, min(n_users, -(-n_interactions // INTERACTIONS_PER_BLOCK)))
    if asked > n_users:
        raise ParameterError(
            f"blocks is {asked:,}, and there are {n_users:,} users; every block has at least one user"
        )
    return asked


def _of_dataset(
    data: Dataset, directory: Path, blocks: int | None, least: tuple[int, int], name: str | None
) -> BuildReport:
    """Cut a dataset into blocks."""
    check_not_empty(data)
    rows = data.n_interactions
    if any(least):
        data = k_core(data, user=least[0], item=least[1]).dataset
    n = _number_of_blocks(blocks, data.n_users, data.n_interactions)
    bounds = block_bounds(data.interactions_per_user(), n)
    kinds: dict[str, Kind] = {"user": data.users.kind, "item": data.items.kind}
    indptr, indices, weights, times = data.csr.indptr, data.csr.indices, data.csr.data, data.times

    def further(place: Path) -> list[str]:
        names = [*write_features(data, place), *write_entries(data.with_parts(shown=None), place)]
        if data.shown is None:
            return names
        if data.shown.known:
            note(f"blocks keep how often each pair was shown, and no {', '.join(data.shown.known)}")
        counts = data.shown.counts
        parts = (counts.data.astype(np.float32), counts.indices, counts.indptr)
        shown = Dataset.unchecked(data.users, data.items, sparse.csr_array(parts, shape=counts.shape))
        _of_dataset(shown, place / SHOWN, None, (0, 0), SHOWN)
        return [*names, SHOWN]

    with writing(directory, data.items.values, kinds, name or data.name, data.titles, further) as writer:
        for lo, hi in pairwise(bounds.tolist()):
            mine = slice(int(indptr[lo]), int(indptr[hi]))
            writer.add(
                data.users.values[int(lo) : int(hi)].rechunk(),
                indptr[lo : hi + 1] - indptr[lo],
                indices[mine],
                weights[mine],
                None if times is None else times[mine],
            )
    return BuildReport(data.n_users, data.n_items, data.n_interactions, n, rows, 0, 0.0)


@dataclass
class _Group:
    """A group of users: the CSR of their interactions in files, the number of items of each user, and of rows."""

    place: Path
    number: int
    counts: NDArray[np.int32]
    rows: int

    def path(self, what: str) -> Path:
        return self.place / f"{what}-{self.number:05}.npy"

    @property
    def users(self) -> Path:
        return self.place / f"users-{self.number:05}.parquet"

    def has(self, what: str) -> bool:
        return self.path(what).exists()

    def save(self, what: str, array: NDArray[Any]) -> None:
        np.save(self.path(what), array, allow_pickle=False)

    def load(self, what: str, part: slice = slice(None)) -> NDArray[Any]:
        """An array, or a part of it."""
        whole = np.load(self.path(what), mmap_mode="r" if len(self.counts) else None, allow_pickle=False)
        return np.array(whole[part])

    def entries(self) -> tuple[NDArray[np.int64], Codes]:
        """The user and the item of each interaction."""
        return np.repeat(np.arange(len(self.counts)), self.counts), self.load("indices")

    def restrict(self, users: NDArray[np.bool_], items: NDArray[np.bool_]) -> None:
        """Keep the marked users and items only."""
        rows, columns = self.entries()
        kept = users[rows] & items[columns]
        self.save("indices", (np.cumsum(items, dtype=np.int32) - np.int32(1))[columns[kept]])
        for what in ("weights", "times"):
            if self.has(what):
                self.save(what, self.load(what)[kept])
        self.counts = np.bincount(rows[kept], minlength=len(users))[users].astype(np.int32)
        names = pl.read_parquet(self.users, glob=False)
        names.filter(pl.Series(users)).write_parquet(self.users, compression="lz4")


class _Work:
    """The steps of `build` for files."""

    def __init__(self, place: Path, memory: int, tell: Callable[[str], None]) -> None:
        self.place, self.memory, self.tell = place, memory, tell
        self.threads = max(1, min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1, 16))
        self.workers = min(self.threads, MOST_WORKERS)
        self.groups: list[_Group] = []

    def group(
        self,
        files: list[str],
        kind: str,
        settle: Choose,
        min_rating: float | None,
        dates: DateOrder | None,
        on_bad_rows: str,
    ) -> None:
        """Write the interactions of the log as groups of users."""
        log: LogFiles | None = None
        if kind == "csv":
            self.tell(f"reading {len(files):,} text file{'s' * (len(files) > 1)} ...")
            log = from_text(files, settle, self.place)
            if not log.parquet:  # no line can be read
                report_bad_rows(log.bad, on_bad_rows)
                raise DataError(EMPTY)
        parts = self.place / "parts"
        network = any(ADDRESS.match(file) for file in files)
        with connected(self.place, self.memory, self.threads, network=network) as connection:
            log = open_parquet(connection, files, settle) if log is None else log
            self.tell("checking the rows and collecting the items ...")
            table = LogTable(connection, log, self.place, min_rating, dates)
            self.found: Checked = table.check(on_bad_rows)
            per_group = min(LARGEST_GROUP, max(SMALLEST_GROUP, self.memory // BYTES_PER_ROW // self.workers))
            n = min(MOST_GROUPS, -(-self.found.kept // per_group))
            self.tell(
                f"{self.found.rows:,} rows, {len(self.found.items):,} items; writing {n:,} group{'s' * (n > 1)} of "
                "users ..."
            )
            table.group(parts, n, max(2_048, min(524_288, self.memory // 400 // n // self.threads)))
        for file in log.parquet if log.text else []:
            Path(file).unlink()
        self.tell("merging repeated pairs ...")
        self.timed = table.timed
        there = [number for number in range(n) if (parts / f"part={number}").exists()]
        with ThreadPoolExecutor(self.workers) as pool:
            tasks = [pool.submit(self._load, parts / f"part={number}", number, table) for number in there]
            try:
                self.groups = [task.result() for task in tasks]
            finally:
                pool.shutdown(cancel_futures=True)
        if (rows := sum(group.rows for group in self.groups)) != self.found.kept:
            raise RuntimeError(f"{self.found.kept:,} rows were to be written, and {rows:,} were")

    def _load(self, part: Path, number: int, table: LogTable) -> _Group:
        """Turn the rows of a group into a CSR."""
        frame = pl.read_parquet(sorted(part.iterdir()), glob=False, hive_partitioning=False)
        n_rows = len(frame)
        if "row" in frame.columns:
            given = not any(map(ADDRESS.match, table.log.parquet))  # an address may be a pattern
            file = pl.col("file").cast(pl.Enum(table.log.parquet)) if given else pl.col("file")
            frame = frame.sort(file, "row")
        users, codes = _numbered(frame["u"])
        items = frame["i"].to_numpy()
        times = table.times(frame["t"]).to_numpy() if self.timed else None
        row_weights = cast(frame["w"], pl.Float64()).to_numpy() if "w" in frame.columns else None
        del frame
        weights: NDArray[np.float32] | None
        if times is None and row_weights is None:
            counts, indices, weights = merge_rows(codes, items, len(users))
        else:
            merged = Dataset.from_pairs(
                Ids(users, self.found.kinds["user"], "user"),
                Ids(self.found.items, self.found.kinds["item"], "item"),
                codes,
                items,
                weights=row_weights,
                times=times,
            )
            counts, indices = np.diff(merged.csr.indptr), merged.csr.indices
            weights, times = merged.csr.data, merged.times
        group = _Group(self.place, number, counts.astype(np.int32), n_rows)
        group.save("indices", indices)
        if (weights != 1).any():
            group.save("weights", weights)
        if times is not None:
            group.save("times", times)
        pl.DataFrame({"u": users}).write_parquet(group.users, compression="lz4")
        shutil.rmtree(part)
        return group

    def write(
        self,
        directory: Path,
        blocks: int | None,
        least: tuple[int, int],
        titles: Any,
        name: str,
        further: Callable[[Path], list[str]],
    ) -> BuildReport:
        """Write the block directory of the groups."""
        items, kinds = self.found.items, self.found.kinds
        texts = None if titles is None else titles_of(Ids(items, kinds["item"], "item"), titles)
        if any(least):
            kept = self._core(least)
            items = items.filter(pl.Series(kept))
            texts = None if texts is None else texts.filter(pl.Series(kept))
        n_users = sum(len(group.counts) for group in self.groups)
        check_count(n_users, "users")
        n_interactions = sum(int(group.counts.sum(dtype=np.int64)) for group in self.groups)
        n = _number_of_blocks(blocks, n_users, n_interactions)
        self.tell(f"sorting {n_users:,} users ...")
        order = self._sorted_users()
        bounds = block_bounds(pl.read_parquet(order, columns=["n"], glob=False)["n"].to_numpy(), n)
        self.tell(f"writing {n:,} block{'s' * (n > 1)} ...")
        done = np.zeros(len(self.groups), dtype=np.int64)  # interactions of each group that are written
        # the next block is loaded while one is written
        named = writing(directory, items.rechunk(), kinds, name, texts, further)
        with named as writer, ThreadPoolExecutor(1) as pool:
            following = pool.submit(self._block, order, bounds[:2], done)
            for number in range(1, n + 1):
                block = following.result()
                if number < n:
                    following = pool.submit(self._block, order, bounds[number : number + 2], done)
                writer.add(*block)
        return BuildReport(n_users, len(items), n_interactions, n, self.found.rows, self.found.dropped, 0.0)

    def _sorted_users(self) -> Path:
        """The users of all groups in the order of their ids, with their group and their number of items."""
        for place, group in enumerate(self.groups):
            about = pl.DataFrame({"n": group.counts, "group": np.full(len(group.counts), place, dtype=np.int32)})
            users = pl.read_parquet(group.users, glob=False)
            users.with_columns(about.get_columns()).write_parquet(group.users, compression="lz4")
        target = self.place / "order.parquet"
        if len(self.groups) == 1:
            return self.groups[0].users
        sort_users(self.place, self.memory, self.threads, [group.users for group in self.groups], target)
        return target

    def _block(self, order: Path, bounds: NDArray[np.int64], done: NDArray[np.int64]) -> tuple[Any, ...]:
        """The next block: the next users of each group, in the order of their ids."""
        lo, hi = bounds.tolist()
        users = pl.scan_parquet(order, glob=False).slice(lo, hi - lo).collect()
        counts, groups = users["n"].to_numpy().astype(np.int64), users["group"].to_numpy()
        by_group = np.argsort(groups, kind="stable")
        sizes = np.bincount(groups, weights=counts, minlength=len(self.groups)).astype(np.int64)
        indptr = np.concatenate(([0], np.cumsum(counts)))
        if indptr[-1] >= 2**31 - 1:
            raise DataError(f"a block would have {indptr[-1]:,} interactions; use more blocks")
        starts = np.empty(len(users), dtype=np.int64)  # of each user, in the interactions group by group
        starts[by_group] = np.concatenate(([0], np.cumsum(counts[by_group])[:-1]))
        places = np.repeat(starts - indptr[:-1], counts)
        places += np.arange(len(places))

        def gathered(what: str) -> NDArray[Any]:
            found = [
                group.load(what, slice(first, first + size))
                if group.has(what)
                else np.ones(size, dtype=np.float32)
                for group, first, size in zip(self.groups, done.tolist(), sizes.tolist(), strict=True)
            ]
            return np.concatenate(found)[places]

        weights = gathered("weights") if any(group.has("weights") for group in self.groups) else None
        arrays = (indptr, gathered("indices"), weights, gathered("times") if self.timed else None)
        done += sizes
        return users["u"].rechunk(), *arrays

    # --- the k-core ------------------------------------------------------------------------------

    def _core(self, least: tuple[int, int]) -> NDArray[np.bool_]:
        """Drop users and items with too few interactions from all groups, and return which items are left."""
        n_items = len(self.found.items)
        items = np.ones(n_items, dtype=bool)
        users = [np.ones(len(group.counts), dtype=bool) for group in self.groups]
        rounds = 0
        while True:
            rounds += 1
            popularity = np.zeros(n_items, dtype=np.int64)
            dropped = 0
            for group, kept in zip(self.groups, users, strict=True):
                rows, columns = group.entries()
                alive = kept[rows] & items[columns]
                weak = kept & (np.bincount(rows[alive], minlength=len(kept)) < least[0])
                kept &= ~weak
                dropped += int(weak.sum())
                popularity += np.bincount(columns[alive & kept[rows]], minlength=n_items)
            weak = items & (popularity < least[1])
            items &= ~weak
            self.tell(f"k-core, round {rounds}: dropped {dropped:,} users and {int(weak.sum()):,} items")
            if not dropped and not weak.any():
                break
        if not (items.any() and any(kept.any() for kept in users)):
            raise DataError(
                f"nothing is left of the dataset in its {least[0]}/{least[1]}-core: no group of users and items is "
                "that dense. Ask for fewer interactions with min_user=... and min_item=..."
            )
        for group, kept in zip(self.groups, users, strict=True):
            group.restrict(kept, items)
        return items


def _numbered(ids: pl.Series) -> tuple[pl.Series, Codes]:
    """What `encode` returns, several times as fast where ids are repeated often.

    >>> values, codes = _numbered(pl.Series(["b", "a", "b"]))
    >>> values.to_list(), codes.tolist()
    (['a', 'b'], [1, 0, 1])
    """
    numbers, firsts = number_by_hash(ids.hash(0).to_numpy())
    found = ids.gather(firsts)
    if not (found.gather(numbers) == ids).all():  # two ids have the same hash
        return encode(ids)
    order = found.arg_sort().to_numpy()
    ranks = np.empty(len(order), dtype=np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return found.gather(order), ranks[numbers]
