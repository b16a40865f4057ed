"""People never seen before: what a trained network says to a history.

By what is known of the network, in this order: its own way (`strangers`); where it names its `personal`
embeddings, rows that are trained as a user's are while all else stands still; where the score is a dot product,
the row of U at which training would rest, were U what is trained (`models.folding`); else the scores of the users
with the most alike histories.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.data.ids import Codes
from truelike.models.deep.backend import learning, nn, torch
from truelike.models.deep.engine import sampled_steps
from truelike.models.deep.networks import scores
from truelike.models.deep.scoring import Floats, finite, grid, to_array
from truelike.objectives import Objective

ALIKE = 50  # users who speak for a stranger
STEPS = 60  # of Adam, for a stranger's rows
RATE = 0.1  # of the first step; it falls to nothing in a straight line


def own_vectors(network: Any, histories: Any) -> Floats:
    """Rows of U for histories, by the network's own way."""
    with torch.no_grad():
        return finite(network, "strangers(histories)", to_array(network.strangers(histories)))


@learning()
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
    """The scores of all items for a stranger whose rows are trained by a history.

    Parameters
    ----------
    network
        With `personal`, the names of its embeddings that have a row for each user.
    history
        The items voted for.
    drawn
        The unvoted items of each step, a row for each vote.
    objective
        What is maximised.
    flips
        The flip logit g of each item.
    weight, regularization
        How often a positive's step counts, and the lambda of the rows.
    """
    still = standing_still(network)
    tables = [still.get_submodule(name) for name in network.personal]
    for table in tables:
        table.weight = nn.Parameter(table.weight.mean(dim=0, keepdim=True))  # from the average user on
    optimizer = torch.optim.Adam([table.weight for table in tables], weight_decay=regularization)
    where = tables[0].weight.device
    g, users = torch.from_numpy(flips).to(where), torch.zeros(len(history), dtype=torch.int64, device=where)
    for step, unvoted in enumerate(drawn):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / len(drawn))
        items = torch.from_numpy(np.column_stack([history, unvoted]).astype(np.int64)).to(where)
        r = scores("preference", still, users, items)
        steps, _ = sampled_steps(objective, r.detach(), g[items], weight)
        optimizer.zero_grad()
        torch.autograd.backward(r, -steps)
        optimizer.step()
    return grid(still, np.zeros(1, dtype=np.int32), len(flips)).reshape(-1)


def standing_still(network: Any) -> Any:
    """A network of the same numbers, in the same memory, of which none is trained."""
    shared: dict[int, Any] = {id(buffer): buffer for buffer in network.buffers()}
    for parameter in network.parameters():
        shared[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    return copy.deepcopy(network, shared)


def as_the_most_alike(score_block: Callable[[Codes], Floats], log: Any, histories: Any) -> Floats:
    """A stranger's scores are those of the users with the most alike histories, weighted by the likeness.

    This asks nothing of a network. The likeness is the cosine of the two lists of votes.
    """
    voted = sparse.csr_array((np.ones(log.nnz, np.float32), log.indices, log.indptr), shape=log.shape)
    common = (histories != 0).astype(np.float32) @ voted.T
    likeness = common.toarray() / np.sqrt(np.maximum(np.diff(log.indptr), 1))
    scores = np.empty((histories.shape[0], log.shape[1]), dtype=np.float32)
    for row, near in enumerate(likeness):
        users = np.argsort(-near, kind="stable")[:ALIKE].astype(np.int32)
        if not near.any():  # nobody: then some of all
            users = np.unique(np.linspace(0, len(near) - 1, ALIKE).astype(np.int32))
        weights = near[users] if near.any() else np.ones(len(users))
        users, weights = users[weights > 0], weights[weights > 0]
        scores[row] = (weights / weights.sum()) @ score_block(users)
    return scores
