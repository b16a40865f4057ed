"""Every model, small and quick, for the suites that all of them must pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.models.registry import REGISTRY, model_class

from .own_models import OwnBPR

SAMPLED: dict[str, Any] = {"factors": 8, "epochs": 60, "batch_size": 50, "regularization": 3.0}
EXACT: dict[str, Any] = {
    "factors": 8, "epochs": 30, "batch_size": 16, "regularization": 3.0, "learning_rate": 0.05,
}  # fmt: skip
NETWORK: dict[str, Any] = {**EXACT, "epochs": 40, "batch_size": 1_000, "learning_rate": 0.1}
# parameters that make a model quick on small data; a model that is not named here takes its defaults
QUICK: dict[str, dict[str, Any]] = {
    "AutoRecommender": {"n_trials": 3},
    "Blend": {"first": "IALS:factors=8", "second": "EASE"},
    "WeightedKinds": {"model": "IALS:factors=8:regularization=0.02:unobserved_weight=0.2"},
    "ItemKNN": {"neighbors": 20},
    "EASE": {"regularization": 10.0},
    "EDLAE": {"regularization": 10.0},
    "IALS": {"factors": 8, "regularization": 0.02, "unobserved_weight": 0.2},
    "SampledMF": SAMPLED,
    "BPR": SAMPLED,
    "WBPR": SAMPLED,
    "NBPR": SAMPLED,
    "BPO": SAMPLED,
    "NBPO": SAMPLED,
    "ShiftMC": {**SAMPLED, "learning_rate": 0.01},
    "SampledListMF": {**EXACT, "batch_size": 200, "n_negatives": 16, "learning_rate": 0.3},
    "ExactMF": EXACT,
    "SoftmaxMF": EXACT,
    "ExactBPO": EXACT,
    "ExactNBPO": {**EXACT, "flip_factors": 4},
    "FM": NETWORK,
    "NeuMF": NETWORK,
    "ACF": NETWORK,
    "LightGCN": NETWORK,
    "DeepRecommender": {**NETWORK, "flip_factors": 4},
    "OwnBPR": {"factors": 8, "epochs": 60},
}
# one model per engine and per network, and one of a user's own, passes the whole suite; the others are constructed,
# fitted, saved and loaded
REPRESENTATIVES = (
    "ItemPop", "ItemKNN", "EASE", "IALS", "NBPO", "SampledListMF", "ExactNBPO", "FM", "NeuMF", "ACF", "LightGCN",
    "WeightedKinds", "OwnBPR",
)  # fmt: skip
NEEDS_TIMES = "Trending"  # the data here has none; tests/models/test_trending.py has its contract
OTHERS = tuple(name for name in REGISTRY if name not in (*REPRESENTATIVES, NEEDS_TIMES))


@pytest.fixture(params=REPRESENTATIVES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(name: str) -> Callable[..., Any]:
    """Returns a new model of the class under test."""
    return maker(name)


def maker(name: str) -> Callable[..., Any]:
    def fresh(**parameters: Any) -> Any:
        return class_of(name)(**{**QUICK.get(name, {}), **parameters})

    return fresh


def class_of(name: str) -> Any:
    """The class of a model under test."""
    return OwnBPR if name == OwnBPR.__name__ else model_class(name)


@pytest.fixture(scope="session")
def fitted(world: Any) -> Callable[[str], Any]:
    """A model of each class that is fitted once for all tests that only ask it."""
    known: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in known:
            known[name] = maker(name)().fit(world)
        return known[name]

    return of


@pytest.fixture
def model(name: str, fitted: Callable[[str], Any]) -> Any:
    """A fitted model that tests do not change."""
    return fitted(name)


def dataset_of(seed: int) -> Any:
    """60 users and 40 items of four tastes; every user and every item has an interaction."""
    rng = np.random.default_rng(seed)
    users, items = np.arange(60)[:, None], np.arange(40)[None, :]
    likely = np.where(users % 4 == items % 4, 0.5, 0.08)
    observed = (rng.random((60, 40)) < likely) | (users % 40 == items)
    return tl.read([(int(u), int(i)) for u, i in np.argwhere(observed)])


@pytest.fixture(scope="session")
def world() -> Any:
    return dataset_of(0)


@pytest.fixture(scope="session")
def other_world() -> Any:
    return dataset_of(1)


@pytest.fixture(scope="session")
def checkerboard() -> list[tuple[int, int]]:
    """Users like items of their own parity; each user lacks the next one of them."""
    return [(u, i) for u in range(16) for i in range(16) if u % 2 == i % 2 and i != (u + 2) % 16]
