"""`Blocks`: the interactions of a block directory, which need not fit into memory."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.array_files import checksum, read_arrays
from truelike.core.files import OpenDirectory, as_place, reading
from truelike.core.forks import check_not_forked
from truelike.core.memory import SHARE, available_memory, check_memory
from truelike.data.blocks.format import DESCRIPTION, FORMAT, ITEMS, SHOWN, array_file, tiles, user_file
from truelike.data.blocks.ids import BlockIds
from truelike.data.dataset import Dataset
from truelike.data.features import FeatureTable
from truelike.data.feedback import Feedback
from truelike.data.frames import Library
from truelike.data.ids import Codes, Ids, check_kind
from truelike.data.impressions import read_shown
from truelike.data.parquet_check import damage
from truelike.data.part_files import FEATURES, KINDS, read_entries, read_features, read_parquet
from truelike.data.schema import Schema
from truelike.data.titles import titles_of
from truelike.errors import ParameterError, StorageError


@dataclass(frozen=True)
class BuildReport:
    """What `build` wrote: counts, and the seconds it took.

    `rows` are those that were read, `dropped` those among them that are bad.
    """

    users: int
    items: int
    interactions: int
    blocks: int
    rows: int
    dropped: int
    seconds: float


@dataclass(frozen=True)
class Block:
    """The interactions of a contiguous range of users.

    Attributes
    ----------
    number
        Number of the block.
    first_user, n_users, n_items
        Row number of its first user, and the shape of its CSR.
    indptr, indices
        The CSR of its users.
    tile, tile_users, tile_starts
        The interactions by item, in tiles of `tile` users; see `format.by_item`.
    weights, times
        Of each interaction; None if there are none.
    """

    number: int
    first_user: int
    n_users: int
    n_items: int
    indptr: NDArray[np.int32]
    indices: Codes
    tile: int
    tile_users: NDArray[np.int32]
    tile_starts: NDArray[np.int32]
    weights: NDArray[np.float32] | None = None
    times: NDArray[np.int64] | None = None

    @property
    def rows(self) -> slice:
        """The row numbers of its users."""
        return slice(self.first_user, self.first_user + self.n_users)

    @property
    def csr(self) -> sparse.csr_array:
        """The CSR of its users, with their weights."""
        data = np.ones(len(self.indices), dtype=np.float32) if self.weights is None else self.weights
        return sparse.csr_array((data, self.indices, self.indptr), shape=(self.n_users, self.n_items))

    def take(self, rows: NDArray[np.integer]) -> sparse.csr_array:
        """The CSR of some of its users."""
        data = self.indices if self.weights is None else self.weights
        found = sparse.csr_array((data, self.indices, self.indptr), shape=(self.n_users, self.n_items))[rows]
        if self.weights is None:
            found.data = np.ones(found.nnz, dtype=np.float32)
        return found

    def to_dataset(self) -> Dataset:
        """The users of the block as a Dataset, with row numbers as ids."""
        users, items = Ids.range(self.n_users, "user"), Ids.range(self.n_items, "item")
        return Dataset.unchecked(users, items, self.csr, self.times)

    def of_tiles(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Values of the interactions, in the order of `tile_users`."""
        turned = np.empty_like(values)
        for mine, by_item in tiles(self.indptr, self.indices, values, self.n_items, self.tile):
            turned[mine] = by_item.data
        return turned


