"""The exposure study: what each model learns about true likes, with and without impressions.

    python benchmarks/exposure.py run [--seeds 10] [--beds coat]    # fits the models; continues where it stopped
    python benchmarks/exposure.py report                            # writes results/exposure from what was run
    python benchmarks/exposure.py --quick                           # both, on small data, in seconds

Beds: synthetic worlds at three strengths of exposure, and one whose exposure follows tastes, as that by a recommender;
worlds made of the ratings of MovieLens 1M; and Coat. The seed is that of the world and of the model; on Coat that of
the model. Settings are chosen at seed 100 and then fixed: with
impressions by the log loss on a tenth of the shown pairs (models without probabilities: by the AUC), without by NDCG@20
on a tenth of the interactions. A held-out interaction is a like that was shown, so there a model with probabilities
ranks by p(like) p(shown). The truth is not used. Each fit is a line of a JSONL file in the cache directory.

On "coat" the lists of the 16 random ratings of a user are also scored as in the release of MF-DU (`listed`).
"coat-graded" is Coat as the papers on unbiased learning use it: an interaction is drawn for each self-selected rating
with the probability .1 + .9 (2^(rating - 1) - 1) / 15, and the lists are scored by (2^(rating - 1) - 1) / 15 of the
random ratings.
"""

from __future__ import annotations

import json
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import polars as pl
from common import arguments, machine, output_directory

import truelike as tl
from truelike import randomness
from truelike.data.dataset import Dataset
from truelike.evaluation.significance import holm, paired_t
from truelike.evaluation.truth import score_blocks
from truelike.ranking.top_k import top_k_by_scores
from truelike.report.figures import new_figure, reliability_curves

TUNING_SEED = 100
SEEDS = 10
MOST_SETTINGS = 6  # of a model that are tried on a bed
TASTE = 0.5  # of the recommender: visibility is multiplied by exp(TASTE x the logit of the user's taste)
STRENGTHS = {"weak": 0.0, "medium": 0.9, "strong": 1.8}  # how fast visibility falls with the rank of an item
WORLD = {"n_users": 2_000, "n_items": 1_000, "impressions_per_user": 300}
RATINGS_SKEW = 2.0  # visibility in the worlds of MovieLens is the number of ratings to this power
QUICK_WORLD = {"n_users": 150, "n_items": 80, "impressions_per_user": 25}
MEASURES = (
    "hidden_pooled_auc", "hidden_ece", "hidden_log_loss", "hidden_ndcg@20", "truth_auc", "truth_ndcg@20",
)  # fmt: skip
TESTED = ("hidden_pooled_auc", "hidden_ece", "hidden_ndcg@20", "truth_ndcg@20")
GRADED = tuple(f"{name}@{k}" for name in ("dcg", "recall", "map") for k in (3, 5, 8))
FIVES, RARE = (tuple(f"{prefix}_{name}" for name in GRADED) for prefix in ("five", "rare"))
LISTED = tuple(f"listed_{name}@{k}" for name in ("ndcg", "recall", "map") for k in (1, 3, 5))
WITH, WITHOUT, KNOWN = "impressions", "interactions", "truth"


# --- beds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bed:
    """What a model is fitted on, and the truth.

    Attributes
    ----------
    train, impressions
        The interactions, and the pairs that were shown.
    truth
        The true labels.
    world
        The world they come from, if there is one.
    ratings, is_graded
        The random ratings of Coat, users x items, 0 where there is none; and whether they are scored as grades.
    """

    train: Any
    impressions: Any
    truth: Any
    world: Any = None
    ratings: Any = None
    is_graded: bool = False


def of_world(world: Any) -> Bed:
    return Bed(world.dataset(), world.impressions(), world.truth(), world)


@cache
def movielens(size: tuple[tuple[str, int], ...]) -> Any:
    return tl.synthetic.RatingsWorld(tl.datasets.movielens_ratings(), **dict(size), exposure_skew=RATINGS_SKEW)


def coat(_: int) -> Bed:
    impressions, train = tl.datasets.load("coat-impressions"), tl.datasets.load("coat").train
    return Bed(train, impressions, tl.datasets.coat_truth(), ratings=np.loadtxt(tl.datasets.fetch("coat")[1]))


def relevance(ratings: Any) -> Any:
    """A rating of 1 to 5 as a number from 0 to 1; 0 where there is none."""
    return np.where(ratings > 0, (2.0 ** (np.maximum(ratings, 1) - 1) - 1) / 15, 0.0)


def coat_graded(seed: int) -> Bed:
    chosen, drawn = (np.loadtxt(path, dtype=np.int32) for path in tl.datasets.fetch("coat"))
    impressions = tl.datasets.load("coat-impressions")
    key = randomness.key(seed, "labels of coat")
    uniform = randomness.uniform(key, np.arange(chosen.size)).reshape(chosen.shape)
    users, items = np.nonzero((chosen > 0) & (uniform < 0.1 + 0.9 * relevance(chosen)))
    ids = impressions.users, impressions.items
    train = Dataset.from_pairs(*ids, users.astype(np.int32), items.astype(np.int32), name="coat")
    return Bed(train, impressions, tl.datasets.coat_truth(), ratings=drawn, is_graded=True)


