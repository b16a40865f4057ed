"""`truelike demo`: synthetic data with known true likes, all models, one table and one report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from truelike.cli.messages import say
from truelike.cli.options import option
from truelike.cli.output import show, write
from truelike.errors import ParameterError

if TYPE_CHECKING:
    import polars as pl

    from truelike.data.dataset import Dataset
    from truelike.data.splits import Split
    from truelike.models.base import Recommender
    from truelike.synthetic import World

MIN_INTERACTIONS = 100
WITH_IMPRESSIONS = "ImpressionMF"
SAVED = {WITH_IMPRESSIONS: "with-impressions", "IALS": "ials"}  # models that are saved, and their directories
TABLE_TITLE = "test: held-out interactions; hidden: true likes that were never observed"
PRINTED = ("model", "test NDCG@20", "hidden NDCG@20", "hidden prec.@5", "P(like) AUC", "P(like) ECE")


def demo(
    output: Annotated[Path, option("Directory of the report.", "DIRECTORY", "--output", "-o")] = Path(
        "truelike-demo"
    ),
    users: Annotated[int, option("Number of users.", "N", min=1)] = 2_000,
    items: Annotated[int, option("Number of items.", "N", min=1)] = 1_500,
    seed: Annotated[int, option("Seed of the data and the split.")] = 0,
) -> None:
    """Train all models on synthetic data whose true likes are known, and compare them.

    Only some of the likes are observed as interactions. The table shows how well each model ranks held-out
    interactions, and how well it ranks the likes that were never observed.

    For example:
    ```
    truelike demo --users 500 --items 400
    ```
    """
    import truelike as tl
    from truelike.core.files import check_place

    started = time.perf_counter()
    check_place(output)
    world = tl.synthetic.World(n_users=users, n_items=items, seed=seed)
    data, likes = world.dataset(), world.true_likes()
    if data.n_interactions < MIN_INTERACTIONS:
        raise ParameterError(
            f"{users:,} users and {items:,} items give {data.n_interactions:,} interactions, too few to compare "
            "models. Ask for more, e.g. --users 200 --items 100."
        )
    say(
        f"synthetic data: {users:,} users, {items:,} items, {likes.n_interactions:,} true likes; "
        f"{data.n_interactions:,} of them ({data.n_interactions / likes.n_interactions:.0%}) are observed, because "
        "the others were never shown to the user"
    )
    split = tl.splits.by_user(data, validation=0.1, test=0.1, seed=seed)
    models = _fit(split, world)
    table, reliability = _evaluate(models, split, world)
    show(table.select(PRINTED), title=TABLE_TITLE)
    lists = _lists(world, split, models[WITH_IMPRESSIONS])
    title = f"Items that {WITH_IMPRESSIONS} recommends to two users"
    show(lists, title=title)
    _write(output, world, table, lists, title, reliability)
    _save(output, models, table)
    say(f"{time.perf_counter() - started:.1f} s in all; next: truelike train YOUR-LOG.csv -o model/")


def _fit(split: Split, world: World) -> dict[str, Recommender]:
    """All models by name, fitted to interactions; the last one also uses impressions."""
    import truelike as tl
    from truelike.models.registry import model_class, usual_models

    names = usual_models()
    found: dict[str, Recommender] = {}
    for number, name in enumerate(names, 1):
        say(f"training {name} ({number} of {len(names) + 1})")
        found[name] = model_class(name)().fit(split)
    say(f"training {WITH_IMPRESSIONS} ({len(names) + 1} of {len(names) + 1})")
    seen = tl.read(world.dataset(), impressions=world.impressions())
    parts = {name: split.info[name] for name in ("validation", "test", "seed")}
    found[WITH_IMPRESSIONS] = tl.ImpressionMF().fit(tl.splits.by_user(seen, **parts).train)
    return found


def _hidden(world: World, split: Split) -> Dataset:
    """The true likes that are no interaction, neither in training nor held out, in the ids of the training part."""
    import truelike as tl

    keys = ["user_id", "item_id"]
    pairs, observed = world.true_likes().to_frame(), world.dataset().to_frame()
    hidden = tl.read(pairs.join(observed, on=keys, how="anti").select(keys))
    return hidden.recode(split.train.users, split.train.items)[0]


def _evaluate(
    models: dict[str, Recommender], split: Split, world: World
) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """A table with one row a model, and the reliability of the models that have flip probabilities."""
    import polars as pl

    import truelike as tl

    hidden, truth = _hidden(world, split), world.truth()
    rows, reliability = [], {}
    for name, model in models.items():
        started = time.perf_counter()
        on_test, on_hidden = (tl.evaluate(model, part, ks=(5, 20)) for part in (split, hidden))
        seconds = time.perf_counter() - started
        labels = tl.evaluate(model, truth=truth, ks=(20,))
        has_flips = labels.truth is not None and hasattr(model, "hidden_likes")
        calibration = labels.means() if has_flips else {}
        rows.append({
            "model": name, "test NDCG@20": on_test["ndcg@20"], "test F1@5": on_test["f1@5"],
            "hidden NDCG@20": on_hidden["ndcg@20"], "hidden prec.@5": on_hidden["precision@5"],
            "likes AUC": labels["truth_auc"], "P(like) AUC": calibration.get("hidden_pooled_auc"),
            "P(like) ECE": calibration.get("hidden_ece"), "coverage@20": on_test["coverage@20"],
            "ranking (s)": seconds,
        })  # fmt: skip
        if labels.truth is not None and has_flips:
            reliability[name] = labels.truth.reliability()
    return pl.DataFrame(rows), reliability


def _lists(world: World, split: Split, model: Recommender) -> pl.DataFrame:
    """What is recommended to the two most active users, and which of it they truly like."""
    import polars as pl

    active = (-split.train.interactions_per_user()).argsort(kind="stable")[:2]
    users = [int(split.train.users[int(row)]) for row in active]
    lists = model.recommend(users, k=5, titles=True)
    liked = world.likes(lists["user_id"].to_numpy(), lists["item_id"].to_numpy())
    return lists.select(
        pl.col("user_id").alias("user"),
        pl.Series("likes", [" and ".join(world.tastes(user)) for user in lists["user_id"]]),
        "rank",
        pl.col("title").alias("recommended"),
        pl.Series("truly liked", ["yes" if like else "no" for like in liked]),
    )


def _save(output: Path, models: dict[str, Recommender], table: pl.DataFrame) -> None:
    """Save two models for `truelike serve`, and say how to start it."""
    for name, directory in SAVED.items():
        row = table.filter(table["model"] == name).row(0, named=True)
        metrics = {measure: row[measure] for measure in ("test NDCG@20", "hidden NDCG@20")}
        models[name].save(output / "models" / directory, metrics=metrics)
    places = " ".join(str(output / "models" / directory) for directory in SAVED.values())
    say(f"see them at http://127.0.0.1:8000: truelike serve {places} --events {output / 'events'}")


def _write(
    output: Path,
    world: World,
    table: pl.DataFrame,
    lists: pl.DataFrame,
    lists_title: str,
    reliability: dict[str, pl.DataFrame],
) -> None:
    """Write the table as CSV, and the report if the packages for it are installed."""
    from truelike.errors import MissingExtraError
    from truelike.report import Page, require_report_extra

    write(table, output / "models.csv")
    try:
        require_report_extra()
    except MissingExtraError as error:
        say(f"the HTML report is not written: {error}")
        return
    from truelike.report.figures import grouped_bars, reliability_curves

    page = Page(
        "truelike demo", f"Synthetic data: {world.n_users:,} users and {world.n_items:,} items, seed {world.seed}"
    )
    page.text(
        "All models are trained on interactions; the last one is also given the impressions, i.e. what was shown to "
        "whom. An interaction is a true like of an item that was shown to the user, so most likes are not observed. "
        "The left bars show how well held-out interactions are ranked. The right bars show how well the true likes "
        "that were never observed are ranked, which real data cannot tell."
    )
    bars = grouped_bars(table, "model", ["test NDCG@20", "hidden NDCG@20"])
    page.figure(bars, "NDCG@20 of each model on held-out interactions and on likes that were never observed.")
    page.heading("Hidden likes and dislikes").text(
        "Models with flip probabilities estimate P(like), the probability that an unobserved item is truly liked. "
        "Interactions alone determine only the product of like and exposure, so this estimate is not calibrated. "
        "Impressions determine the exposure, and what remains is the like. Points near the dashed line are "
        "calibrated. P(like) AUC in the table below is over all unobserved pairs; P(like) ECE is the mean distance "
        "from the dashed line."
    )
    page.figure(reliability_curves({"": reliability}), "Each point is a fifteenth of all unobserved pairs.")
    page.heading("All figures").table(table)
    page.heading(lists_title).table(lists)
    page.write(output / "report.html")
    say(f"wrote {output / 'report.html'}")
