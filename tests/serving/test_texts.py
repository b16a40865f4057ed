"""Ids as text: every id is found by its text, and no other is."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelike.data.ids import Ids
from truelike.serving import texts as module
from truelike.serving.texts import IdTexts

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, unique=True)


@given(st.one_of(NUMBERS, st.lists(TEXT, min_size=1, unique=True)), TEXT, st.booleans())
def test_every_id_is_found_and_no_other(values: list[Any], other: str, few: bool) -> None:
    ids = pl.Series(values).sort()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", 1_000 if few else 0)
        made = IdTexts(Ids(ids, "int" if isinstance(values[0], int) else "str", "user"))
        texts = [str(value) for value in ids]
        assert [made.row(text) for text in texts] == list(range(len(made)))
        assert made.take(range(len(made))) == texts
        for absent in (other, f"0{texts[0]}", "\ud800", 5_000 * "9", ""):
            assert made.row(absent) == (texts.index(absent) if absent in texts else None)
        assert made.starting_with(other, 5) == [n for n, text in enumerate(texts) if text.startswith(other)][:5]
        assert made.starting_with("\ud800", 3) == []
