"""Training objectives: the gradients of the paper's equations, one short function each.

An objective is a class of static functions of scores r and flip logits g. Each returns steps: the gradient of the
quantity that is **maximised**, with respect to r (and g).

- A `Pointwise` objective has `positive(r, g)` and `negative(r, g)`, for an observed and an unobserved item. Each
  returns the pair (step of r, step of g).
- A `Pairwise` objective has `pair(r_i, r_j)`, for a positive i and a negative j of one user. It returns the pair
  (step of r_i, step of r_j).
- A `Listwise` objective has `steps(r, observed)`, for the scores of all items of a user. It returns one step per
  score.

The `likelihood` functions return the quantity itself. Its negative mean is the training loss; an objective without
them trains with a loss of NaN. The steps of NBPO are a surrogate gradient (Equation 9), not the gradient of its
likelihood, and it says so in `surrogate`. `check` compares steps and likelihood.

numba, NumPy and PyTorch run the same functions. A pointwise or pairwise function may therefore use only
`+ - * /` and `sigmoid` and `log` of this module. Listwise functions run on NumPy arrays and may use `softmax` and
NumPy, too. CONTRIBUTING explains how to add an objective.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import special

from truelike.errors import ObjectiveError, ParameterError

if TYPE_CHECKING:
    from truelike.objectives.checker import Report

__all__ = [
    "BPO",
    "BPR",
    "NBPO",
    "Listwise",
    "NBPOlb",
    "NBPOo",
    "NBPOs",
    "Objective",
    "Pairwise",
    "Pointwise",
    "Softmax",
    "check",
    "hidden_like_posterior",
    "log",
    "noisy_bpr",
    "shift_mc",
    "sigmoid",
    "softmax",
]

Steps = tuple[Any, Any]


def __dir__() -> list[str]:
    return sorted(__all__)


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)) for a number, an array or a tensor.

    >>> float(sigmoid(0.0))
    0.5
    """
    return x.sigmoid() if hasattr(x, "sigmoid") else special.expit(x)  # a PyTorch tensor has the method


def log(x: Any) -> Any:
    """Return the natural logarithm of a number, an array or a tensor.

    In NumPy, 0 (an underflown sigmoid) is replaced by the smallest positive number, so the result is finite.
    """
    return x.log() if hasattr(x, "log") else np.log(np.maximum(x, np.finfo(np.result_type(x)).tiny))


def softmax(r: Any) -> Any:
    """Return exp(r) / sum(exp(r)) along the last axis, for an array or a tensor.

    >>> softmax(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """
    return r.softmax(-1) if hasattr(r, "softmax") else special.softmax(r, axis=-1)


class Objective:
    """Base class of all objectives.

    Attributes
    ----------
    name
        The name in tables, model directories and error messages.
    uses_flips
        Whether the objective learns the flip logits g.
    curvature
        An upper bound of ``|d step / dr|``, for fold-in of a pointwise or pairwise objective. None: it is measured.
    surrogate
        Why the steps are not the gradient of the likelihood, if they are not on purpose. None: they are.
    """

    name: ClassVar[str]
    uses_flips: ClassVar[bool] = False
    curvature: ClassVar[float | None] = None
    surrogate: ClassVar[str | None] = None


class Pointwise(Objective):
    """An objective of single items: one step for a positive, one for a negative."""

    @staticmethod
    def positive(r: Any, g: Any) -> Steps:
        """Return the steps of (r, g) for an observed item."""
        raise NotImplementedError

    @staticmethod
    def negative(r: Any, g: Any) -> Steps:
        """Return the steps of (r, g) for an unobserved item."""
        raise NotImplementedError

    @staticmethod
    def likelihood_positive(r: Any, g: Any) -> Any:
        """Return the maximised quantity for an observed item."""
        raise NotImplementedError

    @staticmethod
    def likelihood_negative(r: Any, g: Any) -> Any:
        """Return the maximised quantity for an unobserved item."""
        raise NotImplementedError


