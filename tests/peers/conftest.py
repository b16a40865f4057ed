"""What the adapted cases of the peers share: lists with given hits, the checkerboard, and small random logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import truelike as tl

Measure = Callable[..., dict[str, Any]]
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "peers.md"


class Given(tl.Scorer):
    """Given scores of all pairs."""

    def __init__(self, train: Any, scores: Any) -> None:
        super().__init__(train)
        self.given = np.asarray(scores, dtype=np.float32)

    def score_users(self, users: Any) -> Any:
        return self.given[users].copy()

    def score_histories(self, histories: Any) -> Any:
        raise NotImplementedError

    def similarities(self, items: Any) -> Any:
        raise NotImplementedError


class Ranked:
    """The least that `tl.evaluate` takes: a ranker with given scores, whose lists are those scores in order."""

    name = "Ranked"

    def __init__(self, train: tl.Dataset, scores: Any) -> None:
        self.train_, self.scores = train, scores

    @property
    def scorer(self) -> tl.Scorer:
        return Given(self.train_, self.scores)


@pytest.fixture(scope="session")
def ranked() -> type[Ranked]:
    return Ranked


@pytest.fixture(scope="session")
def recipes() -> list[Any]:
    """The metrics of other libraries, as the page writes them."""
    found: dict[str, Any] = {}
    exec(PAGE.read_text().split("```python\n")[1].partition("```")[0], found)
    return [value for name, value in found.items() if name not in ("np", "__builtins__")]


@pytest.fixture(scope="session")
def measure(recipes: list[Any]) -> Measure:
    """Evaluate given lists by `tl.evaluate`: each measure has one value for each user with a relevant item.

    The metrics of `recipes` are measured, too. Items are numbers below `n_items`. The training part has one more user,
    who has all items and is not tested.
    """
    metrics = ["ndcg", "recall", "capped_recall", "precision", "f1", "map", "mrr", "hit_rate", *recipes]

    def measured(
        lists: Sequence[Sequence[int]], relevant: Sequence[Sequence[int]], ks: Any, *, n_items: int = 12
    ) -> dict[str, Any]:
        n = len(lists)
        train, test = np.zeros((2, n + 1, n_items))
        scores = np.full((n + 1, n_items), -np.inf)
        train[n] = 1
        for user, (listed, liked) in enumerate(zip(lists, relevant, strict=True)):
            scores[user, list(listed)] = -np.arange(len(listed))
            test[user, list(liked)] = 1
        parts = [tl.read(sparse.csr_array(part)) for part in (train, test)]
        return tl.evaluate(Ranked(parts[0], scores), parts[1], ks=ks, metrics=metrics, notes=False).values

    return measured


@pytest.fixture(scope="session")
def trials() -> tuple[Any, Any, Any]:
    """Random lists of 80 users, some shorter than k, their relevant items, and the number of these."""
    rng = np.random.default_rng(3)
    lists = [rng.permutation(12)[: rng.integers(1, 12)].tolist() for _ in range(80)]
    relevant = [rng.permutation(12)[: rng.integers(1, 12)].tolist() for _ in range(80)]
    return lists, relevant, np.array([len(each) for each in relevant])


@pytest.fixture(scope="session")
def board() -> Any:
    """Even users like even items and odd users odd items, but nobody has the item of the user's own number."""
    n = 50
    users, items = np.indices((n, n))
    return sparse.csr_array(((users % 2 == items % 2) & (users != items)).astype(np.float32))


@pytest.fixture(scope="session")
def log() -> Any:
    """A random log of 150 users and 60 items, some popular, with an item and a user that have nothing."""
    rng = np.random.default_rng(11)
    chance = np.outer(rng.uniform(0.1, 0.5, 150), rng.uniform(0.05, 1, 60) ** 2)
    dense = rng.random((150, 60)) < chance
    dense[:, 7] = dense[3] = False
    return sparse.csr_array(dense.astype(np.float32))
