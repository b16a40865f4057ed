"""The model that is taken where none is named: by the size and shape of the log, with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import truelike as tl
from truelike.errors import DataError, ParameterError
from truelike.models import default
from truelike.models.default import choose


@dataclass
class Size:
    n_users: int
    n_items: int


@pytest.mark.parametrize(
    ("users", "items", "expected"),
    [
        (1_435, 1_522, "SoftmaxMF:factors=512"),  # the Amazon split
        (6_040, 3_678, "SoftmaxMF"),  # MovieLens 1M
        (5_000, 300, "SoftmaxMF"),  # more factors than items are nothing new
        (300, 3_000, "EDLAE"),
        (1_000_000, 200_000, "IALS"),
        (50_000, 400_000, "IALS"),  # few users, but too many items for a closed form
    ],
)
def test_the_size_decides(users: int, items: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "cores", lambda: 2)
    chosen, reason = choose(Size(users, items))  # type: ignore[arg-type]
    assert chosen == expected
    assert f"{users:,} users and {items:,} items" in reason


def test_more_cores_go_through_more_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    log: Any = Size(100_000, 50_000)
    chosen = []
    for cores in (2, 64):
        monkeypatch.setattr(default, "cores", lambda n=cores: n)
        chosen.append(choose(log)[0])
    assert chosen == ["IALS", "SoftmaxMF"]


def test_a_split_stands_for_its_training_part_and_without_a_log_the_choice_waits_for_fit() -> None:
    split = tl.split.by_user(tl.synthetic.World(n_users=80, n_items=200).log(), seed=0)
    assert isinstance(tl.recommender(split), tl.EDLAE)
    model = tl.recommender().fit(split.train, validation=split.validation)
    assert isinstance(model, tl.EDLAE)
    assert len(model.recommend(0, k=3)) == 3


def test_what_is_no_log_is_an_error_that_says_so() -> None:
    with pytest.raises(DataError):
        tl.recommender("purchases.csv")


def test_parameters_go_to_the_model_that_is_chosen() -> None:
    log = tl.synthetic.World(n_users=200, n_items=80).log()
    assert tl.recommender(log, factors=16).factors == 16
    with pytest.raises(ParameterError, match="SoftmaxMF has no parameter 'neighbors'"):
        tl.recommender(log, neighbors=3)


def test_what_is_known_beside_the_votes_decides_first() -> None:
    world = tl.synthetic.World(n_users=60, n_items=40)
    shown = {"user_id": [0, 0, 1], "item_id": [1, 2, 3]}
    model = tl.recommender(epochs=1).fit(world.log(), impressions=pl.DataFrame(shown), progress=False)
    assert isinstance(model, tl.ExactNBPO)
    assert model.flips_from == "impressions"
    pytest.importorskip("torch", reason="torch is not installed")
    model = tl.recommender(epochs=1).fit(world.log(), item_features=world.item_features(), progress=False)
    assert isinstance(model, tl.FM)


def test_a_parameter_that_is_given_is_stronger_than_the_size() -> None:
    log = tl.synthetic.World(n_users=700, n_items=600).log()
    assert tl.recommender(log).factors == 512
    assert tl.recommender(log, factors=16).factors == 16
