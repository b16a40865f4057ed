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
"""

from __future__ import annotations

import json
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
from ratings_world import RatingsWorld, movielens_ratings

import truelike as tl
from truelike.evaluation.significance import holm, paired_t
from truelike.evaluation.truth import score_blocks
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
    """

    train: Any
    impressions: Any
    truth: Any
    world: Any = None


def of_world(world: Any) -> Bed:
    return Bed(world.dataset(), world.impressions(), world.truth(), world)


@cache
def movielens(size: tuple[tuple[str, int], ...]) -> Any:
    return RatingsWorld(movielens_ratings(), **dict(size), exposure_skew=RATINGS_SKEW)


def coat(_: int) -> Bed:
    impressions, train = tl.datasets.load("coat-impressions"), tl.datasets.load("coat").train
    return Bed(train, impressions, tl.datasets.coat_truth())


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
    found["movielens"] = lambda seed: of_world(movielens(tuple(WORLD.items())).with_seed(seed))
    return {**found, "coat": coat}


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


CONTENDERS = [
    Contender("ImpressionMF, impressions", WITH, "ImpressionMF"),
    Contender("ImpressionMF, impressions, labels alone", WITH, "ImpressionMF", {"taste_in_exposure": False}),
    Contender("ItemPop", WITHOUT, "ItemPop"),
    Contender("IALS", WITHOUT, "IALS", grid=grid(0.015, 0.06)),
    Contender("BPR", WITHOUT, "BPR", grid=grid(4.0, 12.0)),
    Contender("ExactBPO", WITHOUT, "ExactBPO", grid=grid(2.0, 6.0)),
    Contender("SoftmaxMF", WITHOUT, "SoftmaxMF", grid=grid(2.0, 6.0)),
    Contender("NBPO", WITHOUT, "NBPO", grid=grid(8.0, 24.0)),
    Contender("ExactNBPO, learned flips", WITHOUT, "ExactNBPO", grid=grid(2.0, 6.0)),
    Contender("ExposureMF, item", WITHOUT, "ExposureMF", {"exposure": "item"}, grid(2.0, 6.0)),
    Contender("ExposureMF, structured", WITHOUT, "ExposureMF", {"exposure": "structured"}, grid(2.0, 6.0)),
    Contender("ImpressionMF, true propensities", KNOWN, "ImpressionMF"),
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
            seen = tl.read(data.train, impressions=data.impressions)
            parts = tl.splits.random(seen, validation=0, test=0.1, seed=TUNING_SEED)
            model.fit(parts.train, progress=False)
            rule = "shown_log_loss" if hasattr(model, "like_probability") else rule
            found = tl.evaluate(model, parts.test, impressions=True)
        else:
            split = tl.splits.random(data.train, validation=0.0, test=0.1, seed=TUNING_SEED)
            model.fit(split.train, progress=False)
            ranker = model
            if hasattr(model, "hidden_likes"):
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
        self.name, self.train_, self.scorer = model.name, model.train_, InteractionScorer(model)


class InteractionScorer(tl.Scorer):
    def __init__(self, model: Any) -> None:
        super().__init__(model.train_)
        self.model, self.items = model, list(model.train_.items)

    def score_users(self, users: Any) -> Any:
        ids = [self.train.users[int(user)] for user in users]
        rows = [
            self.model.like_probability(user, self.items)["probability"].to_numpy()
            * (1 - self.model.flip_probability(user, self.items))
            for user in ids
        ]
        return np.stack(rows).astype(np.float32)

    def score_histories(self, histories: Any) -> Any:
        raise NotImplementedError

    def similarities(self, items: Any) -> Any:
        raise NotImplementedError


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
        seen = tl.read(data.train, **options) if options else data.train
        model = contender.build(row["setting"], seed).fit(seen, progress=False)
    except tl.errors.DivergedError:
        log.add({**row, "data": contender.data, "diverged": True})
        print(bed, seed, contender.name, "diverged", flush=True)
        return
    posterior = model.likes.hidden if hasattr(model, "likes") else None
    found = measured(data, model.scorer.score_users, posterior, model.scorer.ties)
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
    return values


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
            **{name: row.get(name) for name in MEASURES},
        }
        for row in sorted(log.of("score"), key=lambda row: order.get(row["model"], 99 + names[row["model"]]))
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def summary(scores: pl.DataFrame) -> pl.DataFrame:
    """Mean and standard error over the seeds."""
    values = [name for name in MEASURES if scores[name].dtype == pl.Float64]
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
    """Each model against the best one with the same data."""
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
            found = [(a, b, compared(scores, bed, a, b, measure)) for a, b in pairs]
            known = [(a, b, result) for a, b, result in found if result is not None]
            corrected = holm([result[1] for _, _, result in known])
            for (a, b, (difference, p, n)), p_holm in zip(known, corrected, strict=True):
                rows.append((bed, measure, a, b, difference, p, p_holm, n))
    names = ["bed", "measure", "model", "other", "difference", "p", "p_holm", "seeds"]
    return pl.DataFrame(rows, schema=names, orient="row").unique(maintain_order=True)


# --- figures ---------------------------------------------------------------------------------------------------

RESULTS = Path(__file__).resolve().parents[1] / "results" / "exposure"
LINES = {  # colour, style
    "ImpressionMF, impressions": ("#2f6fdb", "-"),
    "ExposureMF, structured": ("#e08a1e", "--"),
    "ExposureMF, item": ("#b8457a", "--"),
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
    figure, [axes] = new_figure(width=width, height=height)
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
    figures = {
        "strengths": strengths_figure(means),
        "reliability": reliability_figure(log, means),
        "real": real_figure(means),
    }
    small = {"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans", "Arial"], "svg.hashsalt": "exposure"}
    with matplotlib.rc_context(small):  # text stays text, which makes small files
        for name, figure in figures.items():
            figure.savefig(output / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    columns = ["weak", "medium", "strong", "recommender", "movielens", "coat"]
    for measure in TESTED:
        print(f"{measure}\n\n{markdown(means, measure, 4 if measure == 'hidden_ece' else 3, columns)}\n")


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
