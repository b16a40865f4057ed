"""Models that the workers of `cluster_checks.py` import."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import truelike as tl


class Broken(tl.ItemPop):
    def _make_scorer(self) -> Any:
        raise ZeroDivisionError("the model is broken")


class Unlucky(tl.ItemPop):
    """The first process that fits it ends."""

    def _fit(self, train: Any, options: Any) -> Any:
        mark = Path(os.environ["TRUELIKE_TEST_PLACE"]) / "was-killed"
        if not mark.exists():
            mark.touch()
            os._exit(1)
        return super()._fit(train, options)


class Fatal(tl.ItemPop):
    """Every process that fits it ends."""

    def _fit(self, train: Any, options: Any) -> Any:
        os._exit(1)
