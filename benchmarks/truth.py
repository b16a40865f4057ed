"""Scores against known true likes: synthetic worlds at three strengths of exposure, and Coat.

    python benchmarks/truth.py [--output results/hidden-likes] [--users 2000] [--items 1000] [--seed 0] [--quick]

Each model is fitted with and without impressions. Writes scores.csv, choice.csv and reliability.svg, and prints the
scores as Markdown. The settings of ExactNBPO with impressions are chosen without the truth: a tenth of the pairs
that were shown is held out, observed or not, and the setting whose posterior has the smallest log loss on them is
fitted again on everything.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from common import arguments, machine, output_directory

import truelike as tl
from truelike import randomness
from truelike.evaluation.truth import score_blocks
from truelike.report.figures import reliability_curves

# how much more visible popular items are: not at all, as in the demo, twice as much
STRENGTHS = {"weak": 0.0, "middle": 0.9, "strong": 1.8}
GRID = [
    {"factors": k, "regularization": l2, "learning_rate": 0.05, "decay": 0.9, "epochs": 30}
    for k in (16, 32)
    for l2 in (1.0, 2.0, 3.0, 4.0)
]
QUICK_GRID = [{"factors": 8, "epochs": 1}, {"factors": 16, "epochs": 1}]
MEASURES = ("truth_auc", "truth_ndcg@20", "hidden_auc", "hidden_pooled_auc", "hidden_ece", "hidden_log_loss")
INFORMED = "ExactNBPO, impressions"
UNINFORMED = "ExactNBPO, interactions alone"


class Study:
    """The rows of the table, the settings that were tried, and the reliability tables.

    Parameters
    ----------
    grid
        The settings of ExactNBPO that are tried.
    fixed
        Parameters of the models that have them.
    """

    def __init__(self, grid: list[dict[str, Any]], fixed: dict[str, Any]) -> None:
        self.grid, self.fixed = grid, fixed
        self.rows: list[dict[str, Any]] = []
        self.choices: list[dict[str, Any]] = []
        self.reliability: dict[tuple[str, str], Any] = {}

    def add(self, data: str, model: str, scores: Any, seconds: float | None) -> None:
        means = {name: float(value.mean()) for name, value in scores.values.items()} | scores.totals
        row = {"data": data, "model": model, **{name: means.get(name) for name in MEASURES}, "seconds": seconds}
        self.rows.append(row)
        self.reliability[data, model] = scores.reliability()
        print(*(f"{v:.4f}" if isinstance(v, float) else v for v in row.values()), flush=True)

    def fit(self, data: str, name: str, model: Any, train: Any, truth: Any, **options: Any) -> None:
        started = time.perf_counter()
        model.fit(train, progress=False, **options)
        seconds = time.perf_counter() - started
        self.add(data, name, tl.evaluate(model, truth=truth, ks=(20,)).truth, seconds)

    def choose(self, data: str, train: Any, impressions: Any) -> dict[str, Any]:
        """The setting of the grid that predicts held-out impressions best. The truth is not used."""
        held_out_train, held_out_impressions = held_out(train), held_out(impressions)
        unseen = tl.Truth(train.select(held_out_train), impressions.select(held_out_impressions))
        losses = []
        for setting in self.grid:
            model = tl.ExactNBPO(**setting).fit(
                train.select(~held_out_train),
                impressions=impressions.select(~held_out_impressions),
                progress=False,
            )
            losses.append(tl.evaluate(model, truth=unseen, ks=(20,))["hidden_log_loss"])
            self.choices.append({"data": data, **setting, "held-out log loss": losses[-1]})
        return self.grid[int(np.argmin(losses))]

    def models(self, data: str, train: Any, impressions: Any, truth: Any) -> dict[str, Any]:
        """Evaluate the models that both the worlds and Coat have; return the setting that was chosen."""
        chosen = self.choose(data, train, impressions)
        print(f"{data}: chosen {chosen}", flush=True)
        fixed = self.fixed
        for model in (tl.ItemPop(), tl.SoftmaxMF(**fixed), tl.NBPO(**fixed)):
            self.fit(data, model.name, model, train, truth)
        self.fit(data, UNINFORMED, tl.ExactNBPO(**fixed), train, truth)
        self.fit(data, f"{UNINFORMED}, chosen setting", tl.ExactNBPO(**chosen), train, truth)
        self.fit(data, f"{INFORMED}, defaults", tl.ExactNBPO(**fixed), train, truth, impressions=impressions)
        self.fit(data, INFORMED, tl.ExactNBPO(**chosen), train, truth, impressions=impressions)
        return chosen


def held_out(part: Any) -> Any:
    """A tenth of all pairs, the same ones in every dataset of these users and items."""
    pair = part.user_of_entry.astype(np.int64) * part.n_items + part.matrix.indices
    return randomness.uniform(randomness.key(0, "held-out impressions"), pair) < 0.1


def on_world(study: Study, strength: str, world: Any) -> None:
    data = f"world, {strength} exposure"
    train, impressions, truth = world.dataset(), world.impressions(), world.truth()
    observed, likes = train.n_interactions, truth.likes.n_interactions
    print(f"{data}: {observed:,} of {likes:,} likes observed ({observed / likes:.1%})")
    chosen = study.models(data, train, impressions, truth)
    users, items = (each.ravel() for each in np.indices((world.n_users, world.n_items)))
    flip = world.flip_probability(users, items)
    propensities = pl.DataFrame({"user_id": users, "item_id": items, "propensity": 1 - flip})
    name = "ExactNBPO, true propensities"
    study.fit(data, name, tl.ExactNBPO(**chosen), train, truth, impressions=propensities)

    # the best possible posteriors, from the probabilities of the world itself
    like = world.like_probability(users, items).reshape(world.n_users, -1)
    seen, flips = impressions.matrix.toarray() > 0, flip.reshape(world.n_users, -1)
    by_propensity = like * flips / (1 - like + like * flips)
    for name, posterior in (("propensities", by_propensity), ("impressions", np.where(seen, 0, like))):
        best = score_blocks(train, truth, like.__getitem__, posterior.__getitem__)
        study.add(data, f"the world itself, {name}", best, None)


def on_coat(study: Study) -> None:
    impressions, train = tl.datasets.load("coat-impressions"), tl.datasets.load("coat").train
    study.models("Coat", train, impressions, tl.datasets.coat_truth())


def markdown(table: pl.DataFrame) -> str:
    """The scores as a Markdown table."""
    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * 2 + "---:|" * (table.width - 2)]
    for row in table.iter_rows():
        cells = ("" if v is None else f"{v:.3f}" if isinstance(v, float) else str(v) for v in row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("results/hidden-likes"))
    parser.add_argument("--users", type=int, default=2_000)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.quick:
        given.users, given.items = 200, 100
    print(machine())
    study = Study(QUICK_GRID, {"epochs": 1}) if given.quick else Study(GRID, {})
    size = {"n_users": given.users, "n_items": given.items, "impressions_per_user": 0.3 * given.items}
    for strength, skew in STRENGTHS.items():
        world = tl.synthetic.World(**size, exposure_skew=skew, seed=given.seed)
        on_world(study, strength, world)
    on_coat(study)
    output = output_directory(given.output, given.quick)
    table = pl.DataFrame(study.rows, infer_schema_length=None)
    table.write_csv(output / "scores.csv", float_precision=5)
    pl.DataFrame(study.choices).write_csv(output / "choice.csv", float_precision=5)
    strong = "world, strong exposure"
    panels = {
        "interactions alone": {name: study.reliability[strong, name] for name in ("NBPO", UNINFORMED)},
        "with impressions": {INFORMED: study.reliability[strong, INFORMED]},
    }
    notes = {
        row["model"]: f"AUC {row['hidden_pooled_auc']:.2f}, error {row['hidden_ece']:.3f}"
        for row in study.rows
        if row["data"] == strong and row["hidden_ece"] is not None
    }
    reliability_curves(panels, notes).savefig(
        output / "reliability.svg", bbox_inches="tight", metadata={"Date": None}
    )
    print(markdown(table.drop("seconds")))


if __name__ == "__main__":
    main()
