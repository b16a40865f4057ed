"""A bounded number of cases of each fuzzer; `make fuzz` runs them for an hour, with new seeds.

The modules fuzz_*.py say what a case checks.
"""

from __future__ import annotations

from collections.abc import Callable

import fuzz
import fuzz_files
import pytest

CASES = {"fuzz_files": 200, "fuzz_directories": 120, "fuzz_settings": 100}  # of each fuzzer: about a minute in all
FUZZERS = [
    pytest.param(case, n // 2 * half, n // 2, id=f"{name}-{half}")
    for name, case in fuzz.fuzzers().items()
    for n in (CASES[case.__module__],)
    for half in range(2)
]


@pytest.mark.parametrize(("case", "first", "n"), FUZZERS)
def test_a_hostile_case_is_answered_rightly_or_refused(case: Callable[[int], None], first: int, n: int) -> None:
    for seed in range(first, first + n):
        case(seed)


@pytest.mark.parametrize("name", ["csv", "json"])
def test_the_fast_reader_takes_part(name: str) -> None:
    fuzz_files.USED.clear()
    for seed in range(60):
        fuzz_files.FUZZERS[name](seed)
    used = sum(times for (_, reader), times in fuzz_files.USED.items() if reader == "fast")
    assert 5 <= used <= 55
