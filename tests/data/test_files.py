import gzip
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import truelike as tl
from truelike.data import files
from truelike.data.columns import Columns
from truelike.data.features import Features
from truelike.errors import DataError, DataWarning, ParameterError, StorageError, TooLargeError

TABLE: dict[str, list[Any]] = {
    "user": ["ann", "bob", "ann", "bob"],
    "item": ["tea", "milk", "milk", "milk"],
    "time": [3, 4, 5, 1],
}
ROWS = list(zip(*TABLE.values(), strict=True))


def delimited(mark: str) -> bytes:
    return "".join(mark.join(map(str, row)) + "\n" for row in [tuple(TABLE), *ROWS]).encode()


def parquet(table: dict[str, list[Any]]) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(table).write_parquet(buffer)
    return buffer.getvalue()


FILES = {
    "log.csv": delimited(","),
    "log.tsv": delimited("\t"),
    "semicolon.csv": delimited(";"),
    "bar.txt": delimited("|"),
    "log.jsonl": "".join(json.dumps(dict(zip(TABLE, row, strict=True))) + "\n" for row in ROWS).encode(),
    "log.parquet": parquet(TABLE),
}


def write(place: Path, content: str | bytes, name: str = "log.csv") -> Path:
    path = place / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def pairs(data: tl.Dataset) -> list[tuple[Any, ...]]:
    users = data.users.take(data.user_of_entry).to_list()
    items = data.items.take(data.matrix.indices).to_list()
    return list(zip(users, items, data.matrix.data.astype(int).tolist(), strict=True))


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_gives_the_same_dataset(tmp_path: Path, name: str, zipped: bool) -> None:
    content = gzip.compress(FILES[name], mtime=0) if zipped else FILES[name]
    data = tl.read(write(tmp_path, content, name + ".gz" * zipped))
    assert pairs(data) == [("ann", "milk", 1), ("ann", "tea", 1), ("bob", "milk", 2)]
    assert data.times is not None
    assert data.times.tolist() == [5, 3, 4]
    assert (data.library, data.name) == ("polars", name.split(".")[0])


def test_a_path_may_be_text_and_the_kind_may_be_said(tmp_path: Path) -> None:
    path = write(tmp_path, delimited("~"), "log.dat")
    assert tl.read(str(path), format="csv", separator="~", name="shop").name == "shop"
    with pytest.raises(DataError, match=r"format of 'log\.dat' is not known.*format="):
        tl.read(path)


@pytest.mark.parametrize(
    "asked",
    [{"format": "xml"}, *({"separator": each} for each in ("::", "§", "", '"', "\n", "\r", "\0", 5))]
    + [{"encoding": each} for each in ("klingon", "base64", None, 8)],
    ids=repr,
)
def test_an_impossible_format_separator_or_encoding_is_refused(tmp_path: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=f"{next(iter(asked))} is"):
        tl.read(write(tmp_path, FILES["log.csv"]), **asked)


def test_a_file_without_a_header_is_read_by_position(tmp_path: Path) -> None:
    path = write(tmp_path, "5,ann,tea,9\n1,bob,milk,8\n")
    assert pairs(tl.read(path, header=False, user=1, item=2)) == [("ann", "tea", 1), ("bob", "milk", 1)]
    data = tl.read(path, header=False, time=3)
    assert pairs(data) == [(1, "bob", 1), (5, "ann", 1)]
    assert data.times is not None
    assert data.times.tolist() == [8, 9]


# --- ids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["10", "9", "-3"], [-3, 9, 10]),
        (["007", "7", "8"], ["007", "7", "8"]),
        (["+7", "1", "2"], ["+7", "1", "2"]),
        (["1.0", "2.0", "3"], ["1.0", "2.0", "3"]),
        (["99999999999999999999", "1", "2"], ["1", "2", "99999999999999999999"]),
        (["é", "日本", "a b"], ["a b", "é", "日本"]),
    ],
)
def test_only_plain_integers_in_text_become_numbers(tmp_path: Path, ids: list[str], expected: list[Any]) -> None:
    rows = "".join(f"{each},{item}\n" for each, item in zip(ids, "xyz", strict=True))
    assert tl.read(write(tmp_path, "user,item\n" + rows)).users.values.to_list() == expected


