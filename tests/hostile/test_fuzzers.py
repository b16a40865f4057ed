"""A bounded number of cases of each fuzzer; `make fuzz` runs them for an hour, with new seeds.

The modules fuzz_*.py say what a case checks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

CASES = {  # of each fuzzer: about a minute in all
    "fuzz_files": (
        200,
        [
            "csv",
            "fields",
            "json",
            "blocks",
            "gzip",
            "parquet",
            "memory",
            "odd values",
            "ids",
            "titles and features",
        ],
    ),
    "fuzz_directories": (120, ["models", "splits", "checkpoints"]),
    "fuzz_settings": (100, ["parameters", "rankings", "arguments", "command lines"]),
}


@pytest.mark.parametrize("block", range(2))
@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, (_, names) in CASES.items() for name in names]
)
def test_a_hostile_case_is_answered_rightly_or_refused(
    module: str, name: str, block: int, beside: Callable[[str], ModuleType]
) -> None:
    half = CASES[module][0] // 2
    for seed in range(half * block, half * (block + 1)):
        beside(module).FUZZERS[name](seed)


def test_no_fuzzer_is_forgotten(beside: Callable[[str], ModuleType]) -> None:
    found = {path.stem: list(beside(path.stem).FUZZERS) for path in Path(__file__).parent.glob("fuzz_*.py")}
    assert found == {module: names for module, (_, names) in CASES.items()}


@pytest.mark.parametrize("name", ["csv", "json"])
def test_the_fast_reader_takes_part(name: str, beside: Callable[[str], ModuleType]) -> None:
    fuzz = beside("fuzz_files")
    fuzz.USED.clear()
    for seed in range(60):
        fuzz.FUZZERS[name](seed)
    used = sum(times for (_, reader), times in fuzz.USED.items() if reader == "fast")
    assert 5 <= used <= 55