def beds(quick: bool) -> dict[str, Callable[[int], Bed]]:
    if quick:
        return {
            name: lambda seed, skew=skew: of_world(
                tl.synthetic.World(**QUICK_WORLD, exposure_skew=skew, seed=seed)
            )
            for name, skew in STRENGTHS.items()
        }
    found: dict[str, Callable[[int], Bed]] = {
        name: lambda seed, skew=skew: of_world(tl.synthetic.World(**WORLD, exposure_skew=skew, seed=seed))
        for name, skew in STRENGTHS.items()
    }
    found["recommender"] = lambda seed: of_world(
        tl.synthetic.World(**WORLD, exposure_skew=STRENGTHS["medium"], exposure_taste=TASTE, seed=seed)
    )
    found["movielens"] = lambda seed: of_world(movielens(tuple(WORLD.items())).varied(seed=seed))
    return {**found, "coat": coat, "coat-graded": coat_graded}


# --- models --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """A row of the tables.

    Attributes
    ----------
    name
        The name of the row.
    data
        What it is fitted on: "impressions", "interactions", or "truth", which nobody has.
    model
        The class.
    fixed
        Parameters that are not chosen.
    grid
        The settings to choose from.
    setting_of
        The row whose chosen setting it takes.
    """

    name: str
    data: str
    model: str
    fixed: dict[str, Any] = field(default_factory=dict)
    grid: tuple[dict[str, Any], ...] = ({},)
    setting_of: str | None = None

    def build(self, setting: dict[str, Any], seed: int) -> Any:
        kind = getattr(tl, self.model)
        common = {"seed": seed, "n_jobs": 1} if self.model != "ItemPop" else {}
        return kind(**{**common, **self.fixed, **setting})


def grid(*regularization: float, factors: tuple[int, ...] = (16, 64)) -> tuple[dict[str, Any], ...]:
    return tuple({"factors": k, "regularization": l2} for k, l2 in product(factors, regularization))


SCHEDULE = {"learning_rate": 0.05, "decay": 0.9, "epochs": 30}
CONTENDERS = [
    Contender("ImpressionMF, impressions", WITH, "ImpressionMF"),
    Contender("ImpressionMF, impressions, labels alone", WITH, "ImpressionMF", {"taste_in_exposure": False}),
    Contender("NBPO, impressions", WITH, "NBPO", grid=grid(4.0, 8.0)),
    Contender("NBPO, impressions, defaults", WITH, "NBPO"),
    Contender("ExactNBPO, impressions", WITH, "ExactNBPO", SCHEDULE, grid(2.0, 4.0, factors=(16, 32))),
    Contender("ExactNBPO, impressions, defaults", WITH, "ExactNBPO"),
    Contender("BPR, impressions", WITH, "BPR", grid=grid(4.0, 12.0)),
    Contender("IALS, impressions", WITH, "IALS", grid=grid(0.005, 0.02)),
    Contender("ItemPop", WITHOUT, "ItemPop"),
    Contender("IALS", WITHOUT, "IALS", grid=grid(0.015, 0.06)),
    Contender("BPR", WITHOUT, "BPR", grid=grid(4.0, 12.0)),
    Contender("ExactBPO", WITHOUT, "ExactBPO", grid=grid(2.0, 6.0)),
    Contender("SoftmaxMF", WITHOUT, "SoftmaxMF", grid=grid(2.0, 6.0)),
    Contender("NBPO", WITHOUT, "NBPO", grid=grid(8.0, 24.0)),
    Contender("ExactNBPO, learned flips", WITHOUT, "ExactNBPO", grid=grid(2.0, 6.0)),
    Contender(
        "ExactNBPO, exposure by item (ExpoMF)",
        WITHOUT,
        "ExactNBPO",
        {"exposure": "item", "item_bias": False},
        grid(2.0, 6.0),
    ),
    Contender(
        "ExactNBPO, exposure by popularity", WITHOUT, "ExactNBPO", {"exposure": "popularity^0.5"}, grid(2.0, 6.0)
    ),
    Contender("ExactNBPO, structured exposure", WITHOUT, "ExactNBPO", {"exposure": "structured"}, grid(2.0, 6.0)),
    Contender("Rel-MF", WITHOUT, "ExactMF", {"objective": "Rel-MF"}, grid(0.7, 4.0)),
    Contender("MF-DU", WITHOUT, "ExactMF", {"objective": "MF-DU"}, grid(4.0, 16.0)),
    Contender("UBPR", WITHOUT, "SampledMF", {"objective": "UBPR"}, grid(8.0, 32.0)),
    Contender("UPL", WITHOUT, "SampledMF", {"objective": "UPL"}, grid(8.0, 32.0)),
    Contender("ExactNBPO, true propensities", KNOWN, "ExactNBPO", SCHEDULE, setting_of="ExactNBPO, impressions"),
]
SLOW, LATE = {"ImpressionMF"}, {"weak", "medium", "movielens"}  # models that run last on some beds
EXTRA = {"ImpressionMF, impressions, labels alone": ("recommender", "coat", "strong")}  # models of some beds alone
WORLDS = {"the world itself, impressions": True, "the world itself, propensities": False}


def contenders(quick: bool) -> list[Contender]:
    known = [each for each in CONTENDERS if hasattr(tl, each.model)]
    if not quick:
        return known
    few: dict[str, dict[str, int]] = {"ItemPop": {}, "ImpressionMF": {"steps": 20, "burn_in": 10}}
    return [
        replace(each, fixed={**each.fixed, **few.get(each.model, {"epochs": 1})}, grid=each.grid[:2])
        for each in known
    ]


# --- runs ----------------------------------------------------------------------------------------------------


class Log:
    """The lines of a JSONL file, by what they are of."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                row = json.loads(line)
                self.rows[self.key(row)] = row

    @staticmethod
    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        setting = tuple(sorted(row["setting"].items())) if row["stage"] == "choice" else ()
        return row["stage"], row["bed"], row["seed"], row["model"], setting

    def add(self, row: dict[str, Any]) -> None:
        self.rows[self.key(row)] = row
        if self.path is not None:
            with self.path.open("a") as handle:
                handle.write(json.dumps(row) + "\n")

    def of(self, stage: str) -> Iterator[dict[str, Any]]:
        return (row for row in self.rows.values() if row["stage"] == stage)


