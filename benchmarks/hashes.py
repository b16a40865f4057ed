"""Hashes of what models learn, to show that a change of the code changed no bit.

    PYTHONPATH=OLD_SRC python benchmarks/hashes.py > old.json
    PYTHONPATH=NEW_SRC python benchmarks/hashes.py --compare old.json

Each hash covers the learned attributes of a model and its lists for 100 users. The bits depend on the processor and on
the versions of NumPy and numba, so hashes are compared on one machine only. The exit status is 1 if a hash differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

EPOCHS = 3
LEARNED = ("user_factors_", "item_factors_", "user_flips_", "item_flips_", "item_bias_", "weights_")
SEEDED = {
    "BPR": {}, "WBPR": {}, "NBPR": {}, "ShiftMC": {}, "BPO": {}, "NBPO": {},
    "SoftmaxMF": {}, "ExactBPO": {}, "ExactNBPO": {}, "IALS": {},
}  # fmt: skip
WITH_IMPRESSIONS = {"steps": 40, "burn_in": 10, "samples": 4, "n_jobs": 2}  # of ImpressionMF on a small world
UNSEEDED = ("EASE", "EDLAE", "ItemKNN", "ItemPop")
ON_BLOCKS = ("BPR", "NBPO", "IALS")


def digest(model: Any) -> str:
    """The hash of the learned attributes of a model, and of its lists."""
    found = hashlib.sha256()
    for name in LEARNED:
        value = getattr(model, name, None)
        if value is not None:
            found.update(name.encode() + np.ascontiguousarray(value).tobytes())
    lists = model.recommend(list(model.train_.users)[:100], 20)
    for column in ("item_id", "score"):
        found.update(
            np.ascontiguousarray(lists[column].to_numpy()).astype("U" if column == "item_id" else "f4").tobytes()
        )
    return found.hexdigest()[:16]


def hashes(tl: Any) -> Iterator[tuple[str, str]]:
    """Name and hash of every model."""
    split = tl.datasets.load("amazon-electronics-14core")
    for seed in (0, 1):
        for name in SEEDED:
            model = getattr(tl, name)(epochs=EPOCHS, seed=seed, n_jobs=2)
            yield f"{name}, seed {seed}", digest(model.fit(split.train, progress=False))
    for recipe in ("BPR", "BPO", "NBPO"):
        model = getattr(tl, recipe)(recipe="paper", epochs=EPOCHS)
        yield f"{recipe}, the paper's recipe", digest(model.fit(split.train, progress=False))
    model = tl.NBPO(epochs=EPOCHS).fit(split, progress=False)
    yield "NBPO, with validation", digest(model)
    world = tl.synthetic.World(n_users=400, n_items=300, seed=0)
    shown = tl.read(world.dataset(), impressions=world.impressions())
    for seed in (0, 1):
        model = tl.ImpressionMF(seed=seed, **WITH_IMPRESSIONS).fit(shown, progress=False)
        yield f"ImpressionMF, seed {seed}", digest(model)
        likes = model.hidden_likes(list(shown.users)[:100], 20).select("posterior", "flip_probability").to_numpy()
        yield f"ImpressionMF, probabilities, seed {seed}", hashlib.sha256(likes.tobytes()).hexdigest()[:16]
    for name in UNSEEDED:
        yield name, digest(getattr(tl, name)().fit(split.train, progress=False))
    with tempfile.TemporaryDirectory() as place:
        for n in (1, 4):
            blocks = tl.blocks.build(split.train, Path(place) / str(n), blocks=n)
            for name in ON_BLOCKS:
                yield f"{name}, {n} blocks", digest(getattr(tl, name)(epochs=EPOCHS).fit(blocks, progress=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", type=Path, help="a file that an earlier run printed")
    given = parser.parse_args()
    import truelike as tl

    warnings.simplefilter("ignore")
    found = {}
    for name, value in hashes(tl):
        found[name] = value
        print(f"{name}: {value}", file=sys.stderr, flush=True)
    if given.compare is None:
        print(json.dumps(found, indent=1))
        return
    before = json.loads(given.compare.read_text())
    differ = [name for name in before if found.get(name) != before[name]]
    print(f"{len(before) - len(differ)} of {len(before)} hashes are the same")
    if differ:
        sys.exit("not the same: " + "; ".join(differ))


if __name__ == "__main__":
    main()