class Pairwise(Objective):
    """An objective of pairs: a positive i and a negative j of one user."""

    @staticmethod
    def pair(r_i: Any, r_j: Any) -> Steps:
        """Return the steps of r_i and of r_j."""
        raise NotImplementedError

    @staticmethod
    def likelihood_pair(r_i: Any, r_j: Any) -> Any:
        """Return the maximised quantity for a pair."""
        raise NotImplementedError


class Listwise(Objective):
    """An objective of all items of a user at once.

    `r` holds the scores of all items, and `observed` is 1.0 for the user's positives and 0.0 elsewhere. Both have
    one row per user; items are the last axis. A row's result must depend on that row alone.
    """

    @staticmethod
    def steps(r: Any, observed: Any) -> Any:
        """Return the step of each score, in the shape of `r`."""
        raise NotImplementedError

    @staticmethod
    def likelihood(r: Any, observed: Any) -> Any:
        """Return the maximised quantity of each row."""
        raise NotImplementedError


class BPO(Pointwise):
    """Equation 4: the log likelihood of the observed labels, ln sigma(r) and ln sigma(-r)."""

    name = "BPO"
    curvature = 0.25

    @staticmethod
    def positive(r: Any, g: Any) -> Steps:
        return sigmoid(-r), 0 * g

    @staticmethod
    def negative(r: Any, g: Any) -> Steps:
        return -sigmoid(r), 0 * g

    @staticmethod
    def likelihood_positive(r: Any, g: Any) -> Any:
        return log(sigmoid(r))

    @staticmethod
    def likelihood_negative(r: Any, g: Any) -> Any:
        return log(sigmoid(-r))


class SurrogateLikelihood(Pointwise):
    """Equation 8: the likelihood of the true labels without the logarithm."""

    uses_flips = True
    curvature = 0.5

    @staticmethod
    def likelihood_positive(r: Any, g: Any) -> Any:
        return sigmoid(-g) * sigmoid(r)

    @staticmethod
    def likelihood_negative(r: Any, g: Any) -> Any:
        return sigmoid(-r) + sigmoid(g) * sigmoid(r)


class NBPO(SurrogateLikelihood):
    """Equation 9, the paper's NBPO (NBPO-ss): the surrogate gradient of Equation 8.

    Each sigma(x) is differentiated as if it were ln sigma(x): its gradient is sigma(-x), which does not vanish.
    With g = 0 (no flip tables, L = 0) it is Equation 11: 1/2 sigma(-r) and 1/2 (1 - 3 sigma(r)).
    """

    name = "NBPO"
    surrogate = "sigma is differentiated as ln sigma (Equation 9)"

    @staticmethod
    def positive(r: Any, g: Any) -> Steps:
        return sigmoid(-g) * sigmoid(-r), -sigmoid(g) * sigmoid(r)

    @staticmethod
    def negative(r: Any, g: Any) -> Steps:
        return sigmoid(g) * sigmoid(-r) - sigmoid(r), sigmoid(-g) * sigmoid(r)


class NBPOs(SurrogateLikelihood):
    """NBPO-s: the true gradient of Equation 8, which vanishes where sigma is flat."""

    name = "NBPO-s"
    curvature = 0.1

    @staticmethod
    def positive(r: Any, g: Any) -> Steps:
        both = sigmoid(-g) * sigmoid(r)
        return both * sigmoid(-r), -both * sigmoid(g)

    @staticmethod
    def negative(r: Any, g: Any) -> Steps:
        both = sigmoid(-g) * sigmoid(r)
        return -both * sigmoid(-r), both * sigmoid(g)


