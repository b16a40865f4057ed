"""Where training on blocks runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from truelike.data.blocks.blocks import Blocks
from truelike.engines.blocks.workers import LocalWorkers, WorkerKind, Workers

if TYPE_CHECKING:
    from truelike.cluster import Cluster

Floats = NDArray[np.float32]


def workers_for(
    kind: WorkerKind, blocks: Blocks, users: Floats, cluster: Cluster | None, n_jobs: int | None
) -> Workers:
    """The workers of a training: one in this process, or several on a cluster."""
    if cluster is None:
        return LocalWorkers(kind, blocks, users, n_jobs)
    from truelike.engines.blocks.ray_workers import RayWorkers

    return RayWorkers(kind, blocks, users, cluster)
