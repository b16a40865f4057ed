"""Format the cells of tables on pages and terminals."""

from __future__ import annotations

from typing import Any


def cell(value: Any, digits: int = 4) -> str:
    """Format a value: an empty text for None, a number of decimal places for a fraction, else as it is.

    >>> cell(None), cell(0.5, 2), cell(12345)
    ('', '0.50', '12345')
    """
    if value is None:
        return ""
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def digits_of(column: str, digits: int = 4) -> int:
    """Return the decimal places of a column: two for seconds, else `digits`."""
    return 2 if column.endswith("(s)") else digits
