"""The model for a log that nobody has chosen one for: what was best, by the evidence, on logs like it.

docs/comparison.md has the evidence. Where there are about as many users as items or more, the softmax over all
items ranked best on the logs at hand, with more factors where the log is so small that they cost seconds. With far
fewer users there is too little to learn a row for each item from, and EDLAE, a closed form, is better. Where
users x items is so large that going through all pairs would take hours, IALS comes near and needs time by the
votes alone.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from truelike.data.checks import check_log
from truelike.data.dataset import Dataset
from truelike.data.splits import Split
from truelike.errors import ParameterError
from truelike.models import build
from truelike.models.iterative import ENOUGH_VOTES, IterativeModel
from truelike.parallel import cores
from truelike.progress import note

FEW_USERS = 0.8  # for each item
LARGE_CATALOGUE = 20_000  # items whose likenesses are no longer a matter of seconds and of a gigabyte
HOUR = 3600 * 20e9  # multiplications and additions that one core does in an hour, about
HOLD_OUT = 0.1  # of the votes, to find the number of epochs
SMALL_LOG = 10_000_000  # pairs of user and item that twice the factors are a matter of seconds for
WORK = 6 * 256 * 60  # of an exact softmax for each pair of user and item: three products, 256 factors, 60 epochs


def recommender(log: Dataset | Split | None = None, **parameters: Any) -> Any:
    """A model for a log, not fitted yet, by the log's size and shape; says which, and why.

    Parameters
    ----------
    log
        What the model will be trained on. None: the choice is made when `fit` is called, by what that is given,
        the log, and impressions or features if there are any; on a whole log it also finds the number of epochs.
        A model that was chosen here is fitted as any other, e.g. `.fit(log, validation=0.1)`.
    **parameters
        Given to the model that is chosen; it must have them.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.split.by_user(tl.synthetic.World(n_users=300, n_items=100).log(), seed=0)
    >>> tl.recommender(split.train)
    SoftmaxMF()
    >>> model = tl.recommender().fit(split.train, validation=split.validation)
    >>> model.name
    'SoftmaxMF'
    """
    if log is None:
        return Undecided(parameters)
    log = log.train if isinstance(log, Split) else log
    check_log(log, "recommender")
    chosen, reason = choose(log)
    made = build(chosen, parameters)
    note(f"{made}: {reason}")
    return made


def choose(log: Dataset) -> tuple[str, str]:
    """The name of the model for a log, with parameters as `variant` reads them, and the reason in a sentence.

    >>> import truelike as tl
    >>> choose(tl.synthetic.World(n_users=100, n_items=300).log())[0]
    'EDLAE'
    """
    users, items = log.n_users, log.n_items
    size = f"{users:,} users and {items:,} items"
    if users < FEW_USERS * items and items <= LARGE_CATALOGUE:
        return (
            "EDLAE",
            f"with {size} there are too few users for factors of every item; a closed form ranks better",
        )
    if WORK * users * items <= HOUR * cores():
        # under this prior more factors rank no worse; beyond the number of users or items they are nothing new
        roomy = users * items <= SMALL_LOG and min(users, items) > 512
        return (
            "SoftmaxMF:factors=512" if roomy else "SoftmaxMF",
            f"for {size} the softmax over all items, which ranked best on the public logs that were compared",
        )
    return "IALS", f"with {size} it comes near the best, and needs hours less than going through every pair"


def needed_for(given: Mapping[str, Any]) -> str | None:
    """The model that can use what `fit` is given beside the log; None where any can.

    >>> needed_for({"item_features": "items.csv"}), needed_for({"validation": None})
    ('FM', None)
    """
    told = {name for name, value in given.items() if value is not None}
    featured = told & {"user_features", "item_features"}
    if featured and "impressions" in told:
        raise ParameterError("no model takes both impressions and features: give one of them")
    return "ExactNBPO" if "impressions" in told else "FM" if featured else None


def usual_validation(log: Dataset, said: Container[str]) -> float | None:
    """The share of the votes to find the number of epochs with, where that is not said and there are enough."""
    enough = HOLD_OUT * log.n_interactions >= 2 * ENOUGH_VOTES  # not all that are drawn can be spared
    return None if "epochs" in said or "impressions" in said or not enough else HOLD_OUT


@dataclass(frozen=True)
class Undecided:
    """A model that is chosen when it is known what it is fitted to."""

    parameters: dict[str, Any]

    def fit(self, train: Dataset, **how: Any) -> Any:
        """Choose, and fit; the result is a model of the kind that was chosen.

        Where neither `validation` nor the number of epochs is given, that is found with a tenth of the votes,
        before the whole log is trained on. A model that is trained in one go ignores all that is about epochs.
        """
        how = {name: value for name, value in how.items() if value is not None}
        needed = needed_for(how)
        if needed is None:
            model = recommender(train, **self.parameters)
        else:
            model = build(needed, self.parameters)
            note(f"{model}: it can use what is known beside the votes")
        if not isinstance(model, IterativeModel):
            return model.fit(train)
        return model.fit(train, **{"validation": usual_validation(train, {*self.parameters, *how}), **how})