def choose(log: Log, bed: str, data: Bed, contender: Contender) -> None:
    """Try the settings of a grid; while the best regularization is at an end, go on beyond it in steps of 3."""
    for setting in contender.grid:
        try_setting(log, bed, data, contender, setting)
    while len(rows := choices(log, bed, contender.name)) < MOST_SETTINGS:
        tried = {row["setting"]["regularization"] for row in rows}
        best = chosen(log, bed, contender)
        at = best["regularization"]
        if min(tried) < at < max(tried):
            break
        factor = 3 if at == max(tried) else 1 / 3
        try_setting(log, bed, data, contender, {**best, "regularization": float(f"{factor * at:.2g}")})


def choices(log: Log, bed: str, model: str) -> list[dict[str, Any]]:
    return [row for row in log.of("choice") if row["bed"] == bed and row["model"] == model]


def try_setting(log: Log, bed: str, data: Bed, contender: Contender, setting: dict[str, Any]) -> None:
    """Fit a setting without a tenth of the data, and add how well it predicts that tenth."""
    row = {"stage": "choice", "bed": bed, "seed": TUNING_SEED, "model": contender.name, "setting": setting}
    if log.key(row) in log.rows:
        return
    model = contender.build(setting, TUNING_SEED)
    with_impressions = contender.data == WITH
    rule = "ndcg@20" if not with_impressions else "shown_auc"
    try:
        if with_impressions:
            parts = tl.splits.hold_out_impressions(data.train, data.impressions, seed=TUNING_SEED)
            model.fit(parts.train, impressions=parts.impressions, progress=False)
            rule = "shown_log_loss" if hasattr(model, "like_probability") else rule
            found = tl.evaluate(model, parts.held_out_interactions, impressions=parts.held_out_impressions)
        else:
            split = tl.splits.random(data.train, validation=0.0, test=0.1, seed=TUNING_SEED)
            model.fit(split.train, progress=False)
            ranker = model
            if hasattr(model, "hidden_likes") and model._has_level:
                ranker, rule = ByInteraction(model), "ndcg@20 by p(interaction)"
            found = tl.evaluate(ranker, split.test, ks=(20,), metrics=("ndcg",), n_jobs=1, notes=False)
        value = float(found.means()[rule.partition(" ")[0]])
    except tl.errors.DivergedError:
        value = 0.0 if rule != "shown_log_loss" else 1e9
    log.add({**row, "rule": rule, "value": value})
    print(bed, contender.name, setting, rule, f"{value:.4f}", flush=True)


class ByInteraction:
    """A fitted model that ranks by p(interaction) = p(like) p(shown)."""

    def __init__(self, model: Any) -> None:
        self.model, self.name, self.train_ = model, model.name, model.train_

    def _score_block(self, users: Any) -> Any:
        shown = tl.objectives.sigmoid(-self.model._flip_logits(users))
        return np.asarray(self.model._like_block(users) * shown, dtype=np.float32)

    def _top_k(
        self, users: Any, k: int, *, exclude_seen: bool = True, allowed: Any = None, n_jobs: Any = -1
    ) -> Any:
        return top_k_by_scores(
            self._score_block,
            users,
            k,
            n_items=self.train_.n_items,
            seen=self.train_._csr if exclude_seen else None,
            allowed=allowed,
            n_jobs=n_jobs,
        )

    def _dot_product(self) -> None:
        return None

    def _tie_order(self) -> Any:
        return self.model._tie_order()


def chosen(log: Log, bed: str, contender: Contender) -> dict[str, Any]:
    """The setting with the best value."""
    name = contender.setting_of or contender.name
    rows = choices(log, bed, name)
    if not rows:
        return {}
    sign = -1 if rows[0]["rule"] == "shown_log_loss" else 1
    return dict(max(rows, key=lambda row: sign * row["value"])["setting"])


