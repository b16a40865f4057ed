"""Tests and doctests that need PyTorch are skipped where it is not installed."""

from __future__ import annotations

import doctest
from collections.abc import Generator
from importlib.util import find_spec

import pytest

from truelike.errors import MissingExtraError

NO_TORCH = find_spec("torch") is None


def _needs_torch(error: BaseException | None) -> bool:
    """Whether an exception, or one that led to it, says that PyTorch is missing."""
    if isinstance(error, doctest.UnexpectedException):
        return _needs_torch(error.exc_info[1])
    if isinstance(error, MissingExtraError) and "needs PyTorch" in str(error):
        return True
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return True
    return error is not None and _needs_torch(error.__context__)


def _skip_without_torch() -> Generator[None, object, object]:
    try:
        return (yield)
    except BaseException as error:  # pytest's own failures are no Exception
        if NO_TORCH and _needs_torch(error):
            pytest.skip("PyTorch is not installed: pip install 'truelike[deep]'")
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """Skip a test whose fixtures need PyTorch."""
    return (yield from _skip_without_torch())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip a test that needs PyTorch."""
    return (yield from _skip_without_torch())
