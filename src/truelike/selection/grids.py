"""The paper's search (its Section 5.1.4): one grid after another, each around the best setting so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from truelike.selection.variants import Parameters

FINE = (0.2, 0.5, 1.0, 2.0, 5.0)
SLOWER = "coarse, slower"


@dataclass(frozen=True)
class Stage:
    """A grid: a function from the best parameters so far to candidates, each given by what it changes."""

    name: str
    candidates: Callable[[Parameters], list[Parameters]]


def _rates(rates: list[float], strengths: list[float], flips: bool) -> list[Parameters]:
    """Eta x lambda, with the same lambda for both tables."""
    names = ("regularization", "flip_regularization") if flips else ("regularization",)
    return [{"learning_rate": rate, **dict.fromkeys(names, s)} for rate, s in product(rates, strengths)]


def around(value: float, factors: Sequence[float] = FINE) -> list[float]:
    """The fine grid around a value.

    >>> around(0.01)
    [0.002, 0.005, 0.01, 0.02, 0.05]
    """
    return [float(f"{value * factor:.6g}") for factor in factors]


def axis(name: str, *values: Any) -> Stage:
    """A grid along one parameter."""
    return Stage(name, lambda best: [{name: value} for value in values])


def paper_stages(
    *, flips: bool = False, flip_rate: bool = False, quick: bool = False, slower: float = 1.0
) -> list[Stage]:
    """Return the stages for a model.

    `flips`: the model has flip tables. `flip_rate`: it has ShiftMC's flip rate f. `quick`: smaller grids. `slower`: a
    factor of all learning rates, for a model that diverges at all of the paper's.

    Examples
    --------
    >>> [stage.name for stage in paper_stages()]
    ['coarse', 'fine', 'batch_size', 'n_negatives', 'factors']
    >>> [len(stage.candidates({"learning_rate": 0.1, "regularization": 1.0})) for stage in paper_stages()]
    [9, 25, 5, 7, 5]
    """
    rates, strengths = ([0.002, 0.02], [0.1, 1.0]) if quick else ([0.001, 0.01, 0.1], [0.01, 0.1, 1.0])
    factors = FINE[1:4] if quick else FINE

    def coarse(best: Parameters) -> list[Parameters]:
        return _rates(around(slower, rates), strengths, flips)

    def fine(best: Parameters) -> list[Parameters]:
        return _rates(around(best["learning_rate"], factors), around(best["regularization"], factors), flips)

    def priors(best: Parameters) -> list[Parameters]:
        pairs = product(around(best["regularization"], factors), around(best["flip_regularization"], factors))
        return [{"regularization": theta, "flip_regularization": phi} for theta, phi in pairs]

    first = Stage("coarse" if slower == 1 else SLOWER, coarse)
    grids = [first, Stage("fine", fine), *([Stage("priors", priors)] if flips else [])]
    if quick:
        return [*grids, axis("n_negatives", 2, 4), *([axis("flip_factors", 0, 50)] if flips else [])]
    return [
        *grids,
        *([axis("flip_rate", 0.0, 0.1, 0.3, 0.5, 0.7, 0.9)] if flip_rate else []),
        axis("batch_size", 1_000, 2_000, 3_000, 4_000, 5_000),
        axis("n_negatives", 1, 2, 3, 4, 5, 6, 7),
        axis("factors", 10, 20, 50, 100, 200),
        *([axis("flip_factors", 0, 1, 2, 5, 10, 20, 50, 100, 200, 500)] if flips else []),
    ]
