"""From a score to a probability: fitted on shown pairs that were held out, which the model was not trained on.

- "platt": sigma(a r + b) (Platt, 1999), two numbers.
- "isotonic": the best function that does not decrease (Zadrozny and Elkan, KDD 2002), linear between its steps.
- "none": sigma(r), where neither is better on pairs that it was not fitted to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit

from truelike import objectives
from truelike.core import randomness
from truelike.core.progress import note
from truelike.data.ids import Codes
from truelike.errors import muted
from truelike.exposure.shown_blocks import ShownBlocks
from truelike.exposure.shown_pairs import HeldOut, HeldOutPairs, ShownPairs

Kind = Literal["none", "platt", "isotonic"]
KINDS: tuple[Kind, ...] = ("none", "platt", "isotonic")  # the simplest first
LEAST = 200  # held-out pairs, below which there is nothing to calibrate on
MOST_WEIGHT = 20.0
REFIT = 0.01  # share of held-out pairs from which on the model is trained again on all pairs
FOLDS = 5
LEAST_OF_ISOTONIC = 1_000  # pairs; below, its steps are noise
MIN_STANDARD_ERRORS = 2.0  # standard errors by which a map must be better than none
SLOPE = 1e-3  # of an isotonic map where it is flat, so that it keeps the order of all scores
Floats = NDArray[np.float64]
Numbers = NDArray[np.floating]
Shown = ShownPairs | ShownBlocks
R = TypeVar("R")
Run = Callable[[Shown], R]


@dataclass(frozen=True, eq=False)
class ProbabilityMap:
    """A function from scores to probabilities that keeps their order.

    Attributes
    ----------
    x, y
        The scores and the logits of the probabilities at which the map is known. It is linear between them. Beyond
        them its slope is that of the line through the first and the last, for "isotonic" at most 1.
    pairs
        Number of pairs that it was fitted to.

    Examples
    --------
    >>> scores = np.linspace(-3, 3, 4_000)
    >>> labels = np.arange(4_000) * 0.618 % 1 < expit(scores / 2)
    >>> found = ProbabilityMap.fitted(scores, labels)
    >>> found.kind, [round(float(p), 2) for p in found(np.array([-2.0, 2.0]))]  # expit(1) is 0.73
    ('platt', [0.27, 0.73])
    """

    kind: Kind
    x: Floats = field(default_factory=lambda: np.zeros(0))
    y: Floats = field(default_factory=lambda: np.zeros(0))
    pairs: int = 0

    def __call__(self, r: Numbers) -> NDArray[np.float32]:
        """Return the probabilities of scores."""
        return np.asarray(expit(self.logits(r)), dtype=np.float32)

    def logits(self, r: Numbers) -> Numbers:
        """Return the logits of the probabilities of scores."""
        if self.kind == "none":
            return r
        x, y = self.x, self.y
        slope = (y[-1] - y[0]) / (x[-1] - x[0])
        if self.kind == "platt":
            return np.asarray(y[0] + slope * (r - x[0]))
        slope = min(1.0, slope)
        beyond = np.minimum(r - x[0], 0.0) + np.maximum(r - x[-1], 0.0)
        return np.asarray(np.interp(r, x, y) + slope * beyond)

    @classmethod
    def fitted(
        cls,
        scores: Numbers,
        taken: NDArray[np.bool_],
        noticed: Numbers | None = None,
        weights: Numbers | None = None,
    ) -> ProbabilityMap:
        """Return the kind of map with the smallest log loss on pairs that it was not fitted to, fitted to all pairs.

        It is "none" unless another is better beyond noise.

        `noticed` is the probability that a user who likes an item has taken it, and `weights` is how much each pair
        counts; by default both are 1.
        """
        r, y = np.asarray(scores, np.float64), np.asarray(taken, np.float64)
        seen = np.ones(len(r)) if noticed is None else np.clip(np.asarray(noticed, np.float64), 1e-6, 1.0)
        w = np.ones(len(r)) if weights is None else np.asarray(weights, np.float64) / np.mean(weights)
        if len(r) < 2 * FOLDS or y.min() == y.max() or r.min() == r.max():
            return cls("none", pairs=len(r))
        fold = (randomness.uniform(randomness.key(0, "calibration"), np.arange(len(r))) * FOLDS).astype(int)
        plain = w * _log_losses(r, y, seen)
        best, least = KINDS[0], float(plain.sum())
        for kind in KINDS[1:] if len(r) >= LEAST_OF_ISOTONIC else KINDS[1:2]:
            losses = np.empty(len(r))
            for k in range(FOLDS):
                inside = fold != k
                found = cls._of_kind(kind, r[inside], y[inside], seen[inside], w[inside])
                losses[~inside] = w[~inside] * _log_losses(found.logits(r[~inside]), y[~inside], seen[~inside])
            gain = plain - losses
            if losses.sum() < least and gain.mean() > MIN_STANDARD_ERRORS * gain.std() / np.sqrt(len(r)):
                best, least = kind, float(losses.sum())
        return cls._of_kind(best, r, y, seen, w)

    @classmethod
    def _of_kind(cls, kind: Kind, r: Floats, y: Floats, seen: Floats, w: Floats) -> ProbabilityMap:
        if kind == "none" or y.min() == y.max():
            return cls("none", pairs=len(r))
        if kind == "platt":
            slope, intercept = _platt(r, y, seen, w)
            return cls(kind, np.array([0.0, 1.0]), np.array([intercept, intercept + slope]), len(r))
        order = np.argsort(r, kind="stable")
        w = w * seen
        found = isotonic_regression((y / seen)[order], weights=w[order])  # y / seen has the mean p(liked)
        starts = found.blocks
        sums, totals = np.add.reduceat((w * r)[order], starts[:-1]), np.add.reduceat(w[order], starts[:-1])
        n = len(r)
        level = np.clip(found.x[starts[:-1]], 0.5 / n, 1 - 0.5 / n)
        x, logits = sums / totals, np.log(level) - np.log1p(-level)
        apart = np.concatenate([[True], np.diff(x) > 1e-9])
        x, logits = x[apart], logits[apart]
        if len(x) < 2:
            return cls("none", pairs=n)
        return cls(kind, x, np.maximum.accumulate(logits + SLOPE * (x - x[0])), n)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that are saved, by name."""
        return {
            "probability.kind": np.array([KINDS.index(self.kind)], dtype=np.uint8),
            "probability.x": self.x,
            "probability.y": self.y,
            "probability.pairs": np.array([self.pairs], dtype=np.int64),
        }

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]]) -> ProbabilityMap | None:
        """Return the map of saved arrays; None if there is none."""
        if "probability.kind" not in arrays:
            return None
        kind = KINDS[int(arrays["probability.kind"][0])]
        x, y = (np.asarray(arrays[f"probability.{name}"], np.float64) for name in "xy")
        rises = min(len(x), len(y)) >= 2 and bool(
            (np.diff(x) > 0).all() and (np.diff(y) >= 0).all() and y[-1] > y[0]
        )
        if len(x) != len(y) or not np.isfinite([*x, *y]).all() or (kind != "none" and not rises):
            raise ValueError("the map from scores to probabilities is not one")
        return cls(kind, x, y, int(arrays["probability.pairs"][0]))

    def __repr__(self) -> str:
        return f"ProbabilityMap({self.kind!r}, fitted to {self.pairs:,} pairs)"