class NBPOo(Pointwise):
    """NBPO-o: the true gradient of Equation 6, the log likelihood with label noise."""

    name = "NBPO-o"
    uses_flips = True
    curvature = 0.25

    @staticmethod
    def positive(r: Any, g: Any) -> Steps:
        return sigmoid(-r), -sigmoid(g)

    @staticmethod
    def negative(r: Any, g: Any) -> Steps:
        # d/dr and d/dg of ln(sigma(-r) + sigma(g) sigma(r)), written with the posterior of a dislike. 1e-12 avoids
        # 0 / 0 where both terms underflow in float32: the item then counts as disliked, as in BPO.
        dislike = sigmoid(-r) + 1e-12
        disliked = dislike / (dislike + sigmoid(g) * sigmoid(r))
        return -sigmoid(-g) * sigmoid(r) * disliked, sigmoid(-g) * (1 - disliked)

    @staticmethod
    def likelihood_positive(r: Any, g: Any) -> Any:
        return log(sigmoid(-g) * sigmoid(r))

    @staticmethod
    def likelihood_negative(r: Any, g: Any) -> Any:
        return log(sigmoid(-r) + sigmoid(g) * sigmoid(r))


class NBPOlb(Pointwise):
    """NBPO-lb: the true gradient of Equation 7, a lower bound of Equation 6.

    The step of r does not depend on g: the logarithm separates the two. A negative is pushed to r = 0.
    """

    name = "NBPO-lb"
    uses_flips = True
    curvature = 0.5

    @staticmethod
    def positive(r: Any, g: Any) -> Steps:
        return sigmoid(-r), -sigmoid(g)

    @staticmethod
    def negative(r: Any, g: Any) -> Steps:
        return sigmoid(-r) - sigmoid(r), sigmoid(-g)

    @staticmethod
    def likelihood_positive(r: Any, g: Any) -> Any:
        return log(sigmoid(-g) * sigmoid(r))

    @staticmethod
    def likelihood_negative(r: Any, g: Any) -> Any:
        return log(sigmoid(-r)) + log(sigmoid(g) * sigmoid(r))


class BPR(Pairwise):
    """ln sigma(r_i - r_j): a positive should rank above a negative (Rendle et al., UAI 2009)."""

    name = "BPR"
    curvature = 0.5

    @staticmethod
    def pair(r_i: Any, r_j: Any) -> Steps:
        wrong = sigmoid(r_j - r_i)
        return wrong, -wrong

    @staticmethod
    def likelihood_pair(r_i: Any, r_j: Any) -> Any:
        return log(sigmoid(r_i - r_j))


class Softmax(Listwise):
    """Softmax over all items: the sum of ln p(i | u) over the positives, p(i | u) = exp(r_ui) / sum_j exp(r_uj).

    The step is 1 - n_u p_ui for a positive and -n_u p_ui for an unobserved item, where n_u is the number of the
    user's positives.
    """

    name = "softmax"

    @staticmethod
    def steps(r: Any, observed: Any) -> Any:
        return observed - observed.sum(-1)[..., None] * softmax(r)

    @staticmethod
    def likelihood(r: Any, observed: Any) -> Any:
        return (observed * log(softmax(r))).sum(-1)


def shift_mc(flip_rate: float) -> type[Pointwise]:
    """Return ShiftMC (Hsieh, Natarajan and Dhillon, ICML 2015) with one flip rate f for all pairs.

    The squared loss is made unbiased under flips: ((r - 1)^2 - f r^2) / (1 - f) for a positive and r^2 for a
    negative. The target of a positive is 1 / (1 - f).

    >>> [float(step) for step in shift_mc(0.5).positive(1.0, 0.0)]
    [2.0, 0.0]
    """
    if not 0 <= flip_rate < 1:
        raise ParameterError(f"flip_rate is {flip_rate}; it must be at least 0 and below 1")
    target = 1 / (1 - flip_rate)

    class ShiftMC(Pointwise):
        """ShiftMC at one flip rate."""

        name = "ShiftMC"
        curvature = 2.0

        @staticmethod
        def positive(r: Any, g: Any) -> Steps:
            return 2 * (target - r), 0 * g

        @staticmethod
        def negative(r: Any, g: Any) -> Steps:
            return -2 * r, 0 * g

        @staticmethod
        def likelihood_positive(r: Any, g: Any) -> Any:
            return -((r - 1) * (r - 1) - flip_rate * r * r) * target

        @staticmethod
        def likelihood_negative(r: Any, g: Any) -> Any:
            return -r * r

    return ShiftMC