def score_row(log: Log, bed: str, seed: int, contender: Contender) -> dict[str, Any]:
    setting = chosen(log, bed, contender)
    return {"stage": "score", "bed": bed, "seed": seed, "model": contender.name, "setting": setting}


def is_done(log: Log, row: dict[str, Any]) -> bool:
    """Whether a row was scored, with the same setting."""
    return row["setting"] == log.rows.get(log.key(row), {}).get("setting")


def score(log: Log, bed: str, data: Bed, seed: int, contender: Contender) -> None:
    row = score_row(log, bed, seed, contender)
    if is_done(log, row) or (contender.data == KNOWN and data.world is None):
        return
    shown = data.impressions if contender.data == WITH else None
    if contender.data == KNOWN:
        shown = propensities(data.world)
    options = {} if shown is None else {"impressions": shown}
    try:
        model = contender.build(row["setting"], seed).fit(data.train, progress=False, **options)
    except tl.errors.DivergedError:
        log.add({**row, "data": contender.data, "diverged": True})
        print(bed, seed, contender.name, "diverged", flush=True)
        return
    posterior = model._hidden_like_block if hasattr(model, "hidden_likes") else None
    found = measured(data, model._score_block, posterior, model._tie_order())
    add_scores(log, {**row, "data": contender.data}, found)


def add_scores(log: Log, row: dict[str, Any], found: dict[str, Any]) -> None:
    log.add({**row, **found})
    values = " ".join(f"{found[name]:.4f}" if found.get(name) is not None else "-" for name in MEASURES)
    print(row["bed"], row["seed"], row["model"], values, flush=True)


def measured(data: Bed, scores: Any, posterior: Any, ties: Any = None) -> dict[str, Any]:
    """The scores of a model, or of a world, against the truth."""
    found = score_blocks(data.train, data.truth, scores, posterior, ties=ties, n_jobs=1)
    values = {name: float(value.mean()) for name, value in found.values.items()} | found.totals
    if posterior is not None:
        values["bins"] = [(b.predicted, b.liked, b.count) for b in found.bins]
    if data.ratings is not None:
        everybody = scores(np.arange(data.train.n_users, dtype=np.int32))
        popularity = data.train.popularity()
        rare = popularity < np.median(popularity)
        values |= graded(everybody, data.ratings, rare) if data.is_graded else listed(everybody, data.ratings)
    return values


def graded(scores: Any, ratings: Any, rare: Any) -> dict[str, float]:
    """DCG, recall and MAP of the random ratings by grades, of fives alone ("five_"), and of rare items ("rare_").

    Each is divided by the sum of relevance. The first two places of a list count 1, place n counts 1 / log2(n). The
    precision at a place is the mean relevance up to it, and counts if the relevance there is not zero. A user without
    any relevance counts 0. The release writes the grades into integers, so that there only fives are relevant.
    """
    grades = relevance(ratings)
    return {
        prefix + name: value
        for prefix, rated, relevant in (
            ("", ratings, grades),
            ("five_", ratings, np.floor(grades)),
            ("rare_", ratings * rare, grades),
        )
        for name, value in _graded(scores, rated, relevant).items()
    }


def _graded(scores: Any, ratings: Any, grades: Any) -> dict[str, float]:
    sums: dict[str, list[float]] = {name: [] for name in GRADED}
    for user, row in enumerate(ratings):
        items = np.flatnonzero(row)
        relevant = grades[user, items][np.argsort(-scores[user, items], kind="stable")]
        total = relevant.sum() or np.inf
        place = np.arange(1, len(relevant) + 1)
        gain = relevant / np.maximum(1, np.log2(place))
        precision = np.where(relevant > 0, np.cumsum(relevant) / place, 0)
        for name, values in (("dcg", gain), ("recall", relevant), ("map", precision)):
            for k in (3, 5, 8):
                sums[f"{name}@{k}"].append(values[:k].sum() / total)
    return {name: float(np.mean(values)) for name, values in sums.items()}


def listed(scores: Any, ratings: Any) -> dict[str, float]:
    """NDCG, recall and MAP of the random ratings, 4 and 5 being likes, as in the release of MF-DU.

    Recall and average precision are divided by the number of likes. A user without any counts 0.
    """
    sums: dict[str, list[float]] = {name: [] for name in LISTED}
    for user, row in enumerate(ratings):
        items = np.flatnonzero(row)
        liked = (row[items] >= 4)[np.argsort(-scores[user, items], kind="stable")].astype(float)
        likes = int(liked.sum())
        place = np.arange(1, len(liked) + 1)
        gain, discount = liked / np.log2(place + 1), 1 / np.log2(place + 1)
        precision = liked * np.cumsum(liked) / place
        for k in (1, 3, 5):
            ideal = discount[: min(k, likes)].sum()
            for name, total, best in (("ndcg", gain, ideal), ("recall", liked, likes), ("map", precision, likes)):
                sums[f"listed_{name}@{k}"].append(float(total[:k].sum() / best) if likes else 0.0)
    return {name: float(np.mean(values)) for name, values in sums.items()}


