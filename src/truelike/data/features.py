"""Features of users or items: `FeatureTable`, as they were given, and `Features`, as a sparse matrix.

In the matrix each word becomes a feature of its own, and each column of numbers one feature. How each column was read
is kept, so that further rows can be read in the same way.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.columns import id_column
from truelike.data.files import FORMATS, Picked, read_picked
from truelike.data.frames import POLARS_ERRORS, is_frame, missing, names_of, to_polars
from truelike.data.ids import Codes, Ids, encode, normalise
from truelike.data.matrix import checked_csr
from truelike.errors import DataError, DataWarning, ParameterError, quoted, some, warn

OnUnknownValue = Literal["raise", "skip"]
OnMissing = Literal["raise", "zeros"]
TITLES = ("title", "name")  # of a column of items
KINDS = (
    "Features are numbers, words (text, categories, True and False) or lists of words. Turn a date into a year, "
    "and a vector into a column for each number."
)


@dataclass(frozen=True)
class Column:
    """How a column was read: its `words`, one feature each, or None for a column of numbers.

    Numbers are centred and scaled by the mean and the standard deviation of the rows that were read first.
    """

    name: str
    words: tuple[str, ...] | None
    mean: float = 0.0
    scale: float = 1.0

    @property
    def names(self) -> list[str]:
        """The features of the column."""
        return [self.name] if self.words is None else [f"{self.name}={word}" for word in self.words]


@dataclass(frozen=True, eq=False)
class Features:
    """Features of users or items.

    Attributes
    ----------
    ids
        The users or items.
    matrix
        CSR (ids x features). The words of a row in one column share the weight 1. A missing value has no entry.
    columns
        How each column was read.

    Examples
    --------
    >>> table = pl.DataFrame({"item": ["tea", "milk"], "kind": [["hot", "drink"], ["drink"]], "price": [3.0, 1.0]})
    >>> features = Features.read(table, "item")
    >>> list(features.ids), features.names
    (['milk', 'tea'], ['kind=drink', 'kind=hot', 'price'])
    >>> features.matrix.toarray()
    array([[ 1. ,  0. , -1. ],
           [ 0.5,  0.5,  1. ]], dtype=float32)
    """

    ids: Ids
    matrix: sparse.csr_array
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        """The name of each feature."""
        return [name for column in self.columns for name in column.names]

    @classmethod
    def read(
        cls,
        table: Any,
        what: str,
        *,
        like: tuple[Column, ...] | None = None,
        on_unknown: OnUnknownValue = "raise",
    ) -> Self:
        """Read a frame, or a CSV or Parquet file, with a row for each user or item (`what`).

        The column of ids is recognised by a common name such as `item_id` or `id`; otherwise it is the first. `like`
        are columns that were read before: the table must have them, others are ignored, and a word that was not
        read before is an error or skipped (`on_unknown`).
        """
        if on_unknown not in ("raise", "skip"):
            raise ParameterError(f'on_unknown is {on_unknown!r}; expected "raise" or "skip"')
        frame = _frame(table, what)
        ids, rows = _ids(frame, what)
        parts: list[sparse.csr_array] = []
        columns: list[Column] = []
        for name in (column.name for column in like) if like is not None else frame.columns[1:]:
            if name not in frame.columns:
                raise DataError(
                    f"the {what} features have no column {name!r}, which they had in training. Add it."
                )
            before = None if like is None else next(column for column in like if column.name == name)
            column, part = _column(frame[name], before, what, ids, rows, on_unknown)
            columns.append(column)
            parts.append(part)
        if not parts:
            raise DataError(
                f"the {what} features have a column of ids, {frame.columns[0]!r}, and no other. Add one."
            )
        return cls(ids, sparse.hstack(parts, format="csr", dtype=np.float32), tuple(columns))

    def with_kind_of(self, ids: Ids) -> Self:
        """The same features with ids of the kind that a dataset has: in a file, 7 may be a number or text."""
        own, order = ids_of_kind(self.ids, ids)
        return self if own is self.ids else type(self)(own, self.matrix[order], self.columns)

    def missing_ids(self, ids: Ids) -> list[Any]:
        """Those of the ids that have no row of features."""
        return ids.take(np.flatnonzero(self.ids.codes(ids.values) < 0).astype(np.int32)).to_list()

    def of(self, ids: Ids, missing: OnMissing = "raise") -> Self:
        """The features of the given ids, in their order; `missing` says what an id without a row gets.

        >>> features = Features.read(pl.DataFrame({"item": ["milk", "tea"], "kind": ["cold", "hot"]}), "item")
        >>> items = Ids(pl.Series(["ale", "tea"]), "str", "item")
        >>> features.of(items, missing="zeros").matrix.toarray().tolist()
        [[0.0, 0.0], [0.0, 1.0]]
        >>> features.missing_ids(items)
        ['ale']
        """
        if missing not in ("raise", "zeros"):
            raise ParameterError(f'missing_features is {missing!r}; expected "raise" or "zeros"')
        lacking = self.missing_ids(ids)
        if lacking and missing == "raise":
            what, have = (self.ids.what, "has") if len(lacking) == 1 else (f"{self.ids.what}s", "have")
            raise DataError(
                f"{len(lacking):,} of {len(ids):,} {self.ids.what}s of the dataset {have} no row of features: the "
                f"{what} {some(map(repr, lacking))}. Add a row for each (its values may be missing), or pass "
                'missing_features="zeros" to train them without features.'
            )
        codes = self.ids.codes(ids.values)
        if not lacking:
            return type(self)(ids, self.matrix[codes], self.columns)
        nothing = sparse.csr_array((1, self.matrix.shape[1]), dtype=np.float32)
        padded = sparse.vstack([self.matrix, nothing], format="csr")
        return type(self)(ids, padded[np.where(codes < 0, len(self.ids), codes)], self.columns)

    def updated_with(self, more: Features) -> Features:
        """The rows of both, which must have the same columns; where an id is in both, the row of `more` counts."""
        ids = self.ids.union(more.ids)
        here, there = self.ids.codes(ids.values), more.ids.codes(ids.values)
        both = sparse.vstack([self.matrix, more.matrix], format="csr")
        rows = np.where(there >= 0, there + len(self.ids), here)
        return Features(ids, both[rows], self.columns)

    def digest(self) -> str:
        """A hash of the features."""
        found = hashlib.sha256(self._columns_as_bytes())
        for array in (self.matrix.indptr, self.matrix.indices, self.matrix.data):
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def _columns_as_bytes(self) -> bytes:
        return json.dumps([asdict(column) for column in self.columns]).encode()

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Everything but the ids, as arrays of numbers."""
        parts = {"data": self.matrix.data, "indices": self.matrix.indices, "indptr": self.matrix.indptr}
        return {**parts, "columns": np.frombuffer(self._columns_as_bytes(), dtype=np.uint8)}

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[np.generic]], ids: Ids) -> Self:
        """Features from what `arrays` gave, and the ids."""
        stored = json.loads(arrays["columns"].tobytes())
        columns = tuple(
            Column(**{**column, "words": None if column["words"] is None else tuple(column["words"])})
            for column in stored
        )
        width = sum(len(column.names) for column in columns)
        parts = (arrays["data"], arrays["indices"], arrays["indptr"])
        return cls(ids, checked_csr(parts, (len(ids), width)), columns)


