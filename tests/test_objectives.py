"""The steps are the paper's equations: checked by hand, finite differences, autograd, and after compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import expit

import truelike as tl
from truelike import objectives
from truelike.errors import ParameterError
from truelike.objectives import (
    BPO,
    BPR,
    NBPO,
    NBPOlb,
    NBPOo,
    NBPOs,
    hidden_like_posterior,
    noisy_bpr,
    shift_mc,
    sigmoid,
)
from truelike.objectives.compiler import compiled_steps

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]
with_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed: pip install 'truelike[deep]'")

SHIFTS = [shift_mc(rate) for rate in (0.0, 0.3, 0.9)]
TRUE_GRADIENTS = [BPO, NBPOs, NBPOo, NBPOlb, *SHIFTS]
POINTWISE = [*TRUE_GRADIENTS, NBPO]
EVERY = [*POINTWISE, BPR]

logits = st.floats(-12, 12)


def named(objective: Any) -> str:
    return f"{objective.name}-{SHIFTS.index(objective)}" if objective in SHIFTS else objective.name


def functions_of(objective: Any) -> list[Any]:
    if issubclass(objective, objectives.Pairwise):
        return [objective.pair]
    return [objective.positive, objective.negative]


def derivative(function: Callable[[float], Any], x: float, width: float = 1e-5) -> float:
    return float((function(x + width) - function(x - width)) / (2 * width))


def grid(*values: float) -> tuple[Any, Any]:
    r, g = np.meshgrid(values, values)
    return r.ravel(), g.ravel()


# --- gradients of the likelihoods -----------------------------------------------------------------


@given(r=logits, g=st.floats(-8, 8), other=st.floats(-8, 8))
def test_the_logarithm_of_equation_7_separates_preferences_from_flips(r: float, g: float, other: float) -> None:
    for steps in (NBPOlb.positive, NBPOlb.negative):
        assert steps(r, g)[0] == steps(r, other)[0]
        assert steps(g, r)[1] == steps(other, r)[1]


@pytest.mark.parametrize("objective", TRUE_GRADIENTS, ids=named)
@given(r=logits, g=st.floats(-8, 8))
def test_the_steps_are_the_gradient_of_the_likelihood(objective: Any, r: float, g: float) -> None:
    for steps, likelihood in (
        (objective.positive, objective.likelihood_positive),
        (objective.negative, objective.likelihood_negative),
    ):
        step_r, step_g = steps(r, g)
        assert step_r == pytest.approx(derivative(lambda x, f=likelihood: f(x, g), r), rel=1e-5, abs=1e-6)
        assert step_g == pytest.approx(derivative(lambda x, f=likelihood: f(r, x), g), rel=1e-5, abs=1e-6)


@given(r_i=logits, r_j=logits)
def test_the_steps_of_bpr_are_the_gradient_of_its_likelihood(r_i: float, r_j: float) -> None:
    up, down = BPR.pair(r_i, r_j)
    assert up == pytest.approx(derivative(lambda x: BPR.likelihood_pair(x, r_j), r_i), rel=1e-5, abs=1e-6)
    assert down == pytest.approx(derivative(lambda x: BPR.likelihood_pair(r_i, x), r_j), rel=1e-5, abs=1e-6)


@given(r=logits, g=logits)
def test_the_likelihoods_are_equations_4_6_and_8(r: float, g: float) -> None:
    shown, unshown = expit(-g) * expit(r), expit(-r) + expit(g) * expit(r)
    assert BPO.likelihood_positive(r, g) == pytest.approx(np.log(expit(r)))
    assert BPO.likelihood_negative(r, g) == pytest.approx(np.log(expit(-r)))
    for surrogate in (NBPO, NBPOs):
        assert surrogate.likelihood_positive(r, g) == pytest.approx(shown)
        assert surrogate.likelihood_negative(r, g) == pytest.approx(unshown)
    assert NBPOo.likelihood_positive(r, g) == pytest.approx(np.log(shown))
    assert NBPOo.likelihood_negative(r, g) == pytest.approx(np.log(unshown))
    assert shown + unshown == pytest.approx(1)  # Equation 5 is a distribution over the two observations


@given(rate=st.floats(0, 0.95), r=logits)
def test_shift_mc_is_unbiased(rate: float, r: float) -> None:
    """A truly liked item is observed with probability 1 - f. The mean of its loss is then (r - 1)^2."""
    objective = shift_mc(rate)
    mean = (1 - rate) * objective.likelihood_positive(r, 0.0) + rate * objective.likelihood_negative(r, 0.0)
    assert mean == pytest.approx(-((r - 1) ** 2), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("factory", [shift_mc, noisy_bpr])
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_a_flip_rate_outside_0_to_1_is_an_error(rate: float, factory: Any) -> None:
    with pytest.raises(ParameterError, match=f"flip_rate is {rate}"):
        factory(rate)


@given(rate=st.floats(0.01, 0.95), r_i=logits, r_j=logits)
def test_noisy_bpr_is_bpr_times_the_posterior_of_a_true_dislike(rate: float, r_i: float, r_j: float) -> None:
    objective = noisy_bpr(rate)
    up, down = objective.pair(r_i, r_j)
    ordered = (1 - rate) * expit(r_i - r_j)
    assert up == pytest.approx(ordered / (ordered + rate / 2) * BPR.pair(r_i, r_j)[0], rel=1e-3, abs=1e-9)
    assert up == pytest.approx(derivative(lambda x: objective.likelihood_pair(x, r_j), r_i), abs=1e-6)
    assert down == pytest.approx(derivative(lambda x: objective.likelihood_pair(r_i, x), r_j), abs=1e-6)


# --- the surrogate gradient -----------------------------------------------------------------------


@given(r=logits, g=logits)
def test_nbpo_is_equation_9_term_by_term(r: float, g: float) -> None:
    assert_allclose(NBPO.positive(r, g), (expit(-g) * expit(-r), -expit(g) * expit(r)), rtol=1e-9)
    expected = (-expit(r) + expit(g) * expit(-r), expit(-g) * expit(r))
    assert_allclose(NBPO.negative(r, g), expected, rtol=1e-9, atol=1e-15)


@with_torch
@given(r=logits, g=logits)
def test_nbpo_is_the_gradient_of_equation_8_with_sigma_differentiated_as_ln_sigma(r: float, g: float) -> None:
    """In a product, autograd holds the other factor at its value, as the paper's operator does."""

    def s(x: Any) -> Any:  # has the value of sigma(x) and the gradient of ln sigma(x)
        log = torch.nn.functional.logsigmoid(x)
        return torch.sigmoid(x).detach() + (log - log.detach())

    x, y = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (r, g))
    for likelihood, steps in (
        (s(-y) * s(x), NBPO.positive(r, g)),
        (s(-x) + s(y) * s(x), NBPO.negative(r, g)),
    ):
        found = torch.autograd.grad(likelihood, (x, y))
        assert_allclose([float(part) for part in found], steps, rtol=1e-9, atol=1e-14)