def _log_losses(logits: Numbers, y: Floats, noticed: Floats) -> Floats:
    """Minus the log of p(taken) = noticed x p(liked), or of p(not taken)."""
    p = np.clip(noticed * expit(logits), 1e-12, 1 - 1e-12)
    return np.asarray(-(y * np.log(p) + (1 - y) * np.log1p(-p)))


def _platt(r: Floats, y: Floats, noticed: Floats, w: Floats) -> tuple[float, float]:
    """Return the slope and the intercept of the logit of p(liked) on r, by Fisher scoring; the slope is positive."""
    a, b, ridge = 1.0, 0.0, 1e-3
    for _ in range(50):
        p = expit(a * r + b)
        t = np.clip(noticed * p, 1e-12, 1 - 1e-12)
        score = w * (y - t) * (1 - p) / (1 - t)
        h = w * t * (1 - p) ** 2 / (1 - t)
        gradient = np.array([score @ r - ridge * (a - 1), score.sum()])
        hessian = np.array([[h @ (r * r) + ridge, h @ r], [h @ r, h.sum() + 1e-9]])
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 2.0 / max(np.abs(step).max(), 1e-12))
        a, b = a + step[0], b + step[1]
        if np.abs(step).max() < 1e-10:
            break
    return max(float(a), 1e-3), float(b)


def calibrated_fit(
    known: Shown,
    *,
    seed: int,
    run: Run[R],
    scores: Callable[[R, Codes, Codes], Numbers],
    revise: Callable[[R, HeldOutPairs], Run[R] | None] | None = None,
) -> tuple[R, ProbabilityMap | None]:
    """Train without a share of the shown pairs, calibrate on these, and train again on all if it was a large share.

    Return the result of the training, and the map from its scores to probabilities; None if there are too few pairs.

    The seed determines which pairs are held out, whether they were taken or not. `run` trains on shown pairs, and
    `scores` returns the scores of pairs by what it returned. `revise` gets that and the held-out pairs, and may return
    another way to train, which is taken instead.
    """
    which = HeldOut.of(known.n_pairs, seed)
    held_out = known.held_out(which)
    if len(held_out.users) < LEAST or not held_out.taken.any() or held_out.taken.all():
        return run(known), None
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
    elif isinstance(known, ShownBlocks):
        assert isinstance(rest, ShownBlocks)
        known.take_back(rest, held_out)
    return result, probability


def _weights(pairs: HeldOutPairs, visible: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much each held-out pair counts, so that together they are like the pairs that were *not* shown.

    That is p(not shown) / p(shown), by the activity of the user and the visibility of the item, at most MOST_WEIGHT
    times the median. `visible` has the number of pairs of each item that were not held out.
    """
    rate = pairs.shown * ((visible[pairs.items] + 1) / visible.sum())
    weights = 1 / np.expm1(np.minimum(rate, 30.0))
    return np.asarray(np.minimum(weights, MOST_WEIGHT * np.median(weights)))
