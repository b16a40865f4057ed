"""Fuzzers of reading. `FUZZERS` maps a name to a function that runs one case, which its seed determines.

A case passes if the fast and the careful reader give the same answer, if it is that of a slow reader that is written
here letter by letter, and if every error is one of truelike.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import gzip
import io
import json
import math
import random
import re
import tempfile
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl

import truelike as tl
from truelike.data import files
from truelike.data.columns import Columns, choose
from truelike.data.features import Features
from truelike.errors import DataWarning, TruelikeError

USED = Counter()  # type: ignore[var-annotated] # how often the fast reader answered, so that a test can see it


@contextlib.contextmanager
def strict() -> Iterator[None]:
    """Warnings are errors, except those of truelike about data."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DataWarning)
        yield


@contextlib.contextmanager
def stored(content: bytes, name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        path.write_bytes(content)
        yield path


@contextlib.contextmanager
def careful_only() -> Iterator[None]:
    """Without the fast readers."""
    fails = mock.Mock(side_effect=pl.exceptions.ComputeError("not in this case"))
    with mock.patch.object(pl, "scan_csv", fails), mock.patch.object(pl, "scan_ndjson", fails):
        yield


# --- mutations --------------------------------------------------------------------------------------

PIECES = [
    *[b'"', b'""', b'"' * 3, b"\r", b"\n", b"\r\n", b"\n\n", b",", b"\t", b";", b"|", b"'", b" ", b"  ", b"#"],
    *[b"\0", b"\xef\xbb\xbf", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc3\xa9", b"\xe2\x80\xa8", b"\x85"],
    *[b"\x0c", b"\x1a", b"\\", b"\\u0000", b"\\ud800", b"\\ud83d\\ude00", b"\\u0065", b"\\n", b'\\"'],
    *[b"[1]", b"{}", b"[", b"]", b"{", b"}", b":", b"0", b"7", b"-", b"+", b".", b"e5"],
    *[b"1e999", b"-0.0", b"1e-7", b"NaN", b"Infinity", b"null", b"true", b"inf", b"nan"],
    *[b"123456789012345678901234567890", b"9" * 45, b"18446744073709551616", b"1.5e300", b"x" * 300],
    *[b'"user":', b'"item": "x",'],
]  # fmt: skip


def mutate(rng: random.Random, content: bytes, most: int = 5) -> bytes:
    """A few random edits."""
    data = bytearray(content)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, most])):
        place = rng.randrange(len(data) + 1)
        end = min(len(data), place + rng.choice([1, 1, 2, 5, 20]))
        kind = rng.randrange(7)
        if kind <= 2:
            data[place:place] = rng.choice(PIECES)
        elif kind == 3:
            data[place:end] = rng.choice(PIECES)
        elif kind == 4:
            del data[place:end]
        elif kind == 5:
            lines = bytes(data).splitlines(keepends=True) or [b""]
            line = rng.choice(lines)
            lines.insert(rng.randrange(len(lines) + 1), rng.choice([line, line.rstrip(), line.rstrip() + line]))
            data = bytearray(b"".join(lines))
        elif rng.random() < 0.5:
            del data[place:]
        else:
            data[place:end] = bytes(rng.randrange(256) for _ in range(end - place))
    return bytes(data)


# --- what a file gives ------------------------------------------------------------------------------


def settle(asked: dict[str, Any]) -> Callable[[list[str]], Columns]:
    columns = dict.fromkeys(("user", "item", "rating", "time", "weight"))
    return lambda names: choose(names, **{**columns, **asked}, needs_rating=False)


def table_of(path: Path, asked: dict[str, Any], how: dict[str, Any]) -> dict[str, Any] | str:
    """The rows by their lines, and the bad lines; or an error."""
    try:
        table = files.read_file(path, settle(asked), **how)
    except TruelikeError as error:
        return f"{type(error).__name__}: {error}"
    rows = [tuple(value or None for value in row) for row in table.frame.rows()]
    lines = table.numbers().tolist()
    assert len(lines) == len(rows), "each row has a line number"
    columns = (table.columns.needed(), table.columns.required())
    return {"columns": columns, "rows": dict(zip(lines, rows, strict=True)), "bad": table.bad}


