"""How a value is written in a table, on a page or on a terminal."""

from __future__ import annotations

from typing import Any


def cell(value: Any, digits: int = 4) -> str:
    """A value as text: nothing for None, so many digits for a fraction, an id as it is.

    >>> cell(None), cell(0.5, 2), cell(12345)
    ('', '0.50', '12345')
    """
    if value is None:
        return ""
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def digits_of(column: str, digits: int = 4) -> int:
    """Seconds need fewer digits than scores."""
    return 2 if column.endswith("(s)") else digits
