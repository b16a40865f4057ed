"""The claims of the paper's Section 5, in our own words, each with the paper's number and its decision rule.

There are verdicts for two settings: "authors" (the settings of the release, or of the text where the release has
none) and "tuned" (all models tuned in the same way). Claims about the best parameters have the second only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from truelike.paper.experiments import Results
from truelike.paper.protocol import Setting
from truelike.paper.verdicts import (
    Decide,
    all_above,
    best_pair,
    best_value,
    better,
    gains_most_by,
    gaps_shrink,
    grows,
    in_order,
    is_flat,
    more_sensitive,
    peaks_at,
    sparser_is_lower,
    tuned_to,
)

LEARNED = ("BPR", "WBPR", "ShiftMC", "NBPO")
BOTH: tuple[Setting, ...] = ("authors", "tuned")
TUNED: tuple[Setting, ...] = ("tuned",)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes
    ----------
    where
        The section and the figure.
    words
        The claim.
    paper
        The paper's number, as text.
    decide
        The rule that gives the verdict.
    settings
        The settings that it is decided for.
    """

    where: str
    words: str
    paper: str
    decide: Decide
    settings: tuple[Setting, ...] = BOTH


def _best_factors() -> list[Claim]:
    return [
        Claim(
            "5.2, Figure 4",
            f"{name} is best with K = {value} on {title}",
            f"K = {value}",
            best_value("factors", name, data, value),
            TUNED,
        )
        for data, title, value in (("amazon", "Amazon", 50), ("movielens", "MovieLens", 200))
        for name in LEARNED
    ]


def _best_negatives() -> list[Claim]:
    best = {"amazon": {"BPR": 2, "WBPR": 4, "ShiftMC": 3, "NBPO": 3}, "movielens": dict.fromkeys(LEARNED, 3)}
    return [
        Claim(
            "5.2, Figure 5",
            f"{name} is best with ρ = {value} on {title}",
            f"ρ = {value}",
            best_value("n_negatives", name, data, value),
            TUNED,
        )
        for data, title in (("amazon", "Amazon"), ("movielens", "MovieLens"))
        for name, value in best[data].items()
    ]


def _best_rates() -> list[Claim]:
    best = {"amazon": dict.fromkeys(LEARNED[:3], (0.05, 1.0)), "movielens": {}}
    best["movielens"] = {"BPR": (0.005, 0.2), "WBPR": (0.005, 0.5), "ShiftMC": (0.005, 0.5)}
    return [
        Claim(
            "5.2",
            f"{name} on {title} is best at η = {rate:g}, λ = {strength:g}",
            f"η {rate:g}, λ {strength:g}",
            tuned_to(name, data, learning_rate=rate, regularization=strength),
            TUNED,
        )
        for data, title in (("amazon", "Amazon"), ("movielens", "MovieLens"))
        for name, (rate, strength) in best[data].items()
    ]