def dataset_of(source: Any, **how: Any) -> Any:
    """What a dataset consists of, or an error."""
    try:
        data = tl.read(source, **how)
    except TruelikeError as error:
        return f"{type(error).__name__}: {error}"
    check(data)
    users, items = (ids.to_series().to_list() for ids in (data.users, data.items))
    entries = zip(
        data.user_of_entry.tolist(), data.matrix.indices.tolist(), data.matrix.data.tolist(), strict=True
    )
    pairs = {(users[user], items[item]): weight for user, item, weight in entries}
    return pairs, None if data.times is None else data.times.tolist()


def check(data: tl.Dataset) -> None:
    """What holds for every dataset."""
    assert data.matrix.shape == (len(data.users), len(data.items))
    assert np.isfinite(data.matrix.data).all()
    assert (data.matrix.data > 0).all()
    for ids in (data.users, data.items):
        assert ids.values.null_count() == 0
        assert ids.values.is_sorted()
        assert ids.values.n_unique() == len(ids)
    assert repr(data)


def compare(content: bytes, name: str, asked: dict[str, Any], how: dict[str, Any], oracle: Any = None) -> None:
    """Both readers on one file, and the slow one."""
    with strict(), stored(content, name) as path:
        real = files._carefully
        with mock.patch.object(files, "_carefully", side_effect=real) as careful:
            fast = table_of(path, asked, how)
        USED[name, "fast" if isinstance(fast, dict) and not careful.called else "careful"] += 1
        with careful_only():
            slow = table_of(path, asked, how)
        assert fast == slow, f"the readers differ on {content!r} ({name}, {asked}, {how}):\n{fast}\n{slow}"
        if oracle is not None and isinstance(slow, dict):
            rows, bad = oracle(*slow["columns"])
            assert slow["rows"] == rows, f"rows of {content!r}: {slow['rows']} instead of {rows}"
            assert set(slow["bad"]) == bad, f"bad lines of {content!r}: {slow['bad']} instead of {bad}"
        drop = {**asked, **how, "on_bad_rows": "drop"}
        one = dataset_of(path, **drop)
        with careful_only():
            other = dataset_of(path, **drop)
        assert one == other, f"the datasets differ on {content!r} ({name}, {drop}):\n{one}\n{other}"


# --- CSV --------------------------------------------------------------------------------------------

LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def csv_rows(text: str, separator: str) -> Iterator[tuple[int, list[str] | None]]:
    """(line, fields or None for a bad line), letter by letter."""
    lines = LINES.findall(text.removeprefix("\ufeff"))
    at = 0
    while at < len(lines):
        fields, lines_read = _csv_record(lines[at : at + files.MOST_LINES], separator)
        if fields != []:
            yield at + 1, fields
        at += lines_read if fields is not None else 1


def _csv_record(lines: list[str], separator: str) -> tuple[list[str] | None, int]:
    fields, field, state = [], "", "start"
    for number, line in enumerate(lines, start=1):
        for letter in line:
            if state == "quoted":
                state = "closed" if letter == '"' else "quoted"
                field += letter if letter != '"' else ""
            elif letter == '"' and state in ("start", "closed"):
                field += '"' if state == "closed" else ""
                state = "quoted"
            elif letter == separator:
                fields.append(field)
                field, state = "", "start"
            elif letter in "\r\n":
                break
            elif state == "closed":
                return None, number
            else:
                field, state = field + letter, "plain"
        if state != "quoted":
            blank = not fields and state == "start"
            return [] if blank else [*fields, field], number
    return None, len(lines)


def csv_oracle(content: bytes, separator: str, header: bool, encoding: str) -> Callable[..., Any]:
    def read(needed: list[str], required: list[str]) -> tuple[dict[int, Any], set[int]]:
        rows = list(csv_rows(content.decode(encoding, "surrogateescape"), separator))
        first = rows[0][1] or []
        names = first if header else [str(n) for n in range(len(first))]
        good, bad = {}, set()
        for line, fields in rows[header:]:
            whole = fields is not None and len(fields) == len(first)
            if fields is None or not whole or re.search("[\ud800-\udfff]", "".join(fields)):
                bad.add(line)
                continue
            values = dict(zip(names, fields, strict=True))
            if not all(values[name] for name in required):
                bad.add(line)
            else:
                good[line] = tuple(values[name] or None for name in needed)
        return good, bad

    return read