def ids_of_kind(ids: Ids, like: Ids) -> tuple[Ids, NDArray[np.uint32]]:
    """Ids of a table in the kind that those of a dataset have, sorted, and which each was."""
    if ids.kind == like.kind:
        return ids, np.arange(len(ids), dtype=np.uint32)
    values = ids.values.cast(like.values.dtype, strict=False)
    same = (values.cast(pl.String) == ids.values.cast(pl.String)).fill_null(False)
    if not same.all():
        raise DataError(
            f"the {like.what} features have ids such as {ids.values.filter(~same)[0]!r}, the dataset has ids such as "
            f"{like.values[0]!r}. Give both the same type."
        )
    order = values.arg_sort()
    return Ids(values.gather(order), like.kind, like.what), order.to_numpy()


def _frame(table: Any, what: str) -> pl.DataFrame:
    """The table as polars, with the ids as the first column."""
    if isinstance(table, (str, Path)):
        table = _file(Path(table), what)
    if not is_frame(table):
        raise DataError(
            f"{what} features are {type(table).__name__}; expected a pandas, polars or pyarrow frame, or the path "
            "of a CSV or Parquet file, with a column of ids and one or more others"
        )
    if getattr(getattr(table, "index", None), "name", None) is not None:  # a pandas frame with ids in its index
        table = table.reset_index()
    names = names_of(table)
    try:
        frame = to_polars(table, names)
    except (*POLARS_ERRORS, TypeError, ValueError) as error:
        raise DataError(f"the {what} features cannot be read: {some([error], longest=300)}. {KINDS}") from error
    first = _id_column(names, what)
    return frame.select(first, *(name for name in names if name != first))


def _id_column(names: list[str], what: str) -> str:
    if not names:
        raise DataError(f"the {what} features have no columns; expected a column of ids and one or more others")
    return id_column(names, what) or names[0]


