"""Probabilities of models that are trained on impressions: calibrated on shown pairs that were held out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from truelike import objectives
from truelike.core.progress import note
from truelike.data.ids import Codes
from truelike.errors import muted
from truelike.exposure.probability_map import ProbabilityMap
from truelike.exposure.shown_blocks import ShownBlocks
from truelike.exposure.shown_pairs import HeldOut, HeldOutPairs, ShownPairs

LEAST = 200  # held-out pairs, below which there is nothing to calibrate on
MOST_WEIGHT = 20.0
REFIT = 0.01  # share of held-out pairs from which on the model is trained again on all pairs

R = TypeVar("R")
Run = Callable[[Any], R]


class Calibrated(NamedTuple, Generic[R]):
    """The result of a training, and the map from its scores to probabilities."""

    result: R
    probability: ProbabilityMap | None


def calibrated_fit(
    known: ShownPairs | ShownBlocks,
    *,
    seed: int,
    run: Run[R],
    scores: Callable[[R, Codes, Codes], NDArray[Any]],
    revise: Callable[[R, HeldOutPairs], Run[R] | None] | None = None,
) -> Calibrated[R]:
    """Train without a share of the shown pairs, calibrate on these, and train again on all if it was a large share.

    Parameters
    ----------
    known
        The shown pairs.
    seed
        Determines which pairs are held out, whether they were taken or not.
    run
        Trains on shown pairs.
    scores
        Returns the scores of pairs by what `run` returned.
    revise
        Gets what `run` returned and the held-out pairs, and may return another way to train, which is taken instead.
    """
    which = HeldOut.of(known.n_pairs, seed)
    held_out = known.held_out(which)
    if len(held_out.users) < LEAST or not held_out.taken.any() or held_out.taken.all():
        return Calibrated(run(known), None)
    rest, again = known.without(which), which.share >= REFIT
    with muted() if again else nullcontext():  # the second training warns of the same
        result = run(rest)
    other = None if revise is None else revise(result, held_out)
    if other is not None:
        run = other
        with muted():
            result = run(rest)
    noticed = objectives.sigmoid(-held_out.logits.astype(np.float64))
    found = scores(result, held_out.users, held_out.items)
    probability = ProbabilityMap.fitted(found, held_out.taken, noticed, _weights(held_out, rest.pairs_of_item()))
    if again:
        found_map = (
            "sigma(r) needs no map" if probability.kind == "none" else f"a map of the kind {probability.kind}"
        )
        n = len(held_out.users)
        note(f"calibrated on {n:,} held-out impressions: {found_map}; training on all of them")
        result = run(known)
    elif isinstance(known, ShownBlocks) and isinstance(rest, ShownBlocks):
        known.take_back(rest, held_out)
    return Calibrated(result, probability)


def _weights(pairs: HeldOutPairs, visible: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much each held-out pair counts, so that together they are like the pairs that were *not* shown.

    That is p(not shown) / p(shown), by the activity of the user and the visibility of the item, at most MOST_WEIGHT
    times the median. `visible` has the number of pairs of each item that were not held out.
    """
    rate = pairs.shown * ((visible[pairs.items] + 1) / visible.sum())
    weights = 1 / np.expm1(np.minimum(rate, 30.0))
    return np.asarray(np.minimum(weights, MOST_WEIGHT * np.median(weights)))