CSV: list[tuple[str, bytes, dict[str, Any], dict[str, Any]]] = [
    ("log.csv", b"user,item\nann,tea\nbob,milk\ncy,rum\ndan,gin\n", {}, {}),
    ("log.csv", b"user,item,note\nann,tea,x\nbob,milk,\ncy,rum,z\ndan,gin,\n", {}, {}),
    ("log.csv", b'user,item,note\n"ann","te ""a""","x, y"\n"bob","mi\nlk",""\n"cy",rum,"z"\n', {}, {}),
    ("log.csv", b"user,item,time\r\n1,2,3\r\n4,5,6\r\n7,8,9\r\n", {}, {}),
    ("log.csv", b'user,item,time\r\n"1","2",3\r\n4,"5\r\n6",6\r\n"7",8,"9"\r\n', {}, {}),
    ("log.csv", b"user,item\rann,tea\rbob,milk\r", {}, {}),
    ("log.tsv", b"user\titem\trating\ttime\n1\t2\t3.5\t10\n1\t3\t4\t11\n2\t3\t5e0\t12\n", {"rating": "rating"}, {}),
    ("log.csv", b"user;item;weight\nann;tea;1\nbob;milk;2.5\ncy;rum;0\n", {"weight": "weight"}, {"separator": ";"}),
    ("log.csv", b"5,ann,tea,9\n1,bob,milk,8\n2,cy,rum,7\n", {"user": 1, "item": 2, "time": 3}, {"header": False}),
    ("log.csv", '\ufeffuser,item\nzoë,thé\nbob,"mîlk"\n日本,茶\n'.encode(), {}, {}),
    ("log.csv", "user,item,note\nzoë,thé,\nbob,mîlk,ü\n".encode("cp1252"), {}, {"encoding": "cp1252"}),
    ("log.csv", "user,item\nzoë,thé\nbob,mîlk\n".encode("utf-16-le"), {}, {"encoding": "utf-16-le"}),
    ("log.csv", b"note,item,user\n,tea,ann\n,milk,bob\n\n,rum,cy\n", {}, {}),
    ("log.csv", b"item_id\n1\n2\n3\n", {"user": 0, "item": 0}, {}),
    ("log.csv", b'"user","it\nem"\n1,2\n3,"4"\n', {"item": 1}, {}),
]  # fmt: skip


def csv_case(seed: int) -> None:
    """A mutated CSV file."""
    rng = random.Random(seed)
    name, content, asked, how = rng.choice(CSV)
    content = mutate(rng, content)
    separator = how.get("separator") or ("\t" if name.endswith("tsv") else None)
    oracle = None
    encoding = how.get("encoding", "utf-8")
    if encoding in ("utf-8", "cp1252"):
        first = LINES.match(content.decode(encoding, "surrogateescape").removeprefix("\ufeff"))
        found = separator or max(",\t;|", key=(first.group() if first else "").count)
        oracle = csv_oracle(content, found, how.get("header", True), encoding)
    zipped = rng.random() < 0.1
    compare(gzip.compress(content, mtime=0) if zipped else content, name + ".gz" * zipped, asked, how, oracle)


FIELDS = [
    *[b"a", b"b", b"1", b"", b" ", b'"c"', b'""', b'"d""e"', b'"f,g"', b'"h\ni"', b'"j\r\nk"', b'"' * 4],
    *[b'"' * 3 + b'l"', b'm"n', b'"o"p', b'"q'],
]  # fmt: skip
FIELD_WEIGHTS = [6, 6, 4, 2, 1, 6, 1, 4, 4, 4, 2, 2, 2, 0.1, 0.1, 0.1]  # fmt: skip
ENDS = [b"\n", b"\r\n", b"\n\n", b"\r", b"", b",\n"]


