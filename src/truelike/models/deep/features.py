"""Models that are told of users and items more than the votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from truelike.data.checks import check_log
from truelike.data.dataset import Dataset
from truelike.data.features import Features
from truelike.models.deep.networks import Inputs
from truelike.models.deep.recommender import NetworkModel
from truelike.models.recommender import HeldOut

SIDES = ("user", "item")


@dataclass(kw_only=True, eq=False, repr=False)
class FeatureModel(NetworkModel):
    """A model of networks whose `fit` takes features.

    Attributes
    ----------
    features_
        Of users and of items, where they were given: a dict with "user" and "item".
    """

    takes_features: ClassVar[tuple[str, ...]] = SIDES
    features_: ClassVar[dict[str, Features]] = {}  # a model that was fitted with some has its own

    def fit(
        self,
        train: Dataset,
        *,
        validation: HeldOut = None,
        user_features: Any = None,
        item_features: Any = None,
        **how: Any,
    ) -> Self:
        """Learn from a log, from the start, and return self.

        Parameters
        ----------
        train, validation, **how
            As for every model that is trained epoch by epoch: callbacks, checkpoint, resume, progress.
        user_features, item_features
            A table (pandas, polars, pyarrow, or the path of a CSV or Parquet file) with a column of ids, and
            others of words, lists of words, or numbers. Every user (item) of the log must have a row.
        """
        check_log(train, "fit")
        given = {"user": user_features, "item": item_features}
        self._check_taken(given)
        ids = {"user": train.users, "item": train.items}
        read = {
            side: Features.read(table, side).in_the_kind_of(ids[side])
            for side, table in given.items()
            if table is not None
        }
        before = self.features_
        self._know(read)
        try:
            return self._fit_with(train, validation, how)
        except BaseException:
            self._know(before)  # a fit that fails leaves what was learned before
            raise

    def _know(self, features: dict[str, Features]) -> None:
        self.__dict__["features_"] = features

    def _fit_with(self, train: Dataset, validation: HeldOut, how: dict[str, Any]) -> Self:
        self._know(self._of_log(train))
        return super().fit(train, validation=validation, **how)

    def _of_log(self, log: Dataset) -> dict[str, Features]:
        ids = {"user": log.users, "item": log.items}
        return {side: known.of(ids[side]) for side, known in self.features_.items()}

    def _inputs(self, log: Dataset, factors: int) -> Inputs:
        known = self._of_log(log)
        return Inputs(log, factors, known.get("user"), known.get("item"))

    def _also_deciding(self) -> dict[str, Any]:
        known = {f"{side}_features": features.digest() for side, features in self.features_.items()}
        return {**super()._also_deciding(), **known}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        known = {
            f"{side}_features.{name}": array
            for side, features in self.features_.items()
            for name, array in features.arrays().items()
        }
        return {**super()._arrays(), **known}

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        ids = {"user": self.train_.users, "item": self.train_.items}
        found = {}
        for side in SIDES:
            prefix = f"{side}_features."
            parts = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
            if parts:
                found[side] = Features.restored(parts, ids[side])
        self._know(found)
        super()._restore(arrays)