def test_json_numbers_and_text_are_one_id_and_whole_floats_are_integers(tmp_path: Path) -> None:
    rows = '{"user": 1, "item": 2.0}\n{"user": "1", "item": 4}\n{"user": 3, "item": 1e2}\n'
    expected = [(1, 2, 1), (1, 4, 1), (3, 100, 1)]
    assert pairs(tl.read(write(tmp_path, rows, "log.jsonl"))) == expected
    with pytest.warns(DataWarning, match="dropped 1 bad row: line 4 has no item"):
        data = tl.read(write(tmp_path, rows + '{"user": 5, "item": NaN}', "log.jsonl"), on_bad_rows="drop")
    assert pairs(data) == expected


# --- bad lines -------------------------------------------------------------------------------------

BAD_LINES = {
    "too many fields": (b"bob,milk,1,2\n", "line 3 has 4 fields instead of 3"),
    "too few fields": (b"bob\n", "line 3 has 1 field instead of 3"),
    "no user": (b",milk,1\n", "line 3 has no user"),
    "no item": (b"bob,,1\n", "line 3 has no item"),
    "not UTF-8": (b"b\xffb,milk,1\n", "line 3 is not UTF-8"),
    "open quote": (b'"bob,milk,1\n', "line 3 has a quote that is not closed"),
    "open quote at the end": (b'bob,milk,"1\n', "line 3 has a quote that is not closed"),
    "text after a quote": (b'bob,"milk"y,1\n', "line 3 cannot be parsed"),
}


BAD_JSON = {
    "broken": (b'{"user": "bob", "item"\n', "line 3 is not JSON"),
    "no object": (b"[1, 2]\n", "line 3 is not a JSON object"),
    "null": (b'{"user": null, "item": "milk"}\n', "line 3 has no user"),
    "absent": (b'{"user": "bob"}\n', "line 3 has no item"),
    "empty": (b'{"user": "bob", "item": ""}\n', "line 3 has no item"),
    "not UTF-8": (b'{"user": "b\xff", "item": "milk"}\n', "line 3 is not UTF-8"),
    "half a character": (b'{"user": "\\ud800", "item": "milk"}\n', "line 3 holds half of a character"),
}


AROUND = {  # a bad line of each kind of file: what is before it, and what is after it
    "log.csv": (b"user,item,note\nann,tea,1\n", b'cy,"wa\nter",3\ndan,rum,4\n'),
    "log.jsonl": (
        b'{"user": "ann", "item": "tea"}\n\n',
        b'{"user":"cy","item":"wa\\nter"}\n{"user":"dan","item":"rum"}\n',
    ),
}


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [("log.csv", *bad) for bad in BAD_LINES.values()] + [("log.jsonl", *bad) for bad in BAD_JSON.values()],
    ids=[*BAD_LINES, *BAD_JSON],
)
@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
def test_a_bad_line_is_named_and_only_it_is_dropped(
    tmp_path: Path, name: str, line: bytes, message: str, zipped: bool
) -> None:
    content = line.join(AROUND[name])
    path = write(tmp_path, gzip.compress(content, mtime=0) if zipped else content, name + ".gz" * zipped)
    with pytest.raises(DataError, match=f'^1 row is bad: {message}.*on_bad_rows="drop"'):
        tl.read(path)
    with pytest.warns(DataWarning, match=f"^dropped 1 bad row: {message}"):
        data = tl.read(path, on_bad_rows="drop")
    assert pairs(data) == [("ann", "tea", 1), ("cy", "wa\nter", 1), ("dan", "rum", 1)]


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [
        ("log.csv", 'user,item,rating\nann,"te\na",5\nbob,milk,often\n', "line 4"),
        ("log.csv", "user,item,rating\nann,tea,5\n\nbob,milk,often\n", "line 4"),
        ("log.csv", "user,item,rating\nann,tea,5\nbob,milk,often\n", "line 3"),
        ("log.jsonl", '{"user":1,"item":2,"rating":5}\n\n{"user":2,"item":3,"rating":"often"}\n', "line 3"),
    ],
)
def test_a_rating_that_is_no_number_is_named_by_its_line(
    tmp_path: Path, name: str, content: str, where: str
) -> None:
    with pytest.raises(DataError, match=f"{where} has no usable rating"):
        tl.read(write(tmp_path, content, name), min_rating=3)


# --- files that are not what they should be ---------------------------------------------------------