def _file(path: Path, what: str) -> pl.DataFrame:
    """A file as a table. Ids in text are read as text, because 007 is not 7; other columns are numbers if all are."""
    known = FORMATS.keys() & {suffix.lower() for suffix in path.suffixes}

    def ids_first(names: list[str]) -> Picked:
        first = _id_column(names, what)
        return Picked([first, *(name for name in names if name != first)])

    try:
        table = read_picked(path, ids_first, f"{what} features", format=None if known else "csv")
    except DataError as error:
        raise DataError(f"the {what} features cannot be read from {quoted(path)}: {error}") from error
    if not table.text:
        return table.frame
    return table.frame.with_columns(_as_numbers(table.frame[name]) for name in table.columns.names[1:])


def _as_numbers(series: pl.Series) -> pl.Series:
    """A column of text as numbers, if all its values are."""
    if series.null_count() == len(series):
        return pl.Series(series.name, [None] * len(series), dtype=pl.Null)
    for kind in (pl.Int64, pl.Float64):
        numbers = series.cast(kind, strict=False)
        if numbers.null_count() == series.null_count():
            return numbers
    return series


def _ids(frame: pl.DataFrame, what: str) -> tuple[Ids, NDArray[np.int32]]:
    """The ids, and for each row of the table the place of its id."""
    series, kind = normalise(frame.to_series(0), what)
    if missing(series).any():
        row = int(missing(series).arg_true()[0]) + 1
        raise DataError(f"row {row} of the {what} features has no id. Remove it, or add the id.")
    values, rows = encode(series)
    if len(values) < len(series):
        twice = series.filter(series.is_duplicated()).unique(maintain_order=True)
        raise DataError(
            f"the {what} {some(map(repr, twice.to_list()))} has more than one row of features. Keep one."
        )
    return Ids(values, kind, what), rows


def _column(
    series: pl.Series,
    before: Column | None,
    what: str,
    ids: Ids,
    rows: NDArray[np.int32],
    on_unknown: OnUnknownValue,
) -> tuple[Column, sparse.csr_array]:
    """How a column is read, and its part of the matrix; `before` is how it was read before."""
    numbers = before is not None and before.words is None
    if series.dtype == pl.Null:  # all values are missing
        series = series.cast(pl.Float64 if numbers else pl.String)
    if series.dtype.is_numeric() and (before is None or numbers):
        return _numbers(series, before, rows, len(ids), what)
    if numbers:
        raise DataError(
            f"the column {series.name!r} of the {what} features has words; in training it had numbers. Use these."
        )
    words = _words(series, rows, what)
    different = words["word"].n_unique()
    if before is None and different > max(50, 0.5 * len(ids)):
        warn(
            f"the column {series.name!r} of the {what} features has {different:,} different words in {len(ids):,} "
            f"rows, so most of them describe one {what} only. If it is a name or a title, leave it out.",
            DataWarning,
        )
    found = tuple(sorted(words["word"].unique().to_list())) if before is None else before.words or ()
    place = {word: n for n, word in enumerate(found)}
    codes = np.array([place.get(word, -1) for word in words["word"]], dtype=np.int32)
    if (codes < 0).any() and on_unknown == "raise":
        row = words.filter(pl.Series(codes < 0)).row(0)
        raise DataError(
            f"the {what} {ids.values[row[0]]!r} has {series.name}={row[1]!r}, which was not among the "
            f"{len(found):,} values of training ({some(map(repr, found), 3)}). Correct it, leave it empty, or "
            'pass on_unknown="skip".'
        )
    at, of = codes[codes >= 0], words["row"].to_numpy()[codes >= 0]
    shared = 1 / np.maximum(np.bincount(of, minlength=len(ids)), 1)
    shape = (len(ids), len(found))
    part = sparse.csr_array((shared[of].astype(np.float32), (of, at)), shape=shape)
    return before or Column(series.name, found), part


def _words(series: pl.Series, rows: NDArray[np.int32], what: str) -> pl.DataFrame:
    """A frame (row, word). A text with bars is a list of words: "Action|Comedy"."""
    kind = series.dtype
    inner = kind.inner if isinstance(kind, pl.List) else kind
    if not (inner in (pl.String, pl.Boolean, pl.Categorical, pl.Enum, pl.Null) or inner.is_integer()):
        raise DataError(f"the column {series.name!r} of the {what} features is of type {kind}. {KINDS}")
    words = pl.DataFrame({"row": rows, "word": series})
    if isinstance(kind, pl.List):
        words = words.explode("word")
    words = words.with_columns(pl.col("word").cast(pl.String).str.split("|")).explode("word")
    words = words.with_columns(pl.col("word").str.strip_chars())
    return words.drop_nulls("word").filter(pl.col("word") != "").unique(maintain_order=True)


