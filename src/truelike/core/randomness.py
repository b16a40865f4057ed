"""Counter-based random numbers: each is a function of a key and a counter only.

A generator with a state returns other numbers when the work is divided differently: among threads, into blocks, or
by a stop and a resume. Here a number is a hash of (key, counter), computed in integer arithmetic. So it is the
same on every machine and with every version of NumPy, in whatever order numbers are requested.

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
    """Return the 64-bit key of a stream of random numbers.

    A stream is named by a seed and by words or numbers. The words are part of the result: renaming a stream
    changes its numbers.

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
    """Return 64 random bits for each counter.

    >>> bits(7, np.arange(2))
    array([ 9672475392221035855, 13309476754707697221], dtype=uint64)
    """
    x = counters.astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(key)
    return _mix(_mix(x) + np.uint64(_GOLDEN))


def uniform(key: int, counters: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return a uniform number in [0, 1) for each counter.

    >>> bool(abs(uniform(3, np.arange(100_000)).mean() - 0.5) < 0.01)
    True
    """
    return (bits(key, counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(key: int, counters: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return a standard normal number for each counter, by the inverse distribution function.

    >>> bool(abs(normal(3, np.arange(100_000)).std() - 1) < 0.01)
    True
    """
    from scipy.special import ndtri

    # never exactly 0 or 1: their normal quantiles are infinite
    centred = np.minimum(uniform(key, counters) + 2.0**-54, 1 - 2.0**-53)
    return np.asarray(ndtri(centred), dtype=np.float64)
