"""Sampling distributions of negatives: which unobserved items are drawn for a positive.

`Uniform()` draws every item with the same probability, `Popularity(alpha)` in proportion to popularity^alpha
(alpha = 1 is that of WBPR). `Hard(n)` and `AHNS(n)` draw n candidates for a negative and choose one of them by its
score. A user's training positives are never drawn. Any sampler can be combined with any sampled objective.

A sampler of your own is a subclass of `Negatives`, a frozen dataclass with its `weights`, or with `draws` and
`priority`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from truelike.core.parameters import forgotten
from truelike.errors import DataError, ParameterError, some

__all__ = ["AHNS", "Hard", "Negatives", "Popularity", "Uniform", "parse"]

NAMES = (
    '"uniform", "popularity", "popularity^ALPHA", "hard", "hard:N", "ahns" or "ahns:N:ALPHA:BETA:P", or an object of a '
    "subclass of Negatives"
)
CHOICE_RULES = (
    "It may use + - * / **, abs, comparisons as factors, sigmoid and log of truelike.objectives, and fields of the "
    "sampler that are numbers."
)
OWN = "own: "  # begins the name of a sampler of the user's own, which no file holds


def __dir__() -> list[str]:
    return sorted(__all__)


@dataclass(frozen=True)
class Negatives:
    """Base class of samplers: of `draws` candidates, drawn by `weights`, the first by `priority` is the negative.

    A subclass implements what it changes. Parameters are the fields of a frozen dataclass.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Head(Negatives):
    ...     least: int = 10
    ...     def weights(self, popularity):
    ...         return popularity >= self.least
    >>> Head(least=3).probabilities(np.array([5, 4, 3, 2]), np.array([0]))
    array([0. , 0.5, 0.5, 0. ])

    The candidate of the highest score below that of the positive, of ten that are drawn by popularity:

    >>> @dataclass(frozen=True)
    ... class SemiHard(Popularity):
    ...     draws: int = 10
    ...     def priority(self, r_i, r_j, u):
    ...         return r_j - 1000 * (r_j >= r_i)
    >>> SemiHard().priority(1.0, np.array([0.5, 0.8, 1.2]), 0.5)
    array([ 5.000e-01,  8.000e-01, -9.988e+02])
    """

    def __new__(cls, *positional: Any, **given: Any) -> Self:
        """Raise an error if a parameter is annotated in a class that is not a dataclass."""
        for each in cls.__mro__:
            for name in given:
                if forgotten(each, name):
                    raise ParameterError(
                        f"{cls.__name__} has no parameter {name!r}, as {each.__name__} is not a dataclass: write "
                        f"@dataclass(frozen=True) above `class {each.__name__}`"
                    )
        return super().__new__(cls)

    def weights(self, popularity: NDArray[Any]) -> Any:
        """Return a number for each item, in proportion to which it is drawn. May implement; default: the same."""
        return np.ones(len(popularity))

    @property
    def draws(self) -> int:
        """How many candidates are drawn for one negative. May implement, also as a field; default: 1."""
        return 1

    def priority(self, r_i: Any, r_j: Any, u: Any) -> Any:
        """Return a number for a candidate j. The one with the largest is the negative. May implement; default: r_j.

        r_i and r_j are the scores of the positive and of the candidate at this moment, and u is a random number between
        0 and 1, another one for each candidate. numba, NumPy and PyTorch run the same lines. They may use `+ - * / **`,
        `abs`, comparisons as factors, `sigmoid` and `log` of `truelike.objectives`, and fields that are numbers.
        """
        return r_j

    @final
    @property
    def name(self) -> str:
        """The name in files and tables: what `parse` reads, or that of a sampler of your own.

        >>> Popularity(0.5).name
        'popularity^0.5'
        """
        return self._known_name if type(self).__module__ == __name__ else f"{OWN}{self!r}"

    @property
    def _known_name(self) -> str:
        """What `parse` reads, of a sampler of this module."""
        return "uniform"

    @final
    def shares(self, popularity: NDArray[Any]) -> NDArray[np.float64]:
        """Return the probability of each item before the user's positives are excluded.

        >>> Popularity().shares(np.array([3, 1]))
        array([0.75, 0.25])
        """
        try:
            weights = np.asarray(self.weights(popularity), dtype=np.float64)
        except Exception as error:
            raise ParameterError(
                f"weights(popularity) of {self!r} fails: {error}. It takes the popularity of all items, an array, "
                "and returns a number for each"
            ) from error
        if weights.shape != np.shape(popularity) or not np.isfinite(weights).all() or (weights < 0).any():
            raise ParameterError(
                f"weights(popularity) of {self!r} must return a number for each of the {len(popularity):,} items, "
                f"finite and at least 0; it returned {np.array2string(weights, threshold=6)}"
            )
        total = weights.sum()
        if not total:
            raise ParameterError(f"weights(popularity) of {self!r} are 0 for all {len(popularity):,} items")
        return np.asarray(weights / total)

    @final
    def probabilities(self, popularity: NDArray[Any], positives: NDArray[Any]) -> NDArray[np.float64]:
        """Return the probability of each item as a candidate for a user with these positives.

        All are 0 for a user who interacted with every item.

        >>> Uniform().probabilities(np.array([5, 1, 1]), np.array([0]))
        array([0. , 0.5, 0.5])
        """
        shares = self.shares(popularity)
        shares[positives] = 0.0
        return np.asarray(shares / (shares.sum() or 1.0))

    @final
    def tables(
        self, popularity: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float64]]:
        """Return Walker's alias table, as (probability to keep a column, alias of the column), and the weights.

        All three are empty for a uniform distribution, which needs no table.
        """
        shares = self.shares(popularity)
        if (shares == shares[:1]).all():
            return np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(0, np.float64)
        return alias_table(shares)


def alias_table(
    weights: NDArray[np.float64],
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float64]]:
    """Return Walker's alias table of probabilities that add up to 1, and these, as `Negatives.tables` does."""
    n, scaled = len(weights), weights * len(weights)
    keep, alias = np.ones(n), np.arange(n, dtype=np.int32)
    small = [int(i) for i in np.flatnonzero(scaled < 1)]
    large = [int(i) for i in np.flatnonzero(scaled >= 1)]
    while small and large:
        low, high = small.pop(), large[-1]
        keep[low], alias[low] = scaled[low], high
        scaled[high] -= 1 - scaled[low]
        if scaled[high] < 1:
            small.append(large.pop())
    return keep.astype(np.float32), alias, weights


