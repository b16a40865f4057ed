"""AutoRecommender: chooses a model by the size and shape of the data.

The evidence is in the documentation ("What ranks best"). With about as many users as items or more, the softmax over
all items ranked best on the public datasets that were compared, with more factors where the data is so small that they
cost seconds. With far fewer users there is too little to learn a row for each item from, and EDLAE, a closed form, is
better. Where users x items is so large that an epoch over all pairs would take hours, IALS comes near, and its time
grows with the interactions only.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.errors import ParameterError
from truelike.models.availability import available_if
from truelike.models.base import Choice, DotProduct, Floats, Frame, Recommender
from truelike.models.registry import build
from truelike.parameters import jobs, whole_number
from truelike.progress import note
from truelike.training.loop import MIN_HELD_OUT
from truelike.training.options import FitOptions

FEW_USERS = 0.8  # users per item, below which there are too few users to learn a row for each item
LARGE_CATALOGUE = 20_000  # items above which a weight for every pair takes gigabytes
BUDGET = 2 * 3600 * 20e9  # multiply-adds in an hour on two cores, about; the same on every machine
HOLD_OUT = 0.1  # share of the interactions to find the number of epochs with
SMALL_DATA = 10_000_000  # pairs of user and item up to which twice the factors cost seconds
WORK = 6 * 256 * 60  # multiply-adds per pair of an exact softmax: three products, 256 factors, 60 epochs


@dataclass(kw_only=True, eq=False, repr=False)
class AutoRecommender(Recommender):
    """Choose a model for the data, and fit it.

    The choice depends on the data alone, not on the machine: see `choice_`. With impressions it is ExactNBPO, with
    features FM. Without a validation part, the number of epochs is found with a tenth of the interactions before the
    model is trained on all of them. A saved AutoRecommender is loaded as the model that it chose.

    Parameters
    ----------
    seed : int, default 0
        Seed of the model, if it has one.
    n_jobs : int or None, default -1
        Number of threads; -1: all cores. Never changes the result.

    Attributes
    ----------
    model_
        The chosen model, fitted.
    choice_
        `choice_.model` is what was chosen, `choice_.reason` why.

    Examples
    --------
    >>> import truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=300, n_items=100).dataset(), seed=0)
    >>> model = tl.AutoRecommender().fit(split)
    >>> model.choice_.model
    'SoftmaxMF()'
    >>> model.recommend([0], k=3).height
    3
    """

    iterative: ClassVar[bool] = True
    takes_impressions: ClassVar[bool] = True
    takes_features: ClassVar[tuple[str, ...]] = ("user", "item")

    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        name, reason = _needed_for(options) or choose(train)
        model = self._build(name)
        choice = Choice(repr(model), reason)
        note(f"{choice.model}: {choice.reason}")
        if not model.iterative:
            options = options.without("callbacks", "checkpoint", "resume")
        elif options.validation is None and options.impressions is None:
            options = replace(options, validation=usual_validation(train))
        model._check_options(options)
        model._assign(train, {**model._fit(train, options), "choice_": choice})
        return {"model_": model, "choice_": choice, "train_": model.train_}

    def _build(self, name: str) -> Recommender:
        model = build(name, {})
        own = {name: value for name, value in self.get_params().items() if name in model.get_params()}
        return model.set_params(**own)

    def _update(
        self, train: Dataset, users: Codes, items: Codes, epochs: int, progress: bool
    ) -> Mapping[str, Any]:
        model = self.model_
        if not model.supports_partial_fit:
            raise ParameterError(f"{model.name}, which was chosen, has no partial_fit: fit it again on all data")
        learned = {**model._update(train, users, items, epochs, progress), "choice_": self.choice_}
        updated = model._fitted(train, learned)
        return {"model_": updated, "choice_": self.choice_}

    def _state_with(self, train: Dataset) -> dict[str, Any]:
        learned = {name: value for name, value in self.model_._state.items() if name != "train_"}
        return {**super()._state_with(train), "model_": self.model_._fitted(train, learned)}

    def _written(self) -> Recommender:
        model: Recommender = self.model_
        return model

    # --- all answers are those of the chosen model ----------------------------------------------

    def _score_block(self, users: Codes) -> Floats:
        return self._written()._score_block(users)

    def _score_histories(self, histories: Any) -> Floats:
        return self._written()._score_histories(histories)

    def _similarity_block(self, items: Codes) -> Floats:
        return self._written()._similarity_block(items)

    def _dot_product(self) -> DotProduct | None:
        return self._written()._dot_product()

    def _ranking(self) -> AbstractContextManager[None]:
        return self._written()._ranking()

    def _tie_order(self) -> Codes | None:
        return self._written()._tie_order()

    def _hidden_like_block(self, users: Codes) -> Floats:
        found: Floats = self.model_._hidden_like_block(users)
        return found

    @available_if(lambda model: hasattr(getattr(model, "model_", None), "hidden_likes"))
    def hidden_likes(self, users: Any, k: int = 10, **options: Any) -> Frame:
        """Find unobserved items that the model takes for liked: see `ExactNBPO.hidden_likes`."""
        return self.model_.hidden_likes(users, k, **options)

    @available_if(lambda model: hasattr(getattr(model, "model_", None), "flip_probability"))
    def flip_probability(self, users: Any, items: Any) -> Floats:
        """The model's p(observed 0 | truly 1) of each pair: see `ExactNBPO.flip_probability`."""
        found: Floats = self.model_.flip_probability(users, items)
        return found

    @available_if(lambda model: hasattr(getattr(model, "model_", None), "similar_users"))
    def similar_users(self, users: Any, k: int = 10, **options: Any) -> Frame:
        """Find the k users most similar to each of some: see `IALS.similar_users`."""
        return self.model_.similar_users(users, k, **options)


def choose(train: Dataset) -> tuple[str, str]:
    """The name of the model for some data, with parameters as `registry.variant` reads them, and the reason.

    >>> import truelike as tl
    >>> choose(tl.synthetic.World(n_users=100, n_items=300).dataset())[0]
    'EDLAE'
    """
    users, items = train.n_users, train.n_items
    size = f"{users:,} users and {items:,} items"
    if users < FEW_USERS * items and items <= LARGE_CATALOGUE:
        return (
            "EDLAE",
            f"with {size} there are too few users to learn factors of every item; a closed form ranks better",
        )
    if WORK * users * items <= BUDGET:
        # with this regularization more factors rank no worse; beyond the number of users or items they add nothing
        many = users * items <= SMALL_DATA and min(users, items) > 512
        reason = f"for {size} the softmax over all items ranked best on the public datasets that were compared"
        return "SoftmaxMF:factors=512" if many else "SoftmaxMF", reason
    return "IALS", f"with {size} it comes near the best, and takes hours less than an objective over all pairs"


def _needed_for(options: FitOptions) -> tuple[str, str] | None:
    """The model that uses impressions or features, and the reason; None if there are none."""
    features = options.user_features is not None or options.item_features is not None
    if features and options.impressions is not None:
        raise ParameterError("no model uses both impressions and features: give one of them")
    if options.impressions is not None:
        return "ExactNBPO", "it uses the impressions"
    return ("FM", "it uses the features") if features else None


def usual_validation(train: Dataset) -> float | None:
    """The share of the interactions to find the number of epochs with; None if there are too few."""
    # not all that are drawn can be spared
    return HOLD_OUT if HOLD_OUT * train.n_interactions >= 2 * MIN_HELD_OUT else None