CUT = "not a whole gzip file.*Fetch it again"
MANY = b"user,item\n" + b"".join(b"u%d,i%d\n" % (n * 7919 % 1000, n * 31 % 999) for n in range(20_000))
ZIPPED = gzip.compress(MANY, mtime=0)
DAMAGED = ZIPPED[:500] + b"\x55\xaa" + ZIPPED[502:]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.csv", b"", "is empty"),
        ("log.csv.gz", gzip.compress(b"", mtime=0), "first line .* is blank"),
        ("log.csv", b"\nuser,item\n1,2\n", "first line .* is blank"),
        ("log.csv", b"user,item\n", "dataset is empty"),
        (
            "log.csv",
            gzip.compress(FILES["log.csv"], mtime=0),
            "not UTF-8 text: line 1 cannot be decoded.*encoding=",
        ),
        ("log.csv", b"user,item,user\n1,2,3\n", "more than one column named user"),
        ("log.csv", b"ann,tea\nbob,milk\n", "no column looks like the user.*header=False"),
        ("log.csv.gz", FILES["log.csv"], CUT),
        ("log.csv.gz", gzip.compress(FILES["log.csv"] * 99, mtime=0)[:-9], CUT),
        ("log.jsonl.gz", gzip.compress(FILES["log.jsonl"] * 99, mtime=0)[:-9], CUT),
        ("log.parquet.gz", gzip.compress(FILES["log.parquet"], mtime=0)[:-9], CUT),
        ("log.json", b'[{"user": 1, "item": 2}]', "no JSON object .*line 1 is not a JSON object"),
        ("log.jsonl", b"\n\n", "all lines are blank"),
        ("log.parquet", b"no parquet", "cannot be read as Parquet"),
        ("log.parquet", FILES["log.parquet"][:-20], "cannot be read as Parquet"),
        (
            "log.parquet",
            parquet({"user": ["ann", None, "cy"], "item": [1, 2, 3]}),
            r"row 1 .counted from 0. has no user",
        ),
        ("log.csv", b'user,"it"em\n1,2\n3,4\n', "first line .* cannot be parsed"),
        ("log.csv", b'user,"item\n1,2\n3,4\n', "first line .* has a quote that is not closed"),
        (
            "log.csv",
            b"user,item,note\nann,tea,\nbob,milk\ncy,rum,\n",
            "^1 row is bad: line 3 has 2 fields instead of 3",
        ),
        ("log.csv.gz", DAMAGED, "not a whole gzip file"),
        ("log.csv", ".", "is a directory"),
        ("no.csv", None, "there is no file"),
    ],
)
def test_an_unusable_file_is_an_error_that_says_why(tmp_path: Path, name: str, content: Any, message: str) -> None:
    path = tmp_path if content == "." else tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        tl.read(path)


# --- the fast reader and the careful one ------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), min_size=1, max_size=4).filter(
    lambda text: text.strip() == text
)
LOGS = st.lists(st.tuples(TEXT, TEXT, st.integers(0, 99)), min_size=1, max_size=12)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def same(one: tl.Dataset, other: tl.Dataset) -> bool:
    assert one.times is not None
    assert other.times is not None
    return pairs(one) == pairs(other) and one.times.tolist() == other.times.tolist()


@QUICK
@given(rows=LOGS)
def test_a_dataset_survives_a_round_trip_through_files(tmp_path: Path, rows: list[tuple[str, str, int]]) -> None:
    data = tl.read([("x" + user, "x" + item, 1, time) for user, item, time in rows])
    frame = data.to_frame()
    frame.write_csv(tmp_path / "again.csv")
    frame.write_parquet(tmp_path / "again.parquet")
    for name in ("again.csv", "again.parquet"):
        assert same(data, tl.read(tmp_path / name, weight="weight"))


# --- when the careful reader is not needed ----------------------------------------------------------


@pytest.fixture
def no_careful_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the careful reader was asked")

    monkeypatch.setattr(files, "_carefully", refuse)


@pytest.mark.usefixtures("no_careful_reader")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.csv", "user,item,time\nann,tea,\nbob,milk,7\ncy,rum,8\n"),
        ("log.csv", "time,user,item\n,ann,tea\n7,bob,milk\n8,cy,rum\n"),
        ("log.jsonl", '{"user":1,"item":2}\n{"user":2,"item":3,"time":7}\n{"user":3,"item":3,"time":7}\n'),
    ],
)
def test_a_blank_in_a_guessed_time_column_only_costs_the_times(tmp_path: Path, name: str, content: str) -> None:
    with pytest.warns(DataWarning, match="looks like a time, but 1 of"):
        data = tl.read(write(tmp_path, content, name))
    assert data.times is None
    assert data.n_rows == 3


