"""Ids and titles as text, by row number, and rows by the text of their id."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import polars as pl

from truelike.data.ids import Ids

FEW = 50_000  # texts up to which they are kept as objects: they are found faster


def listed(values: pl.Series) -> list[str] | pl.Series:
    """A series whose values are fast to take one by one."""
    return values.cast(pl.String).to_list() if len(values) <= FEW else values.rechunk()


class IdTexts:
    """The ids of a model as text, as requests and answers have them.

    >>> ids = IdTexts(Ids(pl.Series([2, 10, 30]), "int", "item"))
    >>> ids.row("10"), ids.row("010"), ids[0]
    (1, None, '2')
    """

    def __init__(self, ids: Ids) -> None:
        self._values, self._of = ids.values.rechunk(), int if ids.kind == "int" else str
        self._texts = listed(ids.values)
        few = self._texts if len(ids) <= FEW else ()
        self._rows = {text: row for row, text in enumerate(few)}

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, row: int) -> str:
        return str(self._texts[row])

    def take(self, rows: Sequence[int]) -> list[str]:
        """The ids of some rows."""
        return [str(self._texts[row]) for row in rows]

    def row(self, text: str) -> int | None:
        """The row of an id; None if it is not known."""
        if self._rows:
            return self._rows.get(text)
        try:
            place = bisect_left(self._values, self._of(text))
        except ValueError:  # no number
            return None
        return place if place < len(self) and self[place] == text else None

    def starting_with(self, text: str, limit: int) -> list[int]:
        """The rows of the first ids that start with a text."""
        try:
            found = self._values.cast(pl.String).str.starts_with(text)
        except UnicodeEncodeError:  # half of a character
            return []
        rows: list[int] = found.arg_true()[:limit].to_list()
        return rows
