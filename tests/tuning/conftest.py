from __future__ import annotations

from typing import Any

import pytest

import truelike as tl


@pytest.fixture(scope="session")
def split() -> Any:
    return tl.splits.by_user(tl.synthetic.World(n_users=80, n_items=50, seed=3).dataset(), seed=0)
