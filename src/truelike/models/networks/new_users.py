"""Scores for new users, from their histories, by a trained network.

Which way is taken depends on what the network has, in this order:

1. `new_user_vectors`: the network computes the vectors itself.
2. `user_embedding_names`: embeddings are trained on the history as a user's are, with all else fixed (`by_training`).
3. `vectors`: the vector at which the expected step of training is zero, if only the users' vectors were trained
   (`models.fold_in`).
4. Otherwise: the scores of the users with the most similar histories (`by_similar_users`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.ids import Codes
from truelike.engines.torch.backend import gradients_enabled, nn, torch
from truelike.engines.torch.engine import sampled_steps
from truelike.engines.torch.networks import scores
from truelike.models.networks.outputs import check_finite, score_all_items, to_array
from truelike.models.scorer import Floats
from truelike.objectives import Objective

NEIGHBORS = 50  # similar users whose scores are averaged
STEPS = 60  # of Adam
LEARNING_RATE = 0.1  # of the first step; it decreases linearly to zero


def by_network(network: Any, histories: Any) -> Floats:
    """Return the vectors of new users, as the network computes them."""
    with torch.no_grad():
        vectors = to_array(network.new_user_vectors(histories))
    return check_finite(network, "new_user_vectors(histories)", vectors)


@gradients_enabled()
def by_training(
    network: Any,
    history: Codes,
    drawn: NDArray[np.integer],
    objective: type[Objective],
    flips: Floats,
    *,
    weight: float,
    regularization: float,
) -> Floats:
    """Return the scores of all items for a new user, whose embeddings are trained on a history.

    Parameters
    ----------
    network
        A network with `user_embedding_names`.
    history
        The user's positives.
    drawn
        The negatives of each step, a row for each positive.
    objective
        A pointwise or pairwise objective.
    flips
        The flip logit g of each item.
    weight, regularization
        The factor of a positive's step, and the lambda of the embeddings.
    """
    fixed = fixed_copy(network)
    tables = [fixed.get_submodule(name) for name in network.user_embedding_names]
    for table in tables:
        table.weight = nn.Parameter(table.weight.mean(dim=0, keepdim=True))  # start from the average user
    optimizer = torch.optim.Adam([table.weight for table in tables], weight_decay=regularization)
    where = tables[0].weight.device
    g, users = torch.from_numpy(flips).to(where), torch.zeros(len(history), dtype=torch.int64, device=where)
    for step, negatives in enumerate(drawn):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - step / len(drawn))
        items = torch.from_numpy(np.column_stack([history, negatives]).astype(np.int64)).to(where)
        r = scores("preference", fixed, users, items)
        steps, _ = sampled_steps(objective, r.detach(), g[items], weight)
        optimizer.zero_grad()
        torch.autograd.backward(r, -steps)
        optimizer.step()
    return score_all_items(fixed, np.zeros(1, dtype=np.int32), len(flips)).reshape(-1)


def fixed_copy(network: Any) -> Any:
    """Return a copy of a network that shares its memory and whose parameters are not trained."""
    shared: dict[int, Any] = {id(buffer): buffer for buffer in network.buffers()}
    for parameter in network.parameters():
        shared[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    return copy.deepcopy(network, shared)


def by_similar_users(score_block: Callable[[Codes], Floats], observed: Any, histories: Any) -> Floats:
    """Return the mean scores of the users with the most similar histories, weighted by similarity.

    The similarity is the cosine of the two sets of items. This works for every network.
    """
    of_users = sparse.csr_array(
        (np.ones(observed.nnz, np.float32), observed.indices, observed.indptr), shape=observed.shape
    )
    common = (histories != 0).astype(np.float32) @ of_users.T
    similarity = common.toarray() / np.sqrt(np.maximum(np.diff(observed.indptr), 1))
    scores = np.empty((histories.shape[0], observed.shape[1]), dtype=np.float32)
    for row, similar in enumerate(similarity):
        users = np.argsort(-similar, kind="stable")[:NEIGHBORS].astype(np.int32)
        if not similar.any():  # no user has an item in common: take users from all over the dataset
            users = np.unique(np.linspace(0, len(similar) - 1, NEIGHBORS).astype(np.int32))
        weights = similar[users] if similar.any() else np.ones(len(users))
        users, weights = users[weights > 0], weights[weights > 0]
        scores[row] = (weights / weights.sum()) @ score_block(users)
    return scores
