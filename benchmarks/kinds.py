"""What other kinds of feedback bring: carts for purchases (Taobao), what was shown and not liked for likes (KuaiRand).

    python benchmarks/kinds.py taobao|kuairand|ml-100k [--data DIRECTORY] [--models EDLAE] [--peer] [--auto quick]
    python benchmarks/kinds.py table

The weight of a kind is the best of WEIGHTS on held-out interactions of the target, by NDCG@20. The test part is looked
at once, with this weight and without the kind. A line of results/kinds/<data>.csv is written for each fit, as soon as
it is there; fits that are there are not repeated.

Taobao has no validation part: a tenth of the purchases is held out of train, and the carts of held-out pairs with them.
On test a cart of a test pair is known, as it comes before the purchase. Each model is measured twice: on all test
pairs, and ("left out") on those that are not in a cart, with lists without the items in the cart. For KuaiRand, what is
left out are the items that were shown and not liked. Weights are chosen by the second figure.
"""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from common import arguments

import truelike as tl
from truelike.data.strategies import hold_out
from truelike.evaluation.significance import paired_t

WEIGHTS = (-0.3, -0.1, 0.1, 0.3, 1.0)
RESULTS = Path(__file__).parents[1] / "results" / "kinds"
MODELS = ("ItemKNN", "EDLAE", "IALS:factors=64")
MEASURES = ("ndcg@20", "recall@20", "p")
COLUMNS = ("part", "model", "weight", *MEASURES, *(f"left out {name}" for name in MEASURES), "seconds")


def taobao(place: Path) -> tuple[tl.Dataset, Any, tl.Dataset, tl.Dataset]:
    """The training data, that without held-out purchases and these, and the test part."""

    def part(name: str, event: str) -> pl.DataFrame:
        frame = pl.read_csv(place / name, separator="\t").select(user="uid", item="sid")
        return frame.with_columns(event=pl.lit(event))

    log = pl.concat([part("buy.train.txt", "buy"), part("cart.csv", "cart")])
    data = tl.read(log, kind="event", kinds={"buy": 1, "cart": 1}, target="buy")
    train, held_out = hold_out(data, 0.1, 0)
    return data, train, held_out.with_parts(kinds={}), tl.read(part("buy.test.txt", "buy").drop("event"))


def kuairand(place: Path) -> tuple[tl.Dataset, Any, tl.Dataset, tl.Dataset]:
    """The training data twice, and the likes of validation and test."""

    def part(name: str) -> pl.DataFrame:
        frame = pl.read_csv(place / name, separator=" ", has_header=False, new_columns=["user", "item", "liked"])
        liked = pl.when(pl.col("liked") > 0).then(pl.lit("like")).otherwise(pl.lit("dislike"))
        return frame.select("user", "item", event=liked)

    def likes(name: str) -> tl.Dataset:
        return tl.read(part(name).filter(pl.col("event") == "like").drop("event"))

    data = tl.read(part("train.txt"), kind="event", kinds={"like": 1, "dislike": -1}, target="like")
    return data, data, likes("valid.txt"), likes("test.txt")


def movielens(place: Path) -> tuple[tl.Dataset, Any, tl.Dataset, tl.Dataset]:
    """MovieLens 100K by time for each user: ratings of 4 and 5 are likes, those of 1 and 2 dislikes."""
    columns = ["user", "item", "rating", "time"]
    log = pl.read_csv(place.with_suffix(".tsv"), separator="\t", has_header=False, new_columns=columns)
    event = pl.when(pl.col("rating") > 3).then(pl.lit("like")).otherwise(pl.lit("dislike"))
    log = log.filter(pl.col("rating") != 3).select("user", "item", "time", event=event)
    data = tl.read(log, kind="event", kinds={"like": 1, "dislike": -1}, target="like")
    split = tl.splits.by_user(data, by="time")
    return split.train, split.train, split.validation, split.test


DATA = {"taobao": (taobao, "cart"), "kuairand": (kuairand, "dislike"), "ml-100k": (movielens, "dislike")}


class ImplicitALS(tl.Recommender):
    """AlternatingLeastSquares of implicit, at its defaults, on the same combined weights."""

    name = "implicit ALS"

    def _fit(self, train: tl.Dataset, options: Any) -> dict[str, Any]:
        from implicit.als import AlternatingLeastSquares

        model = AlternatingLeastSquares(factors=64, random_state=0, num_threads=1)
        model.fit(train.csr, show_progress=False)
        return {"users_": np.asarray(model.user_factors), "items_": np.asarray(model.item_factors)}

    def _make_scorer(self) -> tl.Scorer:
        return tl.DotProductScorer(self.train_, self.users_, self.items_)


def written(name: str, value: Any) -> Any:
    """A value as it is written to a file."""
    if name.endswith("p") and value != "":
        return f"{value:.3g}"
    return f"{value:.4f}" if isinstance(value, float) else value


