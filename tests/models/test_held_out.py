"""`fit(train, validation=0.1)`: a share of the interactions finds the number of epochs, then all are trained on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike.data.strategies import hold_out
from truelike.errors import DataWarning, ParameterError, StorageError

Make = Callable[..., Any]


@pytest.mark.parametrize("name", ["IALS", "NBPO", "ExactNBPO", "FM", "NeuMF", "ACF", "LightGCN"])
def test_it_is_a_fit_of_all_data_for_the_best_number_of_epochs(make: Make, world: Any) -> None:
    model = make()
    rest, held_out = hold_out(world, 0.2, model.seed)
    figures = make().fit(rest, validation=held_out).history_[model.metric]
    best = int(np.argmax(figures)) + 1
    model.fit(world, validation=0.2)
    assert model.history_.height == best
    assert model.recommend(0).equals(make(epochs=best).fit(world).recommend(0))


def test_users_with_few_interactions_give_their_share_too() -> None:
    data = tl.read([(u, (u + i) % 100) for u in range(1_000) for i in range(4)])
    held_out = hold_out(data, 0.1, seed=0)[1]
    assert 340 < held_out.n_interactions < 460
    assert held_out.interactions_per_user().max() == 1


def test_with_too_few_held_out_interactions_all_epochs_are_run_with_a_warning() -> None:
    data = tl.read([(u, u % 7) for u in range(50)])
    with pytest.warns(DataWarning, match=r"0 held-out interactions are too few .* all 3 are run"):
        model = tl.SoftmaxMF(factors=4, epochs=3).fit(data, validation=0.1)
    assert model.history_.height == 3


def test_a_checkpoint_of_all_epochs_is_not_taken_for_one_of_those_that_were_found(
    world: Any, tmp_path: Path
) -> None:
    tl.BPR(factors=4, epochs=9).fit(world, checkpoint=tmp_path / "state")
    with pytest.raises(StorageError, match="of other data or other parameters"):
        tl.BPR(factors=4, epochs=9).fit(world, checkpoint=tmp_path / "state", validation=0.2, resume=True)


def test_callbacks_hear_of_the_training_and_the_search_is_kept(world: Any) -> None:
    seen: list[int] = []
    model = tl.BPR(factors=4, epochs=9, patience=None)
    model.fit(world, validation=0.2, callbacks=[lambda state: seen.append(state.epoch)])
    assert seen == list(range(model.history_.height))
    assert model.search_history_["ndcg@20"].len() == 9
    assert model.search_history_["ndcg@20"].arg_max() == len(seen) - 1


@pytest.mark.parametrize("share", [1.0, -0.1, float("nan"), 7])
def test_a_wrong_share_is_an_error(share: float, world: Any) -> None:
    with pytest.raises(ParameterError, match="validation is"):
        tl.BPR(epochs=1).fit(world, validation=share)


def test_with_impressions_the_data_must_be_split(world: Any) -> None:
    shown = pl.DataFrame({"user_id": [0, 1], "item_id": [1, 2]})
    with pytest.raises(ParameterError, match="looks like a dislike"):
        tl.ImpressionMF().fit(tl.read(world, impressions=shown), validation=0.1)


@pytest.mark.parametrize("stop_at", [3, 14])
def test_stopped_and_resumed_it_ends_with_the_same_bits(stop_at: int, world: Any, tmp_path: Path) -> None:
    """Stopped while the number of epochs is looked for, and in the training after that."""

    class StopError(Exception):
        pass

    def how(**more: Any) -> dict[str, Any]:
        return {"validation": 0.2, "checkpoint": tmp_path / "state", "checkpoint_epochs": 1, **more}

    def model() -> Any:
        return tl.BPR(factors=8, epochs=12, batch_size=50, patience=None)

    whole = model().fit(world, validation=0.2)
    count = 0

    def epoch(self: Any, *arguments: Any, **named: Any) -> None:
        nonlocal count
        count += 1
        if count == stop_at:
            raise StopError
        plain(self, *arguments, **named)

    from truelike.engines.sgd.engine import SampledEngine

    plain = SampledEngine.epoch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SampledEngine, "epoch", epoch)
        with pytest.raises(StopError):
            model().fit(world, **how())
    assert (tmp_path / "state-held-out").is_dir()
    resumed = model().fit(world, **how(resume=True))
    assert np.array_equal(resumed.user_factors_, whole.user_factors_)
    assert resumed.history_.height == whole.history_.height
