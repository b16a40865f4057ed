"""Do the flips find hidden likes? NBPO where the truth is known: in synthetic worlds and on Coat."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from truelike.core.files import replacing_file
from truelike.errors import TruelikeError
from truelike.paper.protocol import SETTINGS, Plan, Setting

if TYPE_CHECKING:
    from truelike.data.dataset import Dataset
    from truelike.data.truth import Truth

FILE = "hidden-likes.csv"
KNOWN = {"world": "synthetic worlds", "coat": "Coat"}
GIVEN: dict[Setting, dict[str, Any]] = {"release": {"recipe": "paper"}, "defaults": {}}


def run(directory: Path, plan: Plan, *, say: Callable[[str], None]) -> None:
    """Fit NBPO with `plan.seeds` seeds on each dataset with a known truth; fits that are known are not repeated.

    A row of the file is a fit: the mean AUC over users, of their unobserved items, against the true likes, by the
    posterior of a hidden like and by the score alone. In a world the seed is also that of the world.
    """
    known = read(directory)
    for name, seed, setting in product(KNOWN, range(plan.seeds), GIVEN):
        if not known.filter(data=name, settings=SETTINGS[setting], seed=seed).is_empty():
            continue
        try:
            row = (name, SETTINGS[setting], seed, *fit(name, GIVEN[setting], seed, quick=plan.quick))
        except TruelikeError as error:  # Coat cannot be fetched, or NBPO diverges
            say(f"hidden likes, {KNOWN[name]}, {SETTINGS[setting]}, seed {seed}: {error}")
            continue
        known = known.vstack(_table([row]))
        with replacing_file(directory / FILE) as fresh:
            known.write_csv(fresh)


def fit(name: str, given: dict[str, Any], seed: int, *, quick: bool) -> tuple[float, float]:
    """Fit NBPO and return the mean AUC over users: of the posterior of a hidden like, and of the score alone."""
    import truelike as tl
    from truelike.evaluation.truth import score_truth

    train, truth = known_truth(name, seed, quick=quick)
    model = tl.NBPO(**{**given, **({"epochs": 5} if quick else {})}, seed=seed).fit(train, progress=False)
    found = score_truth(model, truth).values
    return float(found["hidden_auc"].mean()), float(found["truth_auc"].mean())


def known_truth(name: str, seed: int, *, quick: bool) -> tuple[Dataset, Truth]:
    """Return the interactions and the true likes: of a world with a seed, or of Coat."""
    import truelike as tl

    if name == "coat":
        return tl.datasets.load("coat").train, tl.datasets.coat_truth()
    size = {"n_users": 200, "n_items": 100} if quick else {"n_users": 800, "n_items": 400}
    world = tl.synthetic.World(**size, seed=seed)
    return world.dataset(), world.truth()


def read(directory: Path) -> pl.DataFrame:
    """Return a row per fit that is finished."""
    path = directory / FILE
    return _table(pl.read_csv(path).rows() if path.exists() else [])


def _table(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    kinds = {
        "data": pl.String,
        "settings": pl.String,
        "seed": pl.Int64,
        "posterior": pl.Float64,
        "score": pl.Float64,
    }
    return pl.DataFrame(rows, schema=kinds, orient="row")