def fields_case(seed: int) -> None:
    """A CSV file of random fields, most of which are well-formed."""
    rng = random.Random(seed)
    end = rng.choice(ENDS[:2])
    width = rng.choice([2, 3])
    lines = [b"user,item,note"[: 9 if width == 2 else 14] + end]
    for _ in range(rng.randrange(1, 8)):
        n = width if rng.random() < 0.98 else rng.randrange(1, 5)
        fields = rng.choices(FIELDS, FIELD_WEIGHTS, k=n)
        if rng.random() < 0.9:
            fields[:2] = [field or b"x" for field in fields[:2]]
        lines.append(b",".join(fields) + (end if rng.random() < 0.98 else rng.choice(ENDS)))
    content = b"".join(lines)
    content = content.removesuffix(end) if rng.random() < 0.3 else content
    compare(content, "log.csv", {}, {}, csv_oracle(content, ",", True, "utf-8"))


def blocks_case(seed: int) -> None:
    """A mutated CSV or JSONL file that is scanned and read a few bytes or lines at a time."""
    rng = random.Random(seed)
    sizes = {"BLOCK": rng.randrange(1, 40), "CHUNK": rng.randrange(4, 9), "MOST_LINES": 4}
    with mock.patch.multiple(files, **sizes):
        rng.choice([csv_case, fields_case, json_case])(rng.randrange(2**32))


# --- JSON lines -------------------------------------------------------------------------------------


def json_rows(content: bytes, needed: list[str], required: list[str]) -> tuple[dict[int, Any], set[int]]:
    """The rows by their lines, and the bad lines."""
    good, bad = {}, set()
    for number, line in enumerate(
        LINES.findall(content.decode("utf-8", "surrogateescape").removeprefix("\ufeff")), 1
    ):
        if not line.strip():
            continue
        try:
            assert not re.search("[\ud800-\udfff]", line)
            row = json.loads(line.strip())
            values = [json_text(row.get(name)) for name in needed]
            assert all(value for name, value in zip(needed, values, strict=True) if name in required)
            good[number] = tuple(value or None for value in values)
        except (AssertionError, AttributeError, ValueError, RecursionError):
            bad.add(number)
    return good, bad


def json_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isnan(value):
        return ""
    if isinstance(value, float):
        assert math.isfinite(value)
        return np.format_float_positional(value, trim="-")
    assert value is None or isinstance(value, (str, int))
    assert not isinstance(value, str) or not re.search("[\ud800-\udfff]", value)
    return "" if value is None else str(value)


JSON: list[tuple[bytes, dict[str, Any]]] = [
    (b'{"user": "ann", "item": "tea"}\n{"user": "bob", "item": "milk"}\n{"user": "cy", "item": "rum"}\n', {}),
    (b'{"user":1,"item":2,"time":3}\n{"user":4,"item":5.0,"time":6}\n{"user":7,"item":1e2,"time":null}\n', {}),
    (b'{"user":1,"item":"a","weight":2.5}\r\n{"user":2,"item":"b","weight":1e-7}\r\n', {"weight": "weight"}),
    (
        b'{"user": 12, "item": 7.5, "time": 5, "more": [1, {"a": "b"}]}\n{"user": "x y", "item": 0.1, "time": 6}\n',
        {},
    ),
    (
        b'{"user":"a","item":"b","z":"c\\nd"}\n{"z":"\\u00e9","item":"\xc3\xa9","user":"c"}\n\n{"user":"d","item":"e"}\n',
        {},
    ),
    (b'{"user":1,"item":2,"more":{"user":3,"z":[1,{"y":[]}]}}\n{"item":"4","user":"x","more":[[1,2],[3]]}\n', {}),
    ('{"user":"zo\\u00eb","item":"thé"}\n{"user":"\\ud83d\\ude00","item":"a\\tb\\"c"}\n'.encode(), {}),
    (b'{"user":12345678901234567890,"item":-5}\n{"user":9223372036854775807,"item":0.1}\n', {}),
    (b'{"user":true,"item":false}\n\n{"user":"user","item":"item"}\n', {}),
    (b'\xef\xbb\xbf{"us/er":1,"item":2}\n{"us\\/er":3,"item":4}\n', {"user": "us/er"}),
    (b'{"user":1,"item":2,"note":NaN}\n{"user":3,"item":"' + b"4" * 30 + b'","note":""}\n', {}),
]


