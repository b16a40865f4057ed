"""The paper's equations: how far the score r and the flip logit g should move, one short function each.

An objective knows only numbers. A *pointwise* one has two functions, the step that a positive takes and the
step that an unvoted item takes, each of (r, g) and each giving the pair (step of r, step of g). A *pairwise*
one has a single function of the scores (r_i, r_j) of a positive and an unvoted item, a *listwise* one takes a
user's whole row. A step is the gradient of what is **maximised** (or, for the surrogate of Equation 9, what
stands in for it).

The same lines serve every back end: numba compiles them into the sampled kernels, NumPy and PyTorch evaluate
them on whole arrays. So they use `+ - * /` and the functions `sigmoid` and `log` of this file, and nothing
else. An objective of your own is a class with the same functions; see CONTRIBUTING.

`likelihood_*` is what the steps are the gradient of; it is shown as the loss while training, and the tests
compare the steps with its finite differences. Where it is not (the surrogate gradient), the docstring says so.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy import special

from truelike.errors import ParameterError

Steps = tuple[Any, Any]


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), of a number, an array or a tensor.

    >>> float(sigmoid(0.0))
    0.5
    """
    return x.sigmoid() if hasattr(x, "sigmoid") else special.expit(x)  # a PyTorch tensor, or anything else


def log(x: Any) -> Any:
    """The natural logarithm, of a number, an array or a tensor; of 0 (a rounded sigmoid), that of `tiny`."""
    return x.log() if hasattr(x, "log") else np.log(np.maximum(x, np.finfo(np.result_type(x)).tiny))


def softmax(r: Any) -> Any:
    """exp(r) / sum of exp(r) along the last axis, of an array or a tensor.

    >>> softmax(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """
    return r.softmax(-1) if hasattr(r, "softmax") else special.softmax(r, axis=-1)


class Objective:
    """What all objectives share."""

    name: ClassVar[str]
    uses_flips: ClassVar[bool] = False
    """Whether g moves at all."""
    curvature: ClassVar[float] = 0.25
    """A bound on how fast the step of r changes with r, for the exact steps of fold-in."""


class Pointwise(Objective):
    """An objective of single items: a positive's step and an unvoted item's step."""

    @staticmethod
    def positive(r: Any, g: Any) -> Steps:
        """The steps of (r, g) for an item that the user voted for."""
        raise NotImplementedError

    @staticmethod
    def unvoted(r: Any, g: Any) -> Steps:
        """The steps of (r, g) for an item that the user did not vote for."""
        raise NotImplementedError

    @staticmethod
    def likelihood_positive(r: Any, g: Any) -> Any:
        """What is maximised, for a positive."""
        raise NotImplementedError

    @staticmethod
    def likelihood_unvoted(r: Any, g: Any) -> Any:
        """What is maximised, for an unvoted item."""
        raise NotImplementedError


class Pairwise(Objective):
    """An objective of pairs: a positive i and an unvoted j of one user."""

    @staticmethod
    def pair(r_i: Any, r_j: Any) -> Steps:
        """The steps of r_i and of r_j."""
        raise NotImplementedError

    @staticmethod
    def likelihood_pair(r_i: Any, r_j: Any) -> Any:
        """What is maximised, for a pair."""
        raise NotImplementedError


class Listwise(Objective):
    """An objective of all items of a user at once: of a row of scores, and a row that says which are voted."""

    @staticmethod
    def steps(r: Any, voted: Any) -> Any:
        """The step of each score of a row."""
        raise NotImplementedError

    @staticmethod
    def likelihood(r: Any, voted: Any) -> Any:
        """What is maximised, for a row."""
        raise NotImplementedError


class BPO(Pointwise):
    """Equation 4: the log likelihood of the observed labels, ln sigma(r) and ln sigma(-r)."""

    name = "BPO"

    @staticmethod
    def positive(r: Any, g: Any) -> Steps:
        return sigmoid(-r), 0 * g

    @staticmethod
    def unvoted(r: Any, g: Any) -> Steps:
        return -sigmoid(r), 0 * g

    @staticmethod
    def likelihood_positive(r: Any, g: Any) -> Any:
        return log(sigmoid(r))

    @staticmethod
    def likelihood_unvoted(r: Any, g: Any) -> Any:
        return log(sigmoid(-r))


class SurrogateLikelihood(Pointwise):
    """Equation 8: the likelihood of the true labels, its logarithm taken away."""

    uses_flips = True
    curvature = 0.5

    @staticmethod
    def likelihood_positive(r: Any, g: Any) -> Any:
        return sigmoid(-g) * sigmoid(r)

    @staticmethod
    def likelihood_unvoted(r: Any, g: Any) -> Any:
        return sigmoid(-r) + sigmoid(g) * sigmoid(r)


class NBPO(SurrogateLikelihood):
    """Equation 9, the paper's NBPO (NBPO-ss): the surrogate gradient of Equation 8.

    Each sigma(x) is differentiated as ln sigma(x) would be: its gradient is sigma(-x), which does not vanish.
    With g = 0 (no flip tables, L = 0) it is Equation 11: 1/2 sigma(-r) and 1/2 (1 - 3 sigma(r)).
    """

    name = "NBPO"

    @staticmethod
    def positive(r: Any, g: Any) -> Steps:
        return sigmoid(-g) * sigmoid(-r), -sigmoid(g) * sigmoid(r)

    @staticmethod
    def unvoted(r: Any, g: Any) -> Steps:
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
    def unvoted(r: Any, g: Any) -> Steps:
        shown = sigmoid(-g) * sigmoid(r)
        return -shown * sigmoid(-r), shown * sigmoid(g)


