"""Scored against the truth: worlds at three strengths of exposure, and Coat, with impressions and without.

    python benchmarks/truth.py [--output docs/hidden-likes] [--users 2000] [--items 1000] [--seed 0]

Writes scores.csv, scores.md, choice.csv and reliability.svg. The settings of ExactNBPO with impressions are chosen
without any truth: a tenth of the pairs that were shown is held out, voted or not, and the setting whose posterior
has the smallest log loss on them is fitted again on everything.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from common import machine

import truelike as tl
from truelike import randomness
from truelike.evaluation.truth import score_blocks
from truelike.report.figures import reliability_curves

# how much more visible popular items are: not at all, as in the demo, twice as steeply
STRENGTHS = {"weak": 0.0, "middle": 0.9, "strong": 1.8}
GRID = [
    {"factors": k, "regularization": l2, "learning_rate": 0.05, "decay": 0.9, "epochs": 30}
    for k in (16, 32)
    for l2 in (1.0, 2.0, 3.0, 4.0)
]
SHOWN = ("truth_auc", "truth_ndcg@20", "hidden_auc", "hidden_pooled_auc", "hidden_ece", "hidden_log_loss")
INFORMED = "ExactNBPO, impressions"
FREE = "ExactNBPO, votes alone"


class Study:
    """Rows as they come, the choices behind them, and the reliability tables."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.choices: list[dict[str, Any]] = []
        self.reliability: dict[tuple[str, str], Any] = {}

    def add(self, data: str, model: str, scores: Any, seconds: float | None) -> None:
        means = {name: float(value.mean()) for name, value in scores.values.items()} | scores.totals
        row = {"data": data, "model": model, **{name: means.get(name) for name in SHOWN}, "seconds": seconds}
        self.rows.append(row)
        self.reliability[data, model] = scores.reliability()
        print(*(f"{v:.4f}" if isinstance(v, float) else v for v in row.values()), flush=True)

    def fit(self, data: str, name: str, model: Any, train: Any, truth: Any, **how: Any) -> None:
        started = time.perf_counter()
        model.fit(train, **how)
        seconds = time.perf_counter() - started
        self.add(data, name, tl.evaluate(model, truth=truth, ks=(20,)).truth, seconds)

    def choose(self, data: str, votes: Any, shown: Any) -> dict[str, Any]:
        """The setting of the grid that predicts held-out impressions best; no truth is looked at."""
        out_of_votes, out_of_shown = held_out(votes), held_out(shown)
        unseen = tl.Truth(votes.select(out_of_votes), shown.select(out_of_shown))
        losses = []
        for setting in GRID:
            model = tl.ExactNBPO(**setting).fit(
                votes.select(~out_of_votes), impressions=shown.select(~out_of_shown)
            )
            losses.append(tl.evaluate(model, truth=unseen, ks=(20,))["hidden_log_loss"])
            self.choices.append({"data": data, **setting, "held-out log loss": losses[-1]})
        return GRID[int(np.argmin(losses))]

    def models(self, data: str, votes: Any, shown: Any, truth: Any) -> dict[str, Any]:
        """What both the worlds and Coat have; returns the setting that was chosen."""
        chosen = self.choose(data, votes, shown)
        print(f"{data}: chosen {chosen}", flush=True)
        for model in (tl.ItemPop(), tl.SoftmaxMF(), tl.NBPO()):
            self.fit(data, model.name, model, votes, truth)
        self.fit(data, FREE, tl.ExactNBPO(), votes, truth)
        self.fit(data, f"{FREE}, chosen setting", tl.ExactNBPO(**chosen), votes, truth)
        self.fit(data, f"{INFORMED}, defaults", tl.ExactNBPO(), votes, truth, impressions=shown)
        self.fit(data, INFORMED, tl.ExactNBPO(**chosen), votes, truth, impressions=shown)
        return chosen


def held_out(part: Any) -> Any:
    """A tenth of all pairs, the same ones in every log of these users and items."""
    pair = part.user_of_entry.astype(np.int64) * part.n_items + part.matrix.indices
    return randomness.uniform(randomness.key(0, "held-out impressions"), pair) < 0.1


def on_a_world(study: Study, strength: str, world: Any) -> None:
    data = f"world, {strength} exposure"
    votes, shown, truth = world.log(), world.shown(), world.truth()
    likes = truth.likes.n_interactions
    print(f"{data}: {votes.n_interactions:,} of {likes:,} likes voted ({votes.n_interactions / likes:.1%})")
    chosen = study.models(data, votes, shown, truth)
    users, items = (each.ravel() for each in np.indices((world.n_users, world.n_items)))
    hidden = world.flip_probability(users, items)
    propensities = pl.DataFrame({"user_id": users, "item_id": items, "propensity": 1 - hidden})
    name = "ExactNBPO, true propensities"
    study.fit(data, name, tl.ExactNBPO(**chosen), votes, truth, impressions=propensities)

    liked = world.like_probability(users, items).reshape(world.n_users, -1)
    seen, flips = shown.matrix.toarray() > 0, hidden.reshape(world.n_users, -1)
    by_propensity = liked * flips / (1 - liked + liked * flips)
    for name, posterior in (("propensities", by_propensity), ("impressions", np.where(seen, 0, liked))):
        best = score_blocks(votes, truth, liked.__getitem__, posterior.__getitem__)
        study.add(data, f"the world itself, {name}", best, None)


def on_coat(study: Study) -> None:
    shown, votes = tl.datasets.load("coat-impressions"), tl.datasets.load("coat").train
    study.models("Coat", votes, shown, tl.datasets.coat_truth())


def markdown(table: pl.DataFrame) -> str:
    """The scores as a table for people."""
    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * 2 + "---:|" * (table.width - 2)]
    for row in table.iter_rows():
        cells = ("" if v is None else f"{v:.3f}" if isinstance(v, float) else str(v) for v in row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("docs/hidden-likes"))
    parser.add_argument("--users", type=int, default=2_000)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(machine())
    study = Study()
    size = {"n_users": given.users, "n_items": given.items, "impressions": 0.3 * given.items}
    for strength, skew in STRENGTHS.items():
        world = tl.synthetic.World(**size, exposure_skew=skew, seed=given.seed)
        on_a_world(study, strength, world)
    on_coat(study)
    given.output.mkdir(parents=True, exist_ok=True)
    table = pl.DataFrame(study.rows, infer_schema_length=None)
    table.write_csv(given.output / "scores.csv", float_precision=5)
    (given.output / "scores.md").write_text(markdown(table.drop("seconds")))
    pl.DataFrame(study.choices).write_csv(given.output / "choice.csv", float_precision=5)
    strong = "world, strong exposure"
    panels = {
        "votes alone": {name: study.reliability[strong, name] for name in ("NBPO", FREE)},
        "with impressions": {INFORMED: study.reliability[strong, INFORMED]},
    }
    notes = {
        row["model"]: f"AUC {row['hidden_pooled_auc']:.2f}, error {row['hidden_ece']:.3f}"
        for row in study.rows
        if row["data"] == strong and row["hidden_ece"] is not None
    }
    reliability_curves(panels, notes).savefig(
        given.output / "reliability.svg", bbox_inches="tight", metadata={"Date": None}
    )
    print((given.output / "scores.md").read_text())


if __name__ == "__main__":
    main()
