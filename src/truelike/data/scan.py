"""A scan of the bytes of a CSV file that tells whether polars gives the same rows as the careful reader.

`truelike.data.files` says what a valid row is, and polars follows that definition on most files, but not on all. The
scan looks at a file once, mostly by searching for single bytes, which is much faster than parsing.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

BOM = codecs.BOM_UTF8
LONGEST_ROW = 2**20  # bytes of a row on several lines; a longer one is left to the careful reader


def csv_is_plain(blocks: Iterable[bytes], separator: str, width: int, most_lines: int) -> bool:
    r"""Whether the fast reader of CSV gives the same rows as the careful one.

    The text must be UTF-8, and every row must have `width` fields and end in LF or CRLF. A field has no quotes, or is
    in quotes and has doubled ones only. No row may be longer than `most_lines` lines.

    >>> plain = lambda *blocks: csv_is_plain(blocks, ",", 2, most_lines=10)
    >>> plain(b'a,"b ""c"" d"\r\n', b'"d\ne",f\n'), plain(b'a,b "c"\n'), plain(b"a\rb\n"), plain(b"a\n")
    (True, False, False, False)
    """
    mark = re.escape(separator.encode())
    quoted = rb'"[^"\n]*(?:(?:""|\n)[^"\n]*){0,%d}"' % ((most_lines - 1) // width)
    field = rb'(?:%s|[^"\r\n%s]*)' % (quoted, mark)
    rows = re.compile(rb"(?:%s(?:%s%s){%d}\r?\n)*" % (field, mark, field, width - 1))
    rest = b""  # a row that goes on in the next block, or is not plain
    for number, block in enumerate(blocks):
        text = block.removeprefix(BOM) if number == 0 else block
        second_mark = number == 0 and text.startswith(BOM)
        if second_mark or lone_carriage_return(text) or not _is_utf8(text) or len(rest) > LONGEST_ROW:
            return False
        text = rest + text
        # Counting is much faster. A row with too few separators and one with too many are found by the fast reader.
        counted = text.endswith(b"\n") and b'"' not in text
        if counted and text.count(separator.encode()) == (width - 1) * text.count(b"\n"):
            rest = b""
        else:
            rest = rows.sub(b"", text, count=1)
    return not rest or rows.fullmatch(rest + b"\n") is not None


def _is_utf8(block: bytes) -> bool:
    try:
        return block.isascii() or bool(block.decode())
    except UnicodeDecodeError:
        return False


def lone_carriage_return(block: bytes) -> bool:
    """Whether a CR is not followed by LF."""
    return b"\r" in block and block.count(b"\r") != block.count(b"\r\n")
