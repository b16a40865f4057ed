"""Every model, small and quick, for the suites that all of them must pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.models import REGISTRY, model_class

FACTORS: dict[str, Any] = {"factors": 8, "epochs": 60, "batch_size": 50, "regularization": 3.0}
ALL: dict[str, Any] = {"factors": 8, "epochs": 30, "batch_size": 16, "regularization": 3.0, "learning_rate": 0.05}
DEEP: dict[str, Any] = {**ALL, "epochs": 40, "batch_size": 1_000, "learning_rate": 0.1}
# parameters that make a model quick on a small log; a model that is not named here takes its defaults
QUICK: dict[str, dict[str, Any]] = {
    "ItemKNN": {"neighbors": 20},
    "EASE": {"regularization": 10.0},
    "EDLAE": {"regularization": 10.0},
    "IALS": {"factors": 8, "regularization": 0.02, "unobserved_weight": 0.2},
    "MatrixFactorization": FACTORS,
    "BPR": FACTORS,
    "WBPR": FACTORS,
    "NBPR": FACTORS,
    "BPO": FACTORS,
    "NBPO": FACTORS,
    "ShiftMC": {**FACTORS, "learning_rate": 0.01},
    "SoftmaxMF": ALL,
    "ExactBPO": ALL,
    "ExactNBPO": {**ALL, "flip_factors": 4},
    "FM": DEEP,
    "NeuMF": DEEP,
    "ACF": DEEP,
    "LightGCN": DEEP,
    "DeepRecommender": {**DEEP, "flip_factors": 4},
}


@pytest.fixture(params=REGISTRY)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(name: str) -> Callable[..., Any]:
    """A fresh model of the kind that is tested."""

    def fresh(**parameters: Any) -> Any:
        return model_class(name)(**{**QUICK.get(name, {}), **parameters})

    return fresh


def log_of(seed: int) -> Any:
    """60 users and 40 items of four tastes; everybody has a vote, and so has everything."""
    rng = np.random.default_rng(seed)
    users, items = np.arange(60)[:, None], np.arange(40)[None, :]
    likely = np.where(users % 4 == items % 4, 0.5, 0.08)
    voted = (rng.random((60, 40)) < likely) | (users % 40 == items)
    return tl.read([(int(u), int(i)) for u, i in np.argwhere(voted)])


@pytest.fixture(scope="session")
def world() -> Any:
    return log_of(0)


@pytest.fixture(scope="session")
def other_world() -> Any:
    return log_of(1)


@pytest.fixture(scope="session")
def checkerboard() -> list[tuple[int, int]]:
    """Users and items of the same parity like each other; of their items, users lack the next one."""
    return [(u, i) for u in range(16) for i in range(16) if u % 2 == i % 2 and i != (u + 2) % 16]
