"""What probabilities of likes rest on: when a number of a model is one, and in a sentence for people, why."""

from __future__ import annotations

ALONE = "interactions"
ASSUMED = "assumed: "
_SENTENCES = {
    "impressions": "The probabilities rest on the impressions of the training data: it is known what was shown to "
    "whom, and what of it was taken.",
    "propensities": "The probabilities rest on the propensities of the training data: it is known how likely a like of "
    "each item would have been observed.",
    ALONE: "These rest on interactions alone, from which like and exposure cannot be told apart: they are a ranking by "
    "the model, not probabilities.",
}
_ASSUMPTIONS = {
    "user activity and item visibility": "that an item is shown the more often the more active the user and the more "
    "visible the item is",
    "everything was shown": "that everything was shown to everyone, so that what was not taken is disliked",
}


def sentence(flips_from: str, *, has_level: bool = True, calibrated_on: int = 0) -> str:
    """Return in a sentence for people what the probabilities of a model rest on.

    Parameters
    ----------
    flips_from
        Where the flips are from.
    has_level
        Whether sigma(r) is p(like) if the flips are right. Otherwise the model was trained on a sample of the
        negatives, or with weights, and only ranks.
    calibrated_on
        The number of impressions that it was calibrated on.

    Examples
    --------
    >>> sentence("assumed: popularity^0.5")[:80]
    'The probabilities rest on an assumption about what was shown: that p(shown) foll'
    >>> sentence("interactions")[-51:]
    'they are a ranking by the model, not probabilities.'
    """
    if flips_from == ALONE:
        return _SENTENCES[ALONE]
    if flips_from.startswith(ASSUMED):
        found = f"rest on an assumption about what was shown: {_assumption(flips_from)}."
        found = f"The probabilities {found} They are right as far as it is." if has_level else f"These {found}"
    else:
        found = _SENTENCES[flips_from]
    if not has_level:
        return (
            f"{found} They are a ranking by the model, not probabilities, because it was trained on a sample of the "
            "negatives, or with weights."
        )
    return f"{found} They are calibrated on {calibrated_on:,} held-out impressions." if calibrated_on else found


def _assumption(flips_from: str) -> str:
    name = flips_from.removeprefix(ASSUMED)
    kind, _, power = name.partition("^")
    if kind == "popularity" and power:
        return f"that p(shown) follows the popularity of an item to the power {power}"
    return _ASSUMPTIONS.get(name, name)
