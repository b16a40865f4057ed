import io
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import truelike as tl
from truelike.data.parquet_check import damage
from truelike.errors import DataError

N = 3_000
TABLE = pa.table(
    {
        "user": [f"u{n % 99}" for n in range(N)],
        "item": [n % 7 for n in range(N)],
        "flag": [n % 2 == 0 for n in range(N)],
        "words": [["a", None] * (n % 3) for n in range(N)],
        "more": [{"a": n, "b": {"c": None if n % 5 else "x"}} for n in range(N)],
        "nothing": pa.nulls(N),
    }
)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("pages", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("rows", [0, 100, N])
def test_a_whole_file_of_pyarrow_has_no_damage(compression: str, pages: Any, dictionary: bool, rows: int) -> None:
    written = io.BytesIO()
    pq.write_table(
        TABLE.slice(0, rows),
        written,
        compression=compression,
        data_page_version=pages,
        use_dictionary=dictionary,
        write_page_index=dictionary,
        data_page_size=500,
        row_group_size=1_000,
    )
    assert damage(written) is None
    again = io.BytesIO()
    pl.DataFrame(pl.from_arrow(TABLE)).head(rows).write_parquet(again, row_group_size=1_000, data_page_size=500)
    assert damage(again) is None


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", None),
        (b"PAR1", None),
        (b"x" * 100, None),
        (b"PAR1" + b"\xff" * 4 + b"\x20\0\0\0PAR1", None),
        (b"PAR1" + b"\xff" * 40 + b"\x20\0\0\0PAR1", "its footer, or the header of a page, cannot be understood"),
    ],
)
def test_what_is_no_parquet_file_is_left_to_polars(content: bytes, found: str | None) -> None:
    assert damage(io.BytesIO(content)) == found


def test_a_page_may_have_long_statistics() -> None:
    written = io.BytesIO()
    table = pa.table({"user": ["x" * 200_000, "y" * 300_000], "item": [1, 2]})
    pq.write_table(table, written, write_page_index=False, compression="none")
    assert damage(written) is None


def test_a_count_that_polars_would_allocate_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pl.DataFrame({"user": [1], "item": [7]}).write_parquet(path, compression="uncompressed", statistics=False)
    whole = path.read_bytes()
    found = set()
    for place in range(4, len(whole) - 8):
        with io.BytesIO(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]) as changed:
            wrong = damage(changed)
            if wrong is None:
                continue
        found.add(wrong.split(" ")[-1])
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DataError, match=r"log.parquet' (is damaged: |cannot be read as Parquet)"):
            tl.read(path)
    assert {"bytes", "possible", "rows"} <= found
