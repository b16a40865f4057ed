"""The names of the estimators of exposure, as `exposure=` of a model takes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.errors import ParameterError, some
from truelike.training.exposure.popularity import POWER, by_popularity
from truelike.training.exposure.rates import CERTAIN, ExposureRates
from truelike.training.exposure.structured import structured

NAMES = '"none", "learned", "item", "structured", "popularity" or "popularity^ALPHA"'
Kind = Literal["none", "learned", "item", "structured", "popularity"]


@dataclass(frozen=True)
class Exposure:
    """How the exposure of pairs without impressions is found.

    Parameters
    ----------
    kind
        "none": everything was shown. "learned": with the preferences, one flip per pair (NBPO). "item": with the
        preferences, one exposure per item (ExpoMF; Liang, Charlin, McInerney, Blei, WWW 2016). "structured": from
        user activity and item visibility. "popularity": by popularity to a power (Rel-MF).
    power
        That of popularity.
    """

    kind: Kind
    power: float = POWER

    def __post_init__(self) -> None:
        if not (math.isfinite(self.power) and self.power >= 0):
            raise ParameterError(f"the power of exposure by popularity is {self.power}; it must be 0 or more")

    @property
    def name(self) -> str:
        """The name that `parse` reads.

        >>> Exposure("popularity", 1.0).name
        'popularity^1'
        """
        return f"popularity^{self.power:g}" if self.kind == "popularity" else self.kind

    @property
    def is_learned(self) -> bool:
        """Whether it is learned with the preferences, so that there is nothing to estimate before."""
        return self.kind in ("learned", "item")

    def estimate(self, train: Dataset | Blocks) -> ExposureRates:
        """Return the exposure of the users and items of a dataset, estimated from its interactions alone."""
        if self.kind == "popularity":
            return by_popularity(train, self.power)
        if self.kind == "structured":
            return structured(train)
        if self.kind == "none":
            ones = np.ones(train.n_users, dtype=np.float32)
            certain = np.full(train.n_items, CERTAIN, dtype=np.float32)
            return ExposureRates(ones, certain, "assumed: everything was shown")
        raise ParameterError(
            f"the exposure {self.name!r} is learned with the preferences, so it cannot be estimated before"
        )


def parse(name: Exposure | str) -> Exposure:
    """Return the estimator of a name: "none", "learned", "item", "structured", "popularity" or "popularity^0.5".

    >>> parse("popularity^0.7")
    Exposure(kind='popularity', power=0.7)
    """
    if isinstance(name, Exposure):
        return name
    if not isinstance(name, str):
        raise ParameterError(f"exposure is {some([repr(name)])}; it must be {NAMES}")
    for kind in ("none", "learned", "item", "structured", "popularity"):
        if name == kind:
            return Exposure(kind)
    if name.startswith("popularity^"):
        try:
            return Exposure("popularity", float(name.partition("^")[2]))
        except ValueError:
            pass
    raise ParameterError(f"exposure is {some([repr(name)])}; it must be {NAMES}")


def is_exposure(value: Any) -> bool:
    """Return whether a value is an estimator of exposure or the name of one.

    >>> is_exposure("structured"), is_exposure("popularity^0.5"), is_exposure("position")
    (True, True, False)
    """
    try:
        parse(value)
    except ParameterError:
        return False
    return True


def estimate(train: Dataset | Blocks, name: Exposure | str) -> ExposureRates:
    """Return the exposure of the users and items of a dataset, by the estimator of a name.

    >>> import truelike as tl
    >>> estimate(tl.synthetic.World(n_users=50, n_items=40).dataset(), "popularity")
    ExposureRates(50 users, 40 items, 'assumed: popularity^0.5')
    """
    return parse(name).estimate(train)


def is_optional_exposure(value: Any) -> bool:
    """Return whether a value is None, or an estimator of exposure or the name of one."""
    return value is None or is_exposure(value)