def test_only_objectives_that_use_flips_have_a_step_of_g() -> None:
    r, g = grid(-3, -0.5, 0.5, 3)
    for objective in POINTWISE:
        moves = [float(np.abs(steps(r, g)[1]).max()) for steps in (objective.positive, objective.negative)]
        assert (min(moves) > 0.1) == objective.uses_flips == (max(moves) > 0)


# --- numba, NumPy and PyTorch -----------------------------------------------------------------------


@with_torch
@pytest.mark.parametrize("objective", EVERY, ids=named)
def test_floats_arrays_and_tensors_give_the_same_steps(objective: Any) -> None:
    r, g = grid(-30, -3, -0.2, 0, 1, 8, 30)
    functions = functions_of(objective)
    for function in functions:
        arrays = np.array(function(r, g))
        floats = np.array([function(float(x), float(y)) for x, y in zip(r, g, strict=True)]).T
        tensors = np.array([part.numpy() for part in function(torch.tensor(r), torch.tensor(g))])
        assert_allclose(floats, arrays, rtol=1e-12)
        assert_allclose(tensors, arrays, rtol=1e-9, atol=1e-12)


EXTREMES = (-50, -30, -17, -14, -9, -4, -1, -1e-3, 0, 0.3, 2, 6, 11, 15, 18, 40, 50)


def compiled(objective: Any, which: int, r: Any, g: Any) -> tuple[Any, Any]:
    r, g = r.astype(np.float32), g.astype(np.float32)
    compiled_steps(objective)[which](r, g, np.uint64(0), np.uint64(len(r)))
    return r, g


@pytest.mark.parametrize("objective", [o for o in EVERY if o is not NBPOo], ids=named)
def test_compiled_steps_equal_those_of_numpy(objective: Any) -> None:
    r, g = grid(*EXTREMES)
    functions: list[Any] = [
        lambda r_j, r_i: BPR.pair(r_i, r_j)[::-1]
    ]  # the compiled loop takes the negatives first
    if not issubclass(objective, objectives.Pairwise):
        functions = [objective.positive, objective.negative]
    for which, function in enumerate(functions):
        for found, expected in zip(compiled(objective, which, r, g), function(r, g), strict=True):
            assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_compiled_nbpo_o_equals_that_of_numpy_up_to_rounding_and_is_bounded() -> None:
    """The step divides by p(observed 0): an error of 2e-7 in sigma is one of 2e-7 / p in the step."""
    r, g = grid(*EXTREMES)
    for found, expected in zip(compiled(NBPOo, 0, r, g), NBPOo.positive(r, g), strict=True):
        assert_allclose(found, expected, atol=1e-6)
    unshown = expit(-r) + expit(g) * expit(r)
    for found, expected in zip(compiled(NBPOo, 1, r, g), NBPOo.negative(r, g), strict=True):
        assert np.isfinite(found).all()
        assert np.isfinite(expected).all()
        assert np.abs(found).max() <= 1
        assert (np.abs(found - expected) <= 1e-6 + 6e-7 / unshown).all()
        sure = unshown > 0.6
        assert sure.sum() > 100
        assert_allclose(found[sure], expected[sure], atol=2e-6)