def noisy_bpr(flip_rate: float) -> type[Pairwise]:
    """Return BPR for pairs whose negative is a hidden like with probability f (one flip rate for all pairs).

    The order of a pair with a hidden like is random, so p(i before j) = (1 - f) sigma(r_i - r_j) + f / 2. The step
    is that of BPR times the posterior that j is truly disliked: a negative that scores far above the positive has
    little weight. With f = 0 this is BPR.

    >>> [float(step) for step in noisy_bpr(0.0).pair(0.0, 0.0)]
    [0.5, -0.5]
    """
    if not 0 <= flip_rate < 1:
        raise ParameterError(f"flip_rate is {flip_rate}; it must be at least 0 and below 1")
    disliked, unordered = 1 - flip_rate, flip_rate / 2

    class NBPR(Pairwise):
        """Noise-robust BPR at one flip rate."""

        name = "NBPR"
        curvature = 0.5

        @staticmethod
        def pair(r_i: Any, r_j: Any) -> Steps:
            # 1e-12 avoids 0 / 0 where both terms underflow in float32: j then counts as disliked, as in BPR
            ordered = disliked * sigmoid(r_i - r_j) + 1e-12
            step = ordered / (ordered + unordered) * sigmoid(r_j - r_i)
            return step, -step

        @staticmethod
        def likelihood_pair(r_i: Any, r_j: Any) -> Any:
            return log(disliked * sigmoid(r_i - r_j) + unordered)

    return NBPR


def hidden_like_posterior(r: Any, g: Any) -> Any:
    """Return p(truly 1 | observed 0) = sigma(g) sigma(r) / (sigma(-r) + sigma(g) sigma(r)).

    This is Bayes' rule applied to Equation 5.

    >>> round(float(hidden_like_posterior(0.0, 0.0)), 4)
    0.3333
    """
    return sigmoid(r + log(sigmoid(g)))  # numerator and denominator divided by sigma(-r)


def check(objective: type[Objective], *, raise_error: bool = False) -> Report:
    """Check that the steps of an objective are the gradient of its likelihood, on every backend.

    The steps are compared with central differences of the likelihood in float64, at moderate, extreme and random
    scores. Checked are also shapes, finite steps for scores up to 50, `curvature`, `uses_flips`, the independence of
    the rows of a listwise objective, and that numba and PyTorch (if it is installed) give the steps of NumPy. Compiling
    takes about a second.

    Parameters
    ----------
    objective : class
        A `Pointwise`, `Pairwise` or `Listwise` class. Steps that are not the gradient on purpose are reported as
        "surrogate", with their cosine with the gradient, if the class says why in its attribute `surrogate`. They fail
        only if the cosine is negative.
    raise_error : bool
        Raise ObjectiveError if a check fails.

    Returns
    -------
    Report
        A table. `ok` is True if nothing failed; `rows` and `failures` are tuples of (what, result, detail).

    Examples
    --------
    >>> import truelike as tl
    >>> class Wrong(tl.objectives.BPR):
    ...     @staticmethod
    ...     def pair(r_i, r_j):
    ...         return tl.objectives.sigmoid(r_i - r_j), -tl.objectives.sigmoid(r_j - r_i)
    >>> report = tl.objectives.check(Wrong)
    >>> report.ok
    False
    >>> report.failures[0].what
    'pair: step of r_i'
    >>> print(report.failures[0].detail)
    at r_i=-50.02, r_j=-2.23 it is 1.75819e-21, and the derivative of the likelihood is 1
    """
    from truelike.objectives.checker import report

    found = report(objective)
    if raise_error and not found.ok:
        raise ObjectiveError(repr(found))
    return found
