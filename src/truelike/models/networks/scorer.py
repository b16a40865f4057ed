"""What models of networks answer in row numbers.

Scores are those of vectors if the score is a dot product, otherwise they are computed user by user. How a new user is
scored depends on what the network has, in this order:

1. `new_user_vectors`: the network computes the vectors itself.
2. `user_embedding_names`: embeddings are trained on the history as a user's are, with all else fixed.
3. `vectors`: the vector at which the expected step of training is zero, if only the users' vectors were trained
   (`models.fold_in`).
4. Otherwise: the mean scores of the users with the most similar histories.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core import randomness
from truelike.data.dataset import Dataset
from truelike.data.ids import Codes
from truelike.engines.lists.correction import Correction
from truelike.engines.score_functions import Dot
from truelike.engines.torch import backend
from truelike.engines.torch.backend import Module, Tensor, nn, torch
from truelike.engines.torch.networks import Networks, scores
from truelike.engines.torch.steps import Steps, steps_of
from truelike.errors import DivergedError
from truelike.models.dot_product import unit_rows
from truelike.models.fold_in import FoldIn, SampledFoldIn, rows_of
from truelike.models.list_fold_in import ListFoldIn
from truelike.models.scorer import DotProduct, Floats, Scorer
from truelike.objectives import Listwise, Objective
from truelike.ranking.factor_ranker import factor_score_block

ITEMS_AT_ONCE = 16_384  # of one user, which bounds the memory of a network's layers
PAIRS_AT_ONCE = 1 << 18  # per call of a network's score_grid
AVERAGED_USERS = 200  # users whose mean scores are those of the average user
PROFILE_MEMORY = 64 * 2**20  # bytes of the scores by which items are compared
NEIGHBORS = 50  # similar users whose scores are averaged
STEPS = 60  # of Adam, for the embeddings of a new user
LEARNING_RATE = 0.1  # of the first step; it decreases linearly to zero

T = TypeVar("T")


class Outputs:
    """The scores of one of the networks, r or g. Results that can be reused are kept until the networks change."""

    def __init__(self, networks: Networks, network: Module, train: Dataset) -> None:
        self.network = network
        self._networks, self._train = networks, train
        self._version, self._cache = -1, dict[str, Any]()

    def _cached(self, name: str, compute: Callable[[], T]) -> T:
        if self._version != self._networks.version:
            self._cache, self._version = {}, self._networks.version
        if name not in self._cache:
            self._cache[name] = compute()
        found: T = self._cache[name]
        return found

    @property
    def vectors(self) -> DotProduct | None:
        """U, V and b of a network whose score is a dot product; None for another network."""
        return self._cached("vectors", self._vectors) if hasattr(self.network, "vectors") else None

    def _vectors(self) -> DotProduct:
        with torch.no_grad():
            U, V, b = self.network.vectors()
        U, V = (self._array("vectors()", table) for table in (U, V))
        return DotProduct(U, V, None if b is None else self._array("vectors()", b))

    def dense_logits(self, users: Codes) -> Floats:
        """The scores of all items for some users: a new array (len(users), n_items)."""
        with backend.using_threads(1):  # users are spread over threads already
            found = self.vectors
            return (
                score_all_items(self.network, users, self._train.n_items) if found is None else found.scores(users)
            )

    def average_logits(self) -> Floats:
        """The scores of all items for the average user."""
        return self._cached(
            "average", lambda: np.asarray(self.dense_logits(self._spread_users(AVERAGED_USERS)).mean(axis=0))
        )

    def new_user_vectors(self, histories: sparse.csr_array) -> Floats:
        """The vectors of new users, as the network computes them."""
        with torch.no_grad():
            return self._array("new_user_vectors(histories)", self.network.new_user_vectors(histories))

    def unit_items(self) -> Floats:
        """A row of length 1 for each item, such that similar items have similar rows."""
        return self._cached("unit items", lambda: unit_rows(self._item_profiles()))

    def _item_profiles(self) -> Floats:
        if hasattr(self.network, "item_vectors"):
            with torch.no_grad():
                return self._array("item_vectors()", self.network.item_vectors())
        found = self.vectors
        if found is not None:
            return found.items
        # the network has only forward: items are similar if the same users give them similar scores
        n = max(2, min(1_000, PROFILE_MEMORY // (4 * self._train.n_items)))
        profiles = self.dense_logits(self._spread_users(n))
        return np.ascontiguousarray((profiles - profiles.mean(axis=1, keepdims=True)).T)

    def _spread_users(self, n: int) -> Codes:
        """At most n users with interactions, from all over the dataset."""
        active = np.flatnonzero(self._train.interactions_per_user()).astype(np.int32)
        return active[np.unique(np.linspace(0, len(active) - 1, min(len(active), n)).astype(np.int32))]

    def _array(self, what: str, tensor: Tensor) -> Floats:
        values = np.array(tensor.detach().cpu().float().numpy(), dtype=np.float32, order="C")
        return _checked(self.network, what, values)


def _checked(network: Module, what: str, values: Floats) -> Floats:
    """The values; raise an error if one of them is not finite, because NaN cannot be ranked."""
    if not np.isfinite(values.sum(dtype=np.float64)):
        wrong = tuple(int(n) for n in np.argwhere(~np.isfinite(values))[0])
        raise DivergedError(
            f"the network {type(network).__name__} returned {values[wrong]} in {what}, at row numbers {wrong}. "
            "Try a smaller learning_rate, or check the network for divisions by zero."
        )
    return values


def score_all_items(network: Module, users: Codes, n_items: int) -> Floats:
    """Return the scores of all items for some users.

    `forward` is called for one user at a time, so that a score does not depend on the other users: in products of
    larger matrices its last bits would. A network's `score_grid` is called for up to PAIRS_AT_ONCE pairs.
    """
    where = next(network.parameters()).device
    found = np.empty((len(users), n_items), dtype=np.float32)
    with torch.no_grad():
        for start in range(0, n_items, ITEMS_AT_ONCE):
            items = torch.arange(start, min(n_items, start + ITEMS_AT_ONCE), device=where)
            block = found[:, start : start + ITEMS_AT_ONCE]
            if hasattr(network, "score_grid"):
                size = max(1, PAIRS_AT_ONCE // len(items))
                for first in range(0, len(users), size):
                    asked = torch.from_numpy(users[first : first + size].astype(np.int64)).to(where)
                    block[first : first + size] = network.score_grid(asked, items).float().cpu().numpy()
                continue
            for row, user in enumerate(users):
                block[row] = network(torch.full_like(items, int(user)), items).float().cpu().numpy()
    return _checked(network, "the scores of (users, items)", found)


def fixed_copy(network: Module) -> Module:
    """Return a copy of a network that shares its memory and whose parameters are not trained."""
    shared: dict[int, Tensor] = {id(buffer): buffer for buffer in network.buffers()}
    for parameter in network.parameters():
        shared[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    return copy.deepcopy(network, shared)


@dataclass(frozen=True)
class Settings:
    """The settings of training that scores of new users follow from: see `SampledFoldIn` and `ListFoldIn`.

    Objective and sampler are asked for when a new user is: a file does not hold those of the user's own.
    """

    objective: Callable[[], type[Objective]]
    probabilities: Callable[[Codes], NDArray[np.float64]]
    n_negatives: int
    l2: float
    seed: int
    corrected: bool = True  # of listwise objectives

    def steps(self, history: Codes) -> Steps:
        """The steps of a new user."""
        correction = (
            Correction.of_history(self.probabilities(history), self.n_negatives) if self.corrected else None
        )
        return steps_of(self.objective(), float(self.n_negatives), correction)

    def fold_in(self, vectors: DotProduct, flips: Outputs | None) -> FoldIn:
        """How vectors of new users are found."""
        objective = self.objective()
        if issubclass(objective, Listwise):
            return ListFoldIn(
                vectors.items, vectors.bias, objective, Dot(), self.probabilities, n_negatives=self.n_negatives,
                corrected=self.corrected, l2=self.l2, seed=self.seed,
            )  # fmt: skip
        return SampledFoldIn(
            vectors.items, vectors.bias, objective, flips, self.probabilities, self.n_negatives,
            float(self.n_negatives), self.l2,
        )  # fmt: skip


@final
class NetworkScorer(Scorer):
    """Scores of trained networks."""

    def __init__(self, train: Dataset, networks: Networks, settings: Settings) -> None:
        super().__init__(train)
        self._data, self._settings = train, settings
        self._network, self._outputs = networks.preference, Outputs(networks, networks.preference, train)
        self.flips = None if networks.flips is None else Outputs(networks, networks.flips, train)

    @property
    def vectors(self) -> DotProduct | None:
        """The vectors of the network, if it has any."""
        return self._outputs.vectors

    def score_users(self, users: Codes) -> Floats:
        """By vectors, or user by user."""
        return self._outputs.dense_logits(users)

    @property
    def similarity_vectors(self) -> Floats:
        """Rows of length 1, which a network has or which follow from its scores."""
        return self._outputs.unit_items()

    def similarities(self, items: Codes) -> Floats:
        """The cosine of the rows of the items."""
        unit = self.similarity_vectors
        return factor_score_block(unit[items], unit)

    def history_vectors(self, histories: sparse.csr_array) -> Floats | None:
        """As the network computes them, or by fold-in, if its score is a dot product."""
        if hasattr(self._network, "new_user_vectors"):
            return self._outputs.new_user_vectors(histories)
        fold_in = self._fold_in()
        return None if fold_in is None else np.stack([fold_in.row(history) for history in rows_of(histories)])

    def score_histories(self, histories: sparse.csr_array) -> Floats:
        """By vectors, by training the user's embeddings, or by users with similar histories."""
        found, vectors = self.history_vectors(histories), self.vectors
        if found is not None and vectors is not None:
            return vectors.of_vectors(found)
        if hasattr(self._network, "user_embedding_names"):
            return np.stack([self._by_training(history) for history in rows_of(histories)])
        return self._by_similar_users(histories)

    def left_out_scores(self, history: sparse.csr_array, places: Codes, items: Codes) -> Floats:
        """By rows that are folded in together, if rows are folded in."""
        fold_in, vectors = self._fold_in(), self.vectors
        if fold_in is None or vectors is None or hasattr(self._network, "new_user_vectors"):
            return super().left_out_scores(history, places, items)
        return vectors.of_vectors(fold_in.rows_without(history.indices, places), items)

    def _fold_in(self) -> FoldIn | None:
        """How vectors of new users are found; None if the network has no vectors, or embeddings to be trained."""
        vectors = self.vectors
        if vectors is None or hasattr(self._network, "user_embedding_names"):
            return None
        return self._settings.fold_in(vectors, self.flips)

    def _by_training(self, history: Codes) -> Floats:
        """The scores of all items for a new user, whose embeddings are trained on a history."""
        with backend.using_threads(1), backend.gradients_enabled():
            fixed, how = fixed_copy(self._network), self._settings
            tables = [fixed.get_submodule(name) for name in self._network.user_embedding_names]
            for table in tables:
                table.weight = nn.Parameter(table.weight.mean(dim=0, keepdim=True))  # start from the average user
            where = tables[0].weight.device
            optimizer = torch.optim.Adam([table.weight for table in tables], weight_decay=how.l2)
            none = np.zeros(self.train.n_items, dtype=np.float32)
            g = torch.from_numpy(none if self.flips is None else self.flips.average_logits()).to(where)
            users = torch.zeros(len(history), dtype=torch.int64, device=where)
            trained_by = how.steps(history)
            for step, negatives in enumerate(self._drawn(history)):
                optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - step / STEPS)
                items = torch.from_numpy(np.column_stack([history, negatives]).astype(np.int64)).to(where)
                r = scores("preference", fixed, users, items)
                steps, _ = trained_by.steps(r.detach(), g[items], users, items)
                optimizer.zero_grad()
                torch.autograd.backward(r, -steps)
                optimizer.step()
            return score_all_items(fixed, np.zeros(1, dtype=np.int32), self.train.n_items).reshape(-1)

    def _drawn(self, history: Codes) -> NDArray[np.intp]:
        """The negatives of each step, a row for each interaction."""
        how = self._settings
        edges = np.cumsum(how.probabilities(history))
        # a user who interacted with every item has no negatives
        size = (STEPS, len(history), how.n_negatives if edges[-1] else 0)
        chance = randomness.uniform(randomness.key(how.seed, "strangers"), np.arange(math.prod(size)))
        drawn = np.searchsorted(edges, chance * edges[-1], side="right").clip(max=len(edges) - 1)
        return np.asarray(drawn.reshape(size))

    def _by_similar_users(self, histories: sparse.csr_array) -> Floats:
        """The mean scores of the users with the most similar sets of items, weighted by their cosine."""
        entries = self._data.csr
        observed = sparse.csr_array(
            (np.ones(entries.nnz, np.float32), entries.indices, entries.indptr), shape=entries.shape
        )
        common = ((histories != 0).astype(np.float32) @ observed.T).toarray()
        similarity = common / np.sqrt(np.maximum(np.diff(observed.indptr), 1))
        found = np.empty(histories.shape, dtype=np.float32)
        for row, similar in enumerate(similarity):
            users = np.argsort(-similar, kind="stable")[:NEIGHBORS].astype(np.int32)
            if not similar.any():  # no user has an item in common: take users from all over the dataset
                users = np.unique(np.linspace(0, len(similar) - 1, NEIGHBORS).astype(np.int32))
            weights = similar[users] if similar.any() else np.ones(len(users))
            users, weights = users[weights > 0], weights[weights > 0]
            found[row] = (weights / weights.sum()) @ self.score_users(users)
        return found
