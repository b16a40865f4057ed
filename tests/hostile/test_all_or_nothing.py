"""A step that fails or is interrupted at any line changes nothing: `fit`, `partial_fit`, `set_params`, `set_titles`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.errors import DivergedError

DATA = tl.synthetic.World(n_users=40, n_items=30).dataset()
MORE = [(0, int(DATA.items[3])), (1, int(DATA.items[4])), (10**6, int(DATA.items[5])), (10**6, 10**6)]
MODELS: dict[str, dict[str, Any]] = {
    "ItemPop": {}, "ItemKNN": {}, "EASE": {}, "EDLAE": {}, "IALS": {"factors": 4, "epochs": 2},
    "NBPO": {"factors": 4, "flip_factors": 2, "epochs": 2}, "BPR": {"factors": 4, "epochs": 2},
    "SoftmaxMF": {"factors": 4, "epochs": 2}, "ExactBPO": {"factors": 4, "epochs": 2},
    "ExactNBPO": {"factors": 4, "flip_factors": 2, "epochs": 2}, "AutoRecommender": {"n_trials": 2},
}  # fmt: skip
STEPS: dict[str, Callable[[Any], Any]] = {
    "fit": lambda model: model.fit(DATA.select(DATA.user_of_entry % 3 > 0), progress=False),
    "partial_fit": lambda model: model.partial_fit(MORE, epochs=1, progress=False),
    "set_params": lambda model: model.set_params(
        n_jobs=1, **({"seed": 5} if "seed" in model.get_params() else {})
    ),
    "set_titles": lambda model: model.set_titles({int(DATA.items[0]): "Tea"}),
}
TIMES = 6  # interrupts of each step


class Interrupt:
    """Raise KeyboardInterrupt at a line of truelike's code, in this thread."""

    def __init__(self, at: int | None) -> None:
        self.at, self.lines = at, 0

    def __enter__(self) -> Interrupt:
        assert threading.current_thread() is threading.main_thread()
        self.before = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)

    def trace(self, frame: Any, event: str, _: Any) -> Any:
        name = str(frame.f_globals.get("__name__"))
        # Python does not notice a signal between the last line of `with lock:` and the release; a trace function does
        if "truelike" not in name or name == "truelike.core.parallel":
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                raise KeyboardInterrupt
        return self.trace


def state_of(model: Any) -> tuple[Any, ...]:
    """All that a user can see of a model."""
    parameters = model.get_params()
    if "_state" not in vars(model):
        return (parameters,)
    written = model._written()
    arrays = {name: array.tobytes() for name, array in written._arrays().items()}
    titles = [None if each.train_.titles is None else each.train_.titles.to_list() for each in (model, written)]
    users = [model.train_.users[0], model.train_.users[-1]]
    return parameters, arrays, titles, model.train_.n_interactions, model.recommend(users, k=4).rows()


@pytest.mark.filterwarnings("ignore::truelike.errors.DataWarning")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", MODELS)
def test_an_interrupt_at_any_line_leaves_the_model_as_it_was_or_as_it_becomes(name: str, step: str) -> None:
    model = getattr(tl, name)(**MODELS[name], n_jobs=2) if name != "ItemPop" else tl.ItemPop()
    if name == "ItemPop" and step == "set_params":
        pytest.skip("ItemPop has no parameters")
    model.fit(DATA, progress=False)
    before = vars(model).copy()
    old = state_of(model)
    STEPS[step](model)  # what is imported and compiled once is not counted
    model.__dict__ = before.copy()
    with Interrupt(at=None) as whole:
        STEPS[step](model)
    new = state_of(model)
    assert whole.lines > 3
    rng = np.random.default_rng(len(name) + len(step))
    for at in sorted({1, whole.lines, *rng.integers(1, whole.lines + 1, TIMES).tolist()}):
        model.__dict__ = before.copy()
        assert state_of(model) == old
        with pytest.raises(KeyboardInterrupt), Interrupt(at=at):
            STEPS[step](model)
        assert state_of(model) in (old, new), f"interrupted at line {at} of {whole.lines}"


@pytest.mark.parametrize("name", ["SoftmaxMF", "ExactBPO", "ExactNBPO", "BPR", "NBPO"])
@pytest.mark.parametrize("step", ["fit", "partial_fit"])
def test_training_that_diverges_leaves_the_model_as_it_was(name: str, step: str) -> None:
    model = getattr(tl, name)(**MODELS[name]).fit(DATA, progress=False)
    old = state_of(model)
    model.learning_rate = 1e15  # without set_params, after which the model would not be fitted
    with pytest.raises(DivergedError):
        STEPS[step](model)
    model.learning_rate = old[0]["learning_rate"]
    assert state_of(model) == old