def _numbers(
    series: pl.Series, before: Column | None, rows: NDArray[np.int32], n: int, what: str
) -> tuple[Column, sparse.csr_array]:
    values = series.cast(pl.Float64).fill_nan(None)
    if values.is_infinite().any():
        raise DataError(
            f"the column {series.name!r} of the {what} features has a number that is not finite. Replace it."
        )
    if before is None:
        mean, scale = float(values.mean() or 0.0), float(values.std(ddof=0) or 0.0)  # type: ignore[arg-type]
        if not np.isfinite(mean) or not np.isfinite(scale):
            raise DataError(
                f"the numbers of the column {series.name!r} of the {what} features are too large. Scale them."
            )
        before = Column(series.name, None, mean, scale or 1.0)
    given = values.is_not_null().to_numpy()
    scaled = ((values.fill_null(0.0).to_numpy() - before.mean) / before.scale)[given]
    place = (rows[given], np.zeros(int(given.sum()), dtype=np.int32))
    return before, sparse.csr_array((scaled.astype(np.float32), place), shape=(n, 1))


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features of the users or the items of a dataset: categories, lists, numbers, vectors and texts.

    The columns are kept as they were given. A model turns them into numbers in its own way (`Features`).

    Attributes
    ----------
    frame
        A polars frame with a row for each user or item, in their order; null where nothing is known.
    known
        Which of them have a row in the table that was read.

    Examples
    --------
    >>> import truelike as tl
    >>> products = pl.DataFrame({"item": ["gin", "tea"], "name": ["Dry gin", "Green tea"], "price": [12.0, 3.0]})
    >>> data = tl.read([("ann", "tea"), ("bob", "rum")], items=products)
    >>> list(data.items), data.item_features.frame["price"].to_list(), data.titles.to_list()
    (['gin', 'rum', 'tea'], [12.0, None, 3.0], ['Dry gin', 'rum', 'Green tea'])
    """

    frame: pl.DataFrame
    known: NDArray[np.bool_]

    @property
    def columns(self) -> list[str]:
        """The names of the features."""
        return self.frame.columns

    def recode(self, codes: Codes) -> FeatureTable:
        """The rows at some row numbers; -1 is one of which nothing is known."""
        there = codes >= 0
        numbers = pl.Series(codes, dtype=pl.Int64).set(pl.Series(~there), None)
        known = np.zeros(len(codes), dtype=bool)
        known[there] = self.known[codes[there]]
        return FeatureTable(self.frame.select(pl.all().gather(numbers)), known)

    def merge(self, other: FeatureTable) -> FeatureTable:
        """The rows of both, of the same ids; the row of `other` counts where both have one."""
        chosen = pl.Series("known", other.known)
        columns = []
        for name in dict.fromkeys([*self.columns, *other.columns]):
            old = self.frame[name] if name in self.columns else pl.Series(name, [None] * len(chosen))
            new = other.frame[name] if name in other.columns else pl.Series(name, [None] * len(chosen))
            both = pl.DataFrame({"old": old, "new": new, "known": chosen})
            columns.append(both.select(pl.when("known").then("new").otherwise("old").alias(name)).to_series())
        return FeatureTable(pl.DataFrame(columns), self.known | other.known)

    def table(self, ids: Ids) -> pl.DataFrame:
        """The ids of the dataset that have a row, and their features."""
        named = pl.DataFrame([ids.values.alias(f"{ids.what}_id"), *self.frame.get_columns()])
        return named.filter(pl.Series(self.known))


@dataclass(frozen=True, eq=False)
class ReadFeatures:
    """A table as it was read: ids, features of these, and titles if there is a column of them."""

    ids: Ids
    table: FeatureTable | None
    titles: pl.Series | None


def read_features(source: Any, like: Ids) -> ReadFeatures:
    """Read a frame, or a CSV or Parquet file, with a row for each user or item and a column of ids of the kind `like`.

    A column `title` or `name` of items has their titles, and is no feature.
    """
    frame = _frame(source, like.what)
    found, places = _ids(frame, like.what)
    ids, order = ids_of_kind(found, like)
    rows = frame.drop(frame.columns[0])[np.argsort(places)[order]]
    lower = {name.strip().lower(): name for name in reversed(rows.columns)}
    titled = next((lower[name] for name in TITLES if name in lower), None)
    titles = None
    if like.what == "item" and titled is not None:
        titles = rows[titled].cast(pl.String)
        rows = rows.drop(titled)
    table = FeatureTable(rows, np.ones(len(ids), dtype=bool)) if rows.width else None
    return ReadFeatures(ids, table, titles)
