"""Interactions that need not fit into memory: directories of blocks of users.

>>> import tempfile, truelike as tl
>>> data = tl.synthetic.World(n_users=200, n_items=100).dataset()
>>> with tempfile.TemporaryDirectory() as place:
...     blocks = tl.blocks.build(data, place + "/blocks", blocks=4, progress=False)
...     model = tl.IALS(factors=8, epochs=2).fit(blocks, progress=False)
...     print(len(blocks), model.user_factors_.shape == (data.n_users, 8))
4 True
"""

from __future__ import annotations

from pathlib import Path

from truelike.data.blocks.blocks import Block, Blocks
from truelike.data.blocks.build import build
from truelike.data.blocks.hold_out import hold_out

__all__ = ["Block", "Blocks", "build", "hold_out", "open"]


def open(  # noqa: A001 - as in tl.blocks.open
    directory: str | Path, *, in_memory: bool = False, scratch: str | Path | None = None
) -> Blocks:
    """Open a block directory.

    Parameters
    ----------
    directory
        The directory that `truelike blocks` or `tl.blocks.build` wrote.
    in_memory
        Read blocks into memory when they are first used, and keep them there. The tables of models are then in
        memory, too. The results are the same.
    scratch
        A directory for the users' tables of models that are trained on the blocks; None: the block directory. The
        files are removed when the model is. On a cluster of several machines, all of them must reach it.
    """
    return Blocks(directory, in_memory=in_memory, scratch=scratch)


def __dir__() -> list[str]:
    return sorted(__all__)
