"""What probabilities of likes are known from: when a number of a model is one, and in a sentence for people, why."""

from __future__ import annotations

INTERACTIONS = "interactions"
ACTIVITY = "assumed: user activity and item visibility"
_SENTENCES = {
    "impressions": "The probabilities are known from the impressions of the training data: what was shown to whom, and "
    "what of it was taken.",
    "propensities": "The probabilities are known from the propensities of the training data: how likely a like of each "
    "item would have been observed.",
    INTERACTIONS: "These are known from interactions alone, from which like and exposure cannot be told apart: they "
    "are a ranking by the model, not probabilities.",
    ACTIVITY: "The probabilities follow from an assumption about what was shown: that an item is shown the more often "
    "the more active the user and the more visible the item is. They are right as far as it is.",
}


def is_identified(evidence: str) -> bool:
    """Return whether numbers of a model with this evidence are probabilities, and not only a ranking.

    >>> is_identified("impressions"), is_identified("interactions")
    (True, False)
    """
    return evidence != INTERACTIONS


def sentence(evidence: str, calibrated_on: int = 0) -> str:
    """Return in a sentence for people what the probabilities of a model are known from.

    Parameters
    ----------
    evidence
        "impressions", "propensities", "interactions" or "assumed: ...".
    calibrated_on
        The number of impressions that it was calibrated on.

    Examples
    --------
    >>> sentence("interactions")[-51:]
    'they are a ranking by the model, not probabilities.'
    """
    found = _SENTENCES[evidence]
    return f"{found} They are calibrated on {calibrated_on:,} held-out impressions." if calibrated_on else found
