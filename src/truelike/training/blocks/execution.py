"""Where training on blocks runs, and where its tables are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.training.blocks.workers import LocalWorkers, WorkerKind, Workers
from truelike.training.tables import aligned_zeros

if TYPE_CHECKING:
    from truelike.cluster import Cluster

Floats = NDArray[np.float32]


def allocator(train: Dataset | Blocks) -> Callable[[int, int], Floats]:
    """Where the users' table is: in memory, or for blocks that are not in memory, in a file."""
    return train.mapped_zeros if isinstance(train, Blocks) and not train.in_memory else aligned_zeros


def workers_for(
    kind: WorkerKind, blocks: Blocks, users: Floats, cluster: Cluster | None, n_jobs: int | None
) -> Workers:
    """The workers of a training: one in this process, or several on a cluster."""
    if cluster is None:
        return LocalWorkers(kind, blocks, users, n_jobs)
    from truelike.training.blocks.ray_workers import RayWorkers

    return RayWorkers(kind, blocks, users, cluster)
