"""Scans of bytes that tell whether the fast readers give the same rows as the careful ones.

`truelike.data.files` says what a valid row is. The fast readers follow that definition on most files, but not on all.
A scan answers False where they might not. It looks at a file once, mostly by searching for single bytes, which is
much faster than parsing.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

BOM = codecs.BOM_UTF8
LONGEST_ROW = 2**20  # bytes of a row on several lines; a longer one is left to the careful reader
NESTED = 300  # brackets in one line of JSON: deeper nesting has a limit that differs between readers
LETTER_ESCAPE = re.compile(rb"\\u00[2-7]")  # of an ASCII character, which needs none


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
        if second_mark or _lone_carriage_return(text) or not _is_utf8(text) or len(rest) > LONGEST_ROW:
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


def _lone_carriage_return(block: bytes) -> bool:
    return b"\r" in block and block.count(b"\r") != block.count(b"\r\n")


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
