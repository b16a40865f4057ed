"""When `tl.evaluate` notes that held-out interactions mostly measure exposure or popularity.

    python benchmarks/exposure_note.py [--quick]

In synthetic worlds it is known whether they do: if the visibility of an item orders the pairs of a held-out and another
item better than the true probability of a like does. The margin in evaluation/exposure.py was chosen on other worlds;
the public logs were looked at then. Prints Markdown tables: worlds without and with impressions, and the logs.
Validation items stay candidates on test (`seen="train"`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from common import arguments, machine
from logs import LOGS

import truelike as tl
from truelike.errors import DataWarning, TrainingWarning

# users, items, impressions per user and item, taste, share of likes, seed
WORLDS = (
    (2_500, 900, 0.30, 2.5, 0.08, 21),
    (1_200, 500, 0.40, 2.0, 0.10, 22),
    (3_000, 1_500, 0.20, 3.0, 0.06, 23),
    (4_000, 700, 0.25, 2.0, 0.05, 24),
)
SKEWS = (0.4, 0.9, 1.4, 1.8, 2.2)
REAL = ("coat", "ml-100k", "ciao-5core", "amazon", "ciao-likes", "lastfm", "citeulike", "ml-1m")


def aucs(world: Any, test: Any) -> tuple[float, float]:
    """The AUC of held-out against random items: of the visibility, and of the true probability of a like."""
    users = test.users.take(test.user_of_entry).to_numpy()
    items = test.items.take(test.matrix.indices).to_numpy()
    rng = np.random.default_rng(0)
    others = rng.choice(users, 20_000), rng.integers(0, world.n_items, 20_000)

    def auc(value: Callable[[Any, Any], Any]) -> float:
        low, held_out = np.sort(value(*others)), value(users, items)
        below = sum(np.searchsorted(low, held_out, side=side) for side in ("left", "right"))
        return float(below.mean() / 2 / len(low))

    return auc(lambda _, items: world._visibility[items]), auc(world.like_probability)


def noted(model: Any, split: Any, **options: Any) -> str:
    model.fit(split.train, progress=False, **options)
    return "noted" if tl.evaluate(model, split, seen="train", ks=20, metrics="ndcg").notes else ""


def main() -> None:
    given = arguments(__doc__).parse_args()
    print(machine())
    warnings.simplefilter("ignore", DataWarning)
    warnings.simplefilter("ignore", TrainingWarning)
    worlds, skews, logs = (
        (((400, 200, 0.3, 2.5, 0.08, 1),), (0.4, 2.2), ()) if given.quick else (WORLDS, SKEWS, REAL)
    )
    settings = {"epochs": 1 if given.quick else 100}
    print("| world | AUC of visibility | AUC of likes | mostly exposure | IALS | ImpressionMF |")
    print("|---|---:|---:|---|---|---|")
    for n_users, n_items, per_item, taste, like_rate, seed in worlds:
        for skew in skews:
            world = tl.synthetic.World(
                n_users=n_users,
                n_items=n_items,
                impressions_per_user=per_item * n_items,
                taste=taste,
                like_rate=like_rate,
                exposure_skew=skew,
                seed=seed,
            )
            split = tl.splits.by_user(world.dataset(), seed=0)
            shown, liked = aucs(world, split.test)
            alone = noted(tl.IALS(), split)
            seen = tl.read(world.dataset(), impressions=world.impressions())
            informed = noted(tl.ImpressionMF(**settings), tl.splits.by_user(seen, seed=0))
            cells = (f"{n_users:,} x {n_items:,}, skew {skew}", f"{shown:.3f}", f"{liked:.3f}")
            print("|", " | ".join((*cells, "yes" if shown > liked else "", alone, informed)), "|", flush=True)
    print("\n| log | IALS | BPR |\n|---|---|---|")
    for name in logs:
        split = LOGS[name]()
        print("|", " | ".join((name, noted(tl.IALS(), split), noted(tl.BPR(), split))), "|", flush=True)


if __name__ == "__main__":
    main()