class Blocks:
    """The interactions of a block directory; `tl.blocks.open` opens one.

    `fit`, `evaluate` and `recommend_to` take it in place of a `Dataset`. Its arrays are memory-mapped, one block at a
    time, and user ids are read when they are asked for. `IALS` and `SampledMF` with its presets train block by block.
    Other models read all blocks into memory, if they fit.

    Attributes
    ----------
    users, items
        The ids, sorted.
    directory
        The directory.
    scratch
        The directory for the users' tables of models that are trained on it.
    titles
        A title for each item; None if there are no titles.
    report
        What `tl.blocks.build` read and wrote, and how long it took; None if the directory was opened.
    kinds, shown, item_features, user_features
        What else is known, as in a `Dataset`; `shown` are blocks, too.
    """

    times = None  # of each interaction: they stay in the blocks

    def __init__(
        self,
        directory: str | Path,
        *,
        in_memory: bool = False,
        scratch: str | Path | None = None,
        report: BuildReport | None = None,
    ) -> None:
        self.report = report
        self.in_memory = in_memory
        self.library: Library = "polars"
        with OpenDirectory(directory, "block directory", DESCRIPTION, (ITEMS,)) as files:
            self.directory = files.place
            with reading(files.place, "block directory"):
                about = files.about(FORMAT)
                items = read_parquet(files, ITEMS)
                check_kind(items["item_id"], about["ids"]["item"], "item")
                self._describe(about)
        self.items = Ids(items["item_id"], about["ids"]["item"], "item")
        self.titles: pl.Series | None = items["title"] if "title" in items.columns else None
        self._popularity: NDArray[np.int64] = items["popularity"].to_numpy().astype(np.int64)
        firsts = [block["first_user"] for block in self.about]
        self.users: Ids = BlockIds(about["ids"]["user"], firsts, self.bounds, self.ids_of_block)
        self._kept: dict[int, Block] = {}
        self._checked: set[int] = set()
        writable = os.access(self.directory, os.W_OK)
        default = self.directory if writable else Path(tempfile.gettempdir())
        self.scratch = default if scratch is None else as_place(scratch)

    def _describe(self, about: dict[str, Any]) -> None:
        self.name = str(about["name"])
        self.about: list[dict[str, Any]] = about["blocks"]
        self.has_weights, self.has_times = bool(about["weights"]), bool(about["times"])
        self.files = list(about["files"])
        self.shown = Blocks(self.directory / SHOWN, in_memory=self.in_memory) if about["shown"] else None
        self.bounds = np.cumsum([0, *(block["users"] for block in self.about)], dtype=np.int64)
        self._n_interactions: int = sum(block["interactions"] for block in self.about)
        if (found := (int(self.bounds[-1]), self._n_interactions)) != (about["users"], about["interactions"]):
            raise ValueError(f"{DESCRIPTION} has blocks of {found[0]} users and {found[1]} interactions in all")
        content = [[block["arrays"]["checksums"], block["files"]] for block in self.about]
        content_of_all = [content, about["files"], self.shown.digest if self.shown is not None else None]
        self.digest: str = hashlib.sha256(json.dumps(content_of_all, sort_keys=True).encode()).hexdigest()

    # --- blocks ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of blocks."""
        return len(self.about)

    def __iter__(self) -> Iterator[Block]:
        return (self.block(number) for number in range(len(self)))

    def block(self, number: int) -> Block:
        """A block. Its arrays are mapped until it is forgotten, or in memory with `in_memory`."""
        if number in self._kept:
            return self._kept[number]
        about, name = self.about[number], array_file(number)
        with reading(self.directory, "block directory"):
            with self._opened(name) as handle:
                try:
                    identity, arrays = read_arrays(handle.fileno(), mapped=not self.in_memory)
                except (ValueError, TypeError, KeyError) as error:
                    raise self.damage(number, str(error)) from error
            if identity != about["arrays"]["id"]:
                raise self.damage(number, f"{name} is of another block directory")
            if number not in self._checked:  # once in a process
                self._check(number, arrays)
                self._checked.add(number)
            first, users = int(self.bounds[number]), about["users"]
            block = Block(number, first, users, self.n_items, tile=about["tile"], **arrays)
        if self.in_memory:
            self._kept[number] = block
        return block

    def _opened(self, name: str) -> Any:
        check_not_forked()
        try:
            return (self.directory / name).open("rb")
        except FileNotFoundError:
            raise StorageError(
                f"the block directory in {str(self.directory)!r} is incomplete: {name} is missing. Build it again "
                "with `truelike blocks`."
            ) from None

    def _check(self, number: int, arrays: dict[str, NDArray[Any]]) -> None:
        """Raise if the arrays of a block are not those that were written: compiled loops trust them."""
        about = self.about[number]
        if about["arrays"]["checksums"] != {name: checksum(array) for name, array in arrays.items()}:
            raise self.damage(number, "its checksums are other ones")
        n, users = about["interactions"], about["users"]
        n_starts = -(-users // max(1, about["tile"])) * self.n_items + 1
        for name, length, stop in (
            ("indptr", users + 1, None),
            ("indices", n, self.n_items),
            ("tile_users", n, users),
            ("tile_starts", n_starts, None),
        ):
            array = arrays[name]
            if array.shape != (length,) or array.dtype != np.int32:
                raise self.damage(number, f"the array {name} has the shape {array.shape}")
            if stop is None and (array[0] != 0 or array[-1] != n or (array[1:] < array[:-1]).any()):
                raise self.damage(number, f"the array {name} is not sorted from 0 to {n}")
            if stop is not None and n and not 0 <= array.min() <= array.max() < stop:
                raise self.damage(number, f"the array {name} has values outside 0 to {stop - 1}")

    def damage(self, number: int, why: str) -> StorageError:
        """The error for a block that cannot be used."""
        return StorageError(
            f"block {number} in {str(self.directory)!r} is damaged: {why}. Build the block directory again with "
            "`truelike blocks`, or copy it again."
        )

    def ids_of_block(self, number: int) -> pl.Series:
        """The user ids of a block."""
        name = user_file(number)
        with reading(self.directory, "block directory"):
            with self._opened(name) as handle:
                content = handle.read()
            found = {"bytes": len(content), "crc32": zlib.crc32(content)}
            if found != self.about[number]["files"].get(name):
                raise self.damage(number, f"{name} has another size or CRC-32")
            if wrong := damage(io.BytesIO(content)):
                raise self.damage(number, f"{name}: {wrong}")
            return pl.read_parquet(content)["user_id"]

    # --- what else is known ---------------------------------------------------------------------

    @property
    def carries(self) -> frozenset[str]:
        """What is known beside the interactions, as in `Dataset.carries`."""
        there = {name.removesuffix(".parquet") for name in self.files} & {
            *FEATURES,
            KINDS.removesuffix(".parquet"),
        }
        return frozenset(there | set(["shown"] * (self.shown is not None) + ["times"] * self.has_times))

    def with_impressions(self, impressions: Blocks | str | Path) -> Blocks:
        """The same blocks with the impressions of another block directory, whose weights are counts."""
        if isinstance(impressions, (str, Path)):
            if not (Path(impressions) / DESCRIPTION).is_file():
                raise ParameterError(
                    f"{str(impressions)!r} is no block directory: build one with `truelike blocks IMPRESSIONS -o "
                    "shown/`"
                )
            impressions = Blocks(impressions)
        if not isinstance(impressions, Blocks):
            raise ParameterError(f"impressions of blocks are a block directory; got {type(impressions).__name__}")
        other = copy(self)
        other.shown = impressions
        return other

    @property
    def item_features(self) -> FeatureTable | None:
        """The features of the items; None if there are none."""
        return self._further.get("item_features")

    @property
    def user_features(self) -> FeatureTable | None:
        """The features of the users; None if there are none."""
        return self._further.get("user_features")

    @property
    def kinds(self) -> Mapping[str, Feedback]:
        """Other feedback by its name."""
        found: Mapping[str, Feedback] = self._further.get("kinds", {})
        return found

    @property
    def schema(self) -> Schema | None:
        """What the kinds of events mean; None if the rows had no kinds."""
        return self._further.get("schema")

    @cached_property
    def _further(self) -> dict[str, Any]:
        """The kinds, features and schema, which are read when they are first asked for."""
        shape, what = (self.n_users, self.n_items), "block directory"
        with OpenDirectory(self.directory, what, DESCRIPTION, self.files) as files, reading(self.directory, what):
            files.about(FORMAT)
            return {**read_entries(files, self.files, shape), **read_features(files, self.files, shape)}

    # --- as a Dataset has them ------------------------------------------------------------------

    @property
    def n_users(self) -> int:
        """The number of users."""
        return int(self.bounds[-1])

    @property
    def n_items(self) -> int:
        """The number of items."""
        return len(self._popularity)

    @property
    def n_interactions(self) -> int:
        """The number of distinct (user, item) pairs."""
        return self._n_interactions

    def popularity(self) -> NDArray[np.int64]:
        """The number of users of each item, in the order of `items`."""
        return self._popularity.copy()

    def interactions_per_user(self) -> NDArray[np.int64]:
        """The number of items of each user, in the order of `users`."""
        return self._counts

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        return np.concatenate([np.diff(block.indptr) for block in self]).astype(np.int64)

    def seen(self, user: Any) -> pl.Series:
        """The items that a user interacted with."""
        return self.items.take(self.items_of(int(self.users.known(user)[0]))).alias("item_id")

    def items_of(self, user: int) -> Codes:
        """The items of a user, by row numbers."""
        block = self.block(int(np.searchsorted(self.bounds, user, side="right")) - 1)
        row = user - block.first_user
        return np.array(block.indices[block.indptr[row] : block.indptr[row + 1]])

    def history_of(self, user: int) -> tuple[sparse.csr_array, NDArray[np.int64] | None]:
        """The interactions of a user as a CSR of one row, with weights, and their times."""
        block = self.block(int(np.searchsorted(self.bounds, user, side="right")) - 1)
        return block.to_dataset().history_of(user - block.first_user)

    def rows(self, users: Codes) -> tuple[sparse.csr_array, Codes]:
        """A CSR with the interactions of some users, and the row of each of them."""
        wanted, at = np.unique(users, return_inverse=True)
        places = np.searchsorted(self.bounds, wanted, side="right") - 1
        parts = [
            self.block(int(number)).take(wanted[places == number] - self.bounds[number])
            for number in np.unique(places)
        ]
        empty = sparse.csr_array((0, self.n_items), dtype=np.float32)
        return sparse.csr_array(sparse.vstack(parts or [empty], format="csr")), at.astype(np.int32)

    def every(self, step: int) -> sparse.csr_array:
        """A CSR of every `step`-th user."""
        return self.rows(np.arange(0, self.n_users, step, dtype=np.int32))[0]

    def digest_into(self, digest: Any) -> None:
        """Add all that models learn from to a digest."""
        digest.update(self.digest.encode())

    def parts(self) -> Iterator[Dataset]:
        """The interactions of each block, with the ids of its users."""
        for block in self:
            users = Ids(self.ids_of_block(block.number), self.users.kind, "user")
            yield Dataset.unchecked(users, self.items, block.csr, block.times)

    def with_titles(self, titles: Any, *, encoding: str = "utf-8") -> Blocks:
        """The same blocks with names of their items for people to read."""
        other = copy(self)
        other.titles = titles_of(self.items, titles, encoding=encoding)
        return other

    def recode(self, users: Ids, items: Ids) -> tuple[Dataset, int]:
        """The pairs of the given users and items as a Dataset, and the number of pairs of others."""
        return self.to_dataset().recode(users, items)

    def to_dataset(self) -> Dataset:
        """All blocks as one Dataset, in memory. A single block stays mapped.

        >>> import tempfile, truelike as tl
        >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("eve", "rum")])
        >>> with tempfile.TemporaryDirectory() as place:
        ...     blocks = tl.blocks.build(data, place + "/blocks", blocks=2, progress=False)
        ...     print(len(blocks), (blocks.to_dataset().matrix != data.matrix).nnz)
        2 0
        """
        needed = self.n_interactions * (8 if len(self) > 1 else 4) + 4 * self.n_users
        check_memory(
            needed + self.n_interactions * 8 * self.has_times,
            f"a Dataset of {self.n_interactions:,} interactions",
            "IALS, BPR, NBPO and the other presets of SampledMF train on the blocks themselves.",
        )
        blocks = list(self)

        def joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
            return parts[0] if len(parts) == 1 else np.concatenate(parts)

        indptr = np.concatenate([[0], np.cumsum(self.interactions_per_user())])
        indptr = indptr.astype(np.int32 if self.n_interactions < 2**31 else np.int64)
        indices, data = joined([block.indices for block in blocks]), np.ones(self.n_interactions, dtype=np.float32)
        for block in blocks:
            if block.weights is not None:
                data[indptr[block.first_user] : indptr[block.rows.stop]] = block.weights
        times = joined([block.times for block in blocks if block.times is not None]) if self.has_times else None
        matrix = sparse.csr_array((data, indices, indptr), shape=(self.n_users, self.n_items))
        users = Ids(self.users.values, self.users.kind, "user")
        return Dataset.unchecked(
            users,
            self.items,
            matrix,
            times,
            titles=self.titles,
            name=self.name,
            kinds=self.kinds,
            shown=None if self.shown is None else read_shown(self.shown.to_dataset(), users, self.items),
            item_features=self.item_features,
            user_features=self.user_features,
            schema=self.schema,
        )

    # --- scratch --------------------------------------------------------------------------------

    def empty(self, shape: Sequence[int], kind: Any) -> NDArray[Any]:
        """An array without values: in memory if it fits, otherwise as by `mapped`."""
        fits = math.prod(shape) * np.dtype(kind).itemsize <= SHARE * available_memory()
        return np.empty(shape, kind) if fits else self.mapped(*shape, kind=kind)

    def mapped(self, *shape: int, kind: Any = np.float32) -> NDArray[Any]:
        """An array of zeros in a file of the scratch directory, which disappears with the array."""
        n_bytes = math.prod(shape) * np.dtype(kind).itemsize
        if not n_bytes:
            return np.zeros(shape, dtype=kind)
        try:
            with tempfile.TemporaryFile(dir=self.scratch, prefix=".table-") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, n_bytes)  # a full disk is noticed here, not by a signal
                else:
                    file.truncate(n_bytes)
                return np.memmap(file, dtype=kind, mode="r+", shape=shape).view(np.ndarray)
        except OSError as error:
            raise StorageError(
                f"a table of {n_bytes / 1e9:.1f} GB cannot be kept in {str(self.scratch)!r}: {error.strerror}. "
                "Name a directory with more room: tl.blocks.open(..., scratch=...)."
            ) from error

    def __repr__(self) -> str:
        return (
            f"Blocks({self.n_interactions:,} interactions, {self.n_users:,} users, {self.n_items:,} items, "
            f"{len(self)} blocks)"
        )
