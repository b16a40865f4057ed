"""Langevin dynamics on blocks: users are moved by the workers that have them, items here.

A worker returns the sums over its users that items need. They are exact, so the samples have the same bits as those of
`LangevinSampler`, however users are divided into blocks and blocks among workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from truelike.cluster import Cluster
from truelike.data.blocks.blocks import Blocks
from truelike.engines.blocks.workers import BlockEngine, Floats, Share, allocator
from truelike.engines.langevin.engine import COPIES, Chain, Part, Prior, Sample, Shape, stretches
from truelike.engines.tables import Tables
from truelike.exposure.shown_blocks import ShownBlocks, ShownSource

Doubles = NDArray[np.float64]


@dataclass
class LangevinWorker:
    """Moves the users of some blocks."""

    share: Share
    shape: Shape
    source: ShownSource | ShownBlocks
    _parts: dict[int, Part] = field(default_factory=dict)

    @cached_property
    def shown(self) -> ShownBlocks:
        """The shown pairs whose labels are learned from."""
        return self.source.of(self.share.blocks)

    @cached_property
    def _everything(self) -> ShownBlocks:
        """All pairs that were shown."""
        source = self.shown.source
        held_out = self.shape.joint and source.held_out is not None
        return replace(source, held_out=None).of(self.share.blocks) if held_out else self.shown

    def _part(self, number: int) -> Part:
        if number not in self._parts:
            pairs, shown = self.shown.block(number), self._everything.block(number)
            first, rows = int(self.share.blocks.bounds[number]), self.share.rows_of(number)
            self._parts[number] = Part(self.shape, rows, pairs, shown, first, self.share.n_jobs)
        return self._parts[number]

    def shown_counts(self, number: int) -> Doubles:
        """What is counted of the shown pairs of a block."""
        return self.shown.count(number)

    def logs(self, number: int) -> Doubles:
        """The sums of `Part.logs` of a block."""
        return self._part(number).logs()

    def advance(
        self, number: int, items: Floats, precision: Floats, common: tuple[float, ...], step: int
    ) -> Doubles:
        """Move the users of a block in a step."""
        return self._part(number).advance(items, precision, common, step)


class BlockSampler(BlockEngine[LangevinWorker]):
    """Samples rows of users and items given the shown pairs of blocks. An epoch is the steps up to a sample.

    `shown` are the pairs whose labels are learned from, and `link` is the first value of the weight of tastes in the
    exposure, if the shape has one.
    """

    def __init__(
        self,
        train: Blocks,
        shown: ShownBlocks,
        shape: Shape,
        *,
        cluster: Cluster | None,
        n_jobs: int | None,
        link: float = 0.0,
    ) -> None:
        columns = COPIES * shape.width
        users = allocator(train)(train.n_users, columns)
        items = np.zeros((train.n_items, columns), dtype=np.float32)
        shape.start(users, "users", 0.0)
        make = partial(LangevinWorker, shape=shape, source=shown if cluster is None else shown.source)
        super().__init__(train, Tables(users, items, columns, 0), make, cluster=cluster, n_jobs=n_jobs)
        self.shown, self.shape, self.link = shown, shape, link
        self.done: Callable[[int], None] | None = None
        self.stretches: list[tuple[int, int]] = []
        self._priors: dict[int, Prior] = {}

    def _first(self) -> Chain:
        """The chain before the first step."""
        if not self.shown.is_counted:
            self.shown.take_counts(self.workers.sum(LangevinWorker.shown_counts))
        return Chain(
            self.shape,
            self.tables.items,
            self.train.n_users,
            self.shown.pairs_of_item(),
            self.shown.taken_share(),
            advance=lambda *given: self.workers.sum(LangevinWorker.advance, *given),
            logs=self.workers.sum(LangevinWorker.logs),
            link=self.link,
        )

    def run_epoch(self, number: int, progress: Callable[[int], None] | None) -> None:
        """Do the steps up to a sample; if a worker was lost, from what was common before them."""
        if number == 0:
            self.chain = self._first()
        self.chain.prior = self._priors.setdefault(number, self.chain.prior)
        self.chain.run(*self.stretches[number], self.done)

    def loss(self) -> float:
        """No loss is computed."""
        return float("nan")

    def run(
        self, steps: int, burn_in: int, n_samples: int, done: Callable[[int], None] | None = None
    ) -> Iterator[Sample]:
        """Return samples at even distances after the burn-in; `done` is called with the number of each step."""
        self.stretches, self.done = stretches(steps, burn_in, n_samples, joint=self.shape.joint), done
        try:
            for number in range(len(self.stretches)):
                self.epoch(number)
                yield self.chain.sample(self.tables.users)
        finally:
            self.close()
