"""A small random dataset for tests of engines."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

import truelike as tl


def make_dataset(n_users: int = 30, n_items: int = 25, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    observed = rng.random((n_users, n_items)) < rng.uniform(0.03, 0.5, (n_users, 1))
    observed[np.arange(n_users), np.arange(n_users) % n_items] = True
    return tl.read(sparse.csr_array(observed.astype(np.float32)))
