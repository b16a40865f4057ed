"""Training on blocks: the same bits on any number of threads, near the plain engine, one block is the plain engine."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.engines.data import Soft, assert_chosen

import truelike as tl
from truelike.engines.blocks import sgd
from truelike.engines.sgd.engine import SampledEngine
from truelike.errors import ParameterError, StorageError

B = 4


def digest(model: Any) -> str:
    return hashlib.sha256(model.tables_.users.tobytes() + model.tables_.items.tobytes()).hexdigest()


@pytest.fixture(scope="module")
def split() -> tl.Split:
    return tl.splits.by_user(tl.synthetic.World(n_users=1_500, n_items=400).dataset(), seed=0)


@pytest.fixture(scope="module")
def place(split: tl.Split, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("engines")
    for n in (1, B):
        tl.blocks.build(split.train, place / str(n), blocks=n, progress=False)
    return place


MODELS = {
    "IALS": tl.IALS(factors=12, epochs=4),
    "IALS weighted": tl.IALS(factors=12, epochs=2, weighting="log", init="normal"),
    "BPR": tl.BPR(factors=12, epochs=3),
    "WBPR": tl.WBPR(factors=12, epochs=3),
    "NBPR": tl.NBPR(factors=12, epochs=2),
    "ShiftMC": tl.ShiftMC(factors=12, epochs=2),
    "BPO": tl.BPO(factors=12, epochs=2, order="shuffled"),
    "NBPO": tl.NBPO(factors=12, flip_factors=6, epochs=3),
    "NBPO, paper": tl.NBPO(recipe="paper", factors=12, flip_factors=6, epochs=2, order="shuffled"),
    "hard": tl.SampledMF(objective="BPO", negatives="hard:3", factors=12, epochs=2),
    "AHNS": tl.BPR(negatives="ahns:4", factors=12, epochs=2),
    "own": tl.BPR(negatives=Soft(), factors=12, epochs=2),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_result_does_not_depend_on_threads_or_memory(place: Path, name: str) -> None:
    directory = place / str(B)
    out_of_core = tl.clone(MODELS[name], n_jobs=2).fit(tl.blocks.open(directory), progress=False)
    in_core = tl.clone(MODELS[name], n_jobs=1).fit(tl.blocks.open(directory, in_memory=True), progress=False)
    assert digest(out_of_core) == digest(in_core)
    assert out_of_core.history_["loss"].to_list() == in_core.history_["loss"].to_list()


@pytest.mark.parametrize("name", MODELS)
def test_one_block_is_the_plain_engine(place: Path, split: tl.Split, name: str) -> None:
    blocks = tl.blocks.open(place / "1")
    assert digest(tl.clone(MODELS[name]).fit(blocks, progress=False)) == digest(
        tl.clone(MODELS[name]).fit(split.train, progress=False)
    )


@pytest.mark.parametrize("negatives", ["hard:3", "ahns:4:1:0.5", Soft()], ids=str)
def test_negatives_are_chosen_within_a_part_by_their_scores(
    place: Path, negatives: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []

    class Watched(SampledEngine):
        def train_batches(self, number: int, *rest: Any) -> None:
            before = self.tables.copy()
            super().train_batches(number, *rest)
            assert self.n_batches == 1
            assert_chosen(self, before, number)
            trained.append(self.train.n_interactions)

    monkeypatch.setattr(sgd, "SampledEngine", Watched)
    blocks = tl.blocks.open(place / str(B))
    model = tl.BPR(negatives=negatives, n_negatives=50, factors=12, epochs=1, batch_size=10**6, regularization=0)
    tl.clone(model, order="shuffled", learning_rate=1e-3, n_jobs=1).fit(blocks, progress=False)
    assert len(trained) == B * B
    assert sum(trained) == blocks.n_interactions


@pytest.mark.parametrize(
    "model",
    [
        tl.IALS(factors=12, epochs=1, init="normal"),
        tl.IALS(factors=12, epochs=3, init="normal", relaxation=1.0),
        tl.IALS(factors=12, epochs=3),
        tl.IALS(factors=13, epochs=2, weighting="log"),
    ],
)
def test_als_on_blocks_does_the_steps_of_the_plain_engine(place: Path, split: tl.Split, model: tl.IALS) -> None:
    plain = tl.clone(model).fit(split.train, progress=False)
    blocks = tl.clone(model).fit(tl.blocks.open(place / str(B)), progress=False)
    assert_allclose(blocks.history_["loss"], plain.history_["loss"], rtol=1e-5)
    scores, expected = (each.user_factors_[::7] @ each.item_factors_.T for each in (blocks, plain))
    assert_allclose(scores, expected, atol=5e-4)
    assert np.abs(expected).max() > 0.1


def test_recency_counts_on_blocks_as_in_the_plain_engine(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [(int(u), int(i), 1, int(t)) for u, i, t in rng.integers(0, (60, 40, 10**6), size=(900, 3))]
    data = tl.read(rows)
    blocks = tl.blocks.build(data, tmp_path / "blocks", blocks=3, progress=False)
    for recency in ("user", "global"):
        model = tl.IALS(factors=6, epochs=2, recency=recency, weighting="linear", init="normal")
        plain, mine = tl.clone(model).fit(data, progress=False), tl.clone(model).fit(blocks, progress=False)
        assert_allclose(mine.history_["loss"], plain.history_["loss"], rtol=1e-5)
        expected = plain.explain(rows[0][0], [1, 2], k=3)
        found = mine.explain(rows[0][0], [1, 2], k=3)
        assert_allclose(found["contribution"], expected["contribution"], atol=1e-3)


@pytest.mark.parametrize("name", ["BPR", "NBPO", "WBPR"])
def test_sampled_models_rank_as_well_as_by_the_plain_engine(place: Path, split: tl.Split, name: str) -> None:
    model = tl.clone(MODELS[name], epochs=40)
    plain, blocks = (
        tl.clone(model).fit(data, progress=False) for data in (split.train, tl.blocks.open(place / "4"))
    )
    expected, found = (tl.evaluate(each, split.test)["ndcg@20"] for each in (plain, blocks))
    assert found > 0.9 * expected
    lengths = [np.linalg.norm(each.user_factors_, axis=1).mean() for each in (plain, blocks)]
    assert lengths[1] == pytest.approx(lengths[0], rel=0.15), "the L2 is as strong"


def test_validation_keeps_the_best_epoch_and_a_checkpoint_resumes(
    place: Path, split: tl.Split, tmp_path: Path
) -> None:
    blocks = tl.blocks.open(place / str(B))
    model = tl.NBPO(factors=8, epochs=6)
    whole = tl.clone(model).fit(blocks, validation=split.validation, progress=False)
    assert whole.history_["ndcg@20"].len() == 6

    def stop(state: Any) -> None:
        if state.epoch == 2:
            raise KeyboardInterrupt

    options = {"validation": split.validation, "progress": False, "checkpoint": tmp_path / "c"}
    with pytest.raises(KeyboardInterrupt):
        tl.clone(model).fit(blocks, **options, checkpoint_epochs=1, callbacks=[stop])
    resumed = tl.clone(model).fit(blocks, **options, resume=True)
    assert digest(resumed) == digest(whole)
    assert [path.name for path in (place / str(B)).iterdir() if path.name.startswith(".")] == []


def test_what_blocks_cannot_be_trained_with_is_refused(place: Path, split: tl.Split) -> None:
    blocks = tl.blocks.open(place / str(B))
    for model, message in (
        (tl.IALS(solver="cholesky"), "needs all interactions of an item at once"),
        (tl.BPR(init="spectral"), 'init is "spectral"'),
        (tl.BPR(order="file"), 'order is "file"'),
        (tl.BPR(weighting="log"), "BPR does not count weights of 4 blocks"),
        (tl.IALS(recency="user"), "has no times"),
    ):
        with pytest.raises(ParameterError, match=message):
            model.fit(blocks, progress=False)
    with pytest.raises(ParameterError, match="a share of several blocks"):
        tl.IALS().fit(blocks, validation=0.1)
    with pytest.raises(ParameterError, match="Leave cluster out, or train IALS"):
        tl.ExactBPO().fit(blocks, cluster="local")
    with pytest.raises(ParameterError, match="a cluster trains on a block directory"):
        tl.IALS().fit(split.train, cluster="local")


def test_a_full_disk_is_an_error_that_names_the_remedy(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match=r"No space left on device. Name a directory with more room"):
        tl.IALS(factors=4, epochs=1).fit(tl.blocks.open(place / str(B)), progress=False)


def test_models_that_need_all_interactions_get_them(place: Path, split: tl.Split) -> None:
    blocks = tl.blocks.open(place / str(B))
    model = tl.EASE(regularization=50.0)
    assert_array_equal(
        tl.clone(model).fit(blocks).recommend(k=5)["item_id"], model.fit(split.train).recommend(k=5)["item_id"]
    )
