"""What a dataset carries beside its interactions: how it is read, and that splits hold it out and nothing is lost."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import truelike as tl
from truelike.data.strategies import hold_out
from truelike.errors import DataError, DataWarning, ParameterError

KINDS = {"buy": 1, "view": 0.5, "refund": -1, "seen": "shown", "scroll": 0}
LOG = pl.DataFrame(
    [
        ("ann", "tea", "seen", 1),
        ("ann", "tea", "view", 2),
        ("ann", "tea", "buy", 3),
        ("ann", "rum", "seen", 3),
        ("ann", "rum", "seen", 5),
        ("bob", "rum", "buy", 4),
        ("bob", "rum", "buy", 6),
        ("bob", "rum", "refund", 7),
        ("eve", "gin", "view", 8),
        ("eve", "ale", "scroll", 8),
    ],
    schema=["user", "item", "event", "time"],
    orient="row",
)
ITEMS = pl.DataFrame(
    {
        "sku": ["cola", "rum", "tea"],
        "Title": ["Cola", None, "Green tea"],
        "kind": ["soft", "hard", "soft"],
        "tags": [["sweet"], [], ["hot", "green"]],
        "vector": pl.Series([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], dtype=pl.Array(pl.Float32, 2)),
        "text": ["A dark drink.", "Strong.", "From leaves."],
    }
)


def read(**options: Any) -> tl.Dataset:
    return tl.read(LOG, **{"kind": "event", "kinds": KINDS, "target": "buy", **options})


# --- reading --------------------------------------------------------------------------------------


def test_kinds_are_interactions_other_feedback_and_impressions() -> None:
    data = read()
    assert list(data.users) == ["ann", "bob", "eve"]
    assert list(data.items) == ["gin", "rum", "tea"], "an item whose rows have weight 0 is not there"
    assert data.to_frame().rows() == [("ann", "tea", 1.0, 3), ("bob", "rum", 2.0, 6)]
    assert list(data.kinds) == ["refund", "view"]
    assert data.to_frame("view").rows() == [("ann", "tea", 0.5, 2), ("eve", "gin", 0.5, 8)]
    assert data.to_frame("refund").rows() == [("bob", "rum", -1.0, 7)]
    assert data.to_frame("shown").rows() == [("ann", "rum", 1, 3), ("ann", "rum", 1, 5), ("ann", "tea", 1, 1)]
    assert data.carries == {"times", "kinds", "shown"}


def test_impressions_among_the_rows_have_positions() -> None:
    rows = [
        ("ann", "tea", "buy", None),
        ("ann", "tea", "seen", 2),
        ("bob", "tea", "seen", 1),
        ("bob", "rum", "buy", None),
    ]
    log = pl.DataFrame(rows, schema=["user", "item", "event", "position"], orient="row")
    declared = {"kind": "event", "kinds": {"buy": 1, "seen": "shown"}}
    assert tl.read(log, **declared).to_frame("shown")["position"].to_list() == [2, 1]
    assert "position" not in tl.read(log.with_columns(position=None), **declared).to_frame("shown").columns
    with pytest.raises(DataError, match="1 positions are not whole numbers from 1"):
        tl.read(log.with_columns(pl.col("position") - 1), **declared)


def test_showings_of_a_pair_stay_apart_whatever_scipy_is_asked() -> None:
    seen = pl.DataFrame({"user": ["ann", "ann", "bob"], "item": ["tea", "tea", "rum"], "time": [1, 2, 3]})
    data = tl.read([("ann", "tea"), ("bob", "rum")], impressions=seen)
    assert data.shown is not None
    assert data.shown.csr.sum() == 3
    assert data.shown.csr.tocsc().sum() == 3
    assert data.to_frame("shown")["time"].to_list() == [1, 2, 3]


def test_kinds_of_which_there_is_no_interaction_are_an_error() -> None:
    with pytest.raises(DataError):
        tl.read([{"user": "a", "item": "x", "k": "seen"}], kind="k", kinds={"buy": 1, "seen": "shown"})


def test_without_a_target_all_positive_kinds_are_interactions() -> None:
    data = read(target=None)
    assert data.to_frame().select("user_id", "item_id", "weight").rows() == [
        ("ann", "tea", 1.5),
        ("bob", "rum", 2.0),
        ("eve", "gin", 0.5),
    ]
    assert list(data.kinds) == ["refund"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": {"buy": 1, "seen": "shown"}}, r"'refund' \(1 rows\), 'scroll' \(1 rows\), 'view' \(2 rows\)"),
        ({"kinds": None}, "target needs kinds="),
        ({"kind": None}, "needs kind=, the column of the kinds"),
        ({"target": "sale"}, "target is 'sale'; expected a kind with a positive weight: 'buy', 'view'"),
        ({"target": "refund"}, "expected a kind with a positive weight"),
        ({"kinds": {**KINDS, "buy": "much"}}, "there is no column 'much'"),
        ({"kinds": {"refund": -1}, "target": None}, "no kind is a target"),
        ({"kind": "what"}, "there is no column 'what'"),
    ],
)
def test_kinds_that_are_not_declared_well_are_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, ParameterError), match=message):
        read(**options)


def test_features_keep_their_columns_and_bring_items_and_titles() -> None:
    data = read(items=ITEMS, users=pl.DataFrame({"user_id": ["zoe", "bob"], "age": [30, 40]}))
    assert list(data.items) == ["cola", "gin", "rum", "tea"]
    assert list(data.users) == ["ann", "bob", "eve", "zoe"]
    assert (data.n_interactions, data.shown.n_entries) == (2, 3)
    assert data.titles.to_list() == ["Cola", "gin", "rum", "Green tea"]
    assert data.item_features.columns == ["kind", "tags", "vector", "text"]
    assert data.item_features.frame.dtypes[2] == pl.Array(pl.Float32, 2)
    assert data.item_features.known.tolist() == [True, False, True, True]
    assert data.to_frame("user_features").rows() == [("bob", 40), ("zoe", 30)]
    more = tl.read(data, items=pl.DataFrame({"item": ["gin", "tea"], "kind": ["hard", "hot"]}))
    assert more.item_features.frame["kind"].to_list() == ["soft", "hard", "hard", "hot"]
    assert more.titles.equals(data.titles)
    with pytest.raises(ParameterError, match="no part 'views'; it has interactions, item_features, refund, shown"):
        data.to_frame("views")


def test_ids_of_tables_may_be_numbers_or_text(tmp_path: Path) -> None:
    rows = tl.read([(1, 10), (2, 20)])
    (tmp_path / "items.csv").write_text("item_id,price\n20,5\n30,7\n")
    assert tl.read(rows, items=tmp_path / "items.csv").item_features.frame["price"].to_list() == [None, 5, 7]
    with pytest.raises(DataError, match="ids such as 'x'"):
        tl.read(rows, items=pl.DataFrame({"item": ["x"], "price": [1]}))


IMPRESSIONS = [("ann", "rum"), ("ann", "rum"), ("ann", "tea"), ("bob", "rum"), ("zoe", "rum")]


def test_impressions_of_others_are_counted_in_a_warning() -> None:
    with pytest.warns(DataWarning, match="1 of 5 impressions are left out"):
        data = tl.read([("ann", "tea"), ("bob", "rum")], impressions=IMPRESSIONS)
    assert data.shown.csr.toarray().tolist() == [[2, 1], [1, 0]]
    assert (data.shown.csr.dtype, data.shown.n_impressions, dict(data.shown.known)) == (np.int32, 4, {})
    same = tl.read(data, impressions=tl.read(IMPRESSIONS[:4]))
    assert same.shown.csr.toarray().tolist() == [[4, 2], [2, 0]], "impressions are added"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"count": [1, 0]}, "1 impressions have a count that is no whole number above 0, e.g. 0"),
        ({"weight": [1.0, 2.5]}, "1 impressions have a weight that is no whole number above 0, e.g. 2.5"),
        ({"propensity": [0.5, 1.5]}, r"outside \(0, 1\], e.g. 1.5"),
        ({"position": [0, 1]}, "positions are not whole numbers from 1, e.g. 0"),
        ({"propensity": [0.5, 0.5], "count": [1, 1]}, "give one or the other"),
    ],
)
def test_impressions_that_cannot_be_right_are_an_error(columns: dict[str, Any], message: str) -> None:
    shown = pl.DataFrame({"user": ["ann", "bob"], "item": ["rum", "rum"], **columns})
    with pytest.raises(DataError, match=message):
        tl.read([("ann", "tea"), ("bob", "rum")], impressions=shown)
    twice = pl.DataFrame({"user": ["ann"] * 2, "item": ["tea"] * 2, "propensity": [0.1, 0.2]})
    with pytest.raises(DataError, match="a pair must have one propensity"):
        tl.read([("ann", "tea"), ("bob", "rum")], impressions=twice)


# --- all parts go along ---------------------------------------------------------------------------


def everything(data: tl.Dataset) -> dict[str, Any]:
    """All parts by the ids of the caller, in a form that can be compared."""
    found = {part: data.to_frame(part).rows() for part in ("interactions", *data.kinds)}
    for part in data.carries & {"shown", "item_features", "user_features"}:
        found[part] = data.to_frame(part).rows()
    titles = {} if data.titles is None else dict(zip(data.items, data.titles, strict=True))
    return {**found, "titles": titles, "ids": (list(data.users), list(data.items))}


FULL = read(items=ITEMS.drop("vector"), users=pl.DataFrame({"user": ["bob"], "age": [40]}))


def test_parts_survive_copies_splits_and_blocks(tmp_path: Path) -> None:
    assert everything(pickle.loads(pickle.dumps(FULL))) == everything(FULL)
    numbers = FULL.recode(FULL.users.union(tl.read([("aaa", "x")]).users), FULL.items)[0]
    assert everything(numbers.recode(FULL.users, FULL.items)[0]) == everything(FULL)
    tl.Split(FULL).save(tmp_path / "split")
    assert everything(tl.Split.load(tmp_path / "split").train) == everything(FULL)
    blocks = tl.blocks.build(FULL, tmp_path / "blocks", blocks=2, progress=False)
    assert blocks.carries == FULL.carries
    again, expected = everything(tl.blocks.open(tmp_path / "blocks").to_dataset()), everything(FULL)
    assert again.pop("shown") == [("ann", "rum", 2), ("ann", "tea", 1)]
    expected.pop("shown")
    assert again == expected


def test_restricting_and_the_k_core_keep_what_is_known_of_the_rest() -> None:
    kept = FULL.restrict(np.array([True, True, False]), np.array([False, False, True, True]))
    assert everything(kept)["view"] == [("ann", "tea", 0.5, 2)]
    assert kept.item_features.frame["kind"].to_list() == ["hard", "soft"]
    core = tl.k_core(FULL, user=1, item=1).dataset
    assert everything(core)["ids"] == (["ann", "bob"], ["rum", "tea"])
    assert len(everything(core)["shown"]) == 3
    twice = core.merge(core)
    assert twice.csr.data.tolist() == [2.0, 4.0]
    assert (twice.shown.n_entries, twice.kinds["refund"].csr.data.tolist()) == (6, [-2.0])


def test_block_directories_of_files_have_impressions_and_features(tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'truelike[big]'")
    (tmp_path / "log.csv").write_text("user_id,item_id\nann,tea\nbob,rum\nann,gin\n")
    (tmp_path / "shown.csv").write_text("user_id,item_id,count\nann,rum,3\nbob,rum,1\n")
    (tmp_path / "items.csv").write_text("item_id,price\ntea,3\ncola,1\n")
    parts = {"impressions": tmp_path / "shown.csv", "items": tmp_path / "items.csv"}
    blocks = tl.blocks.build(tmp_path / "log.csv", tmp_path / "blocks", blocks=2, progress=False, **parts)
    data = blocks.to_dataset()
    assert data.to_frame("shown").rows() == [("ann", "rum", 3), ("bob", "rum", 1)]
    assert data.to_frame("item_features").rows() == [("tea", 3)]


# --- splits ---------------------------------------------------------------------------------------

ROW = st.tuples(
    st.integers(0, 5), st.integers(0, 6), st.sampled_from(["buy", "buy", "view", "seen"]), st.integers(0, 9)
)
WAYS: dict[str, Any] = {
    "temporal": lambda data: tl.splits.temporal(data, validation=0.2, test=0.2),
    "by user, time": lambda data: tl.splits.by_user(data, validation=0.2, test=0.3, by="time"),
    "last": lambda data: tl.splits.leave_one_out(data, by="time"),
    "at a date": lambda data: tl.splits.at_date(data, validation_from=4, test_from=7),
    "last 2": lambda data: tl.splits.last_n(data, 2, validation=1),
    "fold": lambda data: tl.splits.k_fold(data, 3)[1],
    "by user": lambda data: tl.splits.by_user(data, validation=0.2, test=0.3),
    "random": lambda data: tl.splits.random(data, validation=0.2, test=0.2),
    "hold_out": lambda data: tl.Split.unchecked(*hold_out(data, 0.3, 1), data, {}),
    "hold_out, time": lambda data: tl.Split.unchecked(*hold_out(data, 0.3, 1, by="time"), data, {}),
}


@pytest.mark.filterwarnings("ignore::truelike.errors.DataWarning")
@pytest.mark.parametrize("way", list(WAYS))
@settings(deadline=None, max_examples=40)
@given(st.lists(ROW, min_size=20, max_size=80), st.booleans())
def test_no_part_leaks_and_nothing_is_lost(way: str, log: list[Any], timed: bool) -> None:
    table = pl.DataFrame(log, schema=["user", "item", "event", "time"], orient="row")
    items, users = pl.DataFrame({"item": range(7), "size": 1}), pl.DataFrame({"user": range(6), "age": 1})
    kinds = {"buy": 1, "view": 0.5, "seen": "shown"}
    try:
        data = tl.read(table, kind="event", kinds=kinds, target="buy", items=items, users=users)
        if not timed and data.shown is not None:  # of which no times are known
            seen = table.filter(pl.col("event") == "seen").select("user", "item")
            data = tl.read(data.with_parts(shown=None), impressions=seen)
        split = WAYS[way](data)
    except (DataError, ParameterError):
        return  # too few rows, or fewer than folds
    parts = split.parts[:2] if way.startswith("hold_out") else split.parts
    train, held_out = parts[0], parts[1:]
    for part in ("interactions", *data.kinds, *data.carries & {"shown"}):
        whole = Counter(row for each in parts for row in each.to_frame(part).rows())
        assert whole == Counter(data.to_frame(part).rows()), f"the union of the parts is the whole, of {part}"
    pairs = {row[:2] for part in held_out for row in part.to_frame().rows()}
    trained = {row[:2] for row in train.to_frame().rows()}
    assert not pairs & trained
    for part in (*data.kinds, *data.carries & {"shown"}):
        assert not pairs & {row[:2] for row in train.to_frame(part).rows()}, (
            f"{part} of a held-out pair is in training"
        )
    if way not in ("temporal", "at a date", "by user, time", "last", "last 2"):
        return
    cuts: dict[Any, int] = {}
    for user, _, _, time in (row for part in held_out for row in part.to_frame().rows()):
        key = 0 if way in ("temporal", "at a date") else user
        cuts[key] = min(time, cuts.get(key, time))
    for part in (*data.kinds, *(data.carries & {"shown"} if timed else ())):
        for row in train.to_frame(part).rows():
            assert row[-1] < cuts.get(0 if way in ("temporal", "at a date") else row[0], 10**9), (
                f"{part} is later than the cut"
            )


@pytest.mark.parametrize("way", ["random", "by user"])
def test_taken_and_other_pairs_are_held_out_alike(way: str) -> None:
    world = tl.synthetic.World(n_users=800, n_items=100, impressions_per_user=60, seed=2)
    data = tl.read(world.dataset(), impressions=world.impressions())
    split = WAYS[way](data)
    taken = np.array([part.interactions_per_user() for part in split.parts])
    others = np.array([np.diff(part.shown.counts.indptr) for part in split.parts]) - taken
    share = taken / taken.sum(axis=0) if way == "by user" else np.array([[0.6], [0.2], [0.2]])
    assert others.sum(axis=1) == pytest.approx((share * others.sum(axis=0)).sum(axis=1), rel=0.03)
    fresh = WAYS[way](world.dataset())
    assert all(np.array_equal(a.csr.indices, b.csr.indices) for a, b in zip(split.parts, fresh.parts, strict=True))


def test_own_parts_take_the_impressions_of_held_out_pairs_from_training() -> None:
    train = tl.read([("ann", "tea"), ("bob", "rum")], impressions=[("ann", "tea"), ("ann", "rum"), ("bob", "tea")])
    split = tl.Split(train, None, tl.read([("ann", "rum")]))
    assert split.train.to_frame("shown").rows() == [("ann", "tea", 1), ("bob", "tea", 1)]
    assert split.test.to_frame("shown").rows() == [("ann", "rum", 1)]


def test_models_cope_with_users_and_items_without_interactions() -> None:
    world = tl.synthetic.World(n_users=60, n_items=40, seed=1)
    data = tl.read(world.dataset(), items=pl.DataFrame({"item": [500, 501], "kind": ["a", "b"]}))
    for model in (
        tl.ItemPop(),
        tl.EASE(),
        tl.IALS(factors=4),
        tl.BPR(factors=4, epochs=1),
        tl.ExactNBPO(epochs=1),
    ):
        lists = model.fit(data, progress=False).recommend(k=5)
        assert lists.height == 300
        assert np.isfinite(lists["score"].to_numpy()).all()


def test_blocks_without_held_out_interactions_keep_features_alone(tmp_path: Path) -> None:
    blocks = tl.blocks.build(FULL, tmp_path / "all", blocks=2, progress=False)
    with pytest.warns(DataWarning, match="have no kinds and shown, which would tell of these"):
        train = tl.blocks.hold_out(blocks, tmp_path / "train").blocks
    assert train.carries == {"times", "item_features", "user_features"}
    assert train.to_dataset().to_frame("user_features").rows() == [("bob", 40)]
