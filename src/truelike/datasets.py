"""Public datasets: download, check and load them by name.

>>> import truelike as tl
>>> tl.datasets.names()[:3]
['ml-1m', 'ml-1m-split', 'ml-100k']
"""

from __future__ import annotations

from truelike.data.sources import (
    cache_directory,
    coat_truth,
    fetch,
    load,
    movielens_features,
    movielens_ratings,
    names,
)

__all__ = ["cache_directory", "coat_truth", "fetch", "load", "movielens_features", "movielens_ratings", "names"]


def __dir__() -> list[str]:
    return sorted(__all__)
