"""The options of `fit`, as one value that a model gets beside the training data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from truelike.cluster import Cluster
from truelike.data.dataset import Dataset

if TYPE_CHECKING:
    from truelike.engines.engine import State

HeldOut = Dataset | float | None
Callback = Callable[["State"], None]


@dataclass(frozen=True)
class FitOptions:
    """What `Recommender.fit` was asked for, checked.

    Attributes
    ----------
    validation
        Held-out interactions with the ids of the training data, or the share of interactions to hold out.
    callbacks
        Functions called after each epoch.
    checkpoint, checkpoint_epochs, checkpoint_minutes
        Directory of the checkpoint, and how often it is written.
    resume
        Whether to continue from the checkpoint.
    progress
        Whether to show progress.
    cluster
        The cluster to train on; None: this process.
    """

    validation: HeldOut = None
    callbacks: Sequence[Callback] = ()
    checkpoint: Path | None = None
    checkpoint_epochs: int = 10
    checkpoint_minutes: float = 5.0
    resume: bool = False
    progress: bool = True
    cluster: Cluster | None = None

    def without(self, *names: str) -> FitOptions:
        """The same options with some of them at their defaults."""
        default = FitOptions()
        return replace(self, **{name: getattr(default, name) for name in names})
