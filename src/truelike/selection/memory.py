"""The peak memory of this process during a piece of work."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MB = 1e6


class Peak:
    """The peak resident memory of the process within a `with` block, including what was allocated before.

    On Linux the kernel's high-water mark is reset first. Elsewhere it is the peak since the start, or None.
    """

    mb: float | None = None

    def __enter__(self) -> Peak:
        with contextlib.suppress(OSError):  # not Linux, or not permitted: the peak since the start is used
            RESET.write_text("5")
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, StopIteration):
            lines = STATUS.read_text(encoding="utf-8").splitlines()
            self.mb = next(int(line.split()[1]) * 1024 / MB for line in lines if line.startswith("VmHWM"))
            return
        with contextlib.suppress(ImportError):  # Windows
            import resource

            unit = 1 if sys.platform == "darwin" else 1024
            self.mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MB