def test_every_step_and_likelihood_is_finite_at_extremes() -> None:
    r, g = grid(-1_000, -100, -50, 0, 50, 100, 1_000)
    for objective in POINTWISE:
        for function in (objective.positive, objective.negative):
            assert np.isfinite(function(r, g)).all()
        for function in (objective.likelihood_positive, objective.likelihood_negative):
            assert np.isfinite(function(r, g)).all()
    assert np.isfinite(BPR.pair(r, g)).all()
    assert np.isfinite(BPR.likelihood_pair(r, g)).all()


@pytest.mark.parametrize("objective", EVERY, ids=named)
def test_curvature_is_a_tight_bound_of_the_derivative_of_the_step(objective: Any) -> None:
    r, g = np.meshgrid(np.linspace(-9, 9, 361), np.linspace(-9, 9, 73))
    width = 1e-4
    functions = functions_of(objective)
    steepest = 0.0
    for function in functions:
        change = (function(r + width, g)[0] - function(r - width, g)[0]) / (2 * width)
        steepest = max(steepest, float(np.abs(change).max()))
    assert steepest <= objective.curvature * (1 + 1e-6)
    assert steepest > objective.curvature / 2.1  # with a loose bound fold-in would converge slowly


# --- hidden likes ---------------------------------------------------------------------------------


@given(r=logits, g=logits)
def test_the_posterior_is_bayes_rule_on_equation_5(r: float, g: float) -> None:
    prior, unseen_if_liked, unseen_if_not = expit(r), expit(g), 1.0
    evidence = unseen_if_liked * prior + unseen_if_not * expit(-r)
    assert hidden_like_posterior(r, g) == pytest.approx(unseen_if_liked * prior / evidence, rel=1e-9)


def test_the_posterior_of_large_float32_logits_is_a_probability() -> None:
    values = grid(-1_000, -90, -20, 0, 20, 90, 1_000)
    r, g = (part.astype(np.float32) for part in values)
    found = hidden_like_posterior(r, g)
    assert found.dtype == np.float32
    assert ((found >= 0) & (found <= 1)).all()
    assert hidden_like_posterior(np.float32(20), np.float32(-20)) == pytest.approx(0.5, rel=1e-4)


# --- custom objectives ----------------------------------------------------------------------------


class Squares(objectives.Pointwise):
    """Half the squared error of positives, and ln sigma(-r) of negatives."""

    name = "Squares"

    @staticmethod
    def positive(r: Any, g: Any) -> Any:
        return 1 - r, 0 * g

    @staticmethod
    def negative(r: Any, g: Any) -> Any:
        return -sigmoid(r), 0 * g

    @staticmethod
    def likelihood_positive(r: Any, g: Any) -> Any:
        return -0.5 * (1 - r) * (1 - r)

    @staticmethod
    def likelihood_negative(r: Any, g: Any) -> Any:
        return objectives.log(sigmoid(-r))


class Margins(objectives.Pairwise):
    """The squared difference of r_i - r_j and 1."""

    name = "Margins"

    @staticmethod
    def pair(r_i: Any, r_j: Any) -> Any:
        short = 1 - (r_i - r_j)
        return short, -short

    @staticmethod
    def likelihood_pair(r_i: Any, r_j: Any) -> Any:
        return -0.5 * (1 - (r_i - r_j)) * (1 - (r_i - r_j))


@pytest.mark.parametrize("objective", [Squares, Margins])
def test_a_custom_objective_can_be_trained(objective: Any) -> None:
    rows = [(u, i) for u in range(24) for i in range(24) if u % 2 == i % 2 and i != (u + 2) % 24]
    quick = {"factors": 4, "epochs": 60, "batch_size": 40, "regularization": 1.0, "learning_rate": 0.05}
    model = tl.SampledMF(objective=objective, decay=0.98, n_negatives=5, **quick)
    model.fit(tl.read(rows))
    losses = model.history_["loss"].to_list()
    assert losses[-1] < 0.5 * losses[0]
    firsts = model.recommend(list(range(24)), k=1)
    assert firsts["item_id"].to_list() == [(user + 2) % 24 for user in range(24)]
