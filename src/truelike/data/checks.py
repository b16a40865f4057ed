"""Checks of arguments: datasets, numbers and shares."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from truelike.core.forks import check_not_forked
from truelike.data.dataset import Dataset
from truelike.data.protocol import Interactions, has_interactions
from truelike.errors import DataError, DataWarning, ParameterError, warn


def check_dataset(value: object, what: str, part: str = "train") -> None:
    """Raise an error that says what to pass instead, if a value is not a Dataset.

    >>> check_dataset([("ann", "tea")], "fit")
    Traceback (most recent call last):
    ...
    truelike.errors.DataError: fit takes a Dataset, not list: pass tl.read(rows)
    """
    check_not_forked()
    if has_interactions(value):
        return
    remedy = "pass tl.read(rows)"
    if hasattr(value, "targets") or hasattr(getattr(value, part, None), "targets"):
        remedy = "tl.evaluate_new_users(model, split) evaluates on new users"
    elif hasattr(value, "train") and hasattr(value, "test"):
        remedy = f"pass split.{part}"
    raise DataError(f"{what} takes a Dataset, not {type(value).__name__}: {remedy}")


def check_not_empty(dataset: Interactions) -> None:
    """Raise an error if a dataset has no interactions."""
    if dataset.n_interactions == 0:
        raise DataError(
            "the dataset is empty: no row is left. Check that it is the right file, and that min_rating is not "
            "too high."
        )


def check_trainable(dataset: Interactions) -> None:
    """Raise an error if no model can be trained on a dataset: it needs two users and two items.

    >>> import truelike as tl
    >>> check_trainable(tl.read([("ann", "tea"), ("ann", "rum")]))
    Traceback (most recent call last):
    ...
    truelike.errors.DataError: the dataset has only one user, 'ann'. A model learns by comparing several. ...
    """
    check_not_empty(dataset)
    for ids in (dataset.users, dataset.items):
        if len(ids) < 2:
            raise DataError(
                f"the dataset has only one {ids.what}, {ids[0]!r}. A model learns by comparing several. If the "
                f"wrong column was read, name the right one with tl.read(..., {ids.what}=...)."
            )


def known_interactions(validation: Any, train: Interactions) -> Dataset:
    """The validation interactions of users and items of the training data; a warning if there are none."""
    check_dataset(validation, "validation", part="validation")
    known: Dataset = validation.recode(train.users, train.items)[0]
    if validation.n_interactions and not known.n_interactions:
        warn(
            f"none of the {validation.n_interactions:,} validation interactions is of a user and an item of the "
            "training data, so they cannot be used to choose an epoch",
            DataWarning,
        )
    return known


def check_share(name: str, value: float) -> None:
    """Raise an error if a value is not a share, at least 0 and below 1."""
    check_number(name, value)
    if not 0 <= value < 1:
        raise ParameterError(f"{name} is {value}; a share is at least 0 and below 1")


def check_number(
    name: str, value: Any, *, low: float | None = None, high: float | None = None, whole: bool = False
) -> None:
    """Raise an error that names a parameter, its value and what is expected, if it is outside its bounds.

    >>> check_number("seed", None, whole=True)
    Traceback (most recent call last):
    ...
    truelike.errors.ParameterError: seed is None; expected a whole number
    """
    right = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if right and math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high):
        return
    bounds = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
    expected = ", ".join(["a whole number" if whole else "a number", *([" and ".join(bounds)] if bounds else [])])
    raise ParameterError(f"{name} is {value!r}; expected {expected}")
