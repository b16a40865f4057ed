"""Which tests are slow, and which are skipped without PyTorch."""

from __future__ import annotations

import doctest
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

from truelike.errors import MissingExtraError

NO_TORCH = find_spec("torch") is None
ROOT = Path(__file__).parent
SLOW = (  # directories and files whose tests are all slow; others are marked where they are
    "src/truelike/mlflow.py",
    "src/truelike/models/networks/",
    "src/truelike/engines/torch/",
    "tests/cli/test_demo.py",
    "tests/cli/test_on_cluster.py",
    "tests/cli/test_serve.py",
    "tests/hostile/",
    "tests/models/networks/",
    "tests/serving/page/",
    "tests/test_cluster.py",
    "tests/test_deploy.py",
    "tests/test_examples.py",
    "tests/test_mlflow.py",
    "tests/engines/blocks/test_ray.py",
    "tests/engines/torch/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow directories and files."""
    for item in items:
        if item.path.relative_to(ROOT).as_posix().startswith(SLOW):
            item.add_marker(pytest.mark.slow)


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
