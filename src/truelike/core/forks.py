"""Find out whether this process was forked from one that had used truelike.

polars, PyTorch and others keep threads. A fork copies their locks, but not the threads, so in a forked process calls of
them wait forever. An error at once is better.
"""

from __future__ import annotations

import os

from truelike.errors import ForkError

_used = _broken = False


def _after_fork() -> None:
    global _broken
    _broken = _used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def check_not_forked() -> None:
    """Raise ForkError in a process that was forked from one in which this function had been called."""
    global _used
    if _broken:
        raise ForkError(
            "this process was forked from one that had used truelike. Libraries such as polars do not survive a fork: "
            'the call would wait forever. Start processes by "spawn" or "forkserver", e.g. '
            'multiprocessing.get_context("spawn"), or fork before truelike is used (gunicorn: without --preload, and '
            "load the model in the worker)."
        )
    _used = True
