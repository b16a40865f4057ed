"""Random numbers that depend on a key and a counter, and on nothing else.

A generator with a state gives other numbers when the work is cut differently: by threads, by blocks,
by a stop and a resume. Here the number is a hash of (key, counter), in integer arithmetic alone, so it
is the same on every machine, for every NumPy, in any order of asking.

The hash is the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), applied twice.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

UInts = NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mix(x: UInts) -> UInts:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def key(seed: int, *stream: int | str) -> int:
    """A 64-bit key for one stream of numbers: a seed, and words or numbers that name the stream.

    >>> key(0, "split") == key(0, "split"), key(0, "split") == key(1, "split")
    (True, False)
    """
    state = int(seed) & _MASK
    for part in (0, *stream):
        word = zlib.crc32(part.encode()) if isinstance(part, str) else int(part)
        state = (state + _GOLDEN * ((word & _MASK) + 1)) & _MASK
        state = int(_mix(np.array([state], dtype=np.uint64))[0])
    return state


def bits(key: int, counters: NDArray[np.integer]) -> UInts:
    """64 random bits for each counter.

    >>> bits(7, np.arange(2))
    array([ 9672475392221035855, 13309476754707697221], dtype=uint64)
    """
    x = counters.astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(key)
    return _mix(_mix(x) + np.uint64(_GOLDEN))


def uniform(key: int, counters: NDArray[np.integer]) -> NDArray[np.float64]:
    """A number in [0, 1) for each counter.

    >>> bool(abs(uniform(3, np.arange(100_000)).mean() - 0.5) < 0.01)
    True
    """
    return (bits(key, counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(key: int, counters: NDArray[np.integer]) -> NDArray[np.float64]:
    """A standard normal number for each counter (the inverse of its distribution function).

    >>> bool(abs(normal(3, np.arange(100_000)).std() - 1) < 0.01)
    True
    """
    from scipy.special import ndtri

    # never exactly 0 or 1, whose normals would be infinite
    centred = np.minimum(uniform(key, counters) + 2.0**-54, 1 - 2.0**-53)
    return np.asarray(ndtri(centred), dtype=np.float64)
