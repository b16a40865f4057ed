"""`export_vectors`: a file that a vector database can load."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike.errors import NotFittedError, ParameterError, StorageError


@pytest.fixture(scope="module")
def data() -> Any:
    return tl.synthetic.World(n_users=50, n_items=40).dataset().with_titles({n: f"title {n}" for n in range(40)})


def test_a_bias_is_the_last_dimension(data: Any, tmp_path: Path) -> None:
    model = tl.ExactBPO(factors=6, epochs=3).fit(data, progress=False)
    plain = model.item_vectors()
    model.export_vectors(tmp_path / "items.parquet")
    model.export_vectors(tmp_path / "users.parquet", what="users")
    items, users = pl.read_parquet(tmp_path / "items.parquet"), pl.read_parquet(tmp_path / "users.parquet")
    assert items.columns == ["item_id", "vector", "title"]
    assert items["title"].to_list() == [f"title {n}" for n in items["item_id"]]
    vectors = items["vector"].to_numpy()
    assert vectors[:, -1].tolist() == plain["bias"].to_list()
    assert set(users["vector"].to_numpy()[:, -1]) == {1.0}
    about = json.loads(pl.read_parquet_metadata(tmp_path / "items.parquet")["truelike"])
    assert about == {
        "model": "ExactBPO", "what": "items", "metric": "dot", "factors": 6, "bias": True,
        "dimensions": vectors.shape[1], "length": None, "library_version": tl.__version__,
    }  # fmt: skip


def test_rows_of_zeros_stay_finite(tmp_path: Path) -> None:
    model = tl.IALS(factors=2, epochs=0).fit(tl.synthetic.World(n_users=30, n_items=20).dataset(), progress=False)
    model.user_factors_[:], model.item_factors_[:] = 0, 0
    for what in ("items", "users"):
        model.export_vectors(tmp_path / "v.parquet", what=what, metric="cosine")
        assert np.isfinite(pl.read_parquet(tmp_path / "v.parquet")["vector"].to_numpy()).all()


def test_pyarrow_reads_fixed_size_lists_and_uuids_are_text(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [(uuid.UUID(int=n), f"item {n % 7}") for n in range(30)]
    tl.IALS(factors=4, epochs=1).fit(tl.read(rows), progress=False).export_vectors(
        tmp_path / "users.parquet", what="users"
    )
    table = parquet.read_table(tmp_path / "users.parquet")
    assert str(table.schema.field("vector").type).startswith("fixed_size_list<")
    assert table["user_id"][0].as_py() == str(uuid.UUID(int=0))
    assert b"truelike" in parquet.read_metadata(tmp_path / "users.parquet").metadata


def test_wrong_calls_are_refused(data: Any, tmp_path: Path) -> None:
    model = tl.IALS(factors=4, epochs=1)
    with pytest.raises(NotFittedError):
        model.export_vectors(tmp_path / "v.parquet")
    model.fit(data, progress=False)
    for wrong in ({"what": "both"}, {"metric": "l1"}, {"metric": None}):
        with pytest.raises(ParameterError):
            model.export_vectors(tmp_path / "v.parquet", **wrong)
    with pytest.raises(ParameterError, match=r"must end in \.parquet"):
        model.export_vectors(tmp_path / "v.csv")
    (tmp_path / "v.parquet").mkdir()
    with pytest.raises(StorageError, match="is a directory"):
        model.export_vectors(tmp_path / "v.parquet")
    for kind in (tl.ItemKNN, tl.EASE, tl.ItemPop):
        assert not hasattr(kind(), "export_vectors")
