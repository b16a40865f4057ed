"""The process of the command line: `truelike`, or `python -m truelike`.

Ctrl-C ends it with exit code 130 at any moment, also while modules are imported. No thread is waited for then.
"""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line and end the process."""
    try:
        try:
            from truelike.cli import main as run

            run()
        except KeyboardInterrupt:
            end_interrupted()
    except KeyboardInterrupt:  # polars delivers an interrupt twice
        end_interrupted()


def end_interrupted() -> None:
    """Say that the process was interrupted, and end it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream, text in ((sys.stdout, ""), (sys.stderr, "interrupted\n")):
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError, AttributeError):  # its reader is gone, or there is none
            continue
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
