"""Probabilities of models that are trained on impressions: calibrated on shown pairs that were held out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike import objectives, randomness
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.progress import note
from truelike.training.options import FitOptions
from truelike.training.probability_map import ProbabilityMap
from truelike.training.shown_pairs import PAIRS_AT_ONCE, ShownPairs

SHARE, MOST = 0.1, 200_000  # of the shown pairs that are held out
LEAST = 200  # held-out pairs, below which there is nothing to calibrate on
MOST_WEIGHT = 20.0
REFIT = 0.01  # share of held-out pairs from which on the model is trained again on all pairs


class Calibrated(NamedTuple):
    """The result of a training, and the map from its scores to probabilities."""

    result: Any
    probability: ProbabilityMap | None


def calibrated_fit(
    known: ShownPairs,
    train: Dataset,
    options: FitOptions,
    *,
    seed: int,
    run: Callable[[ShownPairs, Dataset, FitOptions], Any],
    scores: Callable[[Any, Codes, Codes], NDArray[Any]],
) -> Calibrated:
    """Train without a share of the shown pairs, calibrate on these, and train again on all if it was a large share.

    Parameters
    ----------
    known, train, options
        The shown pairs, the interactions and the options of `fit`.
    seed
        Determines which pairs are held out, whether they were taken or not.
    run
        Trains on shown pairs and interactions.
    scores
        Returns the scores of pairs by what `run` returned.
    """
    share = min(SHARE, MOST / known.n_pairs)
    held_out = _held_out(known, share, seed)
    entries = np.flatnonzero(held_out)
    users, items = known.users_of(entries), known.indices[entries]
    taken = known.taken[held_out] == 1
    if held_out.sum() < LEAST or not taken.any() or taken.all() or not (known.taken[~held_out] == 1).any():
        return Calibrated(run(known, train, options), None)
    rest, rest_train = known.select(~held_out), train.select(~held_out[known.taken == 1])
    quiet = options.without("callbacks", "checkpoint", "resume")
    result = run(rest, rest_train, quiet if share >= REFIT else options)
    found = scores(result, users, items)
    logits = known.logits[entries] if len(known.logits) else np.full(len(entries), known.logit)
    noticed = objectives.sigmoid(-logits.astype(np.float64))
    probability = ProbabilityMap.fitted(found, taken, noticed, _weights(known, users, items))
    if share >= REFIT:
        found_map = (
            "sigma(r) needs no map" if probability.kind == "none" else f"a map of the kind {probability.kind}"
        )
        note(f"calibrated on {len(taken):,} held-out impressions: {found_map}; training on all of them")
        result = run(known, train, options)
    return Calibrated(result, probability)


def _held_out(known: ShownPairs, share: float, seed: int) -> NDArray[np.bool_]:
    """Which pairs are held out. It depends on the pair alone."""
    key, found = randomness.key(seed, "held-out impressions"), np.empty(known.n_pairs, dtype=np.bool_)
    for start in range(0, known.n_pairs, PAIRS_AT_ONCE):
        entries = np.arange(start, min(known.n_pairs, start + PAIRS_AT_ONCE))
        pair = known.users_of(entries).astype(np.int64) * known.n_items + known.indices[entries]
        found[entries] = randomness.uniform(key, pair) < share
    return found


def _weights(known: ShownPairs, users: Codes, items: Codes) -> NDArray[np.float64]:
    """How much each held-out pair counts, so that together they are like the pairs that were *not* shown.

    That is p(not shown) / p(shown), by the activity of the user and the visibility of the item, at most MOST_WEIGHT
    times the median.
    """
    active, visible = np.diff(known.indptr), known.pairs_of_item()
    rate = active[users] * (visible[items] / known.n_pairs)
    weights = 1 / np.expm1(np.minimum(rate, 30.0))
    return np.minimum(weights, MOST_WEIGHT * np.median(weights))
