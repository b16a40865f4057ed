import datetime as dt
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import sparse

import truelike as tl
from truelike.data.describe import describe, table_1
from truelike.errors import DataError, DataWarning

DATA = tl.read(
    [(user, item, 1, 100 + user) for user in range(10) for item in range(user + 1)] + [(0, 0, 1, 50)],
    name="stairs",
)


def test_table_1_counts_pairs_not_rows() -> None:
    assert table_1(DATA) == {
        "Dataset": "stairs",
        "Interactions": "55",
        "Users": "10",
        "Items": "10",
        "Sparsity": "45.0000%",
    }


def test_the_facts_about_a_dataset_are_right() -> None:
    assert dict(describe(DATA).rows()) == {
        "repeated rows": "1",
        "items per user (least, median, mean, most)": "1, 6, 5.5, 10",
        "users per item (least, median, mean, most)": "1, 6, 5.5, 10",
        "users with one item": "1 (10.0%)",
        "items with one user": "1 (10.0%)",
        "items that make up half of the interactions": "4 (40.0%)",  # 10 + 9 + 8 + 7 = 34 of 55; three make 27
        "share of interactions of the top 1% of items": "18.2%",
        "share of interactions of the top 20% of items": "34.5%",
        "Gini index of item popularity": "0.300",  # (n - 1) / (3 n) for 1, ..., n
        "times": "100 to 109",
        "users with far more items than others": "0 above 105",
        "users with far more items in an hour": "not known without times since 1970",
    }


def test_a_dataset_where_all_items_are_alike_has_no_inequality() -> None:
    facts = dict(describe(tl.read([(user, item) for user in range(4) for item in range(5)])).rows())
    assert facts["Gini index of item popularity"] == "0.000"
    assert facts["times"] == "none"


# --- what looks wrong -----------------------------------------------------------------------------

NOON = 1_700_000_000


@pytest.mark.parametrize("kind", ["list", "frame", "csv"])
def test_duplicated_rows_have_the_user_item_and_time_of_another(kind: str, tmp_path: Path) -> None:
    rows = [("ann", "tea", 5, NOON)] * 3 + [
        ("ann", "tea", 5, NOON + 1),
        ("bob", "tea", 5, NOON),
        ("bob", "rum", 1, 7),
    ]
    frame = pl.DataFrame(rows, schema=["user", "item", "rating", "time"], orient="row")
    frame.write_csv(tmp_path / "log.csv")
    source = {"list": rows, "frame": frame, "csv": tmp_path / "log.csv"}[kind]
    assert dict(describe(source).rows())["duplicated rows"] == "2 (33.3%): ann, tea, 1700000000 (3 rows)"
    assert (
        dict(describe(source, min_rating=5).rows())["duplicated rows"]
        == "2 (40.0%): ann, tea, 1700000000 (3 rows)"
    )


def test_rows_of_another_kind_or_weight_are_not_duplicated_and_dates_are_shown_as_dates() -> None:
    day = dt.datetime(2026, 4, 3, 10)
    rows = [{"user": "ann", "item": "tea", "event": event, "time": day} for event in ("buy", "view", "view")]
    found = dict(describe(rows, kind="event", kinds={"buy": 1, "view": 1}).rows())["duplicated rows"]
    assert found == "1 (33.3%): ann, tea, 2026-04-03 10:00:00 (2 rows)"
    weighted = [{"user": "ann", "item": "tea", "weight": weight, "time": day} for weight in (1, 2)]
    assert dict(describe(weighted).rows())["duplicated rows"] == "0 (0.0%)"
    assert dict(describe([("ann", "tea"), ("ann", "tea")]).rows())["duplicated rows"] == "not known without times"
    assert dict(describe(sparse.csr_array(np.eye(3))).rows())["duplicated rows"] == "not known of a matrix"
    assert "duplicated rows" not in dict(describe(DATA).rows())


def test_what_is_wrong_with_rows_is_said_once() -> None:
    with pytest.warns(DataWarning, match="left out 1 row of weight 0") as told:
        describe([{"user": user, "item": "tea", "time": 1, "qty": user % 2} for user in (1, 2)], weight="qty")
    assert len(told) == 1
    with pytest.raises(DataError, match="1 row is bad: row 1 "):
        describe([("ann", "tea", 1, 5), (None, "tea", 1, 5)])