def repeats_a_key(line: bytes) -> bool:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise KeyError
        return dict(pairs)

    try:
        json.loads(line.decode(errors="surrogateescape").strip(), object_pairs_hook=unique)
    except KeyError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def json_case(seed: int) -> None:
    """A mutated file of JSON lines."""
    rng = random.Random(seed)
    content, asked = rng.choice(JSON)
    content = mutate(rng, content)
    if any(map(repeats_a_key, re.split(rb"[\r\n]", content))):  # either value may count
        return
    zipped = rng.random() < 0.1
    name = "log.jsonl" + ".gz" * zipped
    packed = gzip.compress(content, mtime=0) if zipped else content
    compare(packed, name, asked, {}, lambda *columns: json_rows(content, *columns))


# --- gzip and Parquet -------------------------------------------------------------------------------


def gzip_case(seed: int) -> None:
    """A gzip file with mutated bytes."""
    rng = random.Random(seed)
    name, content, asked, how = rng.choice(CSV)
    packed = gzip.compress(content, mtime=0)
    if rng.random() < 0.2:
        packed += gzip.compress(content, mtime=0)
    compare(mutate(rng, packed, most=2), f"{name}.gz", asked, how)


def parquet_bytes(rng: random.Random) -> bytes:
    rows = rng.choice([1, 5, 500])
    table = {
        "user": [f"u{rng.randrange(50)}" for _ in range(rows)],
        "item": [rng.randrange(9) for _ in range(rows)],
    }
    extra = rng.randrange(5)
    if extra == 1:
        table["time"] = [datetime.datetime(2020, 1, 1 + rng.randrange(28)) for _ in range(rows)]  # type: ignore[misc]
    elif extra == 2:
        table["tags"] = [["a", None] * rng.randrange(3) for _ in range(rows)]  # type: ignore[misc]
    elif extra == 3:
        table["note"] = [{"a": 1, "b": "x"}] * rows  # type: ignore[list-item]
    buffer = io.BytesIO()
    compression: Any = rng.choice(["uncompressed", "zstd", "snappy", "gzip", "lz4"])
    pl.DataFrame(table).write_parquet(buffer, compression=compression, statistics=rng.random() < 0.5)
    return buffer.getvalue()


def parquet_case(seed: int) -> None:
    """A Parquet file with mutated bytes."""
    rng = random.Random(seed)
    data = bytearray(parquet_bytes(rng))
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        place = rng.randrange(max(0, len(data) - 600) if rng.random() < 0.5 else 0, len(data))
        if rng.random() < 0.1:
            del data[place:]
            break
        data[place] ^= 1 << rng.randrange(8)
    with strict(), stored(bytes(data), "log.parquet") as path:
        dataset_of(path)


# --- rows in memory ---------------------------------------------------------------------------------

DAY = datetime.date(2020, 2, 29)
NOON = datetime.datetime(2020, 2, 29, 12)


def ids(rng: random.Random, n: int) -> list[Any]:
    """Ids that are read as they are: integers, or text."""
    if rng.random() < 0.5:
        return [rng.choice([0, 1, 2, 7, -3, 2**40]) for _ in range(n)]
    return [rng.choice(["a", "b", "é", "日本", " x", "7"]) for _ in range(n)]


ODD: list[Callable[[random.Random], Any]] = [
    lambda rng: rng.choice([DAY, NOON, datetime.time(3), datetime.timedelta(3), NOON.replace(tzinfo=datetime.UTC)]),
    lambda rng: decimal.Decimal(rng.choice(["1.5", "NaN", "sNaN", "3", "1e40", "-0"])),
    lambda rng: rng.choice([b"x", b"\xff", bytearray(b"y"), memoryview(b"z")]),
    lambda rng: rng.choice([[1], ["a", None], (1, 2), {"a": 1}, {1, 2}, [], {}]),
    lambda rng: rng.choice([1.5, 2.0, math.nan, math.inf, -math.inf, 1e300, 5e-324, -0.0, 1e39]),
    lambda rng: rng.choice([2**63, 2**64, -(2**63) - 1, 2**127, 2**200, True, False]),
    lambda rng: rng.choice([uuid.UUID(int=5), object(), type, len, 3 + 4j, Ellipsis, NotImplemented, range(3)]),
    lambda rng: rng.choice(["", "\ud800", "a\0b", "x" * 100_000, "1", "01", "NaN", "None"]),
    lambda rng: rng.choice([np.int8(3), np.float16(2), np.str_("q"), np.timedelta64(5, "s"), np.void(b"a")]),
    lambda rng: rng.choice([np.datetime64("NaT"), np.datetime64("NaT", "ns"), np.datetime64("2020", "ns")]),
    lambda rng: rng.choice([np.ma.masked, np.array(5), np.array([1, 2]), np.array([[1]])]),
    lambda rng: rng.choice([1, "a", None]),
    lambda rng: None,
]  # fmt: skip


