"""ExposureMF: matrix factorization under a guess of what was shown, where there are no impressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from truelike import objectives
from truelike.core.parameters import choice, jobs, number, special, whole_number
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.engines.exact.engine import ExactEngine, ExactSettings
from truelike.engines.exact.fixed import FixedFlips
from truelike.engines.loop import Trainer, fit_epochs
from truelike.engines.options import FitOptions
from truelike.engines.regularization import learning_rate
from truelike.engines.spectral import add_spectrum
from truelike.engines.tables import Tables
from truelike.evaluation.metrics import is_metric_at_k
from truelike.exposure.rates import ExposureRates
from truelike.exposure.structured import structured
from truelike.models.exact_mf import INIT_SCALE, POINTWISE_RATE, AllItemsMF, default_regularization
from truelike.models.factor_model import TableFlips, learned_tables, restored_tables, table_attributes
from truelike.models.label_noise import ACTIVITY, INTERACTIONS, Flips

BATCH_SIZE = 128  # users
MOST_TAKEN = 0.95  # the largest share of those who saw an item that its bias starts at


@dataclass(kw_only=True, eq=False, repr=False)
class ExposureMF(AllItemsMF):
    """Equation 6 of the paper over all items, with exposure that is guessed from interactions alone. For research.

    What users like and what they were shown cannot be told apart by interactions. A guess helps in some worlds, and
    does harm in others: see "Exposure" in the documentation. Where impressions are known, use `ImpressionMF`.

    Parameters
    ----------
    exposure : {'structured', 'item'}, default 'structured'
        "structured": an item is shown the more often the more active the user and the more visible the item is; both
        are estimated before training, and `like_probability` is right as far as this is. "item": one exposure for each
        item, learned with the preferences (as in ExpoMF; Liang, Charlin, McInerney, Blei, WWW 2016).
    factors : int, default 64
        The paper's K.
    learning_rate : float or None, default None
        Learning rate of the first epoch, which falls linearly to zero. None: as in `ExactMF`.
    regularization : float or None, default None
        L2 of the row of a user with the mean number of interactions. None: as in `ExactMF`.
    epochs : int, default 20
        Maximum number of epochs.
    metric : str, default 'ndcg@20'
        Validation metric whose best epoch is kept.
    patience : int or None, default 10
        Stop after this many epochs without a better one; None: never.
    seed : int, default 0
        Seed. It alone decides the result.
    n_jobs : int or None, default -1
        Number of threads; -1: all cores. Never changes the result.

    Attributes
    ----------
    user_factors_, item_factors_, item_bias_
        U, V and, with structured exposure, the biases.
    rates_
        The structured exposure: `rates_.propensity(users, items)` is p(shown) of pairs of row numbers.
    regularization_
        The value that was used.
    history_
        A frame with one row per epoch: epoch, seconds, loss and each validation metric.

    Examples
    --------
    >>> import truelike as tl
    >>> world = tl.synthetic.World(n_users=200, n_items=100, exposure_skew=1.8)
    >>> model = tl.ExposureMF(factors=8, epochs=3).fit(world.dataset())
    >>> model.evidence
    'assumed: user activity and item visibility'
    """

    supports_partial_fit: ClassVar[bool] = False
    search_space: ClassVar[dict[str, Any]] = {
        "factors": [16, 64, 256],
        "learning_rate": (0.005, 0.2),
        "regularization": (0.3, 40.0),
    }

    exposure: Literal["structured", "item"] = choice("structured", "item")
    factors: int = whole_number(64, low=1)
    learning_rate: float | None = number(None, low=1e-9)
    regularization: float | None = number(None, low=0.0)
    epochs: int = whole_number(20, low=0)
    metric: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_metric_at_k)
    patience: int | None = whole_number(10, low=1, optional=True)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def _objective(self) -> type[objectives.Objective]:
        return objectives.NBPOo

    def _fit(self, train: Dataset, options: FitOptions) -> Mapping[str, Any]:
        derived = {
            "rates_": structured(train) if self.exposure == "structured" else None,
            "regularization_": self._strength(train),
        }
        result = fit_epochs(_Trainer(self, derived), train, options)
        return {**learned_tables(result, train), **derived}

    def _initial(self, train: Dataset, rates: ExposureRates | None) -> Tables:
        """The first tables. A flip of each item is a bias of the flips, whose rows are zero and do not move."""
        by_item = rates is None
        tables = Tables.zeros(
            train.n_users, train.n_items, self.factors, int(by_item), biased=not by_item, biased_flips=by_item
        )
        tables.initialise("spectral", INIT_SCALE, 0.0, self.seed)
        tables.user_flips[:], tables.item_flips[:] = 0.0, 0.0
        add_spectrum(tables, train, self.seed, self.n_jobs)
        if rates is not None and tables.item_bias is not None:
            tables.item_bias[:] = _first_biases(train, rates)
        return tables

    def _engine(self, train: Dataset, tables: Tables, rates: ExposureRates | None) -> ExactEngine:
        rate, strength = self.learning_rate, self._strength(train)
        settings = ExactSettings(
            learning_rate=POINTWISE_RATE * learning_rate(train, self.factors) if rate is None else rate,
            epochs=self.epochs,
            regularization=strength,
            flip_regularization=strength,
            frequency_power=self.frequency_power,
            unobserved_weight=self.unobserved_weight,
            batch_size=BATCH_SIZE,
            item_share=1.0,
        )
        flips = None if rates is None else FixedFlips(rates)
        return ExactEngine(
            train, tables, objectives.NBPOo, settings, seed=self.seed, n_jobs=self.n_jobs, flips=flips
        )

    def _strength(self, train: Dataset) -> float:
        return default_regularization(train) if self.regularization is None else self.regularization

    def _expected_seconds(self, train: Dataset) -> float:
        return self.epochs * train.n_users * train.n_items * (6 * self.factors / 8.5e10 + 2.5e-9)

    def _of_users(self, train: Dataset, users: Codes) -> Mapping[str, Any]:
        rates = None if self.rates_ is None else ExposureRates(self.rates_.user[users], self.rates_.item)
        return {**table_attributes(self._tables().of_users(users)), "rates_": rates}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        rates = {} if self.rates_ is None else self.rates_.arrays()
        return {**self._tables().arrays(), **rates}

    def _restore(self, arrays: dict[str, NDArray[Any]], train: Dataset) -> Mapping[str, Any]:
        rates = ExposureRates.restored(arrays, (train.n_users, train.n_items))
        derived = {"rates_": rates, "regularization_": self._strength(train)}
        return {**restored_tables(arrays, train, self.factors, int(rates is None)), **derived}

    # --- flips ----------------------------------------------------------------------------------

    @property
    def _has_flips(self) -> bool:
        return True

    @property
    def evidence(self) -> str:
        """What the flips are known from: an assumption, or for "item" interactions alone."""
        return ACTIVITY if self.exposure == "structured" else INTERACTIONS

    @property
    def _flips(self) -> Flips:
        return self.rates_ or TableFlips(self._tables())


@dataclass(frozen=True)
class _Trainer(Trainer[Tables]):
    model: ExposureMF
    derived: Mapping[str, Any]  # what is learned beside the tables

    def initial(self, train: Dataset) -> Tables:
        return self.model._initial(train, self.derived["rates_"])

    def engine(self, train: Dataset, trained: Tables) -> ExactEngine:
        return self.model._engine(train, trained, self.derived["rates_"])

    def ranker(self, train: Dataset, trained: Tables) -> ExposureMF:
        return self.model.with_learned(train, {**table_attributes(trained), **self.derived})

    def identity(self) -> Mapping[str, object]:
        return {"class": self.model.name, **self.model.get_params(), "schedule": self.model.epochs}

    def advice(self) -> str:
        return (
            f"at learning_rate={self.model.learning_rate} (None: by the data). Try a fifth of the learning_rate."
        )


def _first_biases(train: Dataset, rates: ExposureRates) -> NDArray[np.float64]:
    """The biases of items at which training starts: the logit of the share of those who saw them and took them.

    An item that nobody saw has no gradient, so each item counts as taken once more, at the mean rate.
    """
    taken, exposed = train.popularity(), rates.exposed_users()
    mean = min(MOST_TAKEN, taken.sum() / max(exposed.sum(), 1.0))
    rate = np.minimum(MOST_TAKEN, (taken + 1) / (exposed + 1 / mean))
    return np.asarray(np.log(rate / (1 - rate)))