def all_pairs(world: Any) -> tuple[Any, Any]:
    users, items = (each.ravel() for each in np.indices((world.n_users, world.n_items)))
    return users, items


def propensities(world: Any) -> pl.DataFrame:
    users, items = all_pairs(world)
    flip = world.flip_probability(users, items)
    return pl.DataFrame({"user_id": users, "item_id": items, "propensity": np.maximum(1 - flip, 1e-12)})


def score_world(log: Log, bed: str, data: Bed, seed: int) -> None:
    """The best possible posteriors, from the probabilities of the world itself."""
    rows = {name: {"stage": "score", "bed": bed, "seed": seed, "model": name, "setting": {}} for name in WORLDS}
    if data.world is None or all(log.key(row) in log.rows for row in rows.values()):
        return
    pairs, n = all_pairs(data.world), data.world.n_users
    like, flip = (f(*pairs).reshape(n, -1) for f in (data.world.like_probability, data.world.flip_probability))
    shown = data.impressions.matrix.toarray() > 0
    for name, row in rows.items():
        posterior = np.where(shown, 0, like) if WORLDS[name] else like * flip / (1 - like + like * flip)
        add_scores(log, {**row, "data": KNOWN}, measured(data, like.__getitem__, posterior.__getitem__))


def run(log: Log, quick: bool, seeds: int, only: list[str] | None = None) -> None:
    models, all_beds = contenders(quick), beds(quick)
    if only:
        all_beds = {bed: make for bed, make in all_beds.items() if bed in only}
    for bed, make in all_beds.items():
        data = make(TUNING_SEED)
        for contender in models:
            if contender.data != KNOWN and len(contender.grid) > 1:
                choose(log, bed, data, contender)
    for late, seed in product((False, True), range(seeds)):
        for bed, make in all_beds.items():
            asked = [
                each
                for each in models
                if (each.model in SLOW and bed in LATE) == late and bed in EXTRA.get(each.name, (bed,))
            ]
            if all(is_done(log, score_row(log, bed, seed, each)) for each in asked):
                continue
            data = make(seed)
            for contender in asked:
                score(log, bed, data, seed, contender)
            score_world(log, bed, data, seed)


# --- results -------------------------------------------------------------------------------------------------