@dataclass(frozen=True)
class Uniform(Negatives):
    """Draw every unobserved item with the same probability (the paper's BPR, BPO and NBPO)."""


@dataclass(frozen=True)
class Popularity(Negatives):
    """Draw unobserved items in proportion to popularity^alpha (WBPR with alpha = 1)."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.alpha):
            raise ParameterError(f"{self!r}: alpha must be finite")

    @property
    def _known_name(self) -> str:
        return f"popularity^{self.alpha}" if self.alpha else "uniform"

    def weights(self, popularity: NDArray[Any]) -> NDArray[np.float64]:
        """Return popularity^alpha."""
        return np.asarray(np.maximum(popularity, 1e-9).astype(np.float64) ** self.alpha)


@dataclass(frozen=True)
class Hard(Negatives):
    """Take the best-scored of a few uniform draws (dynamic negative sampling; Zhang et al., SIGIR 2013)."""

    candidates: int = 5

    def __post_init__(self) -> None:
        _check_count(self, "candidates", self.candidates)

    @property
    def draws(self) -> int:
        """The number of candidates."""
        return self.candidates

    @property
    def _known_name(self) -> str:
        return f"hard:{self.candidates}"


@dataclass(frozen=True)
class AHNS(Negatives):
    """Take harder negatives for positives of lower score (adaptive hardness; Lai et al., AAAI 2024).

    Of a few uniform draws it is the one whose score is nearest to beta (r_i + alpha)^(p + 1), where r_i is the score of
    the positive. The power is defined for r_i + alpha > 0; at 0.01 and below it is that of 0.01, which means hard.
    """

    candidates: int = 16
    alpha: float = 1.0
    beta: float = 0.1
    p: float = -2.0

    def __post_init__(self) -> None:
        _check_count(self, "candidates", self.candidates)
        if not (0 <= self.alpha < math.inf and 0 < self.beta < math.inf and -math.inf < self.p < 0):
            raise ParameterError(f"{self!r}: alpha must be at least 0, beta above 0 and p below 0, and all finite")

    @property
    def draws(self) -> int:
        """The number of candidates."""
        return self.candidates

    def priority(self, r_i: Any, r_j: Any, u: Any) -> Any:
        """Return minus the distance of r_j to the wanted score."""
        above = (r_i + self.alpha - 0.01) * (r_i + self.alpha > 0.01)
        return -abs(r_j - self.beta * (above + 0.01) ** (self.p + 1))

    @property
    def _known_name(self) -> str:
        return f"ahns:{self.candidates}:{self.alpha}:{self.beta}:{self.p}"


def _check_count(sampler: Negatives, name: str, value: Any) -> None:
    """Raise an error unless a value of a sampler is a number of candidates."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ParameterError(f"{sampler!r}: {name} must be a whole number, at least 1; it is {value!r}")


