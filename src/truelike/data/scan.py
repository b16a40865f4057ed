"""Scans of bytes that tell whether the fast readers give the same rows as the careful ones.

`truelike.data.files` says what a valid row is. The fast readers follow that definition on most files, but not on all.
A scan answers False where they might not. It looks at a file once, mostly by searching for single bytes, which is
much faster than parsing.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

BOM = codecs.BOM_UTF8
QUOTE, LF, CR = (ord(letter) for letter in '"\n\r')
NESTED = 300  # brackets in one line of JSON: deeper nesting has a limit that differs between readers
LETTER_ESCAPE = re.compile(rb"\\u00[2-7]")  # of an ASCII character, which needs none


def csv_is_plain(blocks: Iterable[bytes], separator: str, width: int, *, longest: int, most_lines: int) -> bool:
    r"""Whether the fast reader of CSV gives the same rows as the careful one.

    The text must be UTF-8, every line must end in LF or CRLF, no record may be longer than `longest` bytes or
    `most_lines` lines, and a quote may only open a field, close it, or stand for another quote.

    >>> plain = lambda *blocks: csv_is_plain(blocks, ",", 2, longest=100, most_lines=10)
    >>> plain(b'a,"b ""c"" d"\r\n', b'"d\ne",f\n'), plain(b'a,b "c"\n'), plain(b"a\rb\n")
    (True, False, False)
    """
    quotes, text = _Quotes(separator, longest, most_lines), b""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for number, block in enumerate(blocks):
        text = block.removeprefix(BOM) if number == 0 else block
        if number == 0 and text.startswith(BOM):
            return False
        if _lone_carriage_return(text) or not quotes.fit(text):
            return False
        if decoder.getstate()[0] or not text.isascii():
            try:
                decoder.decode(text)
            except UnicodeDecodeError:
                return False
    return not quotes.open and not decoder.getstate()[0] and _ends_well(text, separator.encode(), width)


def _ends_well(text: bytes, separator: bytes, width: int) -> bool:
    """Whether no empty field is too many at the end of a file without a line end: polars does not see it."""
    last = text.rpartition(b"\n")[2]
    return not last.endswith(separator) or (b'"' not in last and last.count(separator) == width - 1)


def _lone_carriage_return(block: bytes) -> bool:
    return b"\r" in block and block.count(b"\r") != block.count(b"\r\n")


class _Quotes:
    """Whether quotes are used as they should be, block by block. A block begins at the start of a line."""

    def __init__(self, separator: str, longest: int, most_lines: int) -> None:
        self.before = np.isin(np.arange(256), [ord(separator), LF, QUOTE])  # an opening quote
        self.after = np.isin(np.arange(256), [ord(separator), LF, CR, QUOTE])  # a closing one
        self.longest, self.most_lines = longest, most_lines
        self.open = False  # whether the block begins inside of quotes
        self.size, self.lines = 0, 0  # of the record so far

    def fit(self, block: bytes) -> bool:
        """Whether the block is as it should be."""
        if not self.open and b'"' not in block:
            return _lines_are_short(block, self.longest)
        letters = np.frombuffer(block, dtype=np.uint8)
        places = np.flatnonzero(letters == QUOTE)
        padded = np.empty(len(letters) + 2, dtype=np.uint8)  # a block follows a line end, or ends the file
        padded[0] = padded[-1] = LF
        padded[1:-1] = letters
        opening, closing = places[int(self.open) :: 2], places[1 - int(self.open) :: 2]
        if not (self.before[padded[opening]].all() and self.after[padded[closing + 2]].all()):
            return False
        ends = np.flatnonzero(letters == LF)
        outside = np.flatnonzero((np.searchsorted(places, ends) + self.open) % 2 == 0)
        self.open ^= len(places) % 2 == 1
        return self._records_are_short(ends[outside] + 1, outside + 1, len(letters), len(ends))

    def _records_are_short(
        self, sizes: NDArray[np.intp], lines: NDArray[np.intp], size: int, n_lines: int
    ) -> bool:
        """Whether no record is too long. `sizes` and `lines` are counted to the end of each, then to the end of all."""
        in_bytes = np.diff(sizes, prepend=-self.size, append=size)
        in_lines = np.diff(lines, prepend=-self.lines, append=n_lines)
        self.size, self.lines = int(in_bytes[-1]), int(in_lines[-1])
        return bool((in_bytes <= self.longest).all() and (in_lines <= self.most_lines).all())


def _lines_are_short(block: bytes, longest: int) -> bool:
    """Whether no line of a block is longer. A step goes to the last line end that is not too far away."""
    place = -1
    while (end := block.rfind(b"\n", place + 1, place + 2 + longest)) >= 0:
        place = end
    return len(block) - place - 1 <= longest


def json_keys(blocks: Iterable[bytes], names: list[str]) -> dict[str, int] | None:
    r"""How often each name occurs as a whole string; None where the fast reader of JSON lines may differ.

    No key may be written with escapes, every line must end in LF or CRLF, and none may be deeply nested. A name that
    occurs more often than there are values of its column may be a repeated key.

    >>> json_keys([b'{"user": 1, "item": 2}\n{"user": 1, "user": 2}\n'], ["user", "item"])
    {'user': 3, 'item': 1}
    >>> json_keys([b'{"us\\u0065r": 1}\n'], ["user"])
    """
    keys = {name: b'"' + name.encode() + b'"' for name in names}
    simple = all(name.isascii() and name.isprintable() and not set(name) & set('"\\/') for name in names)
    counts = dict.fromkeys(names, 0)
    for block in blocks:
        if _lone_carriage_return(block) or _deeply_nested(block):
            return None
        if b"\\" in block and (not simple or (b"\\u00" in block and LETTER_ESCAPE.search(block))):
            return None
        for name, key in keys.items():
            counts[name] += block.count(key)
    return counts


def _deeply_nested(block: bytes) -> bool:
    """Whether some line has many brackets."""
    if block.count(b"[") + block.count(b"{") < NESTED:
        return False
    if _lines_are_short(block, 2 * NESTED):  # too short for so many brackets that are closed again
        return False
    return any(line.count(b"[") + line.count(b"{") >= NESTED for line in block.split(b"\n"))
