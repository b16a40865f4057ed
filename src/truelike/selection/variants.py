"""The models that are tuned and compared: a class and the parameters that are fixed for it, under one name."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from truelike.errors import ParameterError, TruelikeError
from truelike.models import registry
from truelike.models.base import Recommender
from truelike.selection import references

NOT_FIXED = ("metric", "n_jobs", "seed")  # parameters that a search sets itself
Parameters = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """A model class with parameters that are fixed for it, under a name such as "BPR" or "BPR:factors=64"."""

    name: str
    model_class: type[Recommender]
    parameters: Parameters = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    @cached_property
    def parameter_names(self) -> tuple[str, ...]:
        """All parameters of the class."""
        found = inspect.signature(self.model_class).parameters.values()
        return tuple(each.name for each in found if each.kind != each.VAR_KEYWORD)

    def make(self, parameters: Parameters) -> Recommender:
        """Create the unfitted model with these parameters on top of its own."""
        return self.model_class(**{**self.parameters, **parameters})

    def applicable(self, parameters: Parameters) -> Parameters:
        """Select those parameters that the class has and the variant leaves open."""
        return {
            name: value
            for name, value in parameters.items()
            if name in self.parameter_names and name not in self.parameters
        }

    def of_training(self, metric: str, seed: int) -> Parameters:
        """The seed, and the metric whose best epoch is kept, where the class has such parameters."""
        watched = {"metric": metric} if self.model_class.iterative else {}
        return self.applicable({**watched, "seed": seed})


Model = str | type[Recommender] | Recommender | Variant


def variant(model: Model) -> Variant:
    """Resolve a name, a class or an unfitted model.

    Of an unfitted model, the parameters that differ from the defaults are fixed, except `seed`, `metric` and
    `n_jobs`, which the search sets.

    Examples
    --------
    >>> import truelike as tl
    >>> variant("item-knn:neighbors=20").name
    'ItemKNN:neighbors=20'
    >>> variant(tl.ItemKNN).name
    'ItemKNN'
    >>> variant(tl.ItemKNN(neighbors=20)).parameters
    {'neighbors': 20}
    """
    if isinstance(model, Variant):
        return model
    if isinstance(model, str):
        model_class, parameters = registry.variant(model)
        return Variant(registry.variant_name(model), model_class, parameters)
    if isinstance(model, type) and issubclass(model, Recommender):
        if inspect.isabstract(model):
            missing = ", ".join(sorted(model.__abstractmethods__))
            raise ParameterError(f"{model.__name__} does not implement {missing}; a model must implement them")
        return Variant(model.__name__, model)
    if isinstance(model, Recommender):
        changed = _changed(model)
        shown = (f"{name}={_shown(value)}" for name, value in changed.items())
        return Variant(":".join([type(model).__name__, *shown]), type(model), changed)
    raise ParameterError(
        f"{model!r} is not a model; give a name such as 'BPR' or 'BPR:factors=64', a subclass of tl.Recommender, "
        "or an unfitted model such as tl.BPR(factors=64)"
    )


def _changed(model: Recommender) -> Parameters:
    """The parameters of a model that differ from the defaults; with a recipe, from those of the recipe."""
    given, kind = model.get_params(), type(model)
    try:
        recipe = {"recipe": given["recipe"]} if given.get("recipe") != kind().get_params().get("recipe") else {}
        defaults = kind(**recipe).get_params()
    except TypeError:  # a parameter without a default
        recipe, defaults = {}, {}
    changed = {name: value for name, value in given.items() if name not in defaults or defaults[name] != value}
    left_out = set(NOT_FIXED) - (set() if model.iterative else {"metric"})
    return {name: value for name, value in {**recipe, **changed}.items() if name not in left_out}


def _shown(value: object) -> object:
    return getattr(value, "__name__", None) or references.plain(value)


def learns_flips(model: Recommender) -> bool:
    """Whether a model has flip probabilities that it learns.

    >>> import truelike as tl
    >>> learns_flips(tl.NBPO()), learns_flips(tl.NBPO(flip_factors=0)), learns_flips(tl.BPR())
    (True, False, False)
    """
    objective = getattr(model, "_objective", None)
    if objective is None or getattr(model, "flip_factors", None) == 0:
        return False
    try:
        return bool(getattr(objective(), "uses_flips", False))
    except TruelikeError:  # an objective that only its trial can report: a class that is no longer known
        return False