class NBPOo(Pointwise):
    """NBPO-o: the true gradient of Equation 6, the log likelihood with label noise."""

    name = "NBPO-o"
    uses_flips = True

    @staticmethod
    def positive(r: Any, g: Any) -> Steps:
        return sigmoid(-r), -sigmoid(g)

    @staticmethod
    def unvoted(r: Any, g: Any) -> Steps:
        # d/dr and d/dg of ln(sigma(-r) + sigma(g) sigma(r)), by the posterior that the user dislikes the item;
        # the tiny number decides where both terms are zero in float32: then it is disliked, as in BPO
        dislike = sigmoid(-r) + 1e-12
        disliked = dislike / (dislike + sigmoid(g) * sigmoid(r))
        return -sigmoid(-g) * sigmoid(r) * disliked, sigmoid(-g) * (1 - disliked)

    @staticmethod
    def likelihood_positive(r: Any, g: Any) -> Any:
        return log(sigmoid(-g) * sigmoid(r))

    @staticmethod
    def likelihood_unvoted(r: Any, g: Any) -> Any:
        return log(sigmoid(-r) + sigmoid(g) * sigmoid(r))


class BPR(Pairwise):
    """ln sigma(r_i - r_j): the positive should stand above the unvoted (Rendle et al., UAI 2009)."""

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
    """The user's votes as draws from p(i | u) = exp(r_ui) / sum_j exp(r_uj): ln p, summed over them.

    Its step is 1 - n_u p_ui for a voted item and -n_u p_ui for another, where n_u is how many votes there are. So
    an unvoted item is pushed down by as much as it competes with the votes, and by nothing where it does not.
    """

    name = "softmax"

    @staticmethod
    def steps(r: Any, voted: Any) -> Any:
        return voted - voted.sum(-1)[..., None] * softmax(r)

    @staticmethod
    def likelihood(r: Any, voted: Any) -> Any:
        return (voted * log(softmax(r))).sum(-1)


def shift_mc(flip_rate: float) -> type[Pointwise]:
    """ShiftMC (Hsieh, Natarajan and Dhillon, ICML 2015) with one flip rate f for all.

    The squared loss made unbiased under flips: ((r - 1)^2 - f r^2) / (1 - f) on positives, r^2 on unvoted
    items. Its gradient draws a positive towards 1 / (1 - f): the more likes are hidden, the more one counts.

    >>> [float(step) for step in shift_mc(0.5).positive(1.0, 0.0)]
    [2.0, 0.0]
    """
    if not 0 <= flip_rate < 1:
        raise ParameterError(f"flip_rate is {flip_rate}; it is at least 0 and below 1")
    target = 1 / (1 - flip_rate)

    class ShiftMC(Pointwise):
        """ShiftMC at one flip rate."""

        name = "ShiftMC"
        curvature = 2.0

        @staticmethod
        def positive(r: Any, g: Any) -> Steps:
            return 2 * (target - r), 0 * g

        @staticmethod
        def unvoted(r: Any, g: Any) -> Steps:
            return -2 * r, 0 * g

        @staticmethod
        def likelihood_positive(r: Any, g: Any) -> Any:
            return -((r - 1) * (r - 1) - flip_rate * r * r) * target

        @staticmethod
        def likelihood_unvoted(r: Any, g: Any) -> Any:
            return -r * r

    return ShiftMC


def noisy_bpr(flip_rate: float) -> type[Pairwise]:
    """BPR where the unvoted item of a pair may be a hidden like, which it is at one flip rate f for all.

    Then the order of the pair says nothing: p(i before j) = (1 - f) sigma(r_i - r_j) + f / 2. The step is BPR's
    times the posterior that j is truly disliked, so a pair that stands the wrong way round by far, which a hidden
    like explains better, is not chased. With f = 0 it is BPR.

    >>> [float(step) for step in noisy_bpr(0.0).pair(0.0, 0.0)]
    [0.5, -0.5]
    """
    if not 0 <= flip_rate < 1:
        raise ParameterError(f"flip_rate is {flip_rate}; it is at least 0 and below 1")
    disliked, coin = 1 - flip_rate, flip_rate / 2

    class NBPR(Pairwise):
        """Noise-robust BPR at one flip rate."""

        name = "NBPR"
        curvature = 0.5

        @staticmethod
        def pair(r_i: Any, r_j: Any) -> Steps:
            # the tiny number decides where both terms are zero in float32: then it is disliked, as in BPR
            told = disliked * sigmoid(r_i - r_j) + 1e-12
            step = told / (told + coin) * sigmoid(r_j - r_i)
            return step, -step

        @staticmethod
        def likelihood_pair(r_i: Any, r_j: Any) -> Any:
            return log(disliked * sigmoid(r_i - r_j) + coin)

    return NBPR


def hidden_like_posterior(r: Any, g: Any) -> Any:
    """p(truly 1 | observed 0) = sigma(g) sigma(r) / (sigma(-r) + sigma(g) sigma(r)), by Bayes from Equation 5.

    >>> round(float(hidden_like_posterior(0.0, 0.0)), 4)
    0.3333
    """
    return sigmoid(r + log(sigmoid(g)))  # the same, both sides of the fraction divided by sigma(-r)
