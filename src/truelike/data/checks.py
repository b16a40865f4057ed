"""What functions of logs are given, checked in one place: the right kind, and numbers within bounds."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any

from truelike.data.dataset import Dataset
from truelike.errors import DataError, DataWarning, ParameterError


def check_log(value: Any, what: str, part: str = "train") -> None:
    """Raise an error that says what to give instead, where a value is not a Dataset.

    >>> check_log([("ann", "tea")], "fit")
    Traceback (most recent call last):
    ...
    truelike.errors.DataError: fit takes a Dataset, not list: say tl.read(rows)
    """
    if isinstance(value, Dataset):
        return
    is_split = hasattr(value, "train") and hasattr(value, "test")
    remedy = f"say split.{part}" if is_split else "say tl.read(rows)"
    raise DataError(f"{what} takes a Dataset, not {type(value).__name__}: {remedy}")


def known_rows(validation: Any, train: Dataset) -> Dataset:
    """The rows of a validation part that are of users and items of the training log; a warning where none is."""
    check_log(validation, "validation", part="validation")
    known: Dataset = validation.recode(train.users, train.items)[0]
    if validation.n_interactions and not known.n_interactions:
        warnings.warn(
            f"none of the {validation.n_interactions:,} validation rows is of a user and an item of the training "
            "log, so no epoch can be chosen by them",
            DataWarning,
            stacklevel=4,
        )
    return known


def check_share(name: str, value: Any) -> None:
    """Raise an error where a value is no share: at least 0 and below 1."""
    check_number(name, value)
    if not 0 <= value < 1:
        raise ParameterError(f"{name} is {value}; a share is at least 0 and below 1")


def check_number(
    name: str, value: Any, *, low: float | None = None, high: float | None = None, whole: bool = False
) -> None:
    """Raise an error that names a parameter, its value and what is allowed.

    >>> check_number("seed", None, whole=True)
    Traceback (most recent call last):
    ...
    truelike.errors.ParameterError: seed is None; it is a whole number
    """
    right = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if right and math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high):
        return
    bounds = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
    expected = ", ".join(["a whole number" if whole else "a number", *([" and ".join(bounds)] if bounds else [])])
    raise ParameterError(f"{name} is {value!r}; it is {expected}")
