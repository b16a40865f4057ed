"""The compiled loops of the Langevin engine.

A row is K factors; where exposure is modelled, factors of the exposure alone and a bias of it; and last the bias of the
like. A table has for each row its values, their momentum and their preconditioner, side by side.

Users are moved in the pass over their pairs: no array has an entry for each pair. What a pair adds to a sum over users
(the gradient of an item, for example) is first rounded to a multiple of 2^-16. Sums of such numbers in float64 are
exact, so they do not depend on the order: threads, blocks and machines may share the users in any way.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truelike.core.arrays import Codes, Doubles, Floats
from truelike.core.compile_cache import cached_njit
from truelike.core.sorting import first_at_least
from truelike.engines.sgd.negative_sampling import GOLDEN, mix

STEP, MOMENTUM = 0.3, 0.9
PRECONDITIONER_DECAY = 0.98  # of the running mean of the preconditioner
FAST = {"reassoc", "contract", "nsz"}
_ZERO, _ONE, _MOST, _TINY = np.float32(0), np.float32(1), np.float32(60), np.float32(1e-30)
_SQUARE, _KEPT, _NEW = np.float32(STEP**2), np.float32(MOMENTUM), np.float32(1 - PRECONDITIONER_DECAY)
_HEAT = np.float32(2 * (1 - MOMENTUM) * STEP**2)
_COARSE = np.float32(1.5 * 2**7)  # a float32 that is added to it is rounded to a multiple of 2^-16
_FINE = 1.5 * 2**28  # a float64 that is added to it is rounded to a multiple of 2^-24
_LOW = np.uint64(0xFFFF)


class Labels(NamedTuple):
    """Shown pairs of some users, as `ShownPairs` has them."""

    indptr: Codes
    indices: Codes
    taken: NDArray[np.uint8]
    logits: Floats
    logit: np.float32


class Exposure(NamedTuple):
    """Pairs from which the exposure is learned: shown items, and in `others` one that was not, or a negative number."""

    indptr: Codes
    indices: Codes
    others: Codes


class Own(NamedTuple):
    """The gradient and the information of one user."""

    gradient: Floats
    information: Floats


class Motion(NamedTuple):
    """How rows move in a step.

    Attributes
    ----------
    factors
        The number of factors of the like.
    joint
        Whether the exposure is learned from, too. Otherwise its columns do not move.
    starts, informed, noisy
        Whether the preconditioner starts afresh, whether it changes, and whether there is noise.
    key, first
        The key of the noise, and the number of the first row, by which it is drawn.
    """

    factors: int
    joint: bool
    starts: bool
    informed: bool
    noisy: bool
    key: np.uint64
    first: int


class Prior(NamedTuple):
    """What is known of the users and of the exposure in a step.

    `precision` is that of each column, and `weight` is how much exposure follows tastes. The bias is about
    slope (ln(1 + pairs) - mean) / spread.
    """

    precision: Floats
    slope: float
    mean: float
    spread: float
    weight: float


class Sums(NamedTuple):
    """Sums over users: of each item the gradient and the information; of each column the squares; and others.

    `others` has the sum of activity times bias, and the gradient and the information of the weight.
    """

    gradient: Doubles
    information: Doubles
    squares: Doubles
    others: Doubles


@cached_njit(nogil=True, fastmath=False)
def coarse(x):
    """A float32 as a multiple of 2^-16. Without fastmath=False that of the caller is used, and nothing is rounded."""
    return (x + _COARSE) - _COARSE


@cached_njit(nogil=True, fastmath=False)
def fine(x):
    """A float64 as a multiple of 2^-24."""
    return (x + _FINE) - _FINE


@cached_njit(nogil=True, fastmath=False)
def random_bits(key, counter):
    """The bits of `randomness.bits`."""
    return mix(mix(np.uint64(counter) * GOLDEN + key) + GOLDEN)


@cached_njit(nogil=True, fastmath=False)
def _noise(key, counter):
    """About a normal number: the sum of four uniform ones, with variance 1. A momentum adds up many of them."""
    x = random_bits(key, counter)
    total = (x & _LOW) + (x >> np.uint64(16) & _LOW) + (x >> np.uint64(32) & _LOW) + (x >> np.uint64(48))
    return (np.float32(total) * np.float32(2.0**-16) - np.float32(2)) * np.float32(math.sqrt(3.0))


@cached_njit(nogil=True, fastmath=False)
def _move(row, number, gradient, information, centre, precision, motion):
    """Move a row of a table by the gradient of the log posterior, with noise."""
    width = len(precision)
    for k in range(width):
        if k >= motion.factors and k < width - 1 and not motion.joint:
            continue
        value, speed, scale = row[k], row[width + k], row[2 * width + k]
        force = np.float32(gradient[k]) - precision[k] * (value - (centre if k == width - 1 else np.float32(0)))
        if motion.informed:
            inverse = _ONE / (np.float32(information[k]) + precision[k])
            scale = inverse if motion.starts else scale + _NEW * (inverse - scale)
            row[2 * width + k] = scale
        speed = _KEPT * speed + _SQUARE * scale * force
        if motion.noisy:
            speed += math.sqrt(_HEAT * scale) * _noise(motion.key, (motion.first + number) * width + k)
        row[width + k] = speed
        row[k] = value + speed


@cached_njit(nogil=True, fastmath=False)
def move_items(table, sums, centres, precision, motion):
    """Move all items."""
    for item in range(len(table)):
        information = sums.information[item] if motion.informed else sums.gradient[item]
        _move(table[item], item, sums.gradient[item], information, centres[item], precision, motion)


@cached_njit(nogil=True, fastmath=FAST, error_model="numpy")
def _add(first, n, step, item, row, items, gradient, of_items):
    """Add a pair to the gradients of its user and its item, in n columns."""
    for k in range(n):
        gradient[first + k] += step * items[item, first + k]
        of_items[item, first + k] += coarse(step * row[first + k])


@cached_njit(nogil=True, fastmath=FAST, error_model="numpy")
def _inform(first, n, curvature, item, row, items, own, of_items):
    """Add a pair to the information of its user and its item, in n columns."""
    for k in range(n):
        own[first + k] += curvature * items[item, first + k] * items[item, first + k]
        of_items[item, first + k] += coarse(curvature * row[first + k] * row[first + k])


@cached_njit(nogil=True, fastmath=FAST, error_model="numpy")
def _add_labels(user, row, items, labels, motion, own, sums):
    """Add the labels of a user to the gradients.

    The log likelihood of a pair is ln(q p) if it was taken and ln(1 - q p) if not, where p = sigma(r) and 1 - q is the
    probability of a miss. Arrays are taken out of structures before the loop: each access counts references.
    """
    zero, last, factors = np.uint64(0), np.uint64(len(row) - 1), np.uint64(motion.factors)
    indices, taken, logits, informed = labels.indices, labels.taken, labels.logits, motion.informed
    gradient, information = own.gradient, own.information
    of_items, about_items = sums.gradient, sums.information
    miss = _ONE / (_ONE + math.exp(-labels.logit))
    for entry in range(labels.indptr[user], labels.indptr[user + 1]):
        item = np.uint64(indices[entry])
        r = row[last] + items[item, last]
        for k in range(factors):
            r += row[k] * items[item, k]
        odds = math.exp(-min(max(r, -_MOST), _MOST))
        p = _ONE / (_ONE + odds)
        if len(logits) > 0:
            miss = _ONE / (_ONE + math.exp(-logits[entry]))
        q = _ONE - miss
        step = _ONE - p if taken[entry] else -q * p * odds / (miss + odds + _TINY)
        _add(zero, factors, step, item, row, items, gradient, of_items)
        gradient[last] += step
        of_items[item, last] += coarse(step)
        if informed:
            curvature = q * p * (_ONE - p)
            _inform(zero, factors, curvature, item, row, items, information, about_items)
            information[last] += curvature
            about_items[item, last] += coarse(curvature)


@cached_njit(nogil=True, fastmath=FAST, error_model="numpy")
def _add_exposure(user, row, items, exposure, weight, motion, own, sums):
    """Add the exposure of a user to the gradients.

    The log likelihood of a pair is ln sigma(e) if it was shown and ln sigma(-e) if not, where
    e = c_u + d_i + weight u . v + s . t.
    """
    column, factors, zero = np.uint64(len(row) - 2), np.uint64(motion.factors), np.uint64(0)
    indices, others, informed, n_others = exposure.indices, exposure.others, motion.informed, column - factors
    gradient, information = own.gradient, own.information
    of_items, about_items = sums.gradient, sums.information
    total, square = 0.0, 0.0
    for entry in range(exposure.indptr[user], exposure.indptr[user + 1]):
        for shown in range(2):
            if others[entry] < (-1 if shown else 0):
                continue
            item = np.uint64(indices[entry] if shown else others[entry])
            taste, e = _ZERO, row[column] + items[item, column]
            for k in range(factors):
                taste += row[k] * items[item, k]
            for k in range(factors, column):
                e += row[k] * items[item, k]
            p = _ONE / (_ONE + math.exp(-min(max(e + weight * taste, -_MOST), _MOST)))
            step, curvature = np.float32(shown) - p, p * (_ONE - p)
            total += float(step * taste)
            square += float(curvature * taste * taste)
            _add(zero, factors, step * weight, item, row, items, gradient, of_items)
            _add(factors, n_others, step, item, row, items, gradient, of_items)
            gradient[column] += step
            of_items[item, column] += coarse(step)
            if informed:
                _inform(zero, factors, curvature * weight * weight, item, row, items, information, about_items)
                _inform(factors, n_others, curvature, item, row, items, information, about_items)
                information[column] += curvature
                about_items[item, column] += coarse(curvature)
    sums.others[1] += fine(total)
    sums.others[2] += fine(square)


@cached_njit(nogil=True, fastmath=FAST, error_model="numpy")
def move_users(first, stop, table, items, labels, exposure, prior, motion, sums):
    """Move the users first ... stop - 1 of a table, and add what their pairs say of items to `sums`."""
    width, weight = items.shape[1], np.float32(prior.weight)
    row = np.empty(width, np.float32)
    own = Own(np.empty(width, np.float32), np.empty(width, np.float32))
    for user in range(first, stop):
        row[:], own.gradient[:], own.information[:] = table[user, :width], _ZERO, _ZERO
        _add_labels(user, row, items, labels, motion, own, sums)
        if motion.joint:
            _add_exposure(user, row, items, exposure, weight, motion, own, sums)
        pairs = labels.indptr[user + 1] - labels.indptr[user]
        # a user who was shown nothing is taken for an average one, and not for an extremely inactive one
        activity = (math.log1p(float(pairs)) - prior.mean) / prior.spread if pairs else 0.0
        centre = np.float32(prior.slope * activity)
        _move(table[user], user, own.gradient, own.information, centre, prior.precision, motion)
        for k in range(width):
            sums.squares[k] += fine(np.float64(table[user, k]) * np.float64(table[user, k]))
        sums.others[0] += fine(activity * np.float64(table[user, width - 1]))


@cached_njit(nogil=True, fastmath=False)
def _is_listed(indptr, indices, user, item):
    """Whether a CSR, whose items are sorted, has a pair."""
    at = first_at_least(indices, indptr[user], indptr[user + 1], item)
    return at < indptr[user + 1] and indices[at] == item


@cached_njit(nogil=True, fastmath=False)
def are_listed(indptr, indices, users, items):
    """Whether a CSR, whose items are sorted, has each of some pairs."""
    found = np.empty(len(users), np.bool_)
    for n in range(len(users)):
        found[n] = _is_listed(indptr, indices, users[n], items[n])
    return found


@cached_njit(nogil=True, fastmath=False)
def draw_others(indptr, indices, unlisted, n_items, key, first, tries):
    """For each shown pair an item that the user was not shown, the first of some that are drawn; -1 if all were.

    -2 for an interaction that is not among the impressions: it is known because it was taken, so that exposure would
    seem to follow tastes.
    """
    found = np.full(len(indices), -1, np.int32)
    for user in range(len(indptr) - 1):
        for entry in range(indptr[user], indptr[user + 1]):
            if len(unlisted) > 0 and unlisted[entry]:
                found[entry] = -2
                continue
            for number in range(tries):
                counter = ((first + user) * n_items + indices[entry]) * tries + number
                item = int(np.float64(random_bits(key, counter) >> np.uint64(11)) * 2.0**-53 * n_items)
                if not _is_listed(indptr, indices, user, item):
                    found[entry] = item
                    break
    return found