def table(log: Log) -> pl.DataFrame:
    """A row for each bed, model and seed."""
    names = {row["model"]: n for n, row in enumerate(log.of("score"))}
    order = {each.name: n for n, each in enumerate(CONTENDERS)}
    rows = [
        {
            "bed": row["bed"],
            "model": row["model"],
            "data": row["data"],
            "seed": row["seed"],
            **{name: row.get(name) for name in (*MEASURES, *GRADED, *FIVES, *RARE, *LISTED)},
        }
        for row in sorted(log.of("score"), key=lambda row: order.get(row["model"], 99 + names[row["model"]]))
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def summary(scores: pl.DataFrame) -> pl.DataFrame:
    """Mean and standard error over the seeds."""
    values = [name for name in (*MEASURES, *GRADED, *FIVES, *RARE, *LISTED) if scores[name].dtype == pl.Float64]
    means = [pl.col(name).mean() for name in values]
    errors = [(pl.col(name).std() / pl.col(name).count().sqrt()).alias(f"{name} se") for name in values]
    return scores.group_by("bed", "model", "data", maintain_order=True).agg(
        pl.col("truth_auc").count().alias("seeds"),
        pl.col("truth_auc").null_count().alias("diverged"),
        *means,
        *errors,
    )


def of_seeds(scores: pl.DataFrame, bed: str, model: str, measure: str) -> dict[int, float]:
    rows = scores.filter((pl.col("bed") == bed) & (pl.col("model") == model)).drop_nulls(measure)
    return dict(zip(rows["seed"], rows[measure], strict=True))


def compared(scores: pl.DataFrame, bed: str, a: str, b: str, measure: str) -> tuple[float, float, int] | None:
    """The mean difference of two models over the seeds that both have, its p-value, and the number of seeds."""
    left, right = (of_seeds(scores, bed, model, measure) for model in (a, b))
    seeds = sorted(left.keys() & right.keys())
    if len(seeds) < 2:
        return None
    x, y = (np.array([values[seed] for seed in seeds]) for values in (left, right))
    return float((x - y).mean()), paired_t(x, y), len(seeds)


def tests(scores: pl.DataFrame) -> pl.DataFrame:
    """Each model against the best one with the same data, and NBPO against ExactNBPO."""
    rows = []
    for bed, measure in product(scores["bed"].unique(maintain_order=True), TESTED):
        for data in (WITH, WITHOUT):
            part = scores.filter((pl.col("bed") == bed) & (pl.col("data") == data)).drop_nulls(measure)
            if part.is_empty():
                continue
            falling = measure in ("hidden_ece", "hidden_log_loss")
            means = part.group_by("model", maintain_order=True).agg(pl.col(measure).mean())
            best = means.sort(measure, descending=not falling)["model"][0]
            pairs = [(model, best) for model in means["model"] if model != best]
            if data == WITH:
                pairs.append(("NBPO, impressions", "ExactNBPO, impressions"))
            found = [(a, b, compared(scores, bed, a, b, measure)) for a, b in pairs]
            known = [(a, b, result) for a, b, result in found if result is not None]
            corrected = holm([result[1] for _, _, result in known])
            for (a, b, (difference, p, n)), p_holm in zip(known, corrected, strict=True):
                rows.append((bed, measure, a, b, difference, p, p_holm, n))
    names = ["bed", "measure", "model", "other", "difference", "p", "p_holm", "seeds"]
    return pl.DataFrame(rows, schema=names, orient="row").unique(maintain_order=True)


# --- published claims ------------------------------------------------------------------------------------------

RESULTS = Path(__file__).resolve().parents[1] / "results" / "exposure"
CLAIMS, PUBLISHED = RESULTS / "claims.toml", RESULTS / "published.toml"
CLAIM_MEASURES = {
    "coat-graded": ("dcg@5", "recall@5", "map@5"),
    "coat": ("truth_ndcg@20", "truth_auc"),
    "movielens": ("truth_ndcg@20", "truth_auc"),
    "strong": ("truth_ndcg@20", "truth_auc"),
}


def verdict(scores: pl.DataFrame, bed: str, better: str, than: list[str]) -> tuple[str, str]:
    """Decide that a model is above others, by paired t-tests over seeds with Holm's correction.

    Confirmed: significantly above (p < .05) in all comparisons, one for each other model and measure. Contradicted:
    significantly below in more than half of them. Not confirmed: otherwise.
    """
    measures = CLAIM_MEASURES[bed]
    found = [compared(scores, bed, better, other, m) for other, m in product(than, measures)]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return "not run", ""
    corrected = holm([p for _, p, _ in known])
    signs = [np.sign(each[0]) * (p < 0.05) for each, p in zip(known, corrected, strict=True)]
    above, below = signs.count(1), signs.count(-1)
    text = f"above in {above}, below in {below} of {len(signs)}"
    if above == len(signs):
        return "confirmed", text
    return ("contradicted" if below > len(signs) / 2 else "not confirmed"), text


def verdicts(scores: pl.DataFrame) -> pl.DataFrame:
    """The verdict on each published claim, on Coat as in the papers, on Coat with likes, and on two worlds."""
    rows = []
    for claim in tomllib.loads(CLAIMS.read_text())["claim"]:
        for bed in CLAIM_MEASURES:
            decided, text = verdict(scores, bed, claim["better"], claim["than"])
            measure = CLAIM_MEASURES[bed][0]
            values = {
                model: list(of_seeds(scores, bed, model, measure).values())
                for model in (claim["better"], *claim["than"])
            }
            figures = "; ".join(f"{model} {np.mean(v):.4f}" for model, v in values.items() if v)
            rows.append((claim["paper"], claim["words"], bed, decided, text, f"{measure}: {figures}"))
    return pl.DataFrame(rows, schema=["paper", "claim", "bed", "verdict", "comparisons", "figures"], orient="row")


def beside_published(means: pl.DataFrame) -> pl.DataFrame:
    """The published figures, each with ours in the same setting."""
    rows = []
    for setting in tomllib.loads(PUBLISHED.read_text())["setting"]:
        for figure in setting["figures"]:
            for name, value in figure["published"].items():
                own = value_of(means, setting["bed"], figure["model"], setting["prefix"] + name)
                rows.append((setting["short"], figure["name"], figure["model"], name, value, own))
    names = ["setting", "published as", "model", "measure", "published", "ours"]
    return pl.DataFrame(rows, schema=names, orient="row")


# --- pictures --------------------------------------------------------------------------------------------------

LINES = {  # colour, style
    "ImpressionMF, impressions": ("#2f6fdb", "-"),
    "NBPO, impressions": ("#3a9a5b", "-"),
    "ExactNBPO, impressions": ("#6b5bb5", "-"),
    "ExactNBPO, structured exposure": ("#e08a1e", "--"),
    "ExactNBPO, exposure by popularity": ("#b8457a", "--"),
    "ExactNBPO, learned flips": ("#4a5568", "--"),
    "NBPO": ("#94a3b8", "--"),
}


def strengths_figure(means: pl.DataFrame) -> Any:
    """Hidden AUC and NDCG@20 of the list of hidden likes over the strengths of exposure."""
    figure, panels = new_panels(2, 9.6, 3.9)
    at = list(STRENGTHS)
    for axes, (measure, title) in zip(
        panels, (("hidden_pooled_auc", "AUC"), ("hidden_ndcg@20", "NDCG@20 of the list")), strict=True
    ):
        lines = {**LINES, "the world itself, impressions": ("#000000", ":")}
        for model, (colour, style) in lines.items():
            values = [value_of(means, bed, model, measure) for bed in at]
            if None not in values:
                marker = {"color": colour, "linestyle": style, "marker": "o" if style != ":" else None}
                axes.plot(at, values, linewidth=1.6, markersize=4, label=model, **marker)
        axes.set(title=f"hidden likes, {title}", xlabel="exposure")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    return figure


def new_panels(n: int, width: float, height: float) -> tuple[Any, Any]:
    figure, axes = new_figure(width, height)
    axes.remove()
    panels = figure.subplots(1, n, squeeze=False)[0]
    for each in panels:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(color="#dde2ea", linewidth=0.8)
        each.set_axisbelow(True)
    return figure, panels


def value_of(means: pl.DataFrame, bed: str, model: str, measure: str) -> float | None:
    rows = means.filter((pl.col("bed") == bed) & (pl.col("model") == model))
    return None if rows.is_empty() else rows[measure][0]


def reliability_figure(log: Log, means: pl.DataFrame) -> Any:
    """Posterior against the truth in the strong world, all seeds together."""
    groups = {
        "interactions alone": [name for name, (_, style) in LINES.items() if style == "--"],
        "with impressions": [name for name, (_, style) in LINES.items() if style == "-"],
    }
    panels: dict[str, dict[str, pl.DataFrame]] = {}
    for title, names in groups.items():
        panels[title] = {}
        for name in names:
            rows = [
                row["bins"]
                for row in log.of("score")
                if row["bed"] == "strong" and row["model"] == name and "bins" in row
            ]
            same = [bins for bins in rows if len(bins) == len(rows[0])]
            if same:
                predicted, liked, _ = np.mean(np.array(same), axis=0).T
                panels[title][name] = pl.DataFrame({"predicted": predicted, "liked": liked})
    notes = {
        name: f"AUC {auc:.2f}, error {value_of(means, 'strong', name, 'hidden_ece'):.3f}"
        for name in LINES
        if (auc := value_of(means, "strong", name, "hidden_pooled_auc")) is not None
    }
    return reliability_curves(panels, notes)


def real_figure(means: pl.DataFrame) -> Any:
    """NDCG@20 of true likes on worlds of MovieLens, and the AUC of true likes on Coat, by model."""
    figure, panels = new_panels(2, 9.6, 5.2)
    colours = {WITH: "#2f6fdb", WITHOUT: "#e08a1e"}
    shown = {
        "movielens": ("truth_ndcg@20", "MovieLens worlds: NDCG@20"),
        "coat": ("truth_auc", "Coat: AUC of users"),
    }
    for axes, (bed, (measure, title)) in zip(panels, shown.items(), strict=True):
        part = means.filter((pl.col("bed") == bed) & pl.col("data").is_in([WITH, WITHOUT])).sort(measure)
        part = part.filter(~pl.col("model").str.ends_with("defaults"))
        if part.is_empty():
            continue
        errors = part[f"{measure} se"].fill_null(0)
        bars = axes.barh(
            part["model"], part[measure], xerr=errors, color=[colours[data] for data in part["data"]], height=0.7
        )
        low = 0.9 * min(part[measure]) if bed == "coat" else 0
        axes.set(title=title, xlim=(low, 1.12 * max(part[measure])))
        axes.bar_label(bars, fmt="%.3f", fontsize=7, padding=3)
        axes.tick_params(axis="y", labelsize=7.5)
    return figure


# --- report ----------------------------------------------------------------------------------------------------


def settings_toml(log: Log) -> str:
    lines = ["# The settings that were chosen at seed 100, by bed and model. Other parameters are the defaults."]
    for bed in dict.fromkeys(row["bed"] for row in log.of("choice")):
        lines.append(f"\n[{bed}]")
        for contender in CONTENDERS:
            setting = {**contender.fixed, **chosen(log, bed, contender)}
            if setting and any(row["bed"] == bed and row["model"] == contender.name for row in log.of("score")):
                values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in setting.items())
                lines.append(f'"{contender.name}" = {{ {values} }}')
    return "\n".join(lines) + "\n"


