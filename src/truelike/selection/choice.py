"""What an AutoRecommender chose and why; it is saved with the model."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl


class Choice(NamedTuple):
    """What an `AutoRecommender` chose.

    Attributes
    ----------
    model
        The model, as it is written in Python. Fitted on the same training data, without a validation part, it has the
        same bits.
    reason
        Why, in a sentence.
    outlook
        What a larger budget might bring.
    metric
        The metric of the trials.
    trial
        The trial that won. Its model may have other numbers than `model`, which follows all interactions.
    trials
        A row for each trial, in their order: the model, its metric on the held-out interactions (None if it failed)
        and the seconds of training (of a blend none: its models are trained already).
    """

    model: str
    reason: str
    outlook: str = ""
    metric: str = ""
    trial: str = ""
    trials: tuple[tuple[str, float | None, float], ...] = ()

    def table(self) -> pl.DataFrame:
        """A frame with a row for each trial, the best first."""
        names = ("trial", "model", self.metric or "metric", "seconds")
        rows = [(number, *row) for number, row in enumerate(self.trials, 1)]
        schema = dict(zip(names, (pl.Int64, pl.String, pl.Float64, pl.Float64), strict=True))
        return pl.DataFrame(rows, schema=schema, orient="row").sort(names[2], descending=True, nulls_last=True)

    @classmethod
    def from_saved(cls, about: Any) -> Choice:
        """The choice as it was saved; raises ValueError if it cannot be one."""
        words = {name: about[name] for name in ("model", "reason", "outlook", "metric", "trial")}
        trials = tuple((model, value, seconds) for model, value, seconds in about["trials"])
        numbers = [x for _, value, seconds in trials for x in (value, seconds) if x is not None]
        texts = [*words.values(), *(model for model, _, _ in trials)]
        if not all(isinstance(x, str) for x in texts) or not all(isinstance(x, int | float) for x in numbers):
            raise ValueError("the choice of the AutoRecommender is not words and numbers")
        return cls(**words, trials=trials)
