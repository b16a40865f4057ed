"""Parts of the items are balanced, new in each epoch, and give negatives their declared distribution."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import truelike as tl
from truelike import negatives as sampling
from truelike import objectives
from truelike.engines.blocks.partition import corrected_weights, partition
from truelike.engines.blocks.sgd import StratifiedWorker
from truelike.engines.blocks.workers import Share
from truelike.engines.sgd.samples import Samples, SGDSettings

PARTS = 4


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> tl.blocks.Blocks:
    data = tl.synthetic.World(n_users=3_000, n_items=600, exposure_skew=0.7).dataset()
    place = tmp_path_factory.mktemp("partition") / "blocks"
    return tl.blocks.build(data, place, blocks=PARTS, progress=False)


@pytest.mark.parametrize("name", ["uniform", "popularity", "popularity^0.5"])
def test_each_part_has_its_share_of_positives_and_of_the_distribution(blocks: tl.blocks.Blocks, name: str) -> None:
    popularity = blocks.popularity()
    weights = sampling.parse(name).shares(popularity)
    found = partition(popularity, weights, PARTS, seed=0, epoch=0)
    assert sorted(np.concatenate(found.members)) == list(range(blocks.n_items))
    assert np.ptp([len(each) for each in found.members]) <= 1
    for each in found.members:
        positives = popularity[each].sum() / popularity.sum()
        mass = weights[each].sum() / weights.sum()
        assert positives == pytest.approx(mass, rel=0.01)
        assert positives == pytest.approx(1 / PARTS, rel=0.05), "the work is balanced"


def worker_of(blocks: tl.blocks.Blocks, name: str, n_negatives: int, seed: int) -> StratifiedWorker:
    settings = SGDSettings(0.1, 1.0, 0.0, 0.0, "epoch", n_negatives, 1_000, "blocks", "once")
    share = Share(blocks, range(PARTS), np.zeros((blocks.n_users, 8), dtype=np.float32), 1)
    return StratifiedWorker(share, objectives.BPR, sampling.parse(name), settings, seed, 8, 0)


def weights_of(blocks: tl.blocks.Blocks, worker: StratifiedWorker, negatives: Any) -> NDArray[np.float64]:
    """The weights by which the engine draws."""
    popularity = blocks.popularity()
    sums = sum(worker.history_sums(number) for number in range(len(blocks)))
    return corrected_weights(negatives.shares(popularity), popularity, sums, PARTS)


def strata(worker: StratifiedWorker, blocks: tl.blocks.Blocks, epoch: int) -> Iterator[tuple[int, Any, Any]]:
    """The block, the interactions and the drawn negatives of each stratum of an epoch."""
    worker.begin(epoch, blocks.popularity(), weights_of(blocks, worker, worker.negatives))
    for number in range(PARTS):
        for part in range(PARTS):
            stratum = worker._stratum(number, part)
            own: Any = worker.part_negatives(part)
            samples = Samples(stratum, own, worker.settings, seed=number * PARTS + part)
            entries = np.arange(stratum.n_interactions, dtype=np.int32)
            yield number, stratum, worker._parts.members[part][samples.draw(samples.key(epoch), entries)]


def drawn(blocks: tl.blocks.Blocks, name: str, epochs: int, n_negatives: int) -> NDArray[np.int64]:
    """How often each item is drawn as a negative in some epochs, by the strata that are trained."""
    worker = worker_of(blocks, name, n_negatives, 7)
    counts = np.zeros(blocks.n_items, dtype=np.int64)
    for epoch in range(epochs):
        for _, _, found in strata(worker, blocks, epoch):
            counts += np.bincount(found.reshape(-1), minlength=blocks.n_items)
    return counts


def expected_of_one_machine(blocks: tl.blocks.Blocks, name: str) -> NDArray[np.float64]:
    """The probability of each item as a negative in the draw of the plain engine: all users, all positives."""
    popularity, negatives = blocks.popularity(), sampling.parse(name)
    total = np.zeros(blocks.n_items)
    for block in blocks:
        for row in np.split(block.indices, block.indptr[1:-1]):
            total += len(row) * negatives.probabilities(popularity, row)
    return total / total.sum()


@pytest.mark.parametrize("name", ["uniform", "popularity", "popularity^0.5"])
def test_over_a_rotation_every_item_has_its_declared_probability(blocks: tl.blocks.Blocks, name: str) -> None:
    counts = drawn(blocks, name, epochs=8, n_negatives=3)
    expected = expected_of_one_machine(blocks, name) * counts.sum()
    assert counts.sum() > 1_000_000
    assert stats.chisquare(counts, expected).pvalue > 1e-3
    other = "popularity" if name == "uniform" else "uniform"
    wrong = expected_of_one_machine(blocks, other) * counts.sum()
    assert stats.chisquare(counts, wrong).pvalue < 1e-9, "the test tells distributions apart"


def test_no_negative_is_a_positive_of_its_user(blocks: tl.blocks.Blocks) -> None:
    for number, stratum, found in strata(worker_of(blocks, "uniform", 5, 0), blocks, 0):
        block, users = blocks.block(number), np.repeat(np.arange(stratum.n_users), np.diff(stratum.indptr))
        for user in np.unique(users)[:50]:
            own = block.indices[block.indptr[user] : block.indptr[user + 1]]
            assert not np.isin(found[users == user], own).any()


def test_a_user_with_all_items_of_a_part_is_left_out_of_it(tmp_path: Path) -> None:
    rows = [("all", item) for item in range(8)] + [(f"u{n}", n % 9) for n in range(40)]
    data = tl.read([*rows, ("all", 8), ("eve", 9), ("ann", 9), ("bob", 9)])
    blocks = tl.blocks.build(data, tmp_path / "blocks", blocks=2, progress=False)
    model = tl.BPR(factors=4, epochs=5).fit(blocks, progress=False)
    assert np.isfinite(model.user_factors_).all()
