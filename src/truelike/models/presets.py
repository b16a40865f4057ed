"""The presets that people know: MatrixFactorization with an objective, negatives and tuned values of its own."""

from __future__ import annotations

from typing import Any, ClassVar

from truelike.models.factorization import MatrixFactorization

# what is worth a search where all unvoted items count
ALL_ITEMS: dict[str, Any] = {
    "factors": [64, 128, 256],
    "learning_rate": (0.01, 0.04),
    "regularization": (2.0, 40.0),
    "frequency_power": (0.4, 1.0),
}


class BPR(MatrixFactorization):
    """Bayesian Personalized Ranking (Rendle et al., UAI 2009): pairs, with uniform negatives.

    >>> BPR(factors=64)
    BPR(factors=64)
    """

    preset: ClassVar[dict[str, Any]] = {
        "objective": "BPR",
        "negatives": "uniform",
        "factors": 100,
        "learning_rate": 0.05,
        "regularization": 8.0,
        "n_negatives": 3,
    }


class WBPR(MatrixFactorization):
    """BPR with negatives in proportion to popularity (Gantner et al., KDD Cup 2011)."""

    preset: ClassVar[dict[str, Any]] = {"objective": "BPR", "negatives": "popularity", "regularization": 25.0}


class NBPR(MatrixFactorization):
    """BPR whose pairs count by the posterior that the unvoted item is truly disliked, at one flip rate for all."""

    preset: ClassVar[dict[str, Any]] = {**BPR.preset, "objective": "NBPR"}


class ShiftMC(MatrixFactorization):
    """Shifted matrix completion (Hsieh, Natarajan and Dhillon, ICML 2015): squared loss, one flip rate for all."""

    preset: ClassVar[dict[str, Any]] = {
        "objective": "ShiftMC",
        "negatives": "uniform",
        "factors": 100,
        "learning_rate": 0.01,
        "regularization": 25.0,
        "n_negatives": 3,
    }


class BPO(MatrixFactorization):
    """Bayesian Point-wise Optimization, the paper's Equation 4: the log likelihood of the observed labels."""

    preset: ClassVar[dict[str, Any]] = {
        "objective": "BPO",
        "negatives": "uniform",
        "factors": 100,
        "regularization": 25.0,
    }


class NBPO(MatrixFactorization):
    """Noisy-label robust BPO, the paper's method (Equations 8 and 9): likes and flips are learned together."""

    preset: ClassVar[dict[str, Any]] = {"objective": "NBPO", "negatives": "uniform"}


class SoftmaxMF(MatrixFactorization):
    """The softmax over all items: p(i | u) = exp(r_ui) / sum_j exp(r_uj), no unvoted item left out.

    Examples
    --------
    >>> SoftmaxMF(factors=64)
    SoftmaxMF(factors=64)
    """

    preset: ClassVar[dict[str, Any]] = {"objective": "softmax", "negatives": "all"}
    space: ClassVar[dict[str, Any]] = ALL_ITEMS


class ExactBPO(MatrixFactorization):
    """Equation 4 as it is written: the log likelihood of the observed labels, over all unvoted items."""

    preset: ClassVar[dict[str, Any]] = {"objective": "BPO", "negatives": "all", "learning_rate": 0.05}
    space: ClassVar[dict[str, Any]] = {**ALL_ITEMS, "unvoted_weight": (0.05, 1.0)}


class ExactNBPO(MatrixFactorization):
    """Equation 6 as it is written: the log likelihood under label noise, over all unvoted items, by its gradient.

    With impressions (`fit(train, impressions=...)`) the flips are known, and `hidden_likes` are estimates of the
    truth. Without, they are free, and mean nothing by themselves.
    """

    preset: ClassVar[dict[str, Any]] = {"objective": "NBPO-o", "negatives": "all"}
    space: ClassVar[dict[str, Any]] = {
        **ALL_ITEMS,
        "unvoted_weight": (0.05, 1.0),
        "flip_factors": [0, 8, 32],
        "flip_regularization": (2.0, 60.0),
    }