class Results:
    """The lines of a file, and the values of each user of the models that were measured here."""

    def __init__(self, path: Path) -> None:
        self.path, self.values = path, {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self.lines = list(csv.DictReader(path.open())) if path.exists() else []

    def find(self, *key: str) -> dict[str, str] | None:
        """The line of a part, a model and a weight."""
        return next((each for each in self.lines if (each["part"], each["model"], each["weight"]) == key), None)

    def add(self, line: dict[str, Any]) -> None:
        """Write a line."""
        line = {name: written(name, value) for name, value in line.items()}
        self.lines.append(line)
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.lines)
        print("  ".join(str(each) for each in line.values()), flush=True)


def measured(model: Any, held_out: tl.Dataset, left_out: tl.Dataset) -> list[Any]:
    """NDCG and recall of each user, on all pairs and without those of `left_out`."""
    options: dict[str, Any] = {"ks": (20,), "metrics": ("ndcg", "recall"), "n_jobs": 1, "notes": False}
    options["exclude_seen"] = "interactions"  # dislikes, which the second figure leaves out, stay in the first
    both = [tl.evaluate(model, held_out, **options), tl.evaluate(model, held_out, seen=left_out, **options)]
    return [each[name] for each in (one.values for one in both) for name in ("ndcg@20", "recall@20")]


def line_of(
    part: str, name: str, weight: object, values: list[Any], base: list[Any], seconds: float
) -> dict[str, Any]:
    """A line of the results; p is that of the paired t-test of NDCG against the model without the kind."""
    p = ["" if values is base else paired_t(values[at], base[at]) for at in (0, 2)]
    means = [float(each.mean()) for each in values]
    found = (part, name, weight, *means[:2], p[0], *means[2:], p[1], round(seconds, 1))
    return dict(zip(COLUMNS, found, strict=True))


def run(what: str, place: Path, models: list[str], peer: bool, auto: str | None) -> None:
    """Choose the weight of each model on held-out interactions, and measure it on test."""
    read, kind = DATA[what]
    data, train, held_out, test = read(place / what)
    results = Results(RESULTS / f"{what}.csv")
    pairs = data.kinds[kind]
    left_out = data.with_parts(csr=abs(pairs.csr), times=None, kinds={})

    def fitted(name: str, weight: float, on: tl.Dataset) -> tuple[Any, float]:
        started = time.perf_counter()
        model = tl.WeightedKinds(model=name, weights={kind: weight}, n_jobs=1).fit(on, progress=False)
        return model, time.perf_counter() - started

    def compare(part: str, name: str, weights: tuple[float, ...], on: tl.Dataset, by: tl.Dataset) -> None:
        base: list[Any] = []
        for weight in (0.0, *weights):
            if all(results.find(part, name, f"{each:g}") for each in (0.0, *weights)):
                continue  # all of them, as p-values compare the users of one run
            model, seconds = fitted(name, weight, on)
            values = measured(model, by, left_out)
            base = base or values
            results.add(line_of(part, name, f"{weight:g}", values, base, seconds))

    for name in models:
        compare("validation", name, WEIGHTS, train, held_out)
        found = {weight: results.find("validation", name, f"{weight:g}") for weight in (0.0, *WEIGHTS)}
        best = max(found, key=lambda weight: float((found[weight] or {}).get("left out ndcg@20", 0)))
        compare("test", name, (best,), data, test)
        if peer and name.startswith("IALS"):
            base = []
            for weight in (0.0, max(best, 0.0)):
                on = fitted("ItemPop", weight, data)[0].model_.train_
                started = time.perf_counter()
                model = ImplicitALS().fit(on, progress=False)
                seconds = time.perf_counter() - started
                model = model.with_learned(data.with_parts(kinds={}), model.learned)
                values = measured(model, test, left_out)
                base = base or values
                results.add(line_of("test", "implicit ALS", f"{weight:g}", values, base, seconds))
    if auto is not None:
        base = []
        for name, on in (("AutoRecommender without", data.with_parts(kinds={})), ("AutoRecommender", data)):
            started = time.perf_counter()
            model = tl.AutoRecommender(budget=auto, n_jobs=1).fit(on, progress=True)
            seconds = time.perf_counter() - started
            print(model.choice_.model, model.choice_.reason, flush=True)
            values = measured(model, test, left_out)
            base = base or values
            results.add(line_of("test", f"{name}: {model.choice_.model}", "learned", values, base, seconds))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("what", choices=[*DATA, "table"])
    parser.add_argument("--data", type=Path, default=Path("~/.cache/truelike").expanduser())
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--auto", metavar="BUDGET", help="AutoRecommender, too, e.g. quick")
    given = parser.parse_args()
    if given.what == "table":
        for path in sorted(RESULTS.glob("*.csv")):
            frame = pl.read_csv(path).filter(pl.col("part") == "test").drop("part")
            print(path.stem, frame.to_pandas().to_markdown(index=False), sep="\n\n", end="\n\n")
        return
    run(given.what, given.data, given.models, given.peer, given.auto)


if __name__ == "__main__":
    main()
