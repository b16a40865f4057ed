"""What a model knows of exposure before it is trained: from impressions, or by an estimate from the interactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from truelike import objectives
from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.errors import ParameterWarning, warn
from truelike.models import basis, objective_names
from truelike.training.blocks.shown import ShownBlocks, shown_blocks
from truelike.training.exposure import names as exposures
from truelike.training.exposure.rates import ExposureRates
from truelike.training.impressions import check_held_out, shown_pairs, warn_of_propensities
from truelike.training.options import FitOptions
from truelike.training.shown_pairs import ShownPairs

Known = ShownPairs | ShownBlocks | ExposureRates
LEAST_WEIGHTED = 0.1  # the least propensity that an interaction is divided by: none counts more than ten times


def known_exposure(model: Any, train: Dataset | Blocks, options: FitOptions) -> Known | None:
    """Return what was shown, or how likely it was shown; None if nothing is known, or it is learned.

    `model` has the parameters objective, exposure and miss_rate.
    """
    kind = objective_names.kind_of(model.objective)
    if options.impressions is not None:
        return _shown(model, kind, train, options)
    if not (kind.uses_flips or kind.uses_exposure):
        return None
    exposure = exposures.parse(exposure_name(model))
    if exposure.is_learned:
        return None
    found = exposure.estimate(train)
    return found.clipped(LEAST_WEIGHTED) if kind.uses_exposure else found


def exposure_name(model: Any) -> Any:
    """Return the exposure of a model, or the usual one of its objective."""
    if model.exposure is not None:
        return model.exposure
    return "popularity^0.5" if objective_names.kind_of(model.objective).uses_exposure else "learned"


def _shown(
    model: Any, kind: type[objectives.Objective], train: Dataset | Blocks, options: FitOptions
) -> ShownPairs | ShownBlocks:
    check_held_out(options)
    if model.exposure is not None:
        warn(
            f"exposure is {model.exposure!r}, which is not used: the impressions say what was shown",
            ParameterWarning,
        )
    if isinstance(train, Blocks):
        return shown_blocks(options.impressions, train, model.miss_rate)
    pairs = shown_pairs(options.impressions, train, model.miss_rate)
    if not (kind.uses_flips or (kind.uses_exposure and issubclass(kind, objectives.Pointwise))):
        warn_of_propensities(pairs, model.name)
    if kind.uses_exposure:  # the largest flip logit is that of the least propensity
        most = float(np.log(1 / LEAST_WEIGHTED - 1))
        pairs = replace(pairs, logits=np.minimum(pairs.logits, np.float32(most)), logit=min(pairs.logit, most))
    return pairs


def basis_of(known: Known | None) -> str:
    """Return what the flips of a model rest on, from what is known of exposure."""
    return basis.ALONE if known is None else known.basis


def known_attributes(known: Known | None) -> dict[str, Any]:
    """Return what a model learns of exposure, by the names of its attributes; probabilities are not calibrated yet."""
    miss_rate = known.miss_rate if isinstance(known, (ShownPairs, ShownBlocks)) else None
    return {"known_flips_": known, "calibration_": None, "miss_rate_": miss_rate}
