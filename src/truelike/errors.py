"""What can go wrong, by kind. Every message says what was found, what was expected and what to do."""

from __future__ import annotations


class TruelikeError(Exception):
    """The root of all errors that truelike raises on purpose."""


class DataError(TruelikeError, ValueError):
    """The rows, a file or a split cannot be used as they are."""


class DataWarning(UserWarning):
    """The rows could be used, but not all of them, or not as one might think."""


class TrainingWarning(UserWarning):
    """A model was trained, but it says next to nothing."""


class ParameterError(TruelikeError, ValueError):
    """A parameter is outside its allowed range."""


class TooLargeError(TruelikeError, MemoryError):
    """A model would need more memory than there is; nothing has been allocated yet."""


class UnknownMeasureError(ParameterError, KeyError):
    """A measure that an evaluation did not take."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class NotFittedError(TruelikeError, AttributeError):
    """The model has not been fitted yet: what it would have learned is not there."""


class UnknownIdError(TruelikeError, KeyError):
    """A user or an item that the model has never seen."""

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return str(self.args[0])


class StorageError(TruelikeError, OSError):
    """A model directory cannot be written or read."""


class FetchError(TruelikeError, OSError):
    """A public data set cannot be downloaded, or is not what it should be."""


class MissingExtraError(TruelikeError, ImportError):
    """A part of truelike needs a package that is not installed."""


def some(values: object, limit: int = 5) -> str:
    """The first few of many values, for a message.

    >>> some([1, 2, 3])
    '1, 2, 3'
    >>> some(range(10))
    '0, 1, 2, 3, 4 and 5 more'
    """
    shown = list(values)  # type: ignore[call-overload]
    head = ", ".join(_cut(str(value)) for value in shown[:limit])
    return head if len(shown) <= limit else f"{head} and {len(shown) - limit:,} more"


def _cut(text: str, longest: int = 80) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
