"""Ids and titles as arrays: every text comes back, and every id is found."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelike.serving import texts as module
from truelike.serving.texts import IdTexts, Texts

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.lists(TEXT, min_size=1, unique=True), TEXT, st.booleans())
def test_every_id_is_found_and_no_other(ids: list[str], other: str, few: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", 1_000 if few else 0)
        made = IdTexts.of(pl.Series(ids))
        again = IdTexts.restored(made.arrays("users"), "users")
    for found in (made, again):
        assert [found.row(text) for text in ids] == list(range(len(ids)))
        assert [found[row] for row in range(len(ids))] == ids
        assert found.row(other) == (ids.index(other) if other in ids else None)


@given(st.lists(TEXT, min_size=1, unique=True), TEXT)
def test_a_search_finds_the_ids_that_start_so(ids: list[str], start: str) -> None:
    expected = sorted((text for text in ids if text.startswith(start)), key=str.encode)
    assert IdTexts.of(pl.Series(ids)).starting_with(start, 5) == expected[:5]


def test_numbers_are_found_by_their_text() -> None:
    ids = IdTexts.of(pl.Series([2, 10, 9007199254740993]))
    assert [ids.row(text) for text in ("2", "10", "9007199254740993", "02", "")] == [0, 1, 2, None, None]


@pytest.mark.parametrize("few", [0, 1_000])
def test_half_of_a_character_is_no_id(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(module, "FEW", few)
    ids = IdTexts.of(pl.Series(["a"]))
    assert ids.row("\ud800") is None
    assert ids.starting_with("\ud800", 3) == []


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9)))
def test_titles_come_back(titles: list[str]) -> None:
    texts = Texts.of(pl.Series(titles, dtype=pl.String))
    assert [texts[row] for row in range(len(texts))] == titles
