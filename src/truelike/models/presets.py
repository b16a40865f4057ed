"""The presets that people know: MatrixFactorization with an objective, negatives and tuned values of its own."""

from __future__ import annotations

from typing import Any, ClassVar

from truelike.models.factorization import MatrixFactorization


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