def check_choice(sampler: Any, array: Callable[[Any], Any]) -> None:
    """Raise an error unless a sampler can choose: `draws` is a number, and `priority` a finite one for each candidate.

    `array` makes an array or a tensor of a NumPy array.
    """
    _check_count(sampler, "draws", sampler.draws)
    cls = type(sampler)
    if getattr(cls, "draws", None) is Negatives.draws and cls.priority is not Negatives.priority:
        raise ParameterError(
            f"{sampler!r} has a priority, but draws one candidate, so nothing is chosen: write `draws = 5` in its "
            "class, or `draws: int = 5` to make it a parameter"
        )
    if sampler.draws == 1:
        return
    scores, numbers = np.linspace(-50, 50, 21, dtype=np.float32), np.array([1e-7, 0.5, 1 - 1e-7], dtype=np.float32)
    r_i, r_j, u = np.meshgrid(scores, scores, numbers)
    what = f"priority(r_i, r_j, u) of {sampler!r}"
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(sampler.priority(*map(array, (r_i, r_j, u))), dtype=np.float64)
    except Exception as error:
        kind = type(array(u)).__name__
        raise ParameterError(f"{what} fails for arguments of type {kind}: {error}. {CHOICE_RULES}") from error
    if found.shape != r_j.shape:
        raise ParameterError(
            f"{what} returned an array of shape {found.shape} for candidates of shape {r_j.shape}; it must return a "
            "number for each. Write 1 + 0 * r_j in place of 1."
        )
    if not np.isfinite(found).all():
        at = np.unravel_index(np.argmin(np.isfinite(found)), found.shape)
        place = f"r_i={r_i[at]:g}, r_j={r_j[at]:g}, u={u[at]:g}"
        raise ParameterError(f"{what} is {found[at]} at {place}; it must be finite for all scores from -50 to 50")


def is_distribution(value: Any) -> bool:
    """Return whether a value is a sampling distribution or the name of one.

    >>> is_distribution("popularity^0.5"), is_distribution(Uniform()), is_distribution("all")
    (True, True, False)
    """
    if isinstance(value, str) and value.startswith(OWN):
        return True
    try:
        parse(value)
    except ParameterError:
        return False
    return True


def parse(name: Negatives | str) -> Negatives:
    """Return the sampler of a name: "uniform", "popularity", "popularity^0.5", "hard", "hard:10", "ahns" or "ahns:32".

    >>> parse("popularity^0.5"), parse("ahns:32:0.5")
    (Popularity(alpha=0.5), AHNS(candidates=32, alpha=0.5, beta=0.1, p=-2.0))
    """
    if isinstance(name, Negatives):
        return name
    if isinstance(name, str) and name.startswith(OWN):
        raise ParameterError(
            f"the sampler {name.removeprefix(OWN)} is of a class of your own, which no file holds. To train the model "
            "or to serve new users, load it with tl.load(directory, negatives=...)."
        )
    if not isinstance(name, str):
        raise ParameterError(f"negatives is {some([repr(name)])}; it must be {NAMES}")
    try:
        if name == "uniform":
            return Uniform()
        if name == "popularity" or name.startswith("popularity^"):
            return Popularity(float(name.partition("^")[2] or 1))
        if name == "hard" or name.startswith("hard:"):
            return Hard(int(name.partition(":")[2] or 5))
        if name == "ahns" or name.startswith("ahns:"):
            candidates, *rest = name.split(":")[1:] or ["16"]
            if len(rest) <= 3:
                return AHNS(int(candidates), *map(float, rest))
    except ValueError:
        pass
    raise ParameterError(f"negatives is {name!r}; it must be {NAMES}")


def saved_name(value: Negatives | str) -> str:
    """Return what is written to a file."""
    return value.name if isinstance(value, Negatives) else value


def check_has_negatives(train: Any) -> None:
    """Raise an error that names the users who interacted with every item: they have no negatives."""
    full = np.flatnonzero(train.interactions_per_user() >= train.n_items)
    if len(full):
        users = some(map(repr, train.users.take(full.astype(np.int32)).to_list()))
        raise DataError(
            f"user {users} interacted with all {train.n_items:,} items, so no negative can be drawn. "
            "Leave such users out of the training data: there is no item left to recommend to them."
        )
