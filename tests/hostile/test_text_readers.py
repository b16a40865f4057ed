"""A bounded number of cases of each fuzzer of reading. `fuzz_files.py` says what a case checks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load(name: str) -> ModuleType:
    """A module beside this file. Tests are no package."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


fuzz = load("fuzz_files")


@pytest.mark.parametrize("block", range(2))
@pytest.mark.parametrize("name", fuzz.FUZZERS)
def test_mutated_sources_are_read_in_one_way_or_refused(name: str, block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        fuzz.FUZZERS[name](seed)


@pytest.mark.parametrize("name", ["csv", "json"])
def test_the_fast_reader_takes_part(name: str) -> None:
    fuzz.USED.clear()
    for seed in range(60):
        fuzz.FUZZERS[name](seed)
    used = sum(times for (_, reader), times in fuzz.USED.items() if reader == "fast")
    assert 5 <= used <= 55