def odd_values(rng: random.Random, n: int) -> list[Any]:
    kinds = rng.sample(ODD, rng.choice([1, 1, 2]))
    return [rng.choice(kinds)(rng) for _ in range(n)]


DTYPES: list[Any] = [
    *[pl.Duration("us"), pl.Date(), pl.Time(), pl.Datetime("ns"), pl.Datetime("us", "UTC"), pl.Decimal(10, 2)],
    *[pl.Categorical(), pl.Enum(["1", "2", "3"]), pl.String(), pl.Binary(), pl.Boolean(), pl.Null(), pl.Object()],
    *[pl.List(pl.Int8()), pl.Array(pl.Int8(), 1), pl.Struct({"a": pl.Int64()})],
    *[pl.UInt64(), pl.Int128(), pl.Int8(), pl.Float32(), pl.Float64()],
]  # fmt: skip


def odd_series(rng: random.Random, n: int) -> pl.Series:
    """A polars series of any type."""
    dtype = rng.choice(DTYPES)
    base = pl.Series([rng.choice([1, 2, 3, None]) for _ in range(n)], dtype=pl.Int64)
    if isinstance(dtype, (pl.List, pl.Array)):
        return base.cast(pl.Int8).reshape((n, 1)).cast(dtype)
    if isinstance(dtype, pl.Struct):
        return pl.Series([{"a": value} for value in base], dtype=dtype)
    if isinstance(dtype, pl.Object):
        return pl.Series([rng.choice([object(), uuid.UUID(int=3), None, "a"]) for _ in range(n)], dtype=dtype)
    if isinstance(dtype, pl.Null):
        return pl.Series([None] * n)
    if isinstance(dtype, (pl.Categorical, pl.Enum, pl.Binary)):
        return base.cast(pl.String).cast(dtype)
    if isinstance(dtype, pl.UInt64):
        return pl.Series([rng.choice([2**64 - 1, 2**63, 5, None]) for _ in range(n)], dtype=dtype)
    if isinstance(dtype, pl.Int128):
        return pl.Series([rng.choice([2**100, -(2**100), 5, None]) for _ in range(n)], dtype=dtype)
    return base.cast(dtype, strict=False)


def contained(rng: random.Random, columns: dict[str, list[Any]]) -> Any:
    """Columns of plain values in some container that tl.read takes."""
    kind = rng.randrange(8)
    names, values = list(columns), list(columns.values())
    if kind == 0:
        return list(zip(*values, strict=True))
    if kind == 1:
        return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
    if kind == 2:
        return tuple(values)
    if kind == 3:
        return pl.DataFrame(columns, strict=False)
    if kind == 4:
        return pl.DataFrame(columns, strict=False).lazy()
    if kind == 5:
        import pandas as pd

        return pd.DataFrame(columns)
    if kind == 6:
        import pyarrow as pa

        if any(isinstance(value, (np.ndarray, np.generic)) for column in values for value in column):
            return tuple(values)  # pyarrow itself crashes on some of them

        return pa.table(columns)
    masks = [[value is None for value in column] for column in values]
    filled = [[column[0] if value is None else value for value in column] for column in values]
    arrays = [np.ma.MaskedArray(np.array(each), mask) for each, mask in zip(filled, masks, strict=True)]
    same = len({array.dtype.kind for array in arrays}) == 1
    return np.ma.stack(arrays, axis=1) if same and rng.random() < 0.5 else tuple(arrays)


def memory_case(seed: int) -> None:
    """Plain ids, some of which are missing, in every container: the pairs are known."""
    rng = random.Random(seed)
    n = rng.choice([1, 2, 3, 10])
    columns = {"user": ids(rng, n), "item": ids(rng, n)}
    for column in columns.values():
        if rng.random() < 0.4 and n > 1:
            column[rng.randrange(1, n)] = None
    expected: dict[Any, float] = Counter(
        pair for pair in zip(*columns.values(), strict=True) if None not in pair and "" not in pair
    )
    with strict():
        assert dataset_of(contained(rng, columns), on_bad_rows="drop") == (expected, None)


