"""Two fits in two threads of one process: each has the bits that it has alone, and BLAS has its threads again."""

from __future__ import annotations

import itertools
import threading
import warnings
from functools import cache, lru_cache
from typing import Any

import pytest
from threadpoolctl import threadpool_info

import truelike as tl
from truelike.models.registry import REGISTRY

QUICK: dict[str, dict[str, Any]] = {
    "ItemPop": {},
    "ItemKNN": {},
    "EASE": {},
    "EDLAE": {},
    "AutoRecommender": {"n_trials": 3},
    "Blend": {"first": "IALS:factors=16:epochs=2", "second": "EASE"},
}
LEFT_OUT = {"DeepRecommender", "Trending"}  # need networks of the user's own, and times
REPRESENTATIVES = ["EASE", "IALS", "SoftmaxMF", "ExactNBPO", "NBPO", "ItemKNN", "NeuMF", "AutoRecommender"]


@lru_cache(maxsize=1)
def data() -> Any:
    return tl.synthetic.World(n_users=200, n_items=700, seed=3).dataset()  # BLAS splits products of this size


def fitted(name: str) -> dict[str, bytes]:
    parameters = QUICK.get(name, {"factors": 16, "epochs": 2})
    model = getattr(tl, name)(**parameters).fit(data(), progress=False)._written()
    return {key: array.tobytes() for key, array in model._arrays().items()}


@cache
def alone(name: str) -> dict[str, bytes]:
    return fitted(name)


def blas_threads() -> list[int]:
    own = [each for each in threadpool_info() if each["user_api"] == "blas" and "faiss" not in each["filepath"]]
    return [library["num_threads"] for library in own]


def check_pair(first: str, second: str, times: int = 2) -> None:
    """Fit both at the same time, some times, and compare with each alone."""
    expected, before = (alone(first), alone(second)), blas_threads()
    together = threading.Barrier(2, timeout=60)
    found: list[list[Any]] = [[], []]

    def work(number: int, name: str) -> None:
        for _ in range(times):
            together.wait()
            found[number].append(fitted(name))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=work, args=each) for each in enumerate((first, second))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name, own, results in zip((first, second), expected, found, strict=True):
        assert len(results) == times, f"{name} failed beside the other"
        assert all(result == own for result in results), f"{name} has other bits: {first} beside {second}"
    assert blas_threads() == before


def all_pairs() -> list[tuple[str, str]]:
    """All pairs of models, for `make fuzz`."""
    return list(itertools.combinations_with_replacement([name for name in REGISTRY if name not in LEFT_OUT], 2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("first", "second"), list(itertools.combinations_with_replacement(REPRESENTATIVES, 2)))
def test_two_fits_at_the_same_time_do_not_change_each_other(first: str, second: str) -> None:
    if "NeuMF" in (first, second):
        pytest.importorskip("torch", reason="networks need PyTorch")
    check_pair(first, second)
