"""`tl.objectives.check` passes what is right, and says where an objective is wrong."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from scipy.special import expit

import truelike as tl
from truelike import objectives
from truelike.errors import ObjectiveError, ParameterError, TrainingWarning
from truelike.models import objective_names
from truelike.objectives import BPO, BPR, NBPO, Listwise, Objective, Pairwise, Pointwise, Softmax, log, sigmoid
from truelike.objectives.checker import Report

BUILT_IN = [objective_names.objective(name, rate) for name in objective_names.KNOWN for rate in (0.1, 0.7)]


def results(report: Report) -> dict[str, str]:
    return {row.what: row.result for row in report.rows}


def detail(report: Report, what: str) -> str:
    return next(row.detail for row in report.rows if row.what == what)


@pytest.mark.parametrize("objective", dict.fromkeys(BUILT_IN), ids=lambda objective: objective.__name__)
def test_all_objectives_of_the_library_pass(objective: type[Objective]) -> None:
    report = objectives.check(objective, raise_error=True)
    assert report.ok
    assert ("surrogate" in results(report).values()) == (objective is NBPO)
    assert repr(report).startswith(f"{objective.__name__}: ok\n")


# --- what is wrong, and where -----------------------------------------------------------------------


class WrongSign(BPO):
    @staticmethod
    def negative(r: Any, g: Any) -> Any:
        return sigmoid(r), 0 * g


class Twice(BPR):
    curvature = 1.0

    @staticmethod
    def pair(r_i: Any, r_j: Any) -> Any:
        wrong = 2 * sigmoid(r_j - r_i)
        return wrong, -wrong


class WrongAbove(BPO):
    """Wrong for large scores only."""

    curvature = None

    @staticmethod
    def positive(r: Any, g: Any) -> Any:
        return sigmoid(-r) + 0.3 * (r > 8.5), 0 * g


class Hinge(Pairwise):
    """max(0, 1 - (r_i - r_j)) has a kink, where any step between the two derivatives is one of it."""

    name = "hinge"

    @staticmethod
    def pair(r_i: Any, r_j: Any) -> Any:
        step = 1.0 * (r_i - r_j < 1)
        return step, -step

    @staticmethod
    def likelihood_pair(r_i: Any, r_j: Any) -> Any:
        return -(1 - (r_i - r_j)) * (r_i - r_j < 1)


class SquaredLog(Pairwise):
    """-1/2 (ln sigma(r_i - r_j))^2: its steps have a logarithm."""

    name = "squared-log"

    @staticmethod
    def pair(r_i: Any, r_j: Any) -> Any:
        step = -log(sigmoid(r_i - r_j)) * sigmoid(r_j - r_i)
        return step, -step

    @staticmethod
    def likelihood_pair(r_i: Any, r_j: Any) -> Any:
        return -log(sigmoid(r_i - r_j)) * log(sigmoid(r_i - r_j)) / 2


class OnlyNumPy(BPO):
    @staticmethod
    def positive(r: Any, g: Any) -> Any:
        return expit(-r), 0 * g


class Rounds(Pointwise):
    """A quotient of two numbers that both round to 0 in float32."""

    name = "rounds"

    @staticmethod
    def positive(r: Any, g: Any) -> Any:
        return sigmoid(-r) / sigmoid(-r) * sigmoid(-r), 0 * g

    negative = BPO.negative


class Constant(BPO):
    @staticmethod
    def positive(r: Any, g: Any) -> Any:
        return 1.0, 0 * g


class Flips(BPO):
    @staticmethod
    def positive(r: Any, g: Any) -> Any:
        return sigmoid(-r), -sigmoid(g)


class Loose(BPO):
    curvature = 0.2


class Mean(Softmax):
    """Its rows depend on each other."""

    @staticmethod
    def steps(r: Any, observed: Any) -> Any:
        return Softmax.steps(r, observed) - Softmax.steps(r, observed).mean(0)


class Undefined(Listwise):
    """Divides 0 by 0 at scores up to 3."""

    @staticmethod
    def steps(r: Any, observed: Any) -> Any:
        return observed * ((r > 3) / (r > 3))


class OneStep(BPO):
    @staticmethod
    def positive(r: Any, g: Any) -> Any:
        return sigmoid(-r)


class Flat(Listwise):
    name = "flat"

    @staticmethod
    def steps(r: Any, observed: Any) -> Any:
        return observed.sum(-1)


@pytest.mark.parametrize(
    ("objective", "what", "words"),
    [
        (WrongSign, "negative: step of r", "it is -1 times the derivative everywhere"),
        (
            Twice,
            "pair: step of r_i",
            "and the derivative of the likelihood is 1; it is 2 times the derivative everywhere",
        ),
        (WrongAbove, "positive: step of r", "it is 0.3, and the derivative of the likelihood is "),
        (OnlyNumPy, "positive: numba", "numba cannot compile it: "),
        (Rounds, "positive: numba", "a step is not finite at "),
        (
            Constant,
            "positive: shapes",
            "for arrays of shape (5,) a step is of shape (); write 1 + 0 * r in place of 1",
        ),
        (Flips, "uses_flips", "it is False, and the step of g is not 0: set uses_flips = True, or return 0 * g"),
        (Loose, "curvature", "the step changes by 0.25 at most, and curvature = 0.2 must bound it"),
        (Mean, "steps: rows", "a row's steps depend on other rows, by "),
        (Undefined, "steps: rows", "a step is NaN or infinite at r="),
        (Flat, "steps: shape", "it is (6,) for r of shape (6, 9)"),
        (Pointwise, "gradient", "there is no function positive"),
        (OneStep, "gradient", "positive must return two steps, not ndarray"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_wrong_objective_fails_with_a_sentence_that_says_where(
    objective: type[Objective], what: str, words: str
) -> None:
    report = objectives.check(objective)
    assert not report.ok
    assert results(report)[what] == "FAILED"
    assert words in detail(report, what)
    with pytest.raises(ObjectiveError, match=f"{objective.__name__}: FAILED"):
        objectives.check(objective, raise_error=True)


def test_a_step_at_a_kink_may_be_that_of_either_side() -> None:
    assert objectives.check(Hinge).ok


def test_steps_may_have_a_logarithm() -> None:
    assert objectives.check(SquaredLog, raise_error=True).ok


def test_without_a_likelihood_the_rest_is_checked() -> None:
    report = objectives.check(Rounds)
    assert results(report)["gradient"] == "skipped"
    assert detail(report, "gradient") == "there is no likelihood to compare with"
    assert results(report)["positive: shapes"] == "ok"


def test_a_surrogate_is_reported_with_its_reason_and_does_not_fail() -> None:
    class OnPurpose(Twice):
        surrogate = "an experiment"

    report = objectives.check(OnPurpose)
    assert report.ok
    assert results(report)["pair: step of r_i"] == "surrogate"
    assert detail(report, "pair: step of r_i").startswith("an experiment; cosine with the gradient 1.00; at r_i=")


def test_a_surrogate_in_the_opposite_direction_fails() -> None:
    class Backwards(WrongSign):
        surrogate = "an experiment"

    class Rows(Softmax):
        surrogate = "an experiment"

        @staticmethod
        def steps(r: Any, observed: Any) -> Any:
            return -Softmax.steps(r, observed)

    for objective, what in ((Backwards, "negative: step of r"), (Rows, "steps: gradient")):
        report = objectives.check(objective)
        assert [row.what for row in report.failures] == [what]
        assert detail(report, what).startswith("an experiment; cosine with the gradient -1.00; at ")


@pytest.mark.parametrize("value", ["BPR", Objective, tl.ItemPop, None])
def test_what_is_no_objective_is_an_error(value: Any) -> None:
    with pytest.raises(ParameterError, match="check takes a Pointwise, Pairwise or Listwise class"):
        objectives.check(value)


# --- before training --------------------------------------------------------------------------------

DATA = tl.read([(u, i) for u in range(6) for i in range(6) if (u + i) % 3])


def test_fit_warns_once_of_steps_that_contradict_the_likelihood() -> None:
    class Reversed(WrongSign):
        name = "reversed"

    with pytest.warns(TrainingWarning, match=r"negative: step of r: at r=.* surrogate = '\.\.\.'") as seen:
        tl.SampledMF(objective=Reversed, epochs=1, factors=2).fit(DATA)
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tl.SampledMF(objective=Reversed, epochs=1, factors=2).fit(DATA)


def test_fit_does_not_warn_of_a_surrogate_or_of_an_objective_without_a_likelihood() -> None:
    class Purpose(WrongSign):
        name, surrogate = "purpose", "an experiment"

    class Silent(Pairwise):
        name = "silent"

        @staticmethod
        def pair(r_i: Any, r_j: Any) -> Any:
            return sigmoid(r_j - r_i), -sigmoid(r_i - r_j)

    for objective in (Purpose, Silent):
        tl.SampledMF(objective=objective, epochs=1, factors=2).fit(DATA)


def test_rows_of_users_are_given_to_a_listwise_objective_before_training() -> None:
    class Weighted(Listwise):
        """Divides each row by its number of positives; takes rows alone."""

        name = "weighted"

        @staticmethod
        def steps(r: Any, observed: Any) -> Any:
            return observed / observed.sum(axis=1, keepdims=True) - objectives.softmax(r)

        @staticmethod
        def likelihood(r: Any, observed: Any) -> Any:
            return (observed * log(objectives.softmax(r))).sum(axis=1) / observed.sum(axis=1)

    assert objectives.check(Weighted).ok
    assert tl.ExactMF(objective=Weighted, epochs=1, factors=2).fit(DATA).train_ is DATA


def test_a_listwise_objective_is_compared_on_tensors_if_it_takes_them() -> None:
    class Arrays(Softmax):
        @staticmethod
        def steps(r: Any, observed: Any) -> Any:
            return Softmax.steps(r.astype(float), observed)

    pytest.importorskip("torch", reason="PyTorch is not installed")
    assert results(objectives.check(Softmax))["steps: PyTorch"] == "ok"
    report = objectives.check(Arrays)
    assert report.ok
    assert "networks cannot be trained by it" in detail(report, "steps: PyTorch")