def odd_case(seed: int) -> None:
    """Values of all types in columns of all kinds: a sound dataset or an error of truelike."""
    rng = random.Random(seed)
    n = rng.choice([1, 2, 5])
    names = ["user", "item", "rating", "time", "weight", "__time__", "__short__"][: rng.randrange(2, 8)]
    asked: dict[str, Any] = {"weight": "weight"} if "weight" in names and rng.random() < 0.5 else {}
    if "rating" in names and rng.random() < 0.3:
        asked["min_rating"] = rng.choice([0, 2.5, 1e300])
    if "time" in names and rng.random() < 0.5:
        asked["time"] = rng.choice(["time", "__time__"]) if "__time__" in names else "time"
    if rng.random() < 0.5:
        source: Any = pl.DataFrame([odd_series(rng, n).alias(name) for name in names])
    else:
        values = {name: odd_values(rng, n) if rng.random() < 0.5 else ids(rng, n) for name in names}
        try:
            source = contained(rng, dict(list(values.items())[:4]) if rng.random() < 0.3 else values)
        except (Exception, pl.exceptions.PanicException):  # the container does not take them
            return
        if isinstance(source, pl.LazyFrame) and rng.random() < 0.5:
            source = source.select(pl.col("user"), pl.col("nothing"))
    with strict():
        dataset_of(source, on_bad_rows=rng.choice(["raise", "drop"]), **asked)


def asked_case(seed: int) -> None:
    """Odd ids where ids are asked for, odd titles, odd features: an answer or an error of truelike."""
    rng = random.Random(seed)
    data = tl.read([("a", 1), ("b", 2), ("é", 7)])
    odd: Any = rng.choice([odd_values, odd_series, lambda rng, n: np.ma.MaskedArray([1] * n, True)])(rng, 3)
    if isinstance(odd, list) and rng.random() < 0.5:
        with contextlib.suppress(ValueError):
            odd = rng.choice([tuple, np.array, iter, lambda values: values[0]])(odd)
    with strict(), contextlib.suppress(TruelikeError):
        codes = rng.choice([data.users, data.items]).codes(odd)
        assert codes.min(initial=-1) >= -1
        assert codes.max(initial=-1) < 3
    with strict(), contextlib.suppress(TruelikeError):
        data.with_titles(([1, 2, 7], odd))
    with strict(), contextlib.suppress(TruelikeError):
        data.with_titles((odd, ["x", "y", "z"]))
    if isinstance(odd, pl.Series):
        with strict(), contextlib.suppress(TruelikeError):
            Features.read(pl.DataFrame({"item": [1, 2, 7], "f": odd}), "item")
        with strict(), contextlib.suppress(TruelikeError):
            Features.read(pl.DataFrame({"item": odd, "f": [1, 2, 7]}), "item")


def side_files_case(seed: int) -> None:
    """Mutated files of titles and of features."""
    rng = random.Random(seed)
    data = tl.read([("a", 1), ("b", 2), ("c", 7)])
    content = mutate(rng, b'item,title\n1,"Green, tea"\n2,Milk\n7,Rum\n')
    with strict(), stored(content, "titles.csv") as path:
        outcomes = []
        for without in (contextlib.nullcontext, careful_only):
            with without():
                try:
                    outcomes.append(data.with_titles(path).titles.to_list())  # type: ignore[union-attr]
                except TruelikeError as error:
                    outcomes.append([str(error)])
        assert outcomes[0] == outcomes[1], f"the titles differ on {content!r}: {outcomes}"
        with contextlib.suppress(TruelikeError):
            Features.read(path, "item")


FUZZERS: dict[str, Callable[[int], None]] = {
    "csv": csv_case,
    "fields": fields_case,
    "json": json_case,
    "blocks": blocks_case,
    "gzip": gzip_case,
    "parquet": parquet_case,
    "memory": memory_case,
    "odd values": odd_case,
    "ids": asked_case,
    "titles and features": side_files_case,
}
