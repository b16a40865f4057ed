"""Messages on stderr: lines of the logger "truelike", warnings and errors, one line each."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from truelike.core.progress import logger
from truelike.errors import DataWarning, ParameterWarning, TrainingWarning

SHOWN = (DataWarning, ParameterWarning, TrainingWarning)
# arguments of functions that are options of the command line under the same name
_SAME_NAME = (
    "user", "item", "rating", "time", "weight", "min_rating", "on_bad_rows", "format", "separator", "encoding",
    "titles", "dates", "on_unknown", "validation", "checkpoint", "memory", "scratch", "min_user", "min_item",
)  # fmt: skip
_ARGUMENT = re.compile(rf"\b({'|'.join(_SAME_NAME)})=(?:\"([^\"]*)\"|'([^']*)'|(\.\.\.)|([\w-]+))")
_READ = re.compile(r"\b(?:tl\.)?read\(\.\.\., ([^()]*)\)")
_CALLS = {
    "header=False": "--no-header",
    "k_core(data, user=5, item=5)": "--k-core 5",
    "tl.splits.by_user(data)": "truelike data split",
    "splits.by_user": "--by user",
    "Where the method has it, pass on_unknown": "Use on_unknown",
}


def say(text: str) -> None:
    """Print a line for the user, unless --quiet was given."""
    logger.info(text)


def warn(text: str) -> None:
    """Print a warning, also with --quiet."""
    logger.warning(text)


def fail(error: BaseException) -> None:
    """Print an error as one line; with --verbose its traceback, too."""
    logger.debug("traceback of the error:", exc_info=error)
    logger.error(as_options(str(error)))


@contextmanager
def messages() -> Iterator[None]:
    """Send log lines and warnings to stderr for the time of a command."""
    handler = _Handler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: object) -> None:
        text = as_options(str(message))
        if text not in shown:
            shown.add(text)
            logger.log(logging.WARNING if issubclass(category, SHOWN) else logging.DEBUG, text)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = show  # type: ignore[assignment]
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def as_options(message: str) -> str:
    """A message of the library with the options of the command line in place of arguments.

    >>> as_options('Fix them, or pass on_bad_rows="drop" to read the others.')
    'Fix them, or pass --on-bad-rows drop to read the others.'
    >>> as_options("Name their column with tl.read(..., time=...), or split another way.")
    'Name their column with --time, or split another way.'
    >>> as_options('line 2 is not UTF-8 (pass the encoding of the file, e.g. encoding="latin-1")')
    'line 2 is not UTF-8 (pass the encoding of the file, e.g. --encoding latin-1)'
    """
    for call, option in _CALLS.items():
        message = message.replace(call, option)
    return _ARGUMENT.sub(_as_option, _READ.sub(r"\1", message))


def _as_option(found: re.Match[str]) -> str:
    name, *values = found.groups()
    value = next(each for each in values if each is not None)
    flag = f"--{name.replace('_', '-')}"
    return flag if value == "..." else f"{flag} {value}"


class _Handler(logging.Handler):
    """Writes to `sys.stderr` as it is at the time: a progress bar replaces it while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is None:  # closed by the caller
            return
        prefix = {logging.WARNING: "warning: ", logging.ERROR: "error: "}.get(record.levelno, "")
        with_time = "%(asctime)s " if logger.level <= logging.DEBUG else ""
        line = logging.Formatter(f"{with_time}{prefix}%(message)s", "%H:%M:%S").format(record)
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