def markdown(means: pl.DataFrame, measure: str, digits: int, columns: list[str]) -> str:
    """A table of a measure, models by beds; the standard error is that of the last digit."""
    models = list(dict.fromkeys(means["model"]))
    heads = [TITLES.get(bed, bed) for bed in columns]
    lines = [f"| model | {' | '.join(heads)} |", "|---|" + "---:|" * len(columns)]
    for model in models:
        cells = []
        for bed in columns:
            mean, error = (value_of(means, bed, model, name) for name in (measure, f"{measure} se"))
            text = "" if mean is None else f"{mean:.{digits}f}".removeprefix("0")
            cells.append(
                text if error is None or not text else f"{text} ±{error:.{digits + 1}f}".replace("±0", "±")
            )
        if any(cells):
            lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


TITLES = {"movielens": "MovieLens", "coat": "Coat"}
WHERE = {
    "coat-graded": "Coat, as in the papers",
    "coat": "Coat",
    "movielens": "MovieLens worlds",
    "strong": "strong world",
}
PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "exposure.md"


def cell(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}".removeprefix("0")


def page_tables(means: pl.DataFrame, decided: pl.DataFrame, beside: pl.DataFrame) -> dict[str, str]:
    """The tables of the page in the documentation, by the names that it marks them with."""
    columns = ["weak", "medium", "strong", "recommender", "movielens", "coat"]
    tables = {
        measure: markdown(means, measure, 4 if measure == "hidden_ece" else 3, columns)
        for measure in ("hidden_pooled_auc", "hidden_ndcg@20", "truth_ndcg@20", "hidden_ece")
    }
    lines = ["| claim | " + " | ".join(WHERE.values()) + " |", "|---|" + "---|" * len(WHERE)]
    for paper, claim in dict.fromkeys(zip(decided["paper"], decided["claim"], strict=True)):
        part = decided.filter(pl.col("claim") == claim)
        found = dict(zip(part["bed"], part["verdict"], strict=True))
        lines.append(f"| {claim} ({paper.split(', ')[-1]}) | " + " | ".join(found[bed] for bed in WHERE) + " |")
    tables["claims"] = "\n".join(lines) + "\n"
    measures = {"dcg@5": "DCG@5", "recall@5": "recall@5", "map@5": "MAP@5", "rare_dcg@5": "DCG@5, rare items"}
    lines = [
        f"| {WHERE['coat-graded']} | " + " | ".join(measures.values()) + " |",
        "|---|" + "---:|" * len(measures),
    ]
    for model in means.filter(pl.col("bed") == "coat-graded")["model"]:
        values = [
            f"{cell(value_of(means, 'coat-graded', model, name))} "
            f"±{cell(value_of(means, 'coat-graded', model, f'{name} se'))}"
            for name in measures
        ]
        lines.append(f"| {model} | " + " | ".join(values) + " |")
    tables["graded"] = "\n".join(lines) + "\n"
    lines = ["| setting | model | NDCG@5 or DCG@5 | recall@5 | MAP@5 |", "|---|---|---:|---:|---:|"]
    for (setting, name), part in beside.group_by(["setting", "published as"], maintain_order=True):
        figures = {
            row["measure"]: f"{cell(row['published'])} / {cell(row['ours'])}" for row in part.iter_rows(named=True)
        }
        first = figures.get("ndcg@5", figures.get("dcg@5", ""))
        rest = [figures.get(measure, "") for measure in ("recall@5", "map@5")]
        lines.append(f"| {setting} | {name} | " + " | ".join([first, *rest]) + " |")
    tables["published"] = "\n".join(lines) + "\n"
    return tables


