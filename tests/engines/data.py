"""A small random dataset for tests of engines, and a sampler with its reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.testing import assert_allclose
from scipy import sparse

import truelike as tl
from truelike.negatives import Popularity
from truelike.objectives import log


def make_dataset(n_users: int = 30, n_items: int = 25, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    observed = rng.random((n_users, n_items)) < rng.uniform(0.03, 0.5, (n_users, 1))
    observed[np.arange(n_users), np.arange(n_users) % n_items] = True
    return tl.read(sparse.csr_array(observed.astype(np.float32)))


@dataclass(frozen=True)
class Soft(Popularity):
    """A candidate with a probability in proportion to exp(r_j / temperature), of candidates drawn by popularity."""

    draws: int = 4
    temperature: float = 0.5

    def priority(self, r_i: Any, r_j: Any, u: Any) -> Any:
        return r_j / self.temperature - log(-log(u))


def assert_chosen(engine: Any, tables: Any, epoch: int) -> None:
    """The negatives of a batch with all positives have the highest priority that NumPy finds among the candidates.

    `tables` are those before the batch. With 50 negatives a block of the loops is one positive and its negatives.
    """
    samples, n = engine.samples, engine.settings.n_negatives
    assert n >= 50
    entries = np.arange(engine.train.n_interactions, dtype=np.int32)
    drawn = samples.draw(samples.key(epoch), entries).reshape(len(entries), n, -1)
    u = samples.numbers(samples.choice_key(epoch), entries).reshape(drawn.shape)
    U, V = tables.user_factors[samples.source.users], tables.item_factors
    r_i, r_j = np.einsum("nk,nk->n", U, V[samples.source.items]), np.einsum("nk,nmck->nmc", U, V[drawn])
    priority = engine.negatives.priority(r_i[:, None, None], r_j, u)
    found = engine._batch_samples.item.reshape(-1, n + 1)[:, 1:]
    of_found = np.where(drawn == found[:, :, None], priority, -np.inf).max(axis=2)
    assert_allclose(of_found, priority.max(axis=2), rtol=1e-4, atol=1e-5)
    assert (np.ptp(priority, axis=2) > 1e-3).mean() > 0.5, "the candidates differ"
