"""The available memory is that of this process, not only of the machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMITED = """
import resource
from truelike.core.memory import available_memory
resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
print(available_memory())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_limit_of_the_shell_counts() -> None:
    found = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True).stdout
    assert 0 < int(found) < 2**31
