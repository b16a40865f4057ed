"""SampledListMF: matrix factorization by listwise objectives on sampled negatives, with dot products or cosines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from truelike import negatives as sampling
from truelike.core.parameters import choice, flag, jobs, number, special, whole_number, with_inherited_parameters
from truelike.data.dataset import Dataset
from truelike.engines.engine import Engine
from truelike.engines.lists.correction import Correction, check_known
from truelike.engines.lists.engine import ListEngine, ListSettings
from truelike.engines.regularization import learning_rate
from truelike.engines.score_functions import Cosine, Dot, ScoreFunction
from truelike.engines.spectral import add_spectrum
from truelike.engines.tables import Tables
from truelike.evaluation.metrics import is_metric_at_k
from truelike.models import objective_names
from truelike.models.exact_mf import default_regularization
from truelike.models.factor_model import EpochMF, table_attributes
from truelike.models.fold_in import rows_of
from truelike.models.list_fold_in import ListFoldIn
from truelike.objectives import Listwise

INIT_SCALE = 0.1  # standard deviation of the initialization
RATES = {"dot": 0.065, "cosine": 0.27}  # factors of the default learning rate
FREQUENCY_POWER = 0.75  # the L2 of a row grows with its number of interactions to this power
L2 = 1.3  # default L2, as a multiple of that of the exact models


@with_inherited_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class SampledListMF(EpochMF):
    """Matrix factorization trained by a listwise objective on lists of a positive and its sampled negatives.

    The default is sampled softmax: the positive i of a list with the negatives j has the likelihood
    exp(r_ui) / (exp(r_ui) + sum_j exp(r_uj - ln(n q_uj))), where n negatives are drawn with probabilities q_uj. The
    correction ln(n q_uj) makes the sum over the sample an estimate of the sum over all unobserved items. The score is
    r_ui = U_u . V_i + b_i, or with `similarity="cosine"` r_ui = cos(U_u, V_i) / temperature.

    Parameters
    ----------
    objective : str or class, default 'softmax'
        "softmax", or a Listwise class.
    negatives : str or Negatives, default 'uniform'
        The sampling distribution: "uniform", "popularity", "popularity^0.5", "hard", "ahns".
    n_negatives : int, default 256
        Negatives in a list. The positives that a user has in a batch share them.
    corrected : bool, default True
        Whether ln(n q_uj) is subtracted from the scores of negatives that the objective sees. A sampler that chooses
        by scores, such as "hard" or "ahns", needs False.
    similarity : {'dot', 'cosine'}, default 'dot'
        The score of a user and an item: the dot product of their rows plus a bias of the item, or their cosine.
    temperature : float, default 0.2
        The temperature of cosines.
    factors : int, default 128
        Width of U and V.
    learning_rate : float or None, default None
        Learning rate of the first epoch. None: by the score function, the number of factors, and the interactions of a
        user and an item; see `learning_rate_`. The rate falls linearly to zero over `epochs`.
    regularization : float or None, default None
        L2 of the row of a user with the mean number of interactions; it grows with this number to the power of 3/4.
        None: in proportion to the noise that is expected in such data; see `regularization_`. For dot products alone:
        with cosines rows have a fixed length.
    batch_size : int, default 2000
        Positives in a batch.

    Attributes
    ----------
    user_factors_, item_factors_, item_bias_
        U, V and the biases. With cosines there is no bias, and each row has the length 1 / sqrt(temperature), so
        that the dot product is the score.
    regularization_, learning_rate_
        The values that were used.
    history_
        A frame with one row per epoch: epoch, seconds, loss and each validation metric.

    Examples
    --------
    >>> import numpy as np, truelike as tl
    >>> split = tl.splits.by_user(tl.synthetic.World(n_users=200, n_items=100).dataset(), seed=0)
    >>> model = tl.SampledListMF(similarity="cosine", temperature=0.2, factors=8, epochs=3).fit(split.train)
    >>> model.item_factors_.shape, bool(np.allclose(np.square(model.item_factors_).sum(axis=1), 1 / 0.2))
    ((95, 8), True)
    """

    epochs_decide_rates: ClassVar[bool] = True
    search_space: ClassVar[dict[str, Any]] = {
        "factors": [64, 128, 256],
        "learning_rate": (0.01, 0.6),
        "regularization": (0.5, 60.0),
        "n_negatives": (16, 1024),
        "temperature": (0.05, 0.5),
    }

    objective: Any = special("softmax", objective_names.LISTS, objective_names.is_listwise)
    negatives: Any = special("uniform", sampling.NAMES, sampling.is_distribution)
    n_negatives: int = whole_number(256, low=1)
    corrected: bool = flag(True)
    similarity: Literal["dot", "cosine"] = choice("dot", "cosine")
    temperature: float = number(0.2, low=1e-6)
    factors: int = whole_number(128, low=1)
    learning_rate: float | None = number(None, low=1e-9)
    regularization: float | None = number(None, low=0.0)
    batch_size: int = whole_number(2_000, low=1, high=2**31 - 1)
    epochs: int = whole_number(30, low=0)
    metric: str = special("ndcg@20", "a metric at a length, e.g. 'ndcg@20'", is_metric_at_k)
    patience: int | None = whole_number(10, low=1, optional=True)
    seed: int = whole_number(0, low=0)
    n_jobs: int | None = jobs()

    def _complete(self) -> None:
        if isinstance(self.objective, str):
            self.objective = objective_names.known_name(self.objective)
        if self.corrected and not str(self.negatives).startswith(sampling.OWN):
            check_known(sampling.parse(self.negatives))

    def _saved_parameters(self) -> dict[str, Any]:
        return {
            **self.get_params(),
            "objective": objective_names.saved_name(self.objective),
            "negatives": sampling.saved_name(self.negatives),
        }

    def _objective(self) -> type[Listwise]:
        return cast(type[Listwise], objective_names.objective(self.objective, 0.0))

    def _score_function(self) -> ScoreFunction:
        return Cosine(self.temperature) if self.similarity == "cosine" else Dot()

    def _derived(self, train: Dataset) -> dict[str, float]:
        return {"learning_rate_": self._learning_rate(train), "regularization_": self._strength(train)}

    def _learning_rate(self, train: Dataset) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        return RATES[self.similarity] * learning_rate(train, self.factors)

    def _strength(self, train: Dataset) -> float:
        if self.similarity == "cosine":
            return 0.0
        return L2 * default_regularization(train) if self.regularization is None else self.regularization

    def _advice(self) -> str:
        return f"at learning_rate={self.learning_rate} (None: by the data). Try a fifth of the learning_rate."

    def _initial(self, train: Dataset, *, spectral: bool = True) -> Tables:
        tables = Tables.zeros(train.n_users, train.n_items, self.factors, 0, biased=self.similarity == "dot")
        tables.initialise("spectral", INIT_SCALE, 0.0, self.seed)
        if spectral:
            add_spectrum(tables, train, self.seed, self.n_jobs)
        if tables.item_bias is not None:
            tables.item_bias[:] = np.log((train.popularity() + 1) / (train.n_users + 1))
        return tables

    def _engine(self, train: Dataset, tables: Tables) -> Engine:
        negatives = sampling.parse(self.negatives)
        settings = ListSettings(
            learning_rate=self._learning_rate(train),
            epochs=self.epochs,
            regularization=self._strength(train),
            frequency_power=FREQUENCY_POWER,
            n_negatives=self.n_negatives,
            batch_size=self.batch_size,
        )
        return ListEngine(
            train,
            tables,
            self._objective(),
            negatives,
            settings,
            score=self._score_function(),
            correction=Correction.of(train, negatives, self.n_negatives) if self.corrected else None,
            seed=self.seed,
            n_jobs=self.n_jobs,
        )

    def _expected_seconds(self, train: Dataset) -> float:
        batches = -(-train.n_interactions // self.batch_size)
        candidates = self.n_negatives * sampling.parse(self.negatives).draws
        of_lists = train.n_interactions * candidates * (6e-11 * self.factors + 1e-8)
        return self.epochs * (of_lists + 5e-9 * batches * train.n_items * self.factors)

    def _fold_in(self) -> ListFoldIn:
        train, negatives = self.train_, sampling.parse(self.negatives)
        return ListFoldIn(
            self._tables().item_factors,
            self._tables().item_bias,
            self._objective(),
            self._score_function(),
            partial(negatives.probabilities, train.popularity()),
            n_negatives=self.n_negatives,
            corrected=self.corrected,
            l2=self.regularization_,
            frequency_power=FREQUENCY_POWER,
            mean_interactions=float(train.interactions_per_user().mean()),
            seed=self.seed,
        )

    def _start_new_users(self, tables: Tables, train: Dataset, new: NDArray[np.integer]) -> None:
        """A user's row moves a few times in an epoch, so the rows of new users start at their fold-in."""
        fold_in = self.with_learned(train, {**table_attributes(tables), **self._derived(train)})._fold_in()
        for user, history in zip(new, rows_of(train.csr[new]), strict=True):
            tables.user_factors[user] = fold_in.row(history)
