"""Many texts in two arrays, which several processes can share: ids and titles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Codes = NDArray[np.int32]

FEW = 50_000  # texts up to which a process keeps them as objects, too: they are found faster


class Texts:
    """Texts by row number: the bytes of all, one after the other, and where each begins.

    Parameters
    ----------
    content
        The UTF-8 bytes of all texts.
    starts
        Where each text begins, and where the last one ends.

    Examples
    --------
    >>> texts = Texts.of(pl.Series(["tea", "milk"]))
    >>> len(texts), texts[1]
    (2, 'milk')
    """

    def __init__(self, content: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
        self.content, self.starts = content, starts
        self._bytes, self._starts = content.data, starts.data
        self._few = [self._text(row) for row in range(len(self))] if len(self) <= FEW else None

    @classmethod
    def of(cls, values: pl.Series) -> Texts:
        """The texts of a series without missing values."""
        encoded = [text.encode() for text in values.cast(pl.String).to_list()]
        starts = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in encoded], out=starts[1:])
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> str:
        return self._few[row] if self._few is not None else self._text(row)

    def take(self, rows: Sequence[int]) -> list[str]:
        """The texts of some rows."""
        few = self._few
        return [self._text(row) for row in rows] if few is None else [few[row] for row in rows]

    def _text(self, row: int) -> str:
        return str(self.encoded(row), "utf-8")

    def encoded(self, row: int) -> bytes:
        """The bytes of a text."""
        return bytes(self._bytes[self._starts[row] : self._starts[row + 1]])

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays for a file."""
        return {f"{name}.content": self.content, f"{name}.starts": self.starts}

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]], name: str) -> Texts:
        """The texts from the arrays of a file."""
        return cls(arrays[f"{name}.content"], arrays[f"{name}.starts"])


class IdTexts:
    """Ids as text, found by binary search. It takes no memory of its own if the arrays are mapped.

    Parameters
    ----------
    texts
        The id of each row.
    order
        The rows in the order of the bytes of their ids.

    Examples
    --------
    >>> ids = IdTexts.of(pl.Series([2, 10, 30]))
    >>> ids.row("10"), ids.row("7"), ids[0]
    (1, None, '2')
    """

    def __init__(self, texts: Texts, order: Codes) -> None:
        self.texts, self.order = texts, order
        self._order = order.data
        self._few = {self.texts[row]: row for row in range(len(texts))} if len(texts) <= FEW else None

    @classmethod
    def of(cls, values: pl.Series) -> IdTexts:
        """The ids of users or items."""
        texts = values.cast(pl.String)
        return cls(Texts.of(texts), texts.arg_sort().to_numpy().astype(np.int32))

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, row: int) -> str:
        return self.texts[row]

    def _at(self, place: int) -> bytes:
        return self.texts.encoded(self._order[place])

    def _place(self, text: bytes) -> int:
        """The number of ids that are smaller."""
        return bisect_left(range(len(self)), text, key=self._at)

    def row(self, text: str) -> int | None:
        """The row of an id; None if it is not known."""
        if self._few is not None:
            return self._few.get(text)
        try:
            wanted = text.encode()
        except UnicodeEncodeError:  # half of a character
            return None
        place = self._place(wanted)
        return self._order[place] if place < len(self) and self._at(place) == wanted else None

    def starting_with(self, text: str, limit: int) -> list[str]:
        """The first ids that start with a text."""
        try:
            wanted = text.encode()
        except UnicodeEncodeError:
            return []
        first, found = self._place(wanted), []
        for place in range(first, min(first + limit, len(self))):
            if not self._at(place).startswith(wanted):
                break
            found.append(str(self._at(place), "utf-8"))
        return found

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays for a file."""
        return {**self.texts.arrays(name), f"{name}.order": self.order}

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]], name: str) -> IdTexts:
        """The ids from the arrays of a file."""
        return cls(Texts.restored(arrays, name), arrays[f"{name}.order"])
