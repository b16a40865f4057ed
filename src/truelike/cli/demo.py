"""`truelike demo`: a world with a known truth, every model on it, one table, one report."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truelike.cli.output import emit, say, show
from truelike.errors import ParameterError

if TYPE_CHECKING:
    import polars as pl

    from truelike.data.dataset import Dataset
    from truelike.data.splits import Split
    from truelike.data.synthetic import World
    from truelike.models.recommender import Recommender

LEAST_VOTES = 100
INFORMED = "ExactNBPO + impressions"
# chosen by held-out impressions in benchmarks/truth.py: fewer factors than where flips are free, as likes are all
# that is left to learn
INFORMED_BY: dict[str, Any] = {
    "factors": 16,
    "regularization": 2.0,
    "learning_rate": 0.05,
    "decay": 0.9,
    "epochs": 30,
}


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the report goes.")] = Path("truelike-demo"),
    users: Annotated[int, typer.Option(help="How many users the world has.")] = 2_000,
    items: Annotated[int, typer.Option(help="How many items.")] = 1_500,
    seed: Annotated[int, typer.Option(help="Which world.")] = 0,
) -> None:
    """Make a world whose true likes are known, train every model on its votes, and compare.

    Example: `truelike demo --users 500 --items 400`
    """
    import truelike as tl
    from truelike.files import check_place

    started = time.perf_counter()
    check_place(output)
    world = tl.synthetic.World(n_users=users, n_items=items, seed=seed)
    log, truth = world.log(), world.true_likes()
    if log.n_interactions < LEAST_VOTES:
        raise ParameterError(
            f"a world of {users:,} users and {items:,} items has {log.n_interactions:,} votes, too few to compare "
            "models by. Ask for more, e.g. --users 200 --items 100."
        )
    voted = log.n_interactions / truth.n_interactions
    say(f"A world of {users:,} users and {items:,} items: {truth.n_interactions:,} true likes, of which only")
    say(f"{log.n_interactions:,} ({voted:.0%}) were ever voted: the others were never shown to the user.")
    split = tl.split.by_user(log, validation=0.1, test=0.1, seed=seed)
    say("Each model learns from the votes alone, the last one also from what was shown to whom (the first run")
    say("compiles its loops, once) ...")
    models = _trained(split, world)
    table, reliability = _judged(models, split, world, _never_voted(truth, log))
    title = "Judged by held-out votes, and by true likes that were never voted"
    emit(table, title=title)
    sample = _readable(world, split, _best(models, split))
    show(sample["lists"], title=sample["title"], aside=not sys.stdout.isatty())
    _write(output, world, table, sample, reliability)
    say(f"\n{time.perf_counter() - started:.1f} s in all. Next: truelike train YOUR-LOG.csv -o model/")


def _trained(split: Split, world: World) -> dict[str, Recommender]:
    """Every model by its name, from votes alone; and one that also knows what was shown."""
    import truelike as tl
    from truelike.models import model_class, usual_models

    found = {name: model_class(name)().fit(split.train, validation=split.validation) for name in usual_models()}
    informed = tl.ExactNBPO(**INFORMED_BY).fit(split.train, impressions=split.impressions(world.shown()))
    return {**found, INFORMED: informed}


def _never_voted(truth: Dataset, log: Dataset) -> Dataset:
    """The true likes that are nowhere in the log, neither to learn from nor held out."""
    import numpy as np

    def pairs(part: Dataset) -> Any:
        return part.user_of_entry.astype(np.int64) * part.n_items + part.matrix.indices

    return truth.select(np.isin(pairs(truth), pairs(log), invert=True))


def _best(models: dict[str, Recommender], split: Split) -> tuple[str, Recommender]:
    """The best model by validation votes, which anybody would have."""
    import truelike as tl

    def measured(name: str) -> float:
        return tl.evaluate(models[name], split.validation, ks=(20,), metrics=["ndcg"])["ndcg@20"]

    best = max(models, key=measured)
    return best, models[best]


def _judged(
    models: dict[str, Recommender], split: Split, world: World, never_voted: Dataset
) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """One row a model: how it ranks the held-out votes and the true likes, and what its posterior is worth.

    And the reliability table of each model that has a posterior.
    """
    import polars as pl

    import truelike as tl

    known = never_voted.recode(split.train.users, split.train.items)[0]
    truth = world.truth()
    rows, reliability = [], {}
    for name, model in models.items():
        began = time.perf_counter()
        by_votes, by_truth = (tl.evaluate(model, part, ks=(5, 20)) for part in (split.test, known))
        seconds = time.perf_counter() - began
        labels = tl.evaluate(model, truth=truth, ks=(20,))
        posterior = labels.means() if model.has_posterior else {}
        rows.append(
            {
                "model": name,
                "votes F1@5": by_votes["f1@5"],
                "votes NDCG@20": by_votes["ndcg@20"],
                "truth precision@5": by_truth["precision@5"],
                "truth NDCG@20": by_truth["ndcg@20"],
                "truth AUC": labels["truth_auc"],
                "hidden AUC": posterior.get("hidden_pooled_auc"),
                "hidden ECE": posterior.get("hidden_ece"),
                "coverage@20": by_votes["coverage@20"],
                "ranking (s)": seconds,
            }
        )
        if labels.truth is not None and model.has_posterior:
            reliability[name] = labels.truth.reliability()
    return pl.DataFrame(rows), reliability


def _readable(world: World, split: Split, best: tuple[str, Recommender]) -> dict[str, Any]:
    """The most active users, what they like in words, and what they get, with the truth beside it."""
    import numpy as np
    import polars as pl

    name, model = best
    active = np.argsort(-split.train.rows_per_user(), kind="stable")[:2]
    frames = []
    for code in active:
        user = int(split.train.users.values[int(code)])
        found = model.recommend(user, k=5, titles=True)
        items = found["item_id"].to_numpy().astype(np.int32)
        liked = world.likes(np.full(len(items), user, dtype=np.int32), items)
        frames.append(
            pl.DataFrame(
                {
                    "user": user,
                    "loves": " and ".join(world.tastes(user)),
                    "rank": found["rank"],
                    "recommended": found["title"],
                    "truly liked": ["yes" if like else "no" for like in liked],
                }
            )
        )
    return {"title": f"What {name} recommends", "lists": pl.concat(frames)}


def _write(
    output: Path,
    world: World,
    table: pl.DataFrame,
    sample: dict[str, Any],
    reliability: dict[str, pl.DataFrame],
) -> None:
    """The report as a page where the [report] extra is there, and the table as CSV in any case."""
    from truelike.cli.output import write
    from truelike.errors import MissingExtraError
    from truelike.report import Page, require_report_extra

    write(table, output / "models.csv")
    try:
        require_report_extra()
    except MissingExtraError as error:
        say(f"wrote {output / 'models.csv'}; {error}")
        return
    from truelike.report.figures import grouped_bars, reliability_curves

    page = Page(
        "truelike demo",
        f"A synthetic world of {world.n_users:,} users and {world.n_items:,} items, seed {world.seed}",
    )
    page.text(
        "The models learned from votes alone, all but the last. A vote is a true like that the user was also "
        "shown, so most likes are not in the log. The left bars rank the held-out votes; the right bars rank the "
        "true likes that were never voted, which no real log can tell."
    )
    bars = grouped_bars(table, "model", ["votes NDCG@20", "truth NDCG@20"])
    page.figure(bars, "NDCG@20 of each model, by held-out votes and by the truth.")
    page.heading("Is a hidden like told from a dislike?").text(
        "Models with flips say how likely each unvoted item is truly liked. From votes alone only the product of "
        "like and exposure can be learned, so that posterior is no probability. Who also knows what was shown to "
        "whom knows the exposure, and what is left is the like: points near the dashed line are probabilities. "
        "Hidden AUC in the table below is of all unvoted pairs, hidden ECE the mean distance from the dashed line."
    )
    page.figure(reliability_curves({"": reliability}), "Each point is a fifteenth of all unvoted pairs.")
    page.heading("All figures").table(table)
    page.heading(sample["title"]).table(sample["lists"])
    page.write(output / "report.html")
    say(f"wrote {output / 'report.html'}")