CLAIMS: tuple[Claim, ...] = (
    Claim("5.2, Figure 2", "the metrics are lower on the sparser dataset", "", sparser_is_lower()),
    Claim(
        "5.2, Figure 2",
        "all personalised models are far above ItemPop",
        "",
        all_above(("ItemKNN", *LEARNED), "ItemPop", by=0.2),
    ),
    Claim(
        "5.2, Figure 2",
        "learned models are above ItemKNN in most cases",
        "",
        all_above(LEARNED, "ItemKNN", most=True),
    ),
    Claim(
        "5.2, Figure 2",
        "on Amazon the F1 of learned models peaks at k = 5",
        "k = 5",
        peaks_at(LEARNED, 5, "amazon"),
    ),
    Claim(
        "5.2, Figure 2",
        "on Amazon the F1 of ItemKNN peaks at k = 10",
        "k = 10",
        peaks_at(["ItemKNN"], 10, "amazon"),
    ),
    Claim("5.2, Figure 2", "the gaps among learned models shrink as k grows", "", gaps_shrink(LEARNED)),
    Claim("5.2", "WBPR is above BPR in F1, at best by", "3.75 %", better("WBPR", "BPR", 0.0375, metrics=["f1"])),
    Claim(
        "5.2", "WBPR is above BPR in NDCG, at best by", "4.05 %", better("WBPR", "BPR", 0.0405, metrics=["ndcg"])
    ),
    Claim(
        "5.2", "ShiftMC is above BPR in F1, at best by", "6.26 %", better("ShiftMC", "BPR", 0.0626, metrics=["f1"])
    ),
    Claim(
        "5.2",
        "ShiftMC is above BPR in NDCG, at best by",
        "4.66 %",
        better("ShiftMC", "BPR", 0.0466, metrics=["ndcg"]),
    ),
    Claim(
        "5.2",
        "NBPO is above ShiftMC in F1, at best by",
        "7.28 %",
        better("NBPO", "ShiftMC", 0.0728, metrics=["f1"]),
    ),
    Claim(
        "5.2",
        "NBPO is above ShiftMC in NDCG, at best by",
        "6.79 %",
        better("NBPO", "ShiftMC", 0.0679, metrics=["ndcg"]),
    ),
    Claim("5.2", "ShiftMC is the best of the baselines: above WBPR", "", better("ShiftMC", "WBPR")),
    Claim("5.2", "NBPO is above BPR (follows from the claims above)", "", better("NBPO", "BPR")),
    Claim(
        "5.2, Figure 3",
        "NBPO on Amazon is best at η = .05, λ = 1",
        "η .05, λ 1",
        best_pair("fine", "learning_rate", "regularization", "amazon", (0.05, 1.0)),
        TUNED,
    ),
    Claim(
        "5.2, Figure 3",
        "NBPO on MovieLens is best at η = .005, λ = .5",
        "η .005, λ .5",
        best_pair("fine", "learning_rate", "regularization", "movielens", (0.005, 0.5)),
        TUNED,
    ),
    *_best_rates(),
    Claim(
        "5.2, Figure 4",
        "F1 grows clearly with K on MovieLens",
        "",
        grows("factors", "movielens"),
        TUNED,
    ),
    Claim(
        "5.2, Figure 4",
        "F1 hardly depends on K on Amazon",
        "",
        is_flat("factors", "amazon"),
        TUNED,
    ),
    *_best_factors(),
    *_best_negatives(),
    Claim(
        "5.2, Figure 5",
        "NBPO gains more from tuning ρ than the other models",
        "",
        gains_most_by("n_negatives", "NBPO"),
        TUNED,
    ),
    Claim(
        "5.3, Figure 6",
        "NBPO is above BPO in F1 on Amazon, at best by",
        "8.08 %",
        better("NBPO", "BPO", 0.0808, metrics=["f1"], data="amazon"),
    ),
    Claim(
        "5.3, Figure 6",
        "NBPO is above BPO in F1 on MovieLens, at best by",
        "16.49 %",
        better("NBPO", "BPO", 0.1649, metrics=["f1"], data="movielens"),
    ),
    Claim(
        "5.3, Figure 7",
        "NBPO on Amazon is best at λΘ = 1, λΦ = 5",
        "λΘ 1, λΦ 5",
        best_pair("priors", "regularization", "flip_regularization", "amazon", (1.0, 5.0)),
        TUNED,
    ),
    Claim(
        "5.3, Figure 7",
        "NBPO on MovieLens is best at λΘ = .5, λΦ = .1",
        "λΘ .5, λΦ .1",
        best_pair("priors", "regularization", "flip_regularization", "movielens", (0.5, 0.1)),
        TUNED,
    ),
    Claim("5.3, Figure 7", "on Amazon NBPO depends more on λΘ than on λΦ", "", more_sensitive("amazon"), TUNED),
    Claim(
        "5.3, Figure 7", "on MovieLens NBPO depends more on λΘ than on λΦ", "", more_sensitive("movielens"), TUNED
    ),
    Claim(
        "5.3, Figure 8",
        "NBPO on Amazon is best with L = 10",
        "L = 10",
        best_value("flip_factors", "NBPO", "amazon", 10),
        TUNED,
    ),
    Claim(
        "5.3, Figure 8",
        "NBPO on MovieLens is best with L = 500",
        "L = 500",
        best_value("flip_factors", "NBPO", "movielens", 500),
        TUNED,
    ),
    Claim("5.3, Figure 8", "with L = 0 NBPO is still above BPR", "", better("NBPO, L = 0", "BPR")),
    Claim(
        "5.4, Figure 9",
        "NBPO-ss is above NBPO-o, and that above NBPO-s",
        "ss > o > s",
        in_order("NBPO", "NBPO-o", "NBPO-s"),
    ),
    Claim("6", "BPO is weaker than BPR", "", better("BPR", "BPO")),
)


def judge(all_results: Sequence[Results]) -> pl.DataFrame:
    """Return a row per claim and setting: where, claim, paper, settings, verdict, measured, p.

    If runs are of a quick plan, a first column `run` says so in each row.
    """
    rows = []
    for claim in CLAIMS:
        for setting in claim.settings:
            found = claim.decide(all_results, setting)
            label = "tuned alike" if setting == "tuned" else "the authors'"
            rows.append((claim.where, claim.words, claim.paper, label, found.verdict, found.measured, found.p))
    names = ["where", "claim", "paper", "settings", "verdict", "measured", "p"]
    table = pl.DataFrame(rows, schema=dict.fromkeys(names[:-1], pl.String) | {"p": pl.Float64}, orient="row")
    if any(results.plan.quick for results in all_results):
        return table.select(pl.lit("quick").alias("run"), pl.all())
    return table
