"""Filters on the attributes of items: ``category = "books" and price < 20``.

A filter is parsed here, by hand, into comparisons of columns with values. No part of it is run as code.

    filter     = either
    either     = both { "or" both }
    both       = negation { "and" negation }
    negation   = "not" negation | "(" either ")" | comparison
    comparison = column ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
               | column [ "not" ] "in" "(" value { "," value } ")"
               | column [ "not" ] "contains" value
               | column "is" [ "not" ] "null"

A column or a value is a word, a number or a text in quotes. Where a value is missing, every comparison is false,
except `is null`; `!=` and `not in` are false there, too, as in SQL.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truelike.data.frames import POLARS_ERRORS
from truelike.errors import FilterError, some
from truelike.rules.budget import check_time, compared

Mask = NDArray[np.bool_]

LONGEST = 2_000  # letters of a filter
DEEPEST = 30  # parentheses and negations inside each other
MOST_COMPARISONS, MOST_VALUES = 100, 1_000  # of all filters of a request, and of a list of values
CACHED, CACHED_BYTES = 500, 64 * 2**20  # of masks that are kept

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w]))
    | (?P<sign><=|>=|!=|==|<>|=|<|>|\(|\)|,)
    | (?P<word>[^\W\d][\w.-]*)
    | (?P<other>\S)
    )""",
    re.VERBOSE,
)
_SIGNS: dict[str, Callable[[pl.Series, Any], pl.Series]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<>": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_WORDS = ("and", "or", "not", "in", "is", "null", "contains")


def no_column(name: str, known: Iterable[str]) -> FilterError:
    """The error for a column that the items do not have."""
    return FilterError(f"the items have no column {name[:80]!r}. They have {some(sorted(known), limit=20)}.")


class Token(NamedTuple):
    """A word, a number, a text or a sign of a filter, and where it begins."""

    kind: str
    value: str
    start: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of the words of the language."""
        return self.kind == "word" and self.value.lower() in words


def tokens_of(text: str) -> list[Token]:
    """Split a filter.

    >>> [token.value for token in tokens_of("price<20 and kind = 'hot drink'")]
    ['price', '<', '20', 'and', 'kind', '=', 'hot drink']
    """
    if len(text) > LONGEST:
        raise FilterError(f"the filter has {len(text):,} letters; at most {LONGEST:,} are possible")
    found = []
    for match in _TOKEN.finditer(text):
        kind, start = str(match.lastgroup), match.start(str(match.lastgroup))
        if kind == "other":
            raise FilterError(
                f"the filter has {text[start : start + 10]!r} at letter {start + 1}, which it cannot have there"
            )
        value = match[kind]
        found.append(Token(kind, re.sub(r"\\(.)", r"\1", value[1:-1]) if kind == "text" else value, start))
    return found


@dataclass
class _Parser:
    """A parser by recursive descent, which computes the mask of each part as it reads it."""

    tokens: list[Token]
    columns: dict[str, pl.Series]
    at: int = 0
    comparisons: int = 0

    def parse(self) -> Mask:
        if not self.tokens:
            raise FilterError("the filter is empty; expected a comparison such as price < 20")
        mask = self.either(0)
        if self.at < len(self.tokens):
            raise self.unexpected("the end, `and` or `or`")
        return mask

    def peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self, expected: str, *kinds: str) -> Token:
        """The next token, which must be of one of these kinds."""
        token = self.peek()
        if token is None or token.kind not in kinds:
            raise self.unexpected(expected)
        self.at += 1
        return token

    def need(self, word: str, expected: str) -> None:
        if not self.skip(word):
            raise self.unexpected(expected)

    def skip(self, *words: str) -> bool:
        """Whether the next token is one of these words or signs; it is taken then."""
        token = self.peek()
        found = token is not None and (token.is_word(*words) or (token.kind == "sign" and token.value in words))
        self.at += found
        return found

    def unexpected(self, expected: str) -> FilterError:
        token = self.peek()
        found = "it ends" if token is None else f"it has {token.value[:40]!r} at letter {token.start + 1}"
        return FilterError(f"the filter cannot be read: {found}; expected {expected}")

    def either(self, depth: int) -> Mask:
        mask = self.both(depth)
        while self.skip("or"):
            mask = mask | self.both(depth)
        return mask

    def both(self, depth: int) -> Mask:
        mask = self.negation(depth)
        while self.skip("and"):
            mask = mask & self.negation(depth)
        return mask

    def negation(self, depth: int) -> Mask:
        if depth > DEEPEST:
            raise FilterError(f"the filter has more than {DEEPEST} parentheses inside each other")
        if self.skip("not"):
            return ~self.negation(depth + 1)
        if self.skip("("):
            mask = self.either(depth + 1)
            self.need(")", "`)`")
            return mask
        return self.comparison()

    def count(self) -> None:
        self.comparisons += 1
        if self.comparisons > MOST_COMPARISONS:
            raise FilterError(f"the filter has more than {MOST_COMPARISONS} comparisons")
        check_time()

    def comparison(self) -> Mask:
        self.count()
        token = self.peek()
        if token is not None and token.is_word(*_WORDS):
            raise self.unexpected("the name of a column")
        name = self.take("the name of a column", "word", "text").value
        column = self.columns.get(name)
        if column is None:
            raise no_column(name, self.columns)
        if self.skip("is"):
            wanted = not self.skip("not")
            self.need("null", "`null`")
            return self.mask(column.is_null() == wanted)
        negative = self.skip("not")
        if self.skip("in"):
            mask = self.is_in(column)
        elif self.skip("contains"):
            mask = self.contains(column, self.value())
        elif negative:
            raise self.unexpected("`in` or `contains`")
        else:
            sign = self.peek()
            if sign is None or sign.value not in _SIGNS or sign.kind != "sign":
                raise self.unexpected("=, !=, <, <=, >, >=, in, contains or is")
            self.at += 1
            return self.compare(column, sign.value, self.value())
        return ~mask & self.mask(column.is_not_null()) if negative else mask

    def value(self) -> Token:
        return self.take("a value", "word", "text", "number")

    def is_in(self, column: pl.Series) -> Mask:
        self.need("(", "`(` and values")
        values = [self.value()]
        while self.skip(","):
            if len(values) == MOST_VALUES:
                raise FilterError(f"a list of a filter has more than {MOST_VALUES:,} values")
            values.append(self.value())
        self.need(")", "`,` or `)`")
        if column.dtype in (pl.String, pl.Int64, pl.Float64):
            typed = [_typed(column.name, column.dtype, value) for value in values]
            if column.dtype != pl.Int64 or all(isinstance(value, int) for value in typed):
                return self.mask(column.is_in(pl.Series(typed, dtype=column.dtype).implode()))  # in one pass
        mask = self.compare(column, "=", values[0])
        for value in values[1:]:
            self.count()
            mask = mask | self.compare(column, "=", value)
        return mask

    def contains(self, column: pl.Series, value: Token) -> Mask:
        if isinstance(column.dtype, pl.List):
            return self.mask(column.list.contains(_typed(column.name, column.dtype.inner, value, in_list=True)))
        if column.dtype == pl.String:
            return self.mask(column.str.contains(value.value, literal=True))
        raise FilterError(f"the column {column.name!r} is {column.dtype}; `contains` is for texts and lists")

    def compare(self, column: pl.Series, sign: str, value: Token) -> Mask:
        if isinstance(column.dtype, pl.List):
            raise FilterError(f"the column {column.name!r} has lists: use `{column.name} contains {value.value}`")
        try:
            return self.mask(_SIGNS[sign](column, _typed(column.name, column.dtype, value, sign)))
        except POLARS_ERRORS as error:
            raise FilterError(f"{column.name!r} cannot be compared with {value.value[:80]!r}: {error}") from error

    def mask(self, found: pl.Series) -> Mask:
        return found.fill_null(False).to_numpy().astype(bool)


def _typed(name: str, dtype: Any, value: Token, sign: str = "=", *, in_list: bool = False) -> Any:
    """A value in the type of its column."""
    text = value.value
    if dtype.is_numeric():
        if value.kind != "number":
            raise FilterError(f"the column {name!r} has numbers; it cannot be compared with {text[:80]!r}")
        whole = re.fullmatch(r"[-+]?\d{1,18}", text)
        if in_list and not dtype.is_float() and not whole:
            raise FilterError(f"the lists of the column {name!r} have whole numbers; {text[:80]!r} is none")
        return int(text) if whole and not dtype.is_float() else float(text)
    if dtype == pl.Boolean:
        if sign not in ("=", "==", "!=", "<>"):
            raise FilterError(f"the column {name!r} has true and false: it is compared by = and !=, not by {sign}")
        if text.lower() not in ("true", "false"):
            raise FilterError(f"the column {name!r} has true and false; it cannot be compared with {text[:80]!r}")
        return text.lower() == "true"
    if dtype.is_temporal():
        try:
            return pl.Series([text]).str.to_datetime().cast(dtype)[0]
        except POLARS_ERRORS as error:
            raise FilterError(
                f"the column {name!r} has times; {text[:80]!r} is none. Write '2024-12-31' or '2024-12-31 18:00:00'."
            ) from error
    return text


class Values(NamedTuple):
    """The values that items have in a column, as numbers: those of item n are indices[indptr[n] : indptr[n + 1]]."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.uint32]

    def of(self, item: int) -> list[int]:
        """The values of an item; of a column of lists there may be several, of a missing value there is none."""
        found: list[int] = self.indices[self.indptr[item] : self.indptr[item + 1]].tolist()
        return found


class Filters:
    """The columns of a table with a row for each item, and the masks of filters, of which the latest are kept.

    >>> filters = Filters(pl.DataFrame({"category": ["tea", "rum", "tea"], "price": [3, 20, 40]}))
    >>> filters.mask("category = tea and price < 20").tolist()
    [True, False, False]
    """

    def __init__(self, table: pl.DataFrame) -> None:
        self.columns = {name: table[name] for name in table.columns}
        most = max(1, min(CACHED, CACHED_BYTES // max(1, table.height)))
        self._mask = lru_cache(most)(partial(_mask, self.columns))
        self._values = lru_cache(most)(partial(_values, self.columns))

    def mask(self, text: str) -> Mask:
        """Whether each item fits a filter: an array that must not be changed."""
        self._check_columns()
        mask, comparisons = self._mask(text)
        if compared(text, comparisons) > MOST_COMPARISONS:
            raise FilterError(
                f"the filters of the request have more than {MOST_COMPARISONS} comparisons in all. Ask for fewer "
                "boosts, or put values into a list: column in (a, b)."
            )
        return mask

    def values(self, column: str) -> Values:
        """The values of the items in a column."""
        self._check_columns()
        return self._values(column)

    def _check_columns(self) -> None:
        if not self.columns:
            raise FilterError(
                "there are no attributes of items: give a table of them, with Rules(items=...) in Python and with "
                "--items FILE to `truelike recommend` and `truelike serve`"
            )


def _values(columns: dict[str, pl.Series], name: str) -> Values:
    """The values of the items in a column: equal values have equal numbers."""
    column = columns.get(name)
    if column is None:
        raise no_column(name, columns)
    check_time()
    rows = pl.DataFrame({"item": np.arange(len(column), dtype=np.int64), "value": column})
    if isinstance(column.dtype, pl.List):
        rows = rows.explode("value").unique(maintain_order=True)
    rows = rows.drop_nulls("value").with_columns(pl.col("value").rank("dense").cast(pl.UInt32))
    counts = np.bincount(rows["item"].to_numpy(), minlength=len(column))
    return Values(np.append(0, np.cumsum(counts)), rows["value"].to_numpy())


def _mask(columns: dict[str, pl.Series], text: str) -> tuple[Mask, int]:
    """The mask of a filter, and the number of its comparisons."""
    parser = _Parser(tokens_of(text), columns)
    try:
        return parser.parse(), parser.comparisons
    except (*POLARS_ERRORS, ArithmeticError, TypeError) as error:
        raise FilterError(f"the filter cannot be used: {some([error], longest=200)}") from error
