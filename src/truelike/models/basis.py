"""What probabilities of likes rest on: when a number of a model is one, and in a sentence for people, why."""

from __future__ import annotations

ALONE = "interactions"
ASSUMED = "assumed: "
_SENTENCES = {
    "impressions": "The probabilities rest on the impressions of the training data: it is known what was shown to "
    "whom, and what of it was taken.",
    "propensities": "The probabilities rest on the propensities of the training data: it is known how likely each item "
    "was shown to each user.",
    ALONE: "These rest on interactions alone, from which like and exposure cannot be told apart: they are a ranking by "
    "the model, not probabilities.",
}
_ASSUMPTIONS = {
    "user activity and item visibility": "that an item is shown the more often the more active the user and the more "
    "visible the item is",
    "everything was shown": "that everything was shown to everyone, so that what was not taken is disliked",
}


def is_identified(flips_from: str) -> bool:
    """Return whether a posterior of hidden likes is a probability, given what the flips rest on.

    >>> is_identified("impressions"), is_identified("assumed: popularity^0.5"), is_identified("interactions")
    (True, True, False)
    """
    return flips_from != ALONE


def sentence(flips_from: str, calibrated_on: int = 0) -> str:
    """Return in a sentence what the flips of a model rest on, and on how many impressions it was calibrated.

    >>> sentence("assumed: popularity^0.5")[:80]
    'The probabilities rest on an assumption about what was shown: that p(shown) foll'
    """
    if flips_from.startswith(ASSUMED):
        found = (
            f"The probabilities rest on an assumption about what was shown: {_assumption(flips_from)}. They are right "
            "as far as it is."
        )
    else:
        found = _SENTENCES[flips_from]
    return f"{found} They are calibrated on {calibrated_on:,} held-out impressions." if calibrated_on else found


def _assumption(flips_from: str) -> str:
    name = flips_from.removeprefix(ASSUMED)
    kind, _, power = name.partition("^")
    if kind == "popularity" and power:
        return f"that p(shown) follows the popularity of an item to the power {power}"
    return _ASSUMPTIONS.get(name, name)
