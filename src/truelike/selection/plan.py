"""The plan of a comparison: the models, and every argument that decides the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from truelike.data.checks import check_number
from truelike.data.dataset import Dataset
from truelike.data.splits import Split
from truelike.data.strategies import by_user
from truelike.errors import DataError, ParameterError
from truelike.evaluation.metrics import parse_measure
from truelike.evaluation.seen import SeenParts, check_seen_parts
from truelike.models.registry import REGISTRY, usual_models
from truelike.selection.references import identity, reference
from truelike.selection.variants import Model, Parameters, Variant, variant

Models = Model | Sequence[Model] | Mapping[str, Model]
By = Literal["time", "random"] | None


@dataclass(frozen=True)
class Plan:
    """What `tl.compare` runs, apart from the data: the arguments of this name. Nothing else decides the result.

    Examples
    --------
    >>> plan = Plan(chosen_models(["BPR", "ItemPop"]), fixed={"epochs": 5})
    >>> [model.name for model in plan.models], plan.metric
    (['BPR', 'ItemPop'], 'ndcg@20')
    """

    models: list[Variant]
    metric: str = "ndcg@20"
    by: By = None
    seen: SeenParts = "validation"
    n_trials: int = 18
    seeds: int = 3
    seed: int = 0
    fixed: Parameters = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_measure(self.metric)
        check_seen_parts(self.seen)
        check_number("n_trials", self.n_trials, low=1, whole=True)
        check_number("seeds", self.seeds, low=1, whole=True)
        check_number("seed", self.seed, low=0, whole=True)
        for parameter in self.fixed:
            if not any(parameter in model.parameter_names for model in self.models):
                raise ParameterError(f"none of {', '.join(map(str, self.models))} has a parameter {parameter!r}")
        for model in self.models:
            model.make(model.applicable(self.fixed))  # raises for a wrong value

    def split(self, data: object) -> Split:
        """The split of a dataset, or a split as it is."""
        if isinstance(data, Split):
            if self.by is not None:
                raise ParameterError(
                    f"by is {self.by!r}, and the data is a split already: give a Dataset, or leave out `by`"
                )
            return data
        if isinstance(data, Dataset):
            return by_user(data, validation=0.1, test=0.1, by=self.by, rounding="random", seed=self.seed)
        raise DataError(
            f"compare takes a Dataset or a Split, not {type(data).__name__}: use tl.read(rows), or "
            "tl.Split(tl.read(train), tl.read(validation), tl.read(test)) for a split of your own"
        )


def chosen_models(models: Models | None) -> list[Variant]:
    """Resolve the models that were asked for, under names that differ: those of a mapping, or each once.

    >>> [model.name for model in chosen_models(["item-knn", "bpr", "BPR", "neumf:objective=NBPO"])]
    ['ItemKNN', 'BPR', 'NeuMF:objective=NBPO']
    >>> [model.name for model in chosen_models({"few items": "ItemKNN:neighbors=5", "ItemKNN": "ItemKNN"})]
    ['few items', 'ItemKNN']
    """
    if models is None:
        return [variant(name) for name in usual_models()]
    asked: Any = models if isinstance(models, Sequence | Mapping) and not isinstance(models, str) else [models]
    if not asked:
        raise ParameterError(
            f"models is {models!r}; give one or more of {', '.join(REGISTRY)}, classes of your own, or None for "
            "all models except networks"
        )
    if isinstance(asked, Mapping):
        return [_named(name, model) for name, model in asked.items()]
    different: dict[str, Variant] = {}
    for model in asked:
        resolved = variant(model)
        different.setdefault(_identity(resolved), resolved)
    return _with_unique_names(list(different.values()))


def _named(name: object, model: Model) -> Variant:
    if not isinstance(name, str) or not name.strip():
        raise ParameterError(f"the name of a model is {name!r}; expected a text: models={{'my name': 'BPR'}}")
    return replace(variant(model), name=name)


def _identity(model: Variant) -> str:
    parameters = {name: identity(value) for name, value in model.parameters.items()}
    return f"{identity(model.model_class)} {sorted(parameters.items())}"


def _with_unique_names(models: list[Variant]) -> list[Variant]:
    """Name classes of one name by their modules, and by a number where that is the same, too."""
    names = [model.name for model in models]
    named: dict[str, Variant] = {}
    for model in models:
        name = model.name
        if names.count(name) > 1 and not model.model_class.__module__.startswith("truelike."):
            name = reference(model.model_class).replace(":", ".") + name[len(model.model_class.__name__) :]
        number, unique = 1, name
        while unique in named:
            number += 1
            unique = f"{name} ({number})"
        named[unique] = replace(model, name=unique)
    return list(named.values())