@pytest.mark.parametrize("size", [4, 5, 7, 100])
def test_bad_lines_are_the_same_however_many_are_read_at_once(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK", size)
    monkeypatch.setattr(files, "MOST_LINES", 4)
    content = 'user,item\nann,"te\na"\nbob,"milk\ncy,"rum"x\n\ndan,"a\nb\nc"\neve\nfay,gin\n'
    with pytest.warns(
        DataWarning, match="^dropped 3 bad rows: line 4 has a quote that is not closed; line 5 cannot"
    ):
        data = tl.read(write(tmp_path, content), on_bad_rows="drop")
    assert pairs(data) == [("ann", "te\na", 1), ("dan", "a\nb\nc", 1), ("fay", "gin", 1)]


# --- encodings --------------------------------------------------------------------------------------

ACCENTS = [("Zoë", "thé"), ("Zoë", "crème"), ("André", "thé")]


def accents(encoding: str, kind: str) -> bytes:
    rows = [{"user": user, "item": item, "note": "x"} for user, item in ACCENTS]
    if kind == "jsonl":
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        mark = "\t" if kind == "tsv" else ","
        text = "".join(mark.join(row) + "\r\n" for row in [rows[0].keys(), *(row.values() for row in rows)])
    return text.encode(encoding)


@pytest.mark.usefixtures("no_careful_reader")
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
def test_a_text_file_is_read_in_its_encoding(tmp_path: Path, kind: str, encoding: str, zipped: bool) -> None:
    content = accents(encoding, kind)
    path = write(tmp_path, gzip.compress(content, mtime=0) if zipped else content, f"log.{kind}" + ".gz" * zipped)
    data = tl.read(path, encoding=encoding)
    assert [pair[:2] for pair in pairs(data)] == sorted(ACCENTS)


def test_a_byte_that_the_encoding_does_not_have_makes_the_line_bad(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'lines? .* not UTF-8 \(pass the encoding .*encoding="latin-1"'):
        tl.read(write(tmp_path, accents("latin-1", "csv")))
    for encoding in ("utf-16", "utf-32"):
        with pytest.raises(DataError, match=f"is not {encoding} text.*encoding="):
            tl.read(write(tmp_path, b"user,item\nann,tea\nx"), encoding=encoding)
    path = write(tmp_path, b"user,item\nann,th\xe9\nbob,\x81\ncy,rum\n")
    with pytest.raises(DataError, match=r"1 row is bad: line 3 is not cp1252 \(pass "):
        tl.read(path, encoding="cp1252")
    with pytest.warns(DataWarning, match="dropped 1 bad row"):
        data = tl.read(path, encoding="cp1252", on_bad_rows="drop")
    assert [pair[:2] for pair in pairs(data)] == [("ann", "thé"), ("cy", "rum")]


# --- headers that are rows --------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [{}, {"user": "user", "item": "item"}])
@pytest.mark.parametrize("first", ["196,242,3,881250949", "u1,i1,5,978300760", "7,7,3"])
def test_a_first_line_that_looks_like_data_is_an_error_that_names_header(
    tmp_path: Path, first: str, asked: dict[str, Any]
) -> None:
    path = write(tmp_path, f"{first}\n{first.replace('7', '8')}\n")
    with pytest.raises(DataError, match=r"first line .* looks like data, .*header=False.*user=0, item=1"):
        tl.read(path, **asked)
    if first.startswith("196"):
        with pytest.warns(DataWarning, match="first line .* looks like data, .*header=False"):
            tl.read(path, user=0, item=1)
    assert tl.read(path, header=False).n_rows == 2


@pytest.mark.parametrize("header", ["0,1,2", ",0,1", "user,item,2020"])
def test_numbers_may_be_names_of_columns(tmp_path: Path, header: str) -> None:
    assert tl.read(write(tmp_path, f"{header}\n5,6,7\n8,9,9\n"), user=0, item=1).n_interactions == 2


# --- one definition of a valid row ------------------------------------------------------------------


def rows_of(path: Path, **how: Any) -> tuple[list[tuple[Any, ...]], dict[int, str]]:
    names = ["user", "item"]
    columns = Columns("user", "item") if how.get("header", True) else Columns("0", "1")
    table = files.read_file(path, lambda _: columns, **how)
    assert len(names) == table.frame.width
    return table.frame.rows(), table.bad


SAME_ROWS = {
    "a quote inside of a field": (
        b'user,item\nann,12" pipe\nbob,"a ""b"""\n',
        [("ann", '12" pipe'), ("bob", 'a "b"')],
    ),
    "a quote after a space": (b'user,item\nann, "tea"\nbob,milk\n', [("ann", ' "tea"'), ("bob", "milk")]),
    "a lone CR ends a line": (b"user,item\nann,tea\rbob,milk\n", [("ann", "tea"), ("bob", "milk")]),
    "CR and CRLF in quotes": (b'user,item\r\nann,"t\re\r\na"\r\n', [("ann", "t\re\r\na")]),
    "a NUL": (b"user,item\nann,t\0a\n", [("ann", "t\0a")]),
    "a second byte order mark": (b"\xef\xbb\xbfuser,item\n\xef\xbb\xbfann,tea\n", [("\ufeffann", "tea")]),
    "an empty quoted last field": (b'user,item,note\nann,tea,""\nbob,milk,\n', [("ann", "tea"), ("bob", "milk")]),
    "a long field": (b"user,item\nann,tea\n\nbob," + b"x" * 200_000, [("ann", "tea"), ("bob", "x" * 200_000)]),
    "a header on two lines": (b'user,item,"no\nte"\nann,tea,1\n', [("ann", "tea")]),
}


@pytest.mark.parametrize(("content", "rows"), SAME_ROWS.values(), ids=SAME_ROWS)
def test_a_valid_row_of_csv(tmp_path: Path, content: bytes, rows: list[tuple[str, str]]) -> None:
    assert rows_of(write(tmp_path, content)) == (rows, {})


@pytest.mark.parametrize("value", [b"[1]", b'{"a": 1}', b"1e999", b"-Infinity"])
def test_a_list_or_an_infinite_number_is_no_value(tmp_path: Path, value: bytes) -> None:
    path = write(tmp_path, b'{"user":1,"item":2}\n{"user":' + value + b',"item":3}\n', "log.jsonl")
    with pytest.raises(
        DataError, match=r"1 row is bad: line 2 has a list, an object or a number .* column 'user'"
    ):
        tl.read(path)


# --- names and kinds of files -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["log[1].csv", "log*.csv", "log?.jsonl", "log[1].jsonl", "log[1].parquet"])
def test_a_name_is_no_pattern(tmp_path: Path, name: str) -> None:
    content = FILES["log." + name.rsplit(".", 1)[1]]
    write(tmp_path, content.replace(b"ann", b"eve"), "log1." + name.rsplit(".", 1)[1])
    assert list(tl.read(write(tmp_path, content, name)).users) == ["ann", "bob"]


@pytest.mark.parametrize("name", ["x" * 5_000 + ".csv", "x/" * 5_000 + "log.csv", "a\0b.csv", "\ud800.csv"])
def test_a_name_that_no_file_can_have_is_an_error_of_a_few_words(tmp_path: Path, name: str) -> None:
    for read in (tl.read, lambda path: tl.read([(1, 2), (3, 4)], titles=path)):
        with pytest.raises(DataError, match=r"there is no file|cannot be read: File name too long") as caught:
            read(str(tmp_path / name))
        assert len(str(caught.value)) < 500


def test_a_path_of_bytes_is_an_error(tmp_path: Path) -> None:
    class Odd:
        def __fspath__(self) -> bytes:
            return bytes(write(tmp_path, FILES["log.csv"]))

    with pytest.raises(DataError, match="not a path of text"):
        tl.read(Odd())


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text")
def test_names_that_are_not_utf8_are_read_or_refused(tmp_path: Path) -> None:
    """polars and DuckDB open files by name, and fail on such a name with errors of their own."""
    name = str(tmp_path / "a\udcff")
    rows = pl.DataFrame({"user_id": ["ann", "bob"], "item_id": ["tea", "rum"]})
    Path(f"{name}.csv").write_text(rows.write_csv())
    found = tl.read(f"{name}.csv")
    assert (found.n_interactions, found.name) == (2, "a?")
    rows.write_parquet(tmp_path / "log.parquet")
    (tmp_path / "log.parquet").rename(f"{name}.parquet")
    for read in (
        lambda: tl.read(f"{name}.parquet"),
        lambda: tl.read(f"{name}.csv", format="parquet"),
        lambda: tl.read(found, items=f"{name}.parquet"),
        lambda: tl.read(found, titles=f"{name}.parquet"),
        lambda: tl.read(found, impressions=f"{name}.parquet"),
        lambda: tl.blocks.build(f"{name}.parquet", tmp_path / "blocks", progress=False),
        lambda: tl.blocks.build(str(tmp_path / "*.parquet"), tmp_path / "blocks", progress=False),
    ):
        with pytest.raises(DataError, match=r"a\\udcff.* its name is not valid UTF-8. Rename the file"):
            read()
    model = tl.ItemPop().fit(found)
    for ending in ("csv", "parquet"):
        with pytest.raises(StorageError, match="its name is not valid UTF-8"):
            model.recommend_to(f"{name}-out.{ending}", progress=False)
    assert not list(tmp_path.glob("*-out*"))


def test_rows_that_do_not_fit_are_refused_before_polars_allocates_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file may have many rows, and an allocation that fails ends the process."""
    n = 6_000_000
    rows = pl.DataFrame({"user": pl.repeat(1, n, eager=True), "item": pl.repeat(2, n, eager=True)})
    rows.write_parquet(tmp_path / "log.parquet")
    monkeypatch.setattr("truelike.core.memory.available_memory", lambda: 10**8)
    with pytest.raises(TooLargeError, match=r"6,000,000 rows of .* would take 288.0 MB .* 100.0 MB are available"):
        tl.read(tmp_path / "log.parquet")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_pipes_sockets_and_devices_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", Path("/dev/zero")):
        with pytest.raises(DataError, match="a pipe, a socket or a device; expected a regular file"):
            tl.read(path, format="csv")
        with pytest.raises(DataError, match=r"features cannot be read .*regular file"):
            Features.read(path, "item")


def test_a_panic_of_polars_is_an_error_of_truelike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: Any, **__: Any) -> None:
        raise pl.exceptions.PanicException("index out of bounds")

    for reader in ("scan_csv", "scan_ndjson", "scan_parquet"):
        monkeypatch.setattr(pl, reader, panic)
    with pytest.raises(
        DataError, match=r"cannot be read as Parquet: index out of bounds.*Fetch or write it again"
    ):
        tl.read(write(tmp_path, FILES["log.parquet"], "log.parquet"))
    for name in ("log.csv", "log.jsonl"):
        assert tl.read(write(tmp_path, FILES[name], name)).n_interactions == 3


# --- many columns, many names -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "jsonl", "frame", "dicts"])
def test_a_header_of_many_columns_is_read(tmp_path: Path, kind: str) -> None:
    names = ["user", "item", *(f"column {n}" for n in range(40_000))]
    row = dict.fromkeys(names, "1")
    if kind == "frame":
        data = tl.read(pl.DataFrame([row, row]))
    elif kind == "dicts":
        data = tl.read([{"user": 1, "item": n, f"column {n}": 5} for n in range(20_000)])
    elif kind == "jsonl":
        data = tl.read(write(tmp_path, json.dumps(row) + "\n", "log.jsonl"))
    else:
        data = tl.read(write(tmp_path, ",".join(names) + "\n" + ",".join(row.values()) + "\n"))
    assert data.n_users == 1


def test_a_message_names_a_few_columns_and_reasons_only(tmp_path: Path) -> None:
    names = ",".join(f"c{n},c{n}" for n in range(5_000))
    with pytest.raises(DataError, match=r"more than one column named c0, c1, .* and 4,995 more"):
        tl.read(write(tmp_path, f"user,item,{names}\n"))
    ragged = "".join("x," * n + "\n" for n in range(3, 300))
    with pytest.raises(DataError, match=r"297 rows are bad: line 3 .* and 292 other reasons") as caught:
        tl.read(write(tmp_path, "user,item\nann,tea\n" + ragged))
    assert len(str(caught.value)) < 600
    with pytest.raises(DataError, match="there is no column 'no'") as caught:
        tl.read(write(tmp_path, ",".join(f"{'x' * 900}{n}" for n in range(90)) + "\n"), user="no")
    assert len(str(caught.value)) < 3_000
