from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.errors import ParameterError
from truelike.training.exposure.names import NAMES, Exposure, estimate, is_exposure, parse
from truelike.training.exposure.popularity import by_popularity

DATA = tl.read([(user, item) for item, n in ((0, 16), (1, 4), (2, 1)) for user in range(n)])


@pytest.mark.parametrize("name", ["none", "learned", "item", "structured", "popularity^0.5", "popularity^1"])
def test_names_are_read_and_given_back(name: str) -> None:
    assert parse(name).name == name
    assert parse(parse(name)) == parse(name)
    assert is_exposure(name)
    assert name.partition("^")[0] in NAMES


def test_the_default_power_is_that_of_rel_mf() -> None:
    assert parse("popularity") == Exposure("popularity", 0.5)


@pytest.mark.parametrize("wrong", ["", "Popularity", "popularity^", "popularity^x", "popularity^-1", 3, None, []])
def test_other_names_are_rejected(wrong: Any) -> None:
    assert not is_exposure(wrong)
    with pytest.raises(ParameterError, match=r"exposure is .*; it must be"):
        parse(wrong)


def test_popularity_to_a_power() -> None:
    assert np.allclose(estimate(DATA, "popularity").propensity_block([3]), [[1, 0.5, 0.25]])
    assert np.allclose(estimate(DATA, "popularity^1").propensity_block([3]), [[1, 0.25, 0.0625]])
    assert np.allclose(by_popularity(DATA, 1.0, least=0.1).propensity_block([3]), [[1, 0.25, 0.1]])
    assert estimate(DATA, "popularity").basis == "assumed: popularity^0.5"


def test_without_exposure_everything_was_shown() -> None:
    assert np.allclose(estimate(DATA, "none").propensity_block([0, 1]), 1)


@pytest.mark.parametrize("name", ["learned", "item"])
def test_what_is_learned_with_the_preferences_cannot_be_estimated(name: str) -> None:
    assert parse(name).is_learned
    with pytest.raises(ParameterError, match="with the preferences"):
        estimate(DATA, name)


@pytest.mark.parametrize("name", ["none", "structured", "popularity"])
def test_blocks_give_the_same_bits(name: str, tmp_path: Path) -> None:
    data = tl.synthetic.World(n_users=200, n_items=50, impressions_per_user=20).dataset()
    blocks = tl.blocks.build(data, tmp_path / "blocks", blocks=3, progress=False)
    assert estimate(blocks, name).digest() == estimate(blocks.to_dataset(), name).digest()
