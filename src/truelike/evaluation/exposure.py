"""Whether held-out interactions mostly measure exposure, judged by a sample of them.

An interaction is an item that was shown and liked. Where some items are shown far more often than others, a model that
only follows the exposure finds most held-out interactions. Two comparisons tell, both by the AUC of held-out items
against other items that the user has not interacted with before:

- The model knows impressions: the number of users that an item was shown to orders the pairs better than the model.
- It does not: the popularity of an item orders the pairs far better than the model orders items of equal popularity.
  Popularity may be exposure or quality; interactions alone do not tell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core import randomness
from truelike.data.ids import Codes
from truelike.data.protocol import Rows
from truelike.evaluation.pairs import is_seen
from truelike.evaluation.protocol import Ranker, exposure_of

USERS = 500  # of the sample
PAIRS = 4_000  # held-out interactions of these users at most
FEWEST = 200  # pairs below which nothing is said
NEGATIVES = 8  # other items per held-out interaction
WINDOW = 0.01  # items of equal popularity are within this share of all items in the order of popularity
MARGIN = 0.15  # by which popularity must be better
MIN_PERSONAL_AUC = 0.55  # the least AUC among items of equal popularity of a model that is more than popularity


class ExposureSample:
    """The users whose hash is smallest, and their relevant items, collected while lists are computed."""

    def __init__(self) -> None:
        self.key = randomness.key(0, "exposure sample")
        self.noise = np.empty(0, dtype=np.uint64)
        self.users = np.empty(0, dtype=np.int32)
        self.items: list[Codes] = []

    def add(
        self, users: Codes, relevant: sparse.csr_array, hits: NDArray[np.bool_], entries: NDArray[np.int64]
    ) -> None:
        """Add some users, and a CSR of their relevant items, a row for each; their lists do not matter."""
        noise = randomness.bits(self.key, users)
        candidates = np.argsort(noise, kind="stable")[:USERS]
        items = [relevant.indices[relevant.indptr[row] : relevant.indptr[row + 1]] for row in candidates]
        noise, users = np.append(self.noise, noise[candidates]), np.append(self.users, users[candidates])
        items = [*self.items, *items]
        kept = np.argsort(noise, kind="stable")[:USERS]
        self.noise, self.users, self.items = noise[kept], users[kept], [items[n] for n in kept]

    def pairs(self) -> tuple[Codes, Codes]:
        """Return the pairs of the sampled users, sorted."""
        order = np.argsort(self.users)
        items = [self.items[n] for n in order]
        users = np.repeat(self.users[order], [len(each) for each in items])
        return users, np.concatenate(items).astype(np.int32) if items else np.empty(0, dtype=np.int32)


def exposure_notes(model: Ranker, seen: Rows, sample: ExposureSample) -> tuple[str, ...]:
    """Return a note if the held-out interactions mostly measure exposure, or popularity; else nothing.

    Examples
    --------
    >>> import truelike as tl
    >>> world = tl.synthetic.World(n_users=1_000, n_items=500, impressions_per_user=150, exposure_skew=2.4)
    >>> split = tl.splits.by_user(world.dataset(), seed=0)
    >>> print(*tl.evaluate(tl.IALS(factors=16).fit(split.train), split).notes)
    The held-out interactions mostly measure popularity: ...
    """
    users, items = sample.pairs()
    if len(users) < FEWEST:
        return ()
    found = _aucs(model, seen, users, items)
    if "exposure" in found:
        if found["exposure"] <= found["model"]:
            return ()
        return (
            "The held-out interactions mostly measure exposure: how often items were shown orders "
            f"{found['exposure']:.0%} of the pairs of a held-out and another item, {model.name} orders "
            f"{found['model']:.0%}. Evaluate on held-out impressions (impressions=True) or with propensities "
            "(propensity=).",
        )
    if found["equally popular"] < MIN_PERSONAL_AUC or found["popularity"] <= found["equally popular"] + MARGIN:
        return ()
    return (
        "The held-out interactions mostly measure popularity: it orders "
        f"{found['popularity']:.0%} of the pairs of a held-out and another item, while {model.name} orders "
        f"{found['equally popular']:.0%} of those of equal popularity. If popular items are those that are shown, a "
        "better result may only follow the exposure. Evaluate on held-out impressions (impressions=True) or with "
        "propensities (propensity=).",
    )


def _aucs(model: Ranker, seen: Rows, users: Codes, items: Codes) -> dict[str, float]:
    """The AUC of held-out items against other items: of popularity, of the model, of exposure if it is known."""
    train = model.train_
    n_items = train.n_items
    relevant = users.astype(np.int64) * n_items + items  # sorted
    key = randomness.key(0, "exposure pairs")
    chosen = np.sort(np.argsort(randomness.bits(key, relevant), kind="stable")[:PAIRS])
    users, items = users[chosen], items[chosen]
    popularity = train.popularity()
    order = np.argsort(-popularity, kind="stable").astype(np.int32)
    rank = np.empty(n_items, dtype=np.int64)
    rank[order] = np.arange(n_items)
    many = np.repeat(users, NEGATIVES)
    random = randomness.uniform(randomness.key(0, "exposure negatives"), np.arange(2 * len(many)))
    anywhere = (random[: len(many)] * n_items).astype(np.int32)
    window = max(5, int(WINDOW * n_items))
    shift = np.floor(random[len(many) :] * (2 * window + 1)).astype(np.int64) - window
    near = order[np.clip(np.repeat(rank[items], NEGATIVES) + shift, 0, n_items - 1)]
    scores = np.repeat(model.scorer.score_pairs(users, items), NEGATIVES)
    found = {}
    for name, others in (("model", anywhere), ("equally popular", near)):
        unobserved = _unobserved(seen, many, others, relevant)
        found[name] = _auc(scores, model.scorer.score_pairs(many, others), unobserved)
        if name == "model":
            of_items: dict[str, NDArray[Any]] = {"popularity": popularity}
            exposure = exposure_of(model)
            if exposure is not None:
                of_items["exposure"] = exposure
            for what, value in of_items.items():
                found[what] = _auc(np.repeat(value[items], NEGATIVES), value[others], unobserved)
    return found


def _unobserved(seen: Rows, users: Codes, items: Codes, relevant: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each pair is neither left out nor held out."""
    pairs = users.astype(np.int64) * seen.n_items + items
    return ~(is_seen(seen, users, items) | np.isin(pairs, relevant))


def _auc(liked: NDArray[Any], others: NDArray[Any], counted: NDArray[np.bool_]) -> float:
    """The share of the counted pairs in the right order; ties count half."""
    if not counted.any():
        return 0.5
    higher, equal = liked > others, liked == others
    return float((higher + 0.5 * equal)[counted].mean())