def fill_page(tables: dict[str, str]) -> None:
    """Write the tables into the page, each after its mark."""
    text = PAGE.read_text()
    for name, table in tables.items():
        mark = f"% table: {name}\n:::{{div}} tl-figures\n"
        before, found, rest = text.partition(mark)
        if not found:
            raise SystemExit(f"{PAGE.name} has no mark of the table {name}")
        text = before + mark + table + rest[rest.index(":::") :]
    PAGE.write_text(text)


def report(log: Log, output: Path) -> None:
    scores = table(log)
    means = summary(scores)
    means.write_csv(output / "scores.csv", float_precision=5)
    tests(scores).write_csv(output / "tests.csv", float_precision=5)
    (output / "settings.toml").write_text(settings_toml(log))
    tried = [
        {"bed": row["bed"], "model": row["model"], **row["setting"], "rule": row["rule"], "value": row["value"]}
        for row in log.of("choice")
    ]
    pl.DataFrame(tried).write_csv(output / "choice.csv", float_precision=4)
    decided = verdicts(scores)
    decided.write_csv(output / "verdicts.csv")
    beside = beside_published(means)
    beside.write_csv(output / "published.csv", float_precision=4)
    figures = {
        "strengths": strengths_figure(means),
        "reliability": reliability_figure(log, means),
        "real": real_figure(means),
    }
    small = {"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans", "Arial"], "svg.hashsalt": "exposure"}
    with matplotlib.rc_context(small):  # text stays text, which makes small files
        for name, figure in figures.items():
            figure.savefig(output / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    tables = page_tables(means, decided, beside)
    print("\n\n".join(f"{name}\n\n{table}" for name, table in tables.items()))
    if output == RESULTS:
        fill_page(tables)
    with pl.Config(tbl_rows=-1, fmt_str_lengths=200, tbl_width_chars=250):
        print(decided)
        print(beside)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("what", nargs="?", choices=("run", "report"), default="run")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--beds", nargs="*", help="run on these beds only")
    given = parser.parse_args()
    print(machine())
    warnings.simplefilter("ignore", tl.errors.DataWarning)
    warnings.simplefilter("ignore", tl.errors.TrainingWarning)
    if given.quick:
        log = Log(None)
        run(log, quick=True, seeds=2)
    else:
        directory = tl.datasets.cache_directory() / "exposure-study"
        directory.mkdir(parents=True, exist_ok=True)
        log = Log(directory / "runs.jsonl")
        if given.what == "run":
            run(log, quick=False, seeds=given.seeds, only=given.beds)
    if given.quick or given.what == "report":
        report(log, output_directory(given.output, given.quick))


if __name__ == "__main__":
    main()
